"""The query of API version 1: turn a pattern of derived facts into questions, and their rows into facts.

A wildcard may have no type, and then stands for all; a variable of a question has one type. So there is a question for
each combination of types that facts or rules of the predicate can have.

    owns(User:ann, _)     ->  owns(User:ann, Doc:_) and owns(User:ann, Folder:_)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod

from checks.asking import ask
from checks.asking.ask import Answered
from checks.asking.open_policy import OpenProgram
from checks.asking.question import Asked, Question, check_predicate, question_about
from checks.asking.session import Asker, LiveSession
from checks.engine.answers import AnswerRow
from checks.errors import TooManyTypes
from facts.numbering import signature_numbers
from facts.wire import Argument, Fact, FactPattern
from policy.moments import Moment
from policy.rules.program import Program, Types, types_of

MAX_COMBINATIONS = 2000

_Cell = tuple[str | None, str | None]  # type and id; None: any


def find_facts(
    asker: Asker, pattern: FactPattern, context: Sequence[Fact], moment: Moment | None = None
) -> Answered:  # fmt: skip
    """Return every fact of the pattern that holds, stored or derived, for `facts_to_json`."""
    return ask.answered(asker, lambda session: questions_of(session, pattern, context), context, moment)


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
    every = _every_type(found.session.program)
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


def _every_type(program: Program) -> Types:
    return frozenset(name for name, types in program.subtypes.items() if name in types)
