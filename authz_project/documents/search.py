"""Words -> the sections of the documents that have all of them, those first that are about them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from authz_project.documents.library import Document, documents
from authz_project.documents.markdown import Section, rendered

LONGEST = 200  # characters that are looked for
MOST_WORDS = 12
MOST_FOUND = 30
EXCERPT = 240  # characters
_WORD = re.compile(r"[^\W_][\w-]{2,}")


@dataclass(frozen=True)
class Found:
    """A section, with the words marked."""

    page: SafeString
    heading: SafeString
    excerpt: SafeString
    path: str


def words_of(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text[:LONGEST].casefold().split()))[:MOST_WORDS]


def search(text: str) -> list[Found]:
    """Return the sections that have all words, the best first; where scores are equal, in the order of the pages."""
    looked_for = [_Word(word) for word in words_of(text)]
    if not looked_for:
        return []
    scored = [
        (score, document, section)
        for document in documents()
        for section in rendered(document).sections
        if (score := _score(document, section, looked_for))
    ]
    scored.sort(key=lambda each: -each[0])
    return [_found(document, section, looked_for) for _, document, section in scored[:MOST_FOUND]]


def meant(text: str) -> str:
    """Replace misspelled words by the closest ones in the documents; return nothing if one has no close match."""
    known = _vocabulary(tuple(documents()))
    words = [word if word in known else next(iter(get_close_matches(word, known, 1)), "") for word in words_of(text)]
    return " ".join(words) if all(words) and tuple(words) != words_of(text) else ""


@lru_cache(maxsize=1)
def _vocabulary(pages: tuple[Document, ...]) -> dict[str, None]:
    return dict.fromkeys(word for page in pages for word in _WORD.findall(page.text.casefold()))


# ---- how good a section is ------------------------------------------------------------------------------------------


class _Word:
    """What is looked for: at the start of a word if it can be, else within."""

    def __init__(self, text: str):
        inner = re.escape(text)
        self.anywhere = re.compile(inner, re.IGNORECASE)
        self.at_start = re.compile(rf"(?<!\w){inner}", re.IGNORECASE)
        self.whole = re.compile(rf"(?<!\w){inner}(?!\w)", re.IGNORECASE)

    def in_heading(self, text: str) -> int:
        return 100 if self.whole.search(text) else 60 if self.at_start.search(text) else 0

    def in_text(self, text: str) -> int:
        if count := len(self.whole.findall(text)):
            return 10 + min(count, 10)
        return 6 if self.at_start.search(text) else 3 if self.anywhere.search(text) else 0


def _score(document: Document, section: Section, words: list[_Word]) -> int:
    """Return a score; 0 if a word is in neither the section nor the page's title."""
    title = document.title if section.heading.level > 1 else ""
    total = 0
    for word in words:
        of_heading = word.in_heading(section.heading.text) * (2 if section.heading.level == 1 else 1)
        of_section = of_heading + word.in_text(section.text)
        if not of_section and not word.in_heading(title):
            return 0
        total += of_section + word.in_heading(title) // 10
    return total


# ---- what is shown of it --------------------------------------------------------------------------------------------


def _found(document: Document, section: Section, words: list[_Word]) -> Found:
    is_page = section.heading.level == 1
    return Found(
        page=marked(document.title, words),
        heading=mark_safe("") if is_page else marked(section.heading.text, words),
        excerpt=marked(_excerpt(section.text, words), words),
        path=document.path + ("" if is_page else f"#{section.heading.anchor}"),
    )


def _excerpt(text: str, words: list[_Word]) -> str:
    """Return the text from a little before the first place that has a word."""
    text = " ".join(text.split())
    places = [found.start() for word in words if (found := word.at_start.search(text) or word.anywhere.search(text))]
    start = max(0, min(places, default=0) - EXCERPT // 4)
    start = text.find(" ", start) + 1 if start else 0
    shown = text[start : start + EXCERPT]
    if start + EXCERPT < len(text):
        shown = shown.rpartition(" ")[0] + " …"
    return f"… {shown}" if start else shown


def marked(text: str, words: list[_Word]) -> SafeString:
    return mark_safe("".join(_pieces(text, words)))  # noqa: S308  every piece is escaped


def _pieces(text: str, words: list[_Word]) -> Iterator[str]:
    either = re.compile("|".join(word.anywhere.pattern for word in words), re.IGNORECASE)
    end = 0
    for found in either.finditer(text):
        yield escape(text[end : found.start()])
        yield f"<mark>{escape(found[0])}</mark>"
        end = found.end()
    yield escape(text[end:])
