"""Folded plan -> SQL over the caller's tables, with values as literals."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from checks.asking import limits
from checks.engine.plan.draft import connected, sources_of
from checks.engine.plan.plan import (
    Answers,
    Branch,
    Condition,
    DerivedTable,
    Exit,
    FactScan,
    ForeignCondition,
    Goals,
    Holds,
    Plan,
    PlanSource,
    Same,
)
from checks.engine.rules import clauses
from checks.engine.rules.clauses import FRESH, Col, Const, Member, Operand, Term, Var, type_of
from checks.engine.sql.render import ColumnsOf, Renderer, SelectScope, no_columns
from checks.engine.sql.text import Column, Shown, Text, joined
from localsql.bindings import Bindings
from localsql.dialects import NATIVE, NUMBERS, Dialect, Family, Typed
from localsql.errors import NotExpressible
from localsql.plan import CallerTables, ConstantRows, FoldedCandidates, FoldedDerivedTable, ForeignDomain, tag_of
from policy.values import INTEGER

Columns = Callable[[str], Typed]  # returns a column of a source, by its name in the plan

# ---- columns of tables that a statement defines -------------------------------------------------------------------
# A column of goals or answers has a different meaning in each state: a user in one, a folder in another. To keep
# numbers as numbers throughout a recursion, each family has its own columns (`ci0` for integers, `ct0` for texts): a
# column has the same family in every row. If an id does not fit, such as a stored `abc` beside a column of numbers, it
# may still lead to other facts: then the statement is rendered again with texts only. So is one with `FRESH`, which
# stands for an id that nothing mentions: it is an empty text, which no id is, and equals itself only.

FamilyColumn = tuple[str, Family]  # a column and its family
FamilyColumns = dict[str, FamilyColumn]  # by the column's name in the plan


@dataclass(frozen=True)
class CarriedTerm(Shown):
    """A term as a column of a table that the statement defines, with an alias if it has a name."""

    family: Family
    name: str = ""
    in_recursion: bool = False  # recursive columns must have the same type in every row
    is_compared: bool = False  # with the caller's column, which equals only ids that fit


class DoesNotFit(Exception):
    """A table that the statement defines has an id that is not of its column's family."""


@dataclass(frozen=True)
class ByFamily:
    """A table of goals or answers; `by_tag` maps each tag to the columns of its values."""

    dialect: Dialect
    by_tag: Sequence[FamilyColumns]

    @cached_property
    def columns(self) -> dict[str, Family]:
        return dict(
            sorted({column for columns in self.by_tag for column in columns.values()}, key=lambda each: each[0])
        )

    @property
    def names(self) -> Sequence[str]:
        return list(self.columns)

    def cells(self, tag: int, terms: Mapping[str, Term]) -> list[Column]:
        held = {column: terms[name] for name, (column, _) in self.by_tag[tag].items() if name in terms}
        return [self._cell(held.get(column), column, family) for column, family in self.columns.items()]

    def _cell(self, term: Term | None, column: str, family: Family) -> Column:
        if term is None:
            return (f"{self.dialect.null(family)} AS {column}",)
        return CarriedTerm(term, family, column, in_recursion=True)


@dataclass(frozen=True)
class Layouts:
    bindings: Bindings
    has_texts_only: bool = False

    def of(self, plan: Plan, kind: type[Goals] | type[Answers]) -> ByFamily:
        tags, columns_of = (plan.states, self._goals) if kind is Goals else (plan.tags, self._answers)
        return ByFamily(self.bindings.dialect, [columns_of(plan, tag) for tag in range(len(tags))])

    def read(self, source: Goals | Answers, branch: Branch, plan: Plan) -> FamilyColumns:
        """Return the columns of the goals or answers that a branch reads."""
        tag = tag_of(source, branch)
        return self._goals(plan, tag) if isinstance(source, Goals) else self._answers(plan, tag)

    def _goals(self, plan: Plan, index: int) -> FamilyColumns:
        """Return the columns that contain the keys of a state's goals."""
        return _placed("c", (self.family(key.type) for key in plan.states[index].keys))

    def _answers(self, plan: Plan, tag: int) -> FamilyColumns:
        """Return the columns that contain the goal's keys and the values of answers with this tag."""
        index, _ = plan.tags[tag]
        keys = self._goals(plan, index) if any(arm.keys for arm in plan.answers) else {}
        return keys | _placed("o", (self.family(type_of(out)) for out in plan.states[index].outs))

    def derived_table(self, source: FoldedDerivedTable) -> list[Family]:
        return [self.family(name) for name in source.types]

    def family(self, type_name: str) -> Family:
        """Return the family of the type's ids in such tables; text if no other one is known."""
        if not type_name or self.has_texts_only:
            return Family.TEXT
        found = self.bindings.carried_family(type_name)
        if type_name == INTEGER and found == Family.UNKNOWN:
            return Family.INTEGER
        return found if found in NATIVE else Family.TEXT


