"""Comparing policies over all facts, proofs, ways to allow something, and what has no effect."""

import time
from io import StringIO

import pytest
from django.core.management import CommandError, call_command, get_commands, load_command_class

from checks.analysis import questions, search
from checks.analysis.proofs import Slice
from checks.analysis.questions import (
    Way,
    _exclude,
    both_ways,
    check_words,
    compared,
    differing,
    stated,
    ways,
    without_effect,
)
from checks.analysis.search import (
    FOUND,
    MOST_IDS,
    PROVED,
    UNKNOWN,
    AnalysisUnavailable,
    Claim,
    EngineDisagrees,
    Solver,
    Witness,
    searched,
)
from checks.testing import run as run_tests
from facts.wire import Fact
from policy.errors import AuthzError
from policy.models import PolicyVersion
from policy.publishing import line_named
from policy.rules import compile_text
from policy.values import Value
from tests.checks.conftest import fact, publish, store, url

pytestmark = pytest.mark.one_database

POLICY = """
actor User {}
resource Org { roles = ["member", "admin"]; "member" if "admin"; }
resource Doc {
  roles = ["reader", "writer"];
  permissions = ["read", "write"];
  relations = { org: Org };
  "reader" if "writer";
  "reader" if "member" on "org";
  "read" if "reader";
  "write" if "writer" and not is_locked(resource);
}
"""
FOLDERS = """
actor User {}
resource Folder {
  roles = ["viewer"];
  permissions = ["view"];
  relations = { parent: Folder };
  "viewer" if "viewer" on "parent";
  "view" if "viewer" and not is_hidden(resource);
}
"""
NONE = "none with up to 3 ids of each type"
LAXER = POLICY.replace(" and not is_locked(resource)", "")


@pytest.fixture
def solver():
    with Solver(60.0) as found:
        yield found


def differences(old: str, new: str, solver: Solver) -> dict[str, tuple[str, str]]:
    found = compared(compile_text(old), compile_text(new), solver, most=3)
    return {each.permission: (each.more.extent, each.less.extent) for each in found}


def proved(claim: Claim, solver: Solver, most: int = MOST_IDS) -> Claim:
    searched([claim], solver, most)
    return claim


# ---- comparing -----------------------------------------------------------------------------------------------------


def test_a_condition_less_grants_more_and_nothing_less(db, solver):
    assert differences(POLICY, LAXER, solver) == {"write on Doc": (FOUND, PROVED)}
    assert differences(LAXER, POLICY, solver) == {"write on Doc": (PROVED, FOUND)}


def test_what_is_found_is_as_small_as_can_be_and_a_test_that_can_be_pasted(db, solver):
    new = compile_text(LAXER)
    (found,) = compared(compile_text(POLICY), new, solver)
    assert sorted(map(str, found.more.witness.facts)) == [
        'has_role(User{"user1"}, "writer", Doc{"doc1"})', 'is_locked(Doc{"doc1"})',
    ]  # fmt: skip
    test = "\n".join(questions.test_lines(found.more.witness, 'a "test"', new))
    declared = "declare is_locked(Doc);"
    assert declared in test
    assert run_tests(compile_text(f"{LAXER}\n{declared}\n{test}")).success
    assert not run_tests(compile_text(f"{POLICY}\n{test}")).success


def test_the_order_and_names_of_rules_do_not_matter(db, solver):
    renamed = (
        FOLDERS.replace('"viewer" if "viewer" on "parent";', "")
        + 'has_role(a: Actor, "viewer", f: Folder) if has_role(a, "viewer", up) and has_relation(f, "parent", up);'
    )
    assert set(differences(FOLDERS, renamed, solver).values()) <= {(PROVED, PROVED)}


def test_recursion_through_negation_of_facts_is_searched_and_not_called_proved(db, solver):
    other = FOLDERS.replace("not is_hidden(resource)", "not is_hidden(resource) and not is_gone(resource)").replace(
        '"viewer" if "viewer" on "parent";', '"viewer" if "viewer" on "parent" and not is_gone(resource);'
    )
    assert differences(FOLDERS, other, solver) == {"view on Folder": (PROVED, FOUND)}
    longer = (
        FOLDERS
        + """
    has_permission(u: User, "view", f: Folder) if
      has_role(u, "viewer", g) and has_relation(f, "parent", e) and has_relation(e, "parent", g) and not is_hidden(f);
    """
    )
    assert differences(FOLDERS, longer, solver) == {"view on Folder": (NONE, PROVED)}


