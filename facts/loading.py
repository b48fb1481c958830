"""Load a file of facts in one transaction, and report invalid lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from facts import store
from facts.accept import UnknownName, UnknownNames, check_signature
from facts.ends import Ends, EndsStay, check_end
from facts.models import ROW_LENGTH, NewRow
from facts.notation import BadLine
from facts.numbering import signature_number
from facts.store import ChangeCounts
from facts.table import Loader, fact_table
from facts.wire import Fact, FactKey, fact_from_json, last_of_each, plain_fact, remember, rest_of_row
from policy.active import program_of_version
from policy.errors import AuthzError
from policy.ground import clock, spans
from policy.ground.journal import NOBODY, By, Done, Kind, advance, changing, record
from policy.rules.program import Program, Signature
from policy.rules.signatures import PLACE

CHUNK = 10_000  # facts
ENOUGH = 100  # invalid lines, after which reading is aborted
NumberedFact = tuple[int, tuple[Any, ...]]  # a signature's number, and the columns after the ids


@dataclass(frozen=True, slots=True)
class Loaded:
    read: int
    inserted: int
    bad: tuple[BadLine, ...]
    unknown: tuple[UnknownName, ...] = ()  # roles and relations that the policy does not know; stored nevertheless


class LinesRejected(AuthzError):
    """Some lines are invalid, so nothing is loaded."""

    def __init__(self, bad: tuple[BadLine, ...]):
        self.bad = bad
        super().__init__("\n".join(map(str, bad)))


def load(
    environment_id: int,
    lines: Iterable[tuple[int, object]],
    skip_bad: bool = False,
    report: Callable[[int], None] = lambda read: None,
    by: By = NOBODY,
    ends_stay: bool = False,
) -> Loaded:
    """Store the facts of all lines, or raise `LinesRejected` and store none; with `skip_bad`, skip the invalid lines.

    A line is a `Fact`, the JSON of one, or a `BadLine`. With `ends_stay`, no line is stored if one of them has a fact
    that is already stored with another expiry, not even with `skip_bad`.
    """
    with spans.lasting("load"), changing():
        turn = advance(environment_id)
        program = program_of_version(turn.policy_version_id)
        ends = Ends(environment_id, turn)
        with fact_table().expect_many(), fact_table().loader() as loader:
            filing = _Filing(environment_id, turn.offset, program, skip_bad, loader.settle)
            lines = iter(lines)
            while rows := filing.rows(islice(lines, CHUNK)):
                right = list(filter(None, rows))
                if right and (skip_bad or not filing.bad):
                    try:
                        room = _with_room(right, ends, filing, loader, ends_stay)
                    except EndsStay as reason:
                        raise LinesRejected(filing.lines_of(rows, reason)) from None
                    loader.take(room)
                report(filing.read)
            if filing.bad and not skip_bad:
                raise LinesRejected(tuple(filing.bad))
        counts = _settled(filing.numbers, turn.offset) if ends.changed else ChangeCounts(loader.inserted)
        done = Done(turn.offset, Kind.LOAD, by, turn.policy_version_id, counts.inserted, counts.deleted)
        record(environment_id, [done])
        fact_table().note_stored(loader.inserted)
    return Loaded(filing.read, counts.inserted, tuple(filing.bad), tuple(filing.names.unknown_names))


def _with_room(rows: list[NewRow], ends: Ends, filing: _Filing, loader: Loader, ends_stay: bool) -> list[NewRow]:
    """Return the rows to be stored. If facts may expire, first end the stored ones that get another expiry."""
    if not (filing.some_end or ends.may_end):
        return rows
    rows = last_of_each(rows)
    loader.bring_in()
    ends.make_way(rows, filing.some_end, ends_stay)
    return rows


def _settled(numbers: Iterable[int], revision: int) -> ChangeCounts:
    store.settle(numbers, revision)
    return store.changed(numbers, revision, revision)[revision]


class _Filing:
    """Converts lines to rows, and collects the invalid ones. `settle` is called before the database is used."""

    def __init__(
        self, environment_id: int, since: int, program: Program | None, skip_bad: bool, settle: Callable[[], None]
    ):
        self.environment_id = environment_id
        self.since = since
        self.program = program
        self.skip_bad = skip_bad
        self.settle = settle
        self.read = 0
        self.some_end = False  # among the rows made last
        self.numbers_of_lines: list[int] = []  # of these
        self.bad: list[BadLine] = []
        self.filed: dict[Signature, NumberedFact | str] = {}  # or why the policy does not accept such facts
        self.known: dict[FactKey, NumberedFact] = {}
        self.names = UnknownNames(program)
        self.named: dict[int, Signature] = {}  # signatures whose facts have names that may be unknown

    def rows(self, lines: Iterable[tuple[int, object]]) -> list[NewRow | None]:
        """Return each line's row, or None if the line is invalid. No line's JSON is kept, to save memory."""
        rows: list[NewRow | None] = []
        numbers: list[int] = []
        self.some_end = False
        for number, line in lines:
            numbers.append(number)
            plain = plain_fact(line, self.known)
            if plain is None:
                rows.append(self._with_care(number, line))
            else:
                (sig, rest), ids = plain
                rows.append((sig, *(ids + rest)))
        self.read += len(rows)
        self.numbers_of_lines = numbers
        for kind in self.named:
            self._look_at_names(kind, rows, numbers)
        return rows

    def lines_of(self, rows: list[NewRow | None], reason: EndsStay) -> tuple[BadLine, ...]:
        """Return the lines, of those that were read last, whose facts are stored with another expiry."""
        made = zip(rows, self.numbers_of_lines)
        wrong = (number for row, number in made if row is not None and row[:ROW_LENGTH] in reason.rows)
        return tuple(BadLine(number, reason.message) for number in islice(wrong, ENOUGH))

    def _look_at_names(self, kind: int, rows: list[NewRow | None], numbers: list[int]) -> None:
        """Count names that the policy does not know. There is nearly always none, which is quick to detect."""
        column, signature = 1 + PLACE, self.named[kind]
        if self.names.has_unknown(signature, {row[column] for row in rows if row is not None and row[0] == kind}):
            met = [(row[column], number) for row, number in zip(rows, numbers) if row is not None and row[0] == kind]
            self.names.take(signature, [name for name, _ in met], [number for _, number in met])

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
        """Return the time at which the first expiry was read: all expiries of the file are compared with it."""
        self.settle()
        return clock.now()

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the signatures whose facts are stored."""
        return [filed[0] for filed in self.filed.values() if not isinstance(filed, str)]

    def _file(self, signature: Signature) -> NumberedFact | str:
        try:
            if self.program is not None:
                check_signature(self.program, signature)
        except AuthzError as error:
            self.filed[signature] = error.message
        else:
            self.settle()
            number = signature_number(self.environment_id, signature, self.since)
            filed = self.filed[signature] = number, rest_of_row(signature, self.since)
            remember(self.known, signature, filed)
            if self.names.concern(signature):
                self.named[number] = signature
        return self.filed[signature]

    def _refuse(self, line: BadLine) -> None:
        self.bad.append(line)
        if len(self.bad) >= ENOUGH and not self.skip_bad:
            raise LinesRejected(tuple(self.bad))
