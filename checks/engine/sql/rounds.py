"""Nonlinear recursion: semi-naive evaluation, in rounds of statements."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import orjson

from checks.engine.plan.draft import variant_of
from checks.engine.plan.plan import (
    AnswerArm,
    Answers,
    Branch,
    Candidates,
    Condition,
    DerivedTable,
    Domain,
    Exit,
    FactScan,
    Form,
    Goals,
    Holds,
    Ids,
    Jump,
    Plan,
    PlanSource,
    Same,
    Tagged,
    Variant,
)
from checks.engine.rules.clauses import Cmp, Col, Member, Slot, Term, Var, tick, value
from checks.engine.sql.render import Padded, SelectScope, answer_terms, goal_terms, padded
from checks.engine.sql.text import (
    MANY,
    READS,
    Column,
    Dialect,
    Formed,
    NumberHole,
    Piece,
    Statement,
    Text,
    Unnamed,
    finished,
    merged_arm,
    read_from,
    tables_in,
    union,
)
from checks.errors import TooMuchRecursion
from policy.rules.program import Signature

# ---- alike --------------------------------------------------------------------------------------------------------
# Arms of a union that differ only in the numbers of signatures and tags become one arm over a table of these.
#
# A rule over values of many types has a clause for each combination of types, and each clause is an arm:
#
#     SELECT 1, 7, … FROM all_goals t0 CROSS JOIN new_answers t1 WHERE t0.tag = 3 AND t1.tag = 12 AND …
#     SELECT 1, 8, … FROM all_goals t0 CROSS JOIN new_answers t1 WHERE t0.tag = 4 AND t1.tag = 15 AND …
#     ->  SELECT 1, n.column1, … FROM (VALUES (7, 3, 12), (8, 4, 15), …) n
#         CROSS JOIN all_goals t0 CROSS JOIN new_answers t1 WHERE t0.tag = n.column2 AND t1.tag = n.column3 AND …
#
# An `ArmKey` holds all that an arm's SQL depends on, except these numbers: arms with equal keys differ in nothing else.
# One of them is rendered, with a hole for each number. What is not inspected, such as a recursive plan, is in the key
# unchanged, and has no holes.


@value
class ArmKey:
    """All that an arm's SQL depends on, and its numbers.

    `numbers` are the arm's own; the first is the tag that it selects. `holes` maps a source's number to the index of
    its signature or tag in `numbers`.
    """

    key: Hashable
    numbers: tuple[int, ...]
    holes: Mapping[int, int]


@dataclass(slots=True)
class ArmKeyMaker:
    """Creates the key of one arm. `ends` tells whether a fact may expire, which adds a test to the SQL."""

    number_of: Callable[[Signature], int]
    ends: Callable[[FactScan], bool]
    numbers: list[int]
    holes: dict[int, int] = field(default_factory=dict)
    ranks: dict[int, int] = field(default_factory=dict)  # by a source's number, its rank in order of mention

    def branch(self, branch: Branch) -> Hashable:
        sources = tuple([self._source(each) for each in branch.sources])
        return sources, tuple([self._condition(each) for each in branch.conditions])

    def _source(self, source: PlanSource) -> Hashable:
        self.ranks.setdefault(source.number, len(self.ranks))
        match source:
            case FactScan(_, signature, store) if not source.is_row:
                return store, signature
            case FactScan(number, signature, store):
                shared = self.holes.get(number)
                if shared is None:
                    self._add_hole(number, self.number_of(signature))
                return store, len(signature.types), self.ends(source), shared
            case Goals() | Answers():
                return type(source).__name__
            case Ids(_, slot, are_many):
                return slot, are_many
            case DerivedTable(_, plan, variant) if not plan.outer_columns:
                return plan, variant
            case Candidates(_, positions, ids):
                return positions, ids
            case Domain():
                return replace(source, number=0)
        return source

    def _condition(self, condition: Condition) -> Hashable:
        match condition:
            case Same(left, right):
                return self.term(left), self.term(right)
            case Tagged(source, tag):
                if source in self.holes:
                    return condition
                self._add_hole(source, tag)
                return Tagged, self.ranks.get(source)
            case Member(operand, ids):
                return Member, self.term(operand), ids
            case Cmp(operator, left, right):
                return operator, self.term(left), self.term(right)
            case Holds(plan, negated):
                return negated, frozenset(map(self.term, plan.fixed)), self._plan(plan)
        return condition

    def _plan(self, plan: Plan) -> Hashable:
        if is_looked_into(plan):
            return tuple([self.branch(end.branch) for end in plan.exits])
        return plan, tuple(self.ranks.items())

    def _add_hole(self, source: int, number: int) -> None:
        self.holes[source] = len(self.numbers)
        self.numbers.append(number)

    def term(self, term: Term | None) -> Hashable:
        if isinstance(term, Col):
            return self.ranks.get(term.source, term), term.name
        return None if isinstance(term, Var) else term


def is_looked_into(plan: Plan) -> bool:
    """Return whether a nested plan is part of the key of the arm that tests it, so that its numbers are the arm's."""
    return plan.form is Form.EXITS


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
    def arm_key_maker(self, *numbers: int) -> ArmKeyMaker: ...
    def with_holes(self, holes: Mapping[int, int]) -> Renders: ...


