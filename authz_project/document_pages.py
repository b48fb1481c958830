"""The documentation pages: Markdown -> HTML with syntax highlighting, their sections, and the search."""

import json
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, NamedTuple

from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.views.decorators.http import require_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, String, Text
from pygments.util import ClassNotFound

from authz_project import documents as library
from authz_project.documents import Document, documents, path_of
from authz_project.environments import facts_text
from policy.endpoint import public_url_of
from policy.errors import Unavailable
from policy.pages.highlight import highlighted_lines

# ---- syntax highlighting ------------------------------------------------------------------------------------------
# Samples -> HTML, with a class for each kind of token: Polar by its own lexer, other languages by Pygments.

_CLASSES = (
    (Comment, "comment"), (Keyword, "keyword"), (String, "string"), (Number, "number"), (Name.Tag, "type"),
    (Name.Attribute, "type"), (Name.Variable, "constant"),
)  # fmt: skip
# Languages that Pygments does not know are highlighted like similar ones.
_LIKE = {"jsonl": "json", "jsonc": "js", "ask": "sh", "zed": "js", "perm": "js", "cedar": "js"}
# A file written by a shell's here-document; the suffix of its name determines the language.
_HEREDOC = re.compile(r"> *\S+?(?P<suffix>\.\w+)? <<'(?P<mark>\w+)'[^\n]*\n(?P<body>[\s\S]*?)^(?P=mark)$", re.MULTILINE)
_OF_FILE = {".polar": "polar", ".py": "python", ".sql": "sql", ".yaml": "yaml", ".json": "json"}


def coloured(text: str, language: str) -> SafeString:
    """Return the text as HTML; all of it is kept and escaped."""
    match language:
        case "polar" | "facts":
            return mark_safe("\n".join(highlighted_lines(text)) + "\n")  # noqa: S308  every piece is escaped
        case "sh":
            return mark_safe("".join(_shell(text)))  # noqa: S308  likewise
    return mark_safe("".join(_by_pygments(text, language)))  # noqa: S308  likewise


def _shell(text: str) -> Iterator[str]:
    """Highlight shell code, and here-documents in their own language."""
    end = 0
    for found in _HEREDOC.finditer(text):
        yield from _by_pygments(text[end : found.start("body")], "sh")
        is_shell = found["body"].startswith("#!/bin/sh")
        yield coloured(found["body"], "sh" if is_shell else _OF_FILE.get(found["suffix"] or "", ""))
        end = found.end("body")
    yield from _by_pygments(text[end:], "sh")


def _by_pygments(text: str, language: str) -> Iterator[str]:
    lexer = _lexer(_LIKE.get(language, language))
    for kind, piece in lexer.get_tokens(text) if lexer else [(Text, text)]:
        name = next((name for token, name in _CLASSES if kind in token), "")
        yield f'<span class="{name}">{escape(piece)}</span>' if name else escape(piece)


@cache
def _lexer(language: str) -> Lexer | None:
    try:
        lexer: Lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
    return lexer


# ---- text -> HTML, headings, and sections as plain text -----------------------------------------------------------
# The files are read on a code host as well: headings have the same anchors there, and links refer to files. Raw HTML
# is not interpreted.

_PAGE = re.compile(r"([\w-]+)\.md(#.*)?")
_PICTURE = re.compile(r"[\w-]+\.(?:png|svg)")
_NO_ANCHOR = re.compile(r"[^\w\- ]")


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    anchor: str


@dataclass
class DocumentSection:
    """The contents below a heading, up to the next one, without markup."""

    heading: Heading
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.pieces)


@dataclass(frozen=True)
class RenderedPage:
    html: SafeString
    headings: tuple[Heading, ...]  # except the title


@lru_cache(maxsize=100)
def rendered(document: Document) -> RenderedPage:
    tokens = _PARSER.parse(document.text)
    sections = list(_sections(tokens))
    _label_cells(tokens)
    html = mark_safe(_PARSER.renderer.render(tokens, _PARSER.options, {}))  # noqa: S308  raw HTML is text, see _PARSER
    return RenderedPage(html, tuple(each.heading for each in sections[1:]))


def sections_of(document: Document) -> tuple[DocumentSection, ...]:
    """Return the sections only, in half the time of rendering."""
    return tuple(_sections(_PARSER.parse(document.text)))


