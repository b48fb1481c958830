"""In-policy tests: each over its own facts, on the engine that answers questions."""

import io

import pytest
from django.core.management import CommandError, call_command

from checks import testing
from policy import rules
from policy.language.source import Source
from tests.checks.conftest import POLICY, fact, publish, store
from tests.checks.statements import counted
from tests.yardstick import seconds_at_most

TEAM = """
test fixture team {
  has_role(User{"ann"}, "reader", Repo{"a"});
  has_role(User{"bob"}, "writer", Repo{"a"});
}
"""


def program(text: str):
    return rules.compile_source(Source(text))


def outcome(assertion: str, setup: str = "fixture team;", policy: str = POLICY + TEAM) -> str:
    """What is wrong with one assertion; nothing where it passes."""
    report = testing.run(program(policy + f'test "t" {{ setup {{ {setup} }} {assertion} }}'))
    (found,) = report.tests[0].assertions
    assert found.passed == (not found.message) == report.success
    return found.message


@pytest.mark.parametrize(
    "assertion",
    [
        'assert allow(User{"ann"}, "read", Repo{"a"});',
        'assert has_permission(User{"ann"}, "read", Repo{"a"});',
        'assert has_role(User{"bob"}, "reader", Repo{"a"});',
        'assert_not allow(User{"ann"}, "write", Repo{"a"});',
        'assert_not allow(User{"ann"}, "frob", Repo{"a"});',
        'assert_not allow(Repo{"a"}, "read", User{"ann"});',
        'assert_not family(true, "Morgan");',
        'assert_not allow(User{"ann"});',
        'assert allow(User{"ann"}, action: String, Repo{"a"}) iff action in ["read"];',
        'assert allow(User{"bob"}, action: String, Repo{"a"}) iff action in ["write", "read"];',
        'assert allow(User{"eve"}, action: String, Repo{"a"}) iff action in [];',
        'assert allow(User{"bob"}, action: String, Repo{"a"}) iff action not in [];',
        'assert allow(User{"ann"}, action: String, Repo{"a"}) iff action not in ["write"];',
        'assert has_role(User{"ann"}, role: String, Repo{"a"}) iff role not in ["writer"];',
        'assert_not allow(User{"ann"}, action: String, Repo{"a"}) iff action in ["read", "write"];',
        'assert allow(user: User, "read", Repo{"a"}) iff user in [User{"ann"}, User{"bob"}];',
        'assert allow(user: Actor, "read", Repo{"a"}) iff user in [User{"bob"}, User{"ann"}];',
        'assert allow(User{"ann"}, "read", repo: Resource) iff repo in [Repo{"a"}];',
        'assert allow(User{"ann"}, action: String, Repo{"a"});',
        'assert_not allow(User{"eve"}, action: String, Repo{"a"});',
    ],
)
def test_assertions_that_hold(db, assertion):
    assert outcome(assertion) == ""


@pytest.mark.parametrize(
    ("assertion", "message"),
    [
        ('assert allow(User{"ann"}, "write", Repo{"a"});', "expected true, got false"),
        ('assert_not allow(User{"ann"}, "read", Repo{"a"});', "expected false, got true"),
        ('assert family(true, "Morgan");', "expected true, got false"),
        (
            'assert allow(User{"ann"}, a: String, Repo{"a"}) iff a in ["read", "write"];',
            'expected "read" and "write", got "read"',
        ),
        (
            'assert allow(User{"bob"}, a: String, Repo{"a"}) iff a in ["read"];',
            'expected "read", got "read" and "write"',
        ),
        ('assert allow(User{"ann"}, a: String, Repo{"a"}) iff a in [];', 'expected nothing, got "read"'),
        ('assert allow(User{"ann"}, a: String, Repo{"a"}) iff a not in ["read"];', 'expected "write", got "read"'),
        (
            'assert_not allow(User{"ann"}, a: String, Repo{"a"}) iff a in ["read"];',
            'expected anything but "read", got "read"',
        ),
        ('assert allow(User{"eve"}, a: String, Repo{"a"});', "expected a value, got none"),
        ('assert_not allow(User{"ann"}, a: String, Repo{"a"});', "expected no value, got one or more"),
        (
            'assert allow(u: User, "read", Repo{"a"}) iff u in [User{"ann"}];',
            'expected User{"ann"}, got User{"ann"} and User{"bob"}',
        ),
    ],
)  # fmt: skip
def test_assertions_that_fail_say_what_was_found(db, assertion, message):
    assert outcome(assertion) == message


