"""Statements over stored facts: for the parts of branches that these decide, and the recursions that they read.

A recursion that stored facts decide alone is evaluated once; its rows go as JSON into all statements that
read it. Parts that differ in the numbers of their sources alone share one statement, and each statement is rendered
when it first runs: most never run, as another part of their branch has no rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import orjson

from checks.engine.plan.draft import renumbered
from checks.engine.plan.plan import Answers, Branch, FactScan, Goals, Plan, Source, Tagged
from checks.engine.rules.clauses import Col, Slot
from checks.engine.sql.render import Scope
from checks.engine.sql.rounds import Fetched, Rounds, Run, evaluate_all
from checks.engine.sql.stored import StoredRenderer
from checks.engine.sql.text import Column, Formed, Statement, finished, union

Rows = list[Fetched]
MOST_VALUES = 100_000  # values out of stored facts, in one statement


@dataclass(frozen=True)
class StoredTable:
    """All goals of a plan, or all its answers; `slot` is where statements read them from."""

    slot: str
    columns: tuple[str, ...]
    statement: Statement
    rounds: tuple[Rounds, ...]


Rendered = tuple[Statement, tuple[Rounds, ...]]  # the rounds are evaluated before the statement runs


@dataclass(frozen=True, eq=False)
class StoredStatement:
    """A statement that reads stored facts and these tables; it selects these columns of the branch."""

    render: Callable[[], Rendered]
    tables: tuple[tuple[StoredTable, int], ...]  # each with the tag of the rows that are read
    columns: tuple[Col, ...]
    place: int  # of its first source, among those of the branch
    what: str  # what it reads, for messages

    @cached_property
    def rendered(self) -> Rendered:
        return self.render()


@dataclass
class StoredStatements:
    renderer: Callable[[], StoredRenderer]
    tables: dict[tuple[Plan, type], StoredTable] = field(default_factory=dict)
    shared: dict[tuple[Branch, tuple[Col, ...]], Rendered] = field(default_factory=dict)

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

    def _shared(self, branch: Branch, columns: tuple[Col, ...], read: Mapping[int, StoredTable]) -> Rendered:
        key = renumbered(branch, columns)
        if key is None:
            return self._rendered(branch, columns, read)
        if key not in self.shared:
            self.shared[key] = self._rendered(*key, read)
        return self.shared[key]

    def _rendered(self, branch: Branch, columns: tuple[Col, ...], read: Mapping[int, StoredTable]) -> Rendered:
        renderer = self.renderer()
        scope: Scope[Source] = Scope(tables={number: table.slot for number, table in read.items()})
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
            start: Scope[Source] = Scope()
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
    ran: dict[Statement, Rows] = field(default_factory=dict)  # kept, as branches often ask the same

    def rows(self, stored: StoredStatement) -> Rows:
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
