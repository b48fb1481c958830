"""Plays one conversation of tests/cases/wire.json against a running service.

A conversation has a `setup` (a policy or null, facts), a first request and what is expected of its answer, and
further steps in `then`. The well-known key in its headers stands for the key of the environment that it gets.
"""

import json
import re
import sqlite3

import requests

from tests.contract import assert_described, document
from tests.service import DEV_KEY, Client, Service

LONGER_THAN_ALLOWED = 10_485_761  # bytes


def play(service: Service, case: dict) -> None:
    client = service.fresh_client()
    _set_up(client, case["setup"])
    for step in [case, *case.get("then", [])]:
        answer = _send(service, client, step["request"])
        _check_described(step["request"], answer)
        _check(step["expect"], answer)
        if "sql_check" in step:
            _check_sql(step["sql_check"], answer.json()["sql"])


def _set_up(client: Client, setup: dict) -> None:
    if setup.get("policy") is not None:
        assert client.post("/policy", {"src": setup["policy"], "filename": ""}).status_code in (200, 202)
    if setup.get("facts"):
        assert client.post("/batch", [{"inserts": setup["facts"]}]).status_code == 200


def _send(service: Service, client: Client, request: dict) -> requests.Response:
    origin = service.origin if request.get("absolute_path") else f"{service.origin}/api"
    headers = {name: text.replace(DEV_KEY, client.key) for name, text in request.get("headers", {}).items()}
    body = None
    if "json_generator" in request:
        body = _long_question()
    elif "json" in request:
        body = json.dumps(request["json"])
    return requests.request(
        request["method"], origin + request["path"], params=request.get("query"), data=body, headers=headers, timeout=60
    )


def _long_question() -> str:
    """A valid question, one byte longer than a body may be."""
    question = {
        "actor_type": "User", "actor_id": "", "action": "view", "resource_type": "Folder", "resource_id": "c",
        "context_facts": [],
    }  # fmt: skip
    question["actor_id"] = "a" * (LONGER_THAN_ALLOWED - len(json.dumps(question)))
    return json.dumps(question)


# ---- expectations -----------------------------------------------------------------------------------------


def _check_described(request: dict, answer: requests.Response) -> None:
    path = request["path"] if request.get("absolute_path") else f"/api{request['path']}"
    if path in document()["paths"]:
        assert_described(request["method"], path, answer)


def _check(expected: dict, answer: requests.Response) -> None:
    assert answer.status_code == expected["status"], answer.text[:500]
    for name, text in expected.get("headers_present", {}).items():
        assert name in answer.headers and text in ("<any>", answer.headers[name])
    if not {"json", "partial", "keys_exact", "keys_absent"} & set(expected):
        return
    body = answer.json()
    if "json" in expected:
        _check_whole(expected["json"], body, expected.get("unordered", False))
    if "keys_exact" in expected:
        assert set(body) == set(expected["keys_exact"])
    for name in expected.get("keys_absent", []):
        assert name not in body
    _check_part(expected.get("partial", {}), body)


def _check_whole(expected: object, body: object, unordered: bool) -> None:
    if unordered:
        assert _sorted(_elements(body)) == _sorted(_elements(expected))
    else:
        assert body == expected


def _elements(body: object) -> list:
    return body if isinstance(body, list) else body["results"]


def _sorted(elements: list) -> list[str]:
    return sorted(json.dumps(element, sort_keys=True) for element in elements)


def _check_part(expected: dict, body: dict) -> None:
    expected = dict(expected)
    if expected.pop("results_nonempty", False):
        assert body["results"]
    for element in expected.pop("results_contains", []):
        assert element in body["results"]
    if "project" in expected:
        names = expected.pop("project")
        rows = [list(row) for row in dict.fromkeys(tuple(each[name] for name in names) for each in body["results"])]
        assert rows == expected.pop("rows", rows)
        assert _sorted(rows) == _sorted(expected.pop("rows_unordered", rows))
    _check_like(expected, body, "")


def _check_like(expected: object, found: object, path: str) -> None:
    """Every member that is expected is there; `<string>` is any text, `<matches RE>` any that the RE finds."""
    match expected:
        case "<string>":
            assert isinstance(found, str), path
        case str() if expected.startswith("<matches "):
            assert re.search(expected.removeprefix("<matches ").removesuffix(">"), found), path
        case dict():
            for name, member in expected.items():
                assert name in found, f"{path}.{name}"
                _check_like(member, found[name], f"{path}.{name}")
        case list():
            assert len(expected) == len(found), path
            for index, (member, other) in enumerate(zip(expected, found)):
                _check_like(member, other, f"{path}[{index}]")
        case _:
            assert (expected, type(expected)) == (found, type(found)), path


def _check_sql(expected: dict, sql: str) -> None:
    """What the produced SQL selects from the caller's tables."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(expected["schema"])
    cursor = connection.execute(expected["run"].replace("{sql}", sql))
    rows = [tuple(map(_plain, row)) for row in cursor.fetchall()]
    assert [column[0] for column in cursor.description] == expected.get("columns", [c[0] for c in cursor.description])
    assert rows == [tuple(map(_plain, row)) for row in expected.get("rows", rows)]
    if "rows_unordered" in expected:
        assert sorted(rows) == sorted(tuple(map(_plain, row)) for row in expected["rows_unordered"])


def _plain(value: object) -> str | None:
    """Booleans and 1 and 0 are the same, and ids compare as text."""
    return None if value is None else str(int(value)) if isinstance(value, bool) else str(value)
