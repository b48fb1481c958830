"""Lists: whole, or in pages that leave nothing out and send nothing twice, whatever changes meanwhile."""

import random
import time

import pytest
from django.core import signing
from django.db import connection
from django.db.models import F

from authz_project.models import ApiKey
from checks import serializers
from checks.asking import paging
from policy.core import clock, pagination
from policy.core.pagination import Cursor
from policy.models import Environment
from tests.checks.conftest import POLICY, about, fact, publish, remove, store

CLIENT = {"X-OsoApiVersion": "0"}
ASKED = about("User:ann", action="read", resource_type="Repo")


def reads(number: int) -> dict:
    return fact("has_role", "User:ann", "reader", f"Repo:r{number:05}")


def fill(api, numbers) -> None:
    store(api, *(reads(number) for number in numbers))


def pages(api, page_size: int = 10000, between=lambda: None, **body) -> list[list[str]]:
    """Every page, one after the other."""
    found, token = [], None
    while True:
        answer = api.post("/list", {**ASKED, "page_size": page_size, "page_token": token, **body})
        assert answer.status_code == 200, answer.content
        assert set(answer.json()) == {"results", "next_page_token"}
        found.append(answer.json()["results"])
        token = answer.json()["next_page_token"]
        if token is None:
            return found
        between()


@pytest.fixture
def small_pages(monkeypatch):
    """Pages of a few ids, which no client can ask for."""
    for module in (paging, serializers):
        monkeypatch.setattr(module, "SMALLEST", 2, raising=False)


# ---- sizes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (..., "integer"), (None, "integer"), ("10000", "integer"), (True, "integer"), (10000.0, "integer"),
        (9999, "at least"), (0, "at least"), (-1, "at least"),
    ],
)  # fmt: skip
def test_the_page_size_is_required_and_checked(repos, size, reason):
    body = ASKED if size is ... else {**ASKED, "page_size": size}
    answer = repos.post("/list", body)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("page_size: ") and reason in answer.json()["message"]


@pytest.mark.parametrize("size", [10000, 10001, 2**31, 2**63])
def test_large_pages_are_taken(repos, size):
    assert repos.post("/list", {**ASKED, "page_size": size}).json() == {
        "results": ["a", "b", "p"],
        "next_page_token": None,
    }


def test_published_clients_may_leave_the_size_out_and_learn_nothing_of_pages(repos):
    for body in (ASKED, {**ASKED, "page_size": None, "page_token": None}):
        assert repos.post("/list", body, **CLIENT).json() == {"results": ["a", "b", "p"]}
    assert repos.post("/list", {**ASKED, "page_size": 5}, **CLIENT).status_code == 400
    sized = repos.post("/list", {**ASKED, "page_size": 10000}, **CLIENT).json()
    assert sized == {"results": ["a", "b", "p"], "next_page_token": None}


def test_what_does_not_fit_into_one_page_is_never_left_out_silently(repos):
    fill(repos, range(10_001))
    first = repos.post("/list", ASKED, **CLIENT).json()
    assert len(first["results"]) == 10_000
    rest = repos.post("/list", {**ASKED, "page_token": first["next_page_token"]}, **CLIENT).json()
    assert rest["next_page_token"] is None
    assert len({*first["results"], *rest["results"]}) == 10_004


@pytest.mark.parametrize(
    ("number", "sizes"),
    [
        (9_996, [9_999]),
        (9_997, [10_000]),
        (9_998, [10_000, 1]),
        (19_997, [10_000, 10_000]),
        (19_998, [10_000, 10_000, 1]),
    ],
)
def test_the_last_page_is_the_last(repos, number, sizes):
    fill(repos, range(number))  # beside the three that ann reads anyway
    found = pages(repos)
    assert [len(page) for page in found] == sizes
    together = [text for page in found for text in page]
    assert together == sorted(set(together))


# ---- order --------------------------------------------------------------------------------------------------------


def test_ids_are_in_the_order_of_their_bytes(repos, small_pages):
    ids = ["B", "a", "b", "é", "e\u0301", "z", "Z", "~", "_", "10", "9", "\U0001f642", "\uffee"]
    store(repos, *(fact("has_role", "User:zoe", "reader", f"Repo:{text}") for text in ids))
    found = pages(repos, 2, actor_id="zoe")
    assert [text for page in found for text in page] == sorted([*ids, "p"])


