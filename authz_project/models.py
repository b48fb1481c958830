"""API keys: who may talk to which environment; and who tries to log in."""

from django.db import models

from policy.models import Environment
from policy.scopes import Scope

SCOPE_COLUMNS = {Scope.READ: "may_read", Scope.FACTS: "may_change_facts", Scope.POLICY: "may_change_policy"}


class ApiKey(models.Model):
    """A bearer of `e_<environment>_<key id>_<secret>`. Only the SHA-256 of the whole is kept."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="api_keys")
    label = models.CharField(max_length=200, blank=True)
    prefix = models.CharField(max_length=120, unique=True)  # all but the secret: what people recognise it by
    hash = models.CharField(max_length=64, unique=True)
    # What it is good for, now: statements read these, so that what is taken away counts at once. See `policy.scopes`.
    may_read = models.BooleanField("read", default=True, db_default=True)
    may_change_facts = models.BooleanField("change facts", default=True, db_default=True)
    may_change_policy = models.BooleanField("publish policies", default=True, db_default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.TextField(blank=True, default="", db_default="")  # as revisions name authors
    last_used_at = models.DateTimeField("last used", null=True, blank=True)  # the day: see `authz_project.keys`
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    successor = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    token: str  # the whole of it, no field: only the one that was just made has it

    class Meta:
        db_table = "api_key"
        verbose_name = "API key"
        ordering = ["environment", "prefix"]

    def __str__(self) -> str:
        return f"{self.prefix}_…"

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Return what it is good for."""
        return tuple(scope for scope, column in SCOPE_COLUMNS.items() if getattr(self, column))


class LoginAttempts(models.Model):
    """How often a login was tried, `since` the first one that counts. The key is a hash of who tried."""

    key = models.CharField(max_length=64, unique=True)
    count = models.PositiveIntegerField(default=0)
    since = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "login_attempts"

    def __str__(self) -> str:
        return f"{self.count} since {self.since}"
