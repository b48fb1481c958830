"""Policies that were written to be tricky, with random facts of every kind that they accept.

case = written_case("denied inside", Random(3))
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from random import Random

from policy.language.source import Source
from policy.rules import compile_source
from policy.rules.program import Program
from policy.values import BOOLEAN, INTEGER, PRIMITIVES, STRING, Value
from tests.properties.draft import ODD_IDS, TRUTHS, Draft, Shape, Slot, strings
from tests.properties.questions import Question
from tests.properties.random_policies import Case, random_ask, random_case, random_evaluation, random_facts, random_goal

STATED = ("has_role", "has_relation", "has_group")  # facts for the most part, whatever rules there are
HEAD = """
actor User {} actor Group {}
resource Folder { roles = ["r0", "r1"]; permissions = ["p0", "p1"]; relations = { parent: Folder }; }
"""
WRITTEN = {
    "roles through groups": """
has_role(a: Actor, r: String, f: Folder) if has_group(a, g) and has_role(g, r, f);
has_permission(u: User, "p0", f: Folder) if has_role(u, "r0", f);
""",
    "denied inside": """
can(u: User, f: Folder) if owner(u, f);
can(u: User, f: Folder) if has_relation(f, "parent", p) and can(u, p) and not denied(u, f);
denied(a: Actor, f: Folder) if deny(a, f);
denied(a: Actor, f: Folder) if g matches Group and has_group(a, g) and applies(g, f) and denied(g, f);
has_permission(u: User, "p0", f: Folder) if can(u, f);
""",
    "nothing that is blocked or hidden": """
has_permission(u: User, "p0", d: Folder) if admin(u) and not (blocked(d) or not public(d));
has_permission(u: User, "p1", d: Folder) if admin(u) and not (blocked(x) or not public(x));
has_role(u: User, "r0", d: Folder) if reader(u, d) and not (maintenance(x) and urgent(x));
""",
    "two ways of another type": """
near(a: Actor, b: Actor) if has_group(a, b);
near(a: Actor, b: Actor) if has_group(a, c) and near(c, b);
over(a: Resource, f: Folder) if owns(a, f);
over(a: Resource, f: Folder) if has_group(a, b) and over(b, f);
over(a: Resource, f: Folder) if has_relation(f, "parent", p) and over(a, p);
has_permission(u: User, "p0", f: Folder) if near(u, g) and over(g, f) and not over(u, f);
has_permission(u: User, "p1", f: Folder) if over(f, p) and over(u, p);
""",
    "negated recursion of both arguments": """
hides(x: Resource, f: Folder) if hidden(x, f);
hides(x: Resource, f: Folder) if has_relation(f, "parent", p) and hides(x, p);
hides(x: Resource, f: Folder) if has_group(x, g) and hides(g, f);
sees(x: Resource, f: Folder) if seen(x, f);
sees(x: Resource, f: Folder) if has_relation(g, "parent", f) and sees(x, g) and not hides(x, f);
sees(x: Resource, f: Folder) if has_group(x, g) and sees(g, f) and not hides(x, f);
has_permission(u: User, "p0", f: Folder) if sees(u, f) and not (has_relation(f, "parent", p) and not sees(u, p));
""",
    "rounds that read rounds": """
inner(u: User, d: Folder) if near(u, d);
inner(u: User, d: Folder) if left(d, l) and inner(u, l) and right(d, r) and inner(u, r);
outer(u: User, d: Folder) if far(u, d) and not inner(u, d);
outer(u: User, d: Folder) if left(d, l) and outer(u, l) and right(d, r) and outer(u, r) and not inner(u, d);
has_permission(u: User, "p0", d: Folder) if outer(u, d) and not inner(u, d);
has_permission(u: User, "p0", d: Folder) if inner(u, d) and open(d);
has_permission(u: User, "p1", d: Folder) if outer(u, d) and special(d);
has_permission(u: User, "p1", d: Folder) if inner(u, d) and open(d);
""",
    "a role that changes on its way": """
has_role(a: Actor, "r1", f: Folder) if has_relation(f, "parent", p) and has_role(a, "r0", p);
has_role(a: Actor, "r0", f: Folder) if has_group(a, g) and has_role(g, "r1", f);
has_role(a: Actor, r: String, f: Folder) if swaps(r, s) and has_role(a, s, f);
has_permission(u: User, p: String, f: Folder) if gives(r, p) and has_role(u, r, f);
""",
    "backwards": """
below(f: Folder, g: Folder) if has_relation(f, "parent", g);
below(f: Folder, g: Folder) if has_relation(f, "parent", h) and below(h, g);
above(f: Folder, g: Folder) if below(g, f);
has_role(u: User, "r0", f: Folder) if above(f, g) and has_role(u, "r1", g) and not locked(g);
has_permission(u: User, "p0", f: Folder) if has_role(u, "r0", f) and not (above(f, g) and locked(g));
has_permission(u: User, "p1", f: Folder) if below(f, f) and has_role(u, "r0", f);
""",
    "everyone but some": """
