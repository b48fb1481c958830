"""Check access inside a Django project, by statements on the connection and in the transaction of the caller."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, cast

from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.models import Model, QuerySet

from checks.asking import ask
from checks.asking.ask import Trusted
from checks.asking.question import Asked, Question, allow
from checks.explain.explain import Explanation, explanation_to_text
from checks.explain.explain import explain as explained
from facts.store import Deletes, Inserts, apply
from facts.wire import Argument, FactPattern
from facts.wire import Fact as Stored
from localsql.django.bindings import registry
from localsql.django.environment import with_asker
from localsql.django.querysets import asked, permitted, permitted_actors
from localsql.django.tables import value_of
from policy.core.config import settings
from policy.core.journal import By
from policy.values import STRING, Value

log = logging.getLogger("authz.denied")

# ---- checks -------------------------------------------------------------------------------------------------------


def authorize(user: object, action: str, resource: object) -> bool:
    """Return whether the user may perform the action on the resource."""
    return with_asker(partial(ask.answer, question=question_of(user, action, resource))).holds


def actions(user: object, resource: object) -> set[str]:
    """Return all actions that the user may perform on the resource; `*` stands for every action, if any is allowed."""
    actor, what = asked(value_of(user)), asked(value_of(resource))
    found = with_asker(partial(ask.answer, question=allow(actor, Asked(STRING), what, ("action",))))
    return {"*" if name is None else name for (name,) in found.of_one}


def who(action: str, resource: object, model: type[Model] | None = None) -> QuerySet[Any]:
    """Return a queryset of the users (or of another model's objects) who may perform the action on the resource."""
    model = model or get_user_model()
    return cast("QuerySet[Any]", model._default_manager.filter(permitted_actors(model, action, resource)))


def explain(user: object, action: str, resource: object) -> Explained:
    """Return why the user may perform the action on the resource, or why not; print it."""
    return Explained(with_asker(partial(explained, question=question_of(user, action, resource))))


def require(user: object, action: str, resource: object) -> None:
    """Raise `PermissionDenied` unless the user may perform the action on the resource.

    What is missing is in its message with `DEBUG` only, as some error pages and APIs show messages to the client. The
    logger `authz.denied` has it at level INFO.
    """
    if authorize(user, action, resource):
        return
    if not (settings.DEBUG or log.isEnabledFor(logging.INFO)):
        raise PermissionDenied
    reason = str(explain(user, action, resource))
    log.info("%s", reason)
    raise PermissionDenied(*((reason,) if settings.DEBUG else ()))


class Explained:
    """An explanation; `str` draws it as a tree."""

    def __init__(self, explanation: Explanation):
        self.explanation = explanation

    @property
    def allowed(self) -> bool:
        return self.explanation.allowed

    def __str__(self) -> str:
        return "\n".join(explanation_to_text(self.explanation, "", is_coloured=False))


def question_of(user: object, action: str, resource: object) -> Question:
    if not action:
        raise ValueError("the action must not be empty")
    return allow(asked(value_of(user)), Asked(STRING, (action,)), asked(value_of(resource)))


# ---- facts --------------------------------------------------------------------------------------------------------

_BY = By("application")
_PREDICATE_AND_ARGUMENTS = "a fact is a predicate and its arguments, such as ('has_role', user, 'viewer', folder)"


class _Facts:
    """Stored facts, changed in the transaction of the caller, if there is one."""

    def insert(self, *facts: tuple[Any, ...], until: datetime | None = None) -> None:
        """Store facts, such as `("has_role", user, "viewer", folder)`. With `until`, they expire then."""
        if until is not None and until.tzinfo is None:
            raise ValueError("`until` has no time zone; use django.utils.timezone")
        ends = None if until is None else round(until.timestamp() * 1_000_000)
        stored = [Stored(name, tuple(map(value_of, args)), ends) for name, args in map(_parts, facts)]
        self._apply(Inserts(stored, None))

    def delete(self, *patterns: tuple[Any, ...]) -> int:
        """Delete facts; return how many. In a pattern, None is any value, and a model any of its objects."""
        return self._apply(
            Deletes([FactPattern(name, tuple(map(_argument, args))) for name, args in map(_parts, patterns)])
        )

    def _apply(self, change: Inserts | Deletes) -> int:
        def act(trusted: Trusted) -> int:
            with _within_caller():
                return apply(trusted.environment_id, [change], _BY).deleted

        return with_asker(act)


facts = _Facts()


@contextmanager
def _within_caller() -> Iterator[None]:
    """Use a savepoint in a caller's transaction, which stays usable if the change is rejected."""
    if not connections[DEFAULT_DB_ALIAS].in_atomic_block:
        yield
        return
    with transaction.atomic(DEFAULT_DB_ALIAS):
        yield


def _parts(fact: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    match fact:
        case (str() as predicate, *args) if args:
            return predicate, args
    raise TypeError(f"{_PREDICATE_AND_ARGUMENTS}, not {fact!r}")


def _argument(thing: object) -> Argument:
    if thing is None:
        return Argument()
    if isinstance(thing, type) and issubclass(thing, Model):
        return Argument(registry.type_of(thing).name)
    value: Value = value_of(thing)
    return Argument(value.type, value.id)


__all__ = ["actions", "authorize", "explain", "facts", "permitted", "require", "who"]
