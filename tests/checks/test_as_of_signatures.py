"""Questions as of a revision are planned with the kinds of facts that there were then, as they were planned then."""

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection

from checks import serializers
from checks.asking import paging
from checks.asking.ask import LiveSession
from facts import loading, store
from facts.models import Signature
from facts.numbering import signature_number, signature_numbers
from facts.wire import fact_from_json
from policy.core.journal import advance, changing
from policy.models import Environment
from policy.rules.program import Signature as Kind
from tests.checks.conftest import about, fact, publish
from tests.checks.statements import counted

# Once folders may have parents, `m` is asked for: a list of what is only compared.
LEVELS = """
actor User {}
resource Folder { permissions = ["p"]; relations = { parent: Folder }; }
has_permission(u: User, "p", f: Folder) if rank(u, n) and needs(f, m) and n >= m;
rank(u: User, n: Integer) if level(u, n);
needs(f: Folder, n: Integer) if has_relation(f, "parent", p) and not (n < 0);
declare near(User, User);
declare far(User, Folder);
"""
LEVEL = fact("level", "User:ann", "Integer:3")
NEAR = fact("near", "User:ann", "User:ben")
PARENT = fact("has_relation", "Folder:f", "parent", "Folder:g")
ASKED = {
    "/authorize_each": {
        "checks": [
            {"actor": {"type": "User", "id": "ann"}, "action": "p", "resource": {"type": "Folder", "id": "f"}},
            {"actor": {"type": "User", "id": "ben"}, "action": "p", "resource": {"type": "Folder", "id": "f"}},
        ]
    },
    "/actions": about("User:ann", "Folder:f"),
    "/list": about("User:ann", action="p", resource_type="Folder", page_size=10000),
    "/explain": about("User:ann", "Folder:f", action="p"),
}


@pytest.fixture
def levels(api):
    publish(api, LEVELS)
    stored(api, LEVEL)
    return api


def stored(api, *facts: dict) -> int:
    response = api.post("/batch", [{"inserts": list(facts)}])
    assert response.status_code == 200, response.content
    return int(response["OsoOffset"])


def asked(api, path: str, **moment: int) -> tuple[int, object]:
    response = api.post(path, ASKED[path] | moment)
    return response.status_code, response.json()


@pytest.mark.parametrize("path", ASKED)
def test_what_was_answered_is_answered_alike_after_facts_that_came_later(levels, path):
    then = stored(levels, NEAR)
    before = asked(levels, path)
    assert before[0] == 200
    assert asked(levels, path, as_of=then) == before
    stored(levels, PARENT)
    after = asked(levels, path)
    if path in ("/authorize_each", "/actions"):
        assert after[0] == 200 and after != before, "the folder needs any level of 0 or more, and ann has one"
    assert asked(levels, path, as_of=then) == before
    assert asked(levels, path, as_of=then + 1) == after


def test_what_there_was_counts_as_of_then(levels):
    """A kind counts from the revision on at which it came, and not before."""
    revision = stored(levels, fact("has_permission", "User:ann", "p", "Folder:f"))
    stored(levels, NEAR)
    may = about("User:ann", "Folder:f", action="p")
    found = [levels.post("/authorize", may | {"as_of": each}).json() for each in range(revision - 1, revision + 2)]
    assert found == [{"allowed": False}, {"allowed": True}, {"allowed": True}]


def test_questions_as_of_revisions_with_the_same_kinds_of_facts_share_a_statement(levels, monkeypatch):
    first = stored(levels, NEAR)
    last = [stored(levels, fact("near", f"User:{n}", "User:ann")) for n in range(3)][-1]
    made = []
    compiled = LiveSession._compiled
    monkeypatch.setattr(LiveSession, "_compiled", lambda *args: made.append(args[1].as_of_signature) or compiled(*args))
    for revision in range(first, last + 1):
        assert asked(levels, "/actions", as_of=revision)[0] == 200
    assert len(made) == 1
    with counted() as statements:
        asked(levels, "/actions", as_of=first)
    assert len(statements) == 2, statements  # the moment, and the question


def test_pages_that_follow_are_planned_as_the_first_one(levels, monkeypatch):
    for module in (paging, serializers):
        monkeypatch.setattr(module, "SMALLEST", 1)
    stored(levels, *(fact("has_permission", "User:ann", "p", f"Folder:{n}") for n in range(3)))
    stored(levels, NEAR)
    body = ASKED["/list"] | {"page_size": 2}
    first = levels.post("/list", body).json()
    stored(levels, PARENT, fact("far", "User:ann", "Folder:f"))
    rest = levels.post("/list", body | {"page_token": first["next_page_token"]})
    assert (first["results"], rest.status_code, rest.json()["results"]) == (["0", "1"], 200, ["2"])


# ---- since when ----------------------------------------------------------------------------------------------------


def since(environment_id: int) -> dict[str, int]:
    kinds = Signature.objects.filter(environment=environment_id)
    return {f"{each.predicate}{json.loads(each.types)}": each.since for each in kinds}


def test_each_way_to_store_facts_says_since_when_there_are_such(api, new_api):
    mine = api.environment.pk
    one = store.apply(mine, [store.Inserts([fact_from_json(LEVEL, "")])]).offset
    two = stored(api, NEAR)
    loading.load(mine, [(1, LEVEL), (2, PARENT)])
    three = Environment.objects.get(pk=mine).offset
    stored(api, LEVEL, PARENT)
    assert api.post("/clear_data", {}).status_code == 200
    stored(api, PARENT)
    here = {
        "level['User', 'Integer']": one,
        "near['User', 'User']": two,
        "has_relation['Folder', 'String', 'Folder']": three,
    }
    assert since(mine) == here
    other = new_api("other").environment
    store.copy_facts(mine, other.pk)
    assert set(since(other.pk).values()) == {Environment.objects.get(pk=other.pk).offset}


def test_what_was_taken_back_left_no_kind_of_facts(api):
    with pytest.raises(ZeroDivisionError), changing():
        number = advance(api.environment.pk).offset
        signature_number(api.environment.pk, Kind("level", ("User",)), number)
        raise ZeroDivisionError
    assert not signature_numbers(api.environment.pk)
    assert stored(api, fact("level", "User:ann")) == number
    assert since(api.environment.pk) == {"level['User']": number}


def test_writers_at_once_say_each_its_own_revision(api):
    """The first one of a kind counts, of those that share a commit as well."""
    start = Barrier(8)

    def write(place: int) -> tuple[int, int]:
        try:
            start.wait(30)
            return place % 4, stored(api, fact(f"near{place % 4}", f"User:{place}"))
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as threads:
        written = list(threads.map(write, range(8)))
    first = {f"near{kind}['User']": min(number for each, number in written if each == kind) for kind, _ in written}
    assert since(api.environment.pk) == first
