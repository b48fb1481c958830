"""Conditions: what they are met by, what is missing, and what cannot be said; never does one of these grant."""

import pytest

from authz_project.importers.convert import carried
from authz_project.importers.ir import Imported, ImportReport, ModelKind, Thing, Tuple, Who
from authz_project.importers.openfga import model_of_files, read_dsl
from checks.asking.question import Asked, question_about
from facts.wire import Fact, fact_from_text
from policy.values import Value
from tests.importers.asking import Carriage

MODEL = """
model
  schema 1.1
type user
type doc
  relations
    define blocked: [user, user with c]
    define viewer: [user with c]
    define reader: [user] but not blocked
condition c({parameters}) {{
  {expression}
}}
"""
DOC = Thing("doc", "1")


def carriage(parameters, expression, values=(), relation="viewer", others=(), **options):
    model = model_of_files([read_dsl(MODEL.format(parameters=parameters, expression=expression), "m")])
    given = Tuple(DOC, relation, Who("user", "ann"), "c", tuple(values))
    report = ImportReport()
    found = carried(Imported(model, (given, *others)), report, **options)
    return Carriage(found), report


def is_met(parameters, expression, values=(), context=()):
    return carriage(parameters, expression, values)[0].check(Who("user", "ann"), "viewer", DOC, (), tuple(context))


@pytest.mark.parametrize(
    ("parameters", "expression", "values", "context", "met"),
    [
        ("x: int", "x < 10", (), [("x", 9)], True),
        ("x: int", "x < 10", (), [("x", 10)], False),
        ("x: int", "x < 10", (), [], False),
        ("x: int", "x < 10", [("x", 9)], [], True),
        ("x: int", "x < 10", [("x", 10)], [("x", 9)], False),  # the tuple's own value counts
        ("x: int, y: int", "x < 10 || y < 10", [], [("x", 9)], False),  # every value is needed
        ("x: int, y: int", "x < 10 || y < 10", [], [("x", 9), ("y", 10)], True),
        ("x: int, y: int", "!(x < 10 || y >= 10)", [], [("x", 10), ("y", 9)], True),
        ("x: string", "x in ['a', \"b\"]", [], [("x", "b")], True),
        ("x: string", "!(x in ['a', 'b'])", [], [("x", "b")], False),
        ("x: string, y: list<string>", "x in y", [("y", ["a", "b"])], [("x", "b")], True),
        ("x: string, y: list<string>", "x in y", [("y", [])], [("x", "b"), ("y", ["b"])], False),
        ("x: string, y: list<string>", "!(x in y)", [("y", [])], [("x", "b")], True),
        ("x: bool", "x", [], [("x", True)], True),
        ("x: bool", "!x", [], [("x", True)], False),
        ("x: timestamp", "x < timestamp('2026-01-01T00:00:00Z')", [], [("x", "2025-12-31T23:59:59+00:00")], True),
        ("x: timestamp", "x < timestamp('2026-01-01T00:00:00Z')", [], [("x", "2026-01-01T00:59:59+01:00")], True),
        ("x: duration", "x >= duration('1h30m')", [], [("x", "5400s")], True),
        ("t: timestamp, d: duration, n: timestamp", "n < t + d", [("t", "2026-01-01T00:00:00Z"), ("d", "1h")],
         [("n", "2026-01-01T00:59:59Z")], True),
        ("t: timestamp, d: duration, n: timestamp", "n < t + d", [("t", "2026-01-01T00:00:00Z"), ("d", "1h")],
         [("n", "2026-01-01T01:00:00Z")], False),
        ("ip: ipaddress", "ip.in_cidr('10.0.0.0/8')", [], [("ip", "10.255.0.1")], True),
        ("ip: ipaddress, net: string", "!ip.in_cidr(net)", [("net", "10.0.0.0/8")], [("ip", "11.0.0.1")], True),
        ("x: double", "x > 0.0", [], [("x", 1.0)], True),
        ("x: uint", "x == 0x1Fu", [], [("x", 31)], True),
        ("x: int", "x == -1 // one less", [], [("x", "-1")], True),
        ("actor: int, actor_: int", "actor < actor_", [], [("actor", 1), ("actor_", 2)], True),
        ("a: int, b: int, a_plus_b: int", "a + b < a_plus_b", [("a", 1), ("b", 2)], [("a_plus_b", 4)], True),
        ("ip: ipaddress, net: string, first_of_net: ipaddress", "ip.in_cidr(net) && ip != first_of_net",
         [("net", "10.0.0.0/8")], [("ip", "10.0.0.1"), ("first_of_net", "10.0.0.2")], True),
    ],
)  # fmt: skip
def test_what_a_condition_is_met_by(db, parameters, expression, values, context, met):
    assert is_met(parameters, expression, values, context) == met


