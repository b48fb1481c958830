"""Check access with the engine of the project, by statements on the connection and in the transaction of the caller."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.models.signals import post_save
from django.dispatch import receiver

from checks.asking import ask, run
from checks.asking.ask import LiveSession, Trusted
from checks.asking.conditions import AskedCondition
from checks.asking.question import VALUE, Asked, Question, allow
from checks.engine.sql.bound import BoundTables, OuterColumn
from checks.engine.sql.text import Statement
from checks.explain.explain import explain as explained
from facts.store import Deletes, Inserts, apply
from facts.wire import Fact, FactPattern
from localsql.django.interface import AccessCondition, Explained
from localsql.django.tables import value_of
from policy.core import spans
from policy.core.clock import timeline
from policy.core.config import settings
from policy.core.journal import By
from policy.core.memory import Recent
from policy.errors import NotFound
from policy.models import Environment, environment_named
from policy.publishing import publish
from policy.values import STRING, Value

# ---- the environment of a project: whose facts and policy its checks use ------------------------------------------

T = TypeVar("T")

_known: dict[str, Trusted] = {}  # by slug
_uncommitted: set[int] = set()  # made in transactions of this process: a rollback gives their numbers to others


def asker() -> Trusted:
    """Return the project itself as the asker about its environment (`AUTHZ["ENVIRONMENT"]`)."""
    slug: str = settings.ENVIRONMENT
    found = _known.get(slug)
    if found is None:
        environment = environment_named(slug)
        if environment is None:
            raise ImproperlyConfigured(f"environment `{slug}` does not exist; run `manage.py migrate` to create it")
        found = Trusted(environment.pk)
        if environment.pk not in _uncommitted:
            _known[slug] = found
    return found


@receiver(post_save, sender=Environment)
def _note_created(instance: Environment, created: bool, using: str, **_: object) -> None:
    _known.clear()
    if created and connections[using].in_atomic_block:
        _uncommitted.add(instance.pk)
        transaction.on_commit(lambda: _uncommitted.discard(instance.pk), using)


def with_asker(act: Callable[[Trusted], T]) -> T:
    """Call `act` with the asker; again if its environment was created anew, as tests do."""
    try:
        return act(asker())
    except NotFound:
        _known.clear()
        return act(asker())


# ---- checks -------------------------------------------------------------------------------------------------------


class KnownCheck(NamedTuple):
    """The statement of an earlier check with the same types and action, so that the next one need not look for it."""

    session: LiveSession
    bound: BoundTables
    statement: Statement | None  # None: one statement with a slot for each id is not enough
    slots: dict[str, object]
    actor: str  # the slot of its id
    resource: str

    @classmethod
    def of(cls, session: LiveSession, question: Question) -> KnownCheck | None:
        slots = dict(session.given())
        key = session.key((question,), (), None, slots)
        prepared = session.statements.get(key)
        if prepared is None:  # nothing can make it true
            return None
        places = {name: (kind, place) for name, _, kind, place in key.asked[0].variables}  # type: ignore[union-attr]
        (actor_kind, actor), (resource_kind, resource) = places["actor"], places["resource"]
        is_simple = not prepared.rounds and actor_kind == resource_kind == VALUE
        slots["mark"] = prepared.marks.signatures
        return cls(session, key.bound, prepared.statement if is_simple else None, slots, actor, resource)

    def answer(self, actor: Value, resource: Value) -> bool | None:
        """Return the answer; None if the statement is for another policy, or other tables or signatures."""
        if self.statement is None or not self.is_current():
            return None
        slots = self.slots | {"now": run.given_time(), self.actor: actor.id, self.resource: resource.id}
        rows = run.execute(self.statement, slots)
        return next((bool(truth) for version, truth, *_ in rows if version == self.session.version), None)

    def is_current(self) -> bool:
        return self.session is ask.seen_session(asker()) and self.bound is run.bound_tables()


# By the types, the action, and whether actor and resource are equal, since equal values have one slot.
_checks: Recent[tuple[str, str, str, bool], KnownCheck] = Recent(2048)
timeline.forgets(_checks.clear)


def authorize(user: object, action: str, resource: object) -> bool:
    """Return whether the user may perform the action on the resource."""
    actor, what = value_of(user), value_of(resource)
    key = actor.type, action, what.type, actor == what
    known = _checks.get(key)
    if known is not None and not spans.is_on:
        allowed = known.answer(actor, what)
        if allowed is not None:
            return allowed
    question = _question(actor, action, what)
    found = with_asker(partial(ask.answer, question=question))
    if known is None or not (known.session is found.session and known.is_current()):
        known = KnownCheck.of(found.session, question)
        if known is not None:
            _checks.store(key, known)
    return found.holds


def actions(user: object, resource: object) -> set[str]:
    """Return all actions that the user may perform on the resource; `*` stands for every action, if any is allowed."""
    actor, what = Asked.of(value_of(user)), Asked.of(value_of(resource))
    found = with_asker(partial(ask.answer, question=allow(actor, Asked(STRING), what, ("action",))))
    return {"*" if name is None else name for (name,) in found.of_one}


def explain(user: object, action: str, resource: object) -> Explained:
    """Return why the user may perform the action on the resource, or why not; print it."""
    question = _question(value_of(user), action, value_of(resource))
    return Explained(with_asker(partial(explained, question=question)))


def _question(actor: Value, action: str, resource: Value) -> Question:
    if not action:
        raise ValueError("the action must not be empty")
    return allow(Asked.of(actor), Asked(STRING, (action,)), Asked.of(resource))


def condition_sql(wanted: AccessCondition, column: OuterColumn, is_page: bool) -> tuple[str, tuple[Any, ...]]:
    """Return the condition on a column, and its parameters."""
    asked = AskedCondition(wanted.actor, wanted.action, wanted.resource, wanted.type_name)
    return with_asker(lambda trusted: asked.sql(trusted.environment_id, column, is_page))


# ---- facts --------------------------------------------------------------------------------------------------------


def insert_facts(facts: list[Fact]) -> None:
    _apply(Inserts(facts, None))


def delete_facts(patterns: list[FactPattern]) -> int:
    return _apply(Deletes(patterns))


def _apply(change: Inserts | Deletes) -> int:
    """Apply the change; in a transaction by a savepoint, so that it stays usable if the change is rejected."""
    is_inside = connections[DEFAULT_DB_ALIAS].in_atomic_block
    with transaction.atomic(DEFAULT_DB_ALIAS) if is_inside else nullcontext():
        return with_asker(lambda trusted: apply(trusted.environment_id, [change], By("application")).deleted)


def publish_policy(text: str) -> Callable[[], object]:
    """Publish a policy, as tests do; return what to call after the test. Its rollback takes the policy back."""
    publish(asker().environment_id, text, "")
    return lambda: None
