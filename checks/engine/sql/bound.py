"""Facts that are rows of an application's own tables, in the database that has the stored facts.

A plan reads them as it reads stored facts: each binding is a store of its signature. In SQL, a binding is a subquery
whose columns may hold text, numbers or UUIDs. Ids are text everywhere else:

    bound text = stored id          b0.col1 = f0.a2
    bound number = a parameter      b0.col1 = <$1 as a number, NULL unless it is written like one>     (uses an index)
    stored id = bound number        f0.a2 = CAST(b0.col1 AS text)                                      (uses an index)

Of two columns that are compared, the one that is read later in the join stays as it is, so that its index is used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from checks.engine.plan.draft import renumbered, sources_of, variant_of
from checks.engine.plan.plan import (
    Answers,
    ArgumentPosition,
    Branch,
    Condition,
    DerivedTable,
    Exit,
    FactScan,
    Form,
    Goals,
    Holds,
    Plan,
    PlanSource,
    Same,
)
from checks.engine.rules.clauses import Col, Const, Member, Operand, Other, Slot, Term, Var, value
from checks.engine.sql.render import SelectScope
from checks.engine.sql.stored import Scoped, StoredRenderer
from checks.engine.sql.text import TEXTS, Column, Formed, IdKind, Shown, Text, joined, union
from policy.rules.program import Signature

_STORE = "bound:"
_ROW = "row of "  # before a store: its only row is the one that the enclosing statement tests


@dataclass(frozen=True, slots=True)
class BoundColumn:
    name: str  # in the subquery
    kind: IdKind
    own: str = ""  # in the table that the rows are of


@dataclass(frozen=True, slots=True)
class OwnRows:
    """What is known if a subquery has rows of one table, each at most once, and their columns as they are."""

    table: str
    test: Callable[[str], str]  # of a row to be one of them, by the table's alias; empty if all are


@dataclass(frozen=True, slots=True)
class BoundTable:
    """The rows of a subquery as facts of a signature; an argument is a column, or the same constant in all of them."""

    signature: Signature
    sql: str
    args: tuple[BoundColumn | str, ...]
    rows: OwnRows | None = None

    @property
    def of_row(self) -> BoundTable:
        """The same, with the names that its columns have in the table."""
        args = [replace(each, name=each.own) if isinstance(each, BoundColumn) else each for each in self.args]
        return replace(self, args=tuple(args))


@dataclass(frozen=True, eq=False)
class BoundTables:
    """All bindings of an application. Compared by identity: others make other statements."""

    tables: Sequence[BoundTable] = ()
    by_signature: Mapping[Signature, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        found: dict[Signature, tuple[str, ...]] = {}
        for index, table in enumerate(self.tables):
            found[table.signature] = (*found.get(table.signature, ()), f"{_STORE}{index}")
        object.__setattr__(self, "by_signature", found)

    def stores(self, signature: Signature) -> tuple[str, ...]:
        return self.by_signature.get(signature, ())

    def table(self, store: str) -> BoundTable:
        if store.startswith(_ROW):
            return self.table(store.removeprefix(_ROW)).of_row
        return self.tables[int(store.removeprefix(_STORE))]


NO_TABLES = BoundTables()


@value
class Element(Formed):
    """An answer as an element of a set that a column of this kind is looked up in."""

    kind: IdKind


class OuterColumn(NamedTuple):
    """A column of the enclosing statement; if it is unique in its table, facts may be of the same row."""

    sql: str
    kind: IdKind
    table: str = ""  # that it is a unique column of
    name: str = ""
    alias: str = ""  # of the table, as Django has it; `row` is the same in SQL

    @property
    def row(self) -> str:
        return self.sql.removesuffix(f".{self.name}")


OUTER = "outer_id"  # the slot of the value that is a column of the enclosing statement: its text
OUTER_COLUMN = "outer_column"  # the same column as it is

# ---- the set of all answers -> the test of one row -----------------------------------------------------------------
# The fact that has the tested id is looked up for each row. What it is joined with is a set, which is found once:
#
#     (d.a0) <- d <- has_relation(Document, "folder", Folder); f <- goals; d.a2 = f.c0
#     () <- d <- has_relation(Document, "folder", Folder); d.a0 = :outer_id; d.a2 in the set of f.c0


def tested_by_row(plan: Plan) -> Plan | None:
    """Return the plan of whether `OUTER` is among a list's answers; None if a branch has no such form."""
    found: dict[Hashable, list[RowTest]] = {}
    for end in plan.exits:
        test = None if plan.has_rounds else _row_test(end)
        if test is None:
            return None
        found.setdefault(test.alike, []).append(test)
    return Plan(plan.name, 0, tuple(_exit(plan, tests) for tests in found.values()), fixed=plan.fixed)


