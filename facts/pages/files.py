"""The pages that import and export facts."""

from __future__ import annotations

import atexit
import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import BinaryIO

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.http import FileResponse

from facts.accept import sentences
from facts.keyset_pages import SearchColumn, every
from facts.loading import LinesRejected, Loaded, load
from facts.notation import READERS, WRITERS, BadLine
from facts.read import read_snapshot
from policy.core.journal import By
from policy.core.threads import start_timer
from policy.errors import AuthzError, Unavailable
from policy.models import Environment

# ---- file on disk -------------------------------------------------------------------------------------------------
# Responses with a file on disk: a server can send it by its path, without loading it into memory.


class FileOnDisk(FileResponse):
    """A response with a file on disk, which a server can send by its `path`."""

    def __init__(self, file: BinaryIO, path: str, **options: object):
        super().__init__(file, **options)  # type: ignore[arg-type]  # what it takes, it says
        self.path = path


# ---- Export: all facts that a page shows, as a file of one snapshot -----------------------------------------------
# The file is complete before its first byte is sent. So a failure is an error and not a truncated file, a slow client
# keeps no transaction open, and the file is not held in memory.

KEPT = 60.0  # seconds until a file is unlinked; the server must have opened the file by then
_ENDINGS = {"json": "jsonl", "csv": "csv", "notation": "txt"}
_TYPES = {"json": "application/jsonl", "csv": "text/csv; charset=utf-8", "notation": "text/plain; charset=utf-8"}
FORMATS = tuple(WRITERS)


def exported(walk: Sequence[SearchColumn], form: str, name: str) -> FileOnDisk:
    """Return a response that downloads the facts of a walk as a file."""
    path = _written(walk, form)
    answer = FileOnDisk(
        open(path, "rb"),  # noqa: PTH123, SIM115  the answer closes it
        path,
        as_attachment=True,
        filename=f"{name}.{_ENDINGS[form]}",
        content_type=_TYPES[form],
    )
    _forget_later(path)
    answer["Cache-Control"] = "no-store"
    return answer


def _written(walk: Sequence[SearchColumn], form: str) -> str:
    number, path = tempfile.mkstemp(prefix="facts-")  # readable only by this user
    _forget_at_exit()
    _left.add(path)
    try:
        with os.fdopen(number, "wb") as file, io.TextIOWrapper(file, "utf-8", newline="") as text, read_snapshot():
            WRITERS[form](text, every(walk))
    except BaseException:
        _forget(path)
        raise
    return path


_left: set[str] = set()


def _forget_later(path: str) -> None:
    """Unlink the file after `KEPT` seconds. A server that has opened it by then can still read it to the end."""
    start_timer(KEPT, _forget, path)


def _forget(path: str) -> None:
    _left.discard(path)
    with suppress(OSError):
        os.unlink(path)  # noqa: PTH108


@cache
def _forget_at_exit() -> None:
    """Register `_forget_all`, once; at import, it would be of the parent of this process."""
    atexit.register(_forget_all)


def _forget_all() -> None:
    for path in tuple(_left):
        _forget(path)


# ---- importing ----------------------------------------------------------------------------------------------------
# The page that imports facts from a text or a file: it stores all of them, or none and reports why.

_FORMATS = (("notation", "Text or JSON Lines"), ("csv", "CSV: predicate,type,id,type,id…"))
_LONGEST = 300  # characters of a displayed line


class ImportForm(forms.Form):
    environment = forms.ModelChoiceField(Environment.objects.all(), empty_label=None)
    format = forms.ChoiceField(choices=_FORMATS, required=False)
    text = forms.CharField(
        required=False, strip=False, label="Facts, one per line",
        widget=forms.Textarea(attrs={"rows": 12, "spellcheck": "false", "wrap": "off", "placeholder": (
            'has_role(User:ann, "admin", Repo:acme)\n'
            'has_role(User:bob, "reader", Repo:acme) until 2030-01-01T00:00:00Z\n'
            '{"predicate": "is_public", "args": [{"type": "Repo", "id": "acme"}]}')}),
    )  # fmt: skip
    file = forms.FileField(required=False, label="Or upload a file", allow_empty_file=True)

    def clean(self) -> dict:
        super().clean()
        sent = self.cleaned_data
        if not self.errors and not sent["file"] and not sent["text"].strip():
            self.add_error("text", "Enter facts or choose a file.")
        elif not self.errors and sent["file"] and sent["text"].strip():
            self.add_error("file", "Enter facts or choose a file, not both.")
        return sent

    def clean_file(self) -> UploadedFile | None:
        """Reject a file that is not UTF-8: neither its lines nor their errors could be displayed."""
        file = self.cleaned_data["file"]
        try:
            content = file.read() if file else b""
            content.decode()
        except UnicodeDecodeError as reason:
            line = content.count(b"\n", 0, reason.start) + 1
            raise forms.ValidationError(
                f"Line {line}: the file is not valid UTF-8. Save it as UTF-8 and try again."
            ) from None
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
    """An invalid line: its number, the error, and its text."""

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
    """Store what was submitted, all or nothing."""
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
    """Yield the invalid lines with their errors and texts; long texts are cut."""
    wanted = {each.number for each in bad}
    with form.opened() as file:
        lines = {number: line for number, line in enumerate(file, 1) if number in wanted}
    for each in bad:
        text = lines.get(each.number, b"").decode(errors="replace").rstrip()
        yield Wrong(each.number, each.reason, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
