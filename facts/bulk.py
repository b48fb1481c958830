"""Files of facts, in and out: JSON lines as in the interface, or CSV with `predicate,type,id,type,id …`. The last cell
of a line of CSV may be `expires_at=2026-12-01T00:00:00Z`.

A file is stored in one transaction, and every line that is wrong is reported.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, BinaryIO, TextIO

import orjson

from facts import past
from facts.accept import check_signature
from facts.batches import Key, last_said, remember, rest_of_row
from facts.ends import Ends, check_end
from facts.models import NewRow
from facts.numbering import signature_number
from facts.past import Changed
from facts.table import Loader, fact_table
from facts.wire import END, Fact, fact_from_json, fact_to_json, plain_fact
from policy import clock
from policy.active import program_of_version
from policy.errors import AuthzError
from policy.offsets import advance, changing
from policy.revisions import NOBODY, By, Done, Kind, record
from policy.rules.program import Program, Signature

CHUNK = 10_000  # facts
ENOUGH = 100  # wrong lines, after which reading on helps nobody
_END_CELL = f"{END}="
Filed = tuple[int, tuple[Any, ...]]  # a signature's number, and what follows the ids in a row


@dataclass(frozen=True, slots=True)
class BadLine:
    number: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Loaded:
    read: int
    inserted: int
    bad: tuple[BadLine, ...]


class LinesRejected(AuthzError):
    """Some lines are wrong, and so nothing is loaded."""

    def __init__(self, bad: tuple[BadLine, ...]):
        self.bad = bad
        super().__init__("\n".join(map(str, bad)))


def load(
    environment_id: int,
    lines: Iterable[tuple[int, object]],
    skip_bad: bool = False,
    report: Callable[[int], None] = lambda read: None,
    by: By = NOBODY,
) -> Loaded:
    """Store the facts of all lines, or of none; with `skip_bad`, of those that are right.

    A line is a `Fact`, or what JSON says of one, or known to be bad.
    """
    with changing():
        turn = advance(environment_id)
        program = program_of_version(turn.policy_version_id)
        fact_table().expect_many()
        ends = Ends(environment_id, turn)
        with fact_table().loader() as loader:
            filing = _Filing(environment_id, turn.offset, program, skip_bad, loader.settle)
            lines = iter(lines)
            while rows := filing.rows(islice(lines, CHUNK)):
                right = list(filter(None, rows))
                if right and (skip_bad or not filing.bad):
                    loader.take(_with_room(right, ends, filing, loader))
                report(filing.read)
        if filing.bad and not skip_bad:
            raise LinesRejected(tuple(filing.bad))
        counts = _settled(filing.numbers, turn.offset) if ends.changed else Changed(loader.inserted)
        done = Done(turn.offset, Kind.LOAD, by, turn.policy_version_id, counts.inserted, counts.deleted)
        record(environment_id, [done])
        fact_table().note_stored(loader.inserted)
    return Loaded(filing.read, counts.inserted, tuple(filing.bad))


def _with_room(rows: list[NewRow], ends: Ends, filing: _Filing, loader: Loader) -> list[NewRow]:
    """The rows, as they are to be stored: where some may end, once the stored ones with other ends have gone."""
    if not (filing.some_end or ends.may_end):
        return rows
    rows = last_said(rows)
    loader.settle()
    ends.make_way(rows, filing.some_end)
    return rows


def _settled(numbers: Iterable[int], revision: int) -> Changed:
    past.settle(numbers, revision)
    return past.changed(numbers, revision, revision)[revision]


class _Filing:
    """Turns lines into rows, and keeps the wrong ones. `settle` is called before the database is."""

    def __init__(
        self, environment_id: int, since: int, program: Program | None, skip_bad: bool, settle: Callable[[], None]
    ):
        self.environment_id = environment_id
        self.since = since
        self.program = program
        self.skip_bad = skip_bad
        self.settle = settle
        self.read = 0
        self.some_end = False  # among the rows that were made last
        self.bad: list[BadLine] = []
        self.filed: dict[Signature, Filed | str] = {}  # or why the policy has no use for such facts
        self.known: dict[Key, Filed] = {}

    def rows(self, lines: Iterable[tuple[int, object]]) -> list[NewRow | None]:
        """Each line's, or None where it is wrong. What JSON said of a line is gone before the next one is read."""
        rows: list[NewRow | None] = []
        self.some_end = False
        for number, line in lines:
            plain = plain_fact(line, self.known)
            if plain is None:
                rows.append(self._with_care(number, line))
            else:
                (sig, rest), ids = plain
                rows.append((sig, *(ids + rest)))
        self.read += len(rows)
        return rows

    def _with_care(self, number: int, line: object) -> NewRow | None:
        try:
            if isinstance(line, BadLine):
                self._refuse(line)
                return None
            fact = line if isinstance(line, Fact) else fact_from_json(line, "")
            if fact.expires_at is not None:
                check_end(fact.expires_at, self._moment, "")
            filed = self.filed.get(fact.signature) or self._file(fact.signature)
        except AuthzError as error:
            self._refuse(BadLine(number, error.message))
            return None
        if isinstance(filed, str):
            self._refuse(BadLine(number, filed))
            return None
        self.some_end |= fact.expires_at is not None
        number_of_kind, rest = filed
        return (number_of_kind, *[value.id for value in fact.args], *rest[:-1], fact.expires_at)

    @cached_property
    def _moment(self) -> int:
        """When the first end was read; those before it are past."""
        self.settle()
        return clock.now()

    @property
    def numbers(self) -> list[int]:
        """Of the signatures whose facts are stored."""
        return [filed[0] for filed in self.filed.values() if not isinstance(filed, str)]

    def _file(self, signature: Signature) -> Filed | str:
        try:
            if self.program is not None:
                check_signature(self.program, signature)
        except AuthzError as error:
            self.filed[signature] = error.message
        else:
            self.settle()
            number = signature_number(self.environment_id, signature)
            filed = self.filed[signature] = number, rest_of_row(signature, self.since)
            remember(self.known, signature, filed)
        return self.filed[signature]

    def _refuse(self, line: BadLine) -> None:
        self.bad.append(line)
        if len(self.bad) >= ENOUGH and not self.skip_bad:
            raise LinesRejected(tuple(self.bad))


