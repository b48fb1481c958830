"""Plans over the facts of an earlier revision -> SQL: each fact is looked up among stored and past facts.

On SQLite, each look-up nests two more SELECTs, and its parser takes only so many levels. A statement that it would not
take reads a table of its own instead, with all facts of that revision that the statement may look at: it nests no
deeper than the same statement about now, and takes longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from checks.engine.plan.plan import ArgumentPosition, Branch, FactScan, Holds, Source
from checks.engine.sql.lookups import known_columns, rows_as_of
from checks.engine.sql.operands import Scoped
from checks.engine.sql.steps import steps_of
from checks.engine.sql.stored import StoredRenderer
from checks.engine.sql.text import Column, Text

FACTS_THEN = "fact_then"
COLUMNS = ("a0", "a1", "a2", "a3", "a4")


class AsOfRenderer(StoredRenderer):
    """Renders plans as of a revision: the statement has the revision and its time as parameters."""

    def named(self, branch: Branch, scope: Scoped) -> Scoped:
        scope = super().named(branch, scope)
        own = {each.number for each in branch.sources if _is_stored(each)}
        return scope._replace(looked_up=scope.looked_up | own)

    def read(self, branch: Branch, columns: Sequence[Column], scope: Scoped) -> tuple[list[Text], list[Text]]:
        """Return the tables and tests. Nested plans that mention a fact are tested outside of its look-up.

        The look-up has two arms: inside, the test would stand twice.
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
            alias, columns_of_fact = scope.names[source.number], _columns_of(source)
            number: Text = (f"{alias}.sig = {self.number_of(source.signature)}",)
            if source.number in self.holes:
                number = self.number_test(source, scope)
            held = [number, *[self._test(each, inner) for each in own]]
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

    `numbers` are those of the signatures that the statements read: `number_of` adds to them.
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


def _is_stored(source: Source) -> bool:
    return isinstance(source, FactScan) and source.store == "stored"


def _columns_of(source: FactScan) -> list[str]:
    return [f"a{place}" for place in range(len(source.signature.types))]