def test_every_resource_is_a_star_before_those_that_are_listed(repos, small_pages):
    assert pages(repos, actor_id="root") == [["*", "p"]]
    store(repos, *(fact("has_role", "User:root", "reader", f"Repo:{number}") for number in range(5)))
    assert pages(repos, 2, actor_id="root") == [["*", "0"], ["1", "2"], ["3", "4"], ["p"]]


# ---- while facts change ---------------------------------------------------------------------------------------------


def test_ids_that_stay_come_once_while_others_come_and_go(repos, small_pages):
    fill(repos, range(0, 40, 2))
    turns = iter(range(1, 1000, 2))

    def change():
        number = next(turns)
        store(repos, reads(number), reads(number + 40))
        remove(repos, reads(number - 1))

    found = [text for page in pages(repos, 3, change) for text in page]
    assert len(found) == len(set(found)) and found == sorted(found)
    stayed = {f"r{number:05}" for number in range(30, 40, 2)}
    assert stayed <= set(found)


def test_the_next_page_begins_after_the_last_id_even_if_that_is_gone(repos, small_pages):
    fill(repos, range(4))
    first = repos.post("/list", {**ASKED, "page_size": 4}).json()
    assert first["results"] == ["a", "b", "p", "r00000"]
    remove(repos, reads(0))
    rest = repos.post("/list", {**ASKED, "page_token": first["next_page_token"]}).json()
    assert rest["results"] == ["r00001", "r00002", "r00003"]


READERS_ONLY = """
actor User {}
resource Repo { permissions = ["read"]; }
has_permission(_: User, "read", repo: Repo) if user matches User and has_role(user, "reader", repo);
"""


def end_soon() -> None:
    """Have what was to end later end now, as if that time had passed."""
    end = clock.now() + 1
    with connection.cursor() as cursor:
        cursor.execute("UPDATE authz_fact SET expires_at = %s WHERE expires_at IS NOT NULL", [end])
    while clock.now() <= end:
        time.sleep(0.001)


def next_page(api, page, **headers):
    answer = api.post("/list", {**ASKED, "page_token": page.json()["next_page_token"]}, **headers)
    assert answer.status_code == 200, answer.content
    return answer


def test_all_pages_are_of_the_moment_of_the_first(repos, small_pages):
    """By the facts and the policy of then, and with the ends that had not come."""
    fill(repos, range(3))
    store(repos, reads(3) | {"expires_at": "2099-01-01T00:00:00Z"})
    first = repos.post("/list", {**ASKED, "page_size": 2})
    end_soon()
    publish(repos, READERS_ONLY)
    store(repos, reads(4))
    remove(repos, reads(1))
    found = [first, second := next_page(repos, first), third := next_page(repos, second)]
    found.append(next_page(repos, third))
    whole = [["a", "b"], ["p", "r00000"], ["r00001", "r00002"], ["r00003"]]
    assert [page.json()["results"] for page in found] == whole
    assert {page["OsoOffset"] for page in found} == {first["OsoOffset"]}
    assert pages(repos, 2) == [["a", "r00000"], ["r00002", "r00004"]]


@pytest.mark.parametrize("path", ["/list", "/access/v1/search/resource"])
def test_the_ten_minutes_begin_anew_with_each_first_page(repos, small_pages, monkeypatch, path):
    """A page that comes again may be cached; a token in it counts from when it is sent."""
    authzen = path.startswith("/access/")
    asked = {**ASKED, "page_size": 2}
    if authzen:
        who, what = {"type": "User", "id": "ann"}, {"type": "Repo"}
        asked = {"subject": who, "action": {"name": "read"}, "resource": what, "page": {"limit": 2}}

    def page(token: str | None = None) -> tuple[list[str], str]:
        following = {"page": {"token": token}} if authzen else {"page_token": token}
        answer = repos.post(path, asked | (following if token else {})).json()
        ids = [each["id"] if authzen else each for each in answer["results"]]
        return ids, answer["page"]["next_token"] if authzen else answer["next_page_token"]

    fill(repos, range(2))
    assert [page()[0] for _ in range(3)] == [["a", "b"]] * 3
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + 11 * 60_000_000)
    first, token = page()
    remove(repos, reads(0))
    second, token = page(token)
    third, _ = page(token)
    assert [*first, *second, *third] == ["a", "b", "p", "r00000", "r00001"]