# ---- formats ---------------------------------------------------------------------------------------------------


def read_json(file: BinaryIO) -> Iterator[tuple[int, object]]:
    """Each line's number and the JSON in it, or why it is bad; empty lines say nothing."""
    for number, line in enumerate(file, 1):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not text.isspace():
            try:
                yield number, orjson.loads(text)
            except orjson.JSONDecodeError as error:
                yield number, BadLine(number, f"not JSON: {error}")


def read_csv(file: BinaryIO) -> Iterator[tuple[int, object]]:
    """The same of CSV; a first line that begins with `predicate` names the columns."""
    # Bytes that are no text become lone surrogates, which are refused where they stand.
    rows = csv.reader(io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline=""), strict=True)
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield rows.line_num, BadLine(rows.line_num, f"not CSV: {error}")
            continue
        if cells and not (rows.line_num == 1 and cells[0] == "predicate"):
            yield rows.line_num, _json_of_cells(rows.line_num, cells)


def _json_of_cells(number: int, cells: list[str]) -> object:
    predicate, pairs = cells[0], cells[1:]
    end = {END: pairs.pop().removeprefix(_END_CELL)} if len(pairs) % 2 and pairs[-1].startswith(_END_CELL) else {}
    while len(pairs) > 2 and not pairs[-1] and not pairs[-2]:
        pairs = pairs[:-2]  # columns that shorter facts leave empty
    if len(pairs) % 2:
        return BadLine(number, "a type without an id")
    args = [{"type": pairs[at], "id": pairs[at + 1]} for at in range(0, len(pairs), 2)]
    return {"predicate": predicate, "args": args, **end}


def write_json(file: TextIO, facts: Iterator[Fact]) -> int:
    """One line each; how many there were."""
    return sum(1 for fact in facts if file.write(orjson.dumps(fact_to_json(fact)).decode() + "\n"))


def write_csv(file: TextIO, facts: Iterator[Fact]) -> int:
    rows = csv.writer(file)
    return sum(1 for fact in facts if rows.writerow(_cells_of(fact)))


def _cells_of(fact: Fact) -> list[str]:
    pairs = [part for value in fact.args for part in (value.type, value.id)]
    end = [] if fact.expires_at is None else [f"{_END_CELL}{clock.short_text_of(fact.expires_at)}"]
    return [fact.predicate, *pairs, *end]


READERS = {"json": read_json, "csv": read_csv}
WRITERS = {"json": write_json, "csv": write_csv}
