"""A query -> the engine's plan over the caller's tables and the stored facts, split into what each of them decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import orjson

from checks.asking import limits
from checks.engine.compile import Knows, Root
from checks.engine.plan.draft import columns_in, outward, renumbered, sources_of, variant_of
from checks.engine.plan.plan import (
    AnswerArm,
    Answers,
    Branch,
    Candidates,
    Condition,
    DerivedTable,
    Exit,
    FactScan,
    ForeignSource,
    Form,
    Goals,
    Holds,
    Jump,
    Plan,
    PlanSource,
    Tagged,
    Variant,
)
from checks.engine.plan.planner import Planner
from checks.engine.rules import clauses
from checks.engine.rules.clauses import Col, Neg, Slot, Term, Var, substituted, substituted_terms, type_of
from checks.engine.rules.ruleset import RuleSet
from checks.engine.sql.render import SelectScope
from checks.engine.sql.rounds import Fetched, Rounds, Run, evaluate_all
from checks.engine.sql.stored import StoredRenderer
from checks.engine.sql.text import Column, Dialect, Formed, Statement, finished, union
from facts.numbering import Numbering
from localsql.bindings import Binding, Bindings
from policy.rules.program import Signature

# ---- relations ----------------------------------------------------------------------------------------------------
# Sources of plans over the caller's tables: these tables, known rows, and stored or inline facts.

LOCAL = "local:"


@dataclass(frozen=True, slots=True)
class ForeignDomain(ForeignSource):
    """Every id of a type, from the bindings' query for it; column `v`."""

    type: str

    def __str__(self) -> str:
        return f"s{self.number} <- all of {self.type}"


@dataclass(frozen=True, slots=True)
class ConstantRows(ForeignSource):
    """Rows of constants; columns k0 …, of these types."""

    rows: tuple[tuple[str, ...], ...]
    types: tuple[str, ...]

    def __str__(self) -> str:
        return f"s{self.number} <- {len(self.rows)} known rows"


@dataclass(frozen=True, slots=True)
class FoldedCandidates(ForeignSource):
    """The known ids, those at some positions of the caller's tables, and `FRESH` for all others; column `v`."""

    ids: tuple[str, ...]
    positions: tuple[tuple[str, int], ...]  # a binding's store, and the index of an argument
    type: str

    def __str__(self) -> str:
        return f"s{self.number} <- ids"


@dataclass(frozen=True, slots=True)
class FoldedDerivedTable(DerivedTable):
    """The results of a folded plan; `types` are those of its columns, some of which may be constants without a type."""

    types: tuple[str, ...]


@dataclass(frozen=True)
class CallerTables:
    """The caller's bindings. Their stores in plans are `stored`, `inline`, and `local:` with a binding's index."""

    bindings: Bindings
    inline: frozenset[Signature] = frozenset()

    def local_stores(self, signature: Signature) -> tuple[str, ...]:
        return tuple(f"{LOCAL}{index}" for index in self.bindings.by_signature.get(signature, ()))

    def service_stores(self, signature: Signature, knows: Knows) -> tuple[str, ...]:
        """Return the stores of the service's facts; `knows` returns whether facts of a signature may be stored."""
        stored = ("stored",) if knows(signature) else ()
        return (*stored, "inline") if signature in self.inline else stored

    def binding(self, store: str) -> Binding:
        return self.bindings.facts[int(store.removeprefix(LOCAL))]


def is_local(store: str) -> bool:
    return store.startswith(LOCAL)


# ---- planning -----------------------------------------------------------------------------------------------------
# A query -> the engine's plan over the caller's tables and the stored facts, and how to interpret its exits.
#
# A result that stands for every value becomes a condition without the column (a gate), or is read from all ids of the
# type, if the bindings have a query for these. A negation may exclude some values from such a result. If the negation
# depends on given values only, the excluded values are planned as a separate query. Its branches may stand for every
# value, too, with exclusions of their own.


@dataclass(frozen=True)
class LocalBranch:
    """An exit of a plan: its result columns, `Var(k)` where column k stands for every value.

    `withheld` are the branches for values that are excluded from these; None if they cannot be listed.
    """

    exit: Exit
    withheld: tuple[LocalBranches, ...] | None = ()

    @property
    def is_certain(self) -> bool:
        return not self.exit.branch.sources and not self.exit.branch.conditions

    @property
    def open_columns(self) -> list[int]:
        return [index for index, out in enumerate(self.exit.outs) if isinstance(out, Var)]

    @property
    def is_everything(self) -> bool:
        """Whether every id of the type is a result. All ids of a domain mean every id, whatever its query returns."""
        branch = self.exit.branch
        if self.open_columns:
            return self.is_certain and self.withheld == ()
        return not branch.conditions and len(branch.sources) == 1 and isinstance(branch.sources[0], ForeignDomain)


