"""What callers are told while the database cannot do all that it should; and that it passes by itself."""

from contextlib import contextmanager

import pytest
from django.db import connection

from authz_project import route
from authz_project.database import MEMORY, trouble_of
from authz_project.log_formats import OncePerSecond
from checks.asking import run

POLICY = 'actor User {} resource Doc { roles = ["reader"]; permissions = ["read"]; "read" if "reader"; }'
QUESTION = {
    "actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc", "resource_id": "1",
    "context_facts": [],
}  # fmt: skip


def fact(name: str, size: int = 0) -> dict:
    args = [("User", name), ("String", "reader"), ("Doc", "1" + "x" * size)]
    return {"predicate": "has_role", "args": [{"type": kind, "id": text} for kind, text in args]}


@pytest.fixture
def asking(api):
    assert api.post("/policy", {"src": POLICY}).status_code == 200
    assert api.post("/facts", fact("ann")).status_code == 200
    return api


def is_allowed(api) -> bool:
    return api.post("/authorize", QUESTION).json()["allowed"]


def all_stored(api) -> int:
    return len(api.get("/facts").json())


@contextmanager
def sqlite_pragma(name: str, value: object):
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")  # or what other tests left free would be filled first
        before = cursor.execute(f"PRAGMA {name}").fetchone()[0]
        cursor.execute(f"PRAGMA {name} = {value}")
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {name} = {before}")


@contextmanager
def read_only(kind: str):
    if kind == "sqlite":
        with sqlite_pragma("query_only", 1):
            yield
        return
    database = f'ALTER DATABASE "{connection.settings_dict["NAME"]}"'
    with connection.cursor() as cursor:  # all of it: a connection that may not write is not kept
        cursor.execute(f"{database} SET default_transaction_read_only = on")
    connection.close()
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SET default_transaction_read_only = off")
            cursor.execute(f"{database} RESET default_transaction_read_only")
        connection.close()


def test_a_database_that_can_only_be_read_answers_questions(db, asking, caplog):
    with read_only(db):
        for answer in (
            asking.post("/facts", fact("ben")), asking.delete("/facts", fact("ann")), asking.post("/clear_data"),
            asking.post("/batch", [{"inserts": [fact(f"u{n}") for n in range(300)]}]),
            asking.post("/policy", {"src": POLICY + " "}),
        ):  # fmt: skip
            assert answer.status_code == 503 and answer.headers["Retry-After"], answer.json()
            told = {"sqlite": "is read-only", "postgresql": "is read-only"}[db]
            assert told in answer.json()["message"] and "nothing changed" in answer.json()["message"]
        assert is_allowed(asking)
    assert "Traceback" not in caplog.text
    assert all_stored(asking) == 1 and asking.post("/facts", fact("ben")).status_code == 200


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)  # a server's disk is not for a test to fill: see below
def test_a_full_disk_changes_nothing_and_questions_go_on(db, asking):
    with sqlite_pragma("max_page_count", 1):  # no more than there are
        answers = [asking.post("/batch", [{"inserts": [fact(f"u{n}", 400) for n in range(900)]}]) for _ in range(2)]
        assert is_allowed(asking) and all_stored(asking) == 1
    for answer in answers:
        assert answer.status_code == 503 and answer.headers["Retry-After"] == "10", answer.json()
        assert "disk is full; nothing changed" in answer.json()["message"]
    offset = int(asking.post("/facts", fact("ben")).headers["OsoOffset"])
    assert all_stored(asking) == 2 and is_allowed(asking)
    assert int(asking.post("/facts", fact("eve")).headers["OsoOffset"]) == offset + 1


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
@pytest.mark.parametrize(
    ("code", "status", "told"),
    [("53100", 503, "disk is full"), ("53300", 503, "no free connections"), ("XX001", 500, "is corrupt"),
     ("53200", 503, "memory"), ("58030", 503, "reports I/O errors"), ("08006", 503, "unreachable")],
)  # fmt: skip
def test_what_postgresql_says_is_told(db, asking, code, status, told, caplog):
    """In the words of its codes, which the test has it raise."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN RAISE EXCEPTION 'made up' USING ERRCODE = '{code}'; END $$"
        )
        cursor.execute("CREATE TRIGGER made_up BEFORE INSERT ON authz_revision EXECUTE FUNCTION fail()")
    try:
        answer = asking.post("/facts", fact("ben"))
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION fail CASCADE")
    assert (answer.status_code, told in answer.json()["message"]) == (status, True), answer.json()
    assert ("Retry-After" in answer.headers) == (status == 503)
    assert "Traceback" not in caplog.text
    assert all_stored(asking) == 1


def test_too_little_memory_for_one_question_is_no_answer(asking, monkeypatch, caplog):
    monkeypatch.setattr(route, "_once", OncePerSecond())

    def exhausted(*_: object):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(run, "execute", exhausted)
        patch.setattr(run, "answer", exhausted)
        answer = asking.post("/authorize", QUESTION | {"resource_id": "2"})
    assert (answer.status_code, answer.json()) == (503, {"message": MEMORY.message})
    assert "Traceback" not in caplog.text and MEMORY.message in caplog.text
    assert is_allowed(asking)


def test_what_is_no_trouble_of_a_database():
    assert trouble_of(ValueError("x")) is None and trouble_of(KeyError()) is None
