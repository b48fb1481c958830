"""Several recursions in one question: each is planned for itself, whatever the others turn out to need."""

from random import Random

import pytest

from policy.language import parse
from policy.language.source import Source
from policy.rules.program import Signature
from policy.values import STRING, Value
from tests.checks.in_memory import Engine
from tests.reference import World, model_of

POLICY = """
actor User {}
resource Node {}
p(x: Node, y: Node) if q(x, y);
p(x: Node, y: Node) if
  q3(x, y, w) and w matches Node and p(w, v) and v matches Node and not bad(v, y) and not bad2(v, y);
r(x: Node) if q(x, a) and a matches Node and p(a, y) and y matches Node and p(y, z) and z matches Node;
d(x: Node) if f(x);
d(x: Node) if e(x, w) and w matches Node and d(w);
s(x: Node, _v: Node) if open(x);
s(x: Node, y: Node) if q3(x, y, w) and w matches Node and s(w, v) and v matches Node and not bad2(v, y);
up(x: Node, k: Node) if e(x, g) and g matches Node and up(g, k);
up(x: Node, k: Node) if grant(x, t) and t matches Node and both(t, k);
both(t: Node, k: Node) if q(t, k);
both(t: Node, k: Node) if e(t, u) and u matches Node and e3(k, l) and l matches Node and both(u, l);
way(a: Node, b: Node) if q(a, b);
way(a: Node, b: Node) if q(a, w) and w matches Node and up(b, k) and k matches Node and way(w, k);

allow(_: User, "twice", x: Node) if q(x, a) and a matches Node and p(a, y) and y matches Node and p(y, z) and z matches Node;
allow(_: User, "not", x: Node) if q(x, a) and a matches Node and p(a, y) and y matches Node and not r(y) and d(y);
allow(_: User, "all", x: Node) if
  q(x, a) and a matches Node and p(a, y) and y matches Node and p(y, z) and z matches Node and not r(y);
allow(_: User, "guarded", x: Node) if q(x, a) and a matches Node and s(a, y) and y matches Node;
allow(_: User, "inner", x: Node) if q(x, b) and b matches Node and way(x, b);
"""  # noqa: E501
TWO, THREE = ("q", "bad", "bad2", "e", "e3", "grant"), ("q3",)
NODES = [Value("Node", str(number)) for number in range(4)]


def some_facts(seed: int) -> list[tuple[str, tuple[Value, ...]]]:
    random = Random(seed)
    arities = dict.fromkeys(TWO, 2) | dict.fromkeys(THREE, 3) | {"f": 1, "open": 1}
    return [(name, tuple(random.choices(NODES, k=arity))) for name, arity in arities.items() for _ in range(4)]


@pytest.mark.parametrize("seed", range(8))
def test_recursions_beside_and_inside_each_other_are_decided_as_they_mean(seed):
    facts, engine = some_facts(seed), Engine(POLICY)
    for name, row in facts:
        engine.store(name, *(f"Node:{value.id}" for value in row))
    policy, user = parse(Source(POLICY)), Value("User", "u")
    world = World.of(policy, facts, [user, *NODES])
    allowed = model_of(policy, facts, world)["allow", 3]
    for action in ("twice", "not", "all", "guarded", "inner"):
        wanted = [(user, Value(STRING, action), node) in allowed for node in NODES]
        found = [engine.ask("authorize", action, "Node", actor="u", resource=node.id) for node in NODES]
        assert found == wanted, action


INSIDE = """
actor User {}
resource Doc { permissions = ["read", "write"]; relations = { left: Doc, right: Doc }; }
inner(u: User, d: Doc) if near(u, d);
inner(u: User, d: Doc) if has_relation(d, "left", l) and inner(u, l) and has_relation(d, "right", r) and inner(u, r);
outer(u: User, d: Doc) if far(u, d) and not inner(u, d);
outer(u: User, d: Doc) if has_relation(d, "left", l) and outer(u, l)
  and has_relation(d, "right", r) and outer(u, r) and not inner(u, d);
has_permission(u: User, "read", d: Doc) if outer(u, d) and not inner(u, d);
has_permission(u: User, "read", d: Doc) if inner(u, d) and open(d);
has_permission(u: User, "write", d: Doc) if outer(u, d) and special(d);
has_permission(u: User, "write", d: Doc) if inner(u, d) and open(d);
"""


@pytest.mark.parametrize(("action", "wanted"), [("read", ["2", "3", "4"]), ("write", ["2", "4"])])
def test_rounds_that_others_read_are_read_beside_them(action, wanted):
    """By the statement too: what each came to has a name of its own."""
    engine = Engine(INSIDE)
    for predicate, docs in {"near": "12", "far": "134"}.items():
        engine.store_all(Signature(predicate, ("User", "Doc")), [("ann", doc) for doc in docs])
    for predicate, docs in {"open": "23", "special": "4"}.items():
        engine.store_all(Signature(predicate, ("Doc",)), [(doc,) for doc in docs])
    assert engine.ask("list", action, actor="ann") == wanted
    assert [doc for doc in "12345" if engine.ask("authorize", action, actor="ann", resource=doc)] == wanted
    assert len(engine.compiled("list", action).rounds) == 2


NAMED = """
actor User {}
resource Org { roles = ["r0"]; permissions = ["read", "write"]; relations = { above: Org }; "r0" if "r0" on "above"; }
has_permission(user: User, "read", r: Org) if role in ["r0", "r2"] and has_role(user, role, r);
has_permission(user: User, "write", r: Org) if has_role(user, "r0", r);
above(x: User, y: User);
has_role(boss: User, role: String, r: Org) if above(boss, u) and has_role(u, role, r);
"""


@pytest.mark.parametrize("action", ["read", "write"])
def test_a_role_that_becomes_known_on_the_way_goes_on_by_what_no_path_has_followed(action):
    """Any role goes from user to user, and only "r0" from org to org too: a path for any role follows users alone."""
    engine = Engine(NAMED)
    engine.store("has_role", "User:u0", "r0", "Org:o1")
    engine.store("has_relation", "Org:o0", "above", "Org:o1")
    assert [engine.ask("authorize", action, "Org", actor="u2", resource=org) for org in ("o0", "o1")] == [True, True]
    assert engine.ask("list", action, "Org", actor="u2") == ["o0", "o1"]
