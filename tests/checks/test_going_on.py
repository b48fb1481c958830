"""Pages of reviews that go on from one to the next: all are of one moment, and together they say everything once."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection

from checks.asking import limits, run
from checks.compare.kinds import AccessKind
from checks.compare.review import Access, NotAnswered, Review, ReviewFilter, moments_reviewed
from checks.compare.review_page import reviewed as page_of
from checks.compare.review_walk import (
    ACTORS,
    EACH,
    RESOURCES,
    WHOLE,
    Chunk,
    Filter,
    PageStart,
    ReviewCursor,
    ReviewPiece,
    page_start_from_text,
    page_start_text,
    stretch_of,
)
from checks.errors import QueryTooSlow
from checks.explain.cases import ANY
from policy.core.clock import now, text_of
from policy.core.pagination import Cursor, cursor_of
from policy.errors import MalformedRequest
from policy.moments import Moment
from policy.values import STRING, Value
from tests.checks.conftest import fact, publish, store, url
from tests.checks.test_ask_page import links, words
from tests.checks.test_review_access import changes_of, paged, reviewed

BEGUN = {"start": "2"}


@pytest.fixture
def slow(monkeypatch):
    """Make a page of one part each."""
    monkeypatch.setattr("checks.compare.review_walk.SECONDS", -1)


def onwards(page) -> str:
    found = links(page, "Next") or links(page, "Continue")
    return found[0] if found else ""


def pages(admin, address: str, asked: dict[str, str]):
    """Yield the page and those that go on from it."""
    page = admin.get(address, asked)
    while True:
        yield page
        if not onwards(page):
            return
        page = admin.get(onwards(page))


# ---- of one moment -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("about", [{}, {"actor_type": "User:eve"}], ids=["all", "one"])
def test_what_is_stored_between_two_pages_is_on_none_of_them(admin, version, repos, slow, about):
    """By it, what anybody may do on any repository can differ, and not only on some: all of them are asked about."""
    store(repos, *(fact("has_relation", f"Repo:n{each}", "organization", "Org:o") for each in range(3)))
    store(repos, *(fact("has_role", "User:eve", "reader", f"Repo:x{each:02}") for each in range(20)))
    seen, whys, said = [], [], ""
    for page in pages(admin, url("review", version), {"start": "3", **about}):
        if not seen:
            store(repos, fact("has_role", "User:eve", "member", "Org:o"))
        else:
            whys += links(page, "after")
        said = words(page)
        seen += re.findall(r"gained User:eve read (Repo:\S+)", said)
    assert seen == [f"Repo:x{each:02}" for each in range(20)]
    assert "20 gained, 0 lost" in said and "revision 4" in said
    assert whys and all("at=" in each for each in whys), "they lead to what holds by now"


def test_an_address_of_a_time_to_come_is_refused(admin, version, repos, slow):
    store(repos, fact("has_role", "User:eve", "reader", "Repo:x"))
    cursor = ReviewCursor("Repo", "read", "User", WHOLE, RESOURCES)
    token = parse_qs(urlsplit(onwards(admin.get(url("review", version), BEGUN))).query)["after"][0]
    of = cursor_of(token).of
    after = page_start_text(PageStart(cursor, {}, Moment(3, now() + 10**9, None)), of)
    assert "a time in the future" in words(admin.get(url("review", version), BEGUN | {"after": after}))
    for wrong in (after[:-1], f"x{after}", Cursor("another list", None).token):
        with pytest.raises(MalformedRequest):
            page_start_from_text(wrong, of)


@pytest.mark.parametrize(
    ("asked", "other"),
    [
        ({"at": "2"}, {"action": "write"}),
        ({"start": "2"}, {"filter": "x"}),
        ({"actor_type": "User:eve", "start": "2"}, {"action": "read"}),
    ],
)
def test_a_page_goes_on_only_with_the_review_that_it_is_of(admin, version, repos, slow, asked, other):
    """Its cursor has counts, and the moment of "now"; they are those of one review."""
    store(repos, *(fact("has_role", "User:eve", "reader", f"Repo:x{each:02}") for each in range(20)))
    address = onwards(admin.get(url("review", version), asked))
    token = parse_qs(urlsplit(address).query)["after"][0]
    assert "is not a valid cursor" not in words(admin.get(address))
    assert "is not a valid cursor" in words(admin.get(url("review", version), asked | other | {"after": token}))


def test_what_was_begun_by_actors_begins_anew_where_they_cannot_lead(api, repos):
    store(repos, fact("has_relation", "Repo:z", "organization", "Org:o"))
    moments = moments_reviewed(api.environment.pk, 2, 3)
    lines = page_of(Review(api.environment.pk, moments), Filter(""), None).lines
    assert lines
    for leads in (ACTORS, EACH):
        cursor = ReviewCursor("Repo", "read", "User", WHOLE, leads, "zzz", "zzz", "read")
        page_start = PageStart(cursor, {}, Moment(3, moments[1].at, None))
        assert page_start_from_text(page_start_text(page_start, "these"), "these") == page_start
        assert page_of(Review(api.environment.pk, moments), Filter(""), page_start).lines == lines


@pytest.mark.parametrize("asked", ["at", "start"])
def test_a_fact_that_came_to_its_end_since_then_counted_then(admin, version, repos, asked):
    last = fact("has_role", "User:eve", "reader", "Repo:x")
    store(repos, last | {"expires_at": text_of(now() + 10**10)})
    then = now()
    with connection.cursor() as cursor:  # nothing is stored at its end, only time goes by
        cursor.execute("UPDATE authz_fact SET expires_at = %s WHERE expires_at IS NOT NULL", (then + 1,))
    said = words(admin.get(url("review", version), {asked: text_of(then)}))
    assert ("has User:eve read Repo:x" if asked == "at" else "lost User:eve read Repo:x") in said


# ---- once ----------------------------------------------------------------------------------------------------------


SECRETS = """
actor User {}
resource Repo { permissions = ["see", "write"]; "see" if is_open(resource); }
has_permission(user: User, "write", repo: Repo) if is_admin(user) and not is_secret(repo);
"""


def test_what_one_actor_may_do_on_every_resource_but_some_is_gone_through_to_its_end(api, slow):
    publish(api, SECRETS)
    store(api, *(fact("is_secret", f"Repo:r{each}") for each in range(3)))
    store(api, *(fact("is_open", f"Repo:o{each}") for each in range(30)))
    store(api, fact("is_admin", "User:ann"))
    wanted, page_start, seen = ReviewFilter("User", "write", actor="ann"), None, []
    while True:
        found = changes_of(api.environment.pk, moments_reviewed(api.environment.pk, 3, 4), wanted, "", page_start)
        seen += [line.resource.id for line in found.lines]
        if found.next is None:
            break
        assert found.next != page_start
        page_start = page_start_from_text(page_start_text(found.next, "these"), "these")
    assert seen == [ANY, *sorted(f"o{each}" for each in range(30))]


def test_what_was_too_much_at_once_is_not_tried_again(api, slow, monkeypatch):
    """Where resources of an actor are asked about already, the pages that go on do nothing else."""
    publish(api, SECRETS)
    store(api, fact("is_secret", "Repo:r0"), *(fact("is_open", f"Repo:o{each}") for each in range(30)))
    store(api, fact("is_admin", "User:ann"))
    moments = moments_reviewed(api.environment.pk, 2, 3)
    wanted = ReviewFilter("User", "write", actor="ann")
    first = changes_of(api.environment.pk, moments, wanted)
    assert first.next is not None and first.next.cursor.leads == EACH
    monkeypatch.setattr("checks.compare.review_walk.Chunks._by_actor", None)
    assert changes_of(api.environment.pk, moments, wanted, "", first.next).lines


def test_what_is_refused_is_told_on_one_page(monkeypatch):
    monkeypatch.setattr("checks.compare.review_walk.PAGE", 2)
    kind = AccessKind("User", "read", "Repo")
    line = Access("has", Value("User", "ann"), Value(STRING, "read"), Value("Repo", "a"))
    of_resources = ReviewPiece(kind)
    chunks = []
    for name in "abcd":
        here = line._replace(resource=Value("Repo", name))
        chunks.append(Chunk(of_resources, [here], of_resources.cursor(name)))
        refused = NotAnswered(kind, 1, f"Repo:{name}0", "why")
        chunks.append(Chunk(of_resources, [], of_resources.cursor(f"{name}0"), (refused,)))
    told, page_start = [], None
    for start in (0, 3):
        found = stretch_of(chunks[start:], page_start, Moment(1, 1, None), lambda line: True, lambda: 0.0, 1)
        told += [each.example for each in found.not_answered]
        page_start = found.next
    assert told == ["Repo:a0", "Repo:b0", "Repo:c0", "Repo:d0"] and page_start is None


# ---- ids with a text -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_found", ["never", "later"])
def test_ids_with_a_text_are_looked_for_within_a_limit(repos, slow, monkeypatch, is_found):
    """Where that takes too long, lines with it are found among all, even if the ids are found on a later page."""
    store(repos, *(fact("has_role", f"User:u{each}", "reader", "Repo:n") for each in range(12)))
    pk = repos.environment.pk
    execute, timeouts = run.execute, []

    def slowly(statement, slots):
        if set(slots) == {"text"}:
            timeouts.append(limits.current().seconds)
            if is_found == "never" or len(timeouts) == 1:
                raise QueryTooSlow(1)
        return execute(statement, slots)

    monkeypatch.setattr(run, "execute", slowly)
    for text in ("u1", "n"):
        timeouts.clear()
        lines, those = paged(pk, 3, text=text), set(filter(Filter(text).has, reviewed(pk, 3)))
        assert those <= set(lines) and len(set(lines)) == len(lines)
        assert {line.resource.id for line in lines if line not in those} <= {"p"}, "which is everybody's"
        assert timeouts and timeouts[0] <= 1


# ---- as it is shown ------------------------------------------------------------------------------------------------


def test_what_stands_for_every_value_is_said_of_what_it_does(admin, version, api):
    publish(api, SECRETS)
    store(api, fact("is_secret", "Repo:r1"))
    store(api, fact("is_admin", "User:ann"))
    said = words(admin.get(url("review", version), {"actor_type": "User:ann", "start": "4"}))
    assert "gained User:ann write Repo:*" in said and "Repo:r1" not in said
    assert "* means every value; for resources, every resource that no fact or rule mentions." in said


def test_a_page_that_is_not_full_says_once_where_it_goes_on(admin, version, repos, slow):
    store(repos, *(fact("has_role", "User:eve", "reader", f"Repo:x{each:02}") for each in range(20)))
    page = admin.get(url("review", version), {"actor_type": "User:eve", "start": "2", "filter": "x"})
    assert links(page, "Continue") and not links(page, "Next")
    assert re.search(r"Evaluated so far: .* \(filter: “x”\)\. Continue", words(page))
