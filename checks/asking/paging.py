"""Pages of a list of ids, all as of the moment of the first page."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import orjson

from checks.asking.ask import Answered, Asker, confirmed
from checks.asking.question import SMALLEST, Page, Question
from checks.serializers import size_from_json
from facts.wire import fact_to_json
from policy.core import clock
from policy.core.config import settings
from policy.core.pagination import Cursor, cursor_of, digest_of
from policy.errors import MalformedRequest
from policy.moments import Moment, MomentNotAvailable

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
    with suppress(MomentNotAvailable):
        return ask(first), first
    return ask(None), None


def _is_recent(first: Moment) -> bool:
    """Return whether a list may still show the moment. A future moment dates from before the clock was set back."""
    return -_CLOCKS_APART <= clock.now() - first.at <= LONGEST


# ---- Pages of a list: what to read next ---------------------------------------------------------------------------
# A token continues one question of one environment after the last id that was sent, with the size that the first
# request asked for. Pages follow the order of ids, not positions: while facts change, no id that stays granted is left
# out or sent twice. All pages of a list as of a revision show that revision. All pages of a list as of now show the
# moment at which the first one was answered, as long as its history is kept.

LARGEST = 2**31  # larger than any list
OF_A_MOMENT = 3  # numbers in a token if the request named a moment
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


class IdPage(NamedTuple):
    """The ids of a page, the token of the next page (empty if it is the last), and the answer they were made from."""

    ids: list[str | None]
    token: str
    found: Answered


def continued(token: str, of: str) -> PageRequest | None:
    """Return the page after that of the token; None if it is not a token of this list."""
    cursor = cursor_of(token)
    if cursor is None or cursor.of != of:
        return None
    then = Moment(*cursor.then[:OF_A_MOMENT]) if len(cursor.then) >= OF_A_MOMENT else None
    if len(cursor.then) == OF_A_MOMENT:
        return PageRequest(cursor.size, cursor.key, then)
    return PageRequest(cursor.size, cursor.key, first=then)


def least_of(token: object) -> int:
    """Return the revision of the list that a token continues; 0 if the token is invalid or does not contain it."""
    cursor = cursor_of(token)
    return cursor.then[0] or 0 if cursor is not None and cursor.then else 0


def page_of(
    asker: Asker,
    of: Callable[[], str],
    wanted: PageRequest,
    ask: Ask,
    ids_of: Callable[[Answered], list[str | None]],
    named: Moment | None = None,
) -> IdPage:
    """Read a page of the list `of`. `named` is the moment that `ask` uses for None, if the request names one.

    The answer is marked as not to be cached if the token contains the time of the first page: in a cached answer, part
    of its ten minutes would be over.
    """
    found, first = as_of_first_page(asker, wanted.first, ask)
    ids = ids_of(found)
    if len(ids) <= wanted.size:
        return IdPage(ids, "", found)
    shown = ids[: wanted.size]
    last = (shown[-1] or "") if shown else wanted.after  # an empty page is continued from its own start
    token = Cursor(of(), last, wanted.size, _then(wanted, found, first or named)).token
    return IdPage(shown, token, found if wanted.moment or named else found._replace(valid_while=None))


def _then(wanted: PageRequest, found: Answered, first: Moment | None) -> list[int | None]:
    """Return the numbers that identify the moment in a token; without a policy only the revision, for replicas."""
    if wanted.moment is not None:
        return [wanted.moment.revision, wanted.moment.at, wanted.moment.version]
    if first is None and found.version_id is None:
        return [found.revision] if settings.REPLICAS else []
    # The database's clock, right after the statement. Facts that had not expired by then count on all pages.
    at = first or Moment(found.revision, clock.now(), found.version_id)
    return [at.revision, at.at, at.version or 0, ABOUT_NOW]


# ---- the endpoint that lists resources ----------------------------------------------------------------------------


def page_request_from_json(
    size: object,
    token: object,
    of: Callable[[], str],
    is_published: bool,
    moment: Moment | None = None,
    is_as_of: bool = False,
) -> PageRequest:
    """Return the requested page of the list `of`. The published clients may omit the size.

    With `is_as_of`, the request names the moment by `as_of`, not by a policy version alone.
    """
    if token is None:
        if size is None and is_published:
            return PageRequest(SMALLEST, moment=moment, is_paged=False)
        return PageRequest(min(size_from_json(size, "page_size"), LARGEST), moment=moment)
    if not isinstance(token, str):
        raise MalformedRequest("page_token", "must be a string or null")
    wanted = continued(token, of())
    if wanted is None or (moment is not None and not _is_that(wanted.moment, moment, is_as_of)):
        raise MalformedRequest("page_token", _REFUSED)
    return wanted


def _is_that(past: Moment | None, moment: Moment, is_as_of: bool) -> bool:
    """Return whether a request names the token's moment. With only a version, it is as of now, which has moved."""
    return past is not None and (past == moment if is_as_of else past.version == moment.version)


def list_of(environment_id: int, question: Question) -> str:
    """Return what identifies the list of a question's answers in tokens."""
    variables = [[name, asked.type, asked.ids] for name, asked in question.variables.items()]
    context = sorted(orjson.dumps(fact_to_json(fact)).decode() for fact in question.context)
    return digest_of("list", environment_id, variables, context)


def page_to_json(page: IdPage, wanted: PageRequest) -> dict[str, object]:
    """Return the response: ids, `*` for every id, and the token of the next page."""
    shown = ["*" if text is None else text for text in page.ids]
    if wanted.is_paged or page.token:
        return {"results": shown, "next_page_token": page.token or None}
    return {"results": shown}
