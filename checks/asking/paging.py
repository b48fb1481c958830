"""Answers in parts: pages of a list, and patterns of facts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from math import prod

import orjson
from django.conf import settings
from django.core import signing

from checks.asking.ask import Answered, answer, answered
from checks.asking.askers import Asker, confirmed
from checks.asking.open_policy import OpenProgram
from checks.asking.question import SMALLEST, Asked, Page, Question, check_predicate, question_about
from checks.asking.session import LiveSession
from checks.engine.answers import AnswerRow
from checks.errors import TooManyTypes
from checks.serializers import size_from_json
from facts.numbering import signature_numbers
from facts.wire import Argument, Fact, FactPattern, fact_to_json
from policy.errors import MalformedRequest
from policy.ground import clock
from policy.moments import Moment, NoSuchMoment
from policy.rules.program import Program, Types, types_of

# ---- Pages of a list, all as of the moment of the first one -------------------------------------------------------

# ---- Consistent paging: later pages are answered as of the moment of the first page -------------------------------
# A token says which moment that is. For ten minutes, if its history is kept that long, the following pages are asked
# as of that moment; after that, about now, from the same id on. Either way no id is sent twice. An older token must
# not show what was granted then, since some of it may be revoked by now.

LONGEST = 600_000_000  # microseconds that a list stays as it was
_CLOCKS_APART = 1_000_000  # microseconds by which the clocks of a primary and a replica may differ

Ask = Callable[[Moment | None], Answered]


def as_of_first_page(asker: Asker, first: Moment | None, ask: Ask) -> tuple[Answered, Moment | None]:
    """Ask for a page, and return with it the moment that it is of: that of the first page, or None for now."""
    if first is None or not _is_recent(first):
        return ask(None), None
    if confirmed(asker).offset == first.revision:  # likely nothing has changed, and asking about now is quicker
        found = ask(None)
        if found.revision == first.revision and found.is_timeless:
            return found, first
    with suppress(NoSuchMoment):
        return ask(first), first
    return ask(None), None


def _is_recent(first: Moment) -> bool:
    """Say whether a list may still be of the moment. A moment to come is one from before the clock was set back."""
    return -_CLOCKS_APART <= clock.now() - first.at <= LONGEST


def moment_to_token(found: Answered, first: Moment | None) -> list[int]:
    """Return the numbers by which a token names the moment; without a policy, only the revision, for replicas."""
    if first is None and found.version_id is None:
        return [found.revision] if settings.REPLICAS else []
    # The database's clock, right after the statement. Facts that had not expired by then count on all pages.
    at = first or Moment(found.revision, clock.now(), found.version_id)
    return [at.revision, at.at, at.version or 0]


def not_cached(found: Answered) -> Answered:
    """Return the answer as one that the answer cache does not keep.

    A token for the next page says when the first one was answered. In a cached answer its ten minutes would have begun
    before.
    """
    return found._replace(valid_while=None)


def moment_from_token(numbers: Sequence[int]) -> Moment | None:
    return Moment(*numbers[:3]) if len(numbers) > 2 else None


# ---- Pages of a list: what to read next, in a token that only this service can write ------------------------------
# A token continues one question of one environment after the last id that was sent, with the size that the first
# request asked for. Pages follow the order of ids, not positions: while facts change, no id that stays granted is
# left out or sent twice. All pages of a list as of a revision are of that revision. All pages of a list about now are
# of the moment at which the first one was answered, as long as its history is kept
# (`checks/asking/paging.py`).

LARGEST = 2**31  # more than there are
_SALT = "checks.paging"  # clients have tokens that were signed with it: it stays, wherever this file goes
OF_A_MOMENT = 3  # a token ends with three numbers if the request named a moment
ABOUT_NOW = 1  # a token ends with three numbers and this one if the request named none
_REFUSED = "is not a valid page token for this list; start again without `page_token`"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The page of a list that a request wants."""

    size: int
    after: str | None = None
    moment: Moment | None = None  # that all its pages are of, by the request
    first: Moment | None = None  # of a list about now: when its first page was answered
    is_paged: bool = True  # whether the client knows of pages, and so wants to know where they end

    @property
    def page(self) -> Page:
        return Page(self.size + 1, self.after)  # one more, to know whether there is more


def page_request_from_json(
    size: object,
    token: object,
    environment_id: int,
    question: Question,
    is_published: bool,
    moment: Moment | None = None,
    is_as_of: bool = False,
) -> PageRequest:
    """Return the page that is asked for. The published clients may leave the size out.

    Where `is_as_of`, the request names the moment by `as_of`, and not by a policy version alone.
    """
    if token is not None:
        return _continued(token, environment_id, question, moment, is_as_of)
    if size is None and is_published:
        return PageRequest(SMALLEST, moment=moment, is_paged=False)
    return PageRequest(min(size_from_json(size, "page_size"), LARGEST), moment=moment)


