"""Answer many questions by few statements: questions that differ only in their values are rows of one statement.

    may User:ann read Doc:d, may User:ben read Doc:e    ->    may User:v0 "read" Doc:v1, of (ann, d) and (ben, e)

An outline is a question without its values. One statement answers a group of outlines, each for its own rows or for
none. Outlines that once appeared in the same request stay in one group. So there are few statements, whichever outlines
a request combines, and none depends on the number of rows. If an outline's answer takes rounds of statements, its rows
are answered one by one in the same snapshot, each by statements of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import orjson

from checks.asking import limits, run
from checks.asking.open_policy import AskedPolicy
from checks.asking.question import EVERY, OPERANDS, OTHER, VALUE, Outline, Question, Values, inline_rows, outline_of
from checks.asking.session import (
    Cache,
    Confirmation,
    LiveSession,
    Ready,
    StatementKey,
    StatementResult,
    reads_clock,
    rules_of,
    state_and_rows,
)
from checks.engine.answers import AnswerRow, answers_of
from checks.engine.by_rows import AnswerExpression, expression_of, slot_of, statement_of
from checks.engine.compile import MOST_WEIGHT
from checks.engine.sql.rounds import Fetched
from checks.engine.sql.text import Statement
from facts.numbering import Marks, Numbering
from facts.wire import Fact, by_signature
from policy.active import versions
from policy.ground import spans
from policy.rules.program import Signature

MOST_OUTLINES = 16  # in one statement
MOST_GROUPS = 64  # of outlines per policy; beyond that, all are dropped and grouping starts over

V = TypeVar("V")
RowNumbers = dict[
    tuple[object, ...], list[int]
]  # the values of each row, and the positions of the questions that have them


class Renumbered(Exception):
    """Signatures got numbers while outlines were being compiled; each outline must be compiled again."""


class CompiledOutline(NamedTuple):
    """A compiled outline. `expression` is None if its answer takes rounds."""

    outline: Outline
    expression: AnswerExpression | None
    misses_signatures: bool  # whether it relies on a signature having no facts
    marks: Marks  # of the environment's signatures when it was compiled


class Grouped(NamedTuple):
    """The statement for a group of outlines."""

    statement: Statement
    marks: Marks
    numbers: Mapping[Signature, int]  # of the signatures of the request's context facts


_outlines: Cache[StatementKey, CompiledOutline] = Cache(8192)
_groups: Cache[StatementKey, Groups] = Cache(1024)
_statements: Cache[StatementKey, Grouped] = Cache(1024)


def _forget(cache: Cache[StatementKey, Any], version: int) -> None:
    cache.drop_all(lambda key: key.policy == version)


for _each in (_outlines, _groups, _statements):
    versions.forgets(partial(_forget, _each))


def statements_for(session: LiveSession, questions: Sequence[Question], context: Sequence[Fact]) -> list[Ready]:
    """Return statements with their values; none for what nothing can make true. `context` comes from `brought`."""
    given = session.given()  # computed once, so that all statements see the same time
    rows = _rows_of(session, questions)
    common = _common_key(session, rows, context)
    program = session.program_of(common)
    known = [_compiled(session, common, outline) for outline in rows if all(map(program.knows, outline.types))]
    together = [each for each in known if each.expression is not None and each.expression.text]
    groups = _groups_of(session, common).with_all(together) if together else []
    found = [_ready(session, common, group, rows, context, given) for group in groups]
    for each in known:
        if each.expression is None:
            for places in rows[each.outline].values():
                alone = session.statements_for([questions[places[0]]], context, given=given)
                found += [_at(places, ready) for ready in alone]
    return found


def _rows_of(session: LiveSession, questions: Sequence[Question]) -> dict[Outline, RowNumbers]:
    """Return for each outline the rows of values that the questions have."""
    names = session.program.names
    found: dict[Outline, RowNumbers] = {}
    for place, question in enumerate(questions):
        slots: dict[str, object] = {}
        rows = found.setdefault(outline_of(question, Values(names, slots)), {})
        rows.setdefault(tuple(slots.values()), []).append(place)
    return found


def _common_key(session: LiveSession, outlines: Iterable[Outline], context: Sequence[Fact]) -> StatementKey:
    """Return the cache key of what the questions have in common, without any question."""
    inline = frozenset(by_signature(context))
    policy: AskedPolicy | None = session.version
    if policy is None:
        policy = frozenset().union(*(each.types for each in outlines), *(each.types for each in inline))
    (width,) = {len(each.outs) for each in outlines}
    mine = (session.environment_id, policy, session.needs_key, session.generation, run.dialect())
    return StatementKey(*mine, (), width, inline, by_rows=True)


# ---- outlines --------------------------------------------------------------------------------------------------


def _compiled(session: LiveSession, common: StatementKey, outline: Outline) -> CompiledOutline:
    key = common._replace(asked=(outline,))
    return _made(session, _outlines, key, lambda: _compiled_now(session, key, outline))


def tables_read(key: StatementKey) -> int | None:
    """Return how many tables a statement reads for its cached outlines; None if none is cached."""
    found = [_outlines.get(key._replace(asked=(outline,))) for outline in key.asked if isinstance(outline, Outline)]
    known = [each.expression.weight for each in found if each is not None and each.expression is not None]
    return sum(known) if known else None


def _made(session: LiveSession, cache: Cache[StatementKey, V], key: StatementKey, make: Callable[[], V]) -> V:
    """Return the value cached under the key, or compute it. Values computed within a transaction are not cached."""
    if not session.keeps():
        return make()
    found = cache.get(key)
    if found is None:
        limits.check()
        found = cache.made_once(key, make)
    elif spans.is_on and cache is _statements:
        spans.add(("found", 0.0, 0.0, {"key": key}))
    return found


def _compiled_now(session: LiveSession, key: StatementKey, outline: Outline) -> CompiledOutline:
    session.check(key)
    with spans.noted("compile", key=key):
        return _compile(session, key, outline)


def _compile(session: LiveSession, key: StatementKey, outline: Outline) -> CompiledOutline:
    numbering = _numbering(session, key)
    assert key.policy is not None, "there is always a policy"
    expression = None
    if all(kind in OPERANDS or kind == EVERY for _, _, kind, _ in outline.variables):
        shape, columns = key.shape((0,)), _columns_of(outline)
        rules, known, ends = rules_of(key.policy), numbering.knows, numbering.may_end
        expression = expression_of(rules, shape, columns, key.dialect, numbering.of, known, ends)
    return CompiledOutline(outline, expression, bool(numbering.missing), numbering.marks)


def _numbering(session: LiveSession, key: StatementKey) -> Numbering:
    """Return the current numbers. The context's signatures come first, so that all outlines agree on their numbers."""
    numbering = Numbering(session.environment_id)
    for signature in sorted(key.inline, key=str):
        numbering.of(signature)
    return numbering