def anchor_of(text: str, taken: set[str]) -> str:
    """Make an anchor as code hosts do: lower case, hyphens for spaces, and a number if it is not unique."""
    plain = _NO_ANCHOR.sub("", text.lower()).replace(" ", "-")
    numbered = (f"{plain}-{number}" for number in range(1, len(taken) + 1))
    anchor = next(each for each in (plain, *numbered) if each not in taken)
    taken.add(anchor)
    return anchor


def place_of(link: str) -> str:
    """Return the URL for a link between files: to a page or an image."""
    if found := _PAGE.fullmatch(link):
        return path_of(found[1]) + (found[2] or "")
    return f"/docs/{link}" if _PICTURE.fullmatch(link) else link


# ---- headings and sections ------------------------------------------------------------------------------------------


def _sections(tokens: Sequence[Token]) -> Iterator[DocumentSection]:
    """Yield the sections, and set the anchor of each heading."""
    taken: set[str] = set()
    section: DocumentSection | None = None
    for token, inner in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "heading_open" and inner is not None:
            if section:
                yield section
            text = _plain(inner)
            section = DocumentSection(Heading(int(token.tag[1]), text, anchor_of(text, taken)))
            token.attrSet("id", section.heading.anchor)
        elif section and token.type in ("inline", "fence") and not _is_of(token, section):
            section.pieces.append(token.content if token.type == "fence" else _plain(token))
    if section:
        yield section


def _label_cells(tokens: Sequence[Token]) -> None:
    """Label each cell but the first with its column's title: on narrow screens, cells are stacked."""
    titles: list[str] = []
    place = 0
    for token, inner in zip(tokens, [*tokens[1:], None], strict=True):
        match token.type:
            case "thead_open":
                titles = []
            case "tr_open":
                place = 0
            case "th_open" if inner is not None:
                titles.append(_plain(inner))
            case "td_open":
                if place and titles[place]:
                    token.attrSet("data-column", titles[place])
                place += 1


def _is_of(token: Token, section: DocumentSection) -> bool:
    return not section.pieces and token.type == "inline" and token.level == 1 and _plain(token) == section.heading.text


def _plain(token: Token) -> str:
    return "".join(" " if each.type in ("softbreak", "hardbreak") else each.content for each in token.children or ())


# ---- HTML -----------------------------------------------------------------------------------------------------------


class _Renderer(RendererHTML):
    """Overrides for links, anchors, highlighting, and tables that scroll on narrow screens."""

    def heading_close(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        opening = tokens[index - 2]
        anchor, text = escape(str(opening.attrGet("id"))), escape(_plain(tokens[index - 1]))
        if opening.tag == "h1":
            return "</h1>\n"
        return f' <a class="anchor" href="#{anchor}" aria-label="Link to “{text}”">#</a></{opening.tag}>\n'

    def link_open(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        tokens[index].attrSet("href", place_of(str(tokens[index].attrGet("href"))))
        return self.renderToken(tokens, index, options, env)

    def image(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        token = tokens[index]
        source, text = place_of(str(token.attrGet("src"))), token.content
        return f'<img src="{escape(source)}" alt="{escape(text)}" loading="lazy">'

    def fence(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        language = tokens[index].info.partition(" ")[0]
        content = coloured(tokens[index].content, language)
        return f'<pre class="sample {escape(language)}" tabindex="0"><code>{content}</code></pre>\n'

    def table_open(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        return '<div class="scroll" tabindex="0"><table>\n'

    def table_close(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        return "</table></div>\n"

    def th_open(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        """Open a header cell; one without text becomes a regular cell."""
        return "<th>" if tokens[index + 1].content else "<td>"

    def th_close(self, tokens: Sequence[Token], index: int, options: OptionsDict, env: Any) -> str:
        return "</th>\n" if tokens[index - 1].content else "</td>\n"


_PARSER = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer).enable("table")


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
def file(request: HttpRequest, name: str) -> HttpResponse:
    """Return an image, or a page as Markdown; `all.md` has all pages."""
    path = library.pictures().get(name)
    if path is not None:
        return HttpResponse(path.read_bytes(), content_type=library.PICTURES[path.suffix], headers=_HEADERS)
    if name == library.WHOLE:
        return _answer(library.whole(), kind="text/markdown")
    if name.removesuffix(".md") in library.names():
        return _answer(library.document(name.removesuffix(".md")).text, kind="text/markdown")
    raise Http404


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    """Return `llms.txt`: the list of pages for language models."""
    return _answer(library.overview(public_url_of(request.META)), kind="text/plain")


def _answer(content: str, status: int = 200, kind: str = "text/html") -> HttpResponse:
    return HttpResponse(content, f"{kind}; charset=utf-8", status, headers=_HEADERS)


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