def test_policies_whose_rules_call_each_other_through_very_many_others_are_compared(db, solver):
    rules = [f"p{number}(u: User, d: Doc) if p{number + 1}(u, d);" for number in range(150)]
    long = "\n".join([*rules, "p150(u: User, d: Doc) if owns(u, d);", POLICY.replace('"read" if "reader";', "")])
    old = f'{long} has_permission(u: User, "read", d: Doc) if p0(u, d);'
    new = f"{old} p150(u: User, d: Doc) if shares(u, d);"
    found = differences(old, new, solver)
    assert list(found) == ["read on Doc"] and found["read on Doc"][0] == FOUND


def test_a_rule_with_many_calls_of_one_predicate_is_proved_to_require_no_less_than_with_one_more(db, solver):
    users = [f"u{number}" for number in range(12)]
    pairs = [f"{one} != {other}" for place, one in enumerate(users) for other in users[place + 1 :]]
    conditions = " and ".join([*(f"approved({user}, d)" for user in users), *pairs])
    old = f"""
    actor User {{}} resource Doc {{ permissions = ["publish"]; }} declare approved(User, Doc); declare owns(User, Doc);
    has_permission(u: User, "publish", d: Doc) if {conditions} and owns(u, d);
    """
    ((_, goal),) = differing(compile_text(old), compile_text(old.replace(" and owns(u, d)", "")))
    claim, _ = both_ways(compile_text(old), compile_text(old.replace(" and owns(u, d)", "")), goal)
    assert claim.is_evident


def test_only_permissions_that_changed_rules_reach_are_searched(db):
    assert [each for each, _ in differing(compile_text(POLICY), compile_text(LAXER))] == ["write on Doc"]
    assert differing(compile_text(POLICY), compile_text(POLICY + "\n# a comment\n")) == []


def test_numbers_and_times_between_below_and_above_the_constants(db, solver):
    quota = """
    actor User {} resource Doc { permissions = ["read"]; }
    has_permission(u: User, "read", d: Doc) if uses(u, n) and n < 10 and owns(u, d);
    """
    found = compared(compile_text(quota), compile_text(quota.replace("n < 10", "n <= 10")), solver)
    assert str(found[0].more.witness.facts[1]) == 'uses(User{"user1"}, 10)' and found[0].less.extent == PROVED
    timed = quota.replace("n < 10", "@current_unix_time < n")
    (late,) = compared(compile_text(timed), compile_text(timed.replace("< n", "<= n")), solver)
    assert late.more.witness.is_timed


def test_a_counterexample_may_need_numbers_with_none_between_them(db, solver):
    gap = """
    actor User {} resource Doc { permissions = ["read"]; }
    gap(a: Integer, z: Integer, b: Integer) if a < z and z < b;
    has_permission(_: User, "read", d: Doc) if low(d, a) and high(d, b) and a < b and not gap(a, _z, b);
    """
    found = proved(stated(compile_text(gap), 'allow(_: User, "read", d: Doc)'), solver)
    high, low = found.witness.facts
    assert int(high.args[1].id) == int(low.args[1].id) + 1
    found = proved(stated(compile_text(gap), 'allow(_: User, "read", d: Doc)', "high(d, 7) and low(d, 2)"), solver, 3)
    assert {fact.args[1].id for fact in found.witness.facts} > {"2", "7"}


def test_a_head_has_the_values_that_calls_ask_about(db, solver):
    policy = """
    actor User {} resource Doc { permissions = ["read"]; }
    few(n: Integer) if n < 100;
    has_permission(u: User, "read", d: Doc) if size(d, n) and few(n) and owns(u, d);
    """
    never = 'allow(u: User, "read", d: Doc)', "not owns(u, d)"
    assert proved(stated(compile_text(policy), *never), solver).extent == PROVED
    of_any = policy.replace("size(d, n) and few(n)", "few(n) and not size(d, n)")
    found = proved(stated(compile_text(of_any), never[0], "size(d, 99)"), solver, 1)
    assert found.extent == FOUND, "any other number is one"


def test_none_for_one_value_is_less_than_none_for_any_two(db, solver):
    one = """
    actor User {} resource Doc { permissions = ["read"]; }
    declare follows(User, User);
    has_permission(u: User, "read", d: Doc) if owns(u, d) and not follows(x, x);
    """
    two = one.replace("follows(x, x)", "follows(_x, _y)")
    assert differences(one, two, solver) == {"read on Doc": (PROVED, FOUND)}


@pytest.mark.parametrize(
    ("action", "permission"), [("5", "5 on Doc"), ("a: Act", "any action that is no String on Doc")]
)
def test_an_action_may_be_no_string(db, solver, action, permission):
    old = f"""
    actor User {{}} resource Doc {{}} resource Act {{}} declare shares(User, Doc);
    allow(u: User, {action}, d: Doc) if owns(u, d);
    """
    new = old.replace("if owns(u, d)", "if owns(u, d) and shares(u, d)")
    assert differences(old, new, solver) == {permission: (PROVED, FOUND)}


