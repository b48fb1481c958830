"""Nonlinear recursion: semi-naive evaluation, in rounds of statements."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import orjson

from checks.engine.plan.draft import variant_of
from checks.engine.plan.plan import AnswerArm, Answers, Branch, Exit, Goals, Jump, Plan, PlanSource, Tagged, Variant
from checks.engine.rules.clauses import Slot, Term, Var
from checks.engine.sql.render import Padded, SelectScope, answer_terms, goal_terms, padded
from checks.engine.sql.text import (
    MANY,
    Column,
    Dialect,
    Formed,
    NumberTest,
    Statement,
    Table,
    Text,
    finished,
    merged_arm,
    tables_in,
    union,
    without_numbers,
)
from checks.errors import TooMuchRecursion

# ---- rounds -------------------------------------------------------------------------------------------------------
# Recursion that joins two of its own answers: semi-naive evaluation, in rounds of statements.
#
# Recursive SQL cannot join a table with itself. So each round has statements of its own, and rows travel between them
# as JSON: all goals and answers so far, and those that the last round added. A branch is evaluated once for each row it
# reads that may be new; when a round adds nothing, the fixpoint is reached. All rounds of a question must run in one
# snapshot.

Fetched = tuple[Any, ...]  # a row as returned by the database
Run = Callable[[Statement, dict[str, object]], list[Fetched]]

ALL_GOALS, NEW_GOALS, ALL_ANSWERS, NEW_ANSWERS = "all_goals", "new_goals", "all_answers", "new_answers"
_NEW = {ALL_GOALS: NEW_GOALS, ALL_ANSWERS: NEW_ANSWERS}
MOST_ROWS = 1_000_000
MOST_BRANCHES = 100  # per statement


Tag = tuple[int, int]  # of a new row: 1 for an answer or 0 for a goal, and its tag in the plan


@dataclass(frozen=True)
class RoundStep:
    """A statement that runs in each round that has new rows with one of these tags."""

    tags: frozenset[Tag]
    statement: Statement


@dataclass(frozen=True)
class Rounds:
    """The statements that evaluate a plan: for the first rows, for each round, and for the answers."""

    seed: Statement | None
    steps: tuple[RoundStep, ...]  # several, if one would be too large
    exits: tuple[tuple[Variant, Statement], ...]
    number: int = 0  # its index among all rounds that a statement needs

    @property
    def name(self) -> str:
        return f"known{self.number}"

    def slot(self, variant: Variant) -> str:
        """Return the slot from which statements read the answers of a variant."""
        return f"{self.name}v{[each for each, _ in self.exits].index(variant)}"


def statements_of(rounds: Iterable[Rounds]) -> Iterator[Statement]:
    """Yield all statements that these rounds run."""
    for each in rounds:
        yield from (each.seed,) if each.seed else ()
        yield from (step.statement for step in each.steps)
        yield from (exits for _, exits in each.exits)


def evaluate(rounds: Rounds, run: Run, slots: dict[str, object]) -> dict[str, str]:
    """Run rounds until nothing is new; return the plan's answers as JSON, by the slots they are read from."""
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


def evaluate_all(rounds: Iterable[Rounds], run: Run, slots: Mapping[str, object]) -> dict[str, object]:
    """Evaluate several rounds in order, each with the earlier ones' answers; return the slots with all answers."""
    known = dict(slots)
    for each in rounds:
        known |= evaluate(each, run, known)
    return known


def _tables(known: set[Fetched], new: set[Fetched]) -> dict[str, str]:
    """Return rows (is an answer, tag, …) as the JSON tables that the statements read."""
    return {
        ALL_GOALS: _json(row[1:] for row in known if not row[0]),
        NEW_GOALS: _json(row[1:] for row in new if not row[0]),
        ALL_ANSWERS: _json(row[1:] for row in known if row[0]),
        NEW_ANSWERS: _json(row[1:] for row in new if row[0]),
    }


def _json(rows: Iterable[Fetched]) -> str:
    return orjson.dumps(list(rows)).decode()


# ---- statements ------------------------------------------------------------------------------------------------


RoundArm = Jump | AnswerArm  # a branch that creates goals or answers


class Renders(Protocol):
    """A renderer of the SELECTs of a round."""

    @property
    def dialect(self) -> Dialect: ...
    def select(self, branch: Branch, columns: Sequence[Column], scope: SelectScope[PlanSource]) -> Text: ...
    def head_of(self, rows: Text, tables: Iterable[Text]) -> Text: ...


