"""Policies with one thing changed, and whether the preview of the change sees what the oracle sees.

A mutant has a rule less, a condition less, more or the other way round, another name or operator in a rule. Its
answers over some facts are compared by brute force with those of the policy that it was made of; where they differ,
the preview has to say so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import product
from json import loads
from pathlib import Path
from random import Random

from checks.compare.preview import Preview, preview
from checks.explain.cases import ANY
from facts import store
from facts.store import Inserts
from facts.wire import Fact
from policy import publishing
from policy.language import ast, parse
from policy.language.source import PolicyRejected, Source
from policy.models import Environment
from policy.rules import compile_text
from policy.rules.program import Program
from policy.values import STRING, Value
from tests.policy.trees import print_policy
from tests.reference import Row, World, model_of, unmentioned

TESTS = Path(__file__).parent.parent
POLICIES = sorted((TESTS / "policies").glob("*.polar"))
SECONDS = 60.0  # for one preview: what is tried is what is found, not how fast
Atom = tuple[str, Row]


# ---- what is changed --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Base:
    """A policy without its tests, and facts that it has a use for."""

    name: str
    policy: ast.Policy
    facts: tuple[Fact, ...]

    @property
    def text(self) -> str:
        return print_policy(self.policy)


def written(path: Path) -> Base:
    """The policy of a file over the facts of all its tests."""
    text = path.read_text()
    atoms = dict.fromkeys(atom for test in compile_text(text).tests for atom in test.facts)
    return _base(path.stem, text, [Fact(atom.predicate, atom.args) for atom in atoms])


def bases() -> list[Base]:
    """Each policy of the tests over the facts of all its tests, and each generated case."""
    found = [written(path) for path in POLICIES]
    for case in loads((TESTS / "cases" / "decisions.json").read_text()):
        facts = [
            Fact(fact["predicate"], tuple(Value(arg["type"], arg["id"]) for arg in fact["args"]))
            for fact in (*case["facts"], *case["context"])
        ]
        found.append(_base(f"case {case['seed']}", case["policy"], facts))
    return found


def _base(name: str, text: str, facts: list[Fact]) -> Base:
    policy = parse(Source(text))
    kept = tuple(item for item in policy.items if not isinstance(item, ast.Test | ast.Fixture))
    program = compile_text(text)
    useful = (fact for fact in facts if program.accepts(fact.predicate, fact.signature.types))
    return Base(name, replace(policy, items=kept), tuple(dict.fromkeys(useful)))


def mutants(policy: ast.Policy) -> list[ast.Policy]:
    """Every policy that differs from this one by one thing, whether it compiles or not."""
    words = _Words.of(policy)
    items = policy.items
    changed = ((index, new) for index, item in enumerate(items) for new in _changed_item(item, words))
    return [
        replace(policy, items=(*items[:index], *([] if new is None else [new]), *items[index + 1 :]))
        for index, new in changed
    ]


@dataclass(frozen=True)
class _Words:
    """What may stand in place of another: names in quotes, and conditions of rules on one thing and of shorthand."""

    names: tuple[str, ...]
    references: tuple[ast.Formula, ...]

    @classmethod
    def of(cls, policy: ast.Policy) -> _Words:
        blocks = [item for item in policy.items if isinstance(item, ast.Block)]
        names = [each.text for block in blocks for item in block.items for each in getattr(item, "names", ())]
        bodies = [item.body for block in blocks for item in block.items if isinstance(item, ast.Shorthand)]
        return cls(tuple(dict.fromkeys(names)), tuple(dict.fromkeys(bodies)))


def _changed_item(item: ast.Item, words: _Words) -> Iterator[ast.Item | None]:
    match item:
        case ast.Rule():
            yield None
            yield from (replace(item, body=body) for body in _changed_body(item.body, words) if item.body is not None)
            yield from (replace(item, head=head) for head in _renamed(item.head, words))
        case ast.Block(items=entries):
            for index, entry in enumerate(entries):
                for new in _changed_entry(entry, words):
                    yield replace(item, items=(*entries[:index], *new, *entries[index + 1 :]))


def _changed_entry(entry: object, words: _Words) -> Iterator[tuple]:
    if isinstance(entry, ast.Shorthand):
        yield ()
        yield from ((replace(entry, body=body),) for body in _changed_body(entry.body, words))
        yield from ((replace(entry, body=ast.And((entry.body, more))),) for more in words.references)
        yield from ((replace(entry, head=head),) for head in _renamed(entry.head, words))


def _changed_body(formula: object, words: _Words) -> Iterator[ast.Formula]:
    """One condition less, or the other way round, or with another name or operator."""
    match formula:
        case ast.And(parts) | ast.Or(parts):
            for index, part in enumerate(parts):
                rest = (*parts[:index], *parts[index + 1 :])
                yield rest[0] if len(rest) == 1 else replace(formula, parts=rest)
                for new in _changed_body(part, words):
                    yield replace(formula, parts=(*parts[:index], new, *parts[index + 1 :]))
            yield ast.Or(parts) if isinstance(formula, ast.And) else ast.And(parts)
        case ast.Not(inner):
            yield inner
            yield from (ast.Not(new) for new in _changed_body(inner, words))
        case ast.Comparison(operator):
            yield from (replace(formula, operator=other) for other in ("=", "!=", "<", ">=") if other != operator)
        case None:
            return
        case _:
            yield ast.Not(formula)
            yield from _renamed(formula, words)


def _renamed(node: object, words: _Words) -> Iterator:
    """The node with one name in quotes exchanged for another that the policy has."""
    match node:
        case ast.Reference(name) | ast.GlobalReference(name) if not node.is_word:
            yield from (replace(node, name=other) for other in words.names if other != name)
        case ast.Literal(Value(type="String", id=name)):
            yield from (replace(node, value=Value(STRING, other)) for other in words.names if other != name)
        case _ if is_dataclass(node):
            for field in fields(node):
                yield from (replace(node, **{field.name: new}) for new in _renamed(getattr(node, field.name), words))
        case tuple():
            for index, each in enumerate(node):
                yield from ((*node[:index], new, *node[index + 1 :]) for new in _renamed(each, words))


# ---- what the oracle sees -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Meant:
    """The decisions and the other answers of a policy, by brute force."""

    decisions: frozenset[Atom]
    others: frozenset[Atom]


def meant(policy: ast.Policy, program: Program, base: Base, mentioned: frozenset[Value], now: int) -> Meant:
    facts = [(fact.predicate, fact.args) for fact in base.facts if _counts(program, fact)]
    world = World.of(policy, facts, mentioned, now)
    atoms = [
        (predicate, row)
        for (predicate, _), rows in model_of(policy, facts, world).items()
        if predicate in program.predicates
        for row in rows
    ]
    decisions = frozenset(atom for atom in atoms if atom[0] == "allow" and atom[1][1].type == STRING)
    return Meant(decisions, frozenset(atom for atom in atoms if atom[0] != "allow"))


def _counts(program: Program, fact: Fact) -> bool:
    return program.accepts(fact.predicate, fact.signature.types)


def mentioned_by(base: Base, *policies: ast.Policy) -> frozenset[Value]:
    """One world for all of them, so that their answers can be compared."""
    worlds = [World.of(policy, [(fact.predicate, fact.args) for fact in base.facts]) for policy in policies]
    return frozenset(value for world in worlds for value in world.everything)


# ---- what the preview sees ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TestResults:
    """A mutant that changes some answer, and what the preview said of it."""

    base: Base
    text: str
    decisions: frozenset[Atom]  # that differ, by the oracle
    others: frozenset[Atom]
    said: Preview
    world: frozenset[Value]

    @property
    def is_found(self) -> bool:
        """Whether it tells of decisions that differ or are refused, where some do, and else of what else does."""
        kinds = [each for each in self.said.kinds if each.kind.is_decision or not self.decisions]
        return any(each.tally.flips or each.is_refused for each in kinds)

    @property
    def missed(self) -> set[Atom]:
        """Decisions that differ and are not told one by one, but for those that the new policy refuses."""
        told = {atom for flip in self.said.flips for atom in self._meant(flip.goal)}
        refused = {each.kind[:2] for each in self.said.kinds if each.is_refused}
        return {atom for atom in self.decisions - told if (atom[0], tuple(v.type for v in atom[1])) not in refused}

    def _meant(self, goal) -> Iterator[Atom]:
        choices = [
            [value for value in self.world if value.type == arg.type] if arg.id == ANY else [arg] for arg in goal.args
        ]
        yield from ((goal.predicate, row) for row in product(*choices))


def trials(seed: int, count: int, each_base: int = 4) -> Iterator[TestResults]:
    """So many mutants that change some answer, of policies in turn."""
    lots = Random(seed)
    found = bases()
    lots.shuffle(found)
    for base in found:
        environment = installed(base, seed)
        made = 0
        for policy in lots.sample(choices := mutants(base.policy), len(choices)):
            trial = tried(base, policy, environment)
            if trial is not None:
                yield trial
                made, count = made + 1, count - 1
            if made == each_base or not count:
                break
        if not count:
            return


def installed(base: Base, seed: int) -> Environment:
    """An environment with the policy and the facts."""
    slug = f"mutants{seed}x{time.monotonic_ns()}"
    environment = Environment.objects.create(slug=slug, name=slug)
    publishing.publish(environment.pk, base.text, "base.polar")
    store.apply(environment.pk, [Inserts(list(base.facts), None)])
    return environment


def tried(base: Base, policy: ast.Policy, environment: Environment) -> TestResults | None:
    """None where the mutant is no policy, or changes nothing."""
    text = print_policy(policy)
    try:
        program, old = compile_text(text), compile_text(base.text)
    except PolicyRejected:
        return None
    world, now = mentioned_by(base, base.policy, policy), int(time.time())
    before, after = (meant(*each, base, world, now) for each in ((base.policy, old), (policy, program)))
    decisions, others = before.decisions ^ after.decisions, before.others ^ after.others
    if not (decisions or others):
        return None
    said = preview(environment.pk, text, "", seconds=SECONDS, most=10**6, explains=False)
    return TestResults(base, text, decisions, others, said, world | {unmentioned(value.type) for value in world})