ACTIONS = """
actor User {} resource Doc {} resource Act {}
declare owns(User, Doc); declare shares(User, Doc); declare says(User, String);
"""


def test_actions_of_two_types_are_both_compared(db, solver):
    """One rule takes any value as an action, the other names only: for these, it is the same either way."""
    old = f"""{ACTIONS}
    allow(u: User, _, d: Doc) if owns(u, d) and shares(u, d);
    allow(u: User, a: String, d: Doc) if owns(u, d) and says(u, a);
    """
    new = f"""{ACTIONS}
    allow(u: User, _, d: Doc) if owns(u, d);
    allow(u: User, a: String, d: Doc) if owns(u, d) and says(u, a);
    """
    names = old.replace("says(u, a)", "u = u")
    assert differences(old, new, solver) == {
        "any action that is no String on Doc": (FOUND, PROVED),
        "any other action on Doc": (FOUND, PROVED),
    }
    assert differences(names, new, solver) == {
        "any action that is no String on Doc": (FOUND, PROVED),
        "any other action on Doc": (PROVED, PROVED),
    }


def test_a_number_and_a_name_that_look_the_same_are_two_actions(db, solver):
    old = f"""{ACTIONS}
    allow(u: User, 5, d: Doc) if owns(u, d) and shares(u, d);
    allow(u: User, "5", d: Doc) if owns(u, d) and shares(u, d);
    """
    for kept, changed in (('"5"', "5"), ("5", '"5"')):
        new = f"""{ACTIONS}
        allow(u: User, {changed}, d: Doc) if owns(u, d);
        allow(u: User, {kept}, d: Doc) if owns(u, d) and shares(u, d);
        allow(u: User, {kept}, d: Doc) if owns(u, d) and shares(u, d) and says(u, _);
        """
        found = compared(compile_text(old), compile_text(new), solver)
        assert {each.permission for each in found} == {"5 on Doc"}
        assert sorted(each.more.extent for each in found) == [FOUND, PROVED]


@pytest.mark.parametrize("atom", ["allow()", "allow(u)"])
def test_decisions_without_an_action_are_compared(db, solver, atom):
    old = f"{ACTIONS} {atom} if owns(u, d) and shares(u, d);"
    new = f"{ACTIONS} {atom} if owns(u, _);"
    assert differences(old, new, solver) == {"any action": (FOUND, PROVED)}


def test_what_is_not_decided_is_not_counted_as_without_a_difference(db):
    programs = [("old", compile_text(POLICY)), ("new", compile_text(LAXER))]
    with Solver(1e-9) as solver:
        found = compared(programs[0][1], programs[1][1], solver)
    *_, last = questions.comparison_lines(found, *programs)
    assert last == "1 permission compared: 0 grant more, 0 grant less, 0 without a difference, 1 undecided."


def test_no_permission_is_looked_at_when_the_time_of_a_comparison_is_over(db, monkeypatch):
    """There may be very many of them."""
    looked_at = []
    monkeypatch.setattr(questions, "Slice", lambda *asked: looked_at.append(asked))
    with Solver(1e-9) as solver:
        (found,) = compared(compile_text(POLICY), compile_text(LAXER), solver)
    assert (looked_at, found.more.extent, found.less.extent) == ([], UNKNOWN, UNKNOWN)


def test_a_list_binds_the_variable_of_a_not(db, solver):
    status = """
    actor User {} resource Doc { permissions = ["read"]; }
    has_permission(_: User, "read", d: Doc) if status in ["new", "old"] and has_status(d, status);
    """
    negated = status.replace("and has_status", "and not has_status")
    assert differences(status, negated, solver) == {"read on Doc": (FOUND, FOUND)}


# ---- proving -------------------------------------------------------------------------------------------------------


def test_a_claim_is_proved_or_refuted(db, solver):
    program = compile_text(POLICY)
    only_writers = stated(
        program, 'allow(u: User, "write", d: Doc)', 'not (has_role(u, "writer", d) and not is_locked(d))'
    )
    assert proved(only_writers, solver).extent == PROVED
    found = proved(stated(program, 'allow(u: User, "read", d: Doc)', 'not has_role(u, "reader", d)'), solver)
    assert found.extent == PROVED, "has_role follows from other roles too"
    found = proved(stated(program, 'allow(u: User, "read", d: Doc)', 'not has_relation(d, "org", _)'), solver)
    assert [str(each) for each in found.witness.facts] == ['has_role(User{"user1"}, "reader", Doc{"doc1"})']
    assert str(found.witness.atom) == 'allow(User{"user1"}, "read", Doc{"doc1"})'


