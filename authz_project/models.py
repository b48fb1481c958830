"""Models of API keys, login attempts and provisioned users."""

from uuid import uuid4

from django.db import models

from policy.active import Scope
from policy.models import Environment

SCOPE_COLUMNS = {
    Scope.READ: "may_read", Scope.FACTS: "may_change_facts", Scope.POLICY: "may_change_policy",
    Scope.FOLLOW: "may_follow",
}  # fmt: skip


class ApiKey(models.Model):
    """A bearer key: `e_<environment>_<key id>_<secret>`. Only the SHA-256 of the whole is stored."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="api_keys")
    label = models.CharField(max_length=200, blank=True)
    prefix = models.CharField(max_length=120, unique=True)  # all but the secret, for people to recognize the key
    hash = models.CharField(max_length=64, unique=True)
    # Current scopes: statements read these, so that a removed scope has effect at once. See `policy.active`.
    may_read = models.BooleanField("read", default=True, db_default=True)
    may_change_facts = models.BooleanField("change facts", default=True, db_default=True)
    may_change_policy = models.BooleanField("publish policies", default=True, db_default=True)
    may_follow = models.BooleanField("follow", default=True, db_default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.TextField(blank=True, default="", db_default="")  # an author, as in revisions
    created_by_user = models.IntegerField(null=True, editable=False)  # a user's id, which is never given again
    last_used_at = models.DateTimeField("last used", null=True, blank=True)  # a day: see `authz_project.keys`
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    successor = models.ForeignKey("self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+")

    token: str  # the whole key; not a field: only set on a key that was just created

    class Meta:
        db_table = "api_key"
        verbose_name = "API key"
        ordering = ["environment", "prefix"]

    def __str__(self) -> str:
        return f"{self.prefix}_…"

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return tuple(scope for scope, column in SCOPE_COLUMNS.items() if getattr(self, column))


class LoginAttempts(models.Model):
    """The number of login attempts, `since` the first one that counts. The key is a hash of name and address."""

    key = models.CharField(max_length=64, unique=True)
    count = models.PositiveIntegerField(default=0)
    since = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "login_attempts"

    def __str__(self) -> str:
        return f"{self.count} since {self.since}"


def new_uid() -> str:
    return str(uuid4())


class ScimResource(models.Model):
    """A user or group of an identity provider, as `authz_project.scim` got it."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="+")
    kind = models.CharField(max_length=10)  # Users or Groups
    uid = models.CharField(max_length=36, unique=True, default=new_uid)  # the protocol's id
    name = models.CharField(max_length=512)  # its userName or displayName, as it is compared
    title = models.CharField(max_length=512, default="")  # the same, as it was sent
    # The users among a group's members, who are all in `resource`: so a user's groups are found without parsing any.
    members = models.ManyToManyField("self", db_table="scim_member", related_name="groups", symmetrical=False)
    external_id = models.CharField(max_length=512, null=True)  # noqa: DJ001 null is distinct from all others
    resource = models.TextField()  # JSON
    facts = models.TextField(default="[]")  # those that follow from a user, as JSON
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "scim_resource"
        default_permissions = ()  # no page shows them
        constraints = [
            models.UniqueConstraint(fields=["environment", "kind", "name"], name="scim_resource_name"),
            models.UniqueConstraint(fields=["environment", "kind", "external_id"], name="scim_resource_external_id"),
        ]

    def __str__(self) -> str:
        return f"{self.kind}/{self.uid}"


class Space(models.Model):
    """A schema with all tables of the service, in which environments live. See `authz_project.spaces`."""

    name = models.CharField(max_length=40, primary_key=True)  # of the schema, too
    server = models.CharField(max_length=40, blank=True)  # in DATABASE_URLS; empty: that of DATABASE_URL
    number = models.PositiveSmallIntegerField(unique=True)  # determines the ids that are given there
    is_ready = models.BooleanField(default=False)  # it has tables
    ids_given = models.PositiveIntegerField(default=0, db_default=0)  # before it was dropped
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "authz_space"
        ordering = ["name"]
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.name


class EnvironmentPlace(models.Model):
    """The space in which an environment lives; without a row, an environment lives in the home database."""

    slug = models.CharField(max_length=40, primary_key=True)
    space = models.CharField(max_length=40, blank=True)
    target = models.CharField(max_length=40, null=True)  # noqa: DJ001 where it is being moved; empty: home, null: nowhere

    class Meta:
        db_table = "authz_place"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.slug} in {self.space or 'home'}"
