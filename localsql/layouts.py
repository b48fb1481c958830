"""How tables that a statement makes itself hold their columns.

A column of goals or answers means one thing in one state and another in the next: a user here, a folder there. So
that numbers stay numbers on their way through a recursion, values are kept in columns by family (`ci0`, `ct0`): those
of one name hold the same family in every row.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from checks.engine.plan.plan import Answers, Branch, Goals, Net, Relation, Tagged
from checks.engine.rules.clauses import Col
from localsql.bindings import Bindings
from localsql.columntypes import ColumnTypes
from localsql.dialects import NATIVE
from localsql.families import Family
from policy.values import INTEGER

Place = tuple[str, Family]  # a column, and its family


@dataclass(frozen=True)
class Layouts:
    bindings: Bindings
    types: ColumnTypes
    origins: dict[int, Net]  # the nets that folded ones were made of, which know more of types

    def family(self, type_name: str | None) -> Family:
        """Of ids of the type."""
        if type_name is None:
            return Family.TEXT
        found = self.bindings.carried_family(type_name)
        if type_name == INTEGER and found == Family.UNKNOWN:
            return Family.INTEGER
        return found if found in NATIVE else Family.TEXT

    def keys(self, net: Net, index: int) -> tuple[Place, ...]:
        """Where the goals of a state have its keys."""
        origin = self.origins.get(id(net), net)
        state = origin.states[index]
        types = (self.types.key(origin, state, key) for key in range(state.key_count))
        return _placed("c", (self.family(name) for name in types))

    def answers(self, net: Net, tag: int) -> tuple[Place, ...]:
        """Where the answers with a tag have the keys of their goal, and their own columns."""
        origin = self.origins.get(id(net), net)
        index, _ = origin.tags[tag]
        has_keys = any(arm.keys for arm in origin.answers if arm.tag == tag)
        types = (self.types.answer(origin, tag, out) for out in range(origin.states[index].width))
        return (*(self.keys(net, index) if has_keys else ()), *_placed("o", (self.family(name) for name in types)))

    def relation(self, source: Relation) -> list[Family]:
        return [self.family(self.types.of(Col(source.number, f"o{index}"))) for index in range(source.net.width)]

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
