"""Fold a plan: evaluate all that stored facts and given values decide."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import TypeVar, overload

import orjson

from checks.asking import deadline
from checks.engine.plan.draft import columns_in, comparison, renumbered, sources_of, variant_of
from checks.engine.plan.plan import (
    Among,
    AnswerArm,
    Answers,
    Branch,
    Candidates,
    Comparison,
    Condition,
    DerivedTable,
    Exit,
    FactScan,
    Form,
    Goals,
    Holds,
    Jump,
    Plan,
    PlanSource,
    Same,
    Tagged,
    Variant,
)
from checks.engine.rules import limits
from checks.engine.rules.clauses import FRESH, Col, Const, Operand, Other, Slot, Term, Var, type_of
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.render import SelectScope
from checks.engine.sql.rounds import Fetched, Rounds, Run, evaluate_all
from checks.engine.sql.stored import StoredRenderer
from checks.engine.sql.text import Column, Formed, Statement, finished, union
from facts.numbering import Numbering
from localsql.dialects import Family, Typed, is_possible
from localsql.errors import CannotSay, TooManyConstants
from localsql.plan import (
    CallerTables,
    ConstantRows,
    FoldedCandidates,
    FoldedDerivedTable,
    ForeignDomain,
    LocalBranch,
    LocalBranches,
    is_local,
)
from policy.rules.components import reachable
from policy.rules.program import Signature

# ---- constants ----------------------------------------------------------------------------------------------------
# Rows of constants beside columns: which rows can match, and how their own columns are compared.

ConstantTable = list[tuple[str, ...]]
Columns = Callable[[str], Typed]  # gives a column of a source, by its name in the plan


def fitting(source: ConstantRows, branch: Branch, scope: SelectScope[Columns]) -> ConstantTable:
    """Return the rows without those that have a value which a column that must equal it cannot have.

    rows ('7',), ('x',), whose column must equal a column of integers  ->  ('7',)
    """
    rows: ConstantTable = list(source.rows)
    for condition in branch.conditions:
        match condition:
            case Same(Col(number, name), Col() as other) if number == source.number:
                rows = _possible(rows, int(name[1:]), other, scope)
            case Same(Col() as other, Col(number, name)) if number == source.number:
                rows = _possible(rows, int(name[1:]), other, scope)
    return rows


def _possible(rows: ConstantTable, index: int, other: Col, scope: SelectScope[Columns]) -> ConstantTable:
    if other.source not in scope.seen:
        return rows  # a source that is not in scope yet
    family = scope.seen[other.source](other.name).family
    return [row for row in rows if is_possible(row[index], family)]


def families_of(rows: ConstantTable, wanted: list[Family]) -> list[Family]:
    """Return the wanted families; text for a column in which some value does not fit."""
    return [
        family if all(not row[index] or is_possible(row[index], family) for row in rows) else Family.TEXT
        for index, family in enumerate(wanted)
    ]


# ---- stored statements --------------------------------------------------------------------------------------------
# Statements over stored facts: for the parts of branches that these decide, and the recursions that they read.
#
# A recursion that stored facts decide alone is evaluated once; its rows go as JSON into all statements that read it.
# Parts that differ in the numbers of their sources alone share one statement, and each statement is rendered when it
# first runs: most never run, as another part of their branch has no rows.

StoredRows = list[Fetched]
MOST_VALUES = 100_000  # values out of stored facts, in one statement


@dataclass(frozen=True)
class StoredTable:
    """All goals of a plan, or all its answers; `slot` is where statements read them from."""

    slot: str
    columns: tuple[str, ...]
    statement: Statement
    rounds: tuple[Rounds, ...]


RenderedRows = tuple[Statement, tuple[Rounds, ...]]  # the rounds are evaluated before the statement runs


@dataclass(frozen=True, eq=False)
class StoredStatement:
    """A statement that reads stored facts and these tables; it selects these columns of the branch."""

    render: Callable[[], RenderedRows]
    tables: tuple[tuple[StoredTable, int], ...]  # each with the tag of the rows that are read
    columns: tuple[Col, ...]
    place: int  # of its first source, among those of the branch
    what: str  # what it reads, for messages

    @cached_property
    def rendered(self) -> RenderedRows:
        return self.render()


@dataclass
class StoredStatements:
    renderer: Callable[[], StoredRenderer]
    tables: dict[tuple[Plan, type], StoredTable] = field(default_factory=dict)
    shared: dict[tuple[Branch, tuple[Col, ...]], RenderedRows] = field(default_factory=dict)

    def of(self, plan: Plan, branch: Branch, columns: tuple[Col, ...], place: int) -> StoredStatement:
        read = {
            source.number: (self._table(plan, type(source)), _tag(source, branch))
            for source in branch.sources
            if isinstance(source, Goals | Answers)
        }
        tables = {number: table for number, (table, _) in read.items()}
        return StoredStatement(
            lambda: self._shared(branch, columns, tables), tuple(read.values()), columns, place, _what(branch, plan)
        )

    def _shared(self, branch: Branch, columns: tuple[Col, ...], read: Mapping[int, StoredTable]) -> RenderedRows:
        key = renumbered(branch, columns)
        if key is None:
            return self._rendered(branch, columns, read)
        if key not in self.shared:
            self.shared[key] = self._rendered(*key, read)
        return self.shared[key]

    def _rendered(self, branch: Branch, columns: tuple[Col, ...], read: Mapping[int, StoredTable]) -> RenderedRows:
        renderer = self.renderer()
        scope: SelectScope[PlanSource] = SelectScope(tables={number: table.slot for number, table in read.items()})
        shown: list[Column] = [Formed(column, renderer.dialect.text_value) for column in columns]
        distinct = union([renderer.select(branch, shown or [("1",)], scope)], distinct=True)
        named = {table.slot: table for table in read.values()}
        tables = [
            (f"{slot} AS MATERIALIZED (", *renderer.dialect.table((Slot(slot),), list(table.columns)), ")")
            for slot, table in named.items()
        ]
        text = (*renderer.head(tables), *distinct, f" LIMIT {MOST_VALUES + 1 if columns else 1}")
        return finished(text, renderer.dialect.placeholder), tuple(renderer.rounds.values())

    def _table(self, plan: Plan, kind: type) -> StoredTable:
        key = (plan, kind)
        if key not in self.tables:
            renderer = self.renderer()
            # If only the goals are wanted, the answers are left out: they may read the caller's tables.
            wanted = replace(plan, answers=()) if kind is Goals else plan
            start: SelectScope[PlanSource] = SelectScope()
            scope, tables = renderer.entered(wanted, start)
            columns = ("tag", *renderer.layout(plan, kind).names)
            rows = f"SELECT {', '.join(columns)} FROM {scope.goals if kind is Goals else scope.answers}"
            statement = finished((*renderer.head(tables), rows), renderer.dialect.placeholder)
            slot = f"known_rows{len(self.tables)}"
            self.tables[key] = StoredTable(slot, columns, statement, tuple(renderer.rounds.values()))
        return self.tables[key]


def _tag(source: Goals | Answers, branch: Branch) -> int:
    return next(each.tag for each in branch.conditions if isinstance(each, Tagged) and each.source == source.number)


def _what(branch: Branch, plan: Plan) -> str:
    found = [str(source.signature) for source in branch.sources if isinstance(source, FactScan)]
    return found[0] if found else plan.name


@dataclass
class Execution:
    """The statements of one question, run with its values in one snapshot; what they return is kept."""

    run: Run
    slots: Mapping[str, object]
    tables: dict[str, tuple[str, set[int]]] = field(default_factory=dict)  # by slot: the JSON, and its tags
    ran: dict[Statement, StoredRows] = field(default_factory=dict)  # kept, as branches often ask the same

    def rows(self, stored: StoredStatement) -> StoredRows:
        known = dict(self.slots)
        for table, tag in stored.tables:
            known[table.slot], tags = self._table(table)
            if tag not in tags:
                return []
        statement, rounds = stored.rendered
        if rounds:
            return self.run(statement, evaluate_all(rounds, self.run, known))
        if statement not in self.ran:
            self.ran[statement] = self.run(statement, known)
        return self.ran[statement]

    def _table(self, table: StoredTable) -> tuple[str, set[int]]:
        if table.slot not in self.tables:
            rows = self.run(table.statement, evaluate_all(table.rounds, self.run, self.slots))
            self.tables[table.slot] = (orjson.dumps(rows).decode(), {row[0] for row in rows})
        return self.tables[table.slot]


# ---- split --------------------------------------------------------------------------------------------------------
# Splits a branch: into parts that stored facts decide, each a statement, and what the caller's database decides.
#
#     local repo_org(r, o); stored has_role(:actor, n, o); n in [...]
#         ->   1: SELECT DISTINCT o FROM stored …         left: local repo_org(r, o) with o out of 1
#
# Stored sources that conditions join are one part. Sources that only the caller's rows would join are parts of their
# own, so that there is no cross product. Splitting needs no values: it is done once for each shape.


@dataclass(frozen=True)
class Split:
    statements: tuple[StoredStatement, ...]
    left: Branch


Ended = TypeVar("Ended", Exit, Jump, AnswerArm)
Each = tuple[tuple[Ended, Split], ...]


@dataclass(frozen=True, eq=False)
class SplitPlan:
    """A plan and its split branches, without goals and answers that stored facts alone decide."""

    plan: Plan
    exits: Each[Exit] = ()
    seeds: Each[Jump] = ()
    moves: Each[Jump] = ()
    answers: Each[AnswerArm] = ()

    @cached_property
    def by_variant(self) -> Mapping[Variant, Each[Exit]]:
        found: dict[Variant, Each[Exit]] = {}
        for end, split in self.exits:
            variant = variant_of(end, self.plan.fixed)
            found[variant] = (*found.get(variant, ()), (end, split))
        return found


@dataclass(frozen=True)
class SplitBranch:
    exit: Exit
    split: Split
    withheld: tuple[SplitBranches, ...] | None


@dataclass(frozen=True)
class SplitBranches:
    plan: SplitPlan
    each: tuple[SplitBranch, ...]


@dataclass
class Splitter:
    tables: CallerTables
    dialect: Dialect  # of the database that stores facts
    numbering: Numbering
    plans: dict[Plan, SplitPlan] = field(default_factory=dict)
    stored_only: dict[Plan, bool] = field(default_factory=dict)
    stored_only_goals: dict[Plan, bool] = field(default_factory=dict)
    stored_only_answers: dict[Plan, bool] = field(default_factory=dict)
    mentions: dict[Candidates, StoredStatement] = field(default_factory=dict)
    statements: StoredStatements = field(init=False)

    def __post_init__(self) -> None:
        self.statements = StoredStatements(self._renderer)

    def branches(self, branches: LocalBranches) -> SplitBranches:
        """Split the branches, and all plans that they read: nothing is left to split when questions are answered."""
        plan = branches.plan
        return SplitBranches(self.of(plan), tuple(self._branch(plan, branch) for branch in branches.each))

    def _branch(self, plan: Plan, branch: LocalBranch) -> SplitBranch:
        withheld = None if branch.withheld is None else tuple(map(self.branches, branch.withheld))
        return SplitBranch(branch.exit, self.split(plan, branch.exit.branch, branch.exit.outs), withheld)

    def of(self, plan: Plan) -> SplitPlan:
        if plan not in self.plans:
            self.plans[plan] = SplitPlan(plan) if plan.form is Form.ROUNDS else self._split_plan(plan)
        return self.plans[plan]

    def _split_plan(self, plan: Plan) -> SplitPlan:
        seeds: Each[Jump] = ()
        moves: Each[Jump] = ()
        answers: Each[AnswerArm] = ()
        if not self.has_stored_only_goals(plan):
            seeds = tuple((each, self.split(plan, each.branch, each.keys)) for each in plan.seeds)
            moves = tuple((each, self.split(plan, each.branch, each.keys)) for each in plan.moves)
        if not self.has_stored_only_answers(plan):
            made = ((arm, (*arm.keys, *arm.exit.outs)) for arm in plan.answers)
            answers = tuple((arm, self.split(plan, arm.exit.branch, terms)) for arm, terms in made)
        exits = tuple((end, self.split(plan, end.branch, end.outs)) for end in plan.exits)
        return SplitPlan(plan, exits, seeds, moves, answers)

    def split(self, plan: Plan, branch: Branch, terms: tuple[Term, ...]) -> Split:
        """Split a branch, and all plans that it reads; `plan` is its own, `terms` are what is asked of its rows."""
        deadline.check()
        limits.check()
        split = self._split(plan, branch, terms)
        for each in (*split.left.sources, *split.left.conditions):
            if isinstance(each, DerivedTable | Holds):
                self.of(each.plan)
            elif isinstance(each, Candidates):
                self.candidates(each)
        return split

    def candidates(self, source: Candidates) -> StoredStatement:
        """Return the statement that reads the stored ids among those of the source."""
        if source not in self.mentions:
            plan, branch = Plan("candidates", 1, ()), Branch((source,))
            type_name = next((position.signature.types[position.index] for position in source.positions), "")
            column = Col(source.number, "v", type_name)
            self.mentions[source] = self._stored_statement(plan, branch, {column}, branch)
        return self.mentions[source]

    # ---- what stored facts decide alone ----------------------------------------------------------------------

    def is_stored_only(self, plan: Plan) -> bool:
        """Say whether the plan reads nothing of the caller's tables."""
        if plan not in self.stored_only:
            self.stored_only[plan] = all(self._is_stored_only_branch(branch) for branch in plan.branches())
        return self.stored_only[plan]

    def _is_stored_only_branch(self, branch: Branch) -> bool:
        plans = (each.plan for each in branch.conditions if isinstance(each, Holds))
        return all(map(self._reads_stored, branch.sources)) and all(map(self.is_stored_only, plans))

    def _reads_stored(self, source: PlanSource) -> bool:
        match source:
            case FactScan(store=store):
                return not is_local(store)
            case DerivedTable(plan=plan):
                return self.is_stored_only(plan)
            case Candidates(positions=positions):
                return not any(self.tables.local_stores(position.signature) for position in positions)
            case ForeignDomain():
                return False
        return True

    def has_stored_only_goals(self, plan: Plan) -> bool:
        if plan not in self.stored_only_goals:
            rows = [(row.branch, row.keys) for row in (*plan.seeds, *plan.moves)]
            self.stored_only_goals[plan] = self._are_stored_only(plan, rows)
        return self.stored_only_goals[plan]

    def has_stored_only_answers(self, plan: Plan) -> bool:
        if plan not in self.stored_only_answers:
            rows = [(arm.exit.branch, (*arm.keys, *arm.exit.outs)) for arm in plan.answers]
            self.stored_only_answers[plan] = self.has_stored_only_goals(plan) and self._are_stored_only(plan, rows)
        return self.stored_only_answers[plan]

    def _are_stored_only(self, plan: Plan, rows: Sequence[tuple[Branch, tuple[Term, ...]]]) -> bool:
        """Say whether the rows depend on stored facts alone, and on no row of an outer select."""
        if plan.form is Form.ROUNDS or not all(self._is_stored_only_branch(branch) for branch, _ in rows):
            return False
        return all({*_columns_of(branch), *terms}.isdisjoint(plan.outer_columns) for branch, terms in rows)

    # ---- one branch --------------------------------------------------------------------------------------------

    def _split(self, plan: Plan, branch: Branch, terms: tuple[Term, ...]) -> Split:
        stored = [source for source in branch.sources if self._is_stored_source(plan, source)]
        numbers = {source.number for source in stored}
        decided = [each for each in branch.conditions if self._is_decided(each, numbers)]
        left = Branch(
            tuple(source for source in branch.sources if source not in stored),
            tuple(each for each in branch.conditions if each not in decided),
        )
        wanted = {*_columns_of(left), *(term for term in terms if isinstance(term, Col))}
        statements = [
            self._stored_statement(plan, Branch(tuple(sources), tuple(conditions)), wanted, branch)
            for sources, conditions in _components(stored, decided)
        ]
        return Split(tuple(statements), left)

    def _is_stored_source(self, plan: Plan, source: PlanSource) -> bool:
        match source:
            case Goals():
                return self.has_stored_only_goals(plan)
            case Answers():
                return self.has_stored_only_answers(plan)
            case DerivedTable(plan=other):
                return self.is_stored_only(other) and not other.outer_columns
        return self._reads_stored(source)

    def _is_decided(self, condition: Condition, numbers: set[int]) -> bool:
        found = sources_of(condition)
        if isinstance(condition, Holds):
            return found <= numbers and self.is_stored_only(condition.plan)
        return bool(found) and found <= numbers

    def _stored_statement(self, plan: Plan, branch: Branch, wanted: Iterable[Col], whole: Branch) -> StoredStatement:
        numbers = {source.number for source in branch.sources}
        columns = tuple(sorted((each for each in wanted if each.source in numbers), key=_order))
        place = next((index for index, source in enumerate(whole.sources) if source.number in numbers), 0)
        return self.statements.of(plan, branch, columns, place)

    def _renderer(self) -> StoredRenderer:
        known = self.numbering
        return StoredRenderer(self.dialect, known.of, self._service_stores, self.tables.inline, known.may_end)

    def _service_stores(self, signature: Signature) -> tuple[str, ...]:
        return self.tables.service_stores(signature, self.numbering.knows)


