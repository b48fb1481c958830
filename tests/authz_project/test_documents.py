"""The documents at /docs/: pages, what a search finds, and that every link leads somewhere."""

import platform
import re
import shutil
import subprocess
import sys
import time
from html import unescape
from urllib.parse import quote, urljoin, urlsplit

import pytest
from django.db import connection
from django.test import Client

from authz_project import __version__
from authz_project import document_pages as search_module
from authz_project import documents as library
from authz_project.document_pages import anchor_of, coloured, rendered, search, sections_of, words_of
from authz_project.documents import Document
from tests.service import ROOT

PAGES = library.documents()
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
TAG = re.compile(r"<[^>]+>")


@pytest.fixture(scope="module")
def browser() -> Client:
    """Nothing here looks at a database, so that there is none."""
    return Client()


def shown(html: str) -> str:
    return unescape(TAG.sub("", html))


def page_of(text: str) -> Document:
    return Document("made-up", "Made up", f"# Made up\n\n{text}")


# ---- the files ------------------------------------------------------------------------------------------------------


def test_every_file_is_in_the_list_of_pages():
    files = {path.stem for path in library.FOLDER.glob("*.md")}
    assert files == library.names()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_file_leads_somewhere(page):
    """As files, for those who read them on a code host."""
    assert [link for link in LINK.findall(without_samples(page.text)) if not leads_somewhere(link, page.name)] == []


def test_every_link_of_the_readme_leads_somewhere():
    text = without_samples((ROOT / "README.md").read_text())
    for link in LINK.findall(text):
        if urlsplit(link).scheme:
            continue
        path, _, anchor = link.partition("#")
        assert (ROOT / path).exists(), link
        name = re.fullmatch(r"authz_project/docs/([\w-]+)\.md", path)
        assert not anchor or not path or (name and anchor in anchors(name[1])), link


def without_samples(text: str) -> str:
    return re.sub(r"^```.*?^```$|`[^`\n]+`", "", text, flags=re.DOTALL | re.MULTILINE)


def leads_somewhere(link: str, page: str) -> bool:
    if urlsplit(link).scheme:
        return link.startswith("https://")
    path, _, anchor = link.partition("#")
    name = (path or f"{page}.md").removesuffix(".md")
    if path in library.pictures():
        return True
    return name in library.names() and (not anchor or anchor in anchors(name))


def anchors(name: str) -> set[str]:
    return {section.heading.anchor for section in sections_of(library.document(name))}


# ---- the pages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_served_to_everybody(page, browser):
    answer = browser.get(page.path)
    html = answer.content.decode()
    assert answer.status_code == 200
    assert f"<title>{page.title}" in unescape(html)
    assert html.count('aria-current="page"') == 1
    assert re.search(rf'href="{page.path}" aria-current="page"', html)
    assert "<script" not in html and " style=" not in html and " onclick" not in html
    assert answer["Content-Security-Policy"].startswith("default-src 'none'; style-src 'self';")
    assert answer["X-Frame-Options"] == "DENY"
    assert not answer.cookies
    assert browser.head(page.path).status_code == 200
    assert browser.post(page.path).status_code == 405


def test_every_link_of_a_page_leads_somewhere(browser):
    html = {page.path: browser.get(page.path).content.decode() for page in PAGES}
    made = {path: set(re.findall(r' id="([^"]+)"', text)) for path, text in html.items()}
    for path, text in html.items():
        assert len(made[path]) == text.count(' id="'), f"{path}: an anchor is there twice"
        for link in map(unescape, re.findall(r' (?:href|src|action)="([^"]*)"', text)):
            place, _, anchor = urljoin(path, link).partition("#")
            if place in html:
                assert not anchor or anchor in made[place], f"{path}: {link}"
            elif not urlsplit(place).scheme and place not in ("/admin/", "/api/docs"):
                assert browser.get(place).status_code == 200, f"{path}: {link}"


def test_pages_follow_one_another(browser):
    paths = [page.path for page in PAGES]
    found = [library.path_of(library.FRONT)]
    while (following := re.search(r'rel="next" href="([^"]+)"', browser.get(found[-1]).content.decode())) is not None:
        found.append(following[1])
    assert found == paths
    back = [re.search(r'rel="prev" href="([^"]+)"', browser.get(path).content.decode()) for path in paths]
    assert [each and each[1] for each in back] == [None, *paths[:-1]]