def test_every_value_is_a_value_but_no_list(db):
    setup = 'is_public(Repo{"p"});'
    assert outcome('assert allow(User{"x"}, "read", Repo{"p"});', setup) == ""
    assert outcome('assert allow(user: User, "read", Repo{"p"});', setup) == ""
    found = outcome('assert allow(user: User, "read", Repo{"p"}) iff user in [User{"x"}];', setup)
    assert found == 'expected User{"x"}, got every User'


ALL_BUT_LOCKED = """
actor User {}
resource Doc { permissions = ["read"]; }
has_permission(user: User, "read", doc: Doc) if is_root(user) and not is_locked(doc);
"""


def test_all_but_some_is_no_list_either(db):
    policy = ALL_BUT_LOCKED
    setup = 'is_root(User{"r"}); is_locked(Doc{"l"});'
    assert outcome('assert allow(User{"r"}, "read", d: Doc);', setup, policy) == ""
    assert outcome('assert_not allow(User{"r"}, "read", d: Doc) iff d in [Doc{"x"}];', setup, policy) == ""
    found = outcome('assert allow(User{"r"}, "read", d: Doc) iff d in [Doc{"x"}];', setup, policy)
    assert found == 'expected Doc{"x"}, got all values except some'


def test_a_complement_needs_declared_names(db):
    found = outcome('assert allow(User{"ann"}, "read", r: Repo) iff r not in [Repo{"x"}];')
    assert found.startswith("`not in` requires roles, permissions or relations")


def test_tests_see_only_their_own_facts(api):
    publish(api, POLICY)
    store(api, fact("has_role", "User:eve", "writer", "Repo:a"))
    text = POLICY + TEAM + '''
    test "one" { setup { fixture team; } assert_not allow(User{"eve"}, "read", Repo{"a"}); }
    test "two" { assert_not allow(User{"ann"}, "read", Repo{"a"}); }
    test "three" { setup { is_public(Repo{"a"}); } assert allow(User{"ann"}, "read", Repo{"a"}); }
    '''  # fmt: skip
    assert testing.run(program(text)).success


def test_facts_of_the_policy_count_in_tests(db):
    policy = POLICY + TEAM + 'has_role(User{"god"}, "writer", _: Repo);'
    assert outcome('assert allow(User{"god"}, "write", Repo{"any"});', "", policy) == ""
    assert outcome('assert has_role(User{"god"}, "writer", Repo{"any"});', "", policy) == ""


def test_recursion_and_rounds_work_in_tests(db):
    policy = '''
    actor User {}
    resource Doc {
      roles = ["reader"]; permissions = ["read"]; relations = { parent: Doc, left: Doc, right: Doc };
      "read" if "reader"; "read" if "read" on "parent"; "read" if "read" on "left" and "read" on "right";
    }
    '''  # fmt: skip
    setup = '''
    has_role(User{"a"}, "reader", Doc{"1"}); has_relation(Doc{"2"}, "parent", Doc{"1"});
    has_relation(Doc{"3"}, "left", Doc{"1"}); has_relation(Doc{"3"}, "right", Doc{"2"});
    '''  # fmt: skip
    assert (
        outcome('assert allow(User{"a"}, "read", d: Doc) iff d in [Doc{"1"}, Doc{"2"}, Doc{"3"}];', setup, policy) == ""
    )
    assert outcome('assert allow(User{"a"}, "read", Doc{"3"});', setup, policy) == ""


def test_outcomes_name_the_line_and_the_test(db):
    report = testing.run(program(POLICY + '\ntest "t" {\n  assert allow(User{"a"}, "read", Repo{"b"});\n}\n'))
    line = POLICY.count("\n") + 3
    assert report.errors == (f"test `t`, line {line}: expected true, got false",)


