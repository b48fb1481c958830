"""Many questions of few kinds -> few statements: questions that differ in their values only are rows of one statement.

    may User:ann read Doc:d, may User:ben read Doc:e    ->    may User:v0 "read" Doc:v1, of (ann, d) and (ben, e)

A kind is a question without its values. One statement answers a group of kinds, each for rows of its own, or for no
rows. Kinds that were asked together once stay in one group. So there are few statements, whichever kinds a request
combines, and the number of rows changes none of them. A kind whose answer takes rounds of statements is asked in the
usual way, one row after the other in the same snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import NamedTuple, TypeVar

import orjson

from checks.asking import deadline, run
from checks.asking.confirmation import Confirmation, held_beside_rows
from checks.asking.open_policy import Policy
from checks.asking.question import EVERY, OPERANDS, OTHER, VALUE, Outline, Question, Values, inline_rows, outline_of
from checks.asking.remembered import Remembered
from checks.asking.session import Found, LiveSession, Ready, StatementKey, reads_clock, rules_of
from checks.engine.answers import Row, answers_of
from checks.engine.compile import MOST_WEIGHT
from checks.engine.each import Expression, expression_of, slot_of, statement_of
from checks.engine.sql.rounds import Fetched
from checks.engine.sql.text import Statement
from facts.batches import by_signature
from facts.numbering import Marks, Numbering
from facts.wire import Fact
from policy import noticing
from policy.rules.program import Signature

MOST_KINDS = 16  # in one statement
MOST_GROUPS = 64  # of kinds by one policy; beyond that, grouping starts anew

V = TypeVar("V")
Rows = dict[tuple[object, ...], list[int]]  # the values of each row, and the places of the questions that have them


class Renumbered(Exception):
    """Signatures were given numbers while kinds were compiled one by one: each kind has to be compiled anew."""


class Kind(NamedTuple):
    """What questions with the same outline are compiled to. `expression` is None if the answer takes rounds."""

    outline: Outline
    expression: Expression | None
    misses_signatures: bool  # whether it relies on there being no facts of some signature
    marks: Marks  # of the environment's signatures when it was compiled


class Grouped(NamedTuple):
    """The statement for several kinds."""

    statement: Statement
    marks: Marks
    numbers: Mapping[Signature, int]  # of the signatures of facts that a request brings


_kinds: Remembered[StatementKey, Kind] = Remembered(8192)
_groups: Remembered[StatementKey, Groups] = Remembered(1024)
_statements: Remembered[StatementKey, Grouped] = Remembered(1024)


def statements_for(session: LiveSession, questions: Sequence[Question], context: Sequence[Fact]) -> list[Ready]:
    """Return statements with their values; none for what nothing can make true. `context` comes from `brought`."""
    given = session.given()  # made once, so that all statements have the same time
    rows = _rows_of(session, questions)
    frame = _frame(session, rows, context)
    program = session.program_of(frame)
    known = [_kind(session, frame, outline) for outline in rows if all(map(program.knows, outline.types))]
    together = [kind for kind in known if kind.expression is not None and kind.expression.text]
    groups = _groups_of(session, frame).with_all(together) if together else []
    found = [_ready(session, frame, group, rows, context, given) for group in groups]
    for kind in known:
        if kind.expression is None:
            for places in rows[kind.outline].values():
                alone = session.statements_for([questions[places[0]]], context, given=given)
                found += [_at(places, each) for each in alone]
    return found


def _rows_of(session: LiveSession, questions: Sequence[Question]) -> dict[Outline, Rows]:
    """Return for each outline the rows of values that are asked about."""
    names = session.program.names
    found: dict[Outline, Rows] = {}
    for place, question in enumerate(questions):
        slots: dict[str, object] = {}
        rows = found.setdefault(outline_of(question, Values(names, slots)), {})
        rows.setdefault(tuple(slots.values()), []).append(place)
    return found


def _frame(session: LiveSession, outlines: Iterable[Outline], context: Sequence[Fact]) -> StatementKey:
    """Return the key of all that the questions have in common, with no question in it."""
    inline = frozenset(by_signature(context))
    policy: Policy | None = session.version
    if policy is None:
        policy = frozenset().union(*(each.types for each in outlines), *(each.types for each in inline))
    (width,) = {len(each.outs) for each in outlines}
    mine = (session.environment_id, policy, session.needs_key, session.generation, run.dialect())
    return StatementKey(*mine, (), width, inline, by_rows=True)


# ---- kinds -----------------------------------------------------------------------------------------------------


def _kind(session: LiveSession, frame: StatementKey, outline: Outline) -> Kind:
    key = frame._replace(asked=(outline,))
    return _made(session, _kinds, key, lambda: _compiled(session, key, outline))


def reads_of(key: StatementKey) -> int | None:
    """Return how many tables a statement reads for its kinds, as far as they are remembered; None if none is."""
    kinds = [_kinds.get(key._replace(asked=(outline,))) for outline in key.asked if isinstance(outline, Outline)]
    known = [kind.expression.weight for kind in kinds if kind is not None and kind.expression is not None]
    return sum(known) if known else None


def _made(session: LiveSession, known: Remembered[StatementKey, V], key: StatementKey, make: Callable[[], V]) -> V:
    """Return what is remembered by the key, or make it. What is made within a transaction is not remembered."""
    if not session.keeps():
        return make()
    found = known.get(key)
    if found is None:
        deadline.check()
        found = known.made_once(key, make)
    elif noticing.is_on and known is _statements:
        noticing.add(("found", 0.0, 0.0, {"key": key}))
    return found


def _compiled(session: LiveSession, key: StatementKey, outline: Outline) -> Kind:
    session.check(key)
    with noticing.noted("compile", key=key):
        return _kind_of(session, key, outline)


def _kind_of(session: LiveSession, key: StatementKey, outline: Outline) -> Kind:
    numbering = _numbering(session, key)
    assert key.policy is not None, "there is always a policy"
    expression = None
    if all(kind in OPERANDS or kind == EVERY for _, _, kind, _ in outline.variables):
        shape, columns = key.shape((0,)), _columns_of(outline)
        rules, known, ends = rules_of(key.policy), numbering.knows, numbering.may_end
        expression = expression_of(rules, shape, columns, key.dialect, numbering.of, known, ends)
    return Kind(outline, expression, bool(numbering.missing), numbering.marks)


def _numbering(session: LiveSession, key: StatementKey) -> Numbering:
    """Return the numbers of now. Signatures of the request's facts come first, so that all kinds agree on them."""
    numbering = Numbering(session.environment_id)
    for signature in sorted(key.inline, key=str):
        numbering.of(signature)
    return numbering