class RowTest(NamedTuple):
    """A branch in two parts: what is read for each row; and the set that it reads, in which `sought` is looked up."""

    row: Branch
    sought: tuple[Operand, ...] = ()
    rest: Exit | None = None

    @property
    def alike(self) -> Hashable:
        """What is the same in tests that differ in their sets only."""
        columns = [each for each in self.sought if isinstance(each, Col)]
        return renumbered(self.row, columns) or self.row, len(columns), len(self.sought), self.rest is None


def _row_test(end: Exit) -> RowTest | None:
    (out,), sources = end.outs, end.branch.sources
    if isinstance(out, Var):
        return None
    looked_up = tuple(each for each in sources if isinstance(each, FactScan) and each.number == _source(out))
    here, is_set = {each.number for each in looked_up}, isinstance(out, Col) and not looked_up
    own: list[Condition] = [] if is_set else [Same(out, Slot(OUTER))]
    pairs: list[tuple[Operand, Operand]] = [(Slot(OUTER), out)] if is_set else []
    others: list[Condition] = []
    for each in end.branch.conditions:
        if sources_of(each) <= here:
            own.append(each)
        elif not sources_of(each) & here:
            others.append(each)
        elif isinstance(each, Same):
            pairs.append((each.left, each.right) if _source(each.left) in here else (each.right, each.left))
        else:
            return None
    row, rest = Branch(looked_up, tuple(own)), tuple(each for each in sources if each not in looked_up)
    if not rest:
        return RowTest(row)
    sought, wanted = tuple(mine for mine, _ in pairs), tuple(theirs for _, theirs in pairs)
    return RowTest(row, sought, Exit(Branch(rest, tuple(others)), wanted))


def _exit(plan: Plan, tests: list[RowTest]) -> Exit:
    """Return the exit of tests that differ in their sets only: one set has all of them."""
    row, sought, _ = tests[0]
    ends = tuple(test.rest for test in tests if test.rest is not None)
    if not ends:
        return Exit(row, ())
    recurses = any(isinstance(source, Goals | Answers) for end in ends for source in end.branch.sources)
    whole = replace(plan if recurses else Plan(plan.name, 0, ()), width=len(sought), exits=ends, fixed=plan.fixed)
    if not sought:
        return Exit(replace(row, conditions=(*row.conditions, Holds(whole))), ())
    number = 1 + max(map(_source, sought))
    same = tuple(Same(Col(number, whole.column(index)), each) for index, each in enumerate(sought))
    table = DerivedTable(number, whole, variant_of(ends[0], plan.fixed))
    in_set = Plan(plan.name, 0, (Exit(Branch((table,), same), ()),), fixed=plan.fixed.union(sought), form=Form.SET)
    return Exit(replace(row, conditions=(*row.conditions, Holds(in_set))), ())


def _source(term: Term) -> int:
    """Return the number of a column's source; -1 for all other terms."""
    return term.source if isinstance(term, Col) else -1


# ---- rendering ------------------------------------------------------------------------------------------------------


def _element(term: Term, kind: IdKind) -> Element:
    return Element(term, lambda text: (*text, " AS o0"), kind)


def _argument_index(column: Col) -> int:
    return int(column.name.removeprefix("a"))


class RowCondition(NamedTuple):
    """A condition on the row of an outer column, and the SELECTs of the sets that it looks up in."""

    truth: Text
    sets: list[Text]


