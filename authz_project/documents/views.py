"""What is served: a page, what a search finds, a picture. All may read them: they tell nothing of an installation."""

from functools import lru_cache

from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.views.decorators.http import require_safe

from authz_project.documents import library
from authz_project.documents.library import Document
from authz_project.documents.markdown import rendered
from authz_project.documents.search import LONGEST, meant, search
from authz_project.environments import facts_text

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
    return _answer(_found(asked)) if asked else page(request, library.FRONT)


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


def _found(asked: str) -> str:
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