def rounds_for(plan: Plan, renderer: Callable[[], Renders]) -> Rounds:
    """Return the statements for a plan: for the first rows, each round, and each variant of the answers."""
    exits: dict[Variant, list[Exit]] = {}
    for end in plan.exits:
        exits.setdefault(variant_of(end, plan.fixed), []).append(end)
    answers = tuple((variant, _Statements(plan, renderer()).of_answers(ends)) for variant, ends in exits.items())
    return Rounds(_Statements(plan, renderer()).seed(), _Statements(plan, renderer()).steps(), answers)


@dataclass(frozen=True)
class _Alike:
    """Arms that differ only in numbers, and the numbers of each; or a single arm, without numbers."""

    arms: list[RoundArm]
    holes: Mapping[int, int] = field(default_factory=dict)
    numbers: list[tuple[int, ...]] = field(default_factory=list)


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
        deltas = [each for alike in self._alike(arms) for each in self._with_deltas(alike)]
        if len(arms) > MOST_BRANCHES:
            deltas.sort(key=lambda each: min(each[0]))
        chunks = [deltas[start : start + 2 * MOST_BRANCHES] for start in range(0, len(deltas), 2 * MOST_BRANCHES)]
        return tuple(self._step(chunk) for chunk in chunks)

    def _alike(self, arms: list[RoundArm]) -> list[_Alike]:
        """Group arms with equal keys if they are many; leave the others alone, in order."""
        if len(arms) < MANY:
            return [_Alike([arm]) for arm in arms]
        groups: dict[Hashable, _Alike] = {}
        found: list[_Alike] = []
        for arm in arms:
            tick()
            arm_key = self._arm_key(arm)
            group = groups.setdefault(arm_key.key, _Alike([], arm_key.holes))
            group.arms.append(arm)
            group.numbers.append(arm_key.numbers)
            found.append(group)
        return [
            each if len(each.arms) >= MANY else _Alike([arm])
            for arm, each in zip(arms, found)
            if len(each.arms) < MANY or arm is each.arms[0]
        ]

    def _arm_key(self, arm: RoundArm) -> ArmKey:
        is_answer, tag, terms = self._row_terms(arm)
        arm_key_maker = self.renderer.arm_key_maker(tag)
        branch = arm_key_maker.branch(_branch_of(arm))
        shown = tuple([(name, arm_key_maker.term(term)) for name, term in terms.items()])
        return ArmKey((is_answer, branch, shown), tuple(arm_key_maker.numbers), arm_key_maker.holes)

    def _with_deltas(self, alike: _Alike) -> Iterator[tuple[frozenset[Tag], Text]]:
        """Yield the arms' rows once for each of their deltas, with the tags of its new rows."""
        row = merged_arm(self._row_with_holes(alike), alike.numbers) if alike.numbers else self._row(alike.arms[0])
        tags = zip(*(_tags_read(_branch_of(arm)) for arm in alike.arms))
        for tables, same in zip(_deltas(_branch_of(alike.arms[0])), tags):
            yield frozenset(same), read_from(row, tables)

    def of_answers(self, ends: list[Exit]) -> Statement:
        rows = []
        for end in ends:
            outs: list[Column] = [
                ("''",) if isinstance(out, Var) else Formed(out, self.renderer.dialect.answer) for out in end.outs
            ]
            rows.append(read_from(self._select(end.branch, outs or [("''",)]), _every(end.branch)))
        return self._statement(rows)

    def _step(self, deltas: list[tuple[frozenset[Tag], Text]]) -> RoundStep:
        tags = frozenset[Tag]().union(*(each for each, _ in deltas))
        return RoundStep(tags, self._statement([row for _, row in deltas]))

    def _row(self, arm: RoundArm) -> Text:
        is_answer, tag, terms = self._row_terms(arm)
        return self._select(_branch_of(arm), [(is_answer,), (str(tag),), *self._layout.cells(tag, terms)])

    def _row_with_holes(self, alike: _Alike) -> Text:
        """Return the SELECT of the first arm, with holes for the numbers that differ between arms."""
        arm = alike.arms[0]
        is_answer, tag, terms = self._row_terms(arm)
        columns: list[Column] = [(is_answer,), (NumberHole("", 0),), *self._layout.cells(tag, terms)]
        row = self._select(_branch_of(arm), columns, self.renderer.with_holes(alike.holes))
        holes = {piece.hole for piece in row if isinstance(piece, NumberHole)}
        assert len(holes) == len(alike.numbers[0]) and READS in row, "an arm for many has a hole for each number"
        return row

    def _row_terms(self, arm: RoundArm) -> tuple[str, int, dict[str, Term]]:
        """Return whether the arm creates answers ("1") or goals ("0"), their tag, and their terms by column."""
        if isinstance(arm, Jump):
            return "0", self.plan.tag_of[arm.state], goal_terms(arm)
        return "1", arm.tag, answer_terms(arm)

    def _select(self, branch: Branch, columns: Sequence[Column], renderer: Renders | None = None) -> Text:
        """Return the branch's SELECT, whose tables of goals and answers `read_from` fills in later."""
        tables: dict[int, Piece] = {number: Unnamed(number) for number in _every(branch)}
        return (renderer or self.renderer).select(branch, columns, SelectScope(tables=tables))

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


