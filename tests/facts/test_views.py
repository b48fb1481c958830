"""The data endpoints, in this process."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from tests.checks.statements import counted

FACT = {
    "predicate": "has_role",
    "args": [{"type": "User", "id": "ann"}, {"type": "String", "id": "admin"}, {"type": "Repo", "id": "r"}],
}


def fact(user: str, repo: str = "r") -> dict:
    return {"predicate": "owns", "args": [{"type": "User", "id": user}, {"type": "Repo", "id": repo}]}


def pattern(user: str | None, repo: str | None) -> dict:
    return {"predicate": "owns", "args": [{"type": "User", "id": user}, {"type": "Repo", "id": repo}]}


def users(api) -> list[str]:
    return [each["args"][0]["id"] for each in api.get("/facts").json()]


def test_a_batch_is_applied_in_order(api):
    answer = api.post("/batch", [{"inserts": [fact("a"), fact("b")]}, {"deletes": [pattern("a", None)]}])
    assert (answer.status_code, set(answer.json())) == (200, {"message"})
    assert users(api) == ["b"]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (
            [{"inserts": [FACT]}, {"inserts": [FACT, {**FACT, "args": [{"type": "User", "id": ""}]}]}],
            "[1].inserts[1].args[0].id",
        ),
        ([{"inserts": [FACT]}, {}], "[1]"),
        ([{"inserts": [FACT]}, {"inserts": [], "deletes": []}], "[1]"),
        ([{"inserts": [FACT]}, {"deletes": None}], "[1].deletes"),
        (
            [{"inserts": [FACT]}, {"deletes": [{"predicate": "p", "args": [{"id": "x"}]}]}],
            "[1].deletes[0].args[0].type",
        ),
        ([{"inserts": [FACT]}, None], "[1]"),
        ({"inserts": [FACT]}, "the request body"),
    ],
)
def test_a_batch_with_a_mistake_changes_nothing(api, body, place):
    answer = api.post("/batch", body)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(place), answer.json()
    assert api.get("/facts").json() == []


def test_changes_carry_a_growing_offset(api):
    sent = [
        api.post("/batch", []),
        api.post("/facts", FACT),
        api.delete("/facts", FACT),
        api.post("/bulk", {}),
        api.post("/bulk_load", [FACT]),
        api.post("/bulk_delete", [FACT]),
        api.post("/clear_data"),
    ]
    assert [answer.status_code for answer in sent] == [200] * len(sent)
    offsets = [int(answer["OsoOffset"]) for answer in sent]
    assert offsets == sorted(set(offsets))
    assert "OsoOffset" not in api.post("/batch", {})


def test_stored_facts_say_of_which_revision_they_are(api):
    """By the statement that reads them; whether there are any, and whether any may end."""
    asked = ("/facts", "/facts?predicate=owns", "/facts?predicate=nothing", "/facts?args.0.type=User&args.0.id=ann")
    assert [api.get(path)["OsoOffset"] for path in asked] == ["0"] * 4
    lasting, ending = fact("ann"), fact("ben") | {"expires_at": "2099-01-01T00:00:00Z"}
    for inserted, count in ((lasting, 1), (ending, 2)):
        offset = api.post("/batch", [{"inserts": [inserted]}])["OsoOffset"]
        with counted() as statements:
            found = [api.get(path) for path in asked]
        assert [each["OsoOffset"] for each in found] == [offset] * 4
        assert [len(each.json()) for each in found] == [count, count, 0, 1]
        assert len([text for text in statements if "FROM authz_fact" in text]) == 4
        alone = [text for text in statements if '"offset"' in text and "FROM authz_fact" not in text]
        assert not [text for text in alone if "api_key" not in text]


def test_posting_a_fact_answers_the_fact(api):
    assert api.post("/facts", FACT).json() == FACT
    assert api.get("/facts").json() == [FACT]


def test_bulk_deletes_before_it_inserts(api):
    api.post("/facts", fact("a"))
    assert api.post("/bulk", {"delete": [pattern(None, "r")], "tell": [fact("b")]}).status_code == 200
    assert users(api) == ["b"]


@pytest.mark.parametrize(
    ("body", "place"), [({"tell": [{}]}, "tell[0].predicate"), ({"delete": 5}, "delete"), ([], "")]
)
def test_bulk_names_the_wrong_field(api, body, place):
    answer = api.post("/bulk", body)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(place)


def test_null_stands_for_anything_in_deletes(api):
    api.post("/bulk_load", [fact("a", "x"), fact("a", "y"), fact("b", "x")])
    api.post("/bulk_delete", [{"predicate": "owns", "args": [{"type": "User", "id": "a"}, None]}])
    assert users(api) == ["b"]
    assert api.delete("/facts", {"predicate": "never heard of", "args": [None]}).status_code == 200


def test_limits_are_off_until_they_are_set(api, settings):
    assert api.post("/bulk_load", [fact(str(n)) for n in range(3)]).status_code == 200
    settings.MAX_DELETE_MATCHES = 2
    assert api.delete("/facts", pattern(None, None)).status_code == 413
    assert len(users(api)) == 3
    settings.MAX_DELETE_MATCHES = 3
    assert api.delete("/facts", pattern(None, None)).status_code == 200


@pytest.mark.parametrize("count", [99, 100, 101, 999, 1000, 1001, 10_001])
def test_batches_of_any_size_are_whole(api, count):
    assert api.post("/batch", [{"inserts": [fact(f"u{n}") for n in range(count)]}]).status_code == 200
    assert api.get("/stats").json()["num_facts"] == count
    api.post("/batch", [{"deletes": [fact(f"u{n}") for n in range(count - 1)]}])
    assert users(api) == [f"u{count - 1}"]


def test_concurrent_batches_queue_up(api):
    """Overlapping facts in opposite orders, from many clients: nobody is told of a deadlock."""
    names = [f"u{n}" for n in range(30)]

    def send(n: int) -> list[int]:
        order = names if n % 2 else names[::-1]
        inserts = [{"inserts": [fact(name, f"r{n % 3}")]} for name in order]
        deletes = [{"deletes": [fact(name, f"r{(n + 1) % 3}")]} for name in order]
        try:
            return [api.post("/batch", body).status_code for body in (inserts, deletes, inserts)]
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        codes = [code for answered in pool.map(send, range(16)) for code in answered]
    assert codes == [200] * 48
    api.environment.refresh_from_db()
    assert api.environment.offset == 48
