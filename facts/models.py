"""The tables of facts: a narrow one of stored facts, one of past facts, and the signatures that define what rows mean.

A row is `sig, a0 … a4`: the number of a signature (an environment, a predicate and the types of the arguments), and the
arguments' ids, '' beyond the signature's arity. With signature 7 = `has_role(User, String, Organization)`:

    has_role(User:ann, "owner", Organization:acme)  ->  7, 'ann', 'owner', 'acme', '', ''

`since` is the revision that stored the fact (0: before revisions were recorded). From `expires_at` on, in microseconds
since 1970, the fact does not count.

A row belongs to its signature's environment, so no row can be in two environments. Deleted facts move to the table of
past facts.
"""

import json
from collections.abc import Iterable
from typing import Any

from django.db import models
from django.utils.functional import cached_property
from django.utils.module_loading import import_string

from policy.models import Environment

MAX_ARGUMENTS = 5
COLUMNS = ("a0", "a1", "a2", "a3", "a4")
Row = tuple[int, *tuple[str, ...]]  # sig, a0 … a4
ROW_LENGTH = 1 + len(COLUMNS)
NewRow = tuple[Any, ...]  # sig, a0 … a4, since, expires_at
GoneRow = tuple[Any, ...]  # sig, a0 … a4, until


class Signature(models.Model):
    """A predicate and its argument types in one environment. Its number never changes and is never reused."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="signatures")
    predicate = models.TextField()
    types = models.TextField()  # a JSON array, so that type names are unambiguous
    may_end = models.BooleanField(default=False, db_default=False, editable=False)  # it has had a fact with an expiry
    # The revision that created the signature: it had no facts before. 0: unknown, it may have had some.
    since = models.BigIntegerField(default=0, db_default=0, editable=False)
    # Bit i: when last counted, each value of argument i was in few facts. It decides between plans, not about answers.
    narrow = models.IntegerField(default=0, db_default=0, editable=False)

    class Meta:
        db_table = "authz_signature"
        verbose_name = "fact"  # the admin registers its pages about facts under this model
        constraints = [
            models.UniqueConstraint(fields=["environment", "predicate", "types"], name="signature_environment_shape")
        ]
        indexes = [models.Index(fields=["environment", "since"], name="signature_since")]

    def __str__(self) -> str:
        return f"{self.predicate} {self.types}"

    @cached_property
    def signature(self) -> Any:
        """Return the engine's `Signature`, which a Django project that starts does not need."""
        return import_string("policy.rules.program.Signature")(self.predicate, types_of_text(self.types))


def text_of_types(types: tuple[str, ...]) -> str:
    return json.dumps(types, ensure_ascii=False, separators=(",", ":"))


def types_of_text(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


# ---- indexes -------------------------------------------------------------------------------------------------------
# Choose an index for looking up facts by known columns, as SQLite has no statistics to do so.
#
# SQLite's planner rates an index that lacks `since` or `expires_at` worse than a scan of all facts of a signature. So
# statements that read those columns name their index.

STORED, PAST = "authz_fact", "authz_past_fact"
_PREFERRED = ("a0", "a2", "a3", "a4", "a1")  # a1 last: it mostly has names of roles or relations, each with many facts
_PARTIAL = {STORED: ("a3", "a4"), PAST: ("a2", "a3", "a4")}  # columns whose index has no empty ids


def leading(known: Iterable[str]) -> str | None:
    """Return the column by which to look up facts, among those whose ids are known."""
    names = set(known)
    return next((each for each in _PREFERRED if each in names), None)


def hint(table: str, column: str | None) -> str:
    """Return ` INDEXED BY …`, to follow the table's name; "" for `a0` of stored facts, served by their primary key."""
    if column is None or (table, column) == (STORED, "a0"):
        return ""
    return f" INDEXED BY {table.removeprefix('authz_')}_{column}"


def condition(table: str, column: str | None, alias: str = "") -> str:
    """Return the condition of a partial index, which a statement must repeat to use it; "" if the index is complete."""
    return f"{alias}{column} <> ''" if column in _PARTIAL[table] else ""