TWO_FAIL = """
test "good" { assert_not allow(User{"a"}, "read", Repo{"a"}); }
test "bad" {
  assert_not allow(User{"a"}, "read", Repo{"a"});
  assert allow(User{"a"}, "read", Repo{"a"});
  assert allow(User{"b"}, "read", Repo{"a"});
}
test "later" { assert allow(User{"a"}, "read", Repo{"a"}); }
"""


def test_all_assertions_are_counted(db):
    report = testing.run(program(POLICY + TWO_FAIL))
    assert [(test.name, test.passed, test.total) for test in report.tests] == [
        ("good", 1, 1),
        ("bad", 1, 3),
        ("later", 0, 1),
    ]
    assert len(report.errors) == 3


def test_a_run_that_fails_fast_ends_at_the_first_failure(db):
    report = testing.run(program(POLICY + TWO_FAIL), fail_fast=True)
    assert [(test.name, test.passed, test.total) for test in report.tests] == [("good", 1, 1), ("bad", 1, 3)]
    assert len(report.errors) == 1


def test_a_thousand_assertions_take_few_statements(db):
    text = POLICY + "".join(
        f'test "t{number}" {{ setup {{ has_role(User{{"u"}}, "reader", Repo{{"r{number}"}}); }}'
        + f'assert allow(User{{"u"}}, "read", Repo{{"r{number}"}});' * 10
        + "".join(f'assert_not allow(User{{"u"}}, "read", Repo{{"x{other}"}});' for other in range(10))
        + "}"
        for number in range(50)
    )
    compiled = program(text)
    setup = 'setup { has_role(User{"u"}, "reader", Repo{"r"}); }'
    testing.run(program(f'{POLICY}test "t" {{ {setup} assert allow(User{{"u"}}, "read", Repo{{"r"}}); }}'))
    # What a connection prepares once, it has prepared by now.
    with seconds_at_most(2), counted() as statements:
        report = testing.run(compiled)
    assert report.success and sum(test.passed for test in report.tests) == 1000
    assert len(statements) <= 50 + 1  # one for each test, and one that reads the clock


# ---- coverage -------------------------------------------------------------------------------------------------------


def uncovered(text: str) -> list[str]:
    compiled = program(text)
    missing = testing.uncovered(compiled, testing.covered(compiled))
    return [text[span.start : span.end] for span in missing]


def test_rules_that_derive_nothing_in_any_test_are_not_covered(db):
    text = POLICY + TEAM + 'test "t" { setup { fixture team; } assert allow(User{"ann"}, "read", Repo{"a"}); }'
    assert uncovered(text) == [
        '"member" if "admin";',
        '"read" if "member";',
        '"reader" if "member" on "organization";',
        '"read" if is_public(resource);',
        'has_permission(user: User, "read", repo: Repo) if is_root(user) and repo matches Repo;',
    ]


UNLESS_BANNED = """
actor User {}
resource Doc { permissions = ["read"]; }
has_permission(user: User, "read", doc: Doc) if not is_banned(user) and is_open(doc);
"""


def test_a_rule_with_a_negation_is_covered_where_it_holds(db):
    policy = UNLESS_BANNED
    banned = (
        'test "t" { setup { is_open(Doc{"d"}); is_banned(User{"u"}); } assert_not allow(User{"u"}, "read", Doc{"d"}); }'
    )
    assert len(uncovered(policy + banned)) == 1
    other = 'test "s" { setup { is_open(Doc{"d"}); is_banned(User{"u"}); } assert allow(User{"v"}, "read", Doc{"d"}); }'
    assert uncovered(policy + banned + other) == []


def test_without_tests_nothing_is_covered(db):
    assert len(uncovered(POLICY)) == 8


def test_rules_are_counted_alike_by_every_command(tmp_path):
    """Without the defaults and the parts that the compiler makes of a rule."""
    file = tmp_path / "main.polar"
    file.write_text(
        'actor User {}\nresource Repo { roles = ["a", "b"]; permissions = ["read"]; "read" if "a"; "a" if "b"; }\n'
        'has_permission(u: User, "read", r: Repo) if is_root(u) or (is_open(r) and (is_new(u) or is_old(u)));\n'
    )
    out = io.StringIO()
    call_command("check_policy", str(file), stdout=out)
    call_command("test_policy", str(file), "--coverage", stdout=out)
    assert "no problems: 2 types, 3 rules, 0 tests" in out.getvalue()
    assert "0 of 3 rules are exercised by a test" in out.getvalue()


