"""State of outboxes: rows that were applied, but may still be in the application's table."""

from django.db import models

from policy.models import Environment


class OutboxState(models.Model):
    """An outbox of an environment. `turn` is incremented with each change of the stored rows."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="+")
    name = models.TextField()  # its identity, according to its server
    turn = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        db_table = "authz_outbox_state"
        constraints = [models.UniqueConstraint(fields=["environment", "name"], name="outbox_state_name")]

    def __str__(self) -> str:
        return self.name


class OutboxRow(models.Model):
    """A row that was applied: its id in the outbox, and a digest of its contents."""

    state = models.ForeignKey(OutboxState, on_delete=models.CASCADE, related_name="rows")
    number = models.BigIntegerField()
    digest = models.CharField(max_length=64)

    class Meta:
        db_table = "authz_outbox_row"
        constraints = [models.UniqueConstraint(fields=["state", "number"], name="outbox_row_number")]

    def __str__(self) -> str:
        return str(self.number)
