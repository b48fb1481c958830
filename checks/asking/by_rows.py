"""Answer many questions by few statements: questions that differ only in their values are rows of one statement.

    may User:ann read Doc:d, may User:ben read Doc:e    ->    may User:v0 "read" Doc:v1, of (ann, d) and (ben, e)

An outline is a question without its values. One statement answers a group of outlines, each for its own rows or for
none. Outlines that once appeared in the same request stay in one group. So there are few statements, whichever outlines
a request combines, and none depends on the number of rows. If an outline's answer takes rounds of statements, its rows
are answered one by one in the same snapshot, each by statements of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from math import prod
from threading import Lock
from typing import NamedTuple

import orjson

from checks.asking import ask, run
from checks.asking.advice import may_be_unknown
from checks.asking.ask import Answered, Asker, LiveSession, Renumbered
from checks.asking.question import (
    EVERY,
    OPERANDS,
    OTHER,
    VALUE,
    Asked,
    Cache,
    Check,
    Confirmation,
    OpenProgram,
    Outline,
    PreparedCache,
    Question,
    Ready,
    StatementKey,
    StatementResult,
    Values,
    allow,
    check_predicate,
    drops_old_versions,
    inline_rows,
    numbering_of,
    outline_of,
    question_about,
    reads_clock,
    shared_cache,
    state_and_rows,
)
from checks.engine.compile import MOST_WEIGHT, AnswerRow, Compiled, Rendered, Shape, answers_of, rendered
from checks.engine.rules.clauses import Other, Slot
from checks.engine.sql.render import inline_table, with_tables
from checks.engine.sql.rounds import Fetched
from checks.engine.sql.text import Dialect, Piece, Statement, Text, finished, joined
from checks.errors import StatementTooLarge, TooManyTypes
from facts.numbering import Marks, signature_numbers
from facts.wire import Argument, Fact, FactPattern
from policy.moments import Moment
from policy.rules.program import Program, Signature, Types, types_of

MOST_OUTLINES = 16  # in one statement
MOST_GROUPS = 64  # of outlines per policy; beyond that, all are dropped and grouping starts over

# The values of each row, and the positions of the questions that have them.
RowNumbers = dict[tuple[object, ...], list[int]]


class CompiledOutline(NamedTuple):
    """A compiled outline, with the SQL expression of its answer for one row of values.

    It says whether there is an answer, or has all answers as JSON. It is empty if nothing can be true, whatever the
    facts, and None if the answer takes rounds.
    """

    outline: Outline
    expression: Text | None
    is_guarded: bool
    reads: int  # number of tables that it reads
    misses_signatures: bool  # whether it relies on a signature having no facts
    marks: Marks  # of the environment's signatures when it was compiled
    is_doubtful: bool  # whether such questions may have words that the policy does not have


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
    together = [each for each in known if each.expression]
    # What is compiled within a transaction gets groups of its own.
    kept = _groups.get(common) or _groups.made_once(common, Groups) if session.keeps() else Groups()
    groups = kept.with_all(together) if together else []
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
    found: dict[Outline, RowNumbers] = {}
    for place, question in enumerate(questions):
        slots: dict[str, object] = {}
        rows = found.setdefault(outline_of(question, Values(session.names, slots)), {})
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
    numbering = numbering_of(session.numbers_of(key), key.inline)
    expression, is_guarded, reads = None, False, 0
    if all(kind in OPERANDS or kind == EVERY for _, _, kind, _ in outline.variables):
        shape = key.shape((0,))
        found = rendered(session.rules_of(key), shape, key.dialect, numbering)
        expression = expression_of(found, shape, columns_of(outline), key.dialect)
        (root,) = found.plans
        is_guarded, reads = bool(root.guarded or root.grounded), root.plan.weight
    doubtful = may_be_unknown(session.program_of(key), outline)
    missing = bool(numbering.missing)
    return CompiledOutline(outline, expression, is_guarded, reads, missing, numbering.marks, doubtful)


def columns_of(outline: Outline) -> list[str]:
    """Return the slots of the outline's values, which are columns of a row, in the order of assignment."""
    return list(dict.fromkeys(place for _, _, kind, place in outline.variables if kind in (OTHER, VALUE)))


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


def _fits(compiled: CompiledOutline, group: Sequence[CompiledOutline]) -> bool:
    return len(group) < MOST_OUTLINES and sum(each.reads for each in (compiled, *group)) <= MOST_WEIGHT


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
    watches = session.watches or any(each.misses_signatures for each in group)
    confirmation = Confirmation(session.environment_id, session.needs_key, watches, numbering.marks.ends, key.dialect)
    arms = [_arm(each, slot_of(place), key.dialect) for place, each in enumerate(group)]
    rows = confirmation.of_rows(joined(" UNION ALL ", arms), COLUMNS)
    statement = finished((*with_tables(inline_table(key.dialect, key.inline)), *rows), key.dialect)
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
    return answers_of(rows) if compiled.is_guarded else rows


