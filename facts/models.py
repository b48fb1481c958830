"""The tables of facts: a narrow one of stored facts, one of past facts, and the signatures that define what rows mean.

A row is `sig, a0 … a4`: the number of a signature (an environment, a predicate and the types of the arguments), and the
arguments' ids, '' beyond the signature's arity. With signature 7 = `has_role(User, String, Organization)`:

    has_role(User:ann, "owner", Organization:acme)  ->  7, 'ann', 'owner', 'acme', '', ''

A row belongs to its signature's environment, so no row can be in two environments. Deleted facts move to the table of
past facts.
"""

from typing import Any

from django.db import models

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


class Fact(models.Model):  # noqa: DJ008  never shown as a row: `facts.wire.Fact` prints
    """A row of the fact table, for reading only: the migrations create the table, and `facts.store` writes to it."""

    pk = models.CompositePrimaryKey("sig", *COLUMNS)
    sig = models.IntegerField()
    a0 = models.TextField()
    a1 = models.TextField()
    a2 = models.TextField()
    a3 = models.TextField()
    a4 = models.TextField()
    since = models.BigIntegerField()  # the revision that stored it; 0: stored before revisions were recorded
    expires_at = models.BigIntegerField(null=True)  # microseconds since 1970; from then on the fact does not count

    class Meta:
        db_table = "authz_fact"
        managed = False
