"""Pages of a list: what to read next, in a token that only this service can write.

A token continues one question of one environment after the last id that was sent, with the size that the first request
asked for. Pages follow the order of ids, not positions: while facts change, no id that stays granted is left out or
sent twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import orjson
from django.core import signing

from checks.asking.question import Page, Question
from checks.serializers import SMALLEST, size_from_json
from facts.wire import fact_to_json
from policy.errors import MalformedRequest

LARGEST = 2**31  # more than there are
_SALT = "checks.paging"  # clients have tokens that were signed with it: it stays, wherever this file goes
_REFUSED = "is not a token that this list was continued with"


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of a list that a request wants."""

    size: int
    after: str | None = None
    is_paged: bool = True  # whether the client knows of pages, and so wants to know where they end

    @property
    def page(self) -> Page:
        return Page(self.size + 1, self.after)  # one more, to know whether there is more


def cut_from_json(size: object, token: object, environment_id: int, question: Question, is_published: bool) -> Cut:
    """Return the part that is asked for. The published clients may leave the size out."""
    if token is not None:
        return _continued(token, environment_id, question)
    if size is None and is_published:
        return Cut(SMALLEST, is_paged=False)
    return Cut(min(size_from_json(size, "page_size"), LARGEST))


def listing(cut: Cut, ids: list[str | None], environment_id: int, question: Question) -> dict[str, object]:
    """Return the answer: ids, `*` for every id, and the token for the next page."""
    shown = ["*" if text is None else text for text in ids[: cut.size]]
    if len(ids) > cut.size:
        return {"results": shown, "next_page_token": _token(cut.size, ids[cut.size - 1], environment_id, question)}
    return {"results": shown, "next_page_token": None} if cut.is_paged else {"results": shown}


# ---- tokens -------------------------------------------------------------------------------------------------


def _token(size: int, last: str | None, environment_id: int, question: Question) -> str:
    return _signer().sign_object([environment_id, _digest(question), size, last or ""])


def _continued(token: object, environment_id: int, question: Question) -> Cut:
    if not isinstance(token, str):
        raise MalformedRequest("page_token", "must be a string or null")
    try:
        environment, digest, size, last = _signer().unsign_object(token)
    except (signing.BadSignature, ValueError):
        raise MalformedRequest("page_token", _REFUSED) from None
    if environment != environment_id or digest != _digest(question):
        raise MalformedRequest("page_token", _REFUSED)
    return Cut(size, last)


def _signer() -> signing.Signer:
    return signing.Signer(salt=_SALT)


def _digest(question: Question) -> str:
    variables = [[name, asked.type, asked.ids] for name, asked in question.variables.items()]
    context = sorted(orjson.dumps(fact_to_json(fact)).decode() for fact in question.context)
    return sha256(orjson.dumps([variables, context])).hexdigest()