def _order(column: Col) -> tuple[int, str]:
    return column.source, column.name


def _components(
    sources: list[PlanSource], conditions: list[Condition]
) -> Iterator[tuple[list[PlanSource], list[Condition]]]:
    """Yield groups of sources that conditions join, with these; each condition about no source stands alone."""
    groups: list[set[int]] = [{source.number} for source in sources]
    for condition in conditions:
        numbers = sources_of(condition)
        joined = [group for group in groups if group & numbers]
        if len(joined) > 1:
            groups = [group for group in groups if not group & numbers] + [set().union(*joined)]
    for group in groups:
        inside = [each for each in conditions if sources_of(each) & group]
        yield [source for source in sources if source.number in group], inside
    for condition in conditions:
        if not sources_of(condition):
            yield [], [condition]


def _columns_of(branch: Branch) -> set[Col]:
    found = set().union(*map(columns_in, branch.conditions))
    for source in branch.sources:
        if isinstance(source, DerivedTable):
            found.update(source.plan.outer_columns)
    return found


# ---- pruning ------------------------------------------------------------------------------------------------------
# Drops what a recursion can never use: moves from goals that are not reached, reads of answers that nothing makes.


def pruned(plan: Plan) -> Plan:
    goals = _reached(plan)
    moves = tuple(jump for jump in plan.moves if _is_fed(jump.branch, Goals, goals))
    arms = [arm for arm in plan.answers if _is_fed(arm.exit.branch, Goals, goals)]
    made = _answered(arms)
    answers = tuple(arm for arm in arms if _is_fed(arm.exit.branch, Answers, made))
    exits = tuple(end for end in plan.exits if _is_fed(end.branch, Goals, goals) and _is_fed(end.branch, Answers, made))
    return replace(plan, exits=exits, moves=moves, answers=answers)


