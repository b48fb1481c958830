"""Plans over stored facts -> SQL: one table of facts, by the numbers of their signatures; values are parameters."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from checks.engine.plan.plan import (
    Among,
    Answers,
    ArgumentPosition,
    Branch,
    Candidates,
    Comparison,
    Condition,
    DerivedTable,
    Domain,
    Exit,
    FactScan,
    Form,
    Goals,
    Ids,
    Plan,
    Same,
    Source,
    Tagged,
    Variant,
    stored_first,
)
from checks.engine.plan.prefixes import sources_of
from checks.engine.plan.variants import variant_of
from checks.engine.rules.clauses import FRESH, Col, Const, Given, Operand, Other, Slot, Term, Var
from checks.engine.sql.alike import ArmKeyMaker, is_looked_into
from checks.engine.sql.layout import Padded, padded
from checks.engine.sql.lookups import has_not_ended, known_columns, stored_with_index
from checks.engine.sql.operands import Scoped, StoredOperands
from checks.engine.sql.render import ColumnsOf, no_columns
from checks.engine.sql.rounds import Rounds, rounds_for
from checks.engine.sql.scope import Scope
from checks.engine.sql.steps import Names, existential_in, names_of, steps_of
from checks.engine.sql.tables import INLINE, inline_table, with_tables
from checks.engine.sql.text import (
    READS,
    Column,
    ConstantSet,
    Formed,
    NumberHole,
    Shown,
    Table,
    Text,
    Written,
    joined,
    settled,
    tables_in,
)
from facts.indexes import STORED
from policy.rules.components import reachable
from policy.rules.program import Signature
from policy.values import INTEGER


@dataclass
class StoredRenderer(StoredOperands):
    """Renders plans over stored facts. Any text may be stored, so that its methods never return None."""

    reads = READS

    stores: Callable[[Signature], tuple[str, ...]]
    inline: frozenset[Signature] = frozenset()
    may_end: Callable[[Signature], bool] = lambda signature: False  # whether facts of a signature may have ends
    rounds: dict[Plan, Rounds] = field(default_factory=dict)  # plans that are evaluated before the statement runs
    # Joined plans and domains, in WITH.
    shared: dict[tuple[Plan, Variant] | Domain, tuple[str, Text]] = field(default_factory=dict)
    tested: dict[Hashable, Text | bool] = field(default_factory=dict)  # tests of plans, by all that they depend on

    def head(self, tables: Iterable[Text]) -> Text:
        """Return the WITH clause with all that the statement's selects read by name."""
        return with_tables([*self.facts_in_with(), *self.defined(tables)])

    def head_of(self, rows: Text, tables: Iterable[Text]) -> Text:
        """Return the WITH clause of one of several statements: of the shared tables, only those that its rows need."""
        texts = dict(self.shared.values())
        named = set(reachable(tables_in(rows), lambda name: tables_in(texts.get(name, ()))))
        read = [text for name, text in texts.items() if name in named]
        return with_tables([*self.facts_in_with(), *read, *tables])

    def facts_in_with(self) -> list[Text]:
        """Return the WITH tables that have facts: those that the request brings."""
        return inline_table(self.dialect, self.inline)

    def defined(self, tables: Iterable[Text]) -> list[Text]:
        """Return all WITH tables except the facts that the request brings."""
        return [*(text for _, text in self.shared.values()), *tables]

    # ---- plans ---------------------------------------------------------------------------------------------------

    def entered(self, plan: Plan, scope: Scoped) -> tuple[Scoped, list[Text]]:
        scope = scope.inside(plan)
        return self.with_tables(plan, scope, scope.own("g"), scope.own("a"))

    def arms(self, ends: Iterable[Exit], scope: Scoped, columns: ColumnsOf = no_columns) -> list[Text]:
        return super().arms(stored_first(tuple(ends)), scope, columns)

    def arm(self, end: Exit, columns: Sequence[Column], scope: Scoped) -> Text:
        return _always(super().arm(end, columns, scope))

    def outs(self, end: Exit) -> list[Column]:
        """Return the answer columns o0 …"""
        return [self._out(out, f"o{index}") for index, out in enumerate(end.outs)]

    def _out(self, term: Term, name: str) -> Column:
        if isinstance(term, Var):
            return (f"NULL AS {name}",)
        return Formed(term, lambda text: (*self.dialect.answer(text), f" AS {name}"))

    def verdict(self, end: Exit, tests: tuple[Condition, ...], scope: Scoped) -> Column:
        """Return a column that is 1 if the tests hold for a row of the exit, and 0 if not."""
        if not tests:
            return ("1",)
        named = self.named(end.branch, scope)
        outcome = joined(" AND ", (self._test(test, named) for test in tests))
        looked_at = frozenset(number for test in tests for number in sources_of(test))
        return Written(("CASE WHEN ", *outcome, " THEN 1 ELSE 0 END"), looked_at)

    def layout(self, plan: Plan, kind: type[Goals] | type[Answers]) -> Padded:
        keys = plan.key_count if plan.seeds else 0
        return padded(keys, plan.answer_width if kind is Answers else 0, self.dialect.seed)

    def rounds_of(self, plan: Plan) -> Rounds:
        if plan not in self.rounds:
            made = rounds_for(plan, lambda: replace(self, shared={}, tested={}, holes={}))
            self.rounds[plan] = replace(made, number=len(self.rounds))  # numbered after the rounds that it reads itself
        return self.rounds[plan]

    # ---- branches -------------------------------------------------------------------------------------------------

    def letter(self, source: Source) -> str:
        """Return the letter for aliases: that of stored facts is easily found in the database's query plans."""
        if isinstance(source, FactScan):
            return "f" if source.store == "stored" else "c"
        return "i" if isinstance(source, Ids) else "t"

    def seen(self, source: Source, alias: str, branch: Branch, scope: Scoped) -> Source:
        return source

    def select(self, branch: Branch, columns: Sequence[Column], scope: Scoped) -> Text:
        return _always(super().select(branch, columns, scope))

    def shown(self, column: Shown, scope: Scoped) -> Text:
        assert isinstance(column, Formed), "what is shown of stored facts has a form"
        return column.form(self.operand(column.term, scope))

    def row_tests(self, source: Source, branch: Branch, scope: Scoped) -> Iterable[Text]:
        return self._fact_tests(source, scope) if isinstance(source, FactScan) else ()

    def _fact_tests(self, source: FactScan, scope: Scoped) -> list[Text]:
        """Return the tests that a row is a fact of the signature, and has not ended."""
        tests = [self.number_test(source, scope)]
        if self._ends(source):
            tests.append(has_not_ended(scope.names[source.number], (self.dialect.now,)))
        return tests

    def arm_key_maker(self, *numbers: int) -> ArmKeyMaker:
        return ArmKeyMaker(self.number_of, self._ends, [*numbers])

    def with_holes(self, holes: Mapping[int, int]) -> StoredRenderer:
        """Return the renderer of an arm for many; without holes, of what is the same in all of them."""
        return replace(self, holes=holes, tested={})

    def _ends(self, source: FactScan) -> bool:
        return source.store == "stored" and self.may_end(source.signature)

    def read(self, branch: Branch, columns: Sequence[Column], scope: Scoped) -> tuple[list[Text], list[Text]] | None:
        if not self.dialect.joins_apart:
            return super().read(branch, columns, scope)
        return self._read_apart(branch, existential_in(branch, columns), scope)

    def _read_apart(self, branch: Branch, existential: list[Source], scope: Scoped) -> tuple[list[Text], list[Text]]:
        """Return the same as `read`, with each stored fact that is joined in a SELECT of its own.

            CROSS JOIN LATERAL (SELECT * FROM fact WHERE sig = 3 AND a0 = f0.a1 OFFSET 0) f1

        So it is looked up by all that is known before it. Facts that the request brings have no index: the database
        joins them as it likes. Facts that are tested with EXISTS come first, so that a slower test is often
        not run at all.
        """
        tables: list[Text] = []
        tests: list[Text] = []
        for source, conditions in steps_of(branch, scope.read(branch.sources)):
            if not isinstance(source, FactScan):
                tests += [self._test(each, scope) for each in conditions]
                tables += [self._named(source, branch, scope)] if source else []
                continue
            alias, is_existential = scope.names[source.number], source in existential
            names = {} if is_existential else names_of(source, conditions)
            tables += [self._names(each, alias) for each in names.values()]
            is_apart = is_existential or (source.store == "stored" and bool(tables or scope.lateral))
            inner = _alone(source, conditions, scope) if is_apart else scope
            table = self._named(source, branch, inner)
            own = [self._named_test(each, inner, names, alias) for each in conditions]
            own = [*self._fact_tests(source, inner), *own]
            if not is_apart:
                tests += own
                tables.append(table)
            elif is_existential:
                tests.insert(0, ("EXISTS (SELECT 1 FROM ", *table, " WHERE ", *joined(" AND ", own), ")"))
            else:
                looked_up: Text = (*table, " WHERE ", *joined(" AND ", own))
                tables.append(("LATERAL (SELECT * FROM ", *looked_up, f" OFFSET 0) {alias}"))
        return tables, tests

    def _named(self, source: Source, branch: Branch, scope: Scoped) -> Text:
        alias = scope.names[source.number]
        return (*_always(self.source(source, branch, scope)), *((f" {alias}",) if alias else ()))

    def _names(self, names: Names, alias: str) -> Text:
        """Return the constants that a column may equal, as a table."""
        column, ids = names
        return (ConstantSet(f"{alias}{column.name}", ids, is_table=True),)

    def _named_test(self, condition: Condition, scope: Scoped, names: dict[Condition, Names], alias: str) -> Text:
        if condition not in names:
            return self._test(condition, scope)
        column, _ = names[condition]
        return (*self.operand(column, scope), f" = {alias}{column.name}.v")

    def _test(self, condition: Condition, scope: Scoped) -> Text:
        verdict = self.condition(condition, scope)
        assert not isinstance(verdict, bool), "what is certain is no condition of a plan"
        return verdict

    # ---- sources --------------------------------------------------------------------------------------------------

    def table(self, source: Source, branch: Branch, scope: Scoped) -> Text:
        match source:
            case FactScan(store=store):
                return self._with_index(source, branch, scope) if self._ends(source) else (self._facts(store),)
            case Ids(slot=slot):
                return self.dialect.values((Slot(slot),))
            case DerivedTable():
                return self._derived_table(source, scope)
            case Candidates():
                return ("(", *joined(" UNION ", self._candidates(source.positions, (FRESH.id, *source.ids))), ")")
            case Domain():
                return (self._domain(source),)
        raise AssertionError(f"{source} is read by another renderer")

    def _with_index(self, source: FactScan, branch: Branch, scope: Scoped) -> Text:
        steps = steps_of(branch, scope.read(branch.sources))
        conditions = next(conditions for step, conditions in steps if step == source)
        return stored_with_index(known_columns(conditions, source.number), self.dialect)

    def _facts(self, store: str) -> str:
        assert store in ("stored", "inline"), f"facts in {store} are read by another statement"
        return STORED if store == "stored" else INLINE

    def _candidates(self, positions: Iterable[ArgumentPosition], ids: Iterable[str]) -> list[Text]:
        """Return SELECTs of these ids, and of those that facts have at the positions."""
        arms: list[Text] = [("SELECT ", *self.dialect.seed((Const(each),)), " AS v") for each in ids]
        for position in positions:
            for store in self.stores(position.signature):
                arms.append(self._mentioned(position, store))
        return arms

    def _domain(self, source: Domain) -> Table:
        """Return the table of a domain's ids; of Integers, also of the numbers next to them."""
        key = replace(source, number=0)
        if key not in self.shared:
            name = f"r{len(self.shared)}"
            found = [*self._candidates(source.positions, source.ids), *map(self._given, source.values)]
            rows = joined(" UNION ", found)
            if source.type == INTEGER:
                rows = ("SELECT v FROM (", *rows, ") x UNION ", *self.dialect.neighbours(rows))
            self.shared[key] = (name, (f"{name}(v) AS MATERIALIZED (", *rows, ")"))
        return Table(self.shared[key][0])

    def _given(self, value: Slot | Other | Given) -> Text:
        if isinstance(value, Given):
            return ("SELECT v FROM ", *self.dialect.values((Slot(value.slot),)), " x")
        return ("SELECT ", *self.dialect.seed(self.operand(value, Scope())), " AS v")

    def _mentioned(self, position: ArgumentPosition, store: str) -> Text:
        """Return a SELECT of the ids that a store's facts have at a position."""
        column, test = f"a{position.index}", f"sig = {self.number_of(position.signature)}"
        ended: Text = ()
        if store == "stored" and self.may_end(position.signature):
            ended = (" AND ", *has_not_ended("", (self.dialect.now,)))
        return (f"SELECT {column} FROM {self._facts(store)} WHERE {test}", *ended)

    def _derived_table(self, source: DerivedTable, scope: Scoped) -> Text:
        if self.holes:
            return self.with_holes({})._derived_table(source, scope)
        plan = source.plan
        if plan.form is not Form.ROUNDS and plan.outer_columns:
            return self._in_place(source, scope)
        key = (plan, source.variant)
        if key not in self.shared:
            slot = self.rounds_of(plan).slot(source.variant) if plan.form is Form.ROUNDS else None
            name = f"r{len(self.shared)}"
            self.shared[key] = (name, ())  # takes its place before the tables that it reads itself
            self.shared[key] = (name, self._defined(source, name) if slot is None else self._fetched(plan, name, slot))
        return (Table(self.shared[key][0]),)

    def _in_place(self, source: DerivedTable, scope: Scoped) -> Text:
        """Return a derived table that mentions a row of an outer select, as a subquery in its place."""
        if not source.plan.is_plain_path:
            rows = _always(self.query(source.plan, scope, self.outs, _exits_of(source)))
            return ("(SELECT * FROM (", *rows, ") x)")
        inner = scope.inside(source.plan)
        name = f"w{inner.depth}"
        return ("(WITH RECURSIVE ", *self._path(source.plan, name, inner), f" SELECT c0 FROM {name})")

    def _defined(self, source: DerivedTable, name: str) -> Text:
        if source.plan.is_plain_path:
            return self._path(source.plan, name, Scope())
        rows = _always(self.query(source.plan, Scope(prefix=name), self.outs, _exits_of(source), distinct=True))
        return (f"{name}({', '.join(_columns_of(source.plan))}) AS MATERIALIZED (", *rows, ")")

    def _fetched(self, plan: Plan, name: str, slot: str) -> Text:
        """Return the answers that rounds came to, as a table."""
        return (f"{name} AS MATERIALIZED (", *self.dialect.table((Slot(slot),), _columns_of(plan)), ")")

    def _path(self, plan: Plan, name: str, scope: Scoped) -> Text:
        """Return all that a path leads to, as one recursive table: its goals are its answers."""
        scope = scope._replace(tables={each.number: name for jump in plan.moves for each in jump.branch.sources[:1]})
        step = scope._replace(lateral=Goals if self.dialect.recursive_arms_join else None)
        starts = [(end.branch, end.outs[0]) for end in plan.exits if not end.branch.sources]
        starts += [(jump.branch, jump.keys[0]) for jump in plan.seeds]
        seeds = [self._step(branch, term, scope) for branch, term in starts]
        moves = [self._step(_untagged(jump.branch), jump.keys[0], step) for jump in plan.moves]
        return _always(self.recursive(name, scope.row, ["c0"], seeds, moves))

    def _step(self, branch: Branch, term: Term, scope: Scoped) -> Text:
        return self.select(branch, [Formed(term, self.dialect.seed)], scope)

    # ---- conditions -----------------------------------------------------------------------------------------------

    def condition(self, condition: Condition, scope: Scoped) -> Text | bool:
        match condition:
            case Tagged(source) if source in self.holes:
                return (NumberHole(f"{scope.names[source]}.tag", self.holes[source]),)
        return super().condition(condition, scope)

    def holds(self, plan: Plan, negated: bool, scope: Scoped) -> Text | bool:
        """Return the test of the plan. Its text is kept: branches often test the same for columns of the same name."""
        if self.holes and not is_looked_into(plan):
            return self.with_holes({}).holds(plan, negated, scope)
        key = (plan, negated, scope.around(plan))
        if key not in self.tested:
            self.tested[key] = self._holds(plan, negated, scope)
        return self.tested[key]

    def _holds(self, plan: Plan, negated: bool, scope: Scoped) -> Text | bool:
        if plan.form is not Form.SET:
            return super().holds(plan, negated, scope)
        looked_up = joined(" OR ", (self._looked_up(plan, end, scope) for end in plan.exits))
        return ("(", *looked_up, ") IS NOT TRUE" if negated else ") IS TRUE")

    def _looked_up(self, plan: Plan, end: Exit, scope: Scoped) -> Text:
        """Return the test that columns are in a set: `IN`, for which both databases build a table of the set once.

        Under `IS TRUE` they do so always: PostgreSQL would else make a join of it, of sizes that it cannot know. A
        branch that is more than a look-up in one derived table is tested with EXISTS.
        """
        source, *others = end.branch.sources
        sides = [_sides(each, source.number) for each in end.branch.conditions]
        pairs = [pair for pair in sides if pair]
        if others or not isinstance(source, DerivedTable) or len(pairs) < len(sides) or not pairs:
            return ("EXISTS (", *settled(self.select(end.branch, [("1",)], scope.inside(plan))), ")")
        left = joined(", ", (self.operand(operand, scope) for _, operand in pairs))
        columns = ", ".join(column.name for column, _ in pairs)
        wanted: Text = left if len(pairs) == 1 else ("(", *left, ")")
        return (*wanted, f" IN (SELECT {columns} FROM ", *self._derived_table(source, scope), ")")


def _exits_of(source: DerivedTable) -> list[Exit]:
    """Return the exits of the derived table's variant."""
    return [end for end in source.plan.exits if variant_of(end, source.plan.fixed) == source.variant]


def _columns_of(plan: Plan) -> list[str]:
    return [plan.column(index) for index in range(max(plan.width, 1))]


def _sides(condition: Condition, number: int) -> tuple[Col, Operand] | None:
    """Return the column of the source and what it equals; None for any other condition."""
    match condition:
        case Same(Col(source) as column, operand) if source == number:
            return column, operand
    return None


def _alone(source: FactScan, conditions: list[Condition], scope: Scoped) -> Scoped:
    """Return the scope of a SELECT of this fact alone: its columns need no alias, unless a select is nested inside."""
    if not all(isinstance(each, (Same, Among, Comparison)) for each in conditions):
        return scope
    return scope._replace(names={**scope.names, source.number: ""})


def _untagged(branch: Branch) -> Branch:
    return Branch(branch.sources, tuple(each for each in branch.conditions if not isinstance(each, Tagged)))


def _always(text: Text | None) -> Text:
    assert text is not None, "stored facts can have any value"
    return text