def test_permissions_that_only_facts_grant_are_considered(db, solver):
    program = compile_text(
        POLICY
        + 'resource File { permissions = ["open"]; } global { permissions = ["audit"]; } declare is_sealed(File);'
    )
    for goal in ('allow(_: User, "open", f: File)', 'allow(_: User, "audit")'):
        found = proved(stated(program, goal, "is_sealed(f)" if "f:" in goal else ""), solver)
        assert found.witness.facts[0].predicate == "has_permission"
    assert proved(stated(program, 'allow(_: User, "sell", _: Doc)'), solver).extent == PROVED
    assert "File" not in str([each.message for each in without_effect(program, solver)[0]])


def test_any_value_of_a_goal_is_no_variable_of_the_condition(db, solver):
    program = compile_text(POLICY.replace("not is_locked(resource)", "not has_left(actor)"))
    for name in ("other", "any_0", "any1_0"):
        found = proved(stated(program, 'allow(_: User, "write", _: Doc)', f"has_left({name})"), solver, 2)
        assert found.extent == FOUND


@pytest.mark.parametrize(
    ("goal", "unless", "told"),
    [
        ("allow(u: User", "", "is not a goal"),
        ('allow(u: User, "read", d: Doc)', "has_rol(u, d)", "no predicate `has_rol` (did you mean `has_role`?)"),
        ('allow(u: User, "read", d: Doc) if true', "", "is not a goal"),
        ('allow(u: User, "read", d: Doc)', "has_role(u", "the claim is not valid"),
    ],
)
def test_a_claim_that_is_none_is_refused(goal, unless, told):
    with pytest.raises(AuthzError) as refused:
        stated(compile_text(POLICY), goal, unless)
    assert told in refused.value.message


NEVER = """
test "only writers write" {
  assert_never allow(u: User, "write", d: Doc) if not has_role(u, "writer", d);
  assert_never allow(_: User, "write", d: Doc) if is_locked(d);
}
test "readers belong to an org" {
  assert_never allow(u: User, "read", d: Doc) if not has_relation(d, "org", _);
  assert_never allow(u: User, "read", d: Doc) if is_lokked(d);
}
"""


def test_a_goal_may_have_actors_and_resources_of_any_type(db):
    program = compile_text(POLICY)
    for goal in ('allow(a: Actor, "read", d: Resource)', 'allow(a, "read", d)'):
        check_words(program, goal)
        with pytest.raises(AuthzError, match="no action `raed`"):
            check_words(program, goal.replace("read", "raed"))
    never = 'test "t" { assert_never allow(a: Actor, "read", d: Doc) if not has_role(a, "reader", d); }'
    (outcome,) = run_tests(compile_text(POLICY + never)).tests[0].assertions
    assert (outcome.passed, outcome.extent) == (True, "proved")


def test_assertions_about_all_facts_are_tests(db):
    report = run_tests(compile_text(POLICY + NEVER))
    assert [(test.name, test.passed, test.total) for test in report.tests] == [
        ("only writers write", 2, 2),
        ("readers belong to an org", 0, 2),
    ]
    assert [one.extent for one in report.tests[0].assertions] == ["proved", "proved"]
    without_org, unknown = report.tests[1].assertions
    assert without_org.message == 'expected never, found allow(User:user1, "read", Doc:doc1)'
    assert without_org.explanation(line_named) == ['with has_role(User:user1, "reader", Doc:doc1)']
    assert "did you mean `is_locked`?" in unknown.message


def test_words_that_the_policy_does_not_have_are_told_beside_a_proof(db):
    misspelled = 'test "t" { assert_never allow(u: User, "wriet", d: Doc) if is_locked(d); }'
    (outcome,) = run_tests(compile_text(POLICY + misspelled)).tests[0].assertions
    assert outcome.passed and outcome.extent.startswith("proved; the policy has no action `wriet`")


def test_all_such_assertions_of_a_policy_share_one_search_and_its_time(db, monkeypatch):
    begun, enter = [], search.Solver.__enter__
    monkeypatch.setattr(search.Solver, "__enter__", lambda self: begun.append(1) or enter(self))
    run_tests(compile_text(POLICY + NEVER))
    assert begun == [1]
    failing = 'test "fails" { assert allow(User{"a"}, "read", Doc{"d"}); }'
    report = run_tests(compile_text(POLICY + NEVER + failing), fail_fast=True)
    assert begun == [1], "a run that ends with its first failure searches nothing"
    assert [test.name for test in report.tests] == ["fails"], "and reports no test of which nothing was checked"


