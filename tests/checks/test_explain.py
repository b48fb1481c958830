"""Why: proofs and obstacles over HTTP, of single decisions, items of lists and solutions of queries."""

from copy import deepcopy
from math import inf
from time import monotonic

import pytest
from django.core.management import call_command
from django.db import connection

from checks.asking import run, snapshot
from checks.asking.snapshot import Snapshot
from checks.engine.sql.text import Statement
from checks.errors import PlannedTooLong
from checks.explain import search, tree
from checks.explain import tree as failures
from checks.explain.cases import ordered_body
from facts.models import Signature
from policy import rules
from policy.values import Value
from tests.checks.conftest import POLICY, about, fact, publish, store
from tests.checks.proofs import faults_of_proof, rows_of, truth
from tests.conftest import Api

FOLDERS = """
actor User {}
resource Folder {
  roles = ["reader"];
  permissions = ["read"];
  relations = { parent: Folder };
  "reader" if "reader" on "parent";
  "read" if "reader";
}
has_role(user: User, "reader", up: Folder) if
  down matches Folder and has_relation(down, "parent", up) and has_role(user, "reader", down);
"""


def explain(api: Api, actor: str, action: str, resource: str, *context: dict) -> dict:
    answer = api.post("/explain", about(actor, resource, action=action, context_facts=list(context)))
    assert answer.status_code == 200, answer.content
    return answer.json()


def walk(node: dict, depth: int = 0):
    yield depth, node
    for child in node.get("because", ()):
        yield from walk(child, depth + 1)


def texts(root: dict) -> list[str]:
    return [node["text"] for _, node in walk(root)]


def leaves(root: dict) -> list[dict]:
    return [node for _, node in walk(root) if not node.get("because")]


# ---- proofs ------------------------------------------------------------------------------------------------------


def test_a_proof_names_rules_with_their_lines_and_facts_with_their_source(repos):
    said = explain(repos, "User:ann", "read", "Repo:b")
    assert said["allowed"] is True
    assert said["policy_version"] == 1
    assert said["obstacles"] == []
    assert texts(said["proof"]) == [
        'allow(User:ann, "read", Repo:b)',
        'has_permission(User:ann, "read", Repo:b)',
        'has_role(User:ann, "reader", Repo:b)',
        'has_relation(Repo:b, "organization", Org:o)',
        'has_role(User:ann, "member", Org:o)',
        'has_role(User:ann, "admin", Org:o)',
    ]
    step = reader(said["proof"])
    assert step["rule"] == {"text": '"reader" if "member" on "organization";', "line": 14}
    assert step["bindings"]["organization"] == {"type": "Org", "id": "o"}
    assert {leaf["source"] for leaf in leaves(said["proof"])} == {"stored"}


def test_a_context_fact_is_distinguished_from_a_stored_one(repos):
    context = fact("has_relation", "Repo:new", "organization", "Org:o")
    said = explain(repos, "User:ann", "read", "Repo:new", context)
    sources = {leaf["text"]: leaf["source"] for leaf in leaves(said["proof"])}
    assert sources['has_relation(Repo:new, "organization", Org:o)'] == "context"
    assert sources['has_role(User:ann, "admin", Org:o)'] == "stored"


def test_a_fact_that_the_policy_states_is_one_of_the_policy(api):
    publish(api, 'actor User {} resource Repo { permissions = ["read"]; }\nallow(_: User, "read", Repo{"p"});')
    said = explain(api, "User:anyone", "read", "Repo:p")
    assert said["proof"]["kind"] == "rule"
    assert said["proof"]["source"] == "policy"
    assert said["proof"]["rule"]["line"] == 2


def test_comparisons_and_negations_are_shown_with_their_values(api):
    publish(
        api,
        "actor User {} resource Tool {} resource Flag {}\ndeclare flag(Tool, Flag);\n"
        'allow(u: User, "use", t: Tool) if level(u, n) and n >= 3\n'
        "  and not is_banned(u) and not (flag(t, f) and off(f));",
    )
    level = {"predicate": "level", "args": [{"type": "User", "id": "u"}, {"type": "Integer", "id": "5"}]}
    store(api, level)
    said = explain(api, "User:u", "use", "Tool:t")
    kinds = {node["text"]: node["kind"] for _, node in walk(said["proof"])}
    assert kinds["5 >= 3"] == "comparison"
    assert kinds["not is_banned(User:u)"] == "absence"
    assert kinds["not (flag(t, f) and off(f))"] == "absence"


