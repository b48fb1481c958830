"""What a statement confirms of its question, in the snapshot in which it reads the facts.

That the caller's key is good, and for questions; that the policy version is active that the statement was compiled for;
and that the environment's signatures are those that it knows. Rows of an answer come beside the version that is active,
the moment (while that is the same, so is every answer) and the offset, which is the revision that is answered.

    SELECT <version>, CASE WHEN <mine> THEN (<truth>) END, <moment>, <offset> FROM <gate>
    SELECT <version>, <moment> || ':' || <offset>, NULL FROM <gate>
        UNION ALL SELECT -1, x.* FROM (<rows>) x WHERE EXISTS (<gate and mine>)
    SELECT <version>, <moment>, <offset> FROM <gate>

A statement as of a revision follows the policy of then. It confirms that the environment still knows that revision, and
its own version stands for that.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from checks.engine.rules.clauses import Slot
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.lookups import REVISION
from checks.engine.sql.text import Statement, Text, finished, joined
from policy.active import MOMENT, Seen, key_check
from policy.scopes import Scope

IS_ANSWER, NEW_SIGNATURE, UNKNOWN_REVISION = -1, -2, -3  # in place of a policy version
_OFFSET = 'e."offset"'


class Holding(NamedTuple):
    """What holds in the snapshot of a statement: the policy version that is active, and the moment."""

    version: int | None
    moment: int
    offset: int = 0

    @property
    def seen(self) -> Seen:
        """Return how far the environment is there."""
        return Seen(self.offset, self.moment)


@lru_cache(maxsize=10_000)
def asking_what_holds(environment_id: int, needs_key: bool, dialect: Dialect) -> Statement:
    """The statement of nothing but that; a caller's needs the slot `key`. No row: the key is not good here."""
    gate = _gate(environment_id, needs_key)
    return finished((f"SELECT e.policy_version_id, {MOMENT}, {_OFFSET} FROM ", *gate), dialect.placeholder)


def held_beside_truth(rows: list[tuple[Any, ...]]) -> tuple[Holding, bool]:
    """What `Confirmation.of_truth` selects."""
    version, truth, moment, offset = rows[0]
    return Holding(version, moment, offset), bool(truth)


def held_beside_rows(rows: list[tuple[Any, ...]]) -> tuple[Holding, list[tuple[Any, ...]]]:
    """What `Confirmation.of_rows` selects."""
    version, numbers, *_ = next(row for row in rows if row[0] != IS_ANSWER)
    moment, offset = map(int, numbers.split(":"))
    return Holding(version, moment, offset), [row[1:] for row in rows if row[0] == IS_ANSWER]


class Confirmation(NamedTuple):
    environment_id: int
    needs_key: bool
    watches_signatures: bool  # whether facts of new ones could change what the statement answers
    ends_mark: int
    dialect: Dialect
    is_past: bool = False

    def of_truth(self, truth: Text, columns: int = 1) -> Text:
        """Select one row while the key is good: what holds, and whether the truth does under my version."""
        mine: Text = ("CASE WHEN ", *self._mine, " THEN (", *truth, ") END")
        return ("SELECT ", *self._version, ", ", *mine, f", {MOMENT}, {_OFFSET} FROM ", *self._gate)

    def of_rows(self, rows: Text, columns: int) -> Text:
        """Select what holds in a row of its own while the key is good, and the rows if the version is mine.

        Their first column is text, in PostgreSQL, and so the moment is.
        """
        numbers = f", CAST({MOMENT} AS text) || ':' || {_OFFSET}{', NULL' * (columns - 1)} FROM "
        first: Text = ("SELECT ", *self._version, numbers, *self._gate)
        here: Text = ("EXISTS (SELECT 1 FROM ", *self._gate, " AND ", *self._mine, ")")
        return (*first, f" UNION ALL SELECT {IS_ANSWER}, x.* FROM (", *rows, ") x WHERE ", *here)

    @property
    def _version(self) -> Text:
        """Select the policy version, if the environment's signatures are what they were."""
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
        return _gate(self.environment_id, self.needs_key)


def _gate(environment_id: int, needs_key: bool) -> Text:
    # The environment is part of the check: the statement reads the facts of this one, whatever the key opens now.
    here = f"e.id = {int(environment_id)}"
    if not needs_key:
        return (f"environment e WHERE {here}",)
    check = key_check()
    return (check.before, Slot("key"), f"{check.after} AND {check.scopes[Scope.READ]} AND {here}")