@dataclass(frozen=True)
class LocalBranches:
    """All branches for some results: the exits of one plan, with a common recursion."""

    plan: Plan
    each: tuple[LocalBranch, ...]

    @classmethod
    def of(cls, plan: Plan, branches: Iterable[LocalBranch | None]) -> LocalBranches:
        each = tuple(filter(None, branches))
        return cls(replace(plan, exits=tuple(branch.exit for branch in each)), each)

    def plans(self) -> list[Plan]:
        """Return all plans, including those of withheld branches."""
        withheld = (inner for branch in self.each for inner in branch.withheld or ())
        return [self.plan, *(plan for inner in withheld for plan in inner.plans())]


def planned(rules: RuleSet, tables: CallerTables, root: Root, types: tuple[str, ...], knows: Knows) -> LocalBranches:
    """Plan all branches for results with columns of these types.

    As in decisions, facts of signatures not known to be stored are not read: branches that read them have no rows.
    Unlike in decisions, rules are not tabled to make a large statement smaller, because the caller reads the SQL.
    """

    def stores(signature: Signature) -> tuple[str, ...]:
        return (*tables.local_stores(signature), *tables.service_stores(signature, knows))

    planner = Planner(rules, stores, has_other_form=False)
    outs = tuple(Var(k, type=name) for k, name in enumerate(types))
    plan = planner.plan((*root.givens, *root.calls), outs)
    return LocalBranches.of(plan, (_branch(planner, _enumerated(planner, tables, end, types)) for end in plan.exits))


def _enumerated(planner: Planner, tables: CallerTables, end: Exit, types: tuple[str, ...]) -> Exit:
    """Return the exit; columns that stand for every value are read from all ids of the type, if available."""
    sources = list(end.branch.sources)
    columns: dict[Var, Col] = {}
    for out, type_name in zip(end.outs, types):
        # Two columns may be the same variable.
        if isinstance(out, Var) and out not in columns and type_name in tables.bindings.domains:
            source = ForeignDomain(planner.new_source(), type_name)
            sources.append(source)
            columns[out] = Col(source.number, "v", type_name)
    outs = substituted_terms(end.outs, columns)
    guards = tuple(substituted(guard, columns) for guard in end.guards)
    return replace(end, branch=Branch(tuple(sources), end.branch.conditions), outs=outs, guards=guards)


def _branch(planner: Planner, end: Exit) -> LocalBranch | None:
    conditions: list[Condition] = []
    withheld: list[LocalBranches] | None = []
    for guard in end.guards:
        if any(isinstance(arg, Var) for arg in guard.call.args):
            found = _withheld(planner, guard, end)
            withheld = None if withheld is None or found is None else [*withheld, found]
            continue
        verdict = planner.tested(guard)
        if verdict is False:
            return None
        conditions += [] if verdict is True else [verdict]
    branch = Branch(end.branch.sources, (*end.branch.conditions, *conditions))
    return LocalBranch(replace(end, branch=branch, guards=()), None if withheld is None else tuple(withheld))


def _withheld(planner: Planner, guard: Neg, end: Exit) -> LocalBranches | None:
    """Return the branches for values that the guard excludes; None if that depends on the row or several columns."""
    args = guard.call.args
    if len(end.outs) != 1 or any(isinstance(arg, Col) for arg in args):
        return None
    plan = planner.plan((outward(guard.call),), (Var(0, type=type_of(end.outs[0])),))
    return LocalBranches.of(plan, (_branch(planner, each) for each in plan.exits))


# ---- splitting -----------------------------------------------------------------------------------------------------
# Split a plan into parts that stored facts decide, each a statement, and the rest for the caller's database.
#
#     local repo_org(r, o); stored has_role(:actor, n, o); n in [...]
#         ->   1: SELECT DISTINCT o FROM stored …         left: local repo_org(r, o) with o out of 1
#
# Stored sources joined by conditions form one part. Sources that only the caller's rows would join are separate parts,
# so that there is no cross product. Splitting does not need values, so it is done once per shape of queries.

