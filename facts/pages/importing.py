"""The page that imports facts from a text or a file: it stores all of them, or none and says why."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from django import forms
from django.core.files.uploadedfile import UploadedFile

from facts.bulk import LinesRejected, Loaded, load
from facts.formats import READERS, BadLine
from facts.names import sentences
from policy.errors import AuthzError, Unavailable
from policy.models import Environment
from policy.revisions import By

_FORMATS = (("notation", "Facts as they are written, or JSON lines"), ("csv", "CSV: predicate,type,id,type,id…"))
_LONGEST = 300  # characters of a line that is shown


class ImportForm(forms.Form):
    environment = forms.ModelChoiceField(Environment.objects.all(), empty_label=None)
    format = forms.ChoiceField(choices=_FORMATS, required=False)
    text = forms.CharField(
        required=False, strip=False, label="Facts, one a line",
        widget=forms.Textarea(attrs={"rows": 12, "spellcheck": "false", "wrap": "off", "placeholder": (
            'has_role(User:ann, "admin", Repo:acme)\n'
            'has_role(User:bob, "reader", Repo:acme) until 2030-01-01T00:00:00Z\n'
            '{"predicate": "is_public", "args": [{"type": "Repo", "id": "acme"}]}')}),
    )  # fmt: skip
    file = forms.FileField(required=False, label="or a file of them", allow_empty_file=True)

    def clean(self) -> dict:
        super().clean()
        sent = self.cleaned_data
        if not self.errors and not sent["file"] and not sent["text"].strip():
            self.add_error("text", "Write some facts, or choose a file.")
        elif not self.errors and sent["file"] and sent["text"].strip():
            self.add_error("file", "Write facts or choose a file, not both.")
        return sent

    def clean_file(self) -> UploadedFile | None:
        """Refuse a file that is not UTF-8: neither its lines nor what is wrong with them could be shown."""
        file = self.cleaned_data["file"]
        try:
            content = file.read() if file else b""
            content.decode()
        except UnicodeDecodeError as reason:
            line = content.count(b"\n", 0, reason.start) + 1
            raise forms.ValidationError(f"The file is not UTF-8 text (line {line}). Save it as UTF-8.") from None
        return file

    @property
    def reader(self) -> str:
        """Return the format of the lines: csv if a file's name ends in `.csv`, else the chosen one, else notation."""
        sent = self.cleaned_data
        by_name = sent["file"] is not None and str(sent["file"].name).lower().endswith(".csv")
        return "csv" if by_name else sent["format"] or "notation"

    def opened(self) -> BinaryIO:
        file = self.cleaned_data["file"]
        if file is None:
            return io.BytesIO(self.cleaned_data["text"].encode(errors="surrogateescape"))
        file.seek(0)
        return io.BytesIO(file.read())


@dataclass(frozen=True)
class Wrong:
    """A wrong line: its number, what is wrong with it, and its text."""

    number: int
    reason: str
    text: str


@dataclass(frozen=True)
class ImportOutcome:
    loaded: Loaded | None = None
    warnings: tuple[str, ...] = ()
    wrong: tuple[Wrong, ...] = ()
    trouble: str = ""


def act(form: ImportForm, by: By, ends_stay: bool = True) -> ImportOutcome:
    """Store what was sent, all of it or nothing."""
    try:
        with form.opened() as file:
            where, lines = form.cleaned_data["environment"].pk, READERS[form.reader](file)
            loaded = load(where, lines, by=by, ends_stay=ends_stay)
    except LinesRejected as reason:
        return ImportOutcome(wrong=tuple(_wrong(form, reason.bad)))
    except (AuthzError, Unavailable) as reason:
        return ImportOutcome(trouble=reason.message)
    return ImportOutcome(loaded, tuple(sentences(loaded.unknown)))


def _wrong(form: ImportForm, bad: tuple[BadLine, ...]) -> Iterator[Wrong]:
    """Yield the wrong lines with their reasons and texts; long texts are cut."""
    wanted = {each.number for each in bad}
    with form.opened() as file:
        lines = {number: line for number, line in enumerate(file, 1) if number in wanted}
    for each in bad:
        text = lines.get(each.number, b"").decode(errors="replace").rstrip()
        yield Wrong(each.number, each.reason, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
