"""Check access with the engine of the project, by statements on the connection and in the transaction of the caller."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import nullcontext, suppress
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, NotSupportedError, connections, transaction
from django.db.models.signals import post_save

from checks.asking import ask, run
from checks.asking.ask import LiveSession, Renumbered, Trusted, nobody
from checks.asking.question import (
    VALUE,
    Asked,
    Cache,
    Confirmation,
    Question,
    StatementKey,
    Values,
    allow,
    numbering_of,
    outline_of,
)
from checks.engine.compile import EXISTS, PlannedRoot, rendered
from checks.engine.rules.clauses import NOW, Const, Other, Slot, Var
from checks.engine.sql.bound import OUTER, OUTER_COLUMN, BoundTables
from checks.engine.sql.text import IdKind, Statement, Text, embedded, union
from checks.errors import CannotEnumerate, UnboundVariable
from checks.explain.explain import explain as explained
from facts.numbering import Marks
from facts.store import Deletes, Inserts, apply
from facts.wire import Fact as Stored
from facts.wire import FactPattern
from localsql.django.interface import AccessCondition, Explained, StoredFacts
from localsql.django.tables import value_of
from policy.active import versions
from policy.core import spans
from policy.core.clock import timeline
from policy.core.config import settings
from policy.core.journal import By
from policy.core.memory import Recent
from policy.errors import NotFound, Unavailable
from policy.models import Environment, environment_named
from policy.publishing import publish
from policy.values import STRING, Value


def asked(value: Value) -> Asked:
    return Asked(value.type, (value.id,))


class PermittedCondition(AccessCondition):
    """A condition by the project's own engine."""

    def condition(self, column: str, kind: IdKind, is_page: bool) -> tuple[str, tuple[Any, ...]]:
        with run.question_time():
            text, slots = self._settled(column, kind, is_page)
        sql, pieces = embedded(text)
        return sql, tuple([_value(piece, slots) for piece in pieces])

    def _settled(self, column: str, kind: IdKind, is_page: bool) -> tuple[Text, dict[str, object]]:
        for _ in range(_TRIES):
            with suppress(Renumbered):
                return self._condition(column, kind, is_page)
        raise Unavailable("new kinds of facts are stored too fast; try again")

    def _condition(self, column: str, kind: IdKind, is_page: bool) -> tuple[Text, dict[str, object]]:
        """Return the condition on a column, and its values."""
        session = with_asker(_session_now)
        for form in ConditionForm if is_page else (ConditionForm.SET, ConditionForm.ROW):
            prepared, slots = self._prepared(session, kind, form)
            if prepared.truth is not None and not (is_page and _are_many(prepared.counted, slots)):
                break
        assert prepared.truth is not None, "each row can be checked"
        dialect = run.dialect()
        as_text = dialect.id_text(column, kind)
        shown = {OUTER: as_text, OUTER_COLUMN: as_text if kind is IdKind.COLLATED else column}
        truth = tuple([shown.get(each.name, each) if isinstance(each, Slot) else each for each in prepared.truth])
        confirmation = Confirmation(session.environment_id, False, True, prepared.marks.ends, dialect)
        return confirmation.checked(truth), slots

    def _prepared(
        self, session: LiveSession, kind: IdKind, form: ConditionForm
    ) -> tuple[PreparedCondition, dict[str, object]]:
        slots = dict(session.given())
        key = self._key(session, form is not ConditionForm.ROW, slots)
        prepared = _prepared.get((key, kind, form))
        if prepared is None:
            prepared = _prepared.made_once((key, kind, form), partial(_compiled, session, key, kind, form))
        slots["mark"] = prepared.marks.signatures
        return prepared, slots

    def _key(self, session: LiveSession, is_list: bool, slots: dict[str, object]) -> StatementKey:
        """Return the key of the question for all ids, or whether one id is permitted, whose slot is `OUTER`."""
        of_row = Asked(self.type_name, None if is_list else (_ROW,))
        name = "resource" if self.resource is None else "actor"
        actor = of_row if self.actor is None else asked(self.actor)
        resource = of_row if self.resource is None else asked(self.resource)
        question = allow(actor, Asked(STRING, (self.action,)), resource, (name,) if is_list else ())
        outline = outline_of(question, Values(session.program.names, slots))
        if not is_list:
            variables = tuple([(each, a, b, OUTER if each == name else slot) for each, a, b, slot in outline.variables])
            outline = outline._replace(variables=variables)
        return session.key_of((outline,), ())


# ---- the condition's SQL --------------------------------------------------------------------------------------------

_TRIES = 10  # while signatures get numbers meanwhile
_ROW = "\0"  # no id: it shares no slot with one


class ConditionForm(Enum):
    """What a statement finds once for all of its rows, and what for each row."""

    SET = auto()  # once: the ids of all permitted rows
    BY_SET = auto()  # once: what the ids are joined with; for pages
    ROW = auto()  # nothing


class PreparedCondition(NamedTuple):
    """The condition for a column; None if it has no such form. `marks` are those of the signatures."""

    truth: Text | None
    counted: Text  # a query of what is found once
    marks: Marks


_prepared: Cache[tuple[StatementKey, IdKind, ConditionForm], PreparedCondition] = Cache(2048)
versions.forgets(lambda version: _prepared.drop_all(lambda key: key[0].policy == version))
timeline.forgets(_prepared.clear)


