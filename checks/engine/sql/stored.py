"""Render plans over stored facts as SQL, as of now or of an earlier revision."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from checks.engine.plan.draft import sources_of, variant_of
from checks.engine.plan.plan import (
    Answers,
    ArgumentPosition,
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
    Plan,
    PlanSource,
    Same,
    Tagged,
    Variant,
    stored_first,
)
from checks.engine.rules.clauses import FRESH, NOW, Cmp, Col, Const, Given, Member, Operand, Other, Slot, Term, Var
from checks.engine.sql.render import (
    INLINE,
    ColumnNames,
    ColumnsOf,
    Padded,
    Renderer,
    SelectScope,
    existential_in,
    inline_table,
    names_of,
    no_columns,
    padded,
    steps_of,
    with_tables,
)
from checks.engine.sql.rounds import Rounds, rounds_for
from checks.engine.sql.text import (
    READS,
    Column,
    ConstantSet,
    Dialect,
    Formed,
    NumberTest,
    Shown,
    Table,
    Text,
    Written,
    joined,
    one_of,
    selects_of,
    settled,
    tables_in,
)
from facts.models import PAST, STORED, condition, hint, leading
from policy.rules.components import reachable
from policy.rules.program import Signature

# ---- Operands and their tests in statements over stored facts: columns, parameters, ids ---------------------------
# For example `doc = $2`, `a1 IN ('reader', 'writer')`, or a column read as a number if its signature says that it is
# one.

Scoped = SelectScope[PlanSource]


@dataclass
class StoredOperands(Renderer[Dialect, PlanSource]):
    """The part of a renderer that does not depend on plans."""

    number_of: Callable[[Signature], int]
    joins_numbers: bool = field(default=False, kw_only=True)  # in rounds: whether tags are numbers of arms

    def among(self, operand: Operand, ids: tuple[str, ...], scope: Scoped) -> Text:
        if isinstance(operand, Col):
            return (ConstantSet(self._at(operand, scope), frozenset(ids)),)
        return one_of(self.dialect.text_value(self.operand(operand, scope)), ids, self.dialect)

    def equal(self, left: Operand, right: Operand, scope: Scoped) -> Text:
        """Return the test that both are equal. Two parameters are cast to text, as neither has a type."""
        sides = [self.operand(side, scope) for side in (left, right)]
        if not isinstance(left, Col) and not isinstance(right, Col):
            sides = [self.dialect.text_value(side) for side in sides]
        return joined(" = ", sides)

    def unequal(self, left: Operand, right: Operand, scope: Scoped) -> Text:
        return (*self.operand(left, scope), " <> ", *self.operand(right, scope))

    def number(self, operand: Operand, scope: Scoped) -> Text:
        """Return the operand as a number: a fact's column if its signature matches; a parameter once, in a subquery."""
        text = self.operand(operand, scope)
        if not isinstance(operand, Col):
            return ("(SELECT ", *self.dialect.integer(text), ")")
        source = scope.seen.get(operand.source)
        if not isinstance(source, FactScan) or operand.source in scope.looked_up:
            return self.dialect.integer(text)
        return self.dialect.integer(text, self.number_test(source, scope))

    def operand(self, operand: Term, scope: Scoped) -> Text:
        match operand:
            case Col():
                return (self._at(operand, scope),)
            case Slot() if operand == NOW:
                return self.dialect.current_time(NOW)
            case Const() | Slot() | Other():
                return (operand,)
        raise AssertionError(f"{operand} has no value when the statement runs")

    def _at(self, column: Col, scope: Scoped) -> str:
        name = scope.names[column.source]
        if column.source in scope.looked_up:
            return self.dialect.of_looked_up(name, int(column.name.removeprefix("a")), column.name)
        return f"{name}.{column.name}" if name else column.name

    def number_test(self, source: FactScan, scope: Scoped) -> Text:
        name = scope.names[source.number]
        column = f"{name}.sig" if name else "sig"
        test = NumberTest(column, self.number_of(source.signature))
        return (test if self.joins_numbers or self.dialect.joins_numbers else str(test),)


# ---- Lookups of stored facts that may expire, and of facts as of an earlier revision ------------------------------
# As of a revision, facts are looked up among both stored and past facts:
#
#     PostgreSQL   LATERAL (SELECT … FROM authz_fact f0 WHERE … UNION ALL SELECT … FROM authz_past_fact f0 WHERE …) f0
#     SQLite       json_each((SELECT json_group_array(json_array(a0, a1)) FROM (… UNION ALL …))) f0
#
# SQLite has no LATERAL, but an argument of a table function may mention the preceding tables: the rows come as JSON
# lists.