def _placed(letter: str, families: Iterable[Family]) -> FamilyColumns:
    """Assign values to columns by family: integer, text, text -> ci0, ct0, ct1"""
    counts: dict[Family, int] = {}
    found = {}
    for index, family in enumerate(families):
        number = counts[family] = counts.get(family, -1) + 1
        found[f"{letter}{index}"] = (f"{letter}{family.value[0]}{number}", family)
    return found


# ---- semijoins ----------------------------------------------------------------------------------------------------
# Sources whose columns are not selected are tested with IN, so that their duplicates do not multiply rows.
#
# s0 local has_role(u, n, o), s1 local repo_org(r, o2), o = o2; r is the answer
#     ->   s1 local repo_org(r, o2), o2 in (o of s0 local has_role(u, n, o))


@dataclass(frozen=True, slots=True)
class Semijoin(ForeignCondition):
    """The operand is among the values of the branch's column."""

    operand: Operand
    column: Col
    branch: Branch


def set_apart(branch: Branch, outs: Iterable[Term]) -> Branch:
    """Return the branch, with sources that a single equality joins with the rest replaced by a `Semijoin`."""
    shown = {out.source for out in outs if isinstance(out, Col)}
    if not shown or len(branch.sources) < 2:
        return branch
    for condition in branch.conditions:
        if isinstance(condition, Same) and isinstance(condition.left, Col) and isinstance(condition.right, Col):
            for kept, column in ((condition.left, condition.right), (condition.right, condition.left)):
                group = _reached(branch, column.source, condition)
                if kept.source not in group and not group & shown and _is_local(branch, group):
                    return set_apart(_apart(branch, group, condition, Semijoin(kept, column, Branch(()))), outs)
    return branch


def _apart(branch: Branch, group: set[int], link: Condition, semijoin: Semijoin) -> Branch:
    inside = [each for each in branch.conditions if each != link and _mentioned(each) & group]
    sources = tuple(source for source in branch.sources if source.number in group)
    part = set_apart(Branch(sources, tuple(inside)), (semijoin.column,))
    made = Semijoin(semijoin.operand, semijoin.column, part)
    left = tuple(source for source in branch.sources if source.number not in group)
    conditions = (made if each == link else each for each in branch.conditions if each not in inside)
    return Branch(left, tuple(conditions))


def _reached(branch: Branch, start: int, link: Condition) -> set[int]:
    """Return the sources joined with `start` by conditions other than the link, directly or indirectly."""
    joined = [_mentioned(each) for each in branch.conditions if each != link]
    joined += [_around(source) | {source.number} for source in branch.sources]
    return connected(start, joined)


def _mentioned(condition: Condition) -> set[int]:
    if isinstance(condition, Semijoin):
        return {condition.operand.source} if isinstance(condition.operand, Col) else set()
    return sources_of(condition)


def _around(source: PlanSource) -> set[int]:
    """Return the numbers of the sources whose columns the source refers to."""
    return {each.source for each in source.plan.outer_columns} if isinstance(source, DerivedTable) else set()


def _is_local(branch: Branch, group: set[int]) -> bool:
    sources = [source for source in branch.sources if source.number in group]
    return any(isinstance(each, FactScan) for each in sources) and all(
        isinstance(each, FactScan | ConstantRows | ForeignDomain) for each in sources
    )