def test_a_policy_that_breaks_an_assertion_about_all_facts_is_not_published(api):
    answer = api.post("/policy", {"src": POLICY + NEVER})
    assert answer.status_code == 400
    assert 'expected never, found allow(User:user1, "read", Doc:doc1)' in answer.json()["message"]
    assert api.post("/policy", {"src": POLICY + NEVER.partition('test "readers')[0]}).status_code == 200


def test_without_the_solver_such_assertions_fail(db, monkeypatch):
    monkeypatch.setattr(search, "find_spec", lambda name: None)
    report = run_tests(compile_text(POLICY + NEVER.partition('test "readers')[0]))
    assert {one.message for one in report.tests[0].assertions} == {
        'clingo is not installed. Run `pip install "authz-project[analysis]"`.'
    }


def test_what_is_not_decided_in_time_fails(db, monkeypatch):
    monkeypatch.setattr("checks.analysis.search.Solver.left", property(lambda self: 0.0))
    never = (
        'test "t" { assert_never allow(u: User, "view", f: Folder) if is_hidden(f) and has_relation(f, "parent", f); }'
    )
    (failure,) = run_tests(compile_text(FOLDERS + never)).tests[0].failures
    assert failure.endswith("not decided within 10 seconds: unknown: the time or memory limit was reached first")


def test_a_misspelled_word_is_refused_before_it_is_proved():
    program = compile_text(POLICY)
    check_words(program, 'allow(u: User, "read", d: Doc)')
    with pytest.raises(AuthzError, match=r"no action `raed` on Doc \(did you mean `read`\?"):
        check_words(program, 'allow(u: User, "raed", d: Doc)')
    with pytest.raises(AuthzError, match=r"the policy has no type `Nobody`"):
        check_words(program, 'allow(u: Nobody, "read", d: Doc)')
    with pytest.raises(AuthzError, match=r'`User:ann` is not a value in a goal. Write it as `User\{"ann"\}`.'):
        check_words(program, 'allow(User:ann, "read", d: Doc)')


# ---- what would allow it -------------------------------------------------------------------------------------------


def test_ways_differ_in_kind_and_the_smallest_comes_first(db, solver):
    found = ways(stated(compile_text(POLICY), 'allow(User{"ann"}, "read", Doc{"plan"})'), [], solver)
    assert [len(each.insert) for each in found.ways] == sorted(len(each.insert) for each in found.ways)
    assert found.ways[0].insert[0].noted.startswith("has_role(User:ann, ")
    assert any('"member", Org:' in str(way) or "member" in way.insert[-1].noted for way in found.ways)


APPROVED = """
actor User {} resource Doc { permissions = ["publish"]; }
has_permission(_: User, "publish", d: Doc) if
  approved(a, d) and approved(b, d) and approved(c, d) and approved(e, d) and
  a != b and a != c and a != e and b != c and b != e and c != e;
declare approved(User, Doc);
"""


def test_a_way_may_need_many_ids(db, solver):
    """The reader and three others, or four others: with two others, there would be none."""
    program = compile_text(APPROVED)
    found = ways(stated(program, 'allow(User{"ann"}, "publish", Doc{"plan"})'), [], solver)
    assert len(found.ways[0].insert) == 4 and found.notes == ()
    assert without_effect(program, solver) == ([], True)


@pytest.mark.parametrize(
    ("action", "seconds", "note"),
    [
        ("sell", 60.0, "no way by the rules: proved"),
        ("view", 60.0, "no way by the rules found: none with up to 2 ids of each type"),
        ("view", 1e-9, "no way by the rules found: unknown: the time or memory limit was reached first"),
    ],
)
def test_that_there_is_no_way_is_said_with_how_far_it_was_searched(db, action, seconds, note):
    is_viewer = 'has_role(actor, "viewer", resource)'
    program = compile_text(FOLDERS.replace('"viewer" and not is_hidden(resource)', f"{is_viewer} and not {is_viewer}"))
    goal = stated(program, f'allow(User{{"ann"}}, "{action}", Folder{{"f"}})')
    with Solver(seconds) as solver:
        assert ways(goal, [], solver).notes == (note,)


def test_that_there_is_no_way_is_said_of_rules_since_a_fact_may_bypass_them(api):
    api.post("/policy", {"src": POLICY})
    asked = {"actor_type": "User", "actor_id": "ann", "action": "sell", "resource_type": "Doc", "resource_id": "plan"}
    answer = api.post("/explain", asked | {"would_allow": True}).json()
    assert answer["would_allow"] == {"changes": [], "notes": ["no way by the rules: proved"]}
    of_no_type = api.post("/explain", asked | {"actor_type": "Nobody", "would_allow": True}).json()
    assert of_no_type["would_allow"] == answer["would_allow"] and "no type `Nobody`" in str(of_no_type)
    api.post("/batch", [{"inserts": [fact("has_permission", "User:ann", "sell", "Doc:plan")]}])
    assert api.post("/authorize", asked).json() == {"allowed": True}


