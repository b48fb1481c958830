"""Recursion that needs two of its own answers at once: worked out in rounds, one statement each.

No recursive statement may join a relation with itself, so what is known travels as JSON: all goals and answers so
far, and those that the last round added. A branch is tried wherever one of the rows it reads is new; when a round adds
nothing, all is known. Rounds of one question must run in one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import orjson

from checks.engine.errors import TooMuchRecursion
from checks.engine.plan.plan import AnswerArm, Answers, Branch, Exit, Goals, Jump, Plan, Source, Tagged, Variant
from checks.engine.plan.variants import variant_of
from checks.engine.rules.clauses import Slot, Var
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.layout import Padded, padded
from checks.engine.sql.render import answer_terms, goal_terms
from checks.engine.sql.scope import Scope
from checks.engine.sql.text import Column, Formed, Part, Statement, Text, Unnamed, finished, read_from, tables_in, union

Fetched = tuple[Any, ...]  # a row as the database gives it
Run = Callable[[Statement, dict[str, object]], list[Fetched]]

ALL_GOALS, NEW_GOALS, ALL_ANSWERS, NEW_ANSWERS = "all_goals", "new_goals", "all_answers", "new_answers"
MOST_ROWS = 1_000_000
MOST_BRANCHES = 100  # in one statement


Tag = tuple[int, int]  # of a new row: whether it is an answer, and what it answers or asks


@dataclass(frozen=True)
class RoundStep:
    """A statement of each round that has new rows of one of these tags."""

    tags: frozenset[Tag]
    statement: Statement


@dataclass(frozen=True)
class Rounds:
    """How a plan's answers are worked out: the first statement, those of each round, and those of the answers."""

    seed: Statement | None
    steps: tuple[RoundStep, ...]  # several, where one would be too large
    exits: tuple[tuple[Variant, Statement], ...]
    number: int = 0  # its own, among all that are worked out for a statement

    @property
    def name(self) -> str:
        return f"known{self.number}"

    def slot(self, variant: Variant) -> str:
        """The slot that statements read the answers of a variant from."""
        return f"{self.name}v{[each for each, _ in self.exits].index(variant)}"


def statements_of(rounds: Iterable[Rounds]) -> Iterator[Statement]:
    """All that are run."""
    for each in rounds:
        yield from (each.seed,) if each.seed else ()
        yield from (step.statement for step in each.steps)
        yield from (exits for _, exits in each.exits)


def worked_out(rounds: Rounds, run: Run, slots: dict[str, object]) -> dict[str, str]:
    """The slots that the plan's answers are read from."""
    known: set[Fetched] = set()
    new = set(run(rounds.seed, slots)) if rounds.seed else set()
    while new:
        known |= new
        if len(known) > MOST_ROWS:
            raise TooMuchRecursion(MOST_ROWS)
        tables = slots | _tables(known, new)
        tags = {row[:2] for row in new}
        run_now = [step.statement for step in rounds.steps if not tags.isdisjoint(step.tags)]
        new = {row for statement in run_now for row in run(statement, tables)} - known
    every = slots | _tables(known, set())
    return {rounds.slot(variant): _json(run(exits, every)) for variant, exits in rounds.exits}


def _tables(known: set[Fetched], new: set[Fetched]) -> dict[str, str]:
    """Rows (is an answer, tag, …) as the tables that the statements read."""
    return {
        ALL_GOALS: _json(row[1:] for row in known if not row[0]),
        NEW_GOALS: _json(row[1:] for row in new if not row[0]),
        ALL_ANSWERS: _json(row[1:] for row in known if row[0]),
        NEW_ANSWERS: _json(row[1:] for row in new if row[0]),
    }


def _json(rows: Iterable[Fetched]) -> str:
    return orjson.dumps(list(rows)).decode()


# ---- statements ------------------------------------------------------------------------------------------------


Arm = Jump | AnswerArm  # what makes goals, or answers


class Renders(Protocol):
    """What makes the SELECTs of a round."""

    @property
    def dialect(self) -> Dialect: ...
    def select(self, branch: Branch, columns: Sequence[Column], scope: Scope[Source]) -> Text: ...
    def head_of(self, rows: Text, tables: Iterable[Text]) -> Text: ...


def rounds_for(plan: Plan, renderer: Callable[[], Renders]) -> Rounds:
    """The statements for a plan: the first one, those of each round, and those of each variant of the answers."""
    exits: dict[Variant, list[Exit]] = {}
    for end in plan.exits:
        exits.setdefault(variant_of(end, plan.fixed), []).append(end)
    answers = tuple((variant, _Statements(plan, renderer()).of_answers(ends)) for variant, ends in exits.items())
    return Rounds(_Statements(plan, renderer()).seed(), _Statements(plan, renderer()).steps(), answers)


