"""Files of facts, in and out: JSON lines as in the interface, or CSV with `predicate,type,id,type,id …`.

A file is stored in one transaction, and every line that is wrong is reported.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, TextIO

import orjson

from facts.accept import check_signature
from facts.batches import Key, remember, rest_of_row
from facts.models import NewRow
from facts.numbering import signature_number
from facts.table import fact_table
from facts.wire import Fact, fact_from_json, fact_to_json, plain_fact
from policy.active import program_of_version
from policy.errors import AuthzError
from policy.offsets import advance, changing
from policy.revisions import NOBODY, By, Done, Kind, record
from policy.rules.program import Program, Signature

CHUNK = 10_000  # facts
ENOUGH = 100  # wrong lines, after which reading on helps nobody
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
        with fact_table().loader() as loader:
            filing = _Filing(environment_id, turn.offset, program, skip_bad, loader.settle)
            lines = iter(lines)
            while rows := filing.rows(islice(lines, CHUNK)):
                right = list(filter(None, rows))
                if right and (skip_bad or not filing.bad):
                    loader.take(right)
                report(filing.read)
        if filing.bad and not skip_bad:
            raise LinesRejected(tuple(filing.bad))
        record(environment_id, [Done(turn.offset, Kind.LOAD, by, turn.policy_version_id, loader.inserted)])
        fact_table().note_stored(loader.inserted)
    return Loaded(filing.read, loader.inserted, tuple(filing.bad))


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
        self.bad: list[BadLine] = []
        self.filed: dict[Signature, Filed | str] = {}  # or why the policy has no use for such facts
        self.known: dict[Key, Filed] = {}

    def rows(self, lines: Iterable[tuple[int, object]]) -> list[NewRow | None]:
        """Each line's, or None where it is wrong. What JSON said of a line is gone before the next one is read."""
        rows: list[NewRow | None] = []
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
            filed = self.filed.get(fact.signature) or self._file(fact.signature)
        except AuthzError as error:
            self._refuse(BadLine(number, error.message))
            return None
        if isinstance(filed, str):
            self._refuse(BadLine(number, filed))
            return None
        number_of_kind, rest = filed
        return (number_of_kind, *[value.id for value in fact.args] + list(rest))

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
    while len(pairs) > 2 and not pairs[-1] and not pairs[-2]:
        pairs = pairs[:-2]  # columns that shorter facts leave empty
    if len(pairs) % 2:
        return BadLine(number, "a type without an id")
    args = [{"type": pairs[at], "id": pairs[at + 1]} for at in range(0, len(pairs), 2)]
    return {"predicate": predicate, "args": args}


def write_json(file: TextIO, facts: Iterator[Fact]) -> int:
    """One line each; how many there were."""
    return sum(1 for fact in facts if file.write(orjson.dumps(fact_to_json(fact)).decode() + "\n"))


def write_csv(file: TextIO, facts: Iterator[Fact]) -> int:
    rows = csv.writer(file)
    cells = ([fact.predicate, *(part for value in fact.args for part in (value.type, value.id))] for fact in facts)
    return sum(1 for row in cells if rows.writerow(row))


READERS = {"json": read_json, "csv": read_csv}
WRITERS = {"json": write_json, "csv": write_csv}
