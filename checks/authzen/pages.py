"""Pages of a search: how many are wanted, and what token continues them.

A token is signed. It continues one search of one environment after the last id that was sent, so no result is left out
or sent twice while facts change. All pages are of the moment at which the first one was answered, as long as its
history is kept (`checks/asking/consistent_paging.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

import orjson
from django.core import signing

from checks.asking.consistent_paging import moment_from_token
from checks.asking.question import Page
from checks.authzen.entities import PageAsked
from policy.errors import MalformedRequest
from policy.moments import Moment

LARGEST = 2**31
_SALT = "checks.authzen.pages"
_REFUSED = "is not a token that this search was continued with"
_CHANGED = "must be what it was, or left out: a token continues with the limit that the search began with"


@dataclass(frozen=True, slots=True)
class SearchPage:
    """The page of a search that a request wants."""

    size: int
    after: str | None = None
    first: Moment | None = None  # when the first page was answered

    @property
    def page(self) -> Page:
        return Page(self.size + 1, self.after)  # one more, to know whether there is more


def digest_of(environment_id: int, path: str, body: dict[str, object]) -> str:
    """Return a digest that all pages of a search share, and no other search has."""
    asked = {name: value for name, value in body.items() if name != "page"}
    try:
        text = orjson.dumps([environment_id, path, asked], option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # a large body may nest as deep as orjson reads, which is deeper than it writes
        raise MalformedRequest("", "the body nests too deep") from None
    return sha256(text).hexdigest()


def search_page_of(asked: PageAsked | None, digest: str) -> SearchPage | None:
    """Return the page that is wanted; None if all results are."""
    if asked is None or (asked.token is None and asked.limit is None):
        return None
    limit = None if asked.limit is None else min(asked.limit, LARGEST)
    if asked.token is None:
        return SearchPage(LARGEST if limit is None else limit)
    try:
        of, size, last, *numbers = signing.Signer(salt=_SALT).unsign_object(asked.token)
    except (signing.BadSignature, ValueError):
        raise MalformedRequest("page.token", _REFUSED) from None
    if of != digest:
        raise MalformedRequest("page.token", _REFUSED)
    if limit not in (None, size):
        raise MalformedRequest("page.limit", _CHANGED)
    return SearchPage(size, last, moment_from_token(numbers))


def least_of(asked: object) -> int:
    """Return the revision of the search that is continued; 0 if the token does not say, or there is none."""
    token = asked.get("token") if isinstance(asked, dict) else None
    if isinstance(token, str):
        with suppress(signing.BadSignature, ValueError):
            _, _, _, *least = signing.Signer(salt=_SALT).unsign_object(token)
            return int(least[0]) if least else 0
    return 0


def page_of(
    wanted: SearchPage | None, ids: list[str | None], digest: str, moment: Callable[[], list[int]]
) -> tuple[list[str | None], dict[str, object]]:
    """Return the results of this page, and its member `page`. `moment` gives the last numbers of the next token."""
    if wanted is None:
        return ids, {"next_token": "", "count": len(ids)}
    shown = ids[: wanted.size]
    token = ""
    if len(ids) > wanted.size:
        last = (shown[-1] or "") if shown else wanted.after  # a page of no results is followed from where it began
        token = signing.Signer(salt=_SALT).sign_object([digest, wanted.size, last, *moment()])
    return shown, {"next_token": token, "count": len(shown)}
