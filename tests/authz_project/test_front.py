"""The front page, and paths that do not exist: pages for browsers, JSON for programs."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from authz_project.views import LINKS

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
PROGRAMS = ("*/*", "application/json", "application/json, text/plain, */*", "", "nonsense")
pytestmark = pytest.mark.parametrize("db", ["sqlite"], indirect=True)


def test_the_front_page_leads_a_browser_to_the_admin(db):
    answer = Client().get("/", headers={"Accept": BROWSER})
    assert (answer.status_code, answer["Location"], answer["Vary"]) == (302, "/admin/", "Accept")


@pytest.mark.parametrize("accept", [*PROGRAMS, None])
def test_the_front_page_has_links_for_programs(db, accept):
    answer = Client().get("/", headers={} if accept is None else {"Accept": accept})
    assert (answer.status_code, answer.json()) == (200, {"message": "authz", **LINKS})


def test_each_link_is_answered(db):
    for path in LINKS.values():
        assert Client().get(path, follow=True).status_code == 200, path


@pytest.mark.parametrize("method", ["post", "delete", "put", "options"])
def test_nothing_but_reading_is_done_at_the_front(db, method):
    answer = getattr(Client(), method)("/")
    assert (answer.status_code, answer.json()) == (404, {"message": "Not found"})


@pytest.mark.parametrize("path", ["/nope", "/api/nope", "/nope/<script>alert(1)</script>", f"/{'n' * 3000}"])
def test_a_browser_gets_a_page_with_the_way_back(db, path):
    answer = Client().get(path, headers={"Accept": BROWSER})
    page = answer.content.decode()
    assert answer.status_code == 404 and answer["Content-Type"].startswith("text/html")
    assert "<h1>Page not found</h1>" in page and 'href="/admin/"' in page and "colours.css" in page
    assert "<script" not in page and len(page) < 3_000 and "script-src 'self'" in answer["Content-Security-Policy"]
    assert answer["X-Request-ID"]


def test_an_unknown_page_of_the_admin_has_the_way_back(db):
    staff = Client()
    staff.force_login(User.objects.create_superuser("ada"))
    answer = staff.get("/admin/nothing/", headers={"Accept": BROWSER})
    page = answer.content.decode()
    assert answer.status_code == 404
    assert "<h1>Page not found</h1>" in page and "documents.css" in page and 'href="/admin/"' in page
    for accept in PROGRAMS:
        answer = staff.get("/admin/nothing/", headers={"Accept": accept})
        assert (answer.status_code, answer.json()) == (404, {"message": "Not found"})


def test_an_unknown_page_of_the_admin_is_not_told_to_strangers(db):
    answer = Client().get("/admin/nothing/", headers={"Accept": BROWSER})
    assert answer.status_code == 302 and answer["Location"].startswith("/admin/login/")