def implied(condition: Condition, column: Col, order: Sequence[int]) -> bool:
    """Return whether the condition holds for ids only; of two columns of these rows, the first one is tested."""
    match condition:
        case Member(operand, _) | Semijoin(operand):
            return operand == column
        case Same(left, right) if column in (left, right):
            other = right if left == column else left
            if not isinstance(other, Col) or other.source not in order:
                return True  # a constant, or a column of rows that are tested where they are read
            return (order.index(other.source), other.name) < (order.index(column.source), column.name)
    return False


# ---- recursion that a dialect does not support --------------------------------------------------------------------


def check_correlation(dialect: Dialect, plan: Plan) -> None:
    """Reject a plan that refers to a row of an outer select, if the dialect does not support correlated tables."""
    if not dialect.can_correlate and plan.outer_columns:
        predicate = re.split("[. ]", plan.states[0].call.predicate if plan.states else plan.name)[0]
        raise NotExpressible(
            f"a rule evaluates `{predicate}`, which is recursive, for each row; this SQL dialect cannot express "
            f"that; store the facts that `{predicate}` recurses over in this service, or use PostgreSQL or SQLite"
        )


def check_whole(dialect: Dialect, plan: Plan) -> None:
    """Reject a negated recursion if the dialect may truncate it silently, because `not` might then be wrong."""
    if not dialect.fails_when_cut and _recurses(plan):
        raise NotExpressible(
            "a rule negates a recursive predicate, and MariaDB silently stops recursion after a number of steps; "
            "store the facts that it recurses over in this service, or use PostgreSQL, MySQL or SQLite"
        )


def _recurses(plan: Plan) -> bool:
    """Return whether the plan, or one that it reads, is recursive."""
    read = (each for branch in plan.branches() for each in (*branch.sources, *branch.conditions))
    inner = (each.plan for each in read if isinstance(each, DerivedTable | Holds))
    return bool(plan.seeds or plan.answers) or any(map(_recurses, inner))


# ---- folded plan -> SQL over the caller's tables, with values as literals -----------------------------------------
# None instead of a text means a SELECT without rows, because it needs a value that its column cannot have.

LocalScope = SelectScope[Columns]
_NAME = re.compile(r"__[a-z][0-9]+\b")  # of a table that a statement defines
TOP: LocalScope = SelectScope(mark="__")


