"""A question as a condition on a column of somebody else's statement, in the form that suits its rows best."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from time import monotonic
from typing import NamedTuple

from django.db import DEFAULT_DB_ALIAS, NotSupportedError, connections

from checks.asking import run
from checks.asking.ask import LiveSession, Renumbered, Trusted, nobody
from checks.asking.question import Asked, Cache, Confirmation, StatementKey, Values, allow, numbering_of, outline_of
from checks.engine.compile import EXISTS, Rendered, rendered
from checks.engine.rules.clauses import NOW, Const, Slot, Var
from checks.engine.sql.bound import OUTER, OUTER_COLUMN, BoundRenderer, OuterColumn
from checks.engine.sql.text import TEXTS, IdKind, Text, embedded, slot_of, union
from checks.errors import CannotEnumerate, UnboundVariable
from facts.numbering import Marks
from policy.active import versions
from policy.core.clock import timeline
from policy.core.memory import Recent
from policy.errors import Unavailable
from policy.values import STRING, Value


class ConditionForm(Enum):
    """What a statement finds once for all of its rows, and what for each row."""

    FEW = auto()  # once: the ids of all permitted rows, which are few
    OF_ROW = auto()  # once: a few values that columns of the row itself may have, and the ids of other permitted rows
    BY_SET = auto()  # once: what the ids are joined with
    SET = auto()  # once: the ids of all permitted rows
    ROW = auto()  # nothing


# A page of many permitted rows is found soonest by checking rows in the page's order; one of few, by their set. All of
# many rows are found soonest by their own columns, if there are few values to compare with.
_FOR_PAGES = ConditionForm.FEW, ConditionForm.BY_SET, ConditionForm.ROW
_FOR_ALL = ConditionForm.FEW, ConditionForm.OF_ROW, ConditionForm.SET, ConditionForm.ROW


class AskedCondition(NamedTuple):
    """Who may perform the action on what; None is the column, which has ids of this type."""

    actor: Value | None
    action: str
    resource: Value | None
    type_name: str

    def sql(self, environment_id: int, column: OuterColumn, is_page: bool) -> tuple[str, tuple[object, ...]]:
        """Return the condition on a column, and its parameters."""
        with run.question_time():
            for _ in range(_TRIES):
                with suppress(Renumbered):
                    return self._settled(_session_now(environment_id), column, is_page)
        raise Unavailable("new kinds of facts are stored too fast; try again")

    def _settled(self, session: LiveSession, column: OuterColumn, is_page: bool) -> tuple[str, tuple[object, ...]]:
        for form in _FOR_PAGES if is_page else _FOR_ALL:
            prepared, slots = self._prepared(session, column, form)
            if prepared.truth is not None and not are_many(prepared.counted, slots, form):
                break
        assert prepared.truth is not None, "each row can be checked"
        dialect = run.dialect()
        as_text = dialect.id_text(column.sql, column.kind)
        shown = {OUTER: as_text, OUTER_COLUMN: as_text if column.kind in TEXTS else column.sql}
        truth = tuple([shown.get(each.name, each) if isinstance(each, Slot) else each for each in prepared.truth])
        confirmation = Confirmation(session.environment_id, False, True, prepared.marks.ends, dialect)
        return _with_values(confirmation.checked(truth), slots)

    def _prepared(
        self, session: LiveSession, column: OuterColumn, form: ConditionForm
    ) -> tuple[PreparedCondition, dict[str, object]]:
        slots = dict(session.given())
        key = self._key(session, form is not ConditionForm.ROW, slots)
        # Only one form mentions the table of the column.
        known = key, form, column if form is ConditionForm.OF_ROW else column.kind
        prepared = _prepared.get(known)
        if prepared is None:
            prepared = _prepared.made_once(known, partial(_compiled, session, key, column, form))
        slots["mark"] = prepared.marks.signatures
        return prepared, slots

    def _key(self, session: LiveSession, is_list: bool, slots: dict[str, object]) -> StatementKey:
        """Return the key of the question for all ids, or whether one id is permitted, whose slot is `OUTER`."""
        of_row = Asked(self.type_name, None if is_list else (_ROW,))
        name = "resource" if self.resource is None else "actor"
        sides = [of_row if each is None else Asked.of(each) for each in (self.actor, self.resource)]
        question = allow(sides[0], Asked(STRING, (self.action,)), sides[1], (name,) if is_list else ())
        outline = outline_of(question, Values(session.program.names, slots))
        if not is_list:
            variables = tuple([(each, a, b, OUTER if each == name else slot) for each, a, b, slot in outline.variables])
            outline = outline._replace(variables=variables)
        return session.key_of((outline,), ())


_TRIES = 10  # while signatures get numbers meanwhile
_ROW = "\0"  # no id: it shares no slot with one


def _session_now(environment_id: int) -> LiveSession:
    """Return a session by the policy and the signatures of this moment: the caller's statement cannot be repeated."""
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(
            "SELECT policy_version_id, signature_mark, ends_mark FROM authz_environment WHERE id = %s",
            (environment_id,),
        )
        row = cursor.fetchone()
    if row is None:
        raise nobody(Trusted(environment_id))
    version, *marks = row
    return LiveSession(environment_id, version, False, marks=Marks(*marks))


