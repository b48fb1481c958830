"""The pages of documents, and the search in them."""

import re
import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache, lru_cache
from html import escape
from typing import NamedTuple

from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_safe

from authz_project.documents import library
from authz_project.documents.library import Document, documents
from authz_project.documents.markdown import DocumentSection, rendered, sections_of
from authz_project.environments import facts_text
from policy.errors import Unavailable

# ---- search -------------------------------------------------------------------------------------------------------
# Words -> the sections of the documents that have all of them, those first that are about them.
#
# Anybody may search, so a search is cheap: an index of the words of all sections is made once in a process, a search
# has few words and few hits, and one runs at a time.

LONGEST = 200  # characters that are looked for
MOST_WORDS = 6
LONGEST_WORD = 24  # letters of a word that another one is suggested for
MOST_FOUND = 20
EXCERPT = 240  # characters
MOST_MARKED = 8  # words of a text
WAIT = 2.0  # seconds for another search to end, or for the index to be made
_WORD = re.compile(r"[^\W_]{2,}")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class SearchHit:
    """A section, with the words marked."""

    page: SafeString
    heading: SafeString
    excerpt: SafeString
    path: str


def words_of(text: str) -> tuple[str, ...]:
    """Return the words that are looked for: those of at least two letters."""
    return tuple(dict.fromkeys(_WORD.findall(text[:LONGEST].casefold())))[:MOST_WORDS]


def search(text: str) -> list[SearchHit]:
    """Return the sections that have all words, the best first; where scores are equal, in the order of the pages."""
    words = words_of(text)
    if not words:
        return []
    if not _one_at_a_time.acquire(timeout=WAIT):
        raise Unavailable("too many search at once, try again")
    try:
        index = _index()
        return [_found(index.entries[place], words) for place in index.best(words)]
    finally:
        _one_at_a_time.release()


def meant(text: str) -> str:
    """Replace misspelled words by close ones of the documents; return nothing if one has no close one."""
    words = words_of(text)
    close = [_index().closest(word) for word in words]
    return " ".join(close) if all(close) and tuple(close) != words else ""


# ---- the index ------------------------------------------------------------------------------------------------------


class IndexEntry(NamedTuple):
    document: Document
    section: DocumentSection
    text: str  # of the section, on one line


class Posting(NamedTuple):
    """What a word scores in a section: for standing there as a whole, and for beginning a word there."""

    whole: int
    start: int


class Index:
    def __init__(self, entries: list[IndexEntry]):
        self.entries = entries
        self._postings: dict[str, dict[int, Posting]] = defaultdict(dict)
        self._counts: Counter[str] = Counter()
        for place, entry in enumerate(entries):
            self._add(place, entry)
        self._words = sorted(self._postings)

    def _add(self, place: int, entry: IndexEntry) -> None:
        heading, is_title = entry.section.heading, entry.section.heading.level == 1
        in_heading, in_text = set(_words_in(heading.text)), Counter(_words_in(entry.text))
        in_title = set() if is_title else set(_words_in(entry.document.title))
        times = 2 if is_title else 1
        for word in {*in_heading, *in_text, *in_title}:
            whole = start = 0
            if word in in_heading:
                whole, start = 100 * times, 60 * times
            if count := in_text[word]:
                whole, start = whole + 10 + min(count, 10), start + 6
            if word in in_title:
                whole, start = whole + 10, start + 6
            self._postings[word][place] = Posting(whole, start)
        self._counts.update(in_text)

    def best(self, words: tuple[str, ...]) -> list[int]:
        """Return the places of the sections that have all the words, the best first."""
        total: dict[int, int] | None = None
        for word in words:
            scores = self._scores(word)
            total = {place: score + (total[place] if total else 0) for place, score in scores.items()
                     if total is None or place in total}  # fmt: skip
        assert total is not None, "there are words"
        return sorted(total, key=lambda place: (-total[place], place))[:MOST_FOUND]

    def _scores(self, word: str) -> dict[int, int]:
        scores = {place: posting.whole for place, posting in self._postings.get(word, {}).items()}
        for place in range(bisect_left(self._words, word), len(self._words)):
            longer = self._words[place]
            if not longer.startswith(word):
                break
            for section, posting in self._postings[longer].items():
                if scores.get(section, 0) < posting.start:
                    scores[section] = posting.start
        return scores

    def closest(self, word: str) -> str:
        """Return the word if it is known, else the most frequent one that differs in one letter, or in two swapped."""
        if word in self._postings or len(word) > LONGEST_WORD:
            return word if word in self._postings else ""
        parts = [(word[:place], word[place:]) for place in range(len(word) + 1)]
        near = {start + end[1:] for start, end in parts if end}
        near |= {start + end[1] + end[0] + end[2:] for start, end in parts if len(end) > 1}
        near |= {start + letter + end[1:] for start, end in parts if end for letter in _LETTERS}
        near |= {start + letter + end for start, end in parts for letter in _LETTERS}
        return max(near & self._postings.keys(), key=lambda each: (self._counts[each], each), default="")