@dataclass(frozen=True)
class _Statements:
    plan: Plan
    renderer: Renders

    def seed(self) -> Statement | None:
        rows = [self._row(jump) for jump in self.plan.seeds]
        return self._statement(rows) if rows else None

    def steps(self) -> tuple[RoundStep, ...]:
        """Branches that go on from new rows of one tag are together, so that few statements have anything to do.

        A branch is tried once for each row that it reads, that one from the new ones and the others from all. It is
        put into words once.
        """
        arms: list[Arm] = [*self.plan.moves, *self.plan.answers]
        tried: list[tuple[Tag, Text]] = []
        for arm in arms:
            row = self._row(arm)
            tried += [(tag, read_from(row, tables)) for tables, tag in _tried(_branch_of(arm))]
        if len(arms) > MOST_BRANCHES:
            tried.sort(key=lambda each: each[0])
        chunks = [tried[start : start + 2 * MOST_BRANCHES] for start in range(0, len(tried), 2 * MOST_BRANCHES)]
        return tuple(self._step(chunk) for chunk in chunks)

    def of_answers(self, ends: list[Exit]) -> Statement:
        rows = []
        for end in ends:
            outs: list[Column] = [
                ("''",) if isinstance(out, Var) else Formed(out, self.renderer.dialect.answer) for out in end.outs
            ]
            rows.append(read_from(self._select(end.branch, outs or [("''",)]), _every(end.branch)))
        return self._statement(rows)

    def _step(self, tried: list[tuple[Tag, Text]]) -> RoundStep:
        return RoundStep(frozenset(tag for tag, _ in tried), self._statement([row for _, row in tried]))

    def _row(self, arm: Arm) -> Text:
        if isinstance(arm, Jump):
            is_answer, tag, terms = "0", self.plan.tag_of(arm.state), goal_terms(arm)
        else:
            is_answer, tag, terms = "1", arm.tag, answer_terms(arm)
        return self._select(_branch_of(arm), [(is_answer,), (str(tag),), *self._layout.cells(tag, terms)])

    def _select(self, branch: Branch, columns: Sequence[Column]) -> Text:
        """The branch's rows, read from tables that are named later."""
        tables: dict[int, Part] = {number: Unnamed(number) for number in _every(branch)}
        return self.renderer.select(branch, columns, Scope(tables=tables))

    @cached_property
    def _layout(self) -> Padded:
        """Of goals and answers alike: they travel in one table."""
        return padded(self.plan.key_count, self.plan.answer_width, self.renderer.dialect.seed)

    def _statement(self, arms: list[Text]) -> Statement:
        answers = ["tag", *self._layout.names]
        goals = answers[: self.plan.key_count + 1]
        named = [(ALL_GOALS, goals), (NEW_GOALS, goals), (ALL_ANSWERS, answers), (NEW_ANSWERS, answers)]
        rows, dialect = union(arms, distinct=True), self.renderer.dialect
        mentioned = set(tables_in(rows))
        tables: list[Text] = [
            (f"{name} AS MATERIALIZED (", *dialect.table((Slot(name),), columns), ")")
            for name, columns in named
            if name in mentioned
        ]
        return finished((*self.renderer.head_of(rows, tables), *rows), dialect.placeholder)


def _tried(branch: Branch) -> list[tuple[dict[int, str], Tag]]:
    """What each of the branch's sources is read from where one of its rows is new, with the tag of that row."""
    every = _every(branch)
    tags = {each.source: each.tags[0] for each in branch.conditions if isinstance(each, Tagged)}
    return [
        ({**every, source.number: name}, (int(isinstance(source, Answers)), tags[source.number]))
        for source, name in _read(branch, NEW_GOALS, NEW_ANSWERS)
    ]


def _every(branch: Branch) -> dict[int, str]:
    return {source.number: name for source, name in _read(branch, ALL_GOALS, ALL_ANSWERS)}


def _read(branch: Branch, goals: str, answers: str) -> list[tuple[Goals | Answers, str]]:
    found = (source for source in branch.sources if isinstance(source, (Goals, Answers)))
    return [(source, goals if isinstance(source, Goals) else answers) for source in found]


def _branch_of(arm: Arm) -> Branch:
    return arm.branch if isinstance(arm, Jump) else arm.exit.branch
