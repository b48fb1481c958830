"""What a statement confirms along with its answer, in the same snapshot in which it reads the facts.

It confirms that the caller's key is good, and for questions; that the policy version that it was compiled for is
active; and that the environment's signatures are those that it knows. With the answer come the active version, the
moment (a number: while it stays the same, so does every answer) and the offset, which is the revision of the facts.

    SELECT <version>, CASE WHEN <mine> THEN (<truth>) END, <moment>, <offset> FROM <gate>      -- yes or no
    SELECT <version>, <moment> || ':' || <offset>, NULL FROM <gate>                            -- rows
        UNION ALL SELECT -1, x.* FROM (<rows>) x WHERE EXISTS (<gate and mine>)
    SELECT <version>, <moment>, <offset> FROM <gate>                                           -- nothing else

<gate> is one row while the key is good, and <mine> says that the active version is the statement's own.

A statement as of a revision follows the policy of then. It confirms that the environment still knows that revision: if
so, <version> is the statement's own, and otherwise `UNKNOWN_REVISION`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from checks.engine.compile import EXISTS
from checks.engine.rules.clauses import Slot
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.stored import REVISION
from checks.engine.sql.text import Statement, Text, finished, joined
from policy.active import MOMENT, Seen, key_check
from policy.scopes import Scope

IS_ANSWER, NEW_SIGNATURE, UNKNOWN_REVISION = -1, -2, -3  # in place of a policy version
_OFFSET = 'e."offset"'
# With each answer, SQLite's driver reads its columns' names, and looks for a converter of the type that a column is
# declared with. So names are short, and a unary `+` makes an expression of a column: it has no declared type.
_NUMBERS = f"{MOMENT} AS m, +{_OFFSET} AS o"


class SnapshotState(NamedTuple):
    """What holds in the snapshot of a statement: the active policy version, the moment and the offset."""

    version: int | None
    moment: int
    offset: int = 0

    @property
    def seen(self) -> Seen:
        """Return how far the environment is there."""
        return Seen(self.offset, self.moment)


@lru_cache(maxsize=10_000)
def state_statement(environment_id: int, needs_key: bool, dialect: Dialect) -> Statement:
    """Return the statement that only confirms; a caller's has the slot `key`, and no row if that is not good."""
    gate = _gate(environment_id, needs_key, dialect)
    return finished((f"SELECT +e.policy_version_id AS v, {_NUMBERS} FROM ", *gate), dialect.placeholder)


def state_and_rows(rows: list[tuple[Any, ...]]) -> tuple[SnapshotState, list[tuple[Any, ...]]]:
    """Read the rows that `Confirmation.of_rows` selects."""
    version, numbers, *_ = next(row for row in rows if row[0] != IS_ANSWER)
    moment, offset = map(int, numbers.split(":"))
    return SnapshotState(version, moment, offset), [row[1:] for row in rows if row[0] == IS_ANSWER]


class Confirmation(NamedTuple):
    environment_id: int
    needs_key: bool
    watches_signatures: bool  # whether facts of new signatures could change the answer
    ends_mark: int
    dialect: Dialect
    is_past: bool = False

    def of_truth(self, truth: Text, columns: int = 1) -> Text:
        """Select one row if the key is good: what holds, and the truth, or NULL if the version is not mine."""
        value: Text = ("(", *truth, ")")
        if self.is_past and truth[0] == EXISTS:  # with less around it, it may be nested as deep as about now
            value = ("EXISTS (", *truth[1:-1], ")")
        mine: Text = ("CASE WHEN ", *self._mine, " THEN ", *value, " END")
        return ("SELECT ", *self._version, " AS v, ", *mine, f" AS t, {_NUMBERS} FROM ", *self._gate)

    def of_rows(self, rows: Text, columns: int) -> Text:
        """Select a row of what holds if the key is good, and below it the rows if the version is mine.

        The moment is cast to text since the rows' first column is text, and PostgreSQL wants one type.
        """
        numbers = f", CAST({MOMENT} AS text) || ':' || {_OFFSET}{', NULL' * (columns - 1)} FROM "
        first: Text = ("SELECT ", *self._version, numbers, *self._gate)
        here: Text = ("EXISTS (SELECT 1 FROM ", *self._gate, " AND ", *self._mine, ")")
        return (*first, f" UNION ALL SELECT {IS_ANSWER}, x.* FROM (", *rows, ") x WHERE ", *here)

    @property
    def _version(self) -> Text:
        """Select the policy version, or `NEW_SIGNATURE` if the signatures are not those of the statement."""
        moved: list[Text] = [] if self.is_past else [(f"e.ends_mark <> {int(self.ends_mark)}",)]
        if self.watches_signatures:
            moved.append(("e.signature_mark <> ", *self.dialect.number((Slot("mark"),))))
        version: Text = ("e.policy_version_id",)
        if self.is_past:
            own = self.dialect.number((Slot("version"),))
            version = ("CASE WHEN ", *self._is_known, " THEN ", *own, f" ELSE {UNKNOWN_REVISION} END")
        if not moved:
            return version
        return ("CASE WHEN ", *joined(" OR ", moved), f" THEN {NEW_SIGNATURE} ELSE ", *version, " END")

    @property
    def _mine(self) -> Text:
        if self.is_past:
            return self._is_known
        return self.dialect.same_number(("e.policy_version_id",), (Slot("version"),))

    @property
    def _is_known(self) -> Text:
        return (*self.dialect.number((REVISION,)), f" BETWEEN e.horizon AND {_OFFSET}")

    @property
    def _gate(self) -> Text:
        return _gate(self.environment_id, self.needs_key, self.dialect)


def _gate(environment_id: int, needs_key: bool, dialect: Dialect) -> Text:
    # The environment is part of the check: the statement reads this one's facts, and the key may open another by now.
    here = f"e.id = {int(environment_id)}"
    if not needs_key:
        return (f"environment e WHERE {here}",)
    check = key_check()
    after = check.after(dialect.is_to_come(check.expires_at))
    return (check.before, Slot("key"), f"{after} AND {check.scopes[Scope.READ]} AND {here}")
