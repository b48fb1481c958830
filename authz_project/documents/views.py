"""The documentation pages, and their search."""

import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from html import escape
from typing import NamedTuple

from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_safe

from authz_project.documents import library
from authz_project.documents.library import Document, documents
from authz_project.documents.markdown import rendered, sections_of
from authz_project.environments import facts_text
from policy.errors import Unavailable

# ---- search -------------------------------------------------------------------------------------------------------
# Words -> the sections that contain all of them, most relevant first.
#
# Search is public, so it must be cheap: SQLite's full-text index of all sections is built once per process, in memory;
# the number of words and hits is limited; and searches run one at a time.

LONGEST = 200  # characters of a query
MOST_WORDS = 6
LONGEST_WORD = 24  # letters of a word to suggest corrections for
WAIT = 2.0  # seconds to wait for another search, or for building the index
_WORD = re.compile(r"[^\W_]{2,}")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MARKS = str.maketrans({"\x02": "<mark>", "\x03": "</mark>"})
_one_at_a_time = threading.Lock()

_TABLES = """
CREATE VIRTUAL TABLE section USING fts5(page, heading, text, path UNINDEXED, prefix = '2 3');
CREATE VIRTUAL TABLE word USING fts5vocab(section, 'row');
"""
_FIND = """
SELECT highlight(section, 0, char(2), char(3)), highlight(section, 1, char(2), char(3)),
       snippet(section, 2, char(2), char(3), '…', 40), path
FROM section WHERE section MATCH ? ORDER BY bm25(section, 2, 20, 1), rowid LIMIT 20
"""
_KNOWN = """
SELECT term FROM word WHERE term IN (SELECT value FROM json_each(?)) ORDER BY term = ? DESC, cnt DESC, term LIMIT 1
"""


class SearchHit(NamedTuple):
    """A section with highlighted words. The one above a page's first heading has no `page`, only its title."""

    page: SafeString
    heading: SafeString
    excerpt: SafeString
    path: str


def words_of(text: str) -> tuple[str, ...]:
    """Return the words to search for, of at least two letters."""
    return tuple(dict.fromkeys(_WORD.findall(text[:LONGEST].casefold())))[:MOST_WORDS]


def search(text: str) -> list[SearchHit]:
    """Return up to 20 sections that contain all words, or words with these prefixes, most relevant first."""
    words = words_of(text)
    if not words:
        return []
    query = " AND ".join(f'("{word}" OR "{word}"*)' for word in words)  # whole words rank higher
    with _index() as index:
        found = index.execute(_FIND, [query]).fetchall()
    return [SearchHit(_marked(page), _marked(heading), _marked(text), path) for page, heading, text, path in found]


def meant(text: str) -> str:
    """Replace misspelled words by similar ones from the index; return an empty text if one has none."""
    words = words_of(text)
    with _index() as index:
        close = [_closest(word, index) for word in words]
    return " ".join(close) if all(close) and tuple(close) != words else ""


def _closest(word: str, index: sqlite3.Connection) -> str:
    """Return the word if it is known, else the most frequent one at edit distance 1 (including a swap of letters)."""
    parts = [(word[:place], word[place:]) for place in range(len(word) + 1)] if len(word) <= LONGEST_WORD else []
    near = {start + end[1:] for start, end in parts if end}
    near |= {start + end[1] + end[0] + end[2:] for start, end in parts if len(end) > 1}
    near |= {start + letter + end[1:] for start, end in parts if end for letter in _LETTERS}
    near |= {start + letter + end for start, end in parts for letter in _LETTERS}
    found = index.execute(_KNOWN, [json.dumps([word, *near]), word]).fetchone()
    return str(found[0]) if found else ""


@contextmanager
def _index() -> Iterator[sqlite3.Connection]:
    """Provide the index to one search at a time."""
    if not _one_at_a_time.acquire(timeout=WAIT):
        raise Unavailable("too many searches are running; try again")
    try:
        yield _made_index()
    finally:
        _one_at_a_time.release()


@cache
def _made_index() -> sqlite3.Connection:
    index = sqlite3.connect(":memory:", check_same_thread=False)
    index.executescript(_TABLES)
    for document in documents():
        for section in sections_of(document):
            heading, text = section.heading, " ".join(section.text.split())
            is_title = heading.level == 1
            place = document.path + ("" if is_title else f"#{heading.anchor}")
            row = ("" if is_title else document.title, heading.text, text, place)
            index.execute("INSERT INTO section VALUES (?, ?, ?, ?)", row)
    return index


def _marked(text: str) -> SafeString:
    return mark_safe(escape(text).translate(_MARKS))  # noqa: S308  it is escaped


# ---- views --------------------------------------------------------------------------------------------------------
# Pages, search results and images. They are public, and reveal nothing about an installation.

# Pages have no scripts.
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {"Content-Security-Policy": _POLICY, "Cache-Control": "max-age=60"}


@require_safe
def front(request: HttpRequest) -> HttpResponse:
    """Return the first page; with `?q=`, search results."""
    asked = request.GET.get("q", "").replace("\0", "").strip()[:LONGEST]
    return _answer(_found_page(asked)) if asked else page(request, library.FRONT)


@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    if name not in library.names():
        return _answer(_missing(name), 404)
    return _answer(_page(library.document(name), tuple(library.documents()), facts_text()))


@require_safe
def picture(request: HttpRequest, name: str) -> HttpResponse:
    path = library.pictures().get(name)
    if path is None:
        raise Http404
    kind = library.PICTURES[path.suffix]
    return HttpResponse(path.read_bytes(), content_type=kind, headers=_HEADERS)


def _answer(content: str, status: int = 200) -> HttpResponse:
    return HttpResponse(content, status=status, headers=_HEADERS)


@lru_cache(maxsize=100)
def _page(document: Document, pages: tuple[Document, ...], facts: str) -> str:
    """Return a rendered page, cached: it is the same for everyone, until a file changes."""
    place = pages.index(document)
    page = rendered(document)
    return _framed(
        "page",
        document=document,
        facts=facts,
        title=document.title,
        content=page.html,
        headings=[heading for heading in page.headings if heading.level <= 3],
        previous=pages[place - 1] if place else None,
        next=pages[place + 1] if place + 1 < len(pages) else None,
    )


def _found_page(asked: str) -> str:
    found = search(asked)
    return _framed("found", title=f"“{asked}”", asked=asked, found=found, meant="" if found else meant(asked))


def _missing(name: str) -> str:
    words = name.replace("-", " ")
    return _framed("found", title="Page not found", missing=name, asked=words, found=search(words), meant="")


def _framed(template: str, document: Document | None = None, **context: object) -> str:
    navigation = _navigation(tuple(library.documents()), document)
    shown = context | {"document": document, "navigation": navigation, "longest": LONGEST}
    return render_to_string(f"authz_project/documents/{template}.html", shown)


@lru_cache(maxsize=100)
def _navigation(pages: tuple[Document, ...], document: Document | None) -> str:
    """Return the rendered navigation, cached: it takes longer than rendering search results."""
    shown = {"groups": library.groups(), "document": document}
    return render_to_string("authz_project/documents/navigation.html", shown)