@pytest.mark.parametrize(
    "expression",
    [
        "x.startsWith('a')", "x < 'b'", "size(x) > 1", "x + 'a' == 'ba'", "x == y", "x.matches('a') && x == 'a'",
        "!(x > 'a')",
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_named_and_not_met(db, expression):
    asked, report = carriage("x: string", expression, [("x", "a")])
    (lost,) = report.of(ModelKind.LOST)
    assert lost.place.line == 11
    assert lost.message.endswith("; affects doc#blocked, doc#viewer")
    assert not asked.check(Who("user", "ann"), "viewer", DOC)


@pytest.mark.parametrize(
    ("expression", "context"), [("x > 'a'", [("x", "a")]), ("x == 'b'", []), ("x == 'a'", [("x", "a")])]
)
def test_who_may_be_blocked_is_not_let_in(db, expression, context):
    reads = Tuple(DOC, "reader", Who("user", "ann"))
    asked, _ = carriage("x: string", expression, relation="blocked", others=[reads])
    assert not asked.check(Who("user", "ann"), "reader", DOC, (), tuple(context))


def test_who_is_not_blocked_for_sure_is_let_in(db):
    reads = Tuple(DOC, "reader", Who("user", "ann"))
    asked, _ = carriage("x: string", "x == 'b'", relation="blocked", others=[reads])
    assert asked.check(Who("user", "ann"), "reader", DOC, (), (("x", "a"),))


def test_an_exclusion_that_depends_on_itself_grants_nothing(db):
    text = """
model
  schema 1.1
type user
type group
  relations
    define blocked: [user, group#member]
    define member: [user] but not blocked
    define guest: [user]
"""
    ann, group = Who("user", "ann"), Thing("group", "1")
    tuples = (Tuple(group, "member", ann), Tuple(group, "guest", ann))
    report = ImportReport()
    asked = Carriage(carried(Imported(model_of_files([read_dsl(text, "m")]), tuples), report))
    assert ["depends on the relation itself" in each.message for each in report.of(ModelKind.LOST)] == [True]
    assert asked.check(ann, "guest", group)
    assert not asked.check(ann, "member", group)


def test_the_clock_is_the_services_own(db):
    expression = "now < timestamp('{}')"
    later, _ = carriage("now: timestamp", expression.format("2999-01-01T00:00:00Z"), clock=frozenset(["now"]))
    before, _ = carriage("now: timestamp", expression.format("2020-01-01T00:00:00Z"), clock=frozenset(["now"]))
    said = (("now", "2019-01-01T00:00:00Z"),)
    assert later.check(Who("user", "ann"), "viewer", DOC)
    assert not before.check(Who("user", "ann"), "viewer", DOC, (), said)


def test_a_value_that_cannot_be_said_takes_its_tuple_along(db):
    asked, report = carriage("x: double", "x > 1.0", [("x", 1.5)])
    assert [each.message for each in report.of(ModelKind.LOST)] == [
        "tuple doc:1#viewer@user:ann: parameter x: 1.5 is not a whole number"
    ]
    assert not asked.check(Who("user", "ann"), "viewer", DOC)


@pytest.mark.parametrize(
    ("parameters", "expression"),
    [
        ("x: int", "x != 5"), ("x: int", "!(x in [1, 2])"), ("x: int, l: list<int>", "!(x in l)"),
        ("x: int", "!(x < 9)"), ("x: bool", "!x"), ("x: int, y: int", "x == 5 || y < 9"),
        ("x: bool, y: int", "x || y < 9"), ("x: int, y: int", "x == y"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("relation", ["viewer", "blocked"])
def test_a_value_of_the_wrong_type_grants_nothing(db, parameters, expression, relation):
    expression = expression if relation == "viewer" else f"!({expression})"
    reads = Tuple(DOC, "reader", Who("user", "ann"))
    asked, _ = carriage(parameters, expression, [("l", [3])], relation, [reads])
    said = [Fact("context", (Value("String", name), Value("String", "5"))) for name in "xy"]
    said.append(Fact("context", (Value("String", "y"), Value("Integer", "5"))))
    role = "viewer" if relation == "viewer" else "reader"
    args = [Asked("user", ("ann",)), Asked("String", (role,)), Asked("doc", ("1",))]
    assert not asked._over(said).holds(question_about("allow", args, ()))


@pytest.mark.parametrize("expression", ["x < 9", "x < 9 || y.startsWith('a')"])
@pytest.mark.parametrize(("context", "met"), [([("x", 1)], False), ([("x", 1), ("y", "a")], True)])
def test_each_declared_value_must_be_there(db, expression, context, met):
    assert is_met("x: int, y: string", expression, (), context) == met


def test_a_parameter_that_nobody_can_give_is_named_and_its_condition_not_met(db):
    asked, report = carriage("x: int, y: map<string>", "x < 9", [("x", 1)])
    (lost,) = report.of(ModelKind.LOST)
    assert lost.place.line == 10
    assert not asked.check(Who("user", "ann"), "viewer", DOC)


@pytest.mark.parametrize("expression", ["x in y", "!(x in y)", "x == 'a' || x in y", "x == 'a'"])
@pytest.mark.parametrize(
    ("listed", "fits"),
    [
        (['"a"', '"b"'], True),
        (["false"], True),  # which stands for an empty list
        (['"a"', "5"], False),
        (["5"], False),
        (['"a"', "true"], False),
        (['"a"', "false"], False),
        (['"a"', "user:ann"], False),
    ],
)
def test_a_list_of_a_request_with_an_element_of_another_type_meets_nothing(db, expression, listed, fits):
    """As the peer refuses it; by the facts that a request may bring, whatever the import would make of them."""
    meets = {"x in y": '"a"' in listed, "!(x in y)": '"a"' not in listed}.get(expression, True)
    asked, _ = carriage("x: string, y: list<string>", expression)
    facts = [fact_from_text(f'context("y", {each})') for each in listed]
    given = (*facts, fact_from_text('context("x", "a")'))
    assert asked.check(Who("user", "ann"), "viewer", DOC, facts=given) == (fits and meets)


def test_a_parameter_may_be_called_as_the_carried_policy_calls_its_own(db):
    asked, _ = carriage("one_of_y: string, y: list<string>", "one_of_y in y")
    context = ['context("one_of_y", "a")', 'context("y", "a")']
    right, wrong = (tuple(map(fact_from_text, each)) for each in (context, [*context, 'context("y", 5)']))
    assert asked.check(Who("user", "ann"), "viewer", DOC, facts=right)
    assert not asked.check(Who("user", "ann"), "viewer", DOC, facts=wrong)


@pytest.mark.parametrize(
    "expression",
    [
        "1u - 2u < 1u", "!(1u - 2u == 3u)", "9223372036854775807 + 1 > 0", "-x > 0u", "x - 1u < x",
        "timestamp('9999-12-31T23:59:59Z') + duration('1s') > timestamp('2026-01-01T00:00:00Z')",
        "timestamp('2026-01-01T00:00:00Z') + timestamp('2026-01-01T00:00:00Z') > timestamp('2026-01-01T00:00:00Z')",
        "duration('1s') - timestamp('2026-01-01T00:00:00Z') < duration('1s')", "-1u < 1", "1u + 1 == 2",
    ],
)  # fmt: skip
def test_a_sum_that_is_an_error_is_met_by_nobody(db, expression):
    asked, report = carriage("x: uint", expression, [("x", 1)])
    assert report.of(ModelKind.LOST)
    assert not asked.check(Who("user", "ann"), "viewer", DOC)


@pytest.mark.parametrize(
    "expression",
    ["x == 3u - 2u", "x == 1u", "2 - 3 == -1", "1.0 + 1.0 == 2.0",
     "timestamp('2026-01-01T00:00:00Z') - timestamp('2025-12-31T23:59:59Z') == duration('1s')",
     "duration('1s') + timestamp('2026-01-01T00:00:00Z') == timestamp('2026-01-01T00:00:01Z')"],
)  # fmt: skip
def test_sums_of_constants_are_worked_out(db, expression):
    asked, report = carriage("x: uint", expression, [("x", 1)])
    assert not report.of(ModelKind.LOST)
    assert asked.check(Who("user", "ann"), "viewer", DOC)


def test_a_sum_beyond_the_years_meets_nothing(db):
    values = [("t", "9999-12-31T23:00:00Z"), ("d", "2h"), ("n", "2026-01-01T00:00:00Z")]
    assert not is_met("t: timestamp, d: duration, n: timestamp", "n < t + d", values)


@pytest.mark.parametrize(("sign", "met"), [("||", True), ("&&", False)])
def test_a_condition_may_have_many_parts(db, sign, met):
    expression = f" {sign} ".join(f"x == {number}" for number in range(1_500))
    assert is_met("x: int", expression, context=[("x", 1_499)]) == met
