"""Lists of everyone, by rules that say "everyone but some"."""

import pytest

from tests.checks.conftest import fact, publish, store

POLICY = """
actor User {}
actor Group {}
resource Folder { permissions = ["read"]; }

has_permission(a: Actor, "read", _: Folder) if member(a, g) and chief(g) and not barred(a, g);
barred(a: Actor, x: Resource) if bar(a, x);
"""


def who_reads(api) -> dict:
    user, folder = {"type": "User", "id": None}, {"type": "Folder", "id": None}
    pattern = {"predicate": "has_permission", "args": [user, {"type": "String", "id": "read"}, folder]}
    return api.post("/query", {"fact": pattern}).json()


def is_everyone(found: dict) -> bool:
    (said,) = found["results"]
    return [each["id"] for each in said["args"]] == [None, "read", None]


def test_who_is_kept_back_in_one_place_may_have_it_by_another(api):
    publish(api, POLICY + "member(_: User, g: Group) if open(g);")
    store(api, *(fact(name, f"Group:{each}") for name in ("open", "chief") for each in "12"))
    assert is_everyone(who_reads(api))
    store(api, fact("bar", "User:ann", "Group:1"))
    assert is_everyone(who_reads(api))
    store(api, fact("bar", "User:ann", "Group:2"))
    assert "all values except some, such as `ann`" in who_reads(api)["message"]


def test_what_only_the_exception_looks_at_is_read(api):
    """Nothing else of the rule names the group, and a question without values has to be run besides."""
    publish(api, POLICY + "member(_: User, g: Group) if not barred(u, f);")
    store(api, fact("chief", "Group:1"))
    assert is_everyone(who_reads(api))
    store(api, fact("bar", "User:ann", "Group:1"))
    assert who_reads(api) == {"results": []}


def test_what_two_exceptions_keep_back_together_is_kept_back(api):
    """Each rule grants nearly all that the other keeps back, and neither grants barred people what is closed."""
    publish(api, "actor User {} resource Folder {} may(u: User, f: Folder) if not barred(u) or not closed(f);")
    pattern = {"predicate": "may", "args": [{"type": "User", "id": None}, {"type": "Folder", "id": None}]}
    store(api, fact("barred", "User:ann"))
    (everyone,) = api.post("/query", {"fact": pattern}).json()["results"]
    assert [each["id"] for each in everyone["args"]] == [None, None]
    store(api, fact("closed", "Folder:f"))
    assert "all values except some" in api.post("/query", {"fact": pattern}).json()["message"]


CHAIN = """
actor User { roles = ["m"]; relations = { boss: User }; "m" if "boss"; permissions = ["see"]; "see" if "m"; }
has_role(a: User, "m", r: User) if x matches User and has_role(a, "m", x) and not has_relation(r, "boss", x);
"""


def test_a_decision_is_made_where_a_list_would_be_all_but_some(api):
    """Who has the role anywhere has it wherever that is not the boss, and so on from there: a chain of exceptions."""
    publish(api, CHAIN)
    store(api, fact("has_relation", "User:b", "boss", "User:a"))
    for resource in "bc":
        user = {"actor_type": "User", "actor_id": "a", "resource_type": "User", "resource_id": resource}
        assert api.post("/authorize", user | {"action": "see"}).json() == {"allowed": True}
        assert api.post("/actions", user).json() == {"results": ["see"]}
        assert api.post("/bulk_actions", [user]).json() == [{"results": ["see"]}]
        value = {"type": "User", "id": resource}
        actor = {"actor_type": "User", "actor_id": "a"}
        found = api.post("/authorize_resources", actor | {"action": "see", "resources": [value]}).json()
        assert found == {"results": [value]}
        check = {"actor": {"type": "User", "id": "a"}, "action": "see", "resource": value}
        assert api.post("/authorize_each", {"checks": [check, check]}).json() == {"results": [True, True]}
        names = {"who": {"type": "User", "ids": ["a"]}, "what": {"type": "String", "ids": ["see"]}}
        where = {"where": {"type": "User", "ids": [resource]}}
        query = {"predicate": ["allow", ["who", "what", "where"]], "calls": [], "constraints": names | where}
        explained = api.post("/explain", query)
        assert explained.status_code == 200, explained.content
        assert explained.json()["calls"][0]["allowed"] is True


MEMBERS = """
actor User {} actor Team {} resource Item {}
ok(a: User, i: Item) if t1 matches Team and has_team(i, t1) and m(t1, a) and %s;
"""
TEAM = "t2 matches Team and has_team(i, t2) and not m(t2, a)"
GUEST = "t4 matches Team and has_guest(i, t4) and not m(t4, a)"