def _columns_of(outline: Outline) -> tuple[str, ...]:
    """Return the slots of its values, in the order in which they were given out."""
    return tuple(dict.fromkeys(place for _, _, kind, place in outline.variables if kind in (OTHER, VALUE)))


# ---- groups of kinds ---------------------------------------------------------------------------------------------


class Groups:
    """The groups of kinds that are answered together, each by one statement."""

    def __init__(self) -> None:
        self._groups: list[list[Kind]] = []
        self._places: dict[Outline, int] = {}
        self._changing = Lock()

    def with_all(self, kinds: Sequence[Kind]) -> list[tuple[Kind, ...]]:
        """Return the groups that contain these kinds. A kind that is in none yet is put into the last or a new one."""
        with self._changing:
            if len(self._groups) > MOST_GROUPS:
                self._groups, self._places = [], {}
            for kind in kinds:
                if kind.outline not in self._places:
                    self._place(kind)
            return [tuple(self._groups[place]) for place in sorted({self._places[kind.outline] for kind in kinds})]

    def _place(self, kind: Kind) -> None:
        if not self._groups or not _fits(kind, self._groups[-1]):
            self._groups.append([])
        self._groups[-1].append(kind)
        self._places[kind.outline] = len(self._groups) - 1


def _groups_of(session: LiveSession, frame: StatementKey) -> Groups:
    return _made(session, _groups, frame, Groups)


