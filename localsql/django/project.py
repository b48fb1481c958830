"""What Django runs for a project: system checks, and the policy file after `migrate`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path

from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, OperationalError, connection
from django.db.migrations.executor import MigrationExecutor

from localsql.binding_keys import key_from_text, unused
from localsql.django.bindings import registry
from localsql.django.tables import id_field, kind_of, table_of
from policy.core.config import settings
from policy.core.journal import By
from policy.errors import AuthzError
from policy.files import text_of_file
from policy.models import Environment, environment_named
from policy.publishing import publish
from policy.rules import compile_text
from policy.rules.program import Program

# ---- the policy file ------------------------------------------------------------------------------------------------


_LABELS = ("authz_policy", "authz_facts", "authz_localsql")


def _has_all_migrations() -> bool:
    """Return whether the tables are those of the models; an upgrade's `migrate` begins when they are not yet."""
    executor = MigrationExecutor(connection)
    return not executor.migration_plan([node for node in executor.loader.graph.leaf_nodes() if node[0] in _LABELS])


def migrated(verbosity: int) -> None:
    """Publish the policy file if it changed, after its tests pass; create the environment if it is missing."""
    if not _has_all_migrations():
        return  # `migrate` was only for some apps
    environment, _ = Environment.objects.get_or_create(
        slug=settings.ENVIRONMENT, defaults={"name": settings.ENVIRONMENT.capitalize()}
    )
    if settings.POLICY is None:
        return
    path = str(settings.POLICY)
    try:
        text = text_of_file(path)
        if not settings.PUBLISH_ON_MIGRATE:
            if _active_text() != text and verbosity:
                print(f"The policy file {path} differs from the active policy; publish it with `manage.py publish`.")
            return
        found = publish(environment.pk, text, Path(path).name, by=By("migrate"))
    except AuthzError as refused:
        raise CommandError(
            f"{path}: {refused}\nThe database is migrated, but the policy is still the previous one."
        ) from None
    if verbosity and not found.is_unchanged:
        print(f"  Policy {path}: {found.message}")


def _active_text() -> str | None:
    environment = environment_named(settings.ENVIRONMENT)
    return environment.policy_version.source if environment and environment.policy_version else None


# ---- system checks ------------------------------------------------------------------------------------------------


def findings(databases: Iterable[str] | None) -> Iterator[CheckMessage]:
    program = text = None
    if settings.POLICY is not None:
        try:
            text = text_of_file(str(settings.POLICY))
            program = compile_text(text, str(settings.POLICY))
        except AuthzError as refused:
            yield Error(f"the policy does not compile: {refused}", hint="Correct AUTHZ['POLICY'].", id="authz.E102")
    yield from findings_of_bindings(program)
    is_asked = text is not None and DEFAULT_DB_ALIAS in (databases or ())
    if is_asked and _has_all_migrations() and _active_text() != text:
        hint = "`manage.py migrate` publishes it."
        yield Warning("the policy file differs from the active policy", hint=hint, id="authz.W107")


def findings_of_bindings(program: Program | None) -> Iterator[CheckMessage]:
    for binding in registry.bindings:
        try:
            table_of(binding)
        except (AuthzError, ImproperlyConfigured) as refused:
            yield Error(f"{binding.place}: bind: {refused}", hint="Correct the binding.", id="authz.E103")
            continue
        except OperationalError as failed:  # checks also run where there is no database, as when an image is built
            yield Warning(f"bindings are not checked: {failed}", hint="Check with the database.", id="authz.W112")
            break
        if program is not None and (reason := unused(program, key_from_text(binding.text))):
            yield Warning(f"{binding.place}: bind: {reason}", hint="Correct it, or remove it.", id="authz.W104")
    for model, known in registry.types.items():
        if program is not None and not program.knows(known.name):
            near = get_close_matches(known.name, sorted(program.types), 1)
            hint = f"Did you mean `{near[0]}`?" if near else "Declare it, or remove type_of."
            yield Warning(f"{model._meta.label}: the policy has no type `{known.name}`", hint=hint, id="authz.W105")
        if kind_of(id_field(model, known.column)) is None:
            said = f"{model._meta.label}: its ids cannot be compared exactly"
            yield Error(said, hint="Use another column.", id="authz.E106")