def _columns_of(outline: Outline) -> tuple[str, ...]:
    """Return the slots of the outline's values, in the order of assignment."""
    return tuple(dict.fromkeys(place for _, _, kind, place in outline.variables if kind in (OTHER, VALUE)))


# ---- groups of outlines ------------------------------------------------------------------------------------------


class Groups:
    """Groups of outlines, each answered by one statement."""

    def __init__(self) -> None:
        self._groups: list[list[CompiledOutline]] = []
        self._places: dict[Outline, int] = {}
        self._changing = Lock()

    def with_all(self, outlines: Sequence[CompiledOutline]) -> list[tuple[CompiledOutline, ...]]:
        """Return the groups that contain these outlines; new outlines are added to the last group or to a new one."""
        with self._changing:
            if len(self._groups) > MOST_GROUPS:
                self._groups, self._places = [], {}
            for each in outlines:
                if each.outline not in self._places:
                    self._place(each)
            return [tuple(self._groups[place]) for place in sorted({self._places[each.outline] for each in outlines})]

    def _place(self, compiled: CompiledOutline) -> None:
        if not self._groups or not _fits(compiled, self._groups[-1]):
            self._groups.append([])
        self._groups[-1].append(compiled)
        self._places[compiled.outline] = len(self._groups) - 1