def _fits(kind: Kind, group: Sequence[Kind]) -> bool:
    weight = sum(each.expression.weight for each in (kind, *group) if each.expression)
    return len(group) < MOST_KINDS and weight <= MOST_WEIGHT


def _ready(
    session: LiveSession,
    frame: StatementKey,
    group: tuple[Kind, ...],
    rows: Mapping[Outline, Rows],
    context: Sequence[Fact],
    given: Mapping[str, object],
) -> Ready:
    key = frame._replace(asked=tuple([kind.outline for kind in group]))
    made = _made(session, _statements, key, lambda: _grouped(session, frame, group))
    slots = {**given, "mark": made.marks.signatures}
    if context:
        slots["facts"] = inline_rows(context, made.numbers.__getitem__)
    for place, kind in enumerate(group):
        slots[slot_of(place)] = _json(rows.get(kind.outline, {}))
    return Ready(made.statement, (), slots, partial(_read, group, rows), not reads_clock(made.statement))


def _json(rows: Rows) -> str:
    """Return the rows as JSON, each behind the place of its first question: `[[0,"ann","d"],[1,"ben","e"]]`."""
    return orjson.dumps([[places[0], *values] for values, places in rows.items()]).decode()


def _grouped(session: LiveSession, frame: StatementKey, group: tuple[Kind, ...]) -> Grouped:
    with noticing.noted("compile", key=frame):
        return _group_of(session, frame, group)


def _group_of(session: LiveSession, frame: StatementKey, group: tuple[Kind, ...]) -> Grouped:
    numbering = _numbering(session, frame)
    if not all(_is_up_to_date(kind, numbering.marks) for kind in group):
        raise Renumbered
    expressions = [kind.expression for kind in group if kind.expression is not None]
    watches = any(kind.misses_signatures for kind in group)
    confirmation = Confirmation(
        session.environment_id, session.needs_key, watches, numbering.marks.ends, frame.dialect
    )
    statement = statement_of(expressions, frame.dialect, frame.inline, confirmation.of_rows)
    return Grouped(statement, numbering.marks, {each: numbering.of(each) for each in frame.inline})


def _is_up_to_date(kind: Kind, marks: Marks) -> bool:
    """Say whether the marks are still those it was compiled under; unless it misses signatures, only `ends` counts."""
    return kind.marks.ends == marks.ends and (kind.marks == marks or not kind.misses_signatures)


# ---- answers -----------------------------------------------------------------------------------------------------


def _read(group: tuple[Kind, ...], rows: Mapping[Outline, Rows], fetched: list[Fetched]) -> Found:
    holding, found = held_beside_rows(fetched)
    said = {int(number): answer for number, answer in found}
    answers: list[tuple[int, Row]] = []
    for kind in group:
        for places in rows.get(kind.outline, {}).values():
            each = _answers_of(kind, said.get(places[0]))
            answers += [(place, row) for place in places for row in each]
    return holding, answers


def _answers_of(kind: Kind, said: object) -> Sequence[Row]:
    if not kind.outline.outs:
        return [()] if said else []
    if not isinstance(said, str):
        return []
    rows = [tuple(row) for row in orjson.loads(said)]
    return answers_of(rows) if kind.expression and kind.expression.is_guarded else rows


def _at(places: Sequence[int], ready: Ready) -> Ready:
    """Return the statement of one question, read as the answer to all equal questions, which have these places."""

    def read(fetched: list[Fetched]) -> Found:
        holding, rows = ready.read(fetched)
        return holding, [(place, row) for place in places for _, row in rows]

    return ready._replace(read=read)
