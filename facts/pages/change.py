"""The pages that add, delete, import and export facts."""

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from tempfile import TemporaryDirectory, mkstemp
from typing import BinaryIO

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.http import FileResponse, QueryDict

from facts import store
from facts.accept import EndIsPast, shape_text
from facts.keyset_pages import MARKS, Mark, SearchColumn, every
from facts.loading import LinesRejected, Loaded, load
from facts.models import COLUMNS, Row, Signature
from facts.pages.browse import end_of
from facts.read import fact_of_row
from facts.store import Deletes, EndsStay, Inserts
from facts.table import fetch, lasting, select
from facts.wire import READERS, WRITERS, BadLine, Fact, exact_pattern, fact_from_text
from policy.core.clock import microseconds_of
from policy.core.journal import By, changing
from policy.core.pagination import Cursor, key_of
from policy.core.threads import start_timer
from policy.errors import AuthzError, Unavailable
from policy.models import Environment
from policy.rules.program import Program

# ---- The page that adds a fact -------------------------------------------------------------------------------------

_MOST_SHAPES = 12  # shapes of facts that are shown as examples


class NewFact(forms.Form):
    environment = forms.ModelChoiceField(Environment.objects.all(), empty_label=None)
    fact = forms.CharField(
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off"}),
        help_text='For example <code>has_role(User:ann, "admin", Repo:acme)</code>.',
    )
    ends = forms.DateTimeField(
        required=False,
        label="Until",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": 1}),
        help_text="The fact expires at this time (UTC). Leave empty for no expiry.",
    )

    def __init__(self, by: By, data: QueryDict | None, environment: Environment | None = None, ends_stay: bool = True):
        super().__init__(data, initial={"environment": environment}, label_suffix="")
        self.by = by
        self.ends_stay = ends_stay

    def clean(self) -> dict:
        """Store the fact, which validates it as in the API; convert exceptions to errors of the form."""
        super().clean()
        asked = self.cleaned_data
        if not self.errors:
            try:
                fact = fact_from_text(asked["fact"])
                if asked["ends"] is not None:
                    fact = replace(fact, expires_at=microseconds_of(asked["ends"]))
                store.apply(asked["environment"].id, [Inserts([fact], None, self.ends_stay)], self.by)
                asked["stored"] = fact
            except EndIsPast as reason:
                self.add_error("ends", reason.reason)
            except EndsStay as reason:
                self.add_error("ends", reason.message)
            except (AuthzError, Unavailable) as reason:
                self.add_error("fact", reason.message)
        return asked


def kind_of(environment: Environment, fact: Fact) -> Signature:
    """Return the signature of a stored fact."""
    kinds = Signature.objects.filter(environment=environment, predicate=fact.predicate)
    return next(kind for kind in kinds if kind.signature == fact.signature)


def shapes(program: Program | None) -> list[str]:
    """Return shapes of facts that the policy accepts, not all if there are many."""
    accepted = sorted(program.accepted.items()) if program else ()
    found = [shape_text(predicate, pattern) for (predicate, _), patterns in accepted for pattern in patterns]
    return found[:_MOST_SHAPES]


# ---- deleting -----------------------------------------------------------------------------------------------------
# Deleting selected facts: the page first lists them and asks for confirmation; then all or none of them are deleted.
#
# The confirmation applies to the facts as the page showed them. If one has got another expiry since then, or was
# deleted and stored again, nothing is deleted and the page asks again. A fact that is gone by then is only reported.

_CHOSEN = "facts to delete"


@dataclass(frozen=True)
class ShownFact:
    """A stored fact that is to be deleted, and whether it has changed since the page asked."""

    kind: Signature
    row: Row
    fact: Fact
    since: int  # the revision that stored it
    is_changed: bool = False

    @property
    def state(self) -> list[int | None]:
        return [self.since, self.fact.expires_at]

    @property
    def token(self) -> str:
        return Cursor(_CHOSEN, [self.row, *self.state]).token

    @property
    def end(self) -> str:
        return end_of(self.fact)


@dataclass(frozen=True)
class DeletionOutcome:
    """The result of a deletion. If a fact has changed, nothing is deleted, and all stored ones are `asked_again`."""

    asked_again: tuple[ShownFact, ...] = ()
    deleted: tuple[ShownFact, ...] = ()
    gone: tuple[Fact, ...] = ()


def asked_about(tokens: Iterable[str]) -> tuple[list[ShownFact], list[Fact]]:
    """Return the selected facts that are stored, in the order of the tokens, and those that are no longer stored."""
    marks = (Mark.of(key_of(token, MARKS)) for token in tokens)
    rows = dict.fromkeys(mark.row for mark in marks if mark is not None)
    return _stored_and_gone(rows, _kinds(rows))