def rounds_for(plan: Plan, renderer: Callable[[], Renders]) -> Rounds:
    """Return the statements for a plan: for the first rows, each round, and each variant of the answers."""
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
        """Return the statements of a round.

        Branches that read new rows of the same tag are in the same statement, so that few statements run in a round. A
        branch has a delta for each goal or answer that it reads, which takes that one from the new rows and the others
        from all rows:

            goals g; answers a  ->  new goals g; all answers a  UNION  all goals g; new answers a

        Each branch is rendered once for all of these, and many similar branches are rendered as one.
        """
        arms: list[RoundArm] = [*self.plan.moves, *self.plan.answers]
        deltas = [each for row, alike in self._alike(arms) for each in _with_deltas(row, alike)]
        if len(arms) > MOST_BRANCHES:
            deltas.sort(key=lambda each: min(each[0]))
        chunks = [deltas[start : start + 2 * MOST_BRANCHES] for start in range(0, len(deltas), 2 * MOST_BRANCHES)]
        return tuple(self._step(chunk) for chunk in chunks)

    def _alike(self, arms: list[RoundArm]) -> list[tuple[Text, list[RoundArm]]]:
        """Return the rows of the arms, in order; many that differ only in numbers are one.

        A rule over values of many types has a clause for each combination of types, and each clause is an arm:

            SELECT 1, 7, … FROM all_goals t0 CROSS JOIN new_answers t1 WHERE t0.tag = 3 AND t1.tag = 12 AND …
            SELECT 1, 8, … FROM all_goals t0 CROSS JOIN new_answers t1 WHERE t0.tag = 4 AND t1.tag = 15 AND …
            ->  SELECT 1, n.column1, … FROM (VALUES (7, 3, 12), (8, 4, 15), …) n
                CROSS JOIN all_goals t0 CROSS JOIN new_answers t1 WHERE t0.tag = n.column2 AND t1.tag = n.column3 AND …
        """
        groups: dict[Hashable, list[tuple[Text, RoundArm]]] = {}
        for arm in arms:
            row = self._row(arm)
            groups.setdefault(without_numbers(row), []).append((row, arm))
        found: list[tuple[Text, list[RoundArm]]] = []
        for group in groups.values():
            if len(group) >= MANY:
                found.append((merged_arm([row for row, _ in group]), [arm for _, arm in group]))
            else:
                found += [(row, [arm]) for row, arm in group]
        return found

    def of_answers(self, ends: list[Exit]) -> Statement:
        rows = []
        for end in ends:
            outs: list[Column] = [
                ("''",) if isinstance(out, Var) else Formed(out, self.renderer.dialect.answer) for out in end.outs
            ]
            rows.append(self._select(end.branch, outs or [("''",)]))
        return self._statement(rows)

    def _step(self, deltas: list[tuple[frozenset[Tag], Text]]) -> RoundStep:
        tags = frozenset[Tag]().union(*(each for each, _ in deltas))
        return RoundStep(tags, self._statement([row for _, row in deltas]))

    def _row(self, arm: RoundArm) -> Text:
        is_answer, tag, terms = self._row_terms(arm)
        tag_column: Column = (NumberTest("", tag),)
        return self._select(_branch_of(arm), [(is_answer,), tag_column, *self._layout.cells(tag, terms)])

    def _row_terms(self, arm: RoundArm) -> tuple[str, int, dict[str, Term]]:
        """Return whether the arm creates answers ("1") or goals ("0"), their tag, and their terms by column."""
        if isinstance(arm, Jump):
            return "0", self.plan.tag_of[arm.state], goal_terms(arm)
        return "1", arm.tag, answer_terms(arm)

    def _select(self, branch: Branch, columns: Sequence[Column]) -> Text:
        """Return the branch's SELECT from all goals and answers."""
        return self.renderer.select(branch, columns, SelectScope(goals=Table(ALL_GOALS), answers=Table(ALL_ANSWERS)))

    @cached_property
    def _layout(self) -> Padded:
        """The columns of both goals and answers: they are rows of one statement."""
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
        return finished((*self.renderer.head_of(rows, tables), *rows), dialect)


def _with_deltas(row: Text, arms: list[RoundArm]) -> Iterator[tuple[frozenset[Tag], Text]]:
    """Yield the rows of these arms once for each of their deltas, with the tags of its new rows."""
    places = [place for place, piece in enumerate(row) if isinstance(piece, Table) and piece.name in _NEW]
    for place, tags in zip(places, zip(*(_tags_read(_branch_of(arm)) for arm in arms)), strict=True):
        every = row[place]
        assert isinstance(every, Table), "its name was looked at"
        yield frozenset(tags), (*row[:place], Table(_NEW[every.name]), *row[place + 1 :])


def _tags_read(branch: Branch) -> list[Tag]:
    """Return the tag of each goal or answer that the branch reads, any of which may be new."""
    tags = {each.source: each.tag for each in branch.conditions if isinstance(each, Tagged)}
    read = [source for source in branch.sources if isinstance(source, (Goals, Answers))]
    return [(int(isinstance(each, Answers)), tags[each.number]) for each in read]


def _branch_of(arm: RoundArm) -> Branch:
    return arm.branch if isinstance(arm, Jump) else arm.exit.branch
