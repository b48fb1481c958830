"""Making SQL ends within the limit of planning, whatever part of the work takes long; and it repeats no work."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

import pytest

from checks.asking import run
from checks.engine.plan.unfold import Unfolder
from checks.engine.rules import clauses
from localsql.fold import Residual
from localsql.plan import Splitter, StoredStatements
from localsql.render import LocalRenderer
from tests.localsql.test_residual import fact

POLICY = """
actor User {}
resource Folder { roles = ["reader"]; }
resource Doc { permissions = ["read"]; relations = { parent: Folder }; "read" if "reader" on "parent"; }
has_permission(u: User, "read", d: Doc) if shares(f, d) and has_role(u, "reader", f);
"""
ACTORS, RESOURCES = ("User", "Group", "Team"), ("Folder", "Doc", "Page")
# Each rule goes through all types of actors and resources: that comes to some hundred branches.
SUPERTYPES = """
actor User {} actor Group {} actor Team {}
resource Asset { roles = ["owner", "reader"]; permissions = ["read"]; relations = { parent: Resource };
  "reader" if "owner"; "read" if "reader"; }
resource Folder extends Asset {} resource Doc extends Asset {} resource Page extends Asset {}
has_role(a: Actor, r: String, x: Resource) if g matches Actor and has_group(a, g) and has_role_at(g, r, x);
has_role_at(a: Actor, r: String, x: Resource) if y matches Asset and has_relation(x, "parent", y) and granted(a, r, y)
  and not banned(a, y);
has_role_at(a: Actor, r: String, x: Resource) if granted(a, r, x) and not banned(a, x);
banned(a: Actor, x: Resource) if g matches Actor and in_list(a, g) and barred(g, x);
granted(a: Actor, r: String, x: Resource) if z matches Resource and shares(z, x) and given(a, r, z);
"""
BINDINGS = """
facts:
  has_relation(Doc:_, parent, Folder:_): {query: "SELECT id, folder_id FROM docs"}
  shares(Folder:_, Doc:_): {query: "SELECT f, d FROM shares"}
  in_list(Group:_, Team:_): {query: "SELECT f, d FROM lists"}
  barred(Team:_, Doc:_): {query: "SELECT f, d FROM barred"}
"""
QUERY = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc", "context_facts": []}
EVALUATED = {
    "predicate": ["allow", ["u", "a", "d"]],
    "calls": [],
    "constraints": {
        "u": {"type": "User", "ids": ["ann"]},
        "a": {"type": "String", "ids": ["read"]},
        "d": {"type": "Doc", "ids": None},
    },
    "context_facts": [],
}
SELECT = {"mode": "select", "query_vars_to_output_column_names": {"d": "id"}}
FILTER = {"mode": "filter", "query_var": "d", "output_column_name": "id"}
REQUESTS = {
    "/list_query": {"query": QUERY, "column": "id"},
    "/authorize_query": {"query": {**QUERY, "resource_id": "1"}},
    "/actions_query": {"query": {**{k: v for k, v in QUERY.items() if k != "action"}, "resource_id": "1"}},
    "/evaluate_query_local select": {"query": EVALUATED, "mode": SELECT},
    "/evaluate_query_local filter": {"query": EVALUATED, "mode": FILTER},
}


def facts() -> list[dict]:
    made = []
    for a, b in itertools.product(ACTORS, ACTORS):
        made += [fact("has_group", (a, "ann"), (b, "g")), fact("in_list", (a, "g"), (b, "l"))]
    for a, b in itertools.product(RESOURCES, RESOURCES):
        made += [fact("has_relation", (a, "1"), ("String", "parent"), (b, "2")), fact("shares", (a, "1"), (b, "2"))]
    for a, b in itertools.product(ACTORS, RESOURCES):
        made += [fact("given", (a, "g"), ("String", "reader"), (b, "1")), fact("barred", (a, "l"), (b, "2"))]
    return made


@pytest.fixture
def asked(api, settings):
    settings.STATEMENT_TIMEOUT = 500  # of which planning has a fifth
    assert api.post("/policy", {"src": POLICY}).status_code == 200
    api.post("/facts", fact("has_role", ("User", "ann"), ("String", "reader"), ("Folder", "1")))

    def ask(request: str = "/list_query"):
        return api.post(request.split()[0], {**REQUESTS[request], "data_bindings": BINDINGS})

    return ask


@pytest.fixture
def clock(monkeypatch):
    """The processor time that planning sees: it stands still, except in what is made slow."""
    clock = SimpleNamespace(now=0.0)
    seen = SimpleNamespace(thread_time=lambda: clock.now, monotonic=time.monotonic, sleep=time.sleep)
    monkeypatch.setattr(clauses, "time", seen)

    def slow(owner, name: str) -> None:
        work = getattr(owner, name)

        def working(*args, **named):
            clock.now += 101
            return work(*args, **named)

        monkeypatch.setattr(owner, name, working)

    return slow


PARTS = {
    "splitting": (Splitter, "split"),
    "rendering statements": (StoredStatements, "_rendered"),
    "folding": (Residual, "row"),
    "rendering": (LocalRenderer, "selected"),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("request_", REQUESTS)
def test_all_parts_of_the_work_are_within_the_limit_of_planning(asked, clock, part, request_):
    clock(*PARTS[part])
    for _ in range(2):
        refused = asked(request_)
        assert refused.status_code == 400, refused.content
        assert "100 s of CPU time (a fifth of STATEMENT_TIMEOUT)" in refused.json()["message"]


@pytest.mark.parametrize("part", ["planning", *PARTS])
def test_what_took_too_long_is_not_begun_again_at_once(asked, clock, monkeypatch, part):
    clock(*PARTS.get(part, (Unfolder, "step")))
    assert asked().status_code == 400
    monkeypatch.setattr(Unfolder, "step", None)  # which nothing calls
    monkeypatch.setattr(Residual, "row", None)
    assert asked().status_code == 400


def test_the_time_of_statements_is_not_counted(asked, clock):
    clock(run, "execute")
    assert asked().status_code == 200


def test_few_statements_are_rendered_of_a_policy_over_supertypes(api, asked, monkeypatch):
    """Hundreds of branches read the same stored facts; many are dropped before all that they read is known."""
    assert api.post("/policy", {"src": SUPERTYPES}).status_code == 200
    assert api.post("/batch", [{"inserts": facts()}]).status_code == 200
    counts = dict.fromkeys(("split", "rendered", "ran"), 0)
    for name, owner, method in (("split", StoredStatements, "of"), ("rendered", StoredStatements, "_rendered")):
        counted(monkeypatch, counts, name, owner, method)
    counted(monkeypatch, counts, "ran", run, "execute")
    before = clauses.steps_taken()
    assert asked().status_code == 200
    steps = clauses.steps_taken() - before
    assert counts["split"] > 300
    assert counts["rendered"] <= counts["ran"] < counts["split"] / 3
    assert steps < 5000, steps  # were facts of any signature read, more than 7,500
    assert asked().status_code == 200
    assert counts["rendered"] <= counts["ran"] / 2


def counted(monkeypatch, counts: dict[str, int], name: str, owner, method: str) -> None:
    work = getattr(owner, method)

    def working(*args, **named):
        counts[name] += 1
        return work(*args, **named)

    monkeypatch.setattr(owner, method, working)