def _session_now(trusted: Trusted) -> LiveSession:
    """Return a session by the policy and the signatures of this moment: the caller's statement cannot be repeated."""
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT policy_version_id, signature_mark, ends_mark FROM authz_environment WHERE id = %s",
            (trusted.environment_id,),
        )
        row = cursor.fetchone()
    if row is None:
        raise nobody(trusted)
    version, *marks = row
    return LiveSession(trusted.environment_id, version, False, marks=Marks(*marks))


# A page of many permitted rows is found soonest by checking rows in the page's order; one of few, by their set. Which
# it is only decides on the form of the statement, so it may be remembered for a while.
_MANY = 5_000
_WHILE = 60.0  # seconds
_many: Recent[Hashable, tuple[bool, float]] = Recent(10_000)


def _are_many(counted: Text, slots: dict[str, object]) -> bool:
    """Return whether a query has many rows."""
    if not counted:
        return False
    sql, pieces = embedded(("SELECT COUNT(*) FROM (SELECT 1 FROM (", *counted, f") q LIMIT {_MANY}) q"))
    values = [_value(piece, slots) for piece in pieces]
    key = sql, tuple(value for piece, value in zip(pieces, values) if piece != NOW)
    known = _many.get(key)
    if known is None or known[1] < monotonic():
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute(sql, values)  # type: ignore[arg-type]  # texts and numbers
            known = cursor.fetchone()[0] >= _MANY, monotonic() + _WHILE
        _many.store(key, known)
    return known[0]


def _compiled(session: LiveSession, key: StatementKey, kind: IdKind, form: ConditionForm) -> PreparedCondition:
    numbering = numbering_of(session.numbers_of(key), key.inline)
    marks = numbering.marks
    if not key.places(session.program_of(key)):
        return PreparedCondition(_NEVER, (), marks)
    is_set, shape = form is ConditionForm.SET, key.shape((0,))
    shape = replace(shape, elements=kind) if is_set else replace(shape, outer=kind)
    try:
        found = rendered(session.rules_of(key), shape, key.dialect, numbering)
    except (CannotEnumerate, UnboundVariable):
        return PreparedCondition(None, (), marks)
    if found.renderer is None:
        return PreparedCondition(_NEVER, (), marks)
    if found.renderer.rounds:
        if form is not ConditionForm.ROW:
            return PreparedCondition(None, (), marks)
        raise NotSupportedError(
            "a rule joins two of its own answers, which a condition in a query cannot say; check objects one by one"
        )
    head = found.renderer.head(found.tables)
    if is_set:
        # A stored id that the column cannot hold is NULL; with it, whatever is not IN the set would be NULL, too.
        rows: Text = (*head, "SELECT q.o0 FROM (", *found.rows, ") q WHERE q.o0 IS NOT NULL")
        return PreparedCondition(*_in_set(found.plans[0], rows), marks)
    truth = ("(", *head, *found.rows, ")") if head else (f"{EXISTS.removeprefix('SELECT ')}", *found.rows[1:-1], ")")
    once: list[Text] = [(f"SELECT 1 FROM {name}",) for name, _ in found.renderer.shared.values()]
    counted = (*head, *union(once, distinct=False)) if once and form is ConditionForm.BY_SET else ()
    return PreparedCondition(truth, counted, marks)


_NEVER: Text = ("1 = 0",)


def _in_set(root: PlannedRoot, rows: Text) -> tuple[Text | None, Text]:
    if root.guarded or root.grounded or any(isinstance(out, Var) for end in root.plain for out in end.outs):
        return None, ()
    return ((Slot(OUTER_COLUMN), " IN (", *rows, ")"), rows) if root.plain else (_NEVER, ())


def _value(piece: Const | Other | Slot, slots: dict[str, object]) -> object:
    match piece:
        case Const(text):
            return text
        case Other(slot) | Slot(slot):
            return slots[slot]


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
        for version, truth, *_ in run.execute(self.statement, slots):
            if version == self.session.version:
                return bool(truth)
        return None

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
    actor, what = asked(value_of(user)), asked(value_of(resource))
    found = with_asker(partial(ask.answer, question=allow(actor, Asked(STRING), what, ("action",))))
    return {"*" if name is None else name for (name,) in found.of_one}


def explain(user: object, action: str, resource: object) -> Explained:
    """Return why the user may perform the action on the resource, or why not; print it."""
    question = _question(value_of(user), action, value_of(resource))
    return Explained(with_asker(partial(explained, question=question)))


def _question(actor: Value, action: str, resource: Value) -> Question:
    if not action:
        raise ValueError("the action must not be empty")
    return allow(asked(actor), Asked(STRING, (action,)), asked(resource))


# ---- facts --------------------------------------------------------------------------------------------------------

_BY = By("application")


class OwnFacts(StoredFacts):
    def add(self, facts: list[Stored]) -> None:
        self._apply(Inserts(facts, None))

    def remove(self, patterns: list[FactPattern]) -> int:
        return self._apply(Deletes(patterns))

    def _apply(self, change: Inserts | Deletes) -> int:
        """Apply the change; in a transaction by a savepoint, so that it stays usable if the change is rejected."""
        is_inside = connections[DEFAULT_DB_ALIAS].in_atomic_block
        with transaction.atomic(DEFAULT_DB_ALIAS) if is_inside else nullcontext():
            return with_asker(lambda trusted: apply(trusted.environment_id, [change], _BY).deleted)


facts = OwnFacts()


def publish_policy(text: str) -> Callable[[], object]:
    """Publish a policy, as tests do; return what to call after the test. Its rollback takes the policy back."""
    publish(asker().environment_id, text, "")
    return lambda: None


condition_type = PermittedCondition
