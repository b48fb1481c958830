"""The description of the interface says what the interface does."""

import json
import re

import jsonschema
import pytest
import requests
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from authz_project.urls import endpoints
from tests.contract import OPERATIONS, assert_described, assert_fits, document

pytestmark = pytest.mark.one_database

FOR_PEOPLE = {
    "/",
    "/llms.txt",
    "/api",
    "/api/docs",
    "/admin",
    "/favicon.ico",
    "/api/follow",
    "/scim/v2/<path:place>",
}  # and for our own programs, or described by a standard
DIFFERENT_EACH_TIME = {"/test_environment", "/api/openapi.json", "/.well-known/authzen-configuration"}


def served(resolver: URLResolver, prefix: str = "/") -> dict[str, object]:
    found = {}
    for entry in resolver.url_patterns:
        path = f"{prefix}{entry.pattern}"
        found |= {path: entry.callback} if isinstance(entry, URLPattern) else served(entry, path)
    return found


# ---- the document -----------------------------------------------------------------------------------------------


def test_every_path_is_described_and_every_description_served():
    paths = {path for path in served(get_resolver()) if not path.startswith(("/admin/", "/docs"))}
    assert set(document()["paths"]) == paths - FOR_PEOPLE


@pytest.mark.parametrize("path", sorted(document()["paths"]))
def test_every_method_is_described(path):
    assert set(document()["paths"][path]) == {method.lower() for method in endpoints[path.removeprefix("/")].handlers}


def test_every_shape_is_a_schema_that_something_uses():
    text = json.dumps(document())
    for name, shape in document()["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(shape)
        assert f'"#/components/schemas/{name}"' in text, name


def test_every_operation_has_a_name_of_its_own():
    names = [method["operationId"] for path in document()["paths"].values() for method in path.values()]
    assert len(names) == len(set(names)) == len(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: f"{each.method} {each.path}")
def test_every_example_fits(operation):
    if operation.body is not None:
        assert_fits(operation.body, operation.example["body"])
    assert_fits(operation.doc.answer, operation.example["answer"])


# ---- what is really answered --------------------------------------------------------------------------------------


def test_the_examples_are_what_is_answered(service):
    client = service.fresh_client()
    for operation in OPERATIONS:
        example = operation.example
        answer = requests.request(
            operation.method,
            service.origin + operation.path,
            params=example.get("query"),
            json=example.get("body"),
            headers={"Authorization": f"Bearer {client.key}"},
            timeout=60,
        )
        assert answer.status_code == 200, (operation.path, answer.text)
        assert_described(operation.method, operation.path, answer)
        if operation.path not in DIFFERENT_EACH_TIME:
            assert without_who_and_when(answer.json()) == without_who_and_when(example["answer"]), operation.path


def without_who_and_when(answer: object) -> object:
    """What a revision was made by, and at what time, is another in each environment."""
    if isinstance(answer, list):
        return [without_who_and_when(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    return {name: without_who_and_when(each) for name, each in answer.items() if name not in ("at", "author")}


def test_what_is_required_is_and_nothing_else_is(service):
    """Of the questions' bodies. A page's size is required for the first page only, which no schema says."""
    client = service.fresh_client()
    for operation in (each for each in OPERATIONS if each.method == "POST" and each.body):
        body = operation.example["body"]
        shape = document()["components"]["schemas"].get(operation.body.get("$ref", "").rsplit("/", 1)[-1], {})
        if operation.is_change:
            assert post(client, operation.path, body).status_code == 200
        elif "properties" in shape:
            for name in set(shape["properties"]) - {"page_size"}:
                without = {other: value for other, value in body.items() if other != name}
                expected = 400 if name in shape["required"] else 200
                assert post(client, operation.path, without).status_code == expected, name
                if name not in shape["required"]:
                    assert post(client, operation.path, body | {name: None}).status_code == 200, name


def post(client, path: str, body: object) -> requests.Response:
    """Send a body to a whole path."""
    headers = {"Authorization": f"Bearer {client.key}"}
    return requests.post(f"{client.origin}{path}", json=body, headers=headers, timeout=60)


@pytest.mark.parametrize("query", ["", "?force=1"])
def test_refused_policies_are_described(service, query):
    client = service.fresh_client()
    failing = 'actor User {} resource R { permissions = ["p"]; } test "t" { assert allow(User:a, "p", R:r); }'
    for body in ({"src": "actor"}, {"src": failing}, {"src": 5}, [], {"src": "", "filename": "a\nb"}):
        assert_described("POST", "/api/policy", client.post(f"/policy{query}", body))
    assert_described("GET", "/api/policy", client.get("/policy", params={"id": "9"}))
    assert_described("GET", "/api/policy", client.get("/policy", params={"id": "x"}))
    for number in ("9", "x"):
        assert_described("GET", "/api/policy_metadata", client.get("/policy_metadata", params={"version": number}))
    assert_described("POST", "/api/policy", type(client)(client.origin, "nobody").post("/policy", {"src": ""}))


# ---- the page -------------------------------------------------------------------------------------------------------


@pytest.fixture
def page() -> str:
    return Client().get("/api/docs").content.decode()


def test_the_page_shows_every_operation_and_every_shape(page):
    for operation in OPERATIONS:
        assert f'data-method="{operation.method}" data-path="{operation.path}"' in page
    for name in document()["components"]["schemas"]:
        assert f'id="shape-{name}"' in page


def test_the_page_needs_nothing_from_elsewhere(page):
    links = re.findall(r'(?:src|href|action)="([^"]*)"', page)
    assert {link for link in links if not link.startswith(("#", "/api/", "data:"))} == set()
    assert not re.search(r"https?://|url\(|@import", page)


def test_every_link_inside_the_page_leads_somewhere(page):
    targets = set(re.findall(r' id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= targets


def test_the_page_runs_only_what_came_with_it():
    answers = [Client().get("/api/docs") for _ in range(2)]
    policies = [answer["Content-Security-Policy"] for answer in answers]
    assert policies[0] != policies[1]
    for answer, policy in zip(answers, policies):
        (nonce,) = set(re.findall(r"'nonce-([^']+)'", policy))
        assert answer.content.decode().count(f'nonce="{nonce}"') == 2
        assert policy.startswith("default-src 'none'")
