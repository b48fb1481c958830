"""Pages about very many answers: each reads a bounded part, says how far it looked, and leads on to the rest."""

import re
from html import unescape

import pytest

from checks.asking import run
from checks.compare.review_walk import OF_PAGES
from tests.checks.conftest import fact, store, url
from tests.checks.test_ask_page import links, words

REPOS, USERS = 2_000, 1_200
FEW = 250  # rows that are read at once


@pytest.fixture
def crowd(repos, monkeypatch):
    """One change by which `new` may read 2,000 repositories, and one by which 1,200 users may read `q`."""
    monkeypatch.setattr("checks.compare.review_walk.OF_PAGES", OF_PAGES._replace(rows=FEW))
    store(repos, *(fact("has_relation", f"Repo:r{n:04}", "organization", "Org:big") for n in range(REPOS)))
    store(repos, *(fact("has_role", f"User:u{n:04}", "reader", "Repo:q") for n in range(USERS)))
    store(repos, fact("has_role", "User:new", "member", "Org:big"))  # revision 5
    return repos


@pytest.fixture
def fetched(monkeypatch) -> list[int]:
    """How many rows each statement fetched."""
    found: list[int] = []
    execute = run.execute

    def counted(*args):
        rows = execute(*args)
        found.append(len(rows))
        return rows

    monkeypatch.setattr(run, "execute", counted)
    return found


def test_what_changed_by_thousands_is_read_in_parts(admin, version, crowd, fetched, monkeypatch):
    asked = {"actor_type": "User:new", "start": "4", "resource_type": "Repo"}
    whole = words(admin.get(url("review", version), asked))
    assert whole.startswith(f"{REPOS:,} gained, 0 lost") and f"1 to 100 of {REPOS:,}" in whole
    monkeypatch.setattr("checks.compare.review_walk.SECONDS", -1)  # a chunk a page
    fetched.clear()
    page = admin.get(url("review", version), asked)
    assert sum(fetched) < 4 * FEW, "it reads more than a part"
    seen: list[str] = []
    while True:
        said = words(page)
        seen += re.findall(r"gained User:new read (Repo:\S+)", said)
        onwards = links(page, "Next") or links(page, "Continue")
        if not onwards:
            break
        assert int(re.findall(r"At least ([\d,]+)", said)[0].replace(",", "")) >= len(seen)
        page = admin.get(onwards[0])
    assert seen == [f"Repo:r{n:04}" for n in range(REPOS)]
    assert f"{REPOS:,} gained, 0 lost" in said


def test_a_filter_that_nothing_has_is_known_at_once(admin, version, crowd, fetched):
    """By looking for ids with the text, however many others there are."""
    for asked in ({"at": "5"}, {"start": "4"}):
        fetched.clear()
        said = words(admin.get(url("review", version), asked | {"filter": "zzz"}))
        assert "No results contain “zzz”" in said and "Evaluated so far" not in said
        assert sum(fetched) < FEW, "it asks about others than those with the text"


def test_a_filter_finds_actors_and_resources(admin, version, crowd):
    said = words(admin.get(url("review", version), {"at": "5", "filter": "u0777"}))
    assert "2 results" in said and "has User:u0777 read Repo:q" in said and "has User:u0777 read Repo:p" in said
    said = words(admin.get(url("review", version), {"start": "4", "filter": "r1234"}))
    assert "1 gained, 0 lost" in said and "gained User:new read Repo:r1234" in said


def test_of_one_resource_any_number_of_actors_is_listed(admin, version, crowd, fetched, monkeypatch):
    monkeypatch.setattr("checks.compare.review_walk.SECONDS", -1)
    address, seen = f"{url('review', version)}?start=3&end=4&resource_type=Repo&action=read", []
    while address:
        fetched.clear()
        page = admin.get(address)
        assert sum(fetched) < 6 * FEW
        seen += re.findall(r"gained (User:\S+) read Repo:q", words(page))
        onwards = re.findall(r'<a href="([^"]+)"(?: rel="next")?>(?:Next|Continue)</a>', page.content.decode())
        address = unescape(onwards[0]) if onwards else ""
    assert seen == [f"User:u{n:04}" for n in range(USERS)]
