"""How tables that a statement makes itself hold their columns.

A column of goals or answers means one thing in one state and another in the next: a user here, a folder there. So
that numbers stay numbers on their way through a recursion, values are kept in columns by family (`ci0`, `ct0`): those
of one name hold the same family in every row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from checks.engine.plan.plan import Answers, Branch, Goals, Net, Tagged
from checks.engine.rules.clauses import type_of
from localsql.bindings import Bindings
from localsql.dialects import NATIVE
from localsql.families import Family
from localsql.residual import FoldedRelation
from policy.values import INTEGER

Place = tuple[str, Family]  # a column, and its family


@dataclass(frozen=True)
class Layouts:
    bindings: Bindings

    def family(self, type_name: str) -> Family:
        """Of ids of the type; where none is known, they are compared as text."""
        if not type_name:
            return Family.TEXT
        found = self.bindings.carried_family(type_name)
        if type_name == INTEGER and found == Family.UNKNOWN:
            return Family.INTEGER
        return found if found in NATIVE else Family.TEXT

    def keys(self, net: Net, index: int) -> tuple[Place, ...]:
        """Where the goals of a state have its keys."""
        return _placed("c", (self.family(key.type) for key in net.states[index].keys))

    def answers(self, net: Net, tag: int) -> tuple[Place, ...]:
        """Where the answers with a tag have the keys of their goal, and their own columns."""
        index, _ = net.tags[tag]
        has_keys = any(arm.keys for arm in net.answers)
        outs = _placed("o", (self.family(type_of(out)) for out in net.states[index].outs))
        return (*(self.keys(net, index) if has_keys else ()), *outs)

    def relation(self, source: FoldedRelation) -> list[Family]:
        return [self.family(name) for name in source.types]

    def read(self, source: Goals | Answers, branch: Branch, net: Net) -> dict[str, Place]:
        """The columns of the goals or answers that a branch reads, by their names in the plan."""
        tests = (each for each in branch.conditions if isinstance(each, Tagged) and each.source == source.number)
        tag = next(tests).tags[0]
        if isinstance(source, Goals):
            return _numbered("c", self.keys(net, tag))
        places = self.answers(net, tag)
        width = net.states[net.tags[tag][0]].width
        split = len(places) - width
        return _numbered("c", places[:split]) | _numbered("o", places[split:])


def _placed(prefix: str, families: Iterable[Family]) -> tuple[Place, ...]:
    counts: dict[Family, int] = {}
    found = []
    for family in families:
        number = counts[family] = counts.get(family, -1) + 1
        found.append((f"{prefix}{family.value[0]}{number}", family))
    return tuple(found)


def _numbered(prefix: str, places: Iterable[Place]) -> dict[str, Place]:
    return {f"{prefix}{index}": place for index, place in enumerate(places)}
