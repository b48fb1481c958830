"""Find or create environments, create test environments, and describe the installation."""

import platform
import secrets
import sqlite3
import string
from dataclasses import asdict

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connection

from authz_project import __version__
from authz_project.database import database_place
from authz_project.keys import TEST_SLUG, create_key
from authz_project.models import EnvironmentPlace
from authz_project.spaces import AT_HOME, NotASpace, find, place_of, space_for_tests, space_named
from facts.store import copy_facts
from facts.table import execute
from policy.core.journal import By, changing
from policy.core.spaces import HOME, enter, entered
from policy.errors import AuthzError
from policy.models import DEFAULT_SLUG, SLUG, Environment, PolicyVersion, default_environment
from policy.publishing import RecordedResults, active_version

# ---- environments by name -----------------------------------------------------------------------------------------


class NotAName(AuthzError):
    """A text that cannot be the short name of an environment."""


def environment_made(slug: str) -> Environment:
    """Return the environment with this name, creating it if it does not exist."""
    if slug == DEFAULT_SLUG:
        return default_environment()
    enter(find(slug))
    if (found := Environment.objects.filter(slug=slug).first()) is not None:
        return found
    _refuse_unfit(slug)
    return Environment.objects.create(slug=slug, name=slug)


def made_in(space: str, slug: str) -> Environment:
    """Create an environment in a space; an empty name is the home database."""
    _refuse_unfit(slug)
    if space != HOME:
        space_named(space)
    with entered(place_of(slug).space):
        if slug == DEFAULT_SLUG or Environment.objects.filter(slug=slug).exists():
            message = f"Environment `{slug}` already exists. Move it with `spaces move {slug} {space or AT_HOME}`."
            raise NotASpace(message)
    with entered(HOME):
        EnvironmentPlace.objects.filter(slug=slug).delete()
        if space != HOME:
            EnvironmentPlace.objects.create(slug=slug, space=space)
    with entered(space):
        return Environment.objects.create(slug=slug, name=slug)


def _refuse_unfit(slug: str) -> None:
    if TEST_SLUG.fullmatch(slug):
        raise NotAName(f"`{slug}` is reserved for test environments. Use another name.")
    try:
        SLUG(slug)
    except ValidationError:
        raise NotAName(f"`{slug}` is not a valid name for an environment: use 1 to 40 letters and digits") from None


# ---- test environments --------------------------------------------------------------------------------------------

_ALPHABET = string.ascii_lowercase + string.digits


def create_test_environment(copied: bool) -> str:
    """Create an environment, empty or `copied` from the default one, and return a key to it.

    Empty ones are created in the space `test`, if there is one, which can then be dropped as a whole.
    """
    with entered(HOME if copied else space_for_tests()), changing():
        if connection.vendor == "postgresql":  # copy the policy and the facts of one moment
            execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        return _test_environment(copied)


def _test_environment(copied: bool) -> str:
    slug = "testenv" + "".join(secrets.choice(_ALPHABET) for _ in range(11))  # must match TEST_SLUG
    environment = Environment.objects.create(slug=slug, name="Test environment")
    if copied:
        _copy(default_environment(), environment)
    return create_key(environment, "test environment", by=By("test environment"))[1]


def _copy(origin: Environment, target: Environment) -> None:
    version = origin.policy_version
    if version is not None:
        target.policy_version = PolicyVersion.objects.create(
            environment=target, number=1, source=version.source, filename=version.filename, digest=version.digest,
            author=version.author, note=version.note, **asdict(RecordedResults.of_version(version)),
        )  # fmt: skip
        target.save(update_fields=["policy_version"])
    copy_facts(origin.id, target.id)


# ---- versions and settings, as shown by `version` and `serve` -----------------------------------------------------


def database_text() -> str:
    """Return the kind, version and location of the database, without a password."""
    return f"{database_version()}, {database_place()}"


def database_version() -> str:
    """Return only the kind and version of the database: `PostgreSQL 16.4`."""
    connection.ensure_connection()
    if connection.vendor == "sqlite":
        return f"SQLite {sqlite3.sqlite_version}"
    major, minor = divmod(connection.pg_version, 10_000)  # type: ignore[attr-defined]
    return f"PostgreSQL {major}.{minor}"


def facts_text() -> str:
    """Return the versions that pages show to everyone. Sends no query, so that no page waits for the database."""
    return f"authz {__version__} · Python {platform.python_version()} · {_kind_of_database()}"


def _kind_of_database() -> str:
    """Return the kind and version of the database; PostgreSQL's version only once a calling thread had a connection."""
    if connection.connection is not None:
        _known_version[connection.vendor] = database_version()
    return _known_version[connection.vendor]


_known_version = {"sqlite": f"SQLite {sqlite3.sqlite_version}", "postgresql": "PostgreSQL"}


def policy_text(environment_id: int, slug: str) -> str:
    version = active_version(environment_id)
    if version is None:
        return f"none in `{slug}`"
    return f"version {version.number} of `{slug}`, since {version.created_at:%Y-%m-%dT%H:%MZ}"


def unset() -> dict[str, str]:
    """Return the unset settings that are recommended for production, each with the consequence."""
    wanted = {
        "ALLOWED_HOSTS": ("any Host header is accepted", "*" not in settings.ALLOWED_HOSTS),
        "PUBLIC_URL": ("the admin's cookies are also sent over plain HTTP", settings.SESSION_COOKIE_SECURE),
        "DECISION_LOG": ("decisions are not logged", bool(settings.DECISION_LOG)),
    }
    return {name: consequence for name, (consequence, is_set) in wanted.items() if not is_set}
