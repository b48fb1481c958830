"""Folded plan -> SQL over the caller's tables, with values as literals.

A rendering that comes to nothing (a value that no column can have, say) is None: the branch has no rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

from checks.asking import deadline
from checks.engine.plan.plan import (
    Answers,
    Branch,
    Exit,
    Fact,
    Goals,
    Net,
    Source,
)
from checks.engine.rules.clauses import Col, Const, Term, Var
from localsql.conditions import rendered, tested
from localsql.constants import known_families, known_table, mentioned_table
from localsql.dialects import NATIVE, NUMBERS, Dialect, Typed
from localsql.errors import CannotSay
from localsql.families import Family
from localsql.layouts import Layouts, Place
from localsql.recursion import answers, goals, recurses
from localsql.relations import CallerTables, Domain
from localsql.residual import FoldedRelation, Known, Mentioned
from localsql.scope import Columns, Scope
from localsql.semijoins import set_apart

Table = Callable[["Renderer", Net, Scope, str], str | None]  # a recursive one; None where nothing starts it


@dataclass
class Renderer:
    dialect: Dialect
    tables: CallerTables
    layouts: Layouts
    texts: dict[str, str] = field(default_factory=dict)  # the tables that selects read by name, in order
    names: dict[object, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    recursive: set[str] = field(default_factory=set)

    # ---- statements ------------------------------------------------------------------------------

    def anew(self) -> Renderer:
        """For another statement, or a part that is one of its own."""
        return replace(self, texts={}, names={}, counts={}, recursive=set())

    def head(self, text: str, *tables: str) -> str:
        """The text after WITH all tables that it reads."""
        whole = " ".join((*tables, text))
        kept: list[str] = []
        for name, table in reversed(self.texts.items()):
            if _mentions(whole, name):
                kept.insert(0, name)
                whole = f"{table} {whole}"
        shown = [self._shared(name, self.texts[name], whole) for name in kept]
        recursive = "RECURSIVE " if self.recursive & set(kept) else ""
        return f"WITH {recursive}{', '.join((*shown, *tables))} {text}" if shown or tables else text

    def _shared(self, name: str, table: str, whole: str) -> str:
        """A binding's query that is read more than once stays open to the conditions of each reading."""
        is_often = len(re.findall(rf"{name}\b", whole)) > 2
        return table.replace(" AS (\n", f" AS{self.dialect.unmaterialized} (\n", 1) if is_often else table

    def arms(self, ends: Iterable[Exit], families: Sequence[Family], scope: Scope) -> list[str]:
        """The exits' selects, each once; columns o0 …, or 1 where there are none."""
        found = (self.arm(end.branch, end.outs, families, scope) for end in ends)
        return list(dict.fromkeys(each for each in found if each is not None))

    def arm(self, branch: Branch, outs: Sequence[Term], families: Sequence[Family], scope: Scope) -> str | None:
        branch = set_apart(branch, outs)
        inner = self.named(branch, scope)
        columns = [self.carried(out, family, inner) for out, family in zip(outs, families)]
        if any(column is None for column in columns):
            return None
        named = [f"{column} AS o{index}" for index, column in enumerate(columns)]
        return self.select(branch, ", ".join(named) or "1", inner)

    def list_arms(self, ends: Iterable[Exit], side: Typed, scope: Scope) -> list[str]:
        """The exits' selects of one column, which the caller's is compared with."""
        found = (self._list_arm(end, side, scope) for end in ends)
        return list(dict.fromkeys(each for each in found if each is not None))

    def _list_arm(self, end: Exit, side: Typed, scope: Scope) -> str | None:
        branch = set_apart(end.branch, end.outs)
        inner = self.named(branch, scope)
        (out,) = end.outs
        shown = self.carried(out, side.family if side.family in NATIVE else Family.TEXT, inner)
        arm = None if shown is None else self.select(branch, shown, inner)
        is_other = side.family in NATIVE and isinstance(out, Col) and self.typed(out, inner).family != side.family
        if arm is not None and is_other:
            # A text that is no number became NULL, and one NULL in the list would make NOT of it NULL.
            arm = (
                f"SELECT * FROM ({arm.replace(f'SELECT {shown}', f'SELECT {shown} AS o0', 1)}) __x WHERE o0 IS NOT NULL"
            )
        return arm

    def constants(self, shown: list[str]) -> str:
        """Constants as an arm of a union."""
        if len(shown) == 1:
            return f"SELECT {shown[0]}"
        name = self.table_named(tuple(shown), "k", lambda: f"(k0) AS ({self.dialect.rows([[each] for each in shown])})")
        return f"SELECT k0 FROM {name}"

    def query(self, net: Net, scope: Scope, families: Sequence[Family] = (), distinct: bool = False) -> str | None:
        scope, tables = self._with(net, scope)
        arms = self.arms(net.exits, families, scope)
        if not arms:
            return None
        recursion = f"WITH RECURSIVE {', '.join(tables)} " if tables else ""
        return recursion + union(arms, distinct)

    def entered(self, net: Net) -> Scope:
        """The scope of the net's exits."""
        return self._with(net, Scope())[0]

    def _with(self, net: Net, scope: Scope) -> tuple[Scope, list[str]]:
        """The scope of the net's exits, and the tables that must be defined right there: those that look outside."""
        scope = scope.inside(net)
        if not net.seeds and not net.answers:
            return scope, []
        if any(isinstance(each, Col) for each in net.fixed):
            self._check_correlation(net)
            return self._correlated(net, scope)
        scope = replace(scope, columns={}, names={})
        scope = replace(scope, goals=self._recursion(net, "g", goals, scope) if net.seeds else None)
        return replace(scope, answers=self._recursion(net, "a", answers, scope) if net.answers else None), []

    def _recursion(self, net: Net, letter: str, text: Table, scope: Scope) -> str | None:
        """A recursive table beside all others, once for its net."""
        key = (letter, id(net))
        if key not in self.names:
            name = self._next(letter)
            made = text(self, net, scope, name)
            if made is None:
                return None
            self.names[key], self.texts[name] = name, made
            self.recursive.add(name)
        return self.names[key]

    def _correlated(self, net: Net, scope: Scope) -> tuple[Scope, list[str]]:
        tables = []
        name = self._next("v")
        made = goals(self, net, scope, name) if net.seeds else None
        if made is not None:
            scope = replace(scope, goals=name)
            tables.append(made)
        name = self._next("w")
        made = answers(self, net, scope, name) if net.answers else None
        if made is not None:
            scope = replace(scope, answers=name)
            tables.append(made)
        return scope, tables

    def _next(self, letter: str) -> str:
        number = self.counts[letter] = self.counts.get(letter, -1) + 1
        return f"__{letter}{number}"

    def _check_correlation(self, net: Net) -> None:
        if not self.dialect.can_correlate and any(isinstance(each, Col) for each in net.fixed):
            predicate = re.split("[. ]", net.states[0].call.predicate if net.states else net.name)[0]
            raise CannotSay(
                f"a rule tests `{predicate}`, which is recursive, for each row: this dialect cannot say that;"
                f" store the facts that `{predicate}` recurses over, or use PostgreSQL or SQLite"
            )

    def check_whole(self, net: Net) -> None:
        """What is negated must be known in full: where recursion may be cut short unnoticed, it cannot be."""
        if not self.dialect.is_told_when_cut and recurses(net):
            raise CannotSay(
                "a rule says `not` of what is recursive, and MariaDB stops following recursion after a number of steps"
                " without an error; store the facts that it recurses over, or use PostgreSQL, MySQL or SQLite"
            )

    # ---- branches --------------------------------------------------------------------------------

    def named(self, branch: Branch, scope: Scope) -> Scope:
        for source in branch.sources:
            name = scope.alias(source)
            scope = scope.naming(source, name, self._columns(source, name, branch, scope))
        return scope

    def select(self, branch: Branch, shown: str, scope: Scope) -> str | None:
        """A select over the branch, whose sources the scope names already."""
        deadline.check()
        tables, tests = [], []
        for source in branch.sources:
            table = self._table(source, branch, scope)
            if table is None:
                return None
            if not scope.is_outer(source):
                tables.append(f"{table} {scope.names[source.number]}")
            tests += self._not_null(source, branch, scope)
        for condition in branch.conditions:
            verdict = rendered(self, condition, scope)
            if verdict is False:
                return None
            tests += [] if verdict is True else [verdict]
        text = f"SELECT {shown}"
        if tables:
            text += f" FROM {' CROSS JOIN '.join(tables)}"
        return f"{text}{'' if tables else self.dialect.dual} WHERE {' AND '.join(tests)}" if tests else text

    def _not_null(self, source: Source, branch: Branch, scope: Scope) -> list[str]:
        """A row with NULL is no fact."""
        if isinstance(source, Domain):
            return [f"{scope.columns[source.number]('v').sql} IS NOT NULL"]
        if not isinstance(source, Fact):
            return []
        binding = self.tables.binding(source.place)
        if binding.is_not_null:
            return []
        operands = {operand for each in branch.conditions for operand in tested(each)}
        columns = [Col(source.number, f"a{index}") for index in binding.key.columns]
        return [f"{self.typed(each, scope).sql} IS NOT NULL" for each in columns if each not in operands]

    # ---- sources ---------------------------------------------------------------------------------

    def _columns(self, source: Source, alias: str, branch: Branch, scope: Scope) -> Columns:
        """What the source's columns are, by their names in the plan."""
        layout: dict[str, Place] = {}
        match source:
            case Fact(place=place):
                binding = self.tables.binding(place)
                return lambda name: Typed(f"{alias}.{name}", binding.family_at(int(name[1:])))
            case Goals() | Answers():
                assert scope.net is not None, "goals and answers are of the net that reads them"
                layout = self.layouts.read(source, branch, scope.net)
            case Known():
                families = known_families(self, source, branch, scope)
                layout = {f"k{index}": (f"k{index}", family) for index, family in enumerate(families)}
            case Domain(type=name):
                family = self.tables.bindings.family(name)
                return lambda name: Typed(f"{alias}.{name}", family)
            case Mentioned(type=name):
                layout = {"v": ("v", self.layouts.family(name))}
            case FoldedRelation():
                families = self.layouts.relation(source)
                layout = {f"{letter}{i}": (f"o{i}", family) for letter in "co" for i, family in enumerate(families)}

        def column(name: str) -> Typed:
            shown, family = layout.get(name, (name, Family.TEXT))
            return Typed(f"{alias}.{shown}", family, is_normal=True)

        return column

    def _table(self, source: Source, branch: Branch, scope: Scope) -> str | None:
        match source:
            case Fact(place=place):
                return self.binding_table(place)
            case Goals():
                return scope.goals
            case Answers():
                return scope.answers
            case Known():
                return known_table(self, source, branch, scope)
            case Domain(type=name):
                return self._domain(name)
            case Mentioned():
                return mentioned_table(self, source)
            case FoldedRelation():
                return self._relation(source, scope)
        raise AssertionError(f"{source} is read by another renderer")

    @overload
    def table_named(self, key: object, letter: str, text: Callable[[], str]) -> str: ...
    @overload
    def table_named(self, key: object, letter: str, text: Callable[[], str | None]) -> str | None: ...
    def table_named(self, key: object, letter: str, text: Callable[[], str | None]) -> str | None:
        """The table of that name, made now if it is new; None where it has no rows."""
        if key not in self.names:
            made = text()
            if made is None:
                return None
            name = self.names[key] = self._next(letter)
            self.texts[name] = f"{name}{made}"
        return self.names[key]

    def binding_table(self, place: str) -> str:
        binding = self.tables.binding(place)
        columns = ", ".join(f"a{index}" for index in binding.key.columns) or "a"
        return self.table_named(place, "f", lambda: f"({columns}) AS (\n{binding.query}\n)")

    def _domain(self, name: str) -> str:
        query = self.tables.bindings.domains[name]
        return self.table_named(("domain", name), "d", lambda: f"(v) AS (\n{query}\n)")

    def _relation(self, source: FoldedRelation, scope: Scope) -> str | None:
        families = self.layouts.relation(source)
        net = source.net
        if any(isinstance(operand, Col) for operand in net.fixed):
            self._check_correlation(net)
            query = self.query(net, scope, families)
            return query and f"(SELECT * FROM ({query}) __x)"
        columns = ", ".join(f"o{index}" for index in range(max(net.width, 1)))
        query = self.query(net, Scope(), families, distinct=True)
        return query and self.table_named((query, columns), "r", lambda: f"({columns}) AS ({query})")

    # ---- operands --------------------------------------------------------------------------------

    def typed(self, operand: Term, scope: Scope) -> Typed:
        assert isinstance(operand, Col), "constants are told apart before"
        return scope.columns[operand.source](operand.name)

    def carried(self, term: Term, family: Family, scope: Scope) -> str | None:
        """The term as a column of the statement's own; None where it cannot be."""
        match term:
            case Const(text):
                return self.dialect.constant(text, family)
            case Var():
                return self.dialect.null(family)
        return self.converted(self.typed(term, scope), family)

    def converted(self, typed: Typed, family: Family) -> str:
        if family in NUMBERS and typed.family != family:
            return self.dialect.number(typed, family)
        if family in NATIVE and typed.family != family:
            raise CannotSay(
                f"`sql_types` disagree about a type: ids that are {typed.family.value} meet {family.value} ones"
            )
        return self.dialect.carried(typed, family)


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"{name}\b", text) is not None


def union(arms: list[str], distinct: bool) -> str:
    if distinct and len(arms) == 1 and arms[0].startswith("SELECT "):
        return f"SELECT DISTINCT {arms[0].removeprefix('SELECT ')}"
    return (" UNION " if distinct else " UNION ALL ").join(arms)
