"""The environment of a project: whose facts and policy its checks use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.db.models.signals import post_save

from checks.asking.ask import Trusted
from policy.core.config import settings
from policy.errors import NotFound
from policy.models import Environment, environment_named

T = TypeVar("T")

_known: dict[str, Trusted] = {}  # by slug
_uncommitted: set[int] = set()  # made in transactions of this process: a rollback gives their numbers to others


def asker() -> Trusted:
    """Return the project itself as the asker about its environment (`AUTHZ["ENVIRONMENT"]`)."""
    slug: str = settings.ENVIRONMENT  # type: ignore[misc]  # a project has it in AUTHZ
    found = _known.get(slug)
    if found is None:
        environment = environment_named(slug)
        if environment is None:
            raise ImproperlyConfigured(f"environment `{slug}` does not exist; run `manage.py migrate` to create it")
        found = Trusted(environment.pk)
        if environment.pk not in _uncommitted:
            _known[slug] = found
    return found


def _note_created(instance: Environment, created: bool, using: str, **_: object) -> None:
    _known.clear()
    if created and connections[using].in_atomic_block:
        _uncommitted.add(instance.pk)
        transaction.on_commit(lambda: _uncommitted.discard(instance.pk), using)


post_save.connect(_note_created, sender=Environment)


def with_asker(act: Callable[[Trusted], T]) -> T:
    """Call `act` with the asker; again if its environment was created anew, as tests do."""
    try:
        return act(asker())
    except NotFound:
        _known.clear()
        return act(asker())