@pytest.mark.parametrize(
    "path, leads_to",
    [("/docs", "/docs/"), ("/docs?q=role", "/docs/?q=role"), ("/docs/time", "/docs/time/"), ("/docs/index/", "/docs/")],
)
def test_other_spellings_lead_to_a_page(path, leads_to, browser):
    answer = browser.get(path)
    assert (answer.status_code, answer["Location"]) == (302, leads_to)


def test_a_page_that_is_not_there_says_what_may_be_meant(browser):
    answer = browser.get("/docs/roles/")
    assert answer.status_code == 404
    assert "Page “roles” not found" in answer.content.decode()
    assert "Similar pages" in answer.content.decode()
    assert browser.get("/docs/%3Cscript%3E").status_code == 404
    assert browser.get("/docs/..%2fsettings.py").status_code == 404


def test_an_edited_file_is_shown_as_it_is_now(browser, tmp_path, monkeypatch):
    shutil.copytree(library.FOLDER, tmp_path / "docs")
    monkeypatch.setattr(library, "FOLDER", tmp_path / "docs")
    for title in ("One", "Another"):
        (tmp_path / "docs" / "index.md").write_text(f"# {title}\n")
        assert f'<h1 id="{title.lower()}">{title}</h1>'.encode() in browser.get("/docs/").content


# ---- Markdown -------------------------------------------------------------------------------------------------------


def test_raw_html_is_text():
    html = rendered(page_of("<script>alert(1)</script> <b>x</b>\n\n[x](javascript:alert(1))")).html
    assert "<script" not in html and "<b>" not in html and "href" not in html.partition("</h1>")[2]


def test_links_to_files_lead_to_pages():
    html = rendered(page_of("[a](time.md) [b](time.md#ends) [c](index.md) ![d](workbench.png) [e](#x)")).html
    found = re.findall(r'(?:href|src)="([^"]+)"', html.partition("</h1>")[2])
    assert found == ["/docs/time/", "/docs/time/#ends", "/docs/", "/docs/workbench.png", "#x"]


def test_a_table_without_a_header_has_none():
    html = rendered(page_of("| a | |\n|---|---|\n| `x` | y |")).html
    assert "<th>a</th>\n<td></td>" in html and html.count("<td>") == 3


def test_a_cell_says_of_which_column_it_is():
    html = rendered(page_of('| a | b "c" | |\n|---|---|---|\n| 1 | 2 | 3 |')).html
    assert '<td>1</td>\n<td data-column="b &quot;c&quot;">2</td>\n<td>3</td>' in html


def test_anchors_are_those_of_code_hosts():
    taken: set[str] = set()
    titles = ["Who had access", "`POST /list`, in pages", "Why?", "Why?", "Ärzte & Co"]
    assert [anchor_of(title, taken) for title in titles] == [
        "who-had-access", "post-list-in-pages", "why", "why-1", "ärzte--co",
    ]  # fmt: skip


SAMPLES = {
    "polar": 'actor User {}\n# a remark\n"read" if "member" on "organization";\n',
    "sh": "curl -sS -H \"K: $KEY\" http://x 'a <b>'\ncat > main.polar <<'END'\nactor User {}\nEND\nls # all\n",
    "python": 'import os\nprint(f"{os}", 1)  # <b>\n"""a\nb"""\n',
    "sql": "SELECT a FROM b WHERE c = 'd''e' AND f(1) -- all\n",
    "json": '{"a": [1, true, "b\\"c"], "…": null}\n',
    "yaml": "dialect: sqlite  # or\nfacts:\n  is(User:_): {query: SELECT 1}\n",
    "ini": "[Service]\nUser=authz\n",
    "nginx": "server {\n  listen 443 ssl;\n  a $host;\n}\n",
    "js": "const a = `x` + 'y'; // z\n",
    "go": 'func main() { x := "y" }\n',
    "text": "<b>&\n",
    "facts": 'has_role(User:ann, "a", Repo:b)\n',
}


@pytest.mark.parametrize("language", SAMPLES)
def test_colours_lose_nothing(language):
    html = coloured(SAMPLES[language], language)
    assert shown(html) == SAMPLES[language]
    assert "<b>" not in html
    assert ("<span" in html) == (language != "text")


def test_a_file_written_in_a_shell_has_its_own_colours():
    html = coloured(SAMPLES["sh"], "sh")
    assert '<span class="keyword">actor</span> <span class="type">User</span>' in html


# ---- search ---------------------------------------------------------------------------------------------------------


def test_a_heading_comes_before_a_mention():
    assert shown(search("kind literal")[0].heading) == "A kind of literal"


def test_every_hit_leads_to_a_heading():
    for found in search("policy"):
        path, _, anchor = found.path.partition("#")
        name = path.removeprefix("/docs/").strip("/") or "index"
        assert not anchor or anchor in anchors(name)