@cache
def _index() -> Index:
    entries = [
        IndexEntry(document, section, " ".join(section.text.split()))
        for document in documents()
        for section in sections_of(document)
    ]
    return Index(entries)


def _words_in(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


# ---- what is shown of it --------------------------------------------------------------------------------------------


def _found(entry: IndexEntry, words: tuple[str, ...]) -> SearchHit:
    document, heading = entry.document, entry.section.heading
    marks = re.compile(rf"(?<![^\W_])({'|'.join(sorted(words, key=len, reverse=True))})", re.IGNORECASE)
    is_page = heading.level == 1
    return SearchHit(
        page=marked(document.title, marks),
        heading=mark_safe("") if is_page else marked(heading.text, marks),
        excerpt=marked(_excerpt(entry.text, marks), marks),
        path=document.path + ("" if is_page else f"#{heading.anchor}"),
    )


def _excerpt(text: str, marks: re.Pattern[str]) -> str:
    """Return the text from a little before the first place that has a word."""
    first = marks.search(text)
    start = max(0, (first.start() if first else 0) - EXCERPT // 4)
    start = text.find(" ", start) + 1 if start else 0
    shown = text[start : start + EXCERPT]
    if start + EXCERPT < len(text):
        shown = shown.rpartition(" ")[0] + " …"
    return f"… {shown}" if start else shown


def marked(text: str, marks: re.Pattern[str]) -> SafeString:
    """Escape the text, and mark what the pattern's only group matches."""
    pieces = [escape(piece) for piece in marks.split(text, MOST_MARKED)]
    pieces[1::2] = [f"<mark>{piece}</mark>" for piece in pieces[1::2]]
    return mark_safe("".join(pieces))  # noqa: S308  every piece is escaped


# ---- views --------------------------------------------------------------------------------------------------------
# What is served: a page, what a search finds, a picture. All may read them: they tell nothing of an installation.

# Pages have no script at all.
_POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {"Content-Security-Policy": _POLICY, "Cache-Control": "max-age=60"}


@require_safe
def front(request: HttpRequest) -> HttpResponse:
    """Return the first page; with `?q=`, what has these words."""
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
    """Return the whole page, and keep it: it is the same for everybody, until a file changes."""
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
    return _framed("found", title="No such page", missing=name, asked=words, found=search(words), meant="")


def _framed(template: str, document: Document | None = None, **context: object) -> str:
    navigation = _navigation(tuple(library.documents()), document)
    shown = context | {"document": document, "navigation": navigation, "longest": LONGEST}
    return render_to_string(f"authz_project/documents/{template}.html", shown)


@lru_cache(maxsize=100)
def _navigation(pages: tuple[Document, ...], document: Document | None) -> str:
    """Return the list of pages, which takes longer to render than what a search finds."""
    shown = {"groups": library.groups(), "document": document}
    return render_to_string("authz_project/documents/navigation.html", shown)
