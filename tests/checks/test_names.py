"""What callers call variables is in messages and answers, and in nothing that is kept."""

import pytest
import requests
from django.test import Client as DjangoClient
from oso_cloud import Oso, typed_var

from checks.asking import ask
from facts import wire
from localsql import asking
from tests.checks.conftest import fact, publish, store

POLICY = """
actor User {}
resource Repo {
  roles = ["reader"]; permissions = ["read"];
  "read" if "reader";
}
older(a: Integer, b: Integer) if a < b;
"""
BINDINGS = "facts: {'has_role(User:_, String:_, Repo:_)': {query: 'SELECT u, n, r FROM roles'}}"


class Here(requests.adapters.BaseAdapter):
    """Takes what the client sends to the application in this process."""

    def send(self, request, **options):
        body = request.body or b""
        answer = DjangoClient(raise_request_exception=False).generic(
            request.method, request.path_url, body, "application/json", headers=dict(request.headers)
        )
        found = requests.Response()
        found.status_code, found._content, found.request, found.url = (
            answer.status_code, answer.content, request, request.url,
        )  # fmt: skip
        found.headers.update(answer.headers)
        return found

    def close(self):
        pass


@pytest.fixture
def oso(api) -> Oso:
    publish(api, POLICY)
    store(api, fact("has_role", "User:ann", "reader", "Repo:a"))
    client = Oso(url="http://localhost", api_key=api.key, data_bindings=None)
    client.api.session.mount("http://", Here())
    return client


def counting(monkeypatch, module, name: str) -> list:
    calls, act = [], getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args: calls.append(args) or act(*args))
    return calls


@pytest.mark.parametrize("times", [100, pytest.param(1000, marks=pytest.mark.long)])
def test_a_query_whose_variables_are_named_anew_each_time_is_compiled_once(oso, monkeypatch, times):
    compiled = counting(monkeypatch, ask, "compiled")
    remembered = len(wire._names)
    for _ in range(times):
        user, repo = typed_var("User"), typed_var("Repo")
        query = oso.build_query(("allow", user, "read", repo))
        assert query.evaluate((user, repo)) == [("ann", "a")]
    assert len(compiled) == 1
    assert len(wire._names) < remembered + 20


def test_local_sql_for_variables_that_are_named_anew_is_planned_once(api, oso, monkeypatch):
    planned = counting(monkeypatch, asking, "planned")
    found = set()
    for number in range(20):
        user, repo = f"u{number}", f"r{number}"
        query = {
            "predicate": ["allow", [user, "a", repo]],
            "constraints": {user: {"type": "User"}, "a": {"type": "String", "ids": ["read"]}, repo: {"type": "Repo"}},
        }
        mode = {"mode": "select", "query_vars_to_output_column_names": {repo: "repo", user: "user"}}
        answer = api.post("/evaluate_query_local", {"query": query, "data_bindings": BINDINGS, "mode": mode})
        found.add(answer.json()["sql"])
    assert len(planned) == 1 and len(found) == 1
    assert found.pop().endswith('SELECT o0 AS "repo", o1 AS "user" FROM __answers')


OPEN = {"predicate": ["older", ["younger", "n"]], "constraints": {n: {"type": "Integer"} for n in ("younger", "n")}}


def test_refusals_name_variables_as_the_caller_does(api, oso):
    other = {
        "predicate": ["older", ["elder", "m"]], "constraints": {n: {"type": "Integer"} for n in ("elder", "m")}
    }  # fmt: skip
    for name, query in [("younger", OPEN), ("elder", other), ("younger", OPEN)]:
        message = api.post("/evaluate_query", query).json()["message"]
        assert message.startswith(f"cannot list the values of `{name}`"), message
        mode = {"mode": "filter", "query_var": name}
        local = {"query": query, "data_bindings": None, "mode": {**mode, "output_column_name": "id"}}
        message = api.post("/evaluate_query_local", local).json()["message"]
        assert f"`{name}`" in message, message


def test_a_variable_that_may_be_anything_is_named_as_the_caller_does(api, oso):
    publish(api, 'actor User {} resource Repo { permissions = ["read"]; } allow(_: User, "read", _: Repo);')
    for name in ("who", "whom", "who"):
        query = {
            "predicate": ["allow", [name, "a", "r"]],
            "constraints": {name: {"type": "User"}, "a": {"type": "String", "ids": ["read"]}, "r": {"type": "Repo"}},
        }
        mode = {"mode": "select", "query_vars_to_output_column_names": {name: "id"}}
        answer = api.post("/evaluate_query_local", {"query": query, "data_bindings": None, "mode": mode})
        assert answer.json()["message"].startswith(f"the variable `{name}` can be any User")
        assert api.post("/evaluate_query", query).json() == {"results": [{name: None, "a": "read", "r": None}]}