REVISION = Slot("revision")
REVISION_TIME = Slot("moment")  # the time of that revision, in microseconds


def known_columns(conditions: Iterable[Condition], number: int) -> set[str]:
    """Return the columns of a source that the conditions restrict to one value or to several."""
    found: set[str] = set()
    for each in conditions:
        match each:
            case Same(left, right):
                for side, other in ((left, right), (right, left)):
                    is_joined = isinstance(other, Col) and other.source == number
                    if isinstance(side, Col) and side.source == number and not is_joined:
                        found.add(side.name)
            case Member(Col(source) as column, _) if source == number:
                found.add(column.name)
    return found


def has_not_ended(alias: str, time: Text) -> Text:
    name = f"{alias}.expires_at" if alias else "expires_at"
    return (f"({name} IS NULL OR {name} > ", *time, ")")


def stored_with_index(known: set[str], dialect: Dialect) -> Text:
    """Return the table of stored facts, hinted if needed to use an index that leads with a known column."""
    column = leading(known)
    if not dialect.needs_hints or not hint(STORED, column):
        return (STORED,)
    held = condition(STORED, column)
    return (f"(SELECT * FROM {STORED}{hint(STORED, column)}{f' WHERE {held}' if held else ''})",)


def rows_as_of(columns: Sequence[str], alias: str, tests: Sequence[Text], known: set[str], dialect: Dialect) -> Text:
    """Return a SELECT of the facts as of the revision that pass the tests."""
    revision = dialect.number((REVISION,))
    begun: Text = (f"{alias}.since + 0 <= ", *revision)  # `+ 0`: do not use the index that leads with `since`
    held = [*tests, begun, has_not_ended(alias, dialect.number((REVISION_TIME,)))]
    shown, column = ", ".join(columns), leading(known)
    stored = _arm(shown, STORED, alias, held, column, dialect)
    ended_later: Text = (f"{alias}.until > ", *dialect.unforeseen(revision))
    past = _arm(shown, PAST, alias, [*held, ended_later], column, dialect)
    return (*stored, " UNION ALL ", *past)


def _arm(shown: str, table: str, alias: str, tests: list[Text], column: str | None, dialect: Dialect) -> Text:
    needed = condition(table, column, f"{alias}.")
    named = f"{table} {alias}{hint(table, column) if dialect.needs_hints else ''}"
    return (f"SELECT {shown} FROM {named} WHERE ", *joined(" AND ", [*tests, *([(needed,)] if needed else [])]))


# ---- stored -------------------------------------------------------------------------------------------------------
# Plans over stored facts -> SQL: one table of facts, by the numbers of their signatures; values are parameters.