def _reached(plan: Plan) -> set[int]:
    """Return the tags of all goals that the recursion reaches."""

    def following(tag: int) -> Iterator[int]:
        return (plan.tag_of[jump.state] for jump in plan.moves if tag in _tags(jump.branch, Goals))

    return set(reachable((plan.tag_of[jump.state] for jump in plan.seeds), following))


def _answered(arms: list[AnswerArm]) -> set[int]:
    found: set[int] = set()
    while True:
        more = {arm.tag for arm in arms if _is_fed(arm.exit.branch, Answers, found)} - found
        if not more:
            return found
        found |= more


def _is_fed(branch: Branch, kind: type[Goals] | type[Answers], tags: set[int]) -> bool:
    return _tags(branch, kind) <= tags


def _tags(branch: Branch, kind: type[Goals] | type[Answers]) -> set[int]:
    numbers = {source.number for source in branch.sources if isinstance(source, kind)}
    return {each.tag for each in branch.conditions if isinstance(each, Tagged) and each.source in numbers}


# ---- residual -----------------------------------------------------------------------------------------------------
# Partial evaluation of a plan: plan -> plan, with all that stored facts and given values decide evaluated.
#
# What a branch reads of stored facts becomes constants. A column with one value is replaced by that value. Where only
# one column of a part is wanted, to equal a column of the caller, that one is tested against a list of the values.
# All else becomes rows of constants (`ConstantRows`). Branches that cannot hold are dropped, and so are conditions
# that do hold; what is left reads the caller's tables.
#
#     s0 local repo_org(r, o); s1 stored has_role(:actor, n, o2); o = o2
#         ->   s0 local repo_org(r, o); o in ['acme', 'wow']

