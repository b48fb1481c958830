"""Queries over any expression: version 2 with constraints, version 1 with patterns."""

import pytest

from checks.serializers import calls_from_json
from tests.checks.conftest import about, fact, publish, store, value

GLOBAL = """
global { roles = ["user"]; permissions = ["create_repository"]; "create_repository" if "user"; }
has_role(_: User, "user");
actor User {}
resource Org {
  roles = ["member", "admin"];
  permissions = ["read", "delete"];
  "read" if "member";
  "read" if global "user";
  "delete" if "admin";
}
resource Repo {
  permissions = ["read", "write"];
  relations = { parent: Org };
  "read" if "delete" on "parent";
  "write" if "delete" on "parent";
}
resource Field {}
allow_field(user: User, "read", repo: Repo, Field{"name"}) if has_permission(user, "read", repo);
"""


@pytest.fixture
def orgs(api):
    publish(api, GLOBAL)
    store(
        api,
        fact("has_role", "User:alice", "member", "Org:acme"),
        fact("has_role", "User:bob", "admin", "Org:acme"),
        fact("has_relation", "Repo:anvil", "parent", "Org:acme"),
    )
    return api


def evaluate(api, *calls: tuple[str, str], context=(), **constraints):
    """`u="User"` is free, `u="User:a,b"` one of two."""
    read = {name: _constraint(text) for name, text in constraints.items()}
    first, *rest = [[predicate, names.split()] for predicate, names in calls]
    body = {"predicate": first, "calls": rest, "constraints": read, "context_facts": list(context)}
    return api.post("/evaluate_query", body)


def results(*args, **options) -> list[dict]:
    answer = evaluate(*args, **options)
    assert answer.status_code == 200, answer.content
    assert set(answer.json()) == {"results"}
    return answer.json()["results"]


def _constraint(text: str) -> dict:
    type_name, colon, ids = text.partition(":")
    return {"type": type_name, "ids": ids.split(",") if colon else None}


# ---- version 2 -------------------------------------------------------------------------------------------------


def test_every_value_stands_beside_the_values_that_are_listed(orgs):
    found = results(orgs, ("allow", "who what where"), who="User", what="String", where="Org:acme")
    assert found == [
        {"who": None, "what": "read", "where": "acme"},
        {"who": "alice", "what": "read", "where": "acme"},
        {"who": "bob", "what": "delete", "where": "acme"},
    ]


def test_results_are_sorted_by_the_variables_as_they_appear(orgs):
    found = results(
        orgs,
        ("allow", "u a r"),
        ("has_relation", "r p o"),
        u="User:bob",
        a="String",
        r="Repo",
        p="String:parent",
        o="Org:acme",
    )
    assert found == [
        {"u": "bob", "a": "read", "r": "anvil", "p": "parent", "o": "acme"},
        {"u": "bob", "a": "write", "r": "anvil", "p": "parent", "o": "acme"},
    ]
    assert list(found[0]) == ["u", "a", "r", "p", "o"]


def test_every_value_that_meets_ids_becomes_these_ids(orgs):
    found = results(orgs, ("allow", "u a r"), u="User:x,y,x", a="String:read", r="Org:acme,zeta")
    assert [(row["u"], row["r"]) for row in found] == [("x", "acme"), ("x", "zeta"), ("y", "acme"), ("y", "zeta")]


def test_no_ids_are_no_result(orgs):
    answer = orgs.post("/evaluate_query", {
        "predicate": ["allow", ["u", "a", "r"]],
        "constraints": {"u": {"type": "User", "ids": []}, "a": {"type": "String"}, "r": {"type": "Org"}},
    })  # fmt: skip
    assert (answer.status_code, answer.json()) == (200, {"results": []})


def test_a_question_without_free_variables_has_one_result_or_none(orgs):
    asked = {"u": "User:bob", "a": "String:delete", "r": "Org:acme"}
    assert results(orgs, ("allow", "u a r"), **asked) == [{"u": "bob", "a": "delete", "r": "acme"}]
    assert results(orgs, ("allow", "u a r"), **{**asked, "u": "User:eve"}) == []