@pytest.mark.parametrize("exceptions", [f"not ({TEAM})", f"not ({TEAM} or {GUEST})", f"not ({TEAM}) and not ({GUEST})"])
def test_a_list_whose_variables_facts_bind_is_answered(api, exceptions):
    publish(api, MEMBERS % exceptions)
    store(api, fact("has_team", "Item:i", "Team:t"), fact("m", "Team:t", "User:tom"))
    constraints = {"a": {"type": "User", "ids": None}, "i": {"type": "Item", "ids": ["i"]}}
    query = {"predicate": ["ok", ["a", "i"]], "calls": [], "constraints": constraints}
    assert api.post("/evaluate_query", query).json()["results"] == [{"a": "tom", "i": "i"}]


BETWEEN = "between(n: Integer) if n > 3 and n < 6 and not taken(n); ok(u: User) if known(u) and between(n);"
PAIR = "pair(x: User, y: User) if x != y and not known(x) and not known(y); ok(u: User) if known(u) and pair(x, y);"
TRIO = (
    "trio(x: User, y: User, z: User) if x != y and y != z and x != z and not known(x) and not known(y)"
    " and not known(z); ok(u: User) if known(u) and trio(x, y, z);"
)
TWO = "any(_: User); same(x: User, x); ok(u: User) if known(u) and any(x) and any(y) and not same(x, y);"
SOME_OTHER = (
    "any(_: User); same(x: User, x); other(x: User, y: User) if any(x) and any(y) and not same(x, y);"
    " p(x: User) if same(x, z) and other(z, y); ok(u: User) if known(u) and any(x) and not p(x);"
)
THREE = (
    "any(_: User); same(x: User, x); ok(u: User) if known(u) and any(x) and any(y) and any(z) and not same(x, y)"
    " and not same(y, z) and not same(x, z);"
)
ROW = (
    "row(a: Integer, b: Integer, c: Integer, d: Integer, e: Integer) if 10 < a and a < b and b < c and c < d and d < e"
    " and e < {}; ok(u: User) if known(u) and row(a, b, c, d, e);"
)
NUMBER = "any(_: Integer); has_1(x: Integer, y: Integer) if any(z) and x < z and z < y;"
SEVEN = NUMBER + "".join(
    f" has_{n + 1}(x: Integer, y: Integer) if any(z) and x < z and z < y and has_{n}(z, y);" for n in range(1, 7)
)
SEVEN += " ok(u: User) if known(u) and {}has_7(10, 18);"
LARGEST = "beyond(n: Integer) if not taken(n) and n > 9223372036854775806; ok(u: User) if known(u) and beyond(n);"
OUT = "some(_: Integer); ok(u: User) if known(u) and some(n) and not within(n);"
LARGER = f"within(n: Integer) if n <= 9223372036854775806; {OUT}"
SMALLER = f"within(n: Integer) if n >= -9223372036854775807; {OUT}"
TRUTH = "open(b: Boolean) if not taken(b); ok(u: User) if known(u) and open(b);"


@pytest.mark.parametrize(
    ("rules", "taken", "is_ok"),
    [
        (BETWEEN, ["4"], True),
        (BETWEEN, ["4", "5"], False),
        (BETWEEN, [], True),
        (PAIR, [], True),
        (TRIO, [], True),
        (TWO, [], True),
        (THREE, [], True),
        (SOME_OTHER, [], False),
        (ROW.format(20), [], True),
        (ROW.format(15), [], False),
        (SEVEN.format(""), [], True),
        (SEVEN.format("not "), [], False),
        (LARGEST, [], True),
        (LARGEST, ["9223372036854775807"], False),
        (LARGER, [], True),
        (SMALLER, [], True),
        (TRUTH, ["true"], True),
        (TRUTH, ["true", "false"], False),
    ],
)
def test_what_only_tests_mention_has_any_value_of_its_type(api, rules, taken, is_ok):
    """Numbers between others and at either end, values that nothing mentions, and no more truths than two."""
    publish(api, f"actor User {{}} {rules}")
    kind = "Boolean" if rules == TRUTH else "Integer"
    store(api, fact("known", "User:ann"), *(fact("taken", f"{kind}:{each}") for each in taken))
    query = {"predicate": ["ok", ["u"]], "calls": [], "constraints": {"u": {"type": "User", "ids": ["ann"]}}}
    assert api.post("/evaluate_query", query).json() == {"results": [{"u": "ann"}] if is_ok else []}
    explained = api.post("/explain", query)
    assert explained.status_code == 200, explained.content
    assert explained.json()["calls"][0]["allowed"] is is_ok


