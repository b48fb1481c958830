"""Facts as pages show them: grouped by kind, one line each, with a link from every value to its page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import urlencode

from django.http import HttpRequest

from facts.history_pages import fact_url
from facts.models import Signature
from facts.numbering import types_of_text
from facts.pages.addresses import browse_url, mark_of, token_of, value_url
from facts.validity import shown_end
from facts.walk import Met, Page, SearchColumn, page_after, page_before
from facts.wire import Fact
from policy.values import PRIMITIVES, Value

LONG = 60  # characters of an id, from which on it has a line of its own


@dataclass(frozen=True)
class Cell:
    """An argument of a fact."""

    value: Value
    url: str
    is_here: bool = False  # whether the page is about this value

    @property
    def is_name(self) -> bool:
        """Say whether the value is of a primitive type, such as the role that relates the other arguments."""
        return self.value.type in PRIMITIVES


@dataclass(frozen=True)
class Line:
    """A fact."""

    fact: Fact
    cells: tuple[Cell, ...]
    end: str
    token: str
    history_url: str


@dataclass(frozen=True)
class Column:
    type: str
    url: str
    is_here: bool = False


@dataclass(frozen=True)
class Group:
    """Successive facts of one kind. On the page of a value, `is_here` marks the column of the value."""

    kind: Signature
    url: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]


def groups(met: Iterable[Met], is_about: Value | None = None, by_column: bool = False) -> list[Group]:
    found = groupby(met, lambda each: each.column if by_column else each.column.kind)
    return [_group(list(same), is_about, by_column) for _, same in found]


def _group(met: list[Met], is_about: Value | None, by_column: bool) -> Group:
    column = met[0].column
    kind, where = column.kind, column.kind.environment_id
    columns = tuple(
        Column(name, browse_url(where, predicate=kind.predicate, type=name), by_column and at == column.position)
        for at, name in enumerate(types_of_text(kind.types))
    )
    lines = tuple(_line(each, is_about) for each in met)
    return Group(kind, browse_url(where, predicate=kind.predicate), columns, lines)


def _line(met: Met, is_about: Value | None) -> Line:
    fact, slug = met.fact, met.column.kind.environment.slug
    cells = tuple(Cell(value, value_url(slug, value), value == is_about) for value in fact.args)
    return Line(fact, cells, end_of(fact), token_of(met.mark), fact_url(met.filed.row, len(fact.args)))


def end_of(fact: Fact) -> str:
    """Say until when a fact is stored; return an empty text if it has no end."""
    return "" if fact.expires_at is None else f"until {shown_end(fact.expires_at)}"


# ---- from page to page -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turned:
    """A page of a walk, and the addresses of the first, previous and next pages; empty where there is none."""

    page: Page
    first: str = ""
    previous: str = ""
    next: str = ""


def turned(request: HttpRequest, walk: list[SearchColumn], asked: Mapping[str, str]) -> Turned:
    """Return the page that the address asks for: after a fact, before one, or the first page."""
    after, before = mark_of(request.GET.get("after", "")), mark_of(request.GET.get("before", ""))
    page = page_after(walk, after) if before is None else page_before(walk, before)
    here = f"?{urlencode(asked)}" if asked else "?"
    step = f"{here}&" if asked else here
    last = after if not page.facts else None
    return (
        Turned(
            page,
            first=here if page.has_previous else "",
            previous=_step(step, "before", page.facts[0] if page.has_previous and page.facts else None),
            next=_step(step, "after", page.facts[-1] if page.has_next else None),
        )
        if last is None
        else Turned(page, first=here)
    )


def _step(step: str, name: str, met: Met | None) -> str:
    return "" if met is None else f"{step}{urlencode({name: token_of(met.mark)})}"