def test_the_side_of_an_or_that_holds_is_shown_as_it_is_written(api):
    publish(
        api,
        "actor User {} resource Doc {}\n"
        'allow(u: User, "see", d: Doc) if (owns(u, d) and is_open(d)) or\n  is_public(d);'
        'allow(u: User, "edit", d: Doc) if owns(u, d) and (is_open(d) or is_public(d));',
    )
    store(api, fact("owns", "User:u", "Doc:d"), fact("is_public", "Doc:d"))
    see, edit = explain(api, "User:u", "see", "Doc:d"), explain(api, "User:u", "edit", "Doc:d")
    assert texts(see["proof"])[1:] == ["is_public(Doc:d)"]
    part = next(node for _, node in walk(edit["proof"]) if node["kind"] == "part")
    assert part["text"] == "is_open(d) or is_public(d)"
    assert part["rule"]["text"] == "is_public(d)"


def test_what_holds_for_every_value_is_shown_as_such(api):
    publish(
        api,
        'actor User {} resource Org { roles = ["guest"]; }\nresource Repo { permissions = ["read"]; }\n'
        'has_role(_: User, "guest", _: Org);\n'
        'allow(u: User, "read", _: Repo) if o matches Org and has_role(u, "guest", o);',
    )
    said = explain(api, "User:u", "read", "Repo:r")
    assert texts(said["proof"])[1] == 'has_role(User:u, "guest", Org:_)'
    assert said["proof"]["bindings"]["o"] == {"type": "Org", "id": None}


def test_every_value_of_an_answer_can_be_explained(repos):
    store(repos, fact("is_root", "User:root"))
    said = explain(repos, "User:root", "read", "Repo:*")
    assert said["allowed"] is True
    assert said["goal"] == 'allow(User:root, "read", Repo:_)'
    assert explain(repos, "User:ann", "read", "Repo:*")["allowed"] is False


# ---- circular and large data ---------------------------------------------------------------------------------


def test_circular_data_have_a_short_proof_that_does_not_lead_back_to_itself(api):
    publish(api, FOLDERS)
    links = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "b"), ("a", "a")]
    stored = [fact("has_relation", f"Folder:{one}", "parent", f"Folder:{other}") for one, other in links]
    stored.append(fact("has_role", "User:u", "reader", "Folder:d"))
    store(api, *stored)
    for folder in "abcde":
        said = explain(api, "User:u", "read", f"Folder:{folder}")
        goal = ("allow", tuple(map(_value, about_goal(folder))))
        assert faults_of_proof(said["proof"], goal, truth(FOLDERS, rows_of(stored), (), goal[1])) == []
    assert max(depth for depth, _ in walk(explain(api, "User:u", "read", "Folder:c")["proof"])) == 3


def about_goal(folder: str) -> list[dict]:
    return [{"type": "User", "id": "u"}, {"type": "String", "id": "read"}, {"type": "Folder", "id": folder}]


def _value(raw: dict) -> Value:
    return Value(raw["type"], raw["id"])


def chain(api: Api, length: int) -> None:
    publish(api, FOLDERS)
    links = [fact("has_relation", f"Folder:{i}", "parent", f"Folder:{i + 1}") for i in range(length)]
    store(api, *links, fact("has_role", "User:u", "reader", f"Folder:{length}"))


@pytest.mark.parametrize("length", [97, 98, 99, 300])
def test_a_long_chain_is_cut_at_a_limit_that_is_named(api, settings, monkeypatch, length):
    settings.STATEMENT_TIMEOUT = 0  # another limit
    monkeypatch.setattr("checks.asking.snapshot.TIME_LIMIT", 60.0)  # and another
    chain(api, length)
    said = explain(api, "User:u", "read", "Folder:0")
    assert said["allowed"] is True
    deepest = max(walk(said["proof"]), key=lambda each: each[0])
    assert deepest[0] == min(length + 2, tree.MAX_DEPTH)
    cut = [node for _, node in walk(said["proof"]) if node["kind"] == "unexplained"]
    assert [node["note"] for node in cut] == (["the limit of 100 levels was reached"] if length + 2 > 100 else [])


