"""Environments, and the versions of their policies."""

from django.conf import settings
from django.core.validators import RegexValidator
from django.db import models

from policy.core import spaces
from policy.core.clock import new_moment

SLUG = RegexValidator(r"\A[A-Za-z0-9]{1,40}\Z", "an environment's slug is 1 to 40 letters and digits")
DEFAULT_SLUG = "default"
EDIT_DRAFTS = "edit"  # the permission to write drafts of policies, without publishing them


class Environment(models.Model):
    """A policy with its own facts, history and API keys; most installations have one environment."""

    slug = models.CharField("slug", max_length=40, unique=True, validators=[SLUG])
    name = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)
    policy_version = models.ForeignKey(
        "PolicyVersion", null=True, blank=True, on_delete=models.RESTRICT, related_name="+", editable=False
    )
    offset = models.BigIntegerField(default=0, db_default=0, editable=False)  # incremented by every committed change
    # A new random number whenever facts of a new signature may be stored.
    signature_mark = models.BigIntegerField(default=0, db_default=0, editable=False)
    # A new random number with every change: while it is the same, the facts and the policy are the same.
    moment = models.BigIntegerField(default=new_moment, editable=False)
    # A new random number whenever a signature gets its first fact with an expiry (see `Signature.may_end`).
    ends_mark = models.BigIntegerField(default=0, db_default=0, editable=False)
    # The oldest revision as of which all facts are still known; earlier history was pruned, or never kept.
    horizon = models.BigIntegerField(default=0, db_default=0, editable=False)
    # JSON: which service it copies, and how far (see `authz_project.copies`). Empty: it is changed here.
    follows = models.TextField(default="", db_default="", editable=False)

    needs_approval = models.BooleanField(
        "two persons to publish",
        default=False,
        db_default=False,
        help_text="Publishing and activating a policy make a request, which another publisher approves.",
    )

    class Meta:
        db_table = "authz_environment"
        ordering = ["slug"]

    def __str__(self) -> str:
        return self.slug


class PolicyVersion(models.Model):
    """A published text. The active one is that of its environment's `policy_version`."""

    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="policy_versions")
    number = models.PositiveIntegerField()  # from 1, in each environment
    source = models.TextField()
    filename = models.TextField(null=True, blank=True)  # noqa: DJ001 as sent: null and "" are returned as they are
    digest = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)
    # The publisher. Its revision has it too, but revisions are pruned with the history, and versions are not.
    author = models.TextField(blank=True, default="", db_default="")
    note = models.TextField(blank=True, default="", db_default="")  # the publisher's
    # Results of publishing it; null in versions that are older than these columns. See `policy.publishing`.
    tests = models.PositiveIntegerField(null=True)
    failed_tests = models.PositiveIntegerField(null=True)  # null if the tests did not complete
    rules = models.PositiveIntegerField(null=True)  # number of rules in the text
    exercised_rules = models.PositiveIntegerField(null=True)  # by any test; null if measuring took too long

    class Meta:
        db_table = "authz_policy_version"
        ordering = ["environment", "-number"]
        constraints = [models.UniqueConstraint(fields=["environment", "number"], name="policy_version_number")]

    def __str__(self) -> str:
        return f"{self.environment.slug} {self.number}"


class Revision(models.Model):
    """A committed change of an environment. Its number is the offset that clients see; the first one is 1."""

    pk = models.CompositePrimaryKey("environment", "number")
    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="revisions", db_index=False)
    number = models.BigIntegerField()
    at = models.BigIntegerField()  # the database's clock, in microseconds; never less than in the preceding revision
    author = models.TextField(blank=True)  # `key "billing"`, `admin ann`, `load_facts`
    request_id = models.TextField(blank=True)
    policy_version = models.ForeignKey(  # the version that is active from this revision on
        PolicyVersion, null=True, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    kind = models.TextField()  # see `policy.core.journal.Kind`
    inserted = models.BigIntegerField()  # facts that did not exist before
    deleted = models.BigIntegerField()  # facts that existed before

    class Meta:
        db_table = "authz_revision"
        indexes = [models.Index(fields=["environment", "at"], name="revision_at")]

    def __str__(self) -> str:
        return f"{self.number} {self.kind}"


class PolicyDraft(models.Model):
    """An unpublished policy text that is being edited: at most one for each user and environment."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="+")
    source = models.TextField()
    filename = models.TextField(blank=True)
    seen = models.PositiveIntegerField(null=True)  # the version that was active when editing began
    stamp = models.BigIntegerField()  # a new random number each time the draft is saved
    saved_at = models.DateTimeField(auto_now=True)

    class Meta:
        db_table = "authz_policy_draft"
        default_permissions = (EDIT_DRAFTS,)  # users who may publish need no other
        constraints = [models.UniqueConstraint(fields=["user", "environment"], name="policy_draft_one")]

    def __str__(self) -> str:
        return f"{self.environment.slug}, {self.saved_at:%Y-%m-%dT%H:%MZ}"


class PublishRequest(models.Model):
    """A request to make a version active, which another person approves or rejects."""

    version = models.ForeignKey(PolicyVersion, on_delete=models.CASCADE, related_name="requests")
    replaces = models.PositiveIntegerField()  # the number of the version that was active; 0 for none
    force = models.BooleanField()  # activate it even if its tests fail
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    author = models.TextField()  # as in revisions
    created_at = models.DateTimeField(auto_now_add=True)
    outcome = models.TextField(blank=True, default="")  # approved or rejected; empty while it is open
    reviewer = models.TextField(blank=True, default="")  # as in revisions
    comment = models.TextField(blank=True, default="")  # the reviewer's
    decided_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "authz_publish_request"
        default_permissions = ()  # whoever may activate versions decides
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.version}, by {self.author}"


def environment_named(slug: str) -> Environment | None:
    """Return the environment with this slug, or None. NUL is excluded first: PostgreSQL rejects it in a text."""
    return None if "\0" in slug else Environment.objects.filter(slug=slug).first()


def default_environment() -> Environment:
    """Return the environment `default`, the only one of most installations; create it if it is missing.

    In a space, return its first one: `default` is in the home database.
    """
    if spaces.current():
        return Environment.objects.order_by("slug")[:1].get()
    return Environment.objects.get_or_create(slug=DEFAULT_SLUG, defaults={"name": "Default"})[0]
