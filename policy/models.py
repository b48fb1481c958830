"""Environments, and the versions of each one's policy."""

import secrets

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models

SLUG = RegexValidator(r"\A[A-Za-z0-9]{1,40}\Z", "an environment's short name is 1 to 40 letters and digits")
DEFAULT_SLUG = "default"


def new_moment() -> int:
    """A number that no other moment has, of any environment, here or in a copy of this database."""
    return secrets.randbits(62)


class Environment(models.Model):
    """Facts, a policy and keys of their own; most installations have one."""

    slug = models.CharField("short name", max_length=40, unique=True, validators=[SLUG])
    name = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    policy_version = models.ForeignKey(
        "PolicyVersion", null=True, blank=True, on_delete=models.RESTRICT, related_name="+", editable=False
    )
    offset = models.BigIntegerField(default=0, db_default=0, editable=False)  # grows with every committed change
    # Another number, drawn by lot, whenever facts of a new signature may be stored from then on.
    signature_mark = models.BigIntegerField(default=0, db_default=0, editable=False)
    # Drawn by lot with every change: while it is the same, so are the facts and the policy.
    moment = models.BigIntegerField(default=new_moment, editable=False)
    # Another number, drawn by lot, whenever facts of a signature may end from then on that did not before.
    ends_mark = models.BigIntegerField(default=0, db_default=0, editable=False)
    # The oldest revision whose facts are still known whole.
    horizon = models.BigIntegerField(default=0, db_default=0, editable=False)

    class Meta:
        db_table = "environment"
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug


class PolicyVersion(models.Model):
    """One uploaded text. The active one is where its environment's `policy_version` points."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="policy_versions")
    number = models.PositiveIntegerField()  # from 1, in each environment
    source = models.TextField()
    filename = models.TextField(null=True, blank=True)  # noqa: DJ001  as sent: null and "" are answered as such
    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)
    # Who published it, as its revision says; that one goes when history is pruned, and versions stay.
    author = models.TextField(blank=True, default="", db_default="")
    note = models.TextField(blank=True, default="", db_default="")  # of whoever published it
    # What was found when it was published. Nothing of a version that is older than these; see `policy.figures`.
    tests = models.PositiveIntegerField(null=True)
    failed_tests = models.PositiveIntegerField(null=True)  # nothing where they were not run to their end
    rules = models.PositiveIntegerField(null=True)  # that stand in the text
    exercised_rules = models.PositiveIntegerField(null=True)  # by some test; nothing where that took too long

    class Meta:
        db_table = "policy_version"
        ordering = ["environment", "-number"]
        constraints = [models.UniqueConstraint(fields=["environment", "number"], name="policy_version_number")]

    def __str__(self) -> str:
        return f"{self.environment.slug} {self.number}"


class Revision(models.Model):
    """One committed change of an environment. Its number is the offset that clients see; before 1, nothing was."""

    pk = models.CompositePrimaryKey("environment", "number")
    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="revisions", db_index=False)
    number = models.BigIntegerField()
    at = models.BigIntegerField()  # by the database's clock, in microseconds; never before that of the one before
    author = models.TextField(blank=True)  # `key "billing"`, `admin ann`, `load_facts`
    request_id = models.TextField(blank=True)
    policy_version = models.ForeignKey(  # the one that is active from then on
        PolicyVersion, null=True, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    kind = models.TextField()  # see `policy.revisions.Kind`
    inserted = models.BigIntegerField()  # facts that were not there before
    deleted = models.BigIntegerField()  # facts that were

    class Meta:
        db_table = "revision"
        indexes = [models.Index(fields=["environment", "at"], name="revision_at")]

    def __str__(self) -> str:
        return f"{self.number} {self.kind}"


class PolicyDraft(models.Model):
    """What somebody writes and has not published: one text for each person and environment."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="+")
    source = models.TextField()
    filename = models.TextField(blank=True)
    seen = models.PositiveIntegerField(null=True)  # the version that was active when it was begun
    stamp = models.BigIntegerField()  # drawn by lot whenever it is saved
    saved_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "policy_draft"
        default_permissions = ()  # whoever may add versions has drafts of them
        constraints = [models.UniqueConstraint(fields=["user", "environment"], name="policy_draft_one")]

    def __str__(self) -> str:
        return f"{self.environment.slug}, {self.saved_at:%Y-%m-%d %H:%M} UTC"


def environment_named(slug: str) -> Environment | None:
    """Return the environment of a short name, if it can be one."""
    return None if "\0" in slug else Environment.objects.filter(slug=slug).first()


def default_environment() -> Environment:
    """The environment that most installations never look beyond; made when it is missing."""
    return Environment.objects.get_or_create(slug=DEFAULT_SLUG, defaults={"name": "Default"})[0]
