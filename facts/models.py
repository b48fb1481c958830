"""Where facts live: one narrow table of rows, one of those that are past, and the signatures that give them meaning.

A row is `sig, a0 … a4`: the number of a signature (an environment, a predicate and the types of the
arguments) and the ids, '' beyond the signature's arity. Environments are isolated by construction: a row
belongs to the one its signature belongs to. What is deleted moves to the table of past facts.
"""

from typing import Any

from django.db import models

from policy.models import Environment

MAX_ARGUMENTS = 5
COLUMNS = ("a0", "a1", "a2", "a3", "a4")
Row = tuple[int, *tuple[str, ...]]  # sig, a0 … a4
ROW_LENGTH = 1 + len(COLUMNS)
NewRow = tuple[Any, ...]  # the same, since, expires_at
GoneRow = tuple[Any, ...]  # a row and until

# Only facts that have a fourth or fifth argument pay for the index that finds them by it. A statement that
# binds one of these columns must carry its condition too, or neither database will use the index.
INDEX_CONDITIONS = {"a3": "a3 <> ''", "a4": "a4 <> ''"}


class Signature(models.Model):
    """A predicate and its argument types in one environment. Its number never changes and is never reused."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="signatures")
    predicate = models.TextField()
    types = models.TextField()  # a JSON array: no type name can be mistaken for two
    may_end = models.BooleanField(default=False, db_default=False, editable=False)  # some such fact has had an end
    # The revision at which it was given its number: no such fact was stored before. 0: perhaps there always were some.
    since = models.BigIntegerField(default=0, db_default=0, editable=False)

    class Meta:
        db_table = "signature"
        verbose_name = "fact"  # what the admin shows by signature
        constraints = [
            models.UniqueConstraint(fields=["environment", "predicate", "types"], name="signature_environment_shape")
        ]
        indexes = [models.Index(fields=["environment", "since"], name="signature_since")]

    def __str__(self) -> str:
        return f"{self.predicate} {self.types}"


class Fact(models.Model):  # noqa: DJ008  never shown as a row: `facts.wire.Fact` prints
    """A row of the fact table, for reading; the migrations make the table, `facts.store` writes it."""

    pk = models.CompositePrimaryKey("sig", *COLUMNS)
    sig = models.IntegerField()
    a0 = models.TextField()
    a1 = models.TextField()
    a2 = models.TextField()
    a3 = models.TextField()
    a4 = models.TextField()
    since = models.BigIntegerField()  # the revision at which it was stored; 0: before revisions were kept
    expires_at = models.BigIntegerField(null=True)  # microseconds since 1970: from then on it does not count

    class Meta:
        db_table = "fact"
        managed = False