@dataclass
class StoredRenderer(StoredOperands):
    """Renders plans over stored facts. Any text may be stored, so its methods never return None."""

    reads = READS

    stores: Callable[[Signature], tuple[str, ...]]
    inline: frozenset[Signature] = frozenset()
    may_end: Callable[[Signature], bool] = lambda signature: False  # whether facts of a signature may expire
    rounds: dict[Plan, Rounds] = field(default_factory=dict)  # plans evaluated before the statement runs
    # Joined plans and domains, in the WITH clause.
    shared: dict[tuple[Plan, Variant] | Domain, tuple[str, Text]] = field(default_factory=dict)
    tested: dict[Hashable, Text | bool] = field(default_factory=dict)  # tests of plans, by all that they depend on

    def head(self, tables: Iterable[Text]) -> Text:
        """Return the WITH clause with all that the statement's selects read by name."""
        return with_tables([*self.facts_in_with(), *self.defined(tables)])

    def head_of(self, rows: Text, tables: Iterable[Text]) -> Text:
        """Return the WITH clause of one of several statements, with only those shared tables that its rows need."""
        texts = dict(self.shared.values())
        named = set(reachable(tables_in(rows), lambda name: tables_in(texts.get(name, ()))))
        read = [text for name, text in texts.items() if name in named]
        return with_tables([*self.facts_in_with(), *read, *tables])

    def facts_in_with(self) -> list[Text]:
        """Return the WITH tables that contain facts: the context facts."""
        return inline_table(self.dialect, self.inline)

    def defined(self, tables: Iterable[Text]) -> list[Text]:
        """Return all WITH tables except the context facts."""
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

    def shown_outs(self, end: Exit) -> list[Column]:
        """Return the answer columns in the form for the statement's caller."""
        return self.outs(end)

    def _out(self, term: Term, name: str) -> Column:
        if isinstance(term, Var):
            return (f"NULL AS {name}",)
        return Formed(term, lambda text: (*self.dialect.answer(text), f" AS {name}"))

    def verdict(self, end: Exit, tests: tuple[Condition, ...], scope: Scoped) -> Column:
        """Return the column `granted`: 1 if the tests hold for a row of the exit, else 0."""
        if not tests:
            return ("1 AS granted",)
        named = self.named(end.branch, scope)
        outcome = joined(" AND ", (self._test(test, named) for test in tests))
        looked_at = frozenset(number for test in tests for number in sources_of(test))
        return Written(("CASE WHEN ", *outcome, " THEN 1 ELSE 0 END AS granted"), looked_at)

    def layout(self, plan: Plan, kind: type[Goals] | type[Answers]) -> Padded:
        keys = plan.key_count if plan.seeds else 0
        return padded(keys, plan.answer_width if kind is Answers else 0, self.dialect.seed)

    def recursive(
        self, name: str, row: str, columns: list[str], seeds: Iterable[Text | None], arms: Iterable[Text | None]
    ) -> Text | None:
        arms = list(arms)
        found = super().recursive(name, row, columns, seeds, arms)
        if found is None or arms or not self.dialect.recursive_arms_join:
            return found
        # Citus puts a table without recursion in place of its name, and forgets what the WITH calls its columns.
        return (f"{name} AS (SELECT * FROM (", *found[1:], f" x({', '.join(columns)}))")

    def rounds_of(self, plan: Plan) -> Rounds:
        if plan not in self.rounds:
            made = rounds_for(plan, lambda: replace(self, shared={}, tested={}, joins_numbers=True))
            self.rounds[plan] = replace(made, number=len(self.rounds))  # numbered after the rounds that it reads
        return self.rounds[plan]

    # ---- branches -------------------------------------------------------------------------------------------------

    def letter(self, source: PlanSource) -> str:
        """Return the letter for aliases; that of stored facts is easy to find in the database's query plans."""
        if isinstance(source, FactScan):
            return "f" if source.store == "stored" else "c"
        return "i" if isinstance(source, Ids) else "t"

    def seen(self, source: PlanSource, alias: str, branch: Branch, scope: Scoped) -> PlanSource:
        return source

    def select(self, branch: Branch, columns: Sequence[Column], scope: Scoped) -> Text:
        return _always(super().select(branch, columns, scope))

    def shown(self, column: Shown, scope: Scoped) -> Text:
        assert isinstance(column, Formed), "what is shown of stored facts has a form"
        return column.form(self.operand(column.term, scope))

    def row_tests(self, source: PlanSource, branch: Branch, scope: Scoped) -> Iterable[Text]:
        return self._fact_tests(source, scope) if isinstance(source, FactScan) else ()

    def _fact_tests(self, source: FactScan, scope: Scoped) -> list[Text]:
        """Return the tests that a row is a fact of the signature, and has not expired."""
        tests = [self.number_test(source, scope)]
        if self._ends(source):
            tests.append(has_not_ended(scope.names[source.number], (self.dialect.now,)))
        return tests

    def _ends(self, source: FactScan) -> bool:
        return source.store == "stored" and self.may_end(source.signature)

    def read(self, branch: Branch, columns: Sequence[Column], scope: Scoped) -> tuple[list[Text], list[Text]] | None:
        if not self.dialect.joins_apart:
            return super().read(branch, columns, scope)
        return self._read_apart(branch, existential_in(branch, columns), scope)

    def _read_apart(
        self, branch: Branch, existential: list[PlanSource], scope: Scoped
    ) -> tuple[list[Text], list[Text]]:
        """Like `read`, but each stored fact that is joined has a SELECT of its own.

            CROSS JOIN LATERAL (SELECT * FROM authz_fact WHERE sig = 3 AND a0 = f0.a1 OFFSET 0) f1

        So it is looked up by all that is known before it. Context facts have no index: the database joins them as it
        likes. Facts that are tested with EXISTS come first, so that a slower test is often not run at all.
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

    def _named(self, source: PlanSource, branch: Branch, scope: Scoped) -> Text:
        alias = scope.names[source.number]
        return (*_always(self.source(source, branch, scope)), *((f" {alias}",) if alias else ()))

    def _names(self, names: ColumnNames, alias: str) -> Text:
        """Return the constants that a column may equal, as a table."""
        column, ids = names
        return (ConstantSet(f"{alias}{column.name}", ids, is_table=True),)

    def _named_test(self, condition: Condition, scope: Scoped, names: dict[Condition, ColumnNames], alias: str) -> Text:
        if condition not in names:
            return self._test(condition, scope)
        column, _ = names[condition]
        return (*self.operand(column, scope), f" = {alias}{column.name}.v")

    def _test(self, condition: Condition, scope: Scoped) -> Text:
        verdict = self.condition(condition, scope)
        assert not isinstance(verdict, bool), "what is certain is no condition of a plan"
        return verdict

    # ---- sources --------------------------------------------------------------------------------------------------

    def table(self, source: PlanSource, branch: Branch, scope: Scoped) -> Text:
        match source:
            case FactScan(store=store):
                return self._with_index(source, branch, scope) if self._ends(source) else (self._facts(store),)
            case Ids(slot=slot):
                return self.dialect.values((Slot(slot),))
            case DerivedTable():
                return self._derived_table(source, scope)
            case Candidates():
                return ("(", *joined(" UNION ", self._candidates(source.positions, [FRESH.id, *source.ids])), ")")
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

    def _candidates(self, positions: Iterable[ArgumentPosition], ids: Sequence[str]) -> list[Text]:
        """Return SELECTs of these ids, and of those that facts have at the positions."""
        arms = selects_of(ids, self.dialect)
        for position in positions:
            for store in self.stores(position.signature):
                arms.append(self._mentioned(position, store))
        return arms

    def _domain(self, source: Domain) -> Table:
        """Return the table of a domain's ids; for Integers, also of the adjacent numbers."""
        key = replace(source, number=0)
        if key not in self.shared:
            name = f"r{len(self.shared)}"
            found = [*self._candidates(source.positions, source.ids), *map(self._given, source.values)]
            rows = joined(" UNION ", found)
            if source.near:
                rows = ("SELECT v FROM (", *rows, ") x UNION ", *self.dialect.neighbours(rows, source.near))
            self.shared[key] = (name, (f"{name}(v) AS MATERIALIZED (", *rows, ")"))
        return Table(self.shared[key][0])

    def _given(self, value: Slot | Other | Given) -> Text:
        if isinstance(value, Given):
            return ("SELECT v FROM ", *self.dialect.values((Slot(value.slot),)), " x")
        return ("SELECT ", *self.dialect.seed(self.operand(value, SelectScope())), " AS v")

    def _mentioned(self, position: ArgumentPosition, store: str) -> Text:
        """Return a SELECT of the ids that a store's facts have at a position."""
        column, test = f"a{position.index}", f"sig = {self.number_of(position.signature)}"
        ended: Text = ()
        if store == "stored" and self.may_end(position.signature):
            ended = (" AND ", *has_not_ended("", (self.dialect.now,)))
        return (f"SELECT {column} FROM {self._facts(store)} WHERE {test}", *ended)

    def _derived_table(self, source: DerivedTable, scope: Scoped) -> Text:
        plan = source.plan
        if source.is_inside:
            return self._in_place(source, scope)
        key = (plan, source.variant)
        if key not in self.shared:
            slot = self.rounds_of(plan).slot(source.variant) if plan.form is Form.ROUNDS else None
            name = f"r{len(self.shared)}"
            self.shared[key] = (name, ())  # takes its place before the tables that it reads
            self.shared[key] = (name, self._defined(source, name) if slot is None else self._fetched(plan, name, slot))
        return (Table(self.shared[key][0]),)

    def _in_place(self, source: DerivedTable, scope: Scoped) -> Text:
        """Return a derived table that mentions a row of an outer select, as an inline subquery."""
        if not source.plan.is_plain_path:
            rows = _always(self.query(source.plan, scope, self.outs, _exits_of(source)))
            return ("(SELECT * FROM (", *rows, ") x)")
        inner = scope.inside(source.plan)
        name = f"w{inner.depth}"
        return ("(WITH RECURSIVE ", *self._path(source.plan, name, inner), f" SELECT c0 FROM {name})")

    def _defined(self, source: DerivedTable, name: str) -> Text:
        if source.plan.is_plain_path:
            return self._path(source.plan, name, SelectScope())
        rows = _always(self.query(source.plan, SelectScope(prefix=name), self.outs, _exits_of(source), distinct=True))
        return (f"{name}({', '.join(_columns_of(source.plan))}) AS MATERIALIZED (", *rows, ")")

    def _fetched(self, plan: Plan, name: str, slot: str) -> Text:
        """Return the answers computed by rounds, as a table."""
        return (f"{name} AS MATERIALIZED (", *self.dialect.table((Slot(slot),), _columns_of(plan)), ")")

    def _path(self, plan: Plan, name: str, scope: Scoped) -> Text:
        """Return all that a path leads to, as one recursive table: its goals are its answers."""
        step = scope._replace(goals=name, lateral=Goals if self.dialect.recursive_arms_join else None)
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
            case Tagged(source, tag) if self.joins_numbers:
                return (NumberTest(f"{scope.names[source]}.tag", tag),)
        return super().condition(condition, scope)

    def holds(self, plan: Plan, negated: bool, scope: Scoped) -> Text | bool:
        """Return the test of the plan. Its SQL is cached: branches often test the same for columns of the same name."""
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

        `IS TRUE` makes sure of that: PostgreSQL might otherwise plan a join, of sizes that it cannot know. A branch
        that is more than a lookup in one derived table is tested with EXISTS.
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
    """Return the scope of a SELECT of this fact only: columns need no alias, unless a select is nested inside."""
    if not all(isinstance(each, (Same, Member, Cmp)) for each in conditions):
        return scope
    return scope._replace(names={**scope.names, source.number: ""})