def test_a_variable_that_occurs_twice_is_one_value(orgs):
    context = [
        fact("has_relation", "Repo:newRepo", "parent", "Org:acme"),
        fact("has_role", "User:bob", "member", "Org:acme"),
    ]
    found = results(
        orgs,
        ("has_role", "u r o"),
        ("has_role", "u s o"),
        u="User",
        r="String:member",
        s="String:admin",
        o="Org",
        context=context,
    )
    assert found == [{"u": "bob", "r": "member", "o": "acme", "s": "admin"}]
    found = results(
        orgs,
        ("allow", "u a r"),
        ("has_relation", "r p o"),
        u="User:bob",
        a="String:write",
        r="Repo",
        p="String",
        o="Org:acme",
        context=context,
    )
    assert [row["r"] for row in found] == ["anvil", "newRepo"]


def test_any_predicate_can_be_asked(orgs):
    assert results(orgs, ("has_relation", "r p o"), r="Repo", p="String", o="Org") == [
        {"r": "anvil", "p": "parent", "o": "acme"}
    ]
    assert results(orgs, ("has_permission", "u a"), u="User:eve", a="String") == [
        {"u": "eve", "a": "create_repository"}
    ]
    assert results(orgs, ("allow", "u a"), u="User:eve", a="String:create_repository") != []
    assert [
        row["f"]
        for row in results(orgs, ("allow_field", "u a r f"), u="User:bob", a="String:read", r="Repo:anvil", f="Field")
    ] == ["name"]
    assert (
        results(orgs, ("allow_field", "u a r f"), u="User:bob", a="String:read", r="Repo:anvil", f="Field:other") == []
    )
    assert (
        results(orgs, ("allow_field", "u a r f"), u="User:bob", a="String:read", r="Repo:anvil", f="Field:name") != []
    )
    assert results(orgs, ("allow", "u"), u="User") == []


def test_types_are_exact_and_unknown_ones_have_no_values(orgs):
    assert results(orgs, ("allow", "u a r"), u="Robot", a="String", r="Org:acme") == []
    assert results(orgs, ("allow", "u a r"), u="User:bob", a="String", r="Planet") == []


@pytest.mark.parametrize("name", ["Actor", "Resource"])
def test_abstract_types_are_refused(orgs, name):
    answer = evaluate(orgs, ("allow", "u a r"), u=name, a="String", r="Org")
    assert (answer.status_code, answer.json()["message"].split(":")[0]) == (400, "constraints.u.type")


def test_a_predicate_whose_rules_are_never_true_has_no_answers(api):
    publish(api, "actor User {} may(u: User) if known(u) and false; sees(u: User) if known(u) and u != u;")
    for name in ("may", "sees"):
        query = {"predicate": [name, ["u"]], "calls": [], "constraints": {"u": {"type": "User", "ids": None}}}
        answer = api.post("/evaluate_query", query)
        assert (answer.status_code, answer.json()) == (200, {"results": []})


def test_unknown_predicates_are_refused_with_a_hint(orgs):
    answer = evaluate(orgs, ("alow", "u a r"), u="User", a="String", r="Org")
    assert (answer.status_code, answer.json()) == (
        400,
        {"message": "the policy has no predicate `alow` (did you mean `allow`?)"},
    )
    answer = evaluate(orgs, ("allow", "u a r"), ("nothing", "u"), u="User", a="String", r="Org")
    assert answer.status_code == 400


def test_constraints_of_no_variable_are_ignored_and_those_that_lack_are_named(orgs):
    body = {
        "predicate": ["allow", ["u", "a", "r"]],
        "constraints": {"u": {"type": "User"}, "a": {"type": "String"}, "z": 3},
    }
    answer = orgs.post("/evaluate_query", body)
    assert (answer.status_code, "`r`" in answer.json()["message"]) == (400, True)
    body["constraints"]["r"] = {"type": "Org", "ids": ["acme"]}
    assert len(orgs.post("/evaluate_query", body).json()["results"]) == 3


