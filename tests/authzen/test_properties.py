"""Properties are context facts, as far as the policy asks for them, and never more."""

import orjson
import pytest

from facts import store
from facts.store import Inserts
from facts.wire import fact_from_text
from policy import publishing

POLICY = """
actor user {}
resource doc { permissions = ["read", "write", "print", "sign", "open", "list", "count"]; }

has_permission(user: user, "read", doc: doc) if
  groups(user, group) and shared_with(doc, group) and group matches String;
has_permission(_: user, "write", doc: doc) if is_open(doc);
has_permission(_: user, "print", doc: doc) if not locked(doc, true);
has_permission(_: user, "sign", doc: doc) if level(doc, n) and n >= 3 and n matches Integer;
has_permission(_: user, "open", _: doc) if context("ip", "10.0.0.1");
has_permission(_: user, "list", doc: doc) if
  has_relation(doc, "parent", other) and is_open(other) and other matches doc;
has_permission(_: user, "count", doc: doc) if flag("count", true) and doc matches doc;
"""
USER, DOC = {"type": "user", "id": "ann"}, {"type": "doc", "id": "d"}


@pytest.fixture
def pdp(new_pdp):
    return new_pdp(POLICY, ["has_relation(doc:child, parent, doc:d)"])


def ask(pdp, action, user=None, doc=None, context=None, acting=None):
    body = {
        "subject": USER | ({"properties": user} if user else {}),
        "action": {"name": action} | ({"properties": acting} if acting else {}),
        "resource": DOC | ({"properties": doc} if doc else {}),
    }
    return pdp.post("evaluation", body | ({"context": context} if context else {}))


def allowed(pdp, *args, **options) -> bool:
    found = ask(pdp, *args, **options)
    assert found.status == 200, found.body
    return found.body["decision"]


def test_a_list_is_a_fact_for_each_element(pdp):
    assert allowed(pdp, "read", {"groups": ["a", "b"]}, {"shared_with": ["b", "c"]})
    assert not allowed(pdp, "read", {"groups": ["a"]}, {"shared_with": ["b", "c"]})
    assert not allowed(pdp, "read", {"groups": []}, {"shared_with": ["b"]})


def test_true_is_a_fact_of_one_argument_too(pdp):
    assert allowed(pdp, "write", doc={"is_open": True})
    assert not allowed(pdp, "write", doc={"is_open": False})
    assert not allowed(pdp, "write", doc={"is_open": "true"})
    assert not allowed(pdp, "write", {"is_open": True})  # of the user


def test_facts_of_a_new_signature_change_decisions_about_other_properties(new_pdp):
    """Statements for some kinds are compiled before the signature has a number, and those for others after."""
    pdp = new_pdp(POLICY, ["has_relation(doc:child, parent, doc:d)"])

    def asked(action: str) -> dict:
        plain = {"subject": USER, "action": {"name": action}}
        shared = {"subject": USER | {"properties": {"groups": ["a"]}}, "action": {"name": action}}
        docs = [{"resource": {"type": "doc", "id": each}} for each in ("d", "e")]
        return {"evaluations": [start | doc for start in (plain, shared) for doc in docs]}

    assert pdp.post("evaluations", asked("read")).status == 200
    store.apply(pdp.environment_id, [Inserts([fact_from_text('shared_with(doc:d, "a")')], None)])
    for action, allowed in (("write", []), ("read", [2]), ("write", [])):
        found = pdp.post("evaluations", asked(action))
        assert found.status == 200, found.body
        assert [place for place, each in enumerate(found.body["evaluations"]) if each["decision"]] == allowed


def test_whole_numbers_are_values(pdp):
    assert allowed(pdp, "sign", doc={"level": 3})
    assert not allowed(pdp, "sign", doc={"level": 2})
    assert not allowed(pdp, "sign", doc={"level": "3"})


def test_the_context_and_the_action_have_facts(pdp):
    assert allowed(pdp, "open", context={"ip": "10.0.0.1"})
    assert not allowed(pdp, "open", context={"ip": "10.0.0.2"})
    assert not allowed(pdp, "open", context={"port": "10.0.0.1"})
    assert allowed(pdp, "count", acting={"flag": True})
    assert not allowed(pdp, "count", doc={"flag": True})


@pytest.mark.parametrize("value", [{"a": 1}, 1.5, None, ["x", {}], [[True]]])
def test_a_value_that_is_none_is_refused_where_the_policy_asks(pdp, value):
    """Left out, it would grant here by way of the `not`."""
    for action in ("print", "read"):
        found = ask(pdp, action, doc={"locked": value})
        assert found.status == 400
        assert found.body["message"].startswith("resource.properties.locked")
    batch = {"subject": USER, "action": {"name": "print"}, "evaluations": [
        {"resource": DOC | {"properties": {"locked": value}}}, {"resource": DOC}]}  # fmt: skip
    wrong, right = pdp.post("evaluations", batch).body["evaluations"]
    assert (wrong["decision"], wrong["context"]["error"]["status"]) == (False, 400)
    assert right == {"decision": True}


@pytest.mark.parametrize("value", [{"a": 1}, 1.5, None, "x", [[]]])
def test_a_property_that_nobody_asks_for_is_ignored(pdp, settings, value):
    settings.STRICT_FACTS = True
    for properties in ({"colour": value}, {"has_relation": value}, {"é\"'": value}):
        assert allowed(pdp, "print", properties, properties)
        assert not allowed(pdp, "write", properties, properties)