@pytest.mark.parametrize("seed", range(5))
def test_pages_are_the_list_of_the_first_whatever_happens_meanwhile(repos, small_pages, seed):
    some = random.Random(seed)

    def change() -> None:
        number = some.randrange(12)
        match some.randrange(5):
            case 0:
                policy = READERS_ONLY if some.random() < 0.5 else POLICY
                assert repos.post("/policy", {"src": policy}).status_code in (200, 202)  # it may be active already
            case 1 | 2:
                remove(repos, reads(number))
            case _:
                store(repos, reads(number))

    fill(repos, some.sample(range(12), 6))
    for _ in range(4):
        size = some.randrange(2, 4)
        page = repos.post("/list", {**ASKED, "page_size": size})
        first, found = page["OsoOffset"], page.json()["results"]
        while page.json()["next_page_token"]:
            for _ in range(some.randrange(3)):
                change()
            page = next_page(repos, page)
            assert page["OsoOffset"] == first and len(page.json()["results"]) <= size
            found += page.json()["results"]
        whole = repos.post("/list", {**ASKED, "page_size": 100, "as_of": int(first)}).json()
        assert (found, None) == (whole["results"], whole["next_page_token"])


def test_an_end_that_comes_between_pages_does_not_count_on_them(repos, small_pages):
    """Where it is all that happens, there is no other revision."""
    store(repos, reads(3) | {"expires_at": "2099-01-01T00:00:00Z"})
    first = repos.post("/list", {**ASKED, "page_size": 2})
    end_soon()
    assert next_page(repos, first).json()["results"] == ["p", "r00003"]
    assert pages(repos, 2) == [["a", "b"], ["p"]]


@pytest.mark.parametrize("lost", ["dropped", "to come"])
def test_pages_go_on_about_now_where_the_moment_of_the_first_is_not_known(repos, small_pages, lost):
    """Old history is dropped; or the database is an earlier copy, in which numbers are given again."""
    fill(repos, range(4))
    first = repos.post("/list", {**ASKED, "page_size": 2})
    remove(repos, reads(0))
    store(repos, reads(9))
    environment = Environment.objects.filter(pk=repos.environment.pk)
    if lost == "dropped":
        environment.update(horizon=F("offset"))
    else:
        environment.update(offset=int(first["OsoOffset"]) - 1)
    second = next_page(repos, first)
    assert second.json()["results"] == ["p", "r00001"]
    assert second["OsoOffset"] == str(environment.get().offset)
    if lost == "dropped":
        assert next_page(repos, second).json()["results"] == ["r00002", "r00003"]


def test_a_token_that_is_kept_for_long_goes_on_about_now(repos, small_pages, monkeypatch):
    fill(repos, range(4))
    first = repos.post("/list", {**ASKED, "page_size": 4})
    remove(repos, reads(1))
    assert next_page(repos, first).json()["results"] == ["r00001", "r00002", "r00003"]
    monkeypatch.setattr(paging, "LONGEST", -1)
    assert next_page(repos, first).json()["results"] == ["r00002", "r00003"]


def test_a_token_from_before_the_clock_was_set_back_goes_on_about_now(repos, small_pages, monkeypatch):
    """Nobody knows how old it is: else it would show for hours what was revoked."""
    fill(repos, range(4))
    now = clock.now
    with monkeypatch.context() as ahead:
        ahead.setattr(clock, "now", lambda: now() + 5 * 3600 * 1_000_000)
        first = repos.post("/list", {**ASKED, "page_size": 4})
    remove(repos, reads(1))
    assert next_page(repos, first).json()["results"] == ["r00002", "r00003"]


