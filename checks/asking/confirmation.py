"""What a statement confirms of its question, in the snapshot in which it reads the facts.

That the caller's key is good, that the policy version is active that the statement was compiled for, and that the
environment's signatures are those that it knows. Rows of an answer come beside the version that is active, and the
moment: while that is the same, so is every answer.

    SELECT <version>, CASE WHEN <mine> THEN (<truth>) END, <moment> FROM <gate>
    SELECT <version>, <moment>, NULL FROM <gate> UNION ALL SELECT -1, x.* FROM (<rows>) x WHERE EXISTS (<gate and mine>)
    SELECT <version>, <moment> FROM <gate>
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from checks.engine.rules.clauses import Slot
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.text import Statement, Text, finished
from policy.active import key_check

IS_ANSWER, NEW_SIGNATURE = -1, -2  # in place of a policy version
# With the offset, which servers of before there were moments move, too.
_MOMENT = '(e.moment + e."offset")'


class Holding(NamedTuple):
    """What holds in the snapshot of a statement: the policy version that is active, and the moment."""

    version: int | None
    moment: int


@lru_cache(maxsize=10_000)
def asking_what_holds(environment_id: int, needs_key: bool, dialect: Dialect) -> Statement:
    """The statement of nothing but that; a caller's needs the slot `key`. No row: the key is not good here."""
    gate = _gate(environment_id, needs_key)
    return finished((f"SELECT e.policy_version_id, {_MOMENT} FROM ", *gate), dialect.placeholder)


def held_beside_truth(rows: list[tuple[Any, ...]]) -> tuple[Holding, bool]:
    """What `Confirmation.of_truth` selects."""
    version, truth, moment = rows[0]
    return Holding(version, moment), bool(truth)


def held_beside_rows(rows: list[tuple[Any, ...]]) -> tuple[Holding, list[tuple[Any, ...]]]:
    """What `Confirmation.of_rows` selects."""
    version, moment, *_ = next(row for row in rows if row[0] != IS_ANSWER)
    return Holding(version, int(moment)), [row[1:] for row in rows if row[0] == IS_ANSWER]


class Confirmation(NamedTuple):
    environment_id: int
    needs_key: bool
    watches_signatures: bool  # whether facts of new ones could change what the statement answers
    dialect: Dialect

    def of_truth(self, truth: Text, columns: int = 1) -> Text:
        """Select one row while the key is good: what holds, and whether the truth does under my version."""
        mine: Text = ("CASE WHEN ", *self._mine, " THEN (", *truth, ") END")
        return ("SELECT ", *self._version, ", ", *mine, f", {_MOMENT} FROM ", *self._gate)

    def of_rows(self, rows: Text, columns: int) -> Text:
        """Select what holds in a row of its own while the key is good, and the rows if the version is mine.

        Their first column is text, in PostgreSQL, and so the moment is.
        """
        moment = f", CAST({_MOMENT} AS text){', NULL' * (columns - 1)} FROM "
        first: Text = ("SELECT ", *self._version, moment, *self._gate)
        here: Text = ("EXISTS (SELECT 1 FROM ", *self._gate, " AND ", *self._mine, ")")
        return (*first, f" UNION ALL SELECT {IS_ANSWER}, x.* FROM (", *rows, ") x WHERE ", *here)

    @property
    def _version(self) -> Text:
        """Select the active policy version, if the environment's signatures are what they were."""
        if not self.watches_signatures:
            return ("e.policy_version_id",)
        moved = ("e.signature_mark <> ", *self.dialect.number((Slot("mark"),)))
        return ("CASE WHEN ", *moved, f" THEN {NEW_SIGNATURE} ELSE e.policy_version_id END")

    @property
    def _mine(self) -> Text:
        return self.dialect.same_number(("e.policy_version_id",), (Slot("version"),))

    @property
    def _gate(self) -> Text:
        return _gate(self.environment_id, self.needs_key)


def _gate(environment_id: int, needs_key: bool) -> Text:
    # The environment is part of the check: the statement reads the facts of this one, whatever the key opens now.
    here = f"e.id = {int(environment_id)}"
    if not needs_key:
        return (f"environment e WHERE {here}",)
    check = key_check()
    return (check.before, Slot("key"), f"{check.after} AND {here}")
