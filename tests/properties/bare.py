"""Random programs of few rules without blocks: negation in negation, recursion, and variables that nothing binds.

bare_case(Random(7))                        # heads with wildcards, and with variables that only tests mention
bare_case(Random(7), is_restricted=True)    # facts bind every variable of every rule
bare_case(Random(7), is_mixed=True)         # subtypes, values and variables twice in heads, `matches`, lists, context
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from policy.models import Environment
from policy.values import BOOLEAN, INTEGER, STRING, Value
from tests.properties import ask_adapter
from tests.properties.ask_adapter import Caller, PastLimit
from tests.properties.questions import (
    Actions,
    Ask,
    Authorize,
    AuthorizeResources,
    Evaluate,
    Explain,
    List,
    QueryFacts,
    Question,
)
from tests.properties.random_policies import RESTRICTED, Case, is_policy

IDS = {"User": ("a", "b"), "Doc": ("d", "e"), INTEGER: ("3", "5"), STRING: ("s",), BOOLEAN: ("true",)}
COMMON = ("User", "User", "Doc", "Doc", INTEGER, STRING, BOOLEAN)
FACTS = {"e1": 1, "e2": 2, "e3": 2}
DERIVED = {"w0": 2, "w1": 1, "w2": 2}
TYPES = "actor User {}\nresource Doc {}"
QUESTIONS = 12
MOST_FACTS = 9
TOO_LARGE = "what the database takes"  # the limit of a statement's size


def bare_case(rng: Random, is_restricted: bool = False, is_mixed: bool = False) -> Case:
    """A case that the compiler takes, with facts that its rules may use."""
    if is_mixed:
        return _mixed_case(rng)
    while True:
        features = (RESTRICTED,) if is_restricted else ()
        case = Case((), (TYPES, *_Rules(rng, is_restricted).all()), (), (), (), features, ())
        if is_policy(case):
            facts = tuple({_fact(rng): None for _ in range(rng.randint(0, MOST_FACTS))})
            questions = tuple(Question(_ask(rng, is_restricted), with_context=False) for _ in range(QUESTIONS))
            return replace(case, facts=facts, questions=questions)


def now_and_then(caller: Caller, ask: Ask) -> Any:
    """Ask now, and as of now: where that is answered otherwise, or refused for its size only then, it is no answer."""
    said = ask_adapter.ask(caller, ask)
    environment = Environment.objects.get(slug=caller.key.split("_")[1])
    try:
        then = ask_adapter.ask(replace(caller, as_of=environment.offset), ask)
    except PastLimit as limit:
        assert str(limit) != TOO_LARGE, f"as of now, {ask} needs too large a statement"
        return said
    are_proofs = isinstance(said, dict) and isinstance(then, dict)
    is_same = said["allowed"] == then["allowed"] if are_proofs else said == then
    assert is_same, f"as of now, {ask} is {then}, and now {said}"
    return said


class _Rules:
    def __init__(self, rng: Random, is_restricted: bool):
        self.rng, self.is_restricted = rng, is_restricted

    def all(self) -> list[str]:
        names = [*DERIVED, *self.rng.choices(list(DERIVED), k=self.rng.randint(0, 2))]
        return [*map(self.rule, names), f'has_permission(h0: User, "go", h1: Doc) if {self.body(["h0", "h1"])};']

    def rule(self, name: str) -> str:
        heads, params = [f"h{place}" for place in range(DERIVED[name])], []
        for head in list(heads):
            kind = self.rng.choice(COMMON)
            if not self.is_restricted and self.rng.random() < 0.2:
                heads.remove(head)
                head = "_"
            params.append(f"{head}: {kind}" if self.rng.random() < 0.8 else head)
        return f"{name}({', '.join(params)}) if {self.body(heads)};"

    def body(self, heads: list[str]) -> str:
        parts = [self.atom(heads) for _ in range(self.rng.choice((0, 1, 1, 2)))]
        if self.is_restricted:
            parts += [f"{self.rng.choice(('e2', 'e3'))}({head}, _)" for head in heads]
        parts += [self.exception(heads, 2) for _ in range(self.rng.choice((0, 1, 1, 2)))]
        if self.rng.random() < 0.15:
            parts.append(self.comparison(heads))
        self.rng.shuffle(parts)
        return " and ".join(parts) or self.atom(heads)

    def atom(self, heads: list[str]) -> str:
        name, arity = self.rng.choice([*FACTS.items(), *DERIVED.items()])
        return f"{name}({', '.join(self.argument(heads) for _ in range(arity))})"

    def argument(self, heads: list[str]) -> str:
        return self.rng.choice([*heads, *heads, "y0", "y1", "y1", "_", "5" if self.rng.random() < 0.3 else "y0"])

    def exception(self, heads: list[str], depth: int) -> str:
        parts = [self.atom(heads) for _ in range(self.rng.choice((1, 1, 2)))]
        if depth and self.rng.random() < 0.45:
            parts.append(self.exception(heads, depth - 1))
        return f"not ({self.rng.choice((' and ', ' or ')).join(parts)})"

    def comparison(self, heads: list[str]) -> str:
        left, right = self.rng.choice([*heads, "y0"]), self.rng.choice([*heads, "y1", "4"])
        return f"{left} {self.rng.choice(('!=', '<', '>='))} {right}"


def _fact(rng: Random) -> tuple[str, tuple[Value, ...]]:
    name = rng.choice(list(FACTS))
    return name, tuple(_value(rng) for _ in range(FACTS[name]))


def _value(rng: Random) -> Value:
    kind = rng.choice(COMMON)
    return Value(kind, rng.choice(IDS[kind]))


def _ask(rng: Random, is_restricted: bool) -> Ask:
    """A question about given values, some of which nothing mentions; every other one is a list, if it can be told."""
    user = Value("User", rng.choice((*IDS["User"], "nobody")))
    doc = Value("Doc", rng.choice((*IDS["Doc"], "none")))
    if rng.random() < 0.25:
        return List(user, "go", "Doc") if is_restricted else Authorize(user, "go", doc)
    if rng.random() < 0.1:
        return Explain("has_permission", (user, Value(STRING, "go"), doc))
    name = rng.choice(list(DERIVED))
    constraints = []
    for place in range(DERIVED[name]):
        value = _value(rng)
        is_open = is_restricted and rng.random() < 0.6
        constraints.append((f"v{place}", value.type, None if is_open else (value.id,)))
    return Evaluate(((name, tuple(each for each, _, _ in constraints)),), tuple(constraints))


# ---- subtypes, values in heads, `matches`, lists, and context facts ------------------------------------------------

MIXED_TYPES = """actor User {}
actor Bot extends User {}
actor Crew {}
resource Doc { relations = { up: Doc }; }
resource Page extends Doc {}
global { roles = ["boss"]; permissions = ["rule"]; "rule" if "boss"; }"""
MIXED_IDS = {
    "User": ("a", "b"), "Bot": ("a",), "Crew": ("a", "k"), "Doc": ("a", "d"), "Page": ("a",),
    INTEGER: ("3", "5"), STRING: ("s", "a"), BOOLEAN: ("true", "false"),
}  # fmt: skip
KINDS = ("User", "Bot", "Crew", "Doc", "Page", "Actor", "Resource", "Resource", INTEGER, STRING, BOOLEAN)
MIXED_FACTS = {"e1": 1, "e2": 2, "e3": 3, "has_group": 2, "has_role": 3, "has_relation": 3, "e5": 5}
STRATA = (("w0", 2), ("w1", 2), ("has_role", 3)), (("w2", 1), ("w3", 3), ("w4", 2)), (("w5", 2), ("has_permission", 3))
MOST_MIXED_FACTS = 24
UNMENTIONED = {INTEGER: "77", BOOLEAN: "false"}


def _mixed_case(rng: Random) -> Case:
    while True:
        rules = _MixedRules(rng)
        case = Case((), (MIXED_TYPES, *rules.all()), (), (), (), (), ())
        if is_policy(case):
            facts = tuple({_mixed_fact(rng): None for _ in range(rng.randint(0, MOST_MIXED_FACTS))})
            context = tuple({_mixed_fact(rng): None for _ in range(rng.randint(0, 5))}.keys() - set(facts))
            asked = tuple(Question(_mixed_ask(rng), with_context=rng.random() < 0.3) for _ in range(QUESTIONS))
            return replace(case, facts=facts, context=context, questions=asked)


class _MixedRules(_Rules):
    """Each stratum calls itself and those below, and excepts what is below."""

    def __init__(self, rng: Random):
        super().__init__(rng, is_restricted=False)
        self.below: list[tuple[str, int]] = []
        self.here: list[tuple[str, int]] = []
        self.is_excepting = False

    def all(self) -> list[str]:
        found = []
        self.below = list(MIXED_FACTS.items())
        for stratum in STRATA:
            self.here = list(stratum)
            found += [self.sound(*each) for each in (*stratum, *self.rng.choices(stratum, k=3))]
            if self.rng.random() < 0.4:
                name, _ = self.rng.choice([each for each in stratum if each[1] == 2])
                found += self.rng.sample(_closures(self.rng, name), self.rng.randint(1, 2))
            self.below += stratum
        return found

    def sound(self, name: str, arity: int) -> str:
        """A rule that the compiler takes, by itself."""
        while True:
            rule = self.mixed(name, arity)
            if is_policy(Case((), (MIXED_TYPES, rule), (), (), (), (), ())):
                return rule

    def mixed(self, name: str, arity: int) -> str:
        heads, params = [], []
        for place in range(arity):
            kind, chance = self.rng.choice(KINDS), self.rng.random()
            if name.startswith("has_") and place < 2:
                kind = ("User", STRING)[place]
            if chance < 0.1:
                params.append(self.literal(kind) if kind in MIXED_IDS and kind != BOOLEAN else f"_: {kind}")
            elif chance < 0.2:
                params.append(f"_: {kind}" if self.rng.random() < 0.7 else "_")
            elif chance < 0.27 and heads:
                params.append(self.rng.choice(heads))
            else:
                heads.append(f"h{place}")
                params.append(f"h{place}: {kind}" if chance < 0.85 else f"h{place}")
        return f"{name}({', '.join(params)}) if {self.body(heads)};"

    def literal(self, kind: str = "") -> str:
        kind = kind or self.rng.choice(list(MIXED_IDS))
        return str(Value(kind, self.rng.choice(MIXED_IDS[kind])))

    def atom(self, heads: list[str]) -> str:
        own = [] if self.is_excepting else 2 * self.here
        pool = [*(each for each in self.below if each not in self.here), *own]
        name, arity = self.rng.choice(pool)
        return f"{name}({', '.join(self.argument(heads) for _ in range(arity))})"

    def argument(self, heads: list[str]) -> str:
        chance = self.rng.random()
        if chance < 0.08:
            return self.literal()
        return "_" if chance < 0.18 else self.rng.choice([*heads, *heads, "y0", "y1"])

    def exception(self, heads: list[str], depth: int) -> str:
        before, self.is_excepting = self.is_excepting, True
        try:
            return super().exception(heads, depth)
        finally:
            self.is_excepting = before

    def comparison(self, heads: list[str]) -> str:
        left = self.rng.choice([*heads, "y0"])
        match self.rng.randint(0, 6):
            case 0 | 1:
                return f"{left} {self.rng.choice(('matches', 'matches!'))} {self.rng.choice(KINDS[:5])}"
            case 2:
                return f"not {left} matches {self.rng.choice(KINDS)}"
            case 3:
                return f"{left} in [{self.literal()}, {self.literal()}]"
            case 4:
                return f"{left} = {self.rng.choice([*heads, 'y1', self.literal()])}"
        return f"{left} {self.rng.choice(('!=', '!=', '<', '>='))} {self.rng.choice([*heads, 'y1', self.literal()])}"

    def body(self, heads: list[str]) -> str:
        parts = [self.atom(heads) for _ in range(self.rng.choice((1, 1, 2, 3)))]
        parts += [self.exception(heads, 1) for _ in range(self.rng.choice((0, 0, 1, 1, 2)))]
        parts += [self.comparison(heads) for _ in range(self.rng.choice((0, 0, 1, 1, 2)))]
        if self.rng.random() < 0.15:
            parts.append(f"({self.atom(heads)} or {self.atom(heads)} and {self.comparison(heads)})")
        self.rng.shuffle(parts)
        return " and ".join(parts)


def _closures(rng: Random, name: str) -> list[str]:
    kinds = rng.choice((("", "", ""), (": Doc", ": Doc", ": Doc"), (": Resource", ": Resource", ": Resource")))
    x, y, z = (f"{each}{kind}" for each, kind in zip("xyz", kinds))
    guard = rng.choice(("", "", " and not e1(y)", " and e1(y)", ' and y != Doc{"a"}'))
    return [
        f"{name}({x}, {z}) if {name}(x, y) and {name}(y, z){guard};",
        f"{name}({y}, {x}) if {name}(x, y);",
        f'{name}({x}, {z}) if {name}(x, y) and has_relation(y, "up", z);',
        f"{name}({x}, {z}) if has_group(x, y) and {name}(y, z);",
    ]


def _mixed_fact(rng: Random) -> tuple[str, tuple[Value, ...]]:
    name = rng.choice([each for each in MIXED_FACTS for _ in range(1 if each == "e5" else 3)])
    if name == "has_relation":
        return name, (_of(rng, "Doc", "Page"), Value(STRING, rng.choice(("up", "up", "s"))), _of(rng, "Doc", "Page"))
    if name == "has_group":
        return name, (_of(rng, "User", "Bot", "Crew"), _of(rng, "Crew", "User"))
    if name == "has_role":
        return name, (_of(rng, "User", "Bot"), Value(STRING, rng.choice(("s", "a"))), _of(rng, "Doc", "Page"))
    return name, tuple(_of(rng, *MIXED_IDS) for _ in range(MIXED_FACTS[name]))


def _of(rng: Random, *kinds: str) -> Value:
    kind = rng.choice(kinds)
    return Value(kind, rng.choice(MIXED_IDS[kind]))


def _mixed_ask(rng: Random) -> Ask:
    user, doc, action = _of(rng, "User", "Bot", "Crew"), _of(rng, "Doc", "Page", "User"), rng.choice(("s", "a", "zap"))
    match rng.randint(0, 9):
        case 0 | 1:
            return Authorize(user, action, rng.choice((doc, Value(doc.type, "none"))))
        case 2:
            return List(user, action, doc.type)
        case 3:
            return Actions(user, doc)
        case 4:
            others = tuple(_of(rng, "Doc", "Page", "User") for _ in range(rng.randint(0, 5)))
            return AuthorizeResources(user, action, others)
        case 5:
            name, arity = rng.choice([each for stratum in STRATA for each in stratum])
            pattern = [rng.choice(((v.type, v.id), (v.type, None), (None, None))) for v in _values(rng, arity)]
            return QueryFacts(name, tuple(pattern))
        case 6:
            name, arity = rng.choice([each for stratum in STRATA for each in stratum if each[0].startswith("w")])
            return Explain(name, tuple(_values(rng, arity)))
    name, arity = rng.choice([each for stratum in STRATA for each in stratum])
    values, constraints = _values(rng, arity), []
    for place, value in enumerate(values):
        given, some = (value.id,), (value.id, UNMENTIONED.get(value.type, "none"))
        ids = rng.choice((given, given, some, None, None, MIXED_IDS[value.type]))
        constraints.append((f"v{place}", value.type, ids))
    names = tuple(each for each, _, _ in constraints)
    return Evaluate(((name, names),), tuple(constraints))


def _values(rng: Random, arity: int) -> list[Value]:
    return [_of(rng, *MIXED_IDS) for _ in range(arity)]