EVEN = (
    f"{NUMBER} next(x: Integer, y: Integer) if x < y and not has_1(x, y);"
    " even(0); even(y: Integer) if even(x) and next(x, z) and next(z, y); ok(u: User) if known(u) and even({});"
)
WITHIN = (
    "within(x: Integer, y: Integer) if part(x, z) and within(z, y) and x < z; within(x: Integer, y: Integer) if y > x;"
    " ok(u: User) if known(u) and within(1, 9);"
)


def test_numbers_without_facts_are_not_counted_by_recursion(api):
    """Which would take as many of them as there are; those that facts have may be compared so."""
    publish(api, f"actor User {{}} {EVEN.format(20)}")
    store(api, fact("known", "User:ann"))
    query = {"predicate": ["ok", ["u"]], "calls": [], "constraints": {"u": {"type": "User", "ids": ["ann"]}}}
    answer = api.post("/evaluate_query", query)
    assert (answer.status_code, "compare Integers that no fact has" in answer.json()["message"]) == (400, True)
    publish(api, f"actor User {{}} {WITHIN}")
    assert api.post("/evaluate_query", query).json() == {"results": [{"u": "ann"}]}


def test_given_resources_are_always_answered(api):
    """A rule that only compares a value refuses a list of all resources, but not of those that are given."""
    publish(api, """
        actor User {} actor Group {} resource Doc { permissions = ["read"]; }
        seen(x: User, word: String, d: Doc) if x != User{"3"} and word = "r1" and d matches Doc;
        hidden(x: Group, d: Doc) if banned(d, x) or not seen(_, "r1", d);
        has_permission(u: User, "read", d: Doc) if hidden(_, d) and u matches User;
    """)  # fmt: skip
    resources = [{"type": "Doc", "id": "a"}, {"type": "User", "id": "b"}, {"type": "Doc", "id": "c"}]
    body = {"actor_type": "User", "actor_id": "ann", "action": "read", "resources": resources}
    answer = api.post("/authorize_resources", body)
    assert (answer.status_code, answer.json()["results"]) == (200, [])
    store(api, fact("banned", "Doc:c", "Group:g"))
    assert api.post("/authorize_resources", body).json()["results"] == [{"type": "Doc", "id": "c"}]


NUMBERS = """
actor User {}
is_taken(n: Integer, u: User, name: String) if has(u, m) and name != "open" and not frees(m, n);
is_free(n: Integer, u: User, name: String) if not is_taken(n, u, name) and n != 7;
has_any(u: User, name: String) if is_free(n, u, name);
"""


def test_a_name_that_a_rule_compares_is_no_number(api):
    """The numbers that rules mention, and their neighbours, are tried; `name != "open"` mentions none."""
    publish(api, NUMBERS)
    store(api, fact("has", "User:ann", "Integer:3"))
    ann, gold = {"type": "User", "ids": ["ann"]}, {"type": "String", "ids": ["gold"]}
    query = {"predicate": ["has_any", ["u", "name"]], "calls": [], "constraints": {"u": ann, "name": gold}}
    assert api.post("/evaluate_query", query).json() == {"results": []}
    store(api, fact("frees", "Integer:3", "Integer:5"))
    assert api.post("/evaluate_query", query).json() == {"results": [{"u": "ann", "name": "gold"}]}


def test_a_denial_is_explained_as_far_as_values_can_be_listed(api):
    """The decision is an answer, even if no values can be shown for which the rule gets furthest."""
    publish(api, """
        actor User {}
        is_other(n: String, u: User, name: String) if n != "go";
        are_two(n: String, m: String, u: User, name: String) if not is_other(m, u, name) and is_other(m, u, name);
        may(u: User, name: String) if are_two(n, m, u, name);
    """)  # fmt: skip
    ann, word = {"type": "User", "ids": ["ann"]}, {"type": "String", "ids": ["s"]}
    query = {"predicate": ["may", ["u", "name"]], "calls": [], "constraints": {"u": ann, "name": word}}
    assert api.post("/evaluate_query", query).json() == {"results": []}
    said = api.post("/explain", query)
    assert said.status_code == 200, said.content
    assert (said.json()["allowed"], said.json()["complete"]) == (False, False)
    assert "cannot list the values of `n`" in said.json()["message"]