def test_ways_use_stored_facts_and_delete_what_forbids(db, solver):
    goal = stated(compile_text(POLICY), 'allow(User{"ann"}, "write", Doc{"plan"})')
    writer = Fact("has_role", (Value("User", "ann"), Value("String", "writer"), Value("Doc", "plan")))
    locked = Fact("is_locked", (Value("Doc", "plan"),))
    assert ways(goal, [writer, locked], solver).ways == [Way([], [locked])]
    assert ways(goal, [writer], solver).holds


def test_ways_have_no_change_that_is_not_needed(db, solver, monkeypatch):
    """Also of a model that is not the smallest, since there was no time to improve it."""
    goal = stated(compile_text(POLICY), 'allow(User{"ann"}, "write", Doc{"plan"})')
    plan, other = Value("Doc", "plan"), Value("Doc", "other")
    writer, reader = (Fact("has_role", (Value("User", "ann"), Value("String", n), plan)) for n in ("writer", "reader"))
    locked, elsewhere = Fact("is_locked", (plan,)), Fact("is_locked", (other,))
    atom = Fact(goal.holds.goal.predicate, (Value("User", "ann"), Value("String", "write"), plan))
    monkeypatch.setattr(search.Claim, "confirmed", lambda *_: Witness((writer, reader), atom, 0))
    (way, *_) = ways(goal, [locked, elsewhere], solver, 1).ways
    assert way == Way([writer], [locked])


def test_a_way_may_have_a_number_that_a_larger_universe_has_not(db):
    text = """actor User {} resource Doc { permissions = ["read"]; }
    has_permission(u: User, "read", d: Doc) if limit(d, n) and used(u, m) and m < n;"""
    writer = stated(compile_text(text), 'allow(User{"ann"}, "read", Doc{"plan"})').program(2, 0, [])
    _exclude(Way([Fact("used", (Value("User", "ann"), Value("Integer", "987654321")))], []), writer)
    assert "kind" in writer.text


def test_an_explanation_of_a_denial_says_what_would_allow_it(api):
    api.post("/policy", {"src": POLICY})
    asked = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc", "resource_id": "plan"}
    assert "would_allow" not in api.post("/explain", asked).json()
    found = api.post("/explain", asked | {"would_allow": True}).json()["would_allow"]
    assert found["notes"] == [] and {len(each["insert"]) for each in found["changes"]} == {1, 2}
    first = found["changes"][0]
    assert first["delete"] == [] and first["insert"][0]["predicate"] == "has_role"
    api.post("/batch", [{"inserts": first["insert"]}])
    answer = api.post("/explain", asked | {"would_allow": True}).json()
    assert answer["allowed"] and "would_allow" not in answer
    refused = api.post("/explain", asked | {"would_allow": True, "policy_version": 1})
    assert refused.status_code == 400 and "would_allow: not supported" in refused.json()["message"]
    any_user = asked | {"actor_id": "*", "action": "write", "would_allow": True}
    assert "stands for any value" in api.post("/explain", any_user).json()["would_allow"]["notes"][0]


# ---- what has no effect --------------------------------------------------------------------------------------------


def test_what_has_no_effect_is_reported(db):
    text = (
        POLICY.replace('roles = ["reader", "writer"]', 'roles = ["reader", "writer", "ghost"]')
        .replace('permissions = ["read", "write"]', 'permissions = ["read", "write", "fly", "see"]')
        .replace('"read" if "reader";', '"read" if "reader"; "see" if "reader"; "read" if "writer";')
    )
    with Solver(120.0) as solver:
        notices, is_whole = without_effect(compile_text(text), solver)
    told = [notice.message for notice in notices]
    assert is_whole
    assert 'the role "ghost" grants nothing (proved)' in told
    assert 'nobody can have "fly" (proved)' in told
    assert "this rule changes no decision (proved)" in told
    assert any(message.startswith('"see" is the same as "read"') for message in told)


@pytest.mark.parametrize(
    ("permissions", "decision"),
    [
        ('["see"]', 'allow(u: User, "see", d: Doc, _: Integer) if has_role(u, "reader", d);'),
        ("[]", 'allow(u: User, 5, d: Doc) if has_role(u, "reader", d);'),
        ('["see"]', 'allow(o: Org, "see", d: Doc) if has_role(o, "reader", d);'),
    ],
)
def test_what_decisions_of_another_form_use_has_an_effect(db, solver, permissions, decision):
    doc = f'resource Doc {{ roles = ["reader"]; permissions = {permissions}; }}'
    assert without_effect(compile_text(f"actor User {{}} resource Org {{}} {doc} {decision}"), solver) == ([], True)


