"""Statements over stored facts: for the parts of branches that these decide, and the recursions that they read.

A recursion that stored facts decide alone is evaluated once; its rows go as JSON into all statements that
read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import orjson

from checks.engine.plan.plan import Answers, Branch, FactScan, Goals, Plan, Source, Tagged
from checks.engine.rules.clauses import Col, Slot
from checks.engine.sql.rounds import Fetched, Rounds, Run, evaluate_all
from checks.engine.sql.scope import Scope
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


@dataclass(frozen=True, eq=False)
class StoredStatement:
    """A statement that reads stored facts and these tables; it selects these columns of the branch."""

    statement: Statement
    rounds: tuple[Rounds, ...]
    tables: tuple[tuple[StoredTable, int], ...]  # each with the tag of the rows that are read
    columns: tuple[Col, ...]
    place: int  # of its first source, among those of the branch
    what: str  # what it reads, for messages


@dataclass
class StoredStatements:
    renderer: Callable[[], StoredRenderer]
    tables: dict[tuple[Plan, type], StoredTable] = field(default_factory=dict)

    def of(self, plan: Plan, branch: Branch, columns: tuple[Col, ...], place: int) -> StoredStatement:
        renderer = self.renderer()
        read = [
            (source, self._table(plan, type(source)), _tag(source, branch))
            for source in branch.sources
            if isinstance(source, Goals | Answers)
        ]
        scope: Scope[Source] = Scope(tables={source.number: table.slot for source, table, _ in read})
        shown: list[Column] = [Formed(column, renderer.dialect.text_value) for column in columns]
        distinct = union([renderer.select(branch, shown or [("1",)], scope)], distinct=True)
        named = {table.slot: table for _, table, _ in read}
        tables = [
            (f"{slot} AS MATERIALIZED (", *renderer.dialect.table((Slot(slot),), list(table.columns)), ")")
            for slot, table in named.items()
        ]
        text = (*renderer.head(tables), *distinct, f" LIMIT {MOST_VALUES + 1 if columns else 1}")
        statement = finished(text, renderer.dialect.placeholder)
        tagged = tuple((table, tag) for _, table, tag in read)
        return StoredStatement(statement, tuple(renderer.rounds.values()), tagged, columns, place, _what(branch, plan))

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
        if stored.rounds:
            return self.run(stored.statement, evaluate_all(stored.rounds, self.run, known))
        if stored.statement not in self.ran:
            self.ran[stored.statement] = self.run(stored.statement, known)
        return self.ran[stored.statement]

    def _table(self, table: StoredTable) -> tuple[str, set[int]]:
        if table.slot not in self.tables:
            rows = self.run(table.statement, evaluate_all(table.rounds, self.run, self.slots))
            self.tables[table.slot] = (orjson.dumps(rows).decode(), {row[0] for row in rows})
        return self.tables[table.slot]