# ---- stored statements --------------------------------------------------------------------------------------------
# Statements over stored facts, for the parts of branches that these decide, and for the recursions that they read.
#
# A recursion that depends on stored facts only is evaluated once; its rows are passed as JSON to all statements that
# read it. Parts that differ only in source numbers share a statement. Statements are rendered on first use: most are
# never used, because another part of their branch has no rows.

StoredRows = list[Fetched]
MOST_VALUES = 100_000  # from stored facts, in one statement


@dataclass(frozen=True)
class StoredTable:
    """All goals of a plan, or all its answers; `slot` is the parameter from which statements read them."""

    slot: str
    columns: tuple[str, ...]
    statement: Statement
    rounds: tuple[Rounds, ...]


RenderedRows = tuple[Statement, tuple[Rounds, ...]]  # the rounds are evaluated before the statement runs


@dataclass(frozen=True, eq=False)
class StoredStatement:
    """A statement that reads stored facts and `tables`, and selects these columns of the branch."""

    render: Callable[[], RenderedRows]
    tables: tuple[tuple[StoredTable, int], ...]  # each with the tag of the rows to read
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
            source.number: (self._table(plan, type(source)), tag_of(source, branch))
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
        return finished(text, renderer.dialect), tuple(renderer.rounds.values())

    def _table(self, plan: Plan, kind: type) -> StoredTable:
        key = (plan, kind)
        if key not in self.tables:
            renderer = self.renderer()
            # If only the goals are needed, leave out the answers: they may read the caller's tables.
            wanted = replace(plan, answers=()) if kind is Goals else plan
            start: SelectScope[PlanSource] = SelectScope()
            scope, tables = renderer.entered(wanted, start)
            columns = ("tag", *renderer.layout(plan, kind).names)
            rows = f"SELECT {', '.join(columns)} FROM {scope.goals if kind is Goals else scope.answers}"
            statement = finished((*renderer.head(tables), rows), renderer.dialect)
            slot = f"known_rows{len(self.tables)}"
            self.tables[key] = StoredTable(slot, columns, statement, tuple(renderer.rounds.values()))
        return self.tables[key]


def tag_of(source: Goals | Answers, branch: Branch) -> int:
    """Return which goals or answers a branch reads."""
    return next(each.tag for each in branch.conditions if isinstance(each, Tagged) and each.source == source.number)


def _what(branch: Branch, plan: Plan) -> str:
    found = [str(source.signature) for source in branch.sources if isinstance(source, FactScan)]
    return found[0] if found else plan.name


@dataclass
class Execution:
    """The statements of one query, run with its values in one snapshot; results are cached."""

    run: Run
    slots: Mapping[str, object]
    tables: dict[str, tuple[str, set[int]]] = field(default_factory=dict)  # by slot: the JSON, and its tags
    ran: dict[Statement, StoredRows] = field(default_factory=dict)  # cached, because branches often share statements

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


# ---- branches -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    statements: tuple[StoredStatement, ...]
    left: Branch


PlanRow = TypeVar("PlanRow", Exit, Jump, AnswerArm)
Each = tuple[tuple[PlanRow, Split], ...]


def row_of(row: Exit | Jump | AnswerArm) -> tuple[Branch, tuple[Term, ...]]:
    """Return the branch, and the terms that are selected from its rows."""
    match row:
        case Exit():
            return row.branch, row.outs
        case Jump():
            return row.branch, row.keys
    return row.exit.branch, (*row.keys, *row.exit.outs)


def remade(row: Exit | Jump | AnswerArm, branch: Branch, terms: tuple[Term, ...]) -> Exit | Jump | AnswerArm:
    """Return the row with another branch and terms."""
    if isinstance(row, Exit):
        return replace(row, branch=branch, outs=terms)
    keys = tuple(key for key in terms[: len(row.keys)] if not isinstance(key, Var))
    assert len(keys) == len(row.keys), "what has a value keeps one"
    if isinstance(row, Jump):
        return replace(row, branch=branch, keys=keys)
    return replace(row, keys=keys, exit=replace(row.exit, branch=branch, outs=terms[len(keys) :]))


@dataclass(frozen=True, eq=False)
class SplitPlan:
    """A plan and its split branches, without goals and answers that depend on stored facts only."""

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


