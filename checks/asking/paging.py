"""Pages of a list, all as of the moment of the first page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256

import orjson
from django.conf import settings
from django.core import signing

from checks.asking.ask import Answered, answer
from checks.asking.askers import Asker, confirmed
from checks.asking.question import SMALLEST, Page, Question
from checks.serializers import size_from_json
from facts.wire import fact_to_json
from policy.errors import MalformedRequest
from policy.ground import clock
from policy.moments import Moment, NoSuchMoment

# ---- Consistent paging: later pages are answered as of the moment of the first page -------------------------------
# A token names that moment. For ten minutes, if its history is kept that long, the following pages are read as of that
# moment; after that, as of now, starting after the same id. Either way no id is sent twice. An older token must not
# show what was granted then, since some of it may be revoked by now.

LONGEST = 600_000_000  # microseconds for which a list stays unchanged
_CLOCKS_APART = 1_000_000  # microseconds by which the clocks of a primary and a replica may differ

Ask = Callable[[Moment | None], Answered]


def as_of_first_page(asker: Asker, first: Moment | None, ask: Ask) -> tuple[Answered, Moment | None]:
    """Answer a page, and return the moment that it shows: that of the first page, or None for now."""
    if first is None or not _is_recent(first):
        return ask(None), None
    if confirmed(asker).offset == first.revision:  # likely unchanged; answering as of now is faster
        found = ask(None)
        if found.revision == first.revision and found.is_timeless:
            return found, first
    with suppress(NoSuchMoment):
        return ask(first), first
    return ask(None), None


def _is_recent(first: Moment) -> bool:
    """Return whether a list may still show the moment. A future moment dates from before the clock was set back."""
    return -_CLOCKS_APART <= clock.now() - first.at <= LONGEST


def moment_to_token(found: Answered, first: Moment | None) -> list[int]:
    """Return the numbers that identify the moment in a token; without a policy only the revision, for replicas."""
    if first is None and found.version_id is None:
        return [found.revision] if settings.REPLICAS else []
    # The database's clock, right after the statement. Facts that had not expired by then count on all pages.
    at = first or Moment(found.revision, clock.now(), found.version_id)
    return [at.revision, at.at, at.version or 0]


def not_cached(found: Answered) -> Answered:
    """Return the answer, marked as not to be cached.

    A token for the next page contains the time of the first one. In a cached answer, part of its ten minutes would be
    over.
    """
    return found._replace(valid_while=None)


def moment_from_token(numbers: Sequence[int]) -> Moment | None:
    return Moment(*numbers[:3]) if len(numbers) > 2 else None


# ---- Pages of a list: what to read next, in a token that only this service can write ------------------------------
# A signed token continues one question of one environment after the last id that was sent, with the size that the first
# request asked for. Pages follow the order of ids, not positions: while facts change, no id that stays granted is left
# out or sent twice. All pages of a list as of a revision show that revision. All pages of a list as of now show the
# moment at which the first one was answered, as long as its history is kept.

LARGEST = 2**31  # larger than any list
_SALT = "checks.paging"  # part of the signature of tokens that clients hold: never change it, even if this file moves
OF_A_MOMENT = 3  # numbers at the end of a token if the request named a moment
ABOUT_NOW = 1  # with these before it, the token's last number if the request named none
_REFUSED = "is not a valid page token for this list; start again without `page_token`"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The page of a list that a request asks for."""

    size: int
    after: str | None = None
    moment: Moment | None = None  # of all its pages, if the request names one
    first: Moment | None = None  # when the first page of a list as of now was answered
    is_paged: bool = True  # whether the client supports pages, and so needs to know where they end

    @property
    def page(self) -> Page:
        return Page(self.size + 1, self.after)  # one more, to find out whether there is a next page


def page_request_from_json(
    size: object,
    token: object,
    environment_id: int,
    question: Question,
    is_published: bool,
    moment: Moment | None = None,
    is_as_of: bool = False,
) -> PageRequest:
    """Return the requested page. The published clients may omit the size.

    With `is_as_of`, the request names the moment by `as_of`, not by a policy version alone.
    """
    if token is not None:
        return _continued(token, environment_id, question, moment, is_as_of)
    if size is None and is_published:
        return PageRequest(SMALLEST, moment=moment, is_paged=False)
    return PageRequest(min(size_from_json(size, "page_size"), LARGEST), moment=moment)


def page_of_list(asker: Asker, question: Question, wanted: PageRequest) -> tuple[dict[str, object], Answered]:
    """Return the response (ids, `*` for every id, and the token of the next page), and the answer it was made from."""
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
    """Return the revision of the list that a token continues; 0 if the token is invalid or does not contain it."""
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
    """Return whether a request names the token's moment. With only a version, it is as of now, which has moved."""
    return past == moment if is_as_of else past.version == moment.version


def _signer() -> signing.Signer:
    return signing.Signer(salt=_SALT)


def _digest(question: Question) -> str:
    variables = [[name, asked.type, asked.ids] for name, asked in question.variables.items()]
    context = sorted(orjson.dumps(fact_to_json(fact)).decode() for fact in question.context)
    return sha256(orjson.dumps([variables, context])).hexdigest()