def test_a_fact_of_an_evaluation_counts_for_no_other(pdp):
    """The child of an open document may be listed: but only where it is said that it is open."""
    child = {"type": "doc", "id": "child"}
    batch = {"subject": USER, "evaluations": [
        {"action": {"name": "write"}, "resource": DOC | {"properties": {"is_open": True}}},
        {"action": {"name": "list"}, "resource": child},
        {"action": {"name": "write"}, "resource": DOC},
        {"action": {"name": "write"}, "resource": DOC | {"properties": {"is_open": [False, True]}}},
    ]}  # fmt: skip
    for _ in range(3):
        found = pdp.post("evaluations", batch).body["evaluations"]
        assert [each["decision"] for each in found] == [True, False, False, False]


def test_properties_of_what_is_searched_for_do_not_count(pdp):
    body = {"subject": USER, "action": {"name": "write"}, "resource": {"type": "doc", "properties": {"is_open": True}}}
    assert pdp.post("search/resource", body).body == {"results": []}


def test_what_holds_for_every_id_is_a_star(pdp):
    body = {"subject": USER, "action": {"name": "open"}, "resource": {"type": "doc"}, "context": {"ip": "10.0.0.1"}}
    assert pdp.post("search/resource", body).body["results"] == [{"type": "doc", "id": "*"}]


def test_an_explanation_is_wanted(pdp):
    body = {"subject": USER, "action": {"name": "write"}, "resource": DOC | {"properties": {"is_open": True}}}
    found = pdp.post("evaluation", body | {"options": {"explain": True}}).body
    assert found["decision"] is True
    assert "is_open" in str(found["context"]["explanation"]["proof"])
    many = {"evaluations": [body, body | {"resource": DOC}, {}], "options": {"explain": True}}
    yes, no, wrong = pdp.post("evaluations", many).body["evaluations"]
    assert (yes["decision"], no["decision"], wrong["decision"]) == (True, False, False)
    assert no["context"]["explanation"]["obstacles"]
    assert wrong["context"]["error"]["status"] == 400
    assert pdp.post("evaluations", many | {"evaluations": [body] * 101}).status == 400


def test_an_earlier_moment_can_be_asked_of(pdp):
    body = {"subject": USER, "action": {"name": "print"}, "resource": DOC}
    answer = pdp.post("evaluation", body)
    revision = int(answer.headers["OsoOffset"])
    assert pdp.post("evaluation", body | {"as_of": revision}).body == {"decision": True}
    assert pdp.post("evaluation", body | {"as_of": revision + 1}).status == 400


def test_answers_follow_changes_of_the_policy(pdp):
    """Which properties count, too, though the answer was remembered."""
    assert [allowed(pdp, "write", doc={"is_free": True}) for _ in range(3)] == [False] * 3
    publishing.publish(pdp.environment_id, POLICY.replace("is_open(doc)", "is_free(doc)"), None)
    assert allowed(pdp, "write", doc={"is_free": True})
    assert not allowed(pdp, "write", doc={"is_open": True})


@pytest.mark.parametrize("explain", [False, True])
def test_a_policy_of_before_refuses_nothing(pdp, settings, explain):
    """The value was none that it could look at; the one of now does not ask for it."""
    settings.STRICT_FACTS = True
    assert allowed(pdp, "print", doc={"locked": False})
    publishing.publish(pdp.environment_id, POLICY.replace("not locked(doc, true)", "not closed(doc, true)"), None)
    body = {"subject": USER, "action": {"name": "print"}, "options": {"explain": explain}}
    found = pdp.post("evaluation", body | {"resource": DOC | {"properties": {"locked": {"a": 1}, "is_open": True}}})
    assert (found.status, found.body["decision"]) == (200, True)


def test_the_context_beside_the_evaluations_is_not_taken_away_by_null(pdp):
    batch = {"subject": USER, "action": {"name": "open"}, "resource": DOC, "context": {"ip": "10.0.0.1"}}
    found = pdp.post("evaluations", batch | {"evaluations": [{}, {"context": None}, {"context": {}}]}).body
    assert [each["decision"] for each in found["evaluations"]] == [True, True, False]


def test_batches_of_many_properties_end_in_time(pdp, settings):
    settings.STATEMENT_TIMEOUT = 0.05
    each = [{"resource": {"type": "doc", "id": str(n), "properties": {"is_open": True}}} for n in range(3_000)]
    found = pdp.post("evaluations", {"subject": USER, "action": {"name": "write"}, "evaluations": each})
    assert found.status == 400 and "STATEMENT_TIMEOUT" in found.body["message"]


def test_an_explanation_of_nothing_is_of_this_revision(pdp):
    found = pdp.post("evaluations", {"evaluations": [{}], "options": {"explain": True}})
    assert found.body["evaluations"][0]["decision"] is False
    assert int(found.headers["OsoOffset"]) > 0


def test_an_answer_of_one_endpoint_is_not_given_by_another(pdp):
    body = {
        "subject": USER, "action": {"name": "print"}, "resource": DOC,
        "predicate": ["is_open", ["d"]], "calls": [], "constraints": {"d": {"type": "doc", "ids": None}},
    }  # fmt: skip
    for _ in range(3):
        assert set(pdp.post("evaluation", body).body) == {"decision"}
        found = pdp.request("POST", "/api/evaluate_query", orjson.dumps(body))
        assert set(found.body) == {"results"}
