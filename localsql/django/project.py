"""What Django runs for a project: system checks, and the policy file after `migrate`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path

from django.core.checks import CheckMessage, Error, Warning
from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, connections

from facts.accept import unaccepted_of
from localsql.binding_keys import key_from_text
from localsql.django.bindings import registry
from localsql.django.tables import id_field, kind_of, table_of
from policy.core.config import settings
from policy.core.journal import By
from policy.errors import AuthzError
from policy.files import text_of_file
from policy.language.source import Source
from policy.models import Environment, PolicyVersion, environment_named
from policy.publishing import publish
from policy.rules import compile_source
from policy.rules.program import Program

# ---- the policy file ------------------------------------------------------------------------------------------------


def migrated(verbosity: int) -> None:
    """Publish the policy file if it changed, after its tests pass; create the environment if it is missing."""
    environment, _ = Environment.objects.get_or_create(
        slug=settings.ENVIRONMENT, defaults={"name": settings.ENVIRONMENT.capitalize()}
    )
    if settings.POLICY is None:
        return
    path = str(settings.POLICY)
    try:
        text = text_of_file(path)
        if not settings.PUBLISH_ON_MIGRATE:
            if _active_text(environment) != text and verbosity:
                print(f"The policy file {path} differs from the active policy; publish it with `manage.py publish`.")
            return
        found = publish(environment.pk, text, Path(path).name, by=By("migrate"))
    except AuthzError as refused:
        raise CommandError(
            f"{path}: {refused}\nThe database is migrated, but the policy is still the previous one."
        ) from None
    if verbosity and not found.is_unchanged:
        print(f"  Policy {path}: {found.message}")


def _active_text(environment: Environment) -> str | None:
    if environment.policy_version_id is None:
        return None
    return PolicyVersion.objects.values_list("source", flat=True).get(pk=environment.policy_version_id)


# ---- system checks ------------------------------------------------------------------------------------------------


def findings(databases: Iterable[str] | None) -> Iterator[CheckMessage]:
    program = None
    if settings.POLICY is not None:
        try:
            program = compile_source(Source(text_of_file(str(settings.POLICY)), str(settings.POLICY)))
        except AuthzError as refused:
            yield Error(f"the policy does not compile: {refused}", hint="Correct AUTHZ['POLICY'].", id="authz.E102")
    yield from findings_of_bindings(program)
    if databases and DEFAULT_DB_ALIAS in databases:
        yield from _of_database()


def findings_of_bindings(program: Program | None) -> Iterator[CheckMessage]:
    connection = connections[DEFAULT_DB_ALIAS]
    for binding in registry.bindings:
        try:
            table_of(binding, connection)
        except AuthzError as refused:
            yield Error(f"{binding.place}: bind: {refused}", hint="Correct the binding.", id="authz.E103")
            continue
        signature = key_from_text(binding.text).signature
        if program is not None and not program.accepts(signature.predicate, signature.types):
            unused = unaccepted_of(program, signature)
            yield Warning(f"{binding.place}: bind: {unused}", hint="Correct it, or remove it.", id="authz.W104")
    for model, known in registry.types.items():
        if program is not None and not program.knows(known.name):
            near = get_close_matches(known.name, sorted(program.types), 1)
            hint = f"Did you mean `{near[0]}`?" if near else "Declare it, or remove type_of."
            yield Warning(f"{model._meta.label}: the policy has no type `{known.name}`", hint=hint, id="authz.W105")
        if kind_of(id_field(model, known.column), connection) is None:
            yield Error(
                f"{model._meta.label}: its ids cannot be compared exactly", hint="Use another column.", id="authz.E106"
            )


def _of_database() -> Iterator[CheckMessage]:
    if settings.POLICY is None or "authz_environment" not in connections[DEFAULT_DB_ALIAS].introspection.table_names():
        return
    environment = environment_named(settings.ENVIRONMENT)
    active = None if environment is None else _active_text(environment)
    try:
        is_active = active == text_of_file(str(settings.POLICY))
    except AuthzError:
        return  # reported above
    if not is_active:
        yield Warning(
            "the policy file differs from the active policy", hint="`manage.py migrate` publishes it.", id="authz.W107"
        )