member(_: User, g: Group) if open(g);
member(a: Actor, g: Group) if has_group(a, g);
member(a: Actor, g: Group) if has_group(a, h) and member(h, g);
has_permission(u: User, "p0", f: Folder) if member(u, g) and shared(g, f) and not barred(u, f);
has_permission(a: Actor, "p1", _: Folder) if member(a, g) and chief(g) and not barred(a, g);
barred(a: Actor, x: Resource) if bar(a, x);
barred(a: Actor, x: Resource) if has_group(a, g) and barred(g, x);
""",
    "one way within another": """
inside(a: Actor, g: Group) if has_group(a, g);
inside(a: Actor, g: Group) if has_group(a, h) and inside(h, g) and not frozen(h);
frozen(g: Group) if ice(g);
frozen(g: Group) if in_ice(g, h) and frozen(h);
in_ice(g: Group, h: Group) if cold(g, h);
in_ice(g: Group, h: Group) if cold(g, i) and in_ice(i, h) and not ice(i);
has_permission(u: User, "p0", f: Folder) if inside(u, g) and has_role(g, "r0", f) and not frozen(g);
""",
    "an end that is a start": """
reaches(x: Resource, x: Resource);
reaches(x: Resource, y: Resource) if next(x, z) and reaches(z, y);
has_permission(u: User, "p0", f: Folder) if reaches(u, f);
has_permission(u: User, "p1", f: Folder) if reaches(f, g) and g matches Group and reaches(u, g) and reaches(g, g);
has_role(u: User, "r0", f: Folder) if reaches(u, Group{"1"}) and not reaches(f, Group{"1"});
""",
    "nothing but negations": """
idle(a: Actor) if not busy(a);
busy(a: Actor) if has_group(a, g) and not idle_group(g);
idle_group(g: Group) if quiet(g) and not (has_group(x, g) and loud(x));
has_permission(u: User, "p0", f: Folder) if idle(u) and not not open(f);
has_permission(u: User, "p1", f: Folder) if not idle(u) and (open(f) or not (f = Folder{"1"}));
""",
    "two recursions through each other": """
a(x: Actor, f: Folder) if s(x, f);
a(x: Actor, f: Folder) if has_group(x, g) and b(g, f);
b(x: Actor, f: Folder) if t(x, f);
b(x: Actor, f: Folder) if has_relation(f, "parent", p) and a(x, p);
b(x: Actor, f: Folder) if a(x, f) and not closed(f);
has_permission(u: User, "p0", f: Folder) if a(u, f);
has_permission(u: User, "p1", f: Folder) if b(u, f) and not a(u, f);
""",
    "two answers at once": """
ok(u: Actor, f: Folder) if fine(u, f);
ok(u: Actor, f: Folder) if left(f, g) and right(f, h) and ok(u, g) and ok(u, h) and not bad(u, f);
ok(u: Actor, f: Folder) if has_group(u, g) and ok(g, f);
has_permission(u: User, "p0", f: Folder) if ok(u, f) and not (left(g, f) and ok(u, g));
""",
    "another user": """
helps(u: User, f: Folder) if owner(u, f);
helps(u: User, f: Folder) if friend(u, v) and u != v and helps(v, f);
helps(u: User, f: Folder) if friend(u, v) and helps(v, g) and has_relation(f, "parent", g) and f != g;
has_permission(u: User, "p0", f: Folder) if helps(u, f) and not (helps(v, f) and v != u);
has_permission(u: User, "p1", f: Folder) if helps(u, f) and helps(v, f) and u != v;
""",
    "levels on the way": """
rank(a: Actor, n: Integer) if level(a, n);
rank(a: Actor, n: Integer) if has_group(a, g) and rank(g, n);
has_permission(u: User, "p0", f: Folder) if rank(u, n) and needs(f, m) and n >= m;
has_permission(u: User, "p1", f: Folder) if needs(f, m) and not (rank(u, n) and n > m);
needs(f: Folder, n: Integer) if has_relation(f, "parent", p) and needs(p, n) and not (n < 0);
""",
    "from any to one": """
any(_: Resource, f: Folder) if open(f);
any(x: Resource, f: Folder) if link(x, y) and any(y, f);
any(x: Resource, _: Folder) if chief(x);
has_permission(u: User, "p0", f: Folder) if any(u, f) and not chief(u);
has_permission(u: User, "p1", f: Folder) if any(f, g) and any(u, g) and not open(g);
""",
    "either of two exceptions": """
free(a: Actor, f: Folder) if not barred(a) or not closed(f);
free(a: Actor, f: Folder) if trusted(a);
free(_: Actor, f: Folder) if open(f);
may(a: Actor, r: String, f: Folder) if not barred(a) or not odd(r) or (shared(f) and not odd(f));
has_permission(u: User, "p0", f: Folder) if free(u, f) and not trusted(u);
has_role(u: User, r: String, f: Folder) if may(u, r, f);
""",
    "some thing that nothing mentions": """