def _at(places: Sequence[int], ready: Ready) -> Ready:
    """Return the statement of one question, read as the answer to the equal questions at all these positions."""

    def read(fetched: list[Fetched]) -> StatementResult:
        state, rows = ready.read(fetched)
        return state, [(place, row) for place in places for _, row in rows]

    return ready._replace(read=read)


# ---- use cases ------------------------------------------------------------------------------------------------------


def allowed_each(
    asker: Asker, checks: Sequence[Check], context: Sequence[Fact] = (), moment: Moment | None = None
) -> tuple[list[bool], Answered]:
    """Return for each check whether it is allowed, and the answer that says so."""
    found = answered_each(asker, [allow(*check, (), context) for check in checks], context, moment)
    allowed = {index for index, _ in found.rows}
    return [index in allowed for index in range(len(checks))], found


def answered_each(
    asker: Asker, questions: Sequence[Question], context: Sequence[Fact] = (), moment: Moment | None = None
) -> Answered:
    """Answer many questions; those that differ only in their values become rows of one statement.

    With a moment, or if that statement would be too large, each question is a statement of its own.
    """
    with run.question_time():
        if len(questions) > 1 and moment is None:
            with suppress(StatementTooLarge):
                return ask.answered(asker, questions, context, None, statements_for)
        return ask.answered(asker, questions, context, moment, LiveSession.statements_for)


# ---- the SQL of an outline ------------------------------------------------------------------------------------------
# The answer to one question about many rows of values: its parameters become columns of the rows.
#
#     may User:v0 "read" Doc:v1    ->    SELECT r.n, (SELECT EXISTS (… f0.a0 = r.v1 …)) FROM (<rows>) r
#
# The plan is that of the question about one row. Its WITH tables stand inside the expression, which the database
# evaluates for each row. Questions of several kinds are arms of one union; the number `n` identifies the row.

COLUMNS = 2  # columns of an arm: the number of the row, and the answer


def expression_of(found: Rendered, shape: Shape, columns: Sequence[str], dialect: Dialect) -> Text | None:
    """Return the shape's single question as an expression; None if its recursion must be evaluated in rounds."""
    if found.renderer is None:
        return ()
    if found.renderer.rounds:
        return None
    return tuple([_of_row(piece, columns) for piece in _within(found, shape, dialect)])


def _within(found: Rendered, shape: Shape, dialect: Dialect) -> Text:
    """Return a SELECT of a single value: whether there is an answer, or all answers as JSON."""
    assert found.renderer is not None, "something can be true"
    defined = found.renderer.defined(found.tables)
    if not shape.width:
        return (*with_tables(defined), *found.rows)
    columns = ", ".join(Compiled(shape, found.plans, None).names)
    rows: Text = ("found AS (", *found.rows, ")")
    return (*with_tables([*defined, rows]), f"SELECT {dialect.gathered(columns)} FROM found")


def _of_row(piece: Piece, columns: Sequence[str]) -> Piece:
    match piece:
        case Slot(name) | Other(name) if name in columns:
            return f"r.{name}"
    return piece


def slot_of(place: int) -> str:
    return f"rows{place}"


def _arm(compiled: CompiledOutline, slot: str, dialect: Dialect) -> Text:
    """Return the SELECT of an outline's answers, which takes its rows from a parameter of its own (see `slot_of`)."""
    assert compiled.expression, "what nothing can make true is not asked"
    rows = dialect.table((Slot(slot),), ["n", *columns_of(compiled.outline)])
    return ("SELECT r.n, (", *compiled.expression, ") AS o0 FROM (", *rows, ") r")


# ---- facts that match a pattern -------------------------------------------------------------------------------------
# The query of API version 1: a pattern of derived facts becomes questions, and their rows become facts.
#
# A wildcard may have no type, and then stands for all; a variable of a question has one type. So there is a question
# for each combination of types that facts or rules of the predicate can have.
#
#     owns(User:ann, _)     ->  owns(User:ann, Doc:_) and owns(User:ann, Folder:_)

MAX_COMBINATIONS = 2000

_Cell = tuple[str | None, str | None]  # type and id; None: any