Rows = list[tuple[str, ...]]
ColumnSubstitution = dict[Col, Operand]
TermT = TypeVar("TermT", Operand, Term)


@dataclass
class Residual:
    splitter: Splitter
    slots: Mapping[str, object]
    run: Callable[[StoredStatement], Rows]
    rule_of: Callable[[Plan], str]  # for messages: the rule that makes a recursion nonlinear
    numbers: Iterator[int] = field(default_factory=lambda: count(-1, -1))
    ran: dict[StoredStatement, Rows] = field(default_factory=dict)
    made: dict[Hashable, Plan] = field(default_factory=dict)
    held: int = 0  # values that stored facts came to so far

    # ---- plans --------------------------------------------------------------------------------------------------

    def plan(self, plan: Plan, variant: Variant | None, substitution: ColumnSubstitution) -> Plan:
        """Return the folded plan with its exits of that variant; without a variant, with all."""
        split = self.splitter.of(plan)
        outside = tuple((column, substitution.get(column, column)) for column in plan.outer_columns)
        key = (plan, variant, outside)
        if key not in self.made:
            exits = split.exits if variant is None else split.by_variant.get(variant, ())
            self.made[key] = self.folded(split, exits, dict(outside))
        return self.made[key]

    def folded(self, split: SplitPlan, exits: Each[Exit], substitution: ColumnSubstitution) -> Plan:
        plan = split.plan
        if plan.form is Form.ROUNDS:
            raise CannotSay(
                f"{self.rule_of(plan)} takes two answers of its own recursion at once, which no statement can say of"
                " facts in the database; store the facts that it recurses over, or rewrite the rule"
            )
        left = replace(
            plan,
            exits=tuple(filter(None, (self.exit(*each, substitution) for each in exits))),
            seeds=tuple(filter(None, (self._jump(*each, substitution) for each in split.seeds))),
            moves=tuple(filter(None, (self._jump(*each, substitution) for each in split.moves))),
            answers=tuple(filter(None, (self._answer(*each, substitution) for each in split.answers))),
            fixed=frozenset(substitution.values()),
        )
        return pruned(left)

    def exit(self, end: Exit, split: Split, substitution: ColumnSubstitution) -> Exit | None:
        made = self._row(end.branch, split, end.outs, substitution)
        return made and replace(end, branch=made[0], outs=made[1])

    def _jump(self, jump: Jump, split: Split, substitution: ColumnSubstitution) -> Jump | None:
        made = self._row(jump.branch, split, jump.keys, substitution)
        return made and replace(jump, branch=made[0], keys=made[1])

    def _answer(self, arm: AnswerArm, split: Split, substitution: ColumnSubstitution) -> AnswerArm | None:
        made = self._row(arm.exit.branch, split, (*arm.keys, *arm.exit.outs), substitution)
        if made is None:
            return None
        branch, terms = made
        keys = tuple(key for key in terms[: len(arm.keys)] if not isinstance(key, Var))
        assert len(keys) == len(arm.keys), "what has a value keeps one"
        return replace(arm, keys=keys, exit=replace(arm.exit, branch=branch, outs=terms[len(arm.keys) :]))

    # ---- one branch ----------------------------------------------------------------------------------------------

    def _row(
        self, branch: Branch, split: Split, terms: tuple[TermT, ...], substitution: ColumnSubstitution
    ) -> tuple[Branch, tuple[TermT, ...]] | None:
        """Return the folded branch and what is asked of its rows; None if it has no rows."""
        deadline.check()
        limits.check()
        inner = dict(substitution)
        for source in split.left.sources:
            inner.update(self._constants(source))
        known: list[tuple[int, ConstantRows]] = []
        lists: list[Condition] = []
        for stored in split.statements:
            rows = self._rows(stored)
            if not rows or not self._narrowed(stored, rows, split.left, inner, lists):
                return None
            constants = self._constant_rows(stored, rows, inner)
            if constants is not None:
                known.append((stored.place, constants))
        sources = self._sources(branch, split.left, known, inner)
        conditions = self._conditions(split.left, inner, lists) if sources is not None else None
        if sources is None or conditions is None:
            return None
        return Branch(tuple(sources), tuple(conditions)), tuple(self._value(term, inner) for term in terms)

    def _rows(self, stored: StoredStatement) -> Rows:
        if stored not in self.ran:
            rows = self.ran[stored] = self.run(stored)
            self.held += len(rows) * len(stored.columns)
            if len(rows) > MOST_VALUES or self.held > MOST_VALUES:
                raise TooManyConstants(MOST_VALUES, stored.what)
        return self.ran[stored]

    def _narrowed(
        self, stored: StoredStatement, rows: Rows, left: Branch, inner: ColumnSubstitution, lists: list[Condition]
    ) -> bool:
        """Test a column against the values of a part, if these are all that is wanted of it; say whether that can hold.

        The part must have one column, and the branch a condition that another operand equals it.
        """
        if len(stored.columns) != 1:
            return True
        (column,) = stored.columns
        other = next((found for each in left.conditions if (found := _equal_to(each, column)) is not None), None)
        if other is None:
            return True
        value, ids = self._value(other, inner), tuple(sorted(row[0] for row in rows))
        inner[column] = value
        if isinstance(value, Const):
            return value.id in ids
        lists.append(Among(value, ids))
        return True

    def _constant_rows(self, stored: StoredStatement, rows: Rows, inner: ColumnSubstitution) -> ConstantRows | None:
        """Return the rows as a source; None if none is needed. Columns with only one value become constants."""
        if any(column in inner for column in stored.columns):
            return None  # `_narrowed` has made it a list
        varied = []
        for index, column in enumerate(stored.columns):
            if len({row[index] for row in rows}) == 1:
                inner[column] = Const(rows[0][index])
            else:
                varied.append(index)
        if not varied:
            return None
        number = next(self.numbers)
        for place, index in enumerate(varied):
            inner[stored.columns[index]] = Col(number, f"k{place}", stored.columns[index].type)
        kept = sorted({tuple(row[index] for index in varied) for row in rows})
        return ConstantRows(number, tuple(kept), tuple(stored.columns[index].type for index in varied))

    def _constants(self, source: PlanSource) -> ColumnSubstitution:
        """Return the constants of the binding's key, by the columns that its query does not select."""
        if not isinstance(source, FactScan) or not is_local(source.store):
            return {}
        constants = self.splitter.tables.binding(source.store).key.constants
        return {Col(source.number, f"a{i}"): Const(text) for i, text in enumerate(constants) if text is not None}

    def _sources(
        self, whole: Branch, left: Branch, known: list[tuple[int, ConstantRows]], inner: ColumnSubstitution
    ) -> list[PlanSource] | None:
        """Return the sources that are left, in the order of the plan; None if one of them has no rows."""
        places = {source.number: index for index, source in enumerate(whole.sources)}
        placed: list[tuple[int, PlanSource]] = list(known)
        for source in left.sources:
            made = self._source(source, inner)
            if made is None:
                return None
            placed.append((places[source.number], made))
        return [source for _, source in sorted(placed, key=lambda each: each[0])]

    def _source(self, source: PlanSource, inner: ColumnSubstitution) -> PlanSource | None:
        match source:
            case DerivedTable(number, plan, variant):
                made = self.plan(plan, variant, inner)
                return FoldedDerivedTable(number, made, variant, _types_of(plan)) if made.exits else None
            case Candidates(number):
                return self._folded_candidates(source)
        return source

    def _folded_candidates(self, source: Candidates) -> FoldedCandidates:
        tables = self.splitter.tables
        stored = self.splitter.candidates(source)
        ids = {row[0] for row in self._rows(stored)} - {FRESH.id}
        positions = [
            (store, position.index)
            for position in source.positions
            for store in tables.local_stores(position.signature)
        ]
        for store, index in positions:
            constant = tables.binding(store).key.constants[index]
            ids |= {constant} if constant is not None else set()
        selected = tuple(each for each in positions if tables.binding(each[0]).key.constants[each[1]] is None)
        return FoldedCandidates(source.number, tuple(sorted(ids)), selected, stored.columns[0].type)

    # ---- conditions -------------------------------------------------------------------------------------------------

    def _conditions(self, left: Branch, inner: ColumnSubstitution, lists: list[Condition]) -> list[Condition] | None:
        """Return the conditions that are still open; None if one is false."""
        found: dict[Condition, None] = dict.fromkeys(lists)
        for condition in left.conditions:
            verdict = self.condition(condition, inner)
            if verdict is False:
                return None
            if verdict is not True:
                found[verdict] = None
        return list(found)

    def condition(self, condition: Condition, inner: ColumnSubstitution) -> Condition | bool:
        match condition:
            case Same(left, right):
                return _compared("=", self._value(left, inner), self._value(right, inner))
            case Among(operand, ids):
                value = self._value(operand, inner)
                return value.id in ids if isinstance(value, Const) else Among(value, ids)
            case Comparison(operator, left, right):
                return _compared(operator, self._value(left, inner), self._value(right, inner))
            case Holds(plan, negated):
                verdict = self._held(plan, inner)
                if isinstance(verdict, bool):
                    return verdict != negated
                return Holds(verdict, negated)
        return condition

    def _held(self, plan: Plan, inner: ColumnSubstitution) -> Plan | bool:
        made = self.plan(plan, None, inner)
        if any(not end.branch.sources and not end.branch.conditions for end in made.exits):
            return True
        return made if made.exits else False

    @overload
    def _value(self, term: Operand, inner: ColumnSubstitution) -> Operand: ...
    @overload
    def _value(self, term: Term, inner: ColumnSubstitution) -> Term: ...
    def _value(self, term: Term, inner: ColumnSubstitution) -> Term:
        match term:
            case Slot(name) | Other(name):
                return Const(str(self.slots[name]))
            case Col():
                return inner.get(term, term)
        return term


def _types_of(plan: Plan) -> tuple[str, ...]:
    """Return the types of the plan's answer columns, as far as its exits tell them."""
    return tuple(next(filter(None, (type_of(end.outs[k]) for end in plan.exits)), "") for k in range(plan.width))


# ---- conditions over constants ------------------------------------------------------------------------------------


def _compared(operator: str, left: Operand, right: Operand) -> Condition | bool:
    """Return the outcome if it is known now, else the condition. Of what has to be equal, a constant goes last."""
    if operator == "=" and isinstance(left, Const):
        left, right = right, left
    return comparison(operator, left, right)


def _equal_to(condition: Condition, column: Col) -> Operand | None:
    match condition:
        case Same(left, right) if right == column and left != column:
            return left
        case Same(left, right) if left == column and right != column:
            return right
    return None