misses(u: User, d: Folder) if picky(u) and d != Folder{"1"};
has_all(u: User, d: Folder) if known(u) and not misses(u, d);
spares(u: User, d: Folder) if known(u) and not (misses(u, d) and not spared(d));
has_permission(u: User, "p0", f: Folder) if open(f) and has_all(u, d) and not locked(d);
has_permission(u: User, "p1", f: Folder) if open(f) and spares(u, d) and not not locked(d);
""",
    "two ways from what nothing mentions": """
inside(d: Folder, d: Folder);
inside(d: Folder, f: Folder) if near(d, e) and inside(e, f);
below(d: Folder, d: Folder);
below(d: Folder, f: Folder) if has_relation(d, "parent", e) and below(e, f);
apart(u: User, d: Folder) if known(u) and not (inside(d, e) and below(d, e));
alone(u: User, d: Folder) if known(u) and not (inside(d, e) and e != Folder{"1"} and not inside(e, Folder{"2"}));
has_permission(u: User, "p0", f: Folder) if open(f) and apart(u, d) and not locked(d);
has_permission(u: User, "p1", f: Folder) if open(f) and alone(u, d) and not locked(d);
""",
    "two that nothing mentions": """
any(_: Folder);
same(d: Folder, d: Folder);
inside(d: Folder, d: Folder);
inside(d: Folder, f: Folder) if has_relation(d, "parent", e) and inside(e, f);
has_permission(u: User, "p0", f: Folder) if open(f) and any(d) and any(e) and not inside(d, e) and not same(e, f);
has_permission(u: User, "p1", f: Folder) if open(f) and known(u) and not two(u, f);
two(u: User, _: Folder) if any(d) and any(e) and not (same(d, e) or bad(u, d));
""",
    "a way back to what nothing mentions": """
any(_: Folder);
reaches(d: Folder, d: Folder);
reaches(d: Folder, f: Folder) if near(d, e) and reaches(e, g) and open(g) and near(f, g);
round(d: Folder, _: Folder) if reaches(d, e) and reaches(e, d);
has_permission(u: User, "p0", f: Folder) if known(u) and open(f) and any(d) and any(e) and not round(d, e);
has_permission(u: User, "p1", f: Folder) if known(u) and any(d) and not round(d, f) and not locked(d);
""",
}


def written_case(name: str, rng: Random) -> Case:
    return case_for(HEAD + WRITTEN[name], name, rng)


def case_for(text: str, name: str, rng: Random) -> Case:
    """The policy with random facts and questions, of as many kinds as it knows."""
    program = compile_source(Source(text))
    draft = drafted(program, rng)
    only_derived = {shape.predicate for shape in draft.derived.values()} - set(STATED)
    likely = [name for name, shape in draft.shapes.items() if shape.predicate not in only_derived or draft.often(0.1)]
    draft.shapes = {name: draft.shapes[name] for name in likely}
    facts = random_facts(draft, rng.randint(2, 40))
    context = [fact for fact in random_facts(draft, rng.randint(0, 6)) if fact not in facts]
    asked = random_ask if draft.actors() else random_evaluation
    questions = tuple(Question(asked(draft), draft.often(0.4)) for _ in range(6))
    goals = tuple(random_goal(draft) for _ in range(4))
    ids = tuple(value for slot in draft.ids.values() for value in slot)
    return Case((), (text,), tuple(facts), tuple(context), questions, (name,), ids, goals)


def some_case(seed: int, rng: Random, features: Collection[str], is_written: bool) -> Case:
    """A written policy, where one is wanted; else now and then, unless features are."""
    if is_written or (not features and rng.random() < 0.25):
        return written_case(list(WRITTEN)[seed % len(WRITTEN)], rng)
    return random_case(rng, features)


def drafted(program: Program, rng: Random) -> Draft:
    """What facts and questions there are for the program, by its own account."""
    draft = Draft(rng)
    shared = ("1", "2", "3") if rng.random() < 0.8 else tuple(rng.sample(ODD_IDS, 3))
    for name, declared in program.types.items():
        block = draft.actor(name) if declared.kind == "actor" else draft.resource(name)
        draft.blocks[block].permissions = declared.permissions
        draft.ids[name] = tuple(Value(name, an_id) for an_id in shared)
    for (predicate, _), patterns in sorted(program.accepted.items()):
        for types in sorted(itertools.chain.from_iterable(itertools.product(*map(sorted, each)) for each in patterns)):
            slots = tuple(values_of(draft, name) for name in types)
            draft.shapes[f"{predicate}{types}"] = Shape(predicate, slots)
            if program.rules_by_predicate.get((predicate, len(types))):
                draft.derived[f"{predicate}{types}"] = Shape(predicate, slots)
    return draft


def values_of(draft: Draft, type_name: str) -> Slot:
    primitive = {STRING: strings(("r0", "r1", "p0", "parent")), INTEGER: draft.numbers, BOOLEAN: TRUTHS}
    return primitive[type_name] if type_name in PRIMITIVES else draft.ids[type_name]
