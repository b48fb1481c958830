"""The documentation, Markdown files served publicly at /docs/: the list of pages, in order, and their URLs."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.module_loading import import_string
from django.views.generic import RedirectView

# ---- URLs ---------------------------------------------------------------------------------------------------------
# The renderer is imported at the first request for a page, because neither commands nor the API need it.


def _view(name: str) -> Callable[..., HttpResponse]:
    def answer(request: HttpRequest, **given: str) -> HttpResponse:
        response: HttpResponse = import_string(f"authz_project.document_pages.{name}")(request, **given)
        return response

    return answer


urlpatterns: list[URLPattern] = [
    path("docs", RedirectView.as_view(url="/docs/", query_string=True)),
    path("docs/", _view("front"), name="docs"),
    path("docs/index/", RedirectView.as_view(url="/docs/")),
    path("docs/<slug:name>", RedirectView.as_view(url="/docs/%(name)s/")),
    path("docs/<slug:name>/", _view("page"), name="docs_page"),
    path("docs/<str:name>", _view("file"), name="docs_file"),
    path("llms.txt", _view("overview")),
]


# ---- the list of pages, in reading order --------------------------------------------------------------------------

FOLDER = Path(__file__).with_name("docs")
FRONT = "index"
ORDER = {
    "Get started": (FRONT, "tutorial", "concepts"),
    "Write policies": ("language", "patterns", "editors"),
    "Integrate": (
        "interface", "testing", "django", "local-sql", "syncing", "explaining", "proving", "time", "authzen", "agents",
    ),
    "Operate": ("commands", "settings", "operations", "scale", "performance"),
    "More": ("glossary", "security", "limitations", "comparison", "moving", "inside", "contributing"),
}  # fmt: skip
WHOLE = "all.md"  # all pages in one file
PICTURES = {".png": "image/png", ".svg": "image/svg+xml"}  # allowed image types


@dataclass(frozen=True)
class Document:
    name: str
    title: str
    text: str

    @property
    def path(self) -> str:
        return path_of(self.name)


def path_of(name: str) -> str:
    return "/docs/" if name == FRONT else f"/docs/{name}/"


def groups() -> dict[str, list[Document]]:
    return {title: list(map(document, of_group)) for title, of_group in ORDER.items()}


def documents() -> list[Document]:
    return [document(name) for of_group in ORDER.values() for name in of_group]


def names() -> frozenset[str]:
    return frozenset(name for of_group in ORDER.values() for name in of_group)


def document(name: str) -> Document:
    """Return a page from the list, from the current contents of its file."""
    path = FOLDER / f"{name}.md"
    return _document(name, path.stat().st_mtime_ns)


def whole() -> str:
    """Return all pages as one Markdown text."""
    return "\n".join(each.text for each in documents())


def overview(address: str) -> str:
    """Return the first page, which lists all others, with absolute links to Markdown: see https://llmstxt.org."""
    listed = re.sub(r"\]\((?=[\w-]+\.md)", f"]({address}/docs/", document(FRONT).text)
    return f"{listed}\nAll pages in one file: {address}/docs/{WHOLE}\n"


def pictures() -> dict[str, Path]:
    return {path.name: path for path in FOLDER.iterdir() if path.suffix in PICTURES}


@lru_cache(maxsize=100)
def _document(name: str, changed: int) -> Document:
    text = (FOLDER / f"{name}.md").read_text()
    heading = re.match(r"# (.+)\n", text)
    assert heading, f"{name}.md begins with its title"
    return Document(name, heading[1], text)