def test_nothing_more_is_looked_at_when_time_is_over(db, monkeypatch):
    looked_at = []
    monkeypatch.setattr(questions, "differing", lambda *programs: looked_at.append(1) or [])
    with Solver(1e-9) as solver:
        assert without_effect(compile_text(POLICY), solver) == ([], False)
    assert looked_at == []


# ---- limits --------------------------------------------------------------------------------------------------------

LARGE = "p(X1,X2,X3,X4,X5,X6,X7) :- n(X1),n(X2),n(X3),n(X4),n(X5),n(X6),n(X7). n(1..60).\n"


def test_what_only_a_subtype_uses_has_an_effect(db, solver):
    videos = """
    actor User {}
    resource Content { roles = ["viewer"]; permissions = ["read", "see"]; "see" if "viewer"; }
    resource Video extends Content {
      roles = ["fan"];
      permissions = ["play", "like"];
      "play" if "fan";
      "like" if "viewer";
      "read" if owns(actor, resource);
    }
    """
    assert without_effect(compile_text(videos), solver) == ([], True)
    unread = videos.replace('"read" if owns(actor, resource);', "")
    ((notice, *others), _) = without_effect(compile_text(unread), solver)
    assert 'nobody can have "read"' in notice.message and others == []


def test_a_program_that_is_too_large_is_ended_in_time():
    began = time.monotonic()
    with Solver(2.0) as solver:
        assert solver.solve(LARGE, 1.0) == (None, False)
        process = solver._process
        assert solver.solve("a.", 1.0)[0] is not None if solver.left > 0 else True
    assert process is None and solver._process is None
    assert time.monotonic() - began < 60


def test_a_program_that_takes_too_much_memory_is_ended():
    with Solver(60.0, memory=2**27) as solver:
        assert solver.solve(LARGE, 60.0) == (None, False)


def test_one_search_at_a_time():
    with Solver(5.0), pytest.raises(AnalysisUnavailable, match="another analysis is running"), Solver(5.0):
        pass
    with Solver(5.0) as solver:
        assert solver.solve("a. #show a/0.", 5.0)[0] == [["a", []]]


def test_without_the_solver_it_says_what_installs_it(monkeypatch):
    monkeypatch.setattr(search, "find_spec", lambda name: None)
    with pytest.raises(AnalysisUnavailable, match=r"pip install \"authz-project\[analysis\]\""), Solver():
        pass


def test_what_the_engine_does_not_confirm_is_never_printed(db, solver):
    program = compile_text(POLICY)
    ((_, goal),) = differing(program, compile_text(LAXER))
    claim = search.Claim(Slice(program, goal))
    writer = claim.program(1, 0)
    row = (Value("User", "user1"), Value("String", "write"), Value("Doc", "doc1"))
    with pytest.raises(EngineDisagrees, match="Please report this"):
        claim.confirmed([("goal", [writer.numbers[value] for value in row])], writer)


# ---- commands ------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    for name, text in (("old", POLICY), ("new", LAXER)):
        (tmp_path / f"{name}.polar").write_text(text)
    return lambda name: str(tmp_path / f"{name}.polar")


def run(name: str, *args: str) -> tuple[int, str]:
    command, written = load_command_class(get_commands()[name], name), StringIO()
    try:
        call_command(command, *args, stdout=written, stderr=written, no_color=True)
    except CommandError as reason:
        return reason.returncode, f"{written.getvalue()}{reason}"
    return command.status, written.getvalue()


def test_comparing_files_ends_with_what_it_found(db, files):
    status, told = run("compare_policies", files("old"), files("new"))
    assert status == 1 and "write on Doc: grants more; not less (proved)" in told
    assert '    assert allow(User{"user1"}, "write", Doc{"doc1"});' in told
    assert run("compare_policies", files("new"), files("old"))[0] == 0
    assert run("compare_policies", files("old"), files("old")) == (
        0, "No difference: the rules that decisions depend on are the same.\n",
    )  # fmt: skip
    assert run("compare_policies", files("old"), files("missing"))[0] == 2


def test_proving_and_ways_on_the_command_line(db, files):
    goal = 'allow(u: User, "write", d: Doc)'
    status, told = run("prove", goal, "--unless", "not is_locked(d)", "--policy", files("old"))
    assert (status, told) == (0, "never by the rules: proved\n")
    status, told = run("prove", goal, "--unless", 'has_role(u, "reader", d) and d = Doc{"x"}', "--policy", files("new"))
    assert status == 1 and 'has_role(User{"user1"}, "writer", Doc{"doc1"});' in told
    status, told = run("how", 'allow(User{"ann"}, "write", Doc{"plan"})', "--policy", files("old"))
    assert (status, told.splitlines()[0]) == (0, 'insert has_role(User:ann, "writer", Doc:plan)')