# ---- which form: by how much it finds once ------------------------------------------------------------------------
# It only decides on the form of the statement, so it may be remembered for a while.

_MANY = 5_000
_MANY_VALUES = 100  # each row is compared with all of them
_WHILE = 60.0  # seconds
_many: Recent[tuple[object, ...], tuple[bool, float]] = Recent(10_000)


def are_many(counted: Text, slots: dict[str, object], form: ConditionForm) -> bool:
    """Return whether a query has many rows, for this form."""
    if not counted:
        return False
    many = _MANY_VALUES if form is ConditionForm.OF_ROW else _MANY
    key = counted, many, *(value for name, value in slots.items() if name != NOW.name)
    known = _many.get(key)
    if known is None or known[1] < monotonic():
        text: Text = ("SELECT COUNT(*) FROM (SELECT 1 FROM (", *counted, f") q LIMIT {many}) q")
        with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
            cursor.execute(*_with_values(text, slots))  # type: ignore[arg-type]  # texts and numbers
            known = cursor.fetchone()[0] >= many, monotonic() + _WHILE
        _many.store(key, known)
    return known[0]


def _with_values(text: Text, slots: dict[str, object]) -> tuple[str, tuple[object, ...]]:
    sql, pieces = embedded(text, run.dialect())
    return sql, tuple([each.id if isinstance(each, Const) else slots[slot_of(each)] for each in pieces])


# ---- its SQL --------------------------------------------------------------------------------------------------------


class PreparedCondition(NamedTuple):
    """The condition for a column; None if it has no such form. `marks` are those of the signatures."""

    truth: Text | None
    counted: Text  # a query of what is found once
    marks: Marks


_prepared: Cache[tuple[StatementKey, ConditionForm, OuterColumn | IdKind], PreparedCondition] = Cache(2048)
versions.forgets(lambda version: _prepared.drop_all(lambda key: key[0].policy == version))
timeline.forgets(_prepared.clear)


def _compiled(session: LiveSession, key: StatementKey, column: OuterColumn, form: ConditionForm) -> PreparedCondition:
    numbering = numbering_of(session.numbers_of(key), key.inline)
    marks, by_row = numbering.marks, form in (ConditionForm.BY_SET, ConditionForm.ROW)
    if not key.places(session.program_of(key)):
        return PreparedCondition(_NEVER, (), marks)
    shape = key.shape((0,))
    shape = replace(shape, outer=column.kind) if by_row else replace(shape, elements=column.kind)
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
    if not by_row:
        return PreparedCondition(*_of_all(found, column, form), marks)
    head = found.renderer.head(found.tables)
    truth = ("(", *head, *found.rows, ")") if head else (f"{EXISTS.removeprefix('SELECT ')}", *found.rows[1:-1], ")")
    once: list[Text] = [(f"SELECT 1 FROM {name}",) for name, _ in found.renderer.shared.values()]
    counted = (*head, *union(once, distinct=False)) if once and form is ConditionForm.BY_SET else ()
    return PreparedCondition(truth, counted, marks)


_NEVER: Text = ("1 = 0",)


def _of_all(found: Rendered, column: OuterColumn, form: ConditionForm) -> tuple[Text | None, Text]:
    """Return the condition by all answers, and the query of what it finds once."""
    (root,), renderer = found.plans, found.renderer
    if root.guarded or root.grounded or any(isinstance(out, Var) for end in root.plain for out in end.outs):
        return None, ()
    if not root.plain or renderer is None:
        return _NEVER, ()
    if form is ConditionForm.OF_ROW:
        tests = renderer.of_row(root.plan, root.plain, column) if isinstance(renderer, BoundRenderer) else None
        if tests is None:
            return None, ()
        return tests.truth, union([("SELECT 1 FROM (", *each, ") q") for each in tests.sets], distinct=False)
    # A stored id that the column cannot hold is NULL; with it, whatever is not IN the set would be NULL, too.
    rows: Text = (*renderer.head(found.tables), "SELECT q.o0 FROM (", *found.rows, ") q WHERE q.o0 IS NOT NULL")
    is_few = form is ConditionForm.FEW
    return (Slot(OUTER_COLUMN), " IN (", *(renderer.dialect.few(rows) if is_few else rows), ")"), rows if is_few else ()
