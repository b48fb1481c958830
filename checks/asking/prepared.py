"""Prepared statements: each outline of questions is compiled once, and found again by its `StatementKey`.

    Question -> StatementKey -> Shape -> Compiled -> PreparedStatement -> Answered

A `StatementKey` is made of the question without its values. Most requests differ from earlier ones in their values
only, so their key finds a `PreparedStatement`. If it finds none, the engine's `Shape` is made of the key, `Compiled`
and prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from checks.asking.cache import Cache
from checks.asking.confirmation import SnapshotState, state_and_rows
from checks.asking.open_policy import Policy
from checks.asking.question import Outline, Page
from checks.engine.answers import Row, answers_of
from checks.engine.compile import Compiled, Root, Shape
from checks.engine.rules.clauses import NOW
from checks.engine.sql.dialects import CLOCKS, Dialect
from checks.engine.sql.frames import Window
from checks.engine.sql.rounds import Fetched, Rounds, statements_of
from checks.engine.sql.text import Statement
from facts.numbering import Marks
from policy.rules.program import Program, Signature

_NOTHING: frozenset[Signature] = frozenset()
_MOST_STATEMENTS = 8192


class StatementKey(NamedTuple):
    """All that a statement depends on except values: the key by which it is remembered."""

    environment_id: int | None  # whose facts it reads; None: only facts that the request brings
    policy: Policy | None  # whose rules it follows; None: those of an unpublished text
    needs_key: bool | None  # whether it confirms the caller's key; None: it confirms nothing
    signatures: int | Marks  # whose numbers it contains: a snapshot's marks, or a live session's generation
    dialect: Dialect
    asked: tuple[Outline | Root, ...]
    width: int  # how many answer columns each of the questions has
    inline: frozenset[Signature] = _NOTHING  # signatures that the request brings facts of
    as_of_signature: int | None = None  # as of a revision: that of the latest signature until then; None: now
    window: Window | None = None
    most: int = 0  # at most so many rows, whichever are found first; 0: all
    by_rows: bool = False  # whether one statement asks about many rows of values (`by_rows`)

    def places(self, program: Program) -> tuple[int, ...]:
        """Return the places of the questions that may have answers: those about types that the program knows."""
        asked = enumerate(self.asked)
        return tuple([place for place, each in asked if isinstance(each, Root) or all(map(program.knows, each.types))])

    def shape(self, places: Iterable[int]) -> Shape:
        """Return the questions in these places as the engine takes them."""
        asked = [self.asked[place] for place in places]
        roots = tuple([each if isinstance(each, Root) else each.root for each in asked])
        has_stored = self.environment_id is not None
        return Shape(
            roots, self.width, self.inline, has_stored, self.window, self.most, self.as_of_signature is not None
        )


StatementResult = tuple[SnapshotState, list[tuple[int, Row]]]  # the state, and answers, each with its question's place


class Ready(NamedTuple):
    """A statement with its values, and the function that reads the rows it fetches."""

    statement: Statement
    rounds: tuple[Rounds, ...]
    slots: dict[str, object]
    read: Callable[[list[Fetched]], StatementResult]
    is_timeless: bool


class PreparedStatement(NamedTuple):
    """A statement and how to read its rows. `statement` is None where nothing can be true, whatever the facts."""

    statement: Statement | None
    rounds: tuple[Rounds, ...] = ()
    width: int = 0
    is_guarded: bool = False
    places: tuple[int, ...] = ()  # of the questions that it answers, among those of its key
    numbers: Mapping[Signature, int] = {}  # of the signatures of facts that a request brings
    marks: Marks = Marks()  # of the environment's signatures when it was compiled
    is_timeless: bool = True  # whether its answer does not depend on the clock
    reads: int = 0  # how many tables its plans read

    @classmethod
    def of(
        cls, made: Compiled, places: tuple[int, ...], numbers: Mapping[Signature, int], marks: Marks
    ) -> PreparedStatement:
        """Return what the engine compiled, without its plans, which are not needed again."""
        every = [*([made.statement] if made.statement else []), *statements_of(made.rounds)]
        is_timeless = not any(map(reads_clock, every))
        shape = made.shape
        reads = sum(root.plan.weight for root in made.roots)
        guarded = made.is_guarded
        return cls(made.statement, made.rounds, shape.width, guarded, places, numbers, marks, is_timeless, reads)

    def answers(self, rows: list[Fetched]) -> Sequence[Row]:
        """Return the answers to one question, out of the rows of a statement that confirms nothing."""
        if not self.width:
            return [()] if rows[0][0] else []
        return answers_of(rows) if self.is_guarded else rows

    def confirmed(self, start: int, page: Page | None, rows: list[Fetched]) -> StatementResult:
        """Read the rows of a statement that confirms; `start` is the place of the first question of its key."""
        places = self.places
        first = start + places[0]
        if not self.width:
            version, truth, moment, offset = rows[0]
            return SnapshotState(version, moment, offset), [(first, ())] if truth else []
        state, found = state_and_rows(rows)
        if self.is_guarded:
            found = answers_of(found)
        if len(places) > 1:
            return state, [(start + places[int(row[0])], row[1:]) for row in found]
        return state, [(first, row) for row in (page.of(found) if page else found)]


UNANSWERED = PreparedStatement(None)


def reads_clock(statement: Statement) -> bool:
    """Say whether the statement reads the time, so that its answer may change later, though nothing else has."""
    return NOW in statement.parameters or any(clock in statement.sql for clock in CLOCKS)


Statements = Cache[StatementKey, PreparedStatement]


def new_statements() -> Statements:
    """Return an empty store of prepared statements."""
    return Statements(_MOST_STATEMENTS)