def page_of_list(asker: Asker, question: Question, wanted: PageRequest) -> tuple[dict[str, object], Answered]:
    """Return the answer: ids, `*` for every id, and the token for the next page; and how that was found."""
    page = wanted.page
    found, first = as_of_first_page(
        asker, wanted.first, lambda then: answer(asker, question, page, then or wanted.moment)
    )
    ids = [row[0] for row in found.of_one]
    shown = ["*" if text is None else text for text in ids[: wanted.size]]
    if len(ids) > wanted.size:
        token = _token(replace(wanted, first=first), ids[wanted.size - 1], asker.environment_id, question, found)
        return {"results": shown, "next_page_token": token}, found if wanted.moment else not_cached(found)
    return ({"results": shown, "next_page_token": None} if wanted.is_paged else {"results": shown}), found


# ---- tokens -------------------------------------------------------------------------------------------------


def least_of(token: object) -> int:
    """Return the revision of the list that a token continues; 0 if the token does not say, or is not valid."""
    if isinstance(token, str):
        with suppress(signing.BadSignature, ValueError):
            _, _, _, _, *then = _signer().unsign_object(token)
            return int(then[0]) if then else 0
    return 0


def _token(wanted: PageRequest, last: str | None, environment_id: int, question: Question, found: Answered) -> str:
    then: list[int | None]
    if wanted.moment is not None:
        then = [wanted.moment.revision, wanted.moment.at, wanted.moment.version]
    else:
        numbers = moment_to_token(found, wanted.first)
        then = [*numbers, ABOUT_NOW] if len(numbers) > 1 else [*numbers]
    return _signer().sign_object([environment_id, _digest(question), wanted.size, last or "", *then])


def _continued(
    token: object, environment_id: int, question: Question, moment: Moment | None, is_as_of: bool
) -> PageRequest:
    if not isinstance(token, str):
        raise MalformedRequest("page_token", "must be a string or null")
    try:
        environment, digest, size, last, *then = _signer().unsign_object(token)
    except (signing.BadSignature, ValueError):
        raise MalformedRequest("page_token", _REFUSED) from None
    past, is_about_now = moment_from_token(then), len(then) != OF_A_MOMENT
    if environment != environment_id or digest != _digest(question):
        raise MalformedRequest("page_token", _REFUSED)
    if moment is not None and (is_about_now or past is None or not _is_that(past, moment, is_as_of)):
        raise MalformedRequest("page_token", _REFUSED)
    return PageRequest(size, last, first=past) if is_about_now else PageRequest(size, last, past)


def _is_that(past: Moment, moment: Moment, is_as_of: bool) -> bool:
    """Say whether a request names the moment of a token. With a version alone, it asks about now, which has moved."""
    return past == moment if is_as_of else past.version == moment.version


def _signer() -> signing.Signer:
    return signing.Signer(salt=_SALT)


def _digest(question: Question) -> str:
    variables = [[name, asked.type, asked.ids] for name, asked in question.variables.items()]
    context = sorted(orjson.dumps(fact_to_json(fact)).decode() for fact in question.context)
    return sha256(orjson.dumps([variables, context])).hexdigest()


# ---- fact patterns ------------------------------------------------------------------------------------------------
# The query of version 1: a pattern of derived facts -> a question for each typing of it, and rows -> facts.
#
# A wildcard may have no type, and then is of any; a variable of a question has one type. So there is a question for
# each combination of types that facts or rules of the predicate can have.
#
#     owns(User:ann, _)     ->  owns(User:ann, Doc:_) and owns(User:ann, Folder:_)

MAX_COMBINATIONS = 2000

_Cell = tuple[str | None, str | None]  # type and id; None is every one


def find_facts(
    asker: Asker, pattern: FactPattern, context: Sequence[Fact], moment: Moment | None = None
) -> Answered:  # fmt: skip
    """Return every fact of the pattern that holds, stored or derived, for `facts_to_json`."""
    return answered(asker, lambda session: questions_of(session, pattern, context), context, moment=moment)


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
    """Return every typing of the arguments that is known, each once."""
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
    """Yield the types of stored and context facts: without a policy these alone count, permissions for `allow`."""
    names = {pattern.predicate, "has_permission"} if pattern.predicate == "allow" else {pattern.predicate}
    signatures = {*signature_numbers(environment_id), *(fact.signature for fact in context)}
    for signature in sorted(signatures, key=str):
        if signature.predicate in names and len(signature.types) == len(pattern.args):
            yield tuple(frozenset((name,)) for name in signature.types)


# ---- the answer ------------------------------------------------------------------------------------------------


def facts_to_json(pattern: FactPattern, found: Answered) -> list[dict[str, object]]:
    """Return the facts in order. If an argument may be any value of any type, that is one fact, with no type there."""
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
    # Rows that have every value of every type in this place become one row, without a type there.
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