TWO_OF_A_RECURSION = """
actor User {}
resource Doc { permissions = ["read"]; }
helps(user: User, doc: Doc) if owner(user, doc);
helps(user: User, doc: Doc) if friend(user, other) and helps(other, doc);
helps(user: User, doc: Doc) if mother(user, one) and father(user, other) and helps(one, doc) and helps(other, doc);
has_permission(user: User, "read", doc: Doc) if helps(user, doc) and mate(user, other) and helps(other, doc);
"""


def test_what_was_proved_on_the_way_to_something_else_is_proved_whole(api):
    """Of `a` it is because of `x`; that it is of `b` was found beside, and `b` stands in no reason for `a`."""
    publish(api, TWO_OF_A_RECURSION)
    friends = ["ax", "xw", "wv", "bx", "ay", "qr", "rs", "st", "tu"]
    stored = [fact("friend", f"User:{one}", f"User:{other}") for one, other in friends]
    stored += [fact("mother", "User:y", "User:b"), fact("father", "User:y", "User:q"), fact("mate", "User:a", "User:b")]
    stored += [fact("owner", "User:v", "Doc:d"), fact("owner", "User:u", "Doc:d")]
    store(api, *stored)
    said = explain(api, "User:a", "read", "Doc:d")
    goal = ("allow", tuple(map(_value, said["proof"]["fact"]["args"])))
    assert faults_of_proof(said["proof"], goal, truth(TWO_OF_A_RECURSION, rows_of(stored), (), goal[1])) == []


NAMES_IN_A_CIRCLE = """
actor User {}
resource Doc {
  roles = ["reader", "editor"];
  permissions = ["read"];
  "read" if "reader";
}
has_role(user: User, role: String, doc: Doc) if swaps(role, other) and has_role(user, other, doc);
has_role(user: User, "editor", doc: Doc) if has_role(user, "reader", doc);
"""


@pytest.mark.parametrize("granted", ["a", "m", "z", "y", "reader", "editor"])
def test_a_name_that_changes_on_the_way_is_no_reason_for_itself(api, granted):
    publish(api, NAMES_IN_A_CIRCLE)
    swaps = [("reader", "y"), ("y", "m"), ("m", "reader"), ("m", "editor"), ("reader", "a"), ("y", "z")]
    stored = [fact("swaps", one, other) for one, other in swaps]
    stored.append(fact("has_role", "User:u", granted, "Doc:d"))
    store(api, *stored)
    said = explain(api, "User:u", "read", "Doc:d")
    assert said["allowed"] is True
    goal = ("allow", tuple(map(_value, said["proof"]["fact"]["args"])))
    assert faults_of_proof(said["proof"], goal, truth(NAMES_IN_A_CIRCLE, rows_of(stored), (), goal[1])) == []


def test_a_search_that_is_too_long_says_so(api, monkeypatch):
    monkeypatch.setattr(search, "MAX_GOALS", 20)
    chain(api, 60)
    said = explain(api, "User:u", "read", "Folder:0")
    assert said["allowed"] is True
    assert any(node["kind"] == "unexplained" for _, node in walk(said["proof"]))
    assert said["complete"] is False
    assert said["message"] == "the explanation is incomplete: the limit of 20 goals was reached"


def test_time_is_a_limit_as_well(api, monkeypatch):
    chain(api, 5)
    monkeypatch.setattr("checks.asking.snapshot.TIME_LIMIT", -1.0)
    said = explain(api, "User:u", "read", "Folder:0")
    assert (said["allowed"], said["proof"]["kind"]) == (True, "unexplained")
    denied = explain(api, "User:nobody", "read", "Folder:0")
    assert [each["kind"] for each in denied["obstacles"]] == ["unexplained"]


# Each rule takes long to plan in full, since its conditions are roles through two recursions, of several types.
LONG_TO_EXPLAIN = """
actor User {}
actor Team {}
resource Folder { roles = ["r0", "r1", "r2"]; permissions = ["p"]; relations = { up: Folder, team: Team }; }
resource Doc { roles = ["r0", "r1", "r2"]; permissions = ["p"]; relations = { up: Folder, near: Doc }; }
""" + "".join(
    f"""
has_role(a: Actor, "r{one}", f: Resource) if t matches Team and in_team(a, t) and has_role(t, "r{other}", f);
has_role(a: Actor, "r{one}", f: Resource) if x matches Resource and has_relation(f, "up", x) and
  has_role(a, "r{other}", x) and not denied{one}(a, x);
has_permission(a: Actor, "p", f: Resource) if y matches Resource and has_relation(f, "near", y) and
  has_role(a, "r{one}", y) and (has_role(a, "r{other}", f) or has_role(a, "r{one}", f)) and not denied{one}(a, f);
"""
    for one, other in ((0, 1), (1, 2), (2, 0))
)