def _groups_of(session: LiveSession, common: StatementKey) -> Groups:
    return _made(session, _groups, common, Groups)


def _fits(compiled: CompiledOutline, group: Sequence[CompiledOutline]) -> bool:
    weight = sum(each.expression.weight for each in (compiled, *group) if each.expression)
    return len(group) < MOST_OUTLINES and weight <= MOST_WEIGHT


def _ready(
    session: LiveSession,
    common: StatementKey,
    group: tuple[CompiledOutline, ...],
    rows: Mapping[Outline, RowNumbers],
    context: Sequence[Fact],
    given: Mapping[str, object],
) -> Ready:
    key = common._replace(asked=tuple([each.outline for each in group]))
    made = _made(session, _statements, key, lambda: _grouped(session, common, group))
    slots = {**given, "mark": made.marks.signatures}
    if context:
        slots["facts"] = inline_rows(context, made.numbers.__getitem__)
    for place, each in enumerate(group):
        slots[slot_of(place)] = _json(rows.get(each.outline, {}))
    return Ready(made.statement, (), slots, partial(_read, group, rows), not reads_clock(made.statement))


def _json(rows: RowNumbers) -> str:
    """Return the rows as JSON, each after the position of its first question: `[[0,"ann","d"],[1,"ben","e"]]`."""
    return orjson.dumps([[places[0], *values] for values, places in rows.items()]).decode()


def _grouped(session: LiveSession, common: StatementKey, group: tuple[CompiledOutline, ...]) -> Grouped:
    with spans.noted("compile", key=common):
        return _group_of(session, common, group)


def _group_of(session: LiveSession, common: StatementKey, group: tuple[CompiledOutline, ...]) -> Grouped:
    numbering = _numbering(session, common)
    if not all(_is_up_to_date(each, numbering.marks) for each in group):
        raise Renumbered
    expressions = [each.expression for each in group if each.expression is not None]
    watches = any(each.misses_signatures for each in group)
    confirmation = Confirmation(
        session.environment_id, session.needs_key, watches, numbering.marks.ends, common.dialect
    )
    statement = statement_of(expressions, common.dialect, common.inline, confirmation.of_rows)
    return Grouped(statement, numbering.marks, {each: numbering.of(each) for each in common.inline})


def _is_up_to_date(compiled: CompiledOutline, marks: Marks) -> bool:
    """Return whether the marks are unchanged since compilation; without missing signatures, only `ends` matters."""
    return compiled.marks.ends == marks.ends and (compiled.marks == marks or not compiled.misses_signatures)


# ---- answers -----------------------------------------------------------------------------------------------------


def _read(
    group: tuple[CompiledOutline, ...], rows: Mapping[Outline, RowNumbers], fetched: list[Fetched]
) -> StatementResult:
    state, found = state_and_rows(fetched)
    answer_of = {int(number): answer for number, answer in found}
    answers: list[tuple[int, AnswerRow]] = []
    for compiled in group:
        for places in rows.get(compiled.outline, {}).values():
            mine = _answers_of(compiled, answer_of.get(places[0]))
            answers += [(place, row) for place in places for row in mine]
    return state, answers


def _answers_of(compiled: CompiledOutline, answer: object) -> Sequence[AnswerRow]:
    if not compiled.outline.outs:
        return [()] if answer else []
    if not isinstance(answer, str):
        return []
    rows = [tuple(row) for row in orjson.loads(answer)]
    return answers_of(rows) if compiled.expression and compiled.expression.is_guarded else rows


def _at(places: Sequence[int], ready: Ready) -> Ready:
    """Return the statement of one question, read as the answer to the equal questions at all these positions."""

    def read(fetched: list[Fetched]) -> StatementResult:
        state, rows = ready.read(fetched)
        return state, [(place, row) for place in places for _, row in rows]

    return ready._replace(read=read)
