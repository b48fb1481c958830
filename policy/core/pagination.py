"""Pagination: signed cursors that continue a list, and lists that are read by the keys of their rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Generic, NamedTuple, TypeVar

import orjson
from django.core import signing

# ---- cursors ------------------------------------------------------------------------------------------------------
# A cursor stands at a row, and its list continues after or before the row's key. So while other rows come and go, no
# row is left out or shown twice. Clients and URLs hold it from page to page, as a token that only this service can
# write.

_SALT = "policy.core.pagination"  # part of the signature of tokens that clients hold: never change it


class Cursor(NamedTuple):
    """A position in the list `of`; `then` is the moment that all its pages show, if they show one."""

    of: str
    key: Any
    size: int = 0
    then: Sequence[Any] = ()

    @property
    def token(self) -> str:
        return signing.Signer(salt=_SALT).sign_object(self, compress=True)


def cursor_of(token: object) -> Cursor | None:
    """Return the cursor; None if this service did not write the token."""
    try:
        found = signing.Signer(salt=_SALT).unsign_object(token) if isinstance(token, str) else None
    except (signing.BadSignature, ValueError):
        return None
    return None if found is None else Cursor(*found)


def key_of(token: object, of: str) -> Any:
    """Return the key of the cursor; None if there is none, or if it is of another list."""
    found = cursor_of(token)
    return found.key if found is not None and found.of == of else None


def digest_of(*listed: object) -> str:
    """Return a digest that identifies a list by all that determines it. Raises `orjson.JSONEncodeError`."""
    return sha256(orjson.dumps(listed, option=orjson.OPT_SORT_KEYS)).hexdigest()


def natural_key(text: str | None) -> tuple[bool, list[str | int], str]:
    """Return the sort key of an id for people: 2 precedes 10, and None, which stands for every value, all ids."""
    parts: list[str | int] = list(re.split(r"(\d+)", text or ""))
    parts[1::2] = map(int, parts[1::2])
    return text is not None, parts, text or ""


# ---- lists --------------------------------------------------------------------------------------------------------

T = TypeVar("T")


class Pager(NamedTuple):
    """The URLs of the first, the previous and the next page; empty if there is none."""

    first: str = ""
    previous: str = ""
    next: str = ""


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """Consecutive rows, and whether there are others before and after them."""

    rows: tuple[T, ...] = ()
    has_previous: bool = False
    has_next: bool = False

    def in_order(self, key: Callable[[T], Any]) -> ListPage[T]:
        """Return the page sorted if it is the whole list. Pages of a longer list keep the order of their index."""
        is_whole = not (self.has_previous or self.has_next)
        return replace(self, rows=tuple(sorted(self.rows, key=key))) if is_whole else self

    def pager(self, of: str, key: Callable[[T], object], url: Callable[[dict[str, str]], str]) -> Pager:
        """Return the URLs of the other pages; `url` makes one of the parameters that it gets."""

        def beside(name: str, row: T) -> str:
            return url({name: Cursor(of, key(row)).token})

        return Pager(
            url({}) if self.has_previous else "",
            beside("before", self.rows[0]) if self.has_previous and self.rows else "",
            beside("after", self.rows[-1]) if self.has_next else "",
        )


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A list that is read in pages.

    Both functions return at most a number of rows, in the list's order: those after a key, or from the start without
    one; and those immediately before a key.
    """

    rows_after: Callable[[Any, int], Sequence[T]]
    rows_before: Callable[[Any, int], Sequence[T]]

    def page(self, size: int, after: Any = None, before: Any = None) -> ListPage[T]:
        """Return the page after or before a key. If the rows before a key do not fill a page, return the first page."""
        if before is not None:
            found = self.rows_before(before, size + 1)
            if len(found) > size:
                return ListPage(tuple(found[-size:]), True, True)
            after = None
        found = self.rows_after(after, size + 1)
        return ListPage(tuple(found[:size]), after is not None, len(found) > size)
