"""Random conditions over the variables of a rule: negated, nested and about anything that lies lower."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from policy.values import ACTOR, BOOLEAN, INTEGER, PRIMITIVES, RESOURCE, STRING
from tests.properties.draft import ROLES, TRUTHS, Draft, Slot, strings

Kinds = tuple[str, ...]  # the exact types that something may have
Env = dict[str, Kinds]  # the variables that something binds


@dataclass(frozen=True)
class Predicate:
    """What may be called: a lower rung, or facts."""

    name: str
    places: tuple[Kinds, ...]


@dataclass(frozen=True)
class Edge:
    """What leads from one thing to the next; `text` has the places of both."""

    text: str
    near: Kinds
    far: Kinds


@dataclass
class Land:
    """All that the rungs of a ladder are made over."""

    draft: Draft
    edges: list[Edge] = field(default_factory=list)
    facts: list[Predicate] = field(default_factory=list)
    rungs: list[Predicate] = field(default_factory=list)  # the finished ones: what is made now lies above them
    named: int = 0
    calm: float = 1  # how often there are conditions, compared with as often as can be

    def name(self, word: str) -> str:
        self.named += 1
        return f"{word}{self.named}"

    def kinds_of(self, type_name: str) -> Kinds:
        """The exact types of what is of a type; without one, of anything."""
        if type_name in PRIMITIVES:
            return (type_name,)
        if type_name in ("", RESOURCE):
            return tuple(self.draft.ids)
        slot = self.draft.actors() if type_name == ACTOR else self.draft.of(type_name)
        return tuple(dict.fromkeys(value.type for value in slot))

    def values(self, kinds: Kinds) -> Slot:
        primitive = {STRING: strings(ROLES), INTEGER: self.draft.numbers, BOOLEAN: TRUTHS}
        found = [primitive[kind] if kind in PRIMITIVES else self.draft.ids[kind] for kind in kinds]
        return tuple(value for slot in found for value in slot)

    def some_kinds(self) -> Kinds:
        return self.kinds_of(self.draft.rng.choice([*self.draft.ids, ACTOR, RESOURCE]))

    def fact(self, *places: Kinds) -> Predicate:
        """A predicate that has facts: a known one that fits, or a new one."""
        fitting = [each for each in self.facts if fits(each.places, places)]
        if fitting and self.draft.often(0.6):
            return self.draft.rng.choice(fitting)
        made = Predicate(self.name("b"), places)
        self.facts.append(made)
        self.store(made)
        return made

    def store(self, predicate: Predicate) -> None:
        slots = [self.values(kinds) for kinds in predicate.places]
        self.draft.fact(predicate.name, *slots, label=f"{predicate.name}/{len(slots)}")

    # ---- conditions --------------------------------------------------------------------------------------

    def condition(self, env: Env, depth: int = 2) -> str:
        """It binds nothing."""
        chance = self.draft.rng.random()
        if not depth or chance < 0.4:
            return self.simple(env)
        if chance < 0.75:
            return self.negated(env, depth - 1)
        word = self.draft.pick("or", "or", "and")
        return f"({self.condition(env, depth - 1)} {word} {self.condition(env, depth - 1)})"

    def negated(self, env: Env, depth: int) -> str:
        inner = self.condition(env, depth)
        if self.draft.often(0.35):
            inner = f"({self.about_another(env, depth)})"
        return f"not {inner}" if inner.endswith(")") else f"not ({inner})"

    def about_another(self, env: Env, depth: int) -> str:
        """Something about a thing that nothing outside mentions, and perhaps more."""
        kinds = self.some_kinds()
        name, also = self.name("w"), self.draft.rng.choice(list(env) or [""])
        with_it = also and env[also] != (STRING,) and self.draft.often(0.5)
        places, args = ((kinds, env[also]), (name, also)) if with_it else ((kinds,), (name,))
        binder = f"{self.fact(*places).name}({', '.join(args)})"
        parts = [binder, self.condition({**env, name: kinds}, depth)] if self.draft.often(0.7) else [binder]
        return " and ".join(self.draft.rng.sample(parts, len(parts)))

    def simple(self, env: Env) -> str:
        makers: tuple[Callable[[Env], str], ...] = (
            self.lower, self.lower, self.lower, self.plain, self.plain, self.typed, self.compared, self.quiet,
        )  # fmt: skip
        return self.draft.rng.choice(makers)(env)

    def lower(self, env: Env) -> str:
        """A call of a lower rung, with what there is; else of facts."""
        if not self.rungs:
            return self.plain(env)
        callee = self.draft.rng.choice(self.rungs)
        return f"{callee.name}({', '.join(self.argument(kinds, env) for kinds in callee.places)})"

    def argument(self, kinds: Kinds, env: Env) -> str:
        fitting = [name for name, own in env.items() if set(own) & set(kinds)]
        if fitting and self.draft.often(0.85):
            return self.draft.rng.choice(fitting)
        return "_" if self.draft.often(0.4) else str(self.draft.rng.choice(self.values(kinds)))

    def plain(self, env: Env) -> str:
        names = self.draft.rng.sample(list(env), min(len(env), self.draft.rng.choice((1, 1, 2))))
        if not names:
            return self.quiet(env)
        return f"{self.fact(*(env[name] for name in names)).name}({', '.join(names)})"

    def typed(self, env: Env) -> str:
        things = [name for name, kinds in env.items() if kinds[0] not in PRIMITIVES]
        if not things:
            return self.quiet(env)
        name = self.draft.rng.choice(things)
        wanted = self.draft.rng.choice([*env[name], *env[name], ACTOR, RESOURCE])
        exactly = "matches!" if wanted not in (ACTOR, RESOURCE) and self.draft.often(0.4) else "matches"
        return f"{name} {exactly} {wanted}" if set(self.kinds_of(wanted)) & set(env[name]) else self.plain(env)

    def compared(self, env: Env) -> str:
        if not env:
            return self.quiet(env)
        name = self.draft.rng.choice(list(env))
        others = [other for other in env if other != name and set(env[other]) & set(env[name])]
        values, chance = list(map(str, self.values(env[name]))), self.draft.rng.random()
        if chance < 0.4:
            return f"{name} {self.draft.pick('=', '!=')} {self.draft.pick(*(others or values))}"
        if chance < 0.6:
            return f"{name} in [{', '.join(self.draft.rng.sample(values, 2))}]"
        number = self.name("k")
        call = f"{self.fact(env[name], (INTEGER,)).name}({name}, {number})"
        return f"({call} and {number} {self.draft.pick('<', '>=')} {self.draft.pick('3', '0')})"

    def quiet(self, env: Env) -> str:
        """A call without arguments."""
        found = [each for each in self.rungs if not each.places]
        if not found:
            found = [Predicate(self.name("quiet"), ())]
            self.rungs += found
            body = self.draft.pick('mode("x")', 'mode("x")', 'not mode("x")', 'mode(_) and not mode("r0")')
            self.draft.rule(f"{found[0].name}() if {body}")
            self.draft.fact("mode", strings(("x", "r0")))
        return f"{found[0].name}()"


def fits(callee: tuple[Kinds, ...], args: tuple[Kinds, ...]) -> bool:
    return len(callee) == len(args) and all(set(a) & set(b) for a, b in zip(callee, args))