def _deltas(branch: Branch) -> list[dict[int, str]]:
    """Return the tables of all sources for each delta: one for each source that may have a new row."""
    every = _every(branch)
    return [{**every, source.number: name} for source, name in _read(branch, NEW_GOALS, NEW_ANSWERS)]


def _tags_read(branch: Branch) -> list[Tag]:
    """Return the tag of the new row of each delta."""
    tags = {each.source: each.tag for each in branch.conditions if isinstance(each, Tagged)}
    return [(int(isinstance(each, Answers)), tags[each.number]) for each in _rows_read(branch)]


def _every(branch: Branch) -> dict[int, str]:
    """Return the tables of all goals and answers, by the sources that read them."""
    return {source.number: name for source, name in _read(branch, ALL_GOALS, ALL_ANSWERS)}


def _read(branch: Branch, goals: str, answers: str) -> list[tuple[Goals | Answers, str]]:
    return [(source, goals if isinstance(source, Goals) else answers) for source in _rows_read(branch)]


def _rows_read(branch: Branch) -> list[Goals | Answers]:
    """Return the sources of goals and answers, each of which may have new rows."""
    return [source for source in branch.sources if isinstance(source, (Goals, Answers))]


def _branch_of(arm: RoundArm) -> Branch:
    return arm.branch if isinstance(arm, Jump) else arm.exit.branch
