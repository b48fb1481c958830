"""What is said of questions that took long: their shape, and never an id."""

import json
import re

import pytest

from authz_project import observers
from authz_project.access_log import tell_if_question
from tests.authz_project.test_observers import published, send, way  # noqa: F401  fixtures
from tests.contract import ASKED
from tests.logged import logged

POLICY = """
actor User {}
resource Folder { roles = ["reader"]; }
resource Doc {
  permissions = ["read"]; roles = ["reader"]; relations = { folder: Folder };
  "read" if "reader"; "reader" if "reader" on "folder";
}
"""
ANN, DOC = {"type": "User", "id": "ann-7c1"}, {"type": "Doc", "id": "doc-9b2"}
MAY = {"actor_type": "User", "actor_id": "ann-7c1", "resource_type": "Doc", "resource_id": "doc-9b2"}
EACH = {"actor": ANN, "action": "read", "resource": DOC}
FILTER = {"actor_type": "User", "actor_id": "ann-7c1", "action": "read", "resource_type": "Doc"}
LIST = FILTER | {"page_size": 10_000}
CONTEXT = [{"predicate": "has_role", "args": [ANN, {"type": "String", "id": "reader"}, DOC]}]
QUERY = {
    "predicate": ["allow", ["who", "may", "what"]], "calls": [],
    "constraints": {
        "who": {"type": "User", "ids": ["ann-7c1"]}, "may": {"type": "String", "ids": ["read"]},
        "what": {"type": "Doc", "ids": None},
    },
}  # fmt: skip
EVALUATION = {
    "subject": {"type": "User", "id": "ann-7c1"}, "action": {"name": "read"},
    "resource": {"type": "Doc", "id": "doc-9b2"},
}  # fmt: skip
BINDINGS = """
dialect: sqlite
facts:
  has_relation(Doc:_, folder, Folder:_):
    query: SELECT id, folder FROM doc
sql_types: {User: text, Doc: text, Folder: text}
"""
QUESTIONS = [
    ("/api/authorize", MAY | {"action": "read"}),
    ("/api/authorize", MAY | {"action": "read", "context_facts": CONTEXT}),
    ("/api/authorize", MAY | {"action": "unheard-of-5d"}),
    ("/api/actions", MAY),
    ("/api/list", LIST),
    ("/api/list", LIST | {"context_facts": CONTEXT}),
    ("/api/authorize_resources", {
        "actor_type": "User", "actor_id": "ann-7c1", "action": "read", "resources": [DOC, DOC | {"id": "doc-2"}],
    }),
    ("/api/authorize_each", {"checks": [EACH, EACH | {"actor": ANN | {"id": "ann-3"}}]}),
    ("/api/bulk_actions", [MAY, MAY | {"resource_id": "doc-3"}]),
    ("/api/evaluate_query", QUERY),
    ("/api/explain", MAY | {"action": "read"}),
    ("/api/actions_query", {"query": MAY, "data_bindings": BINDINGS}),
    ("/api/authorize_query", {"query": MAY | {"action": "read"}, "data_bindings": BINDINGS}),
    ("/api/list_query", {"query": FILTER, "column": "doc.id", "data_bindings": BINDINGS}),
    ("/access/v1/evaluation", EVALUATION),
    ("/access/v1/search/resource", EVALUATION | {"resource": {"type": "Doc"}}),
    ("/access/v1/search/subject", EVALUATION | {"subject": {"type": "User"}}),
    ("/access/v1/search/action", {name: part for name, part in EVALUATION.items() if name != "action"}),
    ("/access/v1/evaluations", {"evaluations": [EVALUATION, EVALUATION]}),
    ("/api/query", {"fact": {"predicate": "has_role", "args": [ANN, None, None]}}),
    ("/api/evaluate_query_local", {
        "query": QUERY, "data_bindings": BINDINGS,
        "mode": {"mode": "select", "query_vars_to_output_column_names": {"what": "id"}},
    }),
]  # fmt: skip


def test_every_endpoint_with_questions_is_tried():
    assert {path for path, _ in QUESTIONS} == set(ASKED)


@pytest.fixture
def slow():
    """Every question is slow; the lines, as objects."""
    observers.observe(tell_if_question)
    with logged("authz.slow") as found:
        yield found
    observers.stop(tell_if_question)


@pytest.mark.parametrize(("path", "body"), QUESTIONS, ids=lambda each: each if isinstance(each, str) else "")
def test_a_slow_question_is_told_by_its_shape(way, slow, path, body):  # noqa: F811
    assert send(way, "POST", "/api/policy", {"src": POLICY}) == 200
    folder = {"type": "Folder", "id": "folder-4e7"}
    role = {"predicate": "has_role", "args": [ANN, {"type": "String", "id": "reader"}, folder]}
    relation = {"predicate": "has_relation", "args": [DOC, {"type": "String", "id": "folder"}, folder]}
    assert send(way, "POST", "/api/batch", [{"inserts": [role, relation]}]) == 200
    slow.clear()
    for turn in ("compiled", "found"):
        changed = body if turn == "compiled" else json.loads(json.dumps(body).replace("ann-7c1", "ann-8d3"))
        assert send(way, "POST", path, changed, CONTENT_TYPE="application/json") == 200
    assert len(slow) == 2
    for line in slow:
        told = json.dumps(line)
        assert not re.search(r"ann-[7-8]|doc-\d|folder-4e7|unheard", told), told
        assert (line["endpoint"], line["code"], line["level"]) == (path, 200, "WARNING")
        assert line["message"].startswith(f"slow query: {path} 200 took ")
        assert line["shapes"] and line["shapes"][0].split("(")[0] in ("allow", "has_role", "has_permission")
        assert isinstance(line["plan_reads"], int) and line["statements"] >= 1
        assert line["microseconds"] >= line["statement_microseconds"] > 0


def test_names_of_the_policy_are_told(way, slow):  # noqa: F811
    published(way)
    slow.clear()
    send(way, "POST", "/api/authorize", MAY | {"action": "read"})
    assert slow[0]["shapes"] == ['allow(User _, String "read", Doc _)']
    slow.clear()
    send(way, "POST", "/api/list", LIST)
    assert slow[0]["shapes"] == ['allow(User _, String "read", Doc ?)']


def test_what_is_no_question_is_not_told(way, slow):  # noqa: F811
    published(way)
    send(way, "GET", "/api/stats")
    send(way, "GET", "/api/facts")
    assert slow == []
