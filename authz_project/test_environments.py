"""Environments for one test run each."""

import secrets
import string
from dataclasses import asdict

from authz_project.keys import create_key
from facts.store import copy_facts
from policy.figures import Figures
from policy.models import Environment, PolicyVersion, default_environment
from policy.offsets import changing
from policy.revisions import By

_ALPHABET = string.ascii_lowercase + string.digits


@changing()
def create_test_environment(copied: bool) -> str:
    """Return a key to a new environment, `copied` from the default one or empty."""
    slug = "testenv" + "".join(secrets.choice(_ALPHABET) for _ in range(11))  # as TEST_SLUG
    environment = Environment.objects.create(slug=slug, name="Test environment")
    if copied:
        _copy(default_environment(), environment)
    return create_key(environment, "test environment", by=By("test environment"))[1]


def _copy(origin: Environment, target: Environment) -> None:
    version = origin.policy_version
    if version is not None:
        target.policy_version = PolicyVersion.objects.create(
            environment=target, number=1, source=version.source, filename=version.filename, digest=version.digest,
            author=version.author, note=version.note, **asdict(Figures.of_version(version)),
        )  # fmt: skip
        target.save(update_fields=["policy_version"])
    copy_facts(origin.id, target.id)