def test_a_query_may_have_50_calls():
    assert len(calls_from_json([["allow", ["u"]]] * 50, "calls")) == 50


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"predicate": None}, "predicate"),
        ({"predicate": ["allow"]}, "predicate"),
        ({"predicate": ["allow", "u"]}, "predicate[1]"),
        ({"predicate": ["allow", [3]]}, "predicate[1][0]"),
        ({"predicate": ["", ["u"]]}, "predicate[0]"),
        ({"predicate": ["allow", ["u"] * 21]}, "predicate[1]"),
        ({"calls": {}}, "calls"),
        ({"calls": [["allow", ["u"]]] * 51}, "calls"),
        ({"calls": [["allow", ["u"]], ["allow"]]}, "calls[1]"),
        ({"constraints": []}, "constraints"),
        ({"constraints": {"u": "User"}}, "constraints.u"),
        ({"constraints": {"u": {"ids": None}}}, "constraints.u.type"),
        ({"constraints": {"u": {"type": "User", "ids": "x"}}}, "constraints.u.ids"),
        ({"constraints": {"u": {"type": "User", "ids": ["x", ""]}}}, "constraints.u.ids[1]"),
        ({"constraints": {"u": {"type": "Integer", "ids": ["1.5"]}}}, "constraints.u.ids[0]"),
        ({"context_facts": [3]}, "context_facts[0]"),
    ],
)
def test_a_wrong_query_is_refused_with_its_place(orgs, change, place):
    body = {"predicate": ["allow", ["u", "u", "u"]], "constraints": {"u": {"type": "User"}}, **change}
    answer = orgs.post("/evaluate_query", body)
    assert (answer.status_code, answer.json()["message"].partition(": ")[0]) == (400, place)


def test_primitive_values_are_asked_in_any_spelling(api):
    publish(
        api,
        "actor User {} declare level(User, Integer);"
        " high(u: User) if level(u, n) and n > 5; top(5, u: User) if level(u, 5);",
    )
    store(api, fact("level", "User:a", "Integer:+5"), fact("level", "User:b", "Integer:9"))
    assert results(api, ("level", "u n"), u="User", n="Integer:005") == [{"u": "a", "n": "5"}]
    assert [row["u"] for row in results(api, ("high", "u"), u="User")] == ["b"]
    assert results(api, ("top", "n u"), n="Integer", u="User") == [{"n": "5", "u": "a"}]
    assert results(api, ("top", "n u"), n="Integer:5,6", u="User") == [{"n": "5", "u": "a"}]
    assert results(api, ("top", "n u"), n="Integer:6", u="User") == []


def test_many_ids_are_asked_at_once(orgs):
    ids = ",".join(f"u{number}" for number in range(10_001))
    found = results(orgs, ("allow", "u a r"), u=f"User:{ids}", a="String:read", r="Org:acme")
    assert len(found) == 10_001
    assert [row["u"] for row in found] == sorted(ids.split(","))


# ---- version 1 ----------------------------------------------------------------------------------------------------

KINDS = """
actor User {}
resource Computer {}
hello(x) if is_friendly(x);
any(x) if true;
pair(x, y: User) if is_friendly(y);
"""


@pytest.fixture
def kinds(api):
    publish(api, KINDS)
    store(api, fact("is_friendly", "User:a"), fact("is_friendly", "User:b"), fact("is_friendly", "Computer:c"))
    return api


def query1(api, predicate: str, *args, context=()) -> list:
    answer = api.post("/query", {"fact": {"predicate": predicate, "args": list(args)}, "context_facts": list(context)})
    assert answer.status_code == 200, answer.content
    assert set(answer.json()) == {"results"}
    assert {each["predicate"] for each in answer.json()["results"]} <= {predicate}
    return [tuple((arg["type"], arg["id"]) for arg in each["args"]) for each in answer.json()["results"]]


@pytest.mark.parametrize("anything", [None, {}, {"type": None, "id": None}])
def test_a_wildcard_of_no_type_spans_types(kinds, anything):
    assert query1(kinds, "hello", anything) == [(("Computer", "c"),), (("User", "a"),), (("User", "b"),)]


def test_a_wildcard_of_a_type_keeps_to_it(kinds):
    assert query1(kinds, "hello", {"type": "User", "id": None}) == [(("User", "a"),), (("User", "b"),)]
    assert query1(kinds, "hello", {"type": "Planet"}) == []
    assert query1(kinds, "hello", value("User:a")) == [(("User", "a"),)]
    assert query1(kinds, "hello", value("User:z")) == []


def test_what_holds_for_everything_is_of_no_type(kinds):
    assert query1(kinds, "any", None) == [((None, None),)]
    assert query1(kinds, "any", {"type": "User"}) == [(("User", None),)]
    assert query1(kinds, "any", value("User:z")) == [(("User", "z"),)]
    assert query1(kinds, "pair", None, None) == [((None, None), ("User", "a")), ((None, None), ("User", "b"))]