@dataclass
class Splitter:
    tables: CallerTables
    dialect: Dialect  # of the database with stored facts
    numbering: Numbering
    plans: dict[Plan, SplitPlan] = field(default_factory=dict)
    stored_only: dict[Plan, bool] = field(default_factory=dict)
    stored_only_goals: dict[Plan, bool] = field(default_factory=dict)
    stored_only_answers: dict[Plan, bool] = field(default_factory=dict)
    mentions: dict[Candidates, StoredStatement] = field(default_factory=dict)
    statements: StoredStatements = field(init=False)

    def __post_init__(self) -> None:
        self.statements = StoredStatements(self._renderer)

    def of(self, plan: Plan) -> SplitPlan:
        if plan not in self.plans:
            self.plans[plan] = SplitPlan(plan) if plan.form is Form.ROUNDS else self._split_plan(plan)
        return self.plans[plan]

    def _split_plan(self, plan: Plan) -> SplitPlan:
        seeds: Each[Jump] = ()
        moves: Each[Jump] = ()
        answers: Each[AnswerArm] = ()
        if not self.has_stored_only_goals(plan):
            seeds, moves = self._each_split(plan, plan.seeds), self._each_split(plan, plan.moves)
        if not self.has_stored_only_answers(plan):
            answers = self._each_split(plan, plan.answers)
        return SplitPlan(plan, self._each_split(plan, plan.exits), seeds, moves, answers)

    def _each_split(self, plan: Plan, rows: tuple[PlanRow, ...]) -> Each[PlanRow]:
        return tuple((row, self.split(plan, *row_of(row))) for row in rows)

    def split(self, plan: Plan, branch: Branch, terms: tuple[Term, ...]) -> Split:
        """Split a branch of `plan`, and all plans that it reads; `terms` are selected from its rows."""
        limits.check()
        clauses.check()
        split = self._split(plan, branch, terms)
        for each in (*split.left.sources, *split.left.conditions):
            if isinstance(each, DerivedTable | Holds):
                self.of(each.plan)
            elif isinstance(each, Candidates):
                self.candidates(each)
        return split

    def candidates(self, source: Candidates) -> StoredStatement:
        """Return the statement that reads the stored ids of the source."""
        if source not in self.mentions:
            plan, branch = Plan("candidates", 1, ()), Branch((source,))
            type_name = next((position.signature.types[position.index] for position in source.positions), "")
            column = Col(source.number, "v", type_name)
            self.mentions[source] = self._stored_statement(plan, branch, {column}, branch)
        return self.mentions[source]

    # ---- what depends on stored facts only -------------------------------------------------------------------

    def is_stored_only(self, plan: Plan) -> bool:
        """Return whether the plan reads none of the caller's tables."""
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
            self.stored_only_goals[plan] = self._are_stored_only(plan, (*plan.seeds, *plan.moves))
        return self.stored_only_goals[plan]

    def has_stored_only_answers(self, plan: Plan) -> bool:
        if plan not in self.stored_only_answers:
            is_goals = self.has_stored_only_goals(plan)
            self.stored_only_answers[plan] = is_goals and self._are_stored_only(plan, plan.answers)
        return self.stored_only_answers[plan]

    def _are_stored_only(self, plan: Plan, rows: Iterable[Jump | AnswerArm]) -> bool:
        """Return whether the rows depend on stored facts only, and not on rows of an outer select."""
        read = [row_of(row) for row in rows]
        if plan.form is Form.ROUNDS or not all(self._is_stored_only_branch(branch) for branch, _ in read):
            return False
        return all({*_columns_of(branch), *terms}.isdisjoint(plan.outer_columns) for branch, terms in read)

    # ---- branches ----------------------------------------------------------------------------------------------

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
        mine = (each for each in wanted if each.source in numbers)
        columns = tuple(sorted(mine, key=lambda column: (column.source, column.name)))
        place = next((index for index, source in enumerate(whole.sources) if source.number in numbers), 0)
        return self.statements.of(plan, branch, columns, place)

    def _renderer(self) -> StoredRenderer:
        known = self.numbering
        return StoredRenderer(self.dialect, known.of, self._service_stores, self.tables.inline, known.may_end)

    def _service_stores(self, signature: Signature) -> tuple[str, ...]:
        return self.tables.service_stores(signature, self.numbering.knows)


def _components(
    sources: list[PlanSource], conditions: list[Condition]
) -> Iterator[tuple[list[PlanSource], list[Condition]]]:
    """Yield groups of sources joined by conditions, with these; each condition without sources is a group by itself."""
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