def long_to_explain(api: Api) -> None:
    publish(api, LONG_TO_EXPLAIN)
    store(
        api,
        fact("in_team", "User:u", "Team:t"),
        fact("has_role", "Team:t", "r2", "Folder:f"),
        fact("has_relation", "Doc:d", "up", "Folder:f"),
        fact("has_relation", "Doc:d", "near", "Doc:d"),
    )


@pytest.mark.parametrize("actor", ["User:u", "User:v"])
def test_past_its_time_an_explanation_ends_with_what_it_has(api, monkeypatch, actor):
    """By counted steps: the time is over after some of the plans and statements that a whole explanation takes."""
    long_to_explain(api)
    check_time, counted, most = Snapshot.check_time, [0], [10**9]

    def counting(self) -> None:
        if self.ends < inf:
            counted[0] += 1
            if counted[0] > most[0]:
                self.ends = 0.0  # of the clock of this thread
        check_time(self)

    monkeypatch.setattr(Snapshot, "check_time", counting)
    whole, whole_steps = explain(api, actor, "p", "Doc:d"), counted[0]
    assert "complete" not in whole and whole_steps > 5
    known = set(map(repr, lines_of(whole)))
    for steps in sorted({0, 1, 2, 3, *range(5, whole_steps, max(1, whole_steps // 6))}):
        snapshot.published.clear()
        counted[0], most[0] = 0, steps
        part = explain(api, actor, "p", "Doc:d")
        assert counted[0] <= steps + 40  # of those that are left, each is refused at once
        assert part["allowed"] == whole["allowed"]
        assert part["complete"] is False
        assert part["message"].startswith("the explanation is incomplete: it takes longer than 6")
        told = lines_of(part)
        assert any(line[0] == "unexplained" for line in told)
        assert {repr(line) for line in told if line[0] != "unexplained"} <= known


def lines_of(said: dict) -> list[tuple]:
    """What each line states, without what is below it."""
    roots = [said["proof"]] if said["proof"] else said["obstacles"]
    return [
        (node["kind"], node["text"], node.get("rule", {}).get("line"), tuple(node.get("met", ())))
        for root in roots
        for _, node in walk(root)
    ]


def test_an_explanation_takes_no_longer_than_three_decisions_and_some(api, monkeypatch):
    """What is planned counts, though it takes long at once; and others may plan the same afterwards."""
    long_to_explain(api)
    monkeypatch.setattr("checks.explain.explain.TIMES", 1)
    monkeypatch.setattr("checks.explain.explain.MORE", 0.001)
    said = explain(api, "User:v", "p", "Doc:d")
    assert (said["allowed"], said["complete"]) == (False, False)
    assert "seconds of CPU time" in said["message"]
    monkeypatch.setattr("checks.explain.explain.MORE", 60.0)
    whole = explain(api, "User:v", "p", "Doc:d")
    assert whole["obstacles"]
    assert "fifth of STATEMENT_TIMEOUT" not in str(whole)


ENDLESS = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 1 FROM n WHERE i < 0",
    "postgresql": "SELECT 1 FROM pg_sleep(600)",
}


def test_a_statement_of_an_explanation_ends_with_its_time(api, monkeypatch):
    chain(api, 5)
    monkeypatch.setattr("checks.explain.explain.MORE", 0.2)
    endless = Statement(ENDLESS[connection.vendor], ())
    monkeypatch.setattr(snapshot.Snapshot, "place_of", lambda self, _: self._timed(lambda: run.execute(endless, {})))
    began = monotonic()
    said = explain(api, "User:u", "read", "Folder:0")
    assert monotonic() - began < 0.6 * snapshot.TIME_LIMIT
    assert (said["allowed"], said["complete"]) == (True, False)
    assert "seconds of CPU time" in said["message"]


def test_a_server_is_told_what_is_left_of_the_time(api):
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no server")

    def ran(sql: str) -> list[tuple]:
        return session._timed(lambda: run.execute(Statement(sql, ()), {}))

    with snapshot.snapshot(api.environment.pk, None, (), frozenset()) as session, session.within(2.0):
        ran("SELECT 1 FROM pg_sleep(0.5)")
        ((milliseconds,),) = ran("SELECT setting::int FROM pg_settings WHERE name = 'statement_timeout'")
        assert milliseconds <= 1520


def test_a_part_that_is_too_complex_to_plan_is_left_out(api, monkeypatch):
    long_to_explain(api)

    def refused(*_: object) -> None:
        raise PlannedTooLong(1)

    monkeypatch.setattr("checks.explain.search._Questions.answers", refused)
    said = explain(api, "User:v", "p", "Doc:d")
    assert [each["kind"] for each in said["obstacles"]][-1] == "unexplained"
    assert said["complete"] is False and "fifth of STATEMENT_TIMEOUT" in said["message"]


def test_the_terminal_says_that_an_explanation_is_not_complete(api, monkeypatch, capsys):
    chain(api, 5)
    monkeypatch.setattr("checks.asking.snapshot.TIME_LIMIT", -1.0)
    call_command("ask", "authorize", "--explain", "User:u", "read", "Folder:0")
    assert "the explanation is incomplete: it takes longer than -1 seconds" in capsys.readouterr().out


# ---- obstacles -----------------------------------------------------------------------------------------------


def test_obstacles_tell_how_far_each_rule_gets_and_what_is_missing(repos):
    said = explain(repos, "User:bob", "read", "Repo:b")
    assert said["allowed"] is False
    assert said["proof"] is None
    (permission,) = said["obstacles"][0]["because"]
    rules = {each["rule"]["text"]: each for each in permission["because"]}
    assert list(rules) == [
        '"read" if "reader";',
        '"read" if is_public(resource);',
        'has_permission(user: User, "read", repo: Repo) if is_root(user) and repo matches Repo;',
    ]
    organization = rules['"read" if "reader";']["because"][0]["because"][1]
    assert organization["met"] == ['has_relation(Repo:b, "organization", Org:o)']
    assert organization["because"][0]["text"] == 'has_role(User:bob, "member", Org:o)'
    assert organization["because"][0]["kind"] == "missing"


def test_a_negation_that_fails_comes_with_why_the_negated_holds(api):
    publish(api, 'actor User {} resource Doc {}\nallow(u: User, "see", _: Doc) if is_in(u) and not is_banned(u);')
    store(api, fact("is_in", "User:u"), fact("is_banned", "User:u"))
    (obstacle,) = explain(api, "User:u", "see", "Doc:d")["obstacles"]
    assert obstacle["met"] == ["is_in(User:u)"]
    (present,) = obstacle["because"]
    assert (present["kind"], present["text"]) == ("present", "not is_banned(User:u)")
    assert present["because"][0]["text"] == "is_banned(User:u)"


def test_a_comparison_that_fails_is_shown_with_its_values(api):
    publish(api, 'actor User {} resource Doc {}\nallow(u: User, "see", _: Doc) if level(u, n) and n >= 3;')
    store(api, {"predicate": "level", "args": [{"type": "User", "id": "u"}, {"type": "Integer", "id": "2"}]})
    (obstacle,) = explain(api, "User:u", "see", "Doc:d")["obstacles"]
    assert (obstacle["because"][0]["kind"], obstacle["because"][0]["text"]) == ("false", "2 >= 3")


@pytest.mark.parametrize(
    ("action", "resource", "note"),
    [
        ("read", "Nothing:x", "the policy has no type `Nothing` (declared: `Org`, `Repo`, `User`)"),
        ("fly", "Repo:a", "the policy has no action `fly` on Repo (declared: `read`, `write`)"),
        ("write", "Repo:c", ""),
    ],
)
def test_what_no_rule_is_about_is_noted(repos, action, resource, note):
    said = explain(repos, "User:ann", action, resource)
    assert said["allowed"] is False
    assert said["note"] == note
    if action == "fly":
        missing = said["obstacles"][0]["because"][0]
        assert missing["note"] == "no matching fact, and no rule applies"


def test_obstacles_are_cut_at_a_limit_that_is_named(api, monkeypatch):
    monkeypatch.setattr(failures, "MAX_TRIED", 5)
    rules = "".join(f'allow(u: User, "see", _: Doc) if is_{number}(u);\n' for number in range(9))
    publish(api, f"actor User {{}} resource Doc {{}}\n{rules}")
    said = explain(api, "User:u", "see", "Doc:d")
    assert [each["kind"] for each in said["obstacles"]] == ["obstacle"] * 5 + ["unexplained"]


def test_without_a_policy_a_permission_that_is_stored_is_the_reason(api):
    assert explain(api, "User:u", "see", "Doc:d")["allowed"] is False
    said = explain(api, "User:u", "see", "Doc:d", fact("has_permission", "User:u", "see", "Doc:d"))
    assert said["policy_version"] is None
    assert texts(said["proof"])[1] == 'has_permission(User:u, "see", Doc:d)'


# ---- solutions of queries, and what is refused -------------------------------------------------------------------


def query(ids: list | None) -> dict:
    return {
        "predicate": ["allow", ["who", "action", "repo"]],
        "calls": [["has_relation", ["repo", "relation", "org"]]],
        "constraints": {
            "who": {"type": "User", "ids": ["ann"]},
            "action": {"type": "String", "ids": ["read"]},
            "repo": {"type": "Repo", "ids": ids},
            "relation": {"type": "String", "ids": ["organization"]},
            "org": {"type": "Org", "ids": ["o"]},
        },
    }


def test_a_solution_of_a_query_has_a_proof_for_each_call(repos):
    said = repos.post("/explain", query(["b"])).json()
    assert said["allowed"] is True
    assert [call["goal"] for call in said["calls"]] == [
        'allow(User:ann, "read", Repo:b)',
        'has_relation(Repo:b, "organization", Org:o)',
    ]
    assert all(call["proof"] for call in said["calls"])
    other = repos.post("/explain", query(["a"])).json()
    assert (other["allowed"], [call["allowed"] for call in other["calls"]]) == (False, [True, False])
    anything = repos.post("/explain", query(None)).json()
    assert anything["calls"][0]["goal"] == 'allow(User:ann, "read", Repo:_)'


@pytest.mark.parametrize("ids", [[], ["a", "b"]])
def test_a_query_with_several_values_is_no_solution(repos, ids):
    answer = repos.post("/explain", query(ids))
    assert answer.status_code == 400
    assert answer.json()["message"] == "constraints.repo.ids: must be one id, or null for any"


def test_a_key_is_wanted_and_only_its_own_environment_is_explained(repos, new_api):
    body = about("User:ann", "Repo:a", action="read", context_facts=[])
    assert repos.request("POST", "/explain", body, Authorization="Bearer nothing").status_code == 401
    assert new_api("other").post("/explain", body).json()["allowed"] is False


def test_context_facts_without_use_prove_nothing_and_are_reported(repos):
    useful, useless = fact("has_role", "User:ann", "writer", "Repo:a"), fact("has_rol", "User:ann", "writer", "Repo:a")
    denied = explain(repos, "User:ann", "write", "Repo:a", useless)
    sentence = "the context fact `has_rol(User, String, Repo)` is not used in policy (did you mean `has_role`?)"
    assert (denied["allowed"], denied["unused_context_facts"]) == (False, [sentence])
    allowed = explain(repos, "User:ann", "write", "Repo:a", useless, useful)
    assert (allowed["allowed"], allowed["unused_context_facts"]) == (True, [sentence])
    assert "unused_context_facts" not in explain(repos, "User:ann", "write", "Repo:a", useful)


def test_explaining_writes_nothing(repos):
    before = Signature.objects.count()
    explain(repos, "User:ann", "write", "Repo:zzz", fact("has_role", "User:ann", "writer", "Repo:zzz"))
    assert Signature.objects.count() == before


def test_a_fact_of_a_kind_that_had_none_is_seen_from_then_on(repos):
    assert explain(repos, "User:ann", "read", "Org:z")["allowed"] is False
    store(repos, fact("has_permission", "User:ann", "read", "Org:z"))
    said = explain(repos, "User:ann", "read", "Org:z")
    assert texts(said["proof"])[1] == 'has_permission(User:ann, "read", Org:z)'


# ---- the reader of proofs is not to be fooled ------------------------------------------------------------------


def test_a_proof_with_something_wrong_in_it_is_found_out(repos):
    raw = [
        fact("has_role", "User:ann", "admin", "Org:o"),
        fact("has_relation", "Repo:b", "organization", "Org:o"),
    ]
    said = explain(repos, "User:ann", "read", "Repo:b")["proof"]
    goal = ("allow", tuple(_value(arg) for arg in said["fact"]["args"]))
    known = truth(POLICY, rows_of(raw), (), goal[1])
    assert faults_of_proof(said, goal, known) == []
    for spoil in (
        lambda proof: reader(proof)["because"].pop(),
        lambda proof: reader(proof)["because"][0]["fact"]["args"][2].update(id="other"),
        lambda proof: reader(proof)["rule"].update(line=13, text='"reader" if "writer";'),
        lambda proof: reader(proof)["because"][0].update(source="context"),
        lambda proof: proof["fact"]["args"][0].update(id="bob"),
        lambda proof: reader(proof)["because"].append({**reader(proof), "kind": "again", "because": []}),
        lambda proof: reader(proof)["because"].append({"kind": "again", "text": "is_open(d) or is_public(d)"}),
    ):
        spoilt = deepcopy(said)
        spoil(spoilt)
        assert faults_of_proof(spoilt, goal, known) != []


def reader(proof: dict) -> dict:
    """The step at which the member of an organisation becomes a reader."""
    return proof["because"][0]["because"][0]


def test_conditions_about_the_current_time_are_explained_with_it(api):
    publish(
        api,
        """
        actor User {}
        resource Doc { permissions = ["read", "write"]; }
        has_permission(user: User, "read", doc: Doc) if owns(user, doc) and not locked(doc, @current_unix_time);
        has_permission(user: User, "write", doc: Doc) if owns(user, doc) and locked(doc, @current_unix_time);
        locked(doc: Doc, time: Integer) if locked_since(doc, start) and start <= time;
        """,
    )
    store(api, *(fact("owns", "User:ann", f"Doc:{doc}") for doc in "de"), fact("locked_since", "Doc:d", "Integer:5"))
    store(api, fact("locked_since", "Doc:e", "Integer:99999999999"))
    refused = explain(api, "User:ann", "read", "Doc:d")
    allowed = explain(api, "User:ann", "write", "Doc:d")
    early = explain(api, "User:ann", "write", "Doc:e")
    assert [refused["allowed"], allowed["allowed"], early["allowed"]] == [False, True, False]
    assert "locked_since(Doc:d, 5)" in [text for obstacle in refused["obstacles"] for text in texts(obstacle)]
    assert "locked_since(Doc:d, 5)" in texts(allowed["proof"])
    assert any(text.startswith("99999999999 <= ") for obstacle in early["obstacles"] for text in texts(obstacle))


# ---- the order in which conditions are asked ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "ordered"),
    [
        ("n > 3 and level(u, n)", ["level(u, n)", "n > 3"]),
        ("is_in(u) and level(u, n) and n > 3", ["is_in(u)", "level(u, n)", "n > 3"]),
        ("not is_banned(u) and is_in(u)", ["not is_banned(u)", "is_in(u)"]),
        ("not owns(u, d) and level(u, n) and n in [1, 2]", ["not owns(u, d)", "level(u, n)", "n in [1, 2]"]),
    ],
)
def test_conditions_keep_the_order_of_the_text_but_tests_come_after_what_they_test(body, ordered):
    policy = "actor User {} resource Doc {} declare owns(User, Doc);"
    program = rules.compile_text(f"{policy} may(u: User) if {body};")
    (rule,) = [rule for rule in program.rules if rule.head.predicate == "may"]
    assert list(map(str, ordered_body(rule))) == ordered


# ---- comparisons of what may be any value --------------------------------------------------------------------------

ANY_LEVEL = """
actor User {}
resource Doc { permissions = ["read"]; }
has_permission(u: User, "read", d: Doc) if anything(d, n) and n > 3 and level(u, n) and is_open(d);
anything(_: Doc, n: Integer) if n matches Integer;
"""


def test_a_comparison_waits_until_something_gives_its_variable_a_value(api):
    publish(api, ANY_LEVEL)
    store(api, fact("level", "User:low", "Integer:2"), fact("level", "User:high", "Integer:5"))

    def failing(actor: str) -> tuple[list[str], str]:
        (rule,) = explain(api, actor, "read", "Doc:d")["obstacles"]
        (granted,) = rule["because"]
        (reason,) = granted["because"]
        return reason["met"], reason["because"][0]["text"]

    assert failing("User:none") == (["anything(Doc:d, Integer:_)"], "level(User:none, Integer:_)")
    assert failing("User:low") == (["anything(Doc:d, 2)", "level(User:low, 2)"], "2 > 3")
    assert failing("User:high") == (["anything(Doc:d, 5)", "level(User:high, 5)", "5 > 3"], "is_open(Doc:d)")
    store(api, fact("is_open", "Doc:d"))
    assert explain(api, "User:high", "read", "Doc:d")["allowed"]