@dataclass
class BoundRenderer(StoredRenderer):
    """Renders plans over stored facts and an application's tables."""

    bound: BoundTables = NO_TABLES
    elements: IdKind | None = None  # what the answers are compared with; None: they are shown as text
    outer: IdKind | None = None  # what the enclosing statement's column holds, if a value of the question is one

    # ---- sources --------------------------------------------------------------------------------------------------

    def letter(self, source: PlanSource) -> str:
        return "b" if isinstance(source, FactScan) and not source.is_row else super().letter(source)

    def table(self, source: PlanSource, branch: Branch, scope: Scoped) -> Text:
        if isinstance(source, FactScan) and not source.is_row:
            return (f"({self.bound.table(source.store).sql})",)
        return super().table(source, branch, scope)

    def _named(self, source: PlanSource, branch: Branch, scope: Scoped) -> Text:
        table = super()._named(source, branch, scope)
        is_unnamed = isinstance(source, FactScan) and not source.is_row and not scope.names[source.number]
        return (*table, " b") if is_unnamed else table  # PostgreSQL requires an alias for a subquery

    def _fact_tests(self, source: FactScan, scope: Scoped) -> list[Text]:
        if source.is_row:
            return super()._fact_tests(source, scope)
        return self._row_is_fact(source.store, scope.names[source.number])

    def _row_is_fact(self, store: str, alias: str) -> list[Text]:
        """Return the tests that a row has an id for each argument."""
        tests: list[Text] = []
        for column in self.bound.table(store).args:
            if isinstance(column, BoundColumn):
                name = f"{alias}.{column.name}" if alias else column.name
                tests.append((self.dialect.is_id(name, column.kind),))
        return tests

    def _mentioned(self, position: ArgumentPosition, store: str) -> Text:
        if store in ("stored", "inline"):
            return super()._mentioned(position, store)
        table = self.bound.table(store)
        column = table.args[position.index]
        shown = self.dialect.seed((Const(column),)) if isinstance(column, str) else (self._text_of(column, "m"),)
        where = joined(" AND ", self._row_is_fact(store, "m"))
        return ("SELECT ", *shown, f" FROM ({table.sql}) m", *((" WHERE ", *where) if where else ()))

    # ---- columns --------------------------------------------------------------------------------------------------

    def _argument(self, term: Term, scope: Scoped) -> BoundColumn | str | None:
        """Return the column of a table that the term is, or its constant; None for all other terms."""
        source = scope.seen.get(term.source) if isinstance(term, Col) else None
        if not isinstance(source, FactScan) or source.is_row or not isinstance(term, Col):
            return None
        return self.bound.table(source.store).args[_argument_index(term)]

    def operand(self, operand: Term, scope: Scoped) -> Text:
        argument = self._argument(operand, scope)
        if argument is None or not isinstance(operand, Col):
            return super().operand(operand, scope)
        return (Const(argument),) if isinstance(argument, str) else (self._at(operand, scope),)

    def _at(self, column: Col, scope: Scoped) -> str:
        argument = self._argument(column, scope)
        if not isinstance(argument, BoundColumn):
            return super()._at(column, scope)
        return self._text_of(argument, scope.names[column.source])

    def _text_of(self, column: BoundColumn, alias: str) -> str:
        return self.dialect.id_text(f"{alias}.{column.name}" if alias else column.name, column.kind)

    def _itself(self, column: Col, argument: BoundColumn, scope: Scoped) -> str:
        alias = scope.names[column.source]
        return self.dialect.itself(f"{alias}.{argument.name}" if alias else argument.name, argument.kind)

    def shown_outs(self, end: Exit) -> list[Column]:
        if self.elements is None:
            return self.outs(end)
        (out,) = end.outs
        return [("NULL AS o0",) if isinstance(out, Var) else _element(out, self.elements)]

    def shown(self, column: Shown, scope: Scoped) -> Text:
        if isinstance(column, Element):
            return column.form(self._as_element(column.term, column.kind, scope))
        if isinstance(self._argument(column.term, scope), str) and isinstance(column, Formed):
            return column.form(self.dialect.text_value(self.operand(column.term, scope)))
        return super().shown(column, scope)

    def _as_element(self, term: Term, kind: IdKind, scope: Scoped) -> Text:
        argument = self._argument(term, scope)
        if isinstance(argument, BoundColumn) and argument.kind is kind and isinstance(term, Col):
            return (
                (self._text_of(argument, scope.names[term.source]),)
                if kind in TEXTS
                else (self._itself(term, argument, scope),)
            )
        text = self.dialect.text_value(self.operand(term, scope))
        value = self.dialect.id_value(text, kind)
        return self.dialect.bytewise(text) if value is None else value

    # ---- comparisons ----------------------------------------------------------------------------------------------

    def among(self, operand: Operand, ids: tuple[str, ...], scope: Scoped) -> Text:
        argument = self._argument(operand, scope)
        if not isinstance(argument, str):
            return super().among(operand, ids, scope)
        return ("1 = 1",) if argument in ids else ("1 = 0",)

    def equal(self, left: Operand, right: Operand, scope: Scoped) -> Text:
        one, other = (self._argument(side, scope) for side in (left, right))
        if one is None and other is None:
            return super().equal(left, right, scope)
        if isinstance(other, BoundColumn) and not (isinstance(one, BoundColumn) and self._is_later(left, right, scope)):
            left, right, one, other = right, left, other, one
        if not isinstance(one, BoundColumn) or not isinstance(left, Col):
            return joined(" = ", (self.dialect.text_value(self.operand(side, scope)) for side in (left, right)))
        if isinstance(right, Col) and not isinstance(other, str) and self._is_later(right, left, scope):
            return (*self.operand(left, scope), " = ", *self.operand(right, scope))
        if isinstance(other, BoundColumn) and isinstance(right, Col) and one.kind == other.kind != IdKind.COLLATED:
            return (*self._as_read(left, one, scope), f" = {self._itself(right, other, scope)}")
        value = self.dialect.id_value(self.operand(right, scope), one.kind)
        if right == Slot(OUTER) and one.kind == self.outer:
            value = (Slot(OUTER_COLUMN),)
        if value is None:
            return (*self.operand(left, scope), " = ", *self.dialect.text_value(self.operand(right, scope)))
        return (*self._as_read(left, one, scope), " = ", *value)

    def _as_read(self, column: Col, argument: BoundColumn, scope: Scoped) -> Text:
        """Return a column for a comparison: a text bytewise in SQLite, whatever collation its table has it with."""
        return self.operand(column, scope) if argument.kind in TEXTS else (self._itself(column, argument, scope),)

    def _is_later(self, one: Operand, other: Operand, scope: Scoped) -> bool:
        """Return whether a column is read after another one."""
        order = list(scope.names)
        assert isinstance(one, Col) and isinstance(other, Col), "columns are read"
        return order.index(one.source) > order.index(other.source)

    def unequal(self, left: Operand, right: Operand, scope: Scoped) -> Text:
        sides = (self.dialect.bytewise(self.dialect.text_value(self.operand(each, scope))) for each in (left, right))
        return joined(" <> ", sides)

    def number(self, operand: Operand, scope: Scoped) -> Text:
        argument = self._argument(operand, scope)
        if isinstance(argument, BoundColumn) and argument.kind is IdKind.INTEGER and isinstance(operand, Col):
            return (self._itself(operand, argument, scope),)
        if argument is not None:
            return self.dialect.integer(self.dialect.text_value(self.operand(operand, scope)))
        return super().number(operand, scope)

    # ---- tests of the enclosing statement's row --------------------------------------------------------------------
    # If facts are rows of the table that the enclosing statement reads, its row is not looked up again:
    #
    #     (d.a0) <- d <- has_relation(Document, "folder", Folder); f <- goals; d.a2 = f.c0
    #     documents_document.folder_id = ANY(ARRAY(WITH … SELECT c0 FROM g1))
    #
    # All other branches are one set of ids. A test is true or false, never NULL, as it may be negated.

    def of_row(self, plan: Plan, ends: Iterable[Exit], outer: OuterColumn) -> RowCondition | None:
        """Return the condition that an outer column is among a list's answers; None if no facts are of its row."""
        if not self.dialect.combines_indexes:
            return None
        scope, tables = self.entered(plan, SelectScope())
        tests: dict[Hashable, list[RowTest]] = {}
        others: list[Exit] = []
        for end in ends:
            test = self._own(end, outer)
            if test is None:
                others.append(end)
            else:
                tests.setdefault(test.alike, []).append(test)
        if not tests:
            return None
        condition = RowCondition((), [])
        found = [self._test_of_row(each, outer, scope, tables, condition.sets) for each in tests.values()]
        if others:
            column = self.dialect.id_text(outer.sql, outer.kind) if outer.kind is IdKind.COLLATED else outer.sql
            found.append(self._among_rows(column, outer.kind, others, scope, tables, condition.sets))
        return condition._replace(truth=("(", *joined(" OR ", found), ")"))

    def _own(self, end: Exit, outer: OuterColumn) -> RowTest | None:
        """Return the exit as a test of the outer column's row, with at most one set; None if it is none."""
        test, out = _row_test(end), end.outs[0]
        if test is None or not test.row.sources or not isinstance(out, Col) or len(test.sought) > 1:
            return None
        (source,) = test.row.sources
        if not isinstance(source, FactScan) or source.is_row:
            return None
        table = self.bound.table(source.store)
        if table.rows is None or table.rows.table != outer.table:
            return None
        columns = [table.args[_argument_index(each)] for each in (out, *test.sought) if isinstance(each, Col)]
        names = [each.own for each in columns if isinstance(each, BoundColumn)]
        return test if names[:1] == [outer.name] and len(names) == 1 + len(test.sought) else None

    def _test_of_row(
        self, alike: list[RowTest], outer: OuterColumn, scope: Scoped, tables: list[Text], sets: list[Text]
    ) -> Text:
        """Return the test that these branches, which differ in their sets only, make of the row."""
        row, sought, _ = alike[0]
        (source,) = row.sources
        assert isinstance(source, FactScan), "the row is a fact"
        own = replace(source, store=f"{_ROW}{source.store}")
        table, alias = self.bound.table(own.store), outer.row
        assert table.rows is not None, "its rows are those of the table"
        names, seen = {**scope.names, own.number: alias}, {**scope.seen, own.number: own}
        inner = scope._replace(names=names, seen=seen)
        is_one = table.rows.test(outer.alias)
        tests: list[Text] = [(is_one,)] if is_one else []
        tests += self._row_is_fact(own.store, alias)
        tests += [self._alone(self._certain(each, inner)) for each in row.conditions[1:]]  # first: that it is this row
        ends = [test.rest for test in alike if test.rest is not None]
        if ends and not sought:
            arms = [self.arm(end, [("1",)], scope) for end in ends]
            tests.append(("EXISTS (", *self._once(ends, union(arms, distinct=False), tables), ")"))
        for each in sought if ends else ():
            argument = self._argument(each, inner)
            assert isinstance(argument, BoundColumn) and isinstance(each, Col), "a column is looked up"
            is_text = argument.kind is IdKind.COLLATED
            column = self._text_of(argument, alias) if is_text else self._itself(each, argument, inner)
            tests.append(self._among_rows(column, argument.kind, ends, scope, tables, sets))
        return ("(", *joined(" AND ", tests or [("1 = 1",)]), ")")

    def _alone(self, test: Text) -> Text:
        """Return the test with the sets that it reads by name: no WITH clause stands before the whole condition."""
        head = self.head_of(test, ())
        return ("(", *head, "SELECT ", *test, ")") if head else test

    def _among_rows(
        self, column: str, kind: IdKind, ends: list[Exit], scope: Scoped, tables: list[Text], sets: list[Text]
    ) -> Text:
        """Return the test that a column is among the answers of the exits, and add their SELECT to the sets."""
        arms = [self.arm(end, [_element(end.outs[0], kind)], scope) for end in ends]
        rows: Text = ("SELECT q.o0 FROM (", *union(arms, distinct=False), ") q WHERE q.o0 IS NOT NULL")
        sets.append(self._once(ends, rows, tables))
        return self.dialect.among_few((column,), sets[-1])

    def _once(self, ends: list[Exit], rows: Text, tables: list[Text]) -> Text:
        """Return a SELECT with the tables that it reads."""
        recurses = any(isinstance(source, Goals | Answers) for end in ends for source in end.branch.sources)
        read = tables if recurses else []
        return (*self.head_of((*rows, *joined(" ", read)), read), *rows)

    def _certain(self, condition: Condition, scope: Scoped) -> Text:
        """Return the test of a condition on the row, which is false where it would be NULL."""
        test = self._test(condition, scope)
        match condition:
            case Holds() | Member() | Same(Col(), Const()):
                return test
            case Same(Col() as column, Slot() | Other() as given) | Same(Slot() | Other() as given, Col() as column):
                argument = self._argument(column, scope)
                kind = argument.kind if isinstance(argument, BoundColumn) else IdKind.TEXT
                wanted = self.dialect.id_value(self.operand(given, scope), kind)
                return (*wanted, " IS NOT NULL AND ", *test) if wanted and kind not in TEXTS else test
        return ("(", *test, ") IS TRUE")