@dataclass
class LocalRenderer(Renderer[Dialect, Columns]):
    tables: CallerTables
    layouts: Layouts
    texts: dict[str, str] = field(default_factory=dict)  # WITH tables by name, in order
    names: dict[object, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    recursions: set[str] = field(default_factory=set)

    # ---- statements ------------------------------------------------------------------------------

    def anew(self) -> LocalRenderer:
        """Return a renderer without tables, for another statement or a part with its own WITH clause."""
        return replace(self, texts={}, names={}, counts={}, recursions=set())

    def head(self, text: Text, *tables: Text) -> str:
        """Return the text after a WITH clause of all tables that it reads."""
        own, ended = [written(table) for table in tables], written(text)
        mentions = Counter(_NAME.findall(" ".join((*own, ended))))
        kept: list[str] = []
        for name, table in reversed(self.texts.items()):
            if mentions[name]:
                kept.insert(0, name)
                mentions.update(_NAME.findall(table))
        shown = [self._shared(self.texts[name], mentions[name]) for name in kept]
        recursive = "RECURSIVE " if self.recursions & set(kept) else ""
        return f"WITH {recursive}{', '.join((*shown, *own))} {ended}" if shown or own else ended

    def _shared(self, table: str, mentions: int) -> str:
        """Mark a binding's query with several readers NOT MATERIALIZED, so that conditions can be pushed down."""
        is_often = mentions > 2  # one mention is its own name
        return table.replace(" AS (\n", f" AS{self.dialect.unmaterialized} (\n", 1) if is_often else table

    def outs(self, families: Sequence[Family]) -> ColumnsOf:
        """Return a function for the result columns o0 … of an exit."""
        return lambda end: [
            CarriedTerm(out, family, f"o{k}") for k, (out, family) in enumerate(zip(end.outs, families))
        ]

    def list_side(self, ends: Iterable[Exit], side: Typed, scope: LocalScope) -> Typed:
        """Return the caller's column as it is compared with the exits' results: as text if one has another family."""
        if side.family in NATIVE and not all(self._is_comparable(end, side, scope) for end in ends):
            return Typed(self.dialect.text(side), Family.TEXT, is_normal=True)
        return side

    def _is_comparable(self, end: Exit, side: Typed, scope: LocalScope) -> bool:
        (out,) = end.outs
        if not isinstance(out, Col):
            return True
        family = self.typed(out, self.named(end.branch, scope)).family
        return family == side.family or (family in NUMBERS and side.family in NUMBERS)

    def list_arms(self, ends: Iterable[Exit], side: Typed, scope: LocalScope) -> list[Text]:
        """Return the exits' SELECTs of one column, with which the caller's column is compared."""
        family = side.family if side.family in NATIVE else Family.TEXT
        return self.arms(ends, scope, lambda end: [CarriedTerm(end.outs[0], family, is_compared=True)])

    def constants(self, shown: list[str]) -> Text:
        """Return constants as an arm of a union."""
        if len(shown) == 1:
            return (f"SELECT {shown[0]}",)
        name = self._table_named(tuple(shown), "k", f"(k0) AS ({self.dialect.rows([[each] for each in shown])})")
        return (f"SELECT k0 FROM {name}",)

    # ---- plans ------------------------------------------------------------------------------------

    def arms(self, ends: Iterable[Exit], scope: LocalScope, columns: ColumnsOf = no_columns) -> list[Text]:
        return list(dict.fromkeys(super().arms(ends, scope, columns)))

    def arm(self, end: Exit, columns: Sequence[Column], scope: LocalScope) -> Text | None:
        return super().arm(replace(end, branch=set_apart(end.branch, end.outs)), columns, scope)

    def entered(self, plan: Plan, scope: LocalScope) -> tuple[LocalScope, list[Text]]:
        """Return the plan's scope, and the tables to define in place, because they refer to rows of outer selects.

        All other tables are defined once, in the WITH clause of the statement.
        """
        scope = self.nested(scope.inside(plan))
        if not plan.seeds and not plan.answers:
            return scope, []
        if plan.outer_columns:
            check_correlation(self.dialect, plan)
            return self.with_tables(plan, scope, scope.own("v"), scope.own("w"))
        scope = scope._replace(seen={}, names={})
        scope = scope._replace(goals=self._recursion(plan, "g", self.goals, scope) if plan.seeds else None)
        return scope._replace(answers=self._recursion(plan, "a", self.answers, scope) if plan.answers else None), []

    def _recursion(
        self, plan: Plan, letter: str, text: Callable[[Plan, LocalScope, str], Text | None], scope: LocalScope
    ) -> str | None:
        """Return the name of a recursive table, created once per plan; None if it has no initial rows."""
        key = (letter, plan)
        if key not in self.names:
            name = self._next(letter)
            made = text(plan, scope, name)
            if made is None:
                return None
            self.names[key], self.texts[name] = name, written(made)
            self.recursions.add(name)
        return self.names[key]

    def _next(self, letter: str) -> str:
        number = self.counts[letter] = self.counts.get(letter, -1) + 1
        return f"__{letter}{number}"

    def layout(self, plan: Plan, kind: type[Goals] | type[Answers]) -> ByFamily:
        return self.layouts.of(plan, kind)

    def tag(self, tag: int) -> Text:
        return (f"{tag} AS tag",)

    # ---- correlated subqueries -------------------------------------------------------------------

    def nested(self, scope: LocalScope) -> LocalScope:
        """Return the scope for a subquery, with outer columns in the form of `Dialect.outer`."""

        def outer(columns: Columns) -> Columns:
            return lambda name: self.dialect.outer(columns(name))

        return scope._replace(seen={number: outer(columns) for number, columns in scope.seen.items()})

    def _with_outer_columns(self, table: str, source: PlanSource, branch: Branch, scope: LocalScope) -> Text:
        """Return the table with the additional columns that subqueries of the branch refer to."""
        added = {}
        for column in correlated(branch.conditions):
            if column.source == source.number:
                own = self.dialect.column(column.name, scope.seen[source.number](column.name).family)
                outer = self.dialect.outer(own)
                if outer != own:
                    added[outer.sql] = f"{self.dialect.text(own)} AS {outer.sql}"
        return (f"(SELECT *, {', '.join(added.values())} FROM {table})",) if added else (table,)

    # ---- branches --------------------------------------------------------------------------------

    def letter(self, source: PlanSource) -> str:
        return "__t"

    def selected(self, branch: Branch, columns: Sequence[Column], scope: LocalScope) -> Text | None:
        limits.check()
        clauses.check()
        found = super().selected(branch, columns, scope)
        return found and (written(found),)  # as one piece: large statements have deeply nested selects

    def row_tests(self, source: PlanSource, branch: Branch, scope: LocalScope) -> Iterable[Text]:
        """Return tests that columns are ids, unless conditions imply it: a row with something else is not a fact."""
        if isinstance(source, ForeignDomain):
            return [(self.dialect.is_id(scope.seen[source.number]("v"), source.type),)]
        if not isinstance(source, FactScan):
            return ()
        binding = self.tables.binding(source.store)
        if not binding.key.columns:
            return [] if binding.is_not_null else [(f"{scope.names[source.number]}.a IS NOT NULL",)]
        order = [each.number for each in branch.sources if isinstance(each, FactScan)]
        types = binding.signature.types
        columns = (Col(source.number, f"a{index}", types[index]) for index in binding.key.columns)
        trusted = () if self.layouts.has_texts_only else branch.conditions  # an empty text may equal `FRESH`
        own = [each for each in columns if not any(implied(condition, each, order) for condition in trusted)]
        tests = (self.dialect.is_id(self.typed(each, scope), each.type, binding.is_not_null) for each in own)
        return [(test,) for test in tests if test]

    def shown(self, column: Shown, scope: LocalScope) -> Text | None:
        assert isinstance(column, CarriedTerm), "what is shown of the caller's tables is carried"
        shown = self._carried(column, scope)
        if shown is None:
            return None
        if column.in_recursion:
            shown = self.dialect.typed(shown, column.family)
        return (f"{shown} AS {column.name}",) if column.name else (shown,)

    def _carried(self, column: CarriedTerm, scope: LocalScope) -> str | None:
        """Return the term as a column of a table that the statement defines; None if that is impossible."""
        term, family = column.term, column.family
        match term:
            case Var():
                return self.dialect.null(family)
            case Const(text):
                return self.dialect.constant(text, family) if column.is_compared else self._constant(text, family)
        typed = self.typed(term, scope)
        if column.is_compared and family in NUMBERS:
            return typed.sql
        return self._converted(typed, family, type_of(term))

    def _constant(self, text: str, family: Family) -> str | None:
        if text == FRESH.id and self.layouts.has_texts_only:
            return self.dialect.empty
        if self.dialect.is_of(text, family):
            return self.dialect.constant(text, family)
        if text == FRESH.id or self.dialect.is_possible(text, Family.TEXT):
            raise DoesNotFit
        return None

    def _converted(self, typed: Typed, family: Family, type_name: str) -> str:
        """Return the expression as a column of the family. Of texts, only Integers always fit into numbers."""
        if family not in NATIVE or typed.family == family:
            return self.dialect.carried(typed, family)
        if type_name != INTEGER or typed.is_normal or typed.family in NATIVE:
            raise DoesNotFit
        return self.dialect.number(typed)

    # ---- sources ---------------------------------------------------------------------------------

    def seen(self, source: PlanSource, alias: str, branch: Branch, scope: LocalScope) -> Columns:
        """Return a function from a column's name in the plan to its SQL and family."""
        layout: FamilyColumns = {}
        match source:
            case FactScan(store=store):
                binding = self.tables.binding(store)
                return lambda name: self.dialect.column(f"{alias}.{name}", binding.family_at(int(name[1:])))
            case Goals() | Answers():
                assert scope.plan is not None, "goals and answers are of the plan that reads them"
                layout = self.layouts.read(source, branch, scope.plan)
            case ConstantRows(types=types):
                rows = self._fitting(source, branch, scope)
                families = [self._family(rows, index, name) for index, name in enumerate(types)]
                layout = {f"k{index}": (f"k{index}", family) for index, family in enumerate(families)}
            case ForeignDomain(type=name):
                family = self.tables.bindings.family(name)
                return lambda name: self.dialect.column(f"{alias}.{name}", family)
            case FoldedCandidates(type=name):
                layout = {"v": ("v", self.layouts.family(name))}
            case FoldedDerivedTable():
                families = self.layouts.derived_table(source)
                layout = {f"{letter}{i}": (f"o{i}", family) for letter in "co" for i, family in enumerate(families)}

        def column(name: str) -> Typed:
            shown, family = layout.get(name, (name, Family.TEXT))
            return Typed(f"{alias}.{shown}", family, is_normal=True)

        return column

    def table(self, source: PlanSource, branch: Branch, scope: LocalScope) -> Text | None:
        match source:
            case FactScan(store=store):
                return self._with_outer_columns(self._binding_table(store), source, branch, scope)
            case ConstantRows():
                return self._constant_rows(source, branch, scope)
            case ForeignDomain(type=name):
                query = self.tables.bindings.domains[name]
                table = self._table_named(("domain", name), "d", f"(v) AS (\n{query}\n)")
                return self._with_outer_columns(table, source, branch, scope)
            case FoldedCandidates():
                return self._folded_candidates(source)
            case FoldedDerivedTable():
                return self._derived_table(source, scope)
        raise AssertionError(f"{source} is read by another renderer")

    def _table_named(self, key: object, letter: str, text: str) -> str:
        """Return the name of the table with this key, creating it if it is new."""
        if key not in self.names:
            name = self.names[key] = self._next(letter)
            self.texts[name] = f"{name}{text}"
        return self.names[key]

    def _binding_table(self, store: str) -> str:
        binding = self.tables.binding(store)
        columns = ", ".join(f"a{index}" for index in binding.key.columns) or "a"
        return self._table_named(store, "f", f"({columns}) AS (\n{binding.query}\n)")

    def _constant_rows(self, source: ConstantRows, branch: Branch, scope: LocalScope) -> Text | None:
        families = [scope.seen[source.number](f"k{index}").family for index in range(len(source.types))]
        rows = [
            [self._constant(text, family) or self.dialect.null(family) for text, family in zip(row, families)]
            for row in self._fitting(source, branch, scope)
        ]
        columns = ", ".join(f"k{index}" for index in range(len(families)))
        key = (tuple(map(tuple, rows)), tuple(families))
        return (self._table_named(key, "k", f"({columns}) AS ({self.dialect.rows(rows)})"),) if rows else None

    def _fitting(self, source: ConstantRows, branch: Branch, scope: LocalScope) -> list[tuple[str, ...]]:
        """Return the rows that can match: without values that are impossible in a column that must equal them.

        rows ('7',), ('x',), whose column must equal a column of integers  ->  ('7',)
        """
        rows = list(source.rows)
        for condition in branch.conditions:
            if isinstance(condition, Same) and isinstance(condition.left, Col) and isinstance(condition.right, Col):
                for own, other in ((condition.left, condition.right), (condition.right, condition.left)):
                    if own.source == source.number and other.source in scope.seen:  # it is read before
                        index, family = int(own.name[1:]), self.typed(other, scope).family
                        rows = [row for row in rows if not row[index] or self.dialect.is_possible(row[index], family)]
        return rows

    def _family(self, rows: Sequence[tuple[str, ...]], index: int, type_name: str) -> Family:
        """Return the family of a column of constants: text if some value does not fit the type's."""
        family = self.layouts.family(type_name)
        fits = all(not row[index] or self.dialect.is_of(row[index], family) for row in rows)
        return family if fits else Family.TEXT

    def _folded_candidates(self, source: FoldedCandidates) -> Text:
        """Return a table of the known ids, those at positions of the caller's tables, and `FRESH` for all others."""
        family = self.layouts.family(source.type)
        arms: list[Text] = [(f"SELECT {self._constant(FRESH.id, family)} AS v",)]
        constants = [shown for each in source.ids if (shown := self._constant(each, family)) is not None]
        arms += [self.constants(constants)] if constants else []
        for store, index in source.positions:
            column = self.dialect.column(f"a{index}", self.tables.binding(store).family_at(index))
            shown, test = self._converted(column, family, source.type), self.dialect.is_id(column, source.type)
            arms.append((f"SELECT {shown} FROM {self._binding_table(store)} WHERE {test}",))
        return ("(", *joined(" UNION ", arms), ")")

    def _derived_table(self, source: FoldedDerivedTable, scope: LocalScope) -> Text | None:
        plan, outs = source.plan, self.outs(self.layouts.derived_table(source))
        if plan.outer_columns:
            check_correlation(self.dialect, plan)
            query = self.query(plan, scope, outs)
            return query and ("(SELECT * FROM (", *query, ") __x)")
        columns = ", ".join(f"o{index}" for index in range(max(plan.width, 1)))
        query = self.query(plan, TOP, outs, distinct=True)
        return query and (self._table_named((query, columns), "r", f"({columns}) AS ({written(query)})"),)

    # ---- conditions ------------------------------------------------------------------------------

    def typed(self, operand: Term, scope: LocalScope) -> Typed:
        assert isinstance(operand, Col), "constants are told apart before"
        return scope.seen[operand.source](operand.name)

    def condition(self, condition: Condition, scope: LocalScope) -> Text | bool:
        return (
            self._semijoin(condition, scope) if isinstance(condition, Semijoin) else super().condition(condition, scope)
        )

    def _semijoin(self, semijoin: Semijoin, scope: LocalScope) -> Text | bool:
        inner = self.named(semijoin.branch, self.nested(scope))
        left, right = self.dialect.sides(self.typed(semijoin.operand, scope), self.typed(semijoin.column, inner))
        query = self.selected(semijoin.branch, [(right,)], inner)
        return query is not None and (f"{left} IN (", *query, ")")

    def among(self, operand: Operand, ids: tuple[str, ...], scope: LocalScope) -> Text | bool:
        typed = self.typed(operand, scope)
        found = [self.dialect.among(typed, sorted(ids))]
        if FRESH.id in ids and typed.is_normal:
            found.append(f"{typed.sql} = {self._constant(FRESH.id, typed.family)}")
        tests = [each for each in found if each is not None]
        return len(tests) > 0 and (tests[0] if len(tests) < 2 else f"({' OR '.join(tests)})",)

    def equal(self, left: Operand, right: Operand, scope: LocalScope) -> Text:
        return (self.dialect.equal(self.typed(left, scope), self.typed(right, scope)),)

    def unequal(self, left: Operand, right: Operand, scope: LocalScope) -> Text | bool:
        if isinstance(left, Const):
            left, right = right, left
        if isinstance(right, Const):
            found = self.among(left, (right.id,), scope)
            return True if isinstance(found, bool) else ("NOT (", *found, ")")
        return (self.dialect.unequal(self.typed(left, scope), self.typed(right, scope)),)

    def number(self, operand: Operand, scope: LocalScope) -> Text:
        return (operand.id if isinstance(operand, Const) else self.dialect.number(self.typed(operand, scope)),)

    def holds(self, plan: Plan, negated: bool, scope: LocalScope) -> Text | bool:
        if negated:
            check_whole(self.dialect, plan)
        return self._tests(plan, negated, scope) if reads_nothing(plan) else super().holds(plan, negated, scope)

    def _tests(self, plan: Plan, negated: bool, scope: LocalScope) -> Text | bool:
        """Return the test of a plan that reads nothing, as an expression without a SELECT."""
        options: list[Text] = []
        for end in plan.exits:
            found = [self.condition(each, scope) for each in end.branch.conditions]
            if all(each is True for each in found):
                return not negated
            if False not in found:
                options.append(joined(" AND ", (each for each in found if not isinstance(each, bool))))
        if not options:
            return negated
        return ("(", *joined(" OR ", dict.fromkeys(options)), ") IS NOT TRUE" if negated else ")")


def reads_nothing(plan: Plan) -> bool:
    """Return whether the plan's tests need no SELECT of their own."""
    return not plan.seeds and not plan.answers and not any(end.branch.sources for end in plan.exits)


def correlated(conditions: Iterable[Condition]) -> Iterator[Col]:
    """Yield the columns that subqueries in the conditions refer to."""
    for condition in conditions:
        if isinstance(condition, Holds):
            if reads_nothing(condition.plan):
                for end in condition.plan.exits:
                    yield from correlated(end.branch.conditions)
            else:
                yield from condition.plan.outer_columns


def written(text: Text) -> str:
    """Return the text as SQL, without parameters: values are included as literals."""
    words = [piece for piece in text if isinstance(piece, str)]
    assert len(words) == len(text), "local SQL has no parameters"
    return "".join(words)