def test_context_facts_count_in_patterns(kinds):
    assert query1(kinds, "hello", {"type": "Computer"}, context=[fact("is_friendly", "Computer:d")]) == [
        (("Computer", "c"),),
        (("Computer", "d"),),
    ]


def test_other_arities_have_no_facts_and_other_predicates_are_refused(kinds):
    assert query1(kinds, "hello", None, None) == []
    answer = kinds.post("/query", {"fact": {"predicate": "helo", "args": [None]}})
    assert answer.status_code == 400
    assert kinds.post("/query", {}).status_code == 400
    assert (
        kinds.post("/query", {"fact": {"predicate": "hello", "args": [{"type": None, "id": "x"}]}}).status_code == 400
    )


@pytest.mark.parametrize("text", ["", "*", "x" * 513, "x\0"])
def test_patterns_have_ids_as_other_questions(kinds, text):
    """What holds for every id would hold for these, and the decision log could not be read back."""
    pattern = {"predicate": "any", "args": [{"type": "User", "id": text}]}
    answer = kinds.post("/query", {"fact": pattern})
    assert (answer.status_code, "fact.args[0].id" in answer.json()["message"]) == (400, True), answer.content
    assert kinds.post("/authorize", about(f"User:{text}", "User:a", action="read")).status_code == 400


def test_patterns_over_very_many_types_are_refused_by_number(api):
    types = " ".join(f"resource R{number} {{}}" for number in range(60))
    publish(api, f"actor User {{}} {types} near(x, y) if edge(x, y);")
    answer = api.post("/query", {"fact": {"predicate": "near", "args": [None, None]}})
    assert (answer.status_code, "combinations of types" in answer.json()["message"]) == (400, True)
    assert query1(api, "near", {"type": "R1"}, None, context=[fact("edge", "R1:a", "R59:b")]) == [
        (("R1", "a"), ("R59", "b"))
    ]


def test_values_that_are_asked_about_hold_where_the_only_rule_says_another(api):
    """No fact has six arguments, so these rules are met before the values that the question gives."""
    publish(
        api,
        """
        actor User {}
        resource Doc {}
        only(User{"ann"}, a: Doc, b: Doc, c: Doc, d: Doc, e: Doc) if q(a) and q(b) and q(c) and q(d) and q(e);
        same(u: User, u: User, a: Doc, b: Doc, c: Doc, d: Doc) if q(a) and q(b) and q(c) and q(d) and s(u);
        """,
    )
    store(api, fact("q", "Doc:a"), fact("s", "User:ann"), fact("s", "User:bob"))
    assert results(api, ("only", "u d d d d d"), u="User:bob,eve", d="Doc") == []
    assert results(api, ("only", "u d d d d d"), u="User:bob,ann", d="Doc") == [{"u": "ann", "d": "a"}]
    assert results(api, ("same", "u v d d d d"), u="User:ann", v="User:bob,eve", d="Doc") == []
    assert results(api, ("same", "u v d d d d"), u="User:ann,bob", v="User:bob,eve", d="Doc") == [
        {"u": "bob", "v": "bob", "d": "a"}
    ]


def test_an_untyped_call_finds_members_of_groups_that_no_rule_speaks_of(api):
    """Who is in which group may be stored for all actors, though the only rule about it is for teams."""
    publish(
        api,
        """
        actor User {} actor Group {} actor Team {}
        resource Folder {}
        sees(x: Actor, _y: Folder) if has_group(x, _g);
        alone(x: Actor) if is_known(x) and not has_group(x, _g);
        has_group(x: Team, outer: Team) if next_to(x, outer);
        """,
    )
    known = [fact("is_known", name) for name in ("User:ann", "User:bob", "Team:a", "Team:b")]
    store(api, *known, fact("has_group", "User:ann", "Group:g"), fact("next_to", "Team:a", "Team:b"))
    assert results(api, ("sees", "x y"), x="User", y="Folder") == [{"x": "ann", "y": None}]
    assert results(api, ("sees", "x y"), x="Team", y="Folder") == [{"x": "a", "y": None}]
    assert results(api, ("alone", "x"), x="User") == [{"x": "bob"}]
    assert results(api, ("alone", "x"), x="Team") == [{"x": "b"}]