# ---- why an assertion fails ----------------------------------------------------------------------------------------


def explained(assertion: str, setup: str = "fixture team;", policy: str = POLICY + TEAM) -> str:
    report = testing.run(program(policy + f'test "t" {{ setup {{ {setup} }} {assertion} }}'))
    return "\n".join(report.tests[0].assertions[0].explanation("line {}".format))


def test_what_holds_but_should_not_is_proved(db):
    told = explained('assert_not allow(User{"bob"}, "read", Repo{"a"});')
    assert told.startswith('✓ allow(User:bob, "read", Repo:a)\n')
    assert '│ by line 15: "read" if "reader";' in told
    assert told.endswith('✓ has_role(User:bob, "writer", Repo:a)  fact of the test')


def test_what_is_missing_is_told(db):
    told = explained('assert allow(User{"eve"}, "write", Repo{"a"});')
    assert 'line 17: "write" if "writer";' in told
    assert told.endswith('✗ has_role(User:eve, "writer", Repo:a)  no matching fact, and no rule applies')


def test_an_unknown_word_is_told(db):
    told = explained('assert allow(User{"ann"}, "raed", Repo{"a"});')
    assert told.startswith("the policy has no action `raed` on Repo (did you mean `read`?")


@pytest.mark.parametrize(
    ("assertion", "about"),
    [
        ('assert allow(User{"ann"}, action: String, Repo{"a"}) iff action in ["read", "write"];', "✗"),
        ('assert allow(User{"bob"}, action: String, Repo{"a"}) iff action in ["read"];', "✓"),
        ('assert_not allow(User{"bob"}, action: String, Repo{"a"});', "✓"),
    ],
)
def test_a_list_is_explained_by_a_value_of_it(db, assertion, about):
    told = explained(assertion)
    action = "write" if "iff" in assertion else "read"
    assert f'"{action}", Repo:a)' in told and about in told


def test_a_list_without_a_value_and_what_passes_have_nothing_to_explain(db):
    assert explained('assert allow(User{"eve"}, action: String, Repo{"a"});') == ""
    assert explained('assert allow(User{"ann"}, "read", Repo{"a"});') == ""


def test_explanations_are_few_and_short(db):
    rules_ = "".join(f'has_role(u: User, "r{n}", d: Doc) if p{n}(u, d);\n' for n in range(40))
    policy = f"""actor User {{}}
    resource Doc {{ permissions = ["read"]; roles = [{", ".join(f'"r{n}"' for n in range(40))}];
    {"".join(f'"read" if "r{n}";' for n in range(40))} }}\n{rules_}"""
    asserted = "".join(f'assert allow(User{{"{"u" * 500}{n}"}}, "read", Doc{{"d"}});' for n in range(10))
    with seconds_at_most(6):
        report = testing.run(program(f'{policy} test "t" {{ {asserted} }}'))
    lines = [one.explanation("line {}".format) for one in report.tests[0].assertions]
    assert [bool(each) for each in lines] == [True] * 5 + [False] * 5
    assert all(len(each) == testing.MOST_LINES + 1 and each[-1] == "…" for each in lines[:5])
    assert all(len(line) <= testing.LONGEST_LINE + 1 for each in lines for line in each)


def test_publishing_refuses_with_the_explanation(api, tmp_path, capsys):
    text = POLICY + 'test "t" { assert allow(User{"eve"}, "write", Repo{"a"}); }'
    answer = api.post("/policy", {"src": text, "filename": "a.polar"})
    assert answer.status_code == 400
    assert '✗ has_role(User:eve, "writer", Repo:a)  no matching fact' in answer.json()["message"]
    (error,) = answer.json()["test_results"]["errors"]
    assert error["message"].endswith("expected true, got false")  # published clients print these
    file = tmp_path / "a.polar"
    file.write_text(text)
    with pytest.raises(CommandError):
        call_command("load_policy", str(file))
    assert '✗ has_role(User:eve, "writer", Repo:a)  no matching fact' in capsys.readouterr().err