def test_how_counts_stored_facts(repos):
    publish(repos, POLICY)
    store(repos, fact("has_role", "User:ann", "writer", "Doc:plan"), fact("is_locked", "Doc:plan"))
    asked = ("how", 'allow(User{"ann"}, "write", Doc{"plan"})', "--environment", repos.environment.slug)
    assert run(*asked, "--with-stored") == (0, "delete is_locked(Doc:plan)\n")
    assert run(*asked)[1].startswith("insert has_role")


def test_facts_of_any_value_are_deleted(repos):
    frozen = POLICY.replace('"write" if "writer"', '"write" if not is_frozen(_) and "writer"')
    publish(repos, f"{frozen} resource Site {{}} declare is_frozen(Site);")
    store(repos, fact("has_role", "User:ann", "writer", "Doc:plan"), fact("is_frozen", "Site:main"))
    asked = ("how", 'allow(User{"ann"}, "write", Doc{"plan"})', "--environment", repos.environment.slug)
    assert run(*asked, "--with-stored") == (0, "delete is_frozen(Site:main)\n")


def test_facts_without_actors_and_resources_are_counted(repos):
    policy = POLICY.replace('"write" if "writer"', '"write" if is_on(plan) and has_plan(resource, plan) and "writer"')
    publish(repos, f"{policy} declare is_on(String); declare has_plan(Doc, String);")
    store(repos, fact("is_on", "String:gold"), fact("has_plan", "Doc:plan", "gold"))
    asked = ("how", 'allow(User{"ann"}, "write", Doc{"plan"})', "--environment", repos.environment.slug)
    first, *_ = run(*asked, "--with-stored")[1].splitlines()
    assert first == 'insert has_role(User:ann, "writer", Doc:plan)'


def test_a_policy_that_grants_more_is_refused(repos, files):
    publish(repos, POLICY)
    where = ("--environment", repos.environment.slug)
    status, told = run("load_policy", files("new"), "--never-more", *where)
    assert status == 1 and "The new policy grants more than the active policy." in told
    assert PolicyVersion.objects.filter(environment=repos.environment).count() == 2
    assert (
        "--allow 'write'` matches none"
        in run("load_policy", files("new"), "--never-more", "--allow", "write", *where)[1]
    )
    assert run("load_policy", files("new"), "--allow", "write on Doc", *where)[0] == 1
    assert run("load_policy", files("new"), "--never-more", "--allow", "write on Doc", *where)[0] == 0
    assert run("load_policy", files("old"), "--never-more", *where)[0] == 0
    assert run("load_policy", "--version", "3", "--never-more", *where)[0] == 1


def test_files_are_checked_against_a_policy(repos, files):
    publish(repos, POLICY)
    where = ("--environment", repos.environment.slug)
    assert run("check_policy", files("new"), "--against", "active", *where)[0] == 1
    assert run("check_policy", files("new"), "--against", files("old"), "--allow", "write on Doc")[0] == 0
    status, told = run("check_policy", files("old"), "--deep", "--seconds", "60")
    assert status == 0 and told.startswith("no problems: 3 types")


# ---- pages ---------------------------------------------------------------------------------------------------------


def test_pages_compare_and_say_what_would_allow_it(admin, version, repos):
    asked = {"kind": "authorize", "actor": "User:nobody", "action": "read", "resource": "Repo:a"}
    page = admin.get(url("ask", version), asked).content.decode()
    assert "Find what would allow it" in page and "What would allow it" not in page
    page = admin.get(url("ask", version), asked | {"ways": "1"}).content.decode()
    assert "What would allow it" in page and "insert has_role(User:nobody" in page
    laxer = version.source + 'has_permission(_: User, "read", _: Repo);'
    page = admin.post(url("preview", version), {"text": laxer, "over_all": "1"}).content.decode()
    assert "read on Repo: grants more" in page and "\n  test &quot;read on Repo" in page and "\\n" not in page


def test_pages_say_what_installs_the_solver(admin, version, monkeypatch):
    monkeypatch.setattr(search, "find_spec", lambda name: None)
    asked = {"kind": "authorize", "actor": "User:nobody", "action": "read", "resource": "Repo:a", "ways": "1"}
    page = admin.get(url("ask", version), asked).content.decode()
    assert "authz-project[analysis]" in page and '<ul class="ways">' not in page
    page = admin.post(url("preview", version), {"text": version.source + "\n", "over_all": "1"}).content.decode()
    assert "authz-project[analysis]" in page