def confirmed(tokens: Iterable[str]) -> dict[Row, list[int | None]]:
    """Return the facts that the page asked about, each with its state then; drop tokens that the page did not issue."""
    keys = (key_of(token, _CHOSEN) for token in tokens)
    return {tuple(key[0]): key[1:] for key in keys if key is not None}


def delete(asked: Mapping[Row, list[int | None]], by: By) -> DeletionOutcome:
    """Delete the facts of all environments in one transaction, unless one has changed since the page asked."""
    kinds = _kinds(asked)
    with changing():
        # Lock the environments first, so that nothing changes before the deletion; in a fixed order, against deadlocks.
        where = sorted({kind.environment_id for kind in kinds.values()})
        list(Environment.objects.select_for_update().filter(pk__in=where).order_by("pk").values_list("pk"))
        stored, gone = _stored_and_gone(asked, kinds)
        stored = [replace(each, is_changed=each.state != asked[each.row]) for each in stored]
        if any(each.is_changed for each in stored):
            return DeletionOutcome(asked_again=tuple(stored))
        for environment_id in where:
            here = [each.fact for each in stored if each.kind.environment_id == environment_id]
            if here:
                store.apply(environment_id, [Deletes([exact_pattern(fact) for fact in here])], by)
    return DeletionOutcome(deleted=tuple(stored), gone=tuple(gone))


def _kinds(rows: Iterable[Row]) -> dict[int, Signature]:
    numbers = {row[0] for row in rows}
    return {kind.pk: kind for kind in Signature.objects.select_related("environment").filter(pk__in=numbers)}


def _stored_and_gone(rows: Iterable[Row], kinds: Mapping[int, Signature]) -> tuple[list[ShownFact], list[Fact]]:
    """Return the facts that are stored and have not expired, and the others; none of a deleted environment."""
    stored: list[ShownFact] = []
    gone: list[Fact] = []
    now = select("since, expires_at", *(f"{name} = %s" for name in ("sig", *COLUMNS)), lasting())
    for row in rows:
        if (kind := kinds.get(row[0])) is None:
            continue
        found = fetch(now, row)
        stored += [ShownFact(kind, row, fact_of_row(kind.signature, row[1:], end), since) for since, end in found]
        if not found:
            gone.append(fact_of_row(kind.signature, row[1:]))
    return stored, gone


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
    """Return a response that downloads the facts of a walk as a file.

    The caller opens the snapshot to read from before it makes the walk (`read_snapshot`).
    """
    path = _written(walk, form)
    answer = FileOnDisk(
        open(path, "rb"),  # noqa: PTH123, SIM115  the answer closes it
        path,
        as_attachment=True,
        filename=f"{name}.{_ENDINGS[form]}",
        content_type=_TYPES[form],
    )
    start_timer(KEPT, _forget, path)  # a server that has opened the file by then can still read it to the end
    answer["Cache-Control"] = "no-store"
    return answer


def _written(walk: Sequence[SearchColumn], form: str) -> str:
    number, path = mkstemp(dir=_folder().name)  # readable only by this user
    try:
        with os.fdopen(number, "wb") as file, io.TextIOWrapper(file, "utf-8", newline="") as text:
            WRITERS[form](text, every(walk))
    except BaseException:
        _forget(path)
        raise
    return path


@cache
def _folder() -> TemporaryDirectory[str]:
    """Return this process's folder of files, which is deleted with what is left in it when the process ends."""
    return TemporaryDirectory(prefix="facts-")


def _forget(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)  # noqa: PTH108


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
    trouble = ""  # why nothing was stored
    wrong: Sequence[tuple[BadLine, str]] = ()  # the invalid lines because of which nothing was stored, and their texts

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

    def store(self, by: By, ends_stay: bool = True) -> Loaded | None:
        """Store what was submitted, all or nothing; if nothing, `trouble` or `wrong` says why."""
        try:
            with self.opened() as file:
                where, lines = self.cleaned_data["environment"].pk, READERS[self.reader](file)
                return load(where, lines, by=by, ends_stay=ends_stay)
        except LinesRejected as reason:
            self.wrong = self._with_texts(reason.bad)
        except (AuthzError, Unavailable) as reason:
            self.trouble = reason.message
        return None

    def _with_texts(self, bad: Iterable[BadLine]) -> list[tuple[BadLine, str]]:
        wanted = {each.number for each in bad}
        with self.opened() as file:
            lines = {number: line for number, line in enumerate(file, 1) if number in wanted}
        texts = [lines.get(each.number, b"").decode(errors="replace").rstrip() for each in bad]
        return [(each, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…") for each, text in zip(bad, texts)]
