"""Changes of policies, and whether a comparison over all facts sees what they do.

A mutant whose decisions differ over the facts of a policy's tests, by brute force, must be found to grant more or less.
A policy that is written in another way must not, and neither may a proof say so while a search finds facts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from random import Random
from typing import Any

from checks.analysis.questions import Difference, compared
from checks.analysis.search import Solver
from policy.language import ast
from policy.language.source import PolicyRejected
from policy.rules import compile_text
from tests.policy.trees import print_policy
from tests.properties.mutations import POLICIES, Base, meant, mentioned_by, mutants, written
from tests.service import ROOT

PUBLIC = [*POLICIES, *sorted((ROOT / "authz_project" / "examples" / "worlds").glob("*.polar"))]
IDS = 2
SECONDS = 10.0


def public_policies() -> list[Base]:
    """The policies of the tests and the example worlds, each with the facts of its tests."""
    return [written(path) for path in PUBLIC]


@dataclass(frozen=True)
class Trial:
    base: Base
    text: str
    gains: bool  # by brute force, over the facts of the policy's tests
    loses: bool
    found: list[Difference]
    seconds: float

    @property
    def missed(self) -> str:
        more, less = (any(getattr(each, side).witness for each in self.found) for side in ("more", "less"))
        sides = (("more", self.gains > more), ("less", self.loses > less))
        return " ".join(name for name, is_missed in sides if is_missed)

    @property
    def is_found(self) -> bool:
        return any(each.more.witness or each.less.witness for each in self.found)

    @property
    def ids(self) -> float:
        """Up to how many ids of each type nothing is missing; `IDS` or more if the comparison is complete."""
        sides = [side for each in self.found for side in (each.more, each.less)]
        return min((side.ids for side in sides if not side.witness), default=IDS)


def compare(base: Base, text: str, gains: bool = False, loses: bool = False, seconds: float = SECONDS) -> Trial:
    old, new = compile_text(base.text), compile_text(text)
    started = time.monotonic()
    with Solver(seconds) as solver:
        found = compared(old, new, solver, IDS)
    return Trial(base, text, gains, loses, found, time.monotonic() - started)


def changed(seed: int, count: int, each_base: int = 4) -> Iterator[Trial]:
    """So many mutants whose decisions differ over the facts of the tests, of policies in turn."""
    lots = Random(seed)
    found = public_policies()
    while count:
        lots.shuffle(found)
        for base in found:
            made = 0
            choices = mutants(base.policy)
            for policy in lots.sample(choices, min(len(choices), 20)):
                if made == each_base or not count:
                    break
                if (trial := _differing(base, policy)) is not None:
                    yield trial
                    made, count = made + 1, count - 1


def _differing(base: Base, policy: ast.Policy) -> Trial | None:
    text = print_policy(policy)
    try:
        old, new = compile_text(base.text), compile_text(text)
    except PolicyRejected:
        return None
    world, now = mentioned_by(base, base.policy, policy), int(time.time())
    before = meant(base.policy, old, base, world, now).decisions
    after = meant(policy, new, base, world, now).decisions
    return compare(base, text, bool(after - before), bool(before - after)) if before != after else None


# ---- the same in other words ---------------------------------------------------------------------------------------


def reworded(seed: int, count: int) -> Iterator[Trial]:
    """So many policies, each with some of its rules written in another way."""
    lots = Random(seed)
    found = public_policies()
    while count:
        lots.shuffle(found)
        for base in found:
            if not count:
                break
            policy = base.policy
            for change in lots.sample(REWORDINGS, 3):
                policy = change(policy, lots)
            yield compare(base, print_policy(policy))
            count -= 1


def _reordered(policy: ast.Policy, lots: Random) -> ast.Policy:
    items = [
        replace(item, items=tuple(lots.sample(item.items, len(item.items)))) if isinstance(item, ast.Block) else item
        for item in policy.items
    ]
    return replace(policy, items=tuple(lots.sample(items, len(items))))


def _renamed(policy: ast.Policy, lots: Random) -> ast.Policy:
    items = [_with_names(item, "_new") if isinstance(item, ast.Rule) else item for item in policy.items]
    return replace(policy, items=tuple(items))


def _with_names(node: Any, suffix: str) -> Any:
    match node:
        case ast.Variable(name) if name != "_":
            return replace(node, name=name + suffix)
        case tuple():
            return tuple(_with_names(each, suffix) for each in node)
        case _ if is_dataclass(node):
            return replace(node, **{each.name: _with_names(getattr(node, each.name), suffix) for each in fields(node)})
    return node


def _split(policy: ast.Policy, lots: Random) -> ast.Policy:
    """Each alternative of a rule is a rule of its own."""
    return _each_rule(policy, lambda rule: [replace(rule, body=part) for part in rule.body.parts], ast.Or)


def _turned(policy: ast.Policy, lots: Random) -> ast.Policy:
    """Conditions in the opposite order."""
    return _each_rule(policy, lambda rule: [replace(rule, body=ast.And(rule.body.parts[::-1]))], ast.And)


def _with_less(policy: ast.Policy, lots: Random) -> ast.Policy:
    """Beside a rule, the same rule with one condition twice."""

    def twice(rule: Any) -> list:
        parts = rule.body.parts if isinstance(rule.body, ast.And) else (rule.body,)
        more = [part for part in parts if isinstance(part, ast.Call | ast.Reference)][:1]
        return [rule, replace(rule, body=ast.And((*parts, *more)))] if len(parts) + len(more) > 1 else [rule]

    return _each_rule(policy, twice, object)


def _each_rule(policy: ast.Policy, change: Callable[[Any], list], kind: type) -> ast.Policy:
    def of(rule: Any) -> list:
        is_meant = isinstance(rule, ast.Rule | ast.Shorthand) and rule.body is not None and isinstance(rule.body, kind)
        return change(rule) if is_meant else [rule]

    items = []
    for item in policy.items:
        if isinstance(item, ast.Block):
            items.append(replace(item, items=tuple(new for entry in item.items for new in of(entry))))
        else:
            items += of(item)
    return replace(policy, items=tuple(items))


REWORDINGS = [_reordered, _renamed, _split, _turned, _with_less]