def _untagged(branch: Branch) -> Branch:
    return Branch(branch.sources, tuple(each for each in branch.conditions if not isinstance(each, Tagged)))


def _always(text: Text | None) -> Text:
    assert text is not None, "stored facts can have any value"
    return text


# ---- stored as of -------------------------------------------------------------------------------------------------
# Plans over the facts of an earlier revision -> SQL: each fact is looked up among stored and past facts.
#
# On SQLite, each lookup nests two more SELECTs, and its parser limits the depth. A statement that is too deep reads a
# table of its own instead, with all facts of that revision that the statement may use: it nests no deeper than the same
# statement as of now, but takes longer.

FACTS_THEN = "fact_then"
COLUMNS = ("a0", "a1", "a2", "a3", "a4")


class AsOfRenderer(StoredRenderer):
    """Renders plans as of a revision: the statement takes the revision and its time as parameters."""

    def named(self, branch: Branch, scope: Scoped) -> Scoped:
        scope = super().named(branch, scope)
        own = {each.number for each in branch.sources if isinstance(each, FactScan) and each.store == "stored"}
        return scope._replace(looked_up=scope.looked_up | own)

    def read(self, branch: Branch, columns: Sequence[Column], scope: Scoped) -> tuple[list[Text], list[Text]]:
        """Return the tables and tests. Nested plans that mention a fact are tested outside of its lookup.

        The lookup has two arms, so a test inside would be duplicated.
        """
        tables: list[Text] = []
        tests: list[Text] = []
        for source, conditions in steps_of(branch, scope.read(branch.sources)):
            if not isinstance(source, FactScan) or source.store != "stored":
                if isinstance(source, FactScan):
                    tests.append(self.number_test(source, scope))
                tests += [self._test(each, scope) for each in conditions]
                tables += [self._named(source, branch, scope)] if source else []
                continue
            inner = scope._replace(looked_up=scope.looked_up - {source.number})
            own = [each for each in conditions if not isinstance(each, Holds)]
            tests += [self._test(each, scope) for each in conditions if isinstance(each, Holds)]
            alias = scope.names[source.number]
            columns_of_fact = [f"a{place}" for place in range(len(source.signature.types))]
            held = [self.number_test(source, scope), *[self._test(each, inner) for each in own]]
            known = known_columns(own, source.number)
            rows = rows_as_of([f"{alias}.{name}" for name in columns_of_fact], alias, held, known, self.dialect)
            tables.append(self.dialect.looked_up(rows, columns_of_fact, alias))
        return tables, tests

    def _mentioned(self, position: ArgumentPosition, store: str) -> Text:
        if store != "stored":
            return super()._mentioned(position, store)
        test = f"m.sig = {self.number_of(position.signature)}"
        return rows_as_of([f"a{position.index}"], "m", [(test,)], set(), self.dialect)


@dataclass
class TabledAsOfRenderer(StoredRenderer):
    """Renders plans as of a revision whose facts are a table of the statement.

    `numbers` are those of the signatures that the statements read; `number_of` adds to them.
    """

    numbers: set[int] = field(default_factory=set)

    def facts_in_with(self) -> list[Text]:
        columns = ["sig", *COLUMNS]
        listed = ", ".join(map(str, sorted(self.numbers)))
        rows = rows_as_of([f"m.{name}" for name in columns], "m", [(f"m.sig IN ({listed})",)], set(), self.dialect)
        then: Text = (f"{FACTS_THEN}({', '.join(columns)}) AS MATERIALIZED (", *rows, ")")
        return [*super().facts_in_with(), then]

    def _facts(self, store: str) -> str:
        return FACTS_THEN if store == "stored" else super()._facts(store)