def test_all_words_must_be_there():
    assert search("policy zzzzqqq") == []
    assert search("   ") == []


def test_what_is_found_is_marked_and_escaped():
    for words in ("<b> a", "role", "&amp;", "actor User {}", "a" * 500):
        for found in search(words):
            assert set(re.findall(r"<[^>]+>", found.excerpt + found.heading)) <= {"<mark>", "</mark>"}
    assert any("<mark>" in found.excerpt for found in search("role"))


def test_a_search_shows_what_was_asked(browser):
    html = browser.get(f"/docs/?q={quote('<script>alert(1)</script> role')}").content.decode()
    assert "<script" not in html and "&lt;script&gt;" in html
    html = browser.get("/docs/?q=explian").content.decode()
    assert "Did you mean" in html and '?q=explain"' in html
    assert browser.get("/docs/?q=%00").status_code == 200
    assert browser.get("/docs/?q=+").status_code == 200
    assert browser.get("/docs/?q=%ff%fe").status_code == 200


def test_a_search_looks_for_so_much_and_no_more():
    assert len(words_of(" ".join(map(str, range(1000))))) == 6
    assert len(words_of("x" * 5000)[0]) == 200
    assert words_of("a b, an answer") == ("an", "answer")
    assert len(search("the")) == 20


def test_the_index_is_made_once(browser, monkeypatch):
    assert search("policy")
    monkeypatch.setattr(search_module, "documents", lambda: pytest.fail("indexed again"))
    for words in ("policy", "the", "explian", "a", "zz yy xx ww vv", "\\d+(a+)+$"):
        assert browser.get(f"/docs/?q={quote(words)}").status_code == 200


@pytest.mark.parametrize("words", ["policy", "the", "co re in pr de st", "explian", "x" * 200])
def test_a_search_takes_little_of_a_processor(browser, words):
    """5 ms on a quiet machine. The best of ten, on a busy one: before there was an index, it took more than 100."""
    taken = []
    for _ in range(10):
        began = time.thread_time()
        browser.get(f"/docs/?q={quote(words)}")
        taken.append(time.thread_time() - began)
    assert min(taken) < 0.020


def test_one_search_runs_at_a_time(browser, monkeypatch):
    monkeypatch.setattr("authz_project.document_pages.WAIT", 0.01)
    with search_module._one_at_a_time:
        answer = Client(raise_request_exception=False).get("/docs/?q=policy")
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert browser.get("/docs/?q=policy").status_code == 200


# ---- what it costs --------------------------------------------------------------------------------------------------


def test_what_renders_is_imported_with_the_first_page(tmp_path):
    code = (
        "import sys, authz_project.wsgi as w; from django.test import Client\n"
        "renders = {'markdown_it', 'pygments.lexers.shell', 'authz_project.document_pages'}\n"
        "loaded = lambda: renders & set(sys.modules)\n"
        "assert not loaded(); assert Client().get('/docs/tutorial/').status_code == 200; assert len(loaded()) == 3"
    )
    environment = {"DATABASE_URL": f"sqlite:///{tmp_path}/a.sqlite3", "SECRET_KEY": "s" * 40, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", ["/docs/", "/api/docs"])
def test_pages_say_what_they_are_part_of(db, path):
    connection.ensure_connection()
    told = Client().get(path).content.decode()
    kind = {"sqlite": "SQLite 3.", "postgresql": "PostgreSQL"}[db]
    assert f"authz {__version__} · Python {platform.python_version()} · {kind}" in told
    assert db == "postgresql" or str(connection.settings_dict["NAME"]) not in told


# ---- for language models -------------------------------------------------------------------------------------------


def test_pages_are_served_as_markdown(browser):
    listed = browser.get("/llms.txt", headers={"Host": "localhost"})
    assert listed["Content-Type"] == "text/plain; charset=utf-8"
    names = re.findall(r"\]\(http://localhost/docs/([\w-]+)\.md", listed.content.decode())
    assert {*names, library.FRONT} == library.names()
    for name in names:
        page = browser.get(f"/docs/{name}.md")
        assert page["Content-Type"] == "text/markdown; charset=utf-8"
        assert page.content.decode() == library.document(name).text
    whole = browser.get("/docs/all.md").content.decode()
    assert all(each.text in whole for each in PAGES) and "http://localhost/docs/all.md" in listed.content.decode()
    assert browser.get("/docs/none.md").status_code == browser.get("/docs/inside.py").status_code == 404
