"""Rules with more names and ids than a statement may have parameters."""

from checks.engine.sql.text import SQLite
from tests.checks.conftest import about, fact, publish, store
from tests.checks.in_memory import Engine

NAMES = ", ".join(f'"n{index}"' for index in range(33_000))
USERS = ", ".join(f'User{{"u{index}"}}' for index in range(33_000))
BLOCKS = 'actor User {} resource Doc { permissions = ["read"]; }'
BY_NAME = f'{BLOCKS} has_permission(u: User, "read", d: Doc) if holds(u, r, d) and r in [{NAMES}];'
BY_USER = f'{BLOCKS} has_permission(u: User, "read", d: Doc) if open(d) and u in [{USERS}];'
BARRED = f"""{BLOCKS} has_permission(u: User, "read", d: Doc) if open(d) and not barred(u, d);
barred(u: User, d: Doc) if strict(d) and u in [%s];"""


def may_read(api, user: str) -> bool:
    answer = api.post("/authorize", about(user, "Doc:d", action="read"))
    assert answer.status_code == 200, answer.content
    return answer.json()["allowed"]


def test_a_fact_has_one_of_many_names(api):
    publish(api, BY_NAME)
    store(api, fact("holds", "User:ann", "n32999", "Doc:d"), fact("holds", "User:ben", "m", "Doc:d"))
    assert may_read(api, "User:ann") and not may_read(api, "User:ben")


def test_a_user_is_one_of_many(api):
    publish(api, BY_USER)
    store(api, fact("open", "Doc:d"))
    assert may_read(api, "User:u32999") and not may_read(api, "User:u33000")


def test_everyone_but_many_is_everyone_where_none_of_them_is_barred(api):
    publish(api, BARRED % USERS)
    store(api, fact("open", "Doc:d"))
    user, doc = {"type": "User", "id": None}, {"type": "Doc", "id": "d"}
    pattern = {"predicate": "has_permission", "args": [user, {"type": "String", "id": "read"}, doc]}
    (everyone,) = api.post("/query", {"fact": pattern}).json()["results"]
    assert everyone["args"][0]["id"] is None
    store(api, fact("strict", "Doc:d"))
    assert "all values except some" in api.post("/query", {"fact": pattern}).json()["message"]


def test_a_long_list_is_one_parameter():
    """SQLite takes a second to prepare as many parameters, and has no more than 32,766."""
    statement = Engine(BY_NAME, SQLite()).compiled("authorize", "read").statement
    assert statement and len(statement.parameters) < 10