def test_a_published_client_has_one_list_too(repos, small_pages):
    fill(repos, range(3))
    first = repos.post("/list", ASKED, **CLIENT)
    remove(repos, reads(0))
    assert first.json()["results"] == ["a", "b"]
    assert next_page(repos, first, **CLIENT).json()["results"] == ["p", "r00000"]


def test_a_key_that_is_revoked_between_pages_opens_no_other(repos, small_pages):
    fill(repos, range(3))
    first = repos.post("/list", {**ASKED, "page_size": 2}).json()
    ApiKey.objects.filter(environment=repos.environment).delete()
    assert repos.post("/list", {**ASKED, "page_token": first["next_page_token"]}).status_code == 401


def test_without_a_policy_pages_are_of_now(api, small_pages):
    def readable(number: int) -> dict:
        return fact("has_permission", "User:ann", "read", f"Repo:{number}")

    store(api, *map(readable, range(4)))
    first = api.post("/list", {**ASKED, "page_size": 2})
    remove(api, readable(2))
    assert next_page(api, first).json()["results"] == ["3"]


# ---- answers that only the service knows to be answers ----------------------------------------------------------

ALL_BUT_LOCKED = """
actor User {}
resource Repo { permissions = ["read"]; }
has_permission(user: User, "read", repo: Repo) if is_root(user) and not is_locked(repo);
"""


def test_lists_with_exceptions_are_paged_too(api, small_pages):
    publish(api, ALL_BUT_LOCKED)
    readable = [fact("has_permission", "User:ann", "read", f"Repo:{number}") for number in range(7)]
    store(api, fact("is_root", "User:ann"), *readable, *(fact("is_locked", f"Repo:{number}") for number in range(3)))
    found = pages(api, 3)
    assert [text for page in found for text in page] == ["*", *"0123456"]


# ---- tokens ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def token(repos, small_pages) -> str:
    fill(repos, range(4))
    return repos.post("/list", {**ASKED, "page_size": 2}).json()["next_page_token"]


def test_a_token_fixes_the_size(repos, token):
    for size in (..., None, 5000, 1, "x", -1, {}):
        body = {**ASKED, "page_token": token} | ({} if size is ... else {"page_size": size})
        assert repos.post("/list", body).json()["results"] == ["p", "r00000"]


def test_a_token_may_be_used_again(repos, token):
    answers = [repos.post("/list", {**ASKED, "page_token": token}).json() for _ in range(2)]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("spoil", [
    lambda token: "not-a-token",
    lambda token: "",
    lambda token: token[:-1],
    lambda token: token[1:],
    lambda token: token.split(":")[0],
    lambda token: token + "x",
    lambda token: token.swapcase(),
    lambda token: ":" + token.split(":")[1],
    lambda token: "é" + token,
    lambda token: "x" * 100_000,
    lambda token: signing.dumps(["x", "a", 10, []], salt=pagination._SALT),
    lambda token: signing.Signer(salt="other").sign_object(["x", "a", 10, []]),
    lambda token: Cursor("x", "a", 10).token,
    lambda token: 5,
    lambda token: [token],
    lambda token: {"token": token},
])  # fmt: skip
def test_a_token_that_was_not_given_is_refused(repos, token, spoil):
    answer = repos.post("/list", {**ASKED, "page_size": 10000, "page_token": spoil(token)})
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("page_token: ")


@pytest.mark.parametrize("change", [
    {"actor_id": "bob"}, {"actor_type": "Robot"}, {"action": "write"}, {"resource_type": "Org"},
    {"context_facts": [fact("is_public", "Repo:z")]},
])  # fmt: skip
def test_a_token_of_another_question_is_refused(repos, token, change):
    assert repos.post("/list", {**ASKED, "page_token": token, **change}).status_code == 400


def test_a_token_of_another_environment_is_refused(repos, token, new_api):
    other = new_api("other")
    answer = other.post("/list", {**ASKED, "page_token": token})
    assert answer.status_code == 400
    assert "page_token" in answer.json()["message"]


def test_context_facts_go_on_from_page_to_page(repos, small_pages):
    context = [fact("has_role", "User:ann", "reader", f"Repo:{text}") for text in "zyx"]
    found = pages(repos, 2, context_facts=context)
    assert found == [["a", "b"], ["p", "x"], ["y", "z"]]
