"""Pages of a list: what to read next, in a token that only this service can write.

A token continues one question of one environment after the last id that was sent, with the size that the first request
asked for. Pages follow the order of ids, not positions: while facts change, no id that stays granted is left out or
sent twice. All pages of a list as of a revision are of that revision. All pages of a list about now are of the moment
at which the first one was answered, as long as its history is kept (`checks/asking/consistent_paging.py`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256

import orjson
from django.core import signing

from checks.asking.ask import Answered, answer
from checks.asking.askers import Asker
from checks.asking.consistent_paging import as_of_first_page, moment_from_token, moment_to_token, not_cached
from checks.asking.question import Page, Question
from checks.serializers import SMALLEST, size_from_json
from facts.wire import fact_to_json
from policy.errors import MalformedRequest
from policy.moments import Moment

LARGEST = 2**31  # more than there are
_SALT = "checks.paging"  # clients have tokens that were signed with it: it stays, wherever this file goes
OF_A_MOMENT = 3  # a token ends with three numbers if the request named a moment
ABOUT_NOW = 1  # a token ends with three numbers and this one if the request named none
_REFUSED = "is not a token that this list was continued with"


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
