"""Recursion that needs two of its own answers at once: worked out in rounds, one statement each.

No recursive statement may join a relation with itself, so what is known travels as JSON: all goals and answers so
far, and those that the last round added. A branch is tried wherever one of the rows it reads is new; when a round adds
nothing, all is known. Rounds of one question must run in one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
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
from checks.engine.sql.text import Column, Formed, Statement, Text, finished, union

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
    def head(self, tables: Iterable[Text]) -> Text: ...


def rounds_for(plan: Plan, renderer: Callable[[], Renders]) -> Rounds:
    """The statements for a plan; each is rendered by a renderer of its own."""
    exits: dict[Variant, list[Exit]] = {}
    for end in plan.exits:
        exits.setdefault(variant_of(end, plan.fixed), []).append(end)
    answers = tuple((variant, _answers(plan, renderer(), ends)) for variant, ends in exits.items())
    return Rounds(_seed(plan, renderer()), _steps(plan, renderer), answers)


def _seed(plan: Plan, renderer: Renders) -> Statement | None:
    rows = [_row(plan, renderer, jump, {}) for jump in plan.seeds]
    return _statement(plan, renderer, rows) if rows else None


def _steps(plan: Plan, renderer: Callable[[], Renders]) -> tuple[RoundStep, ...]:
    """Branches that go on from new rows of one tag are together, so that few statements have anything to do."""
    arms: list[Arm] = [*plan.moves, *plan.answers]
    tried = [(arm, tables, tag) for arm in arms for tables, tag in _tried(_branch_of(arm))]
    if len(arms) > MOST_BRANCHES:
        tried.sort(key=lambda each: each[2])
    chunks = [tried[start : start + 2 * MOST_BRANCHES] for start in range(0, len(tried), 2 * MOST_BRANCHES)]
    return tuple(_step(plan, renderer(), chunk) for chunk in chunks)


def _step(plan: Plan, renderer: Renders, tried: list[tuple[Arm, dict[int, str], Tag]]) -> RoundStep:
    rows = [_row(plan, renderer, arm, tables) for arm, tables, _ in tried]
    return RoundStep(frozenset(tag for _, _, tag in tried), _statement(plan, renderer, rows))


def _answers(plan: Plan, renderer: Renders, ends: list[Exit]) -> Statement:
    rows = []
    for end in ends:
        outs: list[Column] = [
            ("''",) if isinstance(out, Var) else Formed(out, renderer.dialect.answer) for out in end.outs
        ]
        tables = {each.number: name for each, name in _read(end.branch, ALL_GOALS, ALL_ANSWERS)}
        rows.append(renderer.select(end.branch, outs or [("''",)], Scope(tables=tables)))
    return _statement(plan, renderer, rows)


def _read(branch: Branch, goals: str, answers: str) -> list[tuple[Goals | Answers, str]]:
    found = (source for source in branch.sources if isinstance(source, (Goals, Answers)))
    return [(source, goals if isinstance(source, Goals) else answers) for source in found]


def _tried(branch: Branch) -> list[tuple[dict[int, str], Tag]]:
    """Once for each row that the branch reads: that one from the new ones, the others from all."""
    every = {source.number: name for source, name in _read(branch, ALL_GOALS, ALL_ANSWERS)}
    tags = {each.source: each.tags[0] for each in branch.conditions if isinstance(each, Tagged)}
    return [
        ({**every, source.number: name}, (int(isinstance(source, Answers)), tags[source.number]))
        for source, name in _read(branch, NEW_GOALS, NEW_ANSWERS)
    ]


def _row(plan: Plan, renderer: Renders, arm: Arm, tables: dict[int, str]) -> Text:
    if isinstance(arm, Jump):
        is_answer, tag, terms = "0", plan.tag_of(arm.state), goal_terms(arm)
    else:
        is_answer, tag, terms = "1", arm.tag, answer_terms(arm)
    columns = [(is_answer,), (str(tag),), *_layout(plan, renderer.dialect).cells(tag, terms)]
    return renderer.select(_branch_of(arm), columns, Scope(tables=tables))


def _branch_of(arm: Arm) -> Branch:
    return arm.branch if isinstance(arm, Jump) else arm.exit.branch


def _layout(plan: Plan, dialect: Dialect) -> Padded:
    """Of goals and answers alike: they travel in one table."""
    return padded(plan.key_count, plan.answer_width, dialect.seed)


def _statement(plan: Plan, renderer: Renders, arms: list[Text]) -> Statement:
    answers = ["tag", *_layout(plan, renderer.dialect).names]
    goals = answers[: plan.key_count + 1]
    named = [(ALL_GOALS, goals), (NEW_GOALS, goals), (ALL_ANSWERS, answers), (NEW_ANSWERS, answers)]
    rows = union(arms, distinct=True)
    words = {word for part in rows if isinstance(part, str) for word in part.split()}
    tables: list[Text] = [
        (f"{name} AS MATERIALIZED (", *renderer.dialect.table((Slot(name),), columns), ")")
        for name, columns in named
        if name in words
    ]
    return finished((*renderer.head(tables), *rows), renderer.dialect.placeholder)
