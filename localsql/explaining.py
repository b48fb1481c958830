"""Explain decisions over bound tables: read the rows that matter, and explain with them as context facts.

Rows are found from the ids of the request: first rows that contain one of them, then rows that contain an id of those,
and so on. The decision itself is made by local SQL in the caller's database. An explanation that comes to another
decision is refused: rows that it did not read would have mattered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from checks.asking.ask import Asker
from checks.asking.question import Question
from checks.explain.explain import Explanation, explain
from facts.wire import Fact
from localsql.asking import authorize
from localsql.errors import NotExpressible
from localsql.sync.config import ConfigContext, SqlQuery, SyncPattern, config_from_text
from localsql.sync.run import whole
from localsql.sync.sources import SourceRow, SqlConnection, connected, reading
from policy.values import PRIMITIVES, Value

MOST_ROWS = 10_000
AT_ONCE = 200  # ids in one statement


class RowsMissing(NotExpressible):
    def __init__(self, rows: int):
        super().__init__(
            f"the decision cannot be explained by the {rows:,} rows that are connected to the actor and the resource; "
            "pass the rows that matter as context facts instead"
        )


def explained(asker: Asker, question: Question, bindings: str, database: str) -> Explanation:
    """Explain the answer to a question about one actor, action and resource, over the tables at a database URL."""
    config = config_from_text(bindings, ConfigContext(connection=database))
    local = authorize(asker, question, bindings)
    patterns = [pattern for pattern in config.patterns if isinstance(pattern.asked, SqlQuery)]
    if len({pattern.database for pattern in patterns}) != 1:
        raise NotExpressible("the bindings must have tables of one database")
    ids = {(asked.type, asked.one) for asked in question.variables.values()}
    with connected(patterns[0].database) as connection:
        facts = _Rows(patterns, connection).connected_to(ids)
        ((holds,),) = connection.execute(_escaped(local.sql, connection))
    found = explain(asker, question._replace(context=(*question.context, *facts)))
    if found.allowed != bool(holds):
        raise RowsMissing(len(facts))
    return replace(found, warning=local.warning)


class _Rows:
    """The facts of bound tables, read from the ids that they contain."""

    def __init__(self, patterns: Sequence[SyncPattern], connection: SqlConnection):
        self.patterns, self.connection = patterns, connection
        self.facts: dict[Fact, None] = {}

    def connected_to(self, ids: set[tuple[str, str]]) -> list[Fact]:
        """Return the facts that contain one of the typed ids, or an id of such facts, up to `MOST_ROWS`."""
        known = {each for each in ids if each[0] not in PRIMITIVES}
        new = known
        for pattern in self.patterns:
            if not pattern.key.columns:
                self._take(pattern, self.connection.execute(f"{self._statement(pattern)} LIMIT 1"))
        while new and len(self.facts) < MOST_ROWS:
            before = len(self.facts)
            for pattern in self.patterns:
                for row in self._with(pattern, new):
                    self._take(pattern, [row])
            found = list(self.facts)[before:]
            new = {(arg.type, arg.id) for fact in found for arg in fact.args if arg.type not in PRIMITIVES} - known
            known |= new
        return list(self.facts)

    def _with(self, pattern: SyncPattern, ids: set[tuple[str, str]]) -> Iterator[SourceRow]:
        """Yield the rows with one of the ids in a column of its type."""
        for place, index in enumerate(pattern.key.columns):
            wanted = sorted(text for name, text in ids if name == pattern.key.signature.types[index])
            for start in range(0, len(wanted), AT_ONCE):
                some = wanted[start : start + AT_ONCE]
                marks = ", ".join([self.connection.mark] * len(some))
                most = max(MOST_ROWS - len(self.facts), 0)
                rows = f"{self._statement(pattern)} WHERE __r.c{place} IN ({marks}) LIMIT {most}"
                yield from self.connection.execute(rows, some)

    def _statement(self, pattern: SyncPattern) -> str:
        assert isinstance(pattern.asked, SqlQuery), "others have no tables"
        rows = reading(pattern, pattern.asked, self.connection.collated, in_order=False)
        return f"SELECT * FROM ({_escaped(rows, self.connection)}) __r"

    def _take(self, pattern: SyncPattern, rows: Sequence[SourceRow]) -> None:
        signature = pattern.key.signature
        for row in rows:
            found = tuple([each.decode() if isinstance(each, bytes) else each for each in row if each is not None])
            if len(found) == len(row) or not pattern.key.columns:  # a row with NULL is no fact
                ids = whole(pattern.key, found if pattern.key.columns else ())
                self.facts[Fact(signature.predicate, tuple(map(Value, signature.types, ids)))] = None


def _escaped(statement: str, connection: SqlConnection) -> str:
    """Double each `%` for drivers that read it as a placeholder."""
    return statement.replace("%", "%%") if connection.mark == "%s" else statement
