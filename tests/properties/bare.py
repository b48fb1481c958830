"""Random programs of few rules without blocks: negation in negation, recursion, and variables that nothing binds.

bare_case(Random(7))                        # heads with wildcards, and with variables that only tests mention
bare_case(Random(7), is_restricted=True)    # facts bind every variable of every rule
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from policy.models import Environment
from policy.values import BOOLEAN, INTEGER, STRING, Value
from tests.properties import ask_adapter
from tests.properties.ask_adapter import Caller, PastLimit
from tests.properties.questions import Ask, Authorize, Evaluate, Explain, List, Question
from tests.properties.random_policies import RESTRICTED, Case, is_policy

IDS = {"User": ("a", "b"), "Doc": ("d", "e"), INTEGER: ("3", "5"), STRING: ("s",), BOOLEAN: ("true",)}
COMMON = ("User", "User", "Doc", "Doc", INTEGER, STRING, BOOLEAN)
FACTS = {"e1": 1, "e2": 2, "e3": 2}
DERIVED = {"w0": 2, "w1": 1, "w2": 2}
TYPES = "actor User {}\nresource Doc {}"
QUESTIONS = 12
MOST_FACTS = 9
TOO_LARGE = "what the database takes"  # the limit of a statement's size


def bare_case(rng: Random, is_restricted: bool = False) -> Case:
    """A case that the compiler takes, with facts that its rules may use."""
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