def find_facts(asker: Asker, pattern: FactPattern, context: Sequence[Fact], moment: Moment | None = None) -> Answered:
    """Return every fact of the pattern that holds, stored or derived, for `facts_to_json`."""
    found = ask.answered(asker, lambda session: questions_of(session, pattern, context), context, moment)
    return found._replace(pattern=pattern)


# ---- the questions -------------------------------------------------------------------------------------------


def questions_of(session: LiveSession, pattern: FactPattern, context: Sequence[Fact]) -> list[Question]:
    """Return a question for each combination of types; the columns of its answers are the wildcards."""
    program = session.program
    check_predicate(program, pattern.predicate)
    if isinstance(program, OpenProgram):
        known = _stored_types(session.environment_id, pattern, context)
    else:
        known = _program_types(program, pattern)
    return [_question(pattern, types, context) for types in _combinations(pattern, known)]


def _question(pattern: FactPattern, types: tuple[str, ...], context: Sequence[Fact]) -> Question:
    asked = [Asked(name, None if arg.id is None else (arg.id,)) for name, arg in zip(types, pattern.args)]
    wildcards = [place for place, each in enumerate(asked) if each.ids is None]
    return question_about(pattern.predicate, asked, wildcards or range(len(asked))[:1], context)


def _combinations(pattern: FactPattern, known: Iterable[tuple[Types, ...]]) -> list[tuple[str, ...]]:
    """Return all known combinations of argument types, without duplicates."""
    found: dict[tuple[str, ...], None] = {}
    for allowed in known:
        choices = [_choices(arg, types) for arg, types in zip(pattern.args, allowed)]
        number = prod(map(len, choices))
        if number > MAX_COMBINATIONS:
            raise TooManyTypes("combinations of types", number, MAX_COMBINATIONS)
        found.update(dict.fromkeys(product(*choices)))
    if len(found) > MAX_COMBINATIONS:
        raise TooManyTypes("combinations of types", len(found), MAX_COMBINATIONS)
    return list(found)


def _choices(arg: Argument, types: Types) -> list[str]:
    if arg.type is None:
        return sorted(types)
    return [arg.type] if arg.type in types else []


def _program_types(program: Program, pattern: FactPattern) -> Iterator[tuple[Types, ...]]:
    key = (pattern.predicate, len(pattern.args))
    yield from program.accepted.get(key, ())
    for rule in program.rules_by_predicate.get(key, ()):
        yield tuple(types_of(term, rule.types) for term in rule.head.args)


def _stored_types(environment_id: int, pattern: FactPattern, context: Sequence[Fact]) -> Iterator[tuple[Types, ...]]:
    """Yield the types of stored and context facts: without a policy only these count, permissions for `allow`."""
    names = {pattern.predicate, "has_permission"} if pattern.predicate == "allow" else {pattern.predicate}
    signatures = {*signature_numbers(environment_id), *(fact.signature for fact in context)}
    for signature in sorted(signatures, key=str):
        if signature.predicate in names and len(signature.types) == len(pattern.args):
            yield tuple(frozenset((name,)) for name in signature.types)


# ---- the answer ------------------------------------------------------------------------------------------------


def facts_to_json(pattern: FactPattern, found: Answered) -> list[dict[str, object]]:
    """Return the facts, sorted. If an argument may be any value of any type, that is one fact, without a type there."""
    rows = {_cells(found.questions[index], row) for index, row in found.rows}
    every = frozenset(name for name, types in found.session.program.subtypes.items() if name in types)
    for place, arg in enumerate(pattern.args):
        if arg.type is None and every:
            rows = _without_type(rows, place, every)
    ordered = sorted(rows, key=lambda row: [(text is not None, text or "") for cell in row for text in cell])
    return [
        {"predicate": pattern.predicate, "args": [{"type": type_name, "id": text} for type_name, text in row]}
        for row in ordered
    ]


def _cells(question: Question, row: AnswerRow) -> tuple[_Cell, ...]:
    ids = dict(zip(question.outs, row))
    asked = question.variables.items()
    return tuple((each.type, ids[name] if name in question.outs else each.one) for name, each in asked)


def _without_type(rows: set[tuple[_Cell, ...]], place: int, every: Types) -> set[tuple[_Cell, ...]]:
    # Merge rows that have every value of every type at this position into one row without a type there.
    groups: dict[tuple, set[str]] = defaultdict(set)
    for row in rows:
        type_name, text = row[place]
        if text is None and type_name is not None:
            groups[row[:place] + row[place + 1 :]].add(type_name)
    whole = {rest for rest, types in groups.items() if types >= every}
    kept = {row for row in rows if row[place][1] is not None or row[:place] + row[place + 1 :] not in whole}
    return kept | {(*rest[:place], (None, None), *rest[place:]) for rest in whole}
