"""API keys: who may talk to which environment; and who tries to log in."""

from django.db import models

from policy.models import Environment


class ApiKey(models.Model):
    """A bearer of `e_<environment>_<key id>_<secret>`. Only the SHA-256 of the whole is kept."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="api_keys")
    label = models.CharField(max_length=200, blank=True)
    prefix = models.CharField(max_length=120, unique=True)  # all but the secret: what people recognise it by
    hash = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)  # coarse: to the hour
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    token: str  # the whole of it, no field: only the one that was just made has it

    class Meta:
        db_table = "api_key"
        verbose_name = "API key"
        ordering = ["environment", "prefix"]

    def __str__(self) -> str:
        return f"{self.prefix}_…"


class LoginAttempts(models.Model):
    """How often a login was tried, `since` the first one that counts. The key is a hash of who tried."""

    key = models.CharField(max_length=64, unique=True)
    count = models.PositiveIntegerField(default=0)
    since = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "login_attempts"

    def __str__(self) -> str:
        return f"{self.count} since {self.since}"
