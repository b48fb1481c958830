"""Answer many questions by few statements: questions that differ only in their values are rows of one statement.

    may User:ann read Doc:d, may User:ben read Doc:e    ->    may User:v0 "read" Doc:v1, of (ann, d) and (ben, e)

An outline is a question without its values. One statement answers a group of outlines, each for its own rows or for
none. Outlines that once appeared in the same request stay in one group. So there are few statements, whichever outlines
a request combines, and none depends on the number of rows. If an outline's answer takes rounds of statements, its rows
are answered one by one in the same snapshot, each by statements of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from threading import Lock
from typing import NamedTuple

import orjson

from checks.asking.advice import may_be_unknown
from checks.asking.question import EVERY, OPERANDS, OTHER, VALUE, Outline, Question, Values, inline_rows, outline_of
from checks.asking.session import (
    Cache,
    Confirmation,
    LiveSession,
    PreparedCache,
    Ready,
    Renumbered,
    StatementKey,
    StatementResult,
    drops_old_versions,
    numbering_of,
    reads_clock,
    shared_cache,
    state_and_rows,
)
from checks.engine.answers import AnswerRow, answers_of
from checks.engine.by_rows import AnswerExpression, expression_of, slot_of, statement_of
from checks.engine.compile import MOST_WEIGHT
from checks.engine.sql.rounds import Fetched
from checks.engine.sql.text import Statement
from facts.numbering import Marks
from facts.wire import Fact
from policy.rules.program import Signature

MOST_OUTLINES = 16  # in one statement
MOST_GROUPS = 64  # of outlines per policy; beyond that, all are dropped and grouping starts over

# The values of each row, and the positions of the questions that have them.
RowNumbers = dict[tuple[object, ...], list[int]]


class CompiledOutline(NamedTuple):
    """A compiled outline. `expression` is None if its answer takes rounds."""

    outline: Outline
    expression: AnswerExpression | None
    misses_signatures: bool  # whether it relies on a signature having no facts
    marks: Marks  # of the environment's signatures when it was compiled
    is_doubtful: bool  # whether such questions may have words that the policy does not have

    @property
    def reads(self) -> int:
        return self.expression.weight if self.expression else 0


class Grouped(NamedTuple):
    """The statement for a group of outlines."""

    statement: Statement
    marks: Marks
    numbers: Mapping[Signature, int]  # of the signatures of the request's context facts
    reads: int


_outlines: PreparedCache[CompiledOutline] = shared_cache(8192)
_groups: Cache[StatementKey, Groups] = Cache(1024)
_statements: PreparedCache[Grouped] = shared_cache(1024)
drops_old_versions(_groups)


def statements_for(session: LiveSession, questions: Sequence[Question], context: Sequence[Fact]) -> list[Ready]:
    """Return statements with their values; none for what nothing can make true. `context` comes from `brought`."""
    given = session.given()  # computed once, so that all statements see the same time
    rows = _rows_of(session, questions)
    common = session.key_of(tuple(rows), context, by_rows=True)._replace(asked=())  # what the questions share
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
    if found and (len(known) < len(rows) or any(each.is_doubtful for each in known)):
        found[0] = found[0]._replace(is_doubtful=True)
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


# ---- outlines --------------------------------------------------------------------------------------------------


def _compiled(session: LiveSession, common: StatementKey, outline: Outline) -> CompiledOutline:
    key = common._replace(asked=(outline,))
    found = _outlines.get(key)
    if found is None:
        session.check(key)
        found = _outlines.made(key, lambda key: _compile(session, key, outline), session.keeps())
    return found


def _compile(session: LiveSession, key: StatementKey, outline: Outline) -> CompiledOutline:
    numbering, expression = numbering_of(session.numbers_of(key), key.inline), None
    if all(kind in OPERANDS or kind == EVERY for _, _, kind, _ in outline.variables):
        shape, columns, rules = key.shape((0,)), _columns_of(outline), session.rules_of(key)
        expression = expression_of(rules, shape, columns, key.dialect, numbering)
    doubtful = may_be_unknown(session.program_of(key), outline)
    return CompiledOutline(outline, expression, bool(numbering.missing), numbering.marks, doubtful)


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
    """Return the groups of a policy's outlines. What is compiled within a transaction gets groups of its own."""
    return _groups.get(common) or _groups.made_once(common, Groups) if session.keeps() else Groups()


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
    made = _statements.found(key) or _statements.made(key, lambda key: _grouped(session, key, group), session.keeps())
    slots = {**given, "mark": made.marks.signatures}
    if context:
        slots["facts"] = inline_rows(context, made.numbers.__getitem__)
    for place, each in enumerate(group):
        slots[slot_of(place)] = _json(rows.get(each.outline, {}))
    return Ready(made.statement, (), slots, partial(_read, group, rows), not reads_clock(made.statement))


def _json(rows: RowNumbers) -> str:
    """Return the rows as JSON, each after the position of its first question: `[[0,"ann","d"],[1,"ben","e"]]`."""
    return orjson.dumps([[places[0], *values] for values, places in rows.items()]).decode()


def _grouped(session: LiveSession, key: StatementKey, group: tuple[CompiledOutline, ...]) -> Grouped:
    numbering = numbering_of(session.numbers_of(key), key.inline)
    if not all(_is_up_to_date(each, numbering.marks) for each in group):
        raise Renumbered
    expressions = [each.expression for each in group if each.expression is not None]
    watches = session.watches or any(each.misses_signatures for each in group)
    confirmation = Confirmation(session.environment_id, session.needs_key, watches, numbering.marks.ends, key.dialect)
    statement = statement_of(expressions, key.dialect, key.inline, confirmation.of_rows)
    numbers = {each: numbering.of(each) for each in key.inline}
    return Grouped(statement, numbering.marks, numbers, sum(each.reads for each in group))


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
