"""What a statement confirms of its question, in the snapshot in which it reads the facts.

That the caller's key is good, that the policy version is active that the statement was compiled for, and that the
environment's signatures are those that it knows. Rows of an answer come beside the version that is active:

    SELECT <version>, CASE WHEN <mine> THEN (<truth>) END FROM <gate>
    SELECT <version>, NULL FROM <gate> UNION ALL SELECT -1, x.* FROM (<rows>) x WHERE EXISTS (<gate and mine>)
"""

from __future__ import annotations

from typing import NamedTuple

from checks.engine.rules.clauses import Slot
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.text import Text
from facts.numbering import Numbering
from policy.active import key_check

IS_ANSWER, NEW_SIGNATURE = -1, -2  # in place of a policy version


class Confirmation(NamedTuple):
    environment_id: int
    needs_key: bool
    numbering: Numbering
    dialect: Dialect

    def of_truth(self, truth: Text, columns: int = 1) -> Text:
        """Select one row while the key is good: the active policy version, and whether the truth holds under mine."""
        return ("SELECT ", *self._version, ", CASE WHEN ", *self._mine, " THEN (", *truth, ") END FROM ", *self._gate)

    def of_rows(self, rows: Text, columns: int) -> Text:
        """Select the active policy version in a row of its own while the key is good, and the rows if it is mine."""
        first: Text = ("SELECT ", *self._version, f"{', NULL' * columns} FROM ", *self._gate)
        here: Text = ("EXISTS (SELECT 1 FROM ", *self._gate, " AND ", *self._mine, ")")
        return (*first, f" UNION ALL SELECT {IS_ANSWER}, x.* FROM (", *rows, ") x WHERE ", *here)

    @property
    def _version(self) -> Text:
        """Select the active policy version, if the environment's signatures are what they were."""
        if not self.numbering.missing:
            return ("e.policy_version_id",)
        moved = ("e.signature_mark <> ", *self.dialect.number((Slot("mark"),)))
        return ("CASE WHEN ", *moved, f" THEN {NEW_SIGNATURE} ELSE e.policy_version_id END")

    @property
    def _mine(self) -> Text:
        return self.dialect.same_number(("e.policy_version_id",), (Slot("version"),))

    @property
    def _gate(self) -> Text:
        # The environment is part of the check: the statement reads the facts of this one, whatever the key opens now.
        here = f"e.id = {int(self.environment_id)}"
        if not self.needs_key:
            return (f"environment e WHERE {here}",)
        check = key_check()
        return (check.before, Slot("key"), f"{check.after} AND {here}")
