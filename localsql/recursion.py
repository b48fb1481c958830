"""What is recursive in a net: whether anything is, and its tables of goals that it reaches and of answers to them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from checks.engine.plan.plan import AnswerArm, Answers, Branch, Goals, Holds, Jump, Net, Relation
from checks.engine.rules.clauses import Term
from localsql.families import Family
from localsql.layouts import Place
from localsql.scope import Scope
from localsql.semijoins import Member

if TYPE_CHECKING:
    from localsql.render import Renderer


@dataclass(frozen=True)
class Recursion:
    """One table in the making; `places` has for each tag where its columns are."""

    renderer: Renderer
    name: str
    places: list[tuple[Place, ...]]

    @property
    def columns(self) -> dict[str, Family]:
        return dict(sorted({place for places in self.places for place in places}, key=lambda place: place[0]))

    def row(self, branch: Branch, tag: int, terms: tuple[Term, ...], scope: Scope) -> str | None:
        renderer = self.renderer
        inner = renderer.named(branch, scope)
        shown: dict[str, str] = {}
        for (column, family), term in zip(self.places[tag], terms):
            carried = renderer.carried(term, family, inner)
            if carried is None:
                return None
            shown[column] = renderer.dialect.typed(carried, family)
        cells = (
            f"{shown.get(column) or renderer.dialect.null(family)} AS {column}"
            for column, family in self.columns.items()
        )
        return renderer.select(branch, ", ".join((f"{tag} AS tag", *cells)), inner)

    def table(self, scope: Scope, seeds: Iterable[str | None], arms: Iterable[str | None]) -> str | None:
        """None where nothing starts it."""
        first = list(dict.fromkeys(each for each in seeds if each is not None))
        following = list(dict.fromkeys(each for each in arms if each is not None))
        if not first:
            return None
        return self.renderer.dialect.recursive(self.name, scope.row, ["tag", *self.columns], first, following)


def goals(renderer: Renderer, net: Net, scope: Scope, name: str) -> str | None:
    places = [renderer.layouts.keys(net, index) for index in range(len(net.states))]
    recursion = Recursion(renderer, name, places)

    def row(jump: Jump, scope: Scope) -> str | None:
        return recursion.row(jump.branch, net.states.index(jump.state), jump.keys, scope)

    inner = replace(scope, goals=name, lateral=Goals if renderer.dialect.recursive_arms_join else None)
    return recursion.table(scope, [row(jump, scope) for jump in net.seeds], [row(jump, inner) for jump in net.moves])


def answers(renderer: Renderer, net: Net, scope: Scope, name: str) -> str | None:
    recursion = Recursion(renderer, name, [renderer.layouts.answers(net, index) for index in range(len(net.tags))])

    def row(arm: AnswerArm, scope: Scope) -> str | None:
        branch = _answers_first(arm.exit.branch) if arm.is_recursive else arm.exit.branch
        return recursion.row(branch, arm.tag, (*arm.keys, *arm.exit.outs), scope)

    inner = replace(scope, answers=name, lateral=Answers if renderer.dialect.recursive_arms_join else None)
    seeds = [row(arm, scope) for arm in net.answers if not arm.is_recursive]
    return recursion.table(scope, seeds, [row(arm, inner) for arm in net.answers if arm.is_recursive])


def _answers_first(branch: Branch) -> Branch:
    """The new answer drives the recursive step; its goal is only looked up."""
    rank = {Answers: 0, Goals: 2}
    return Branch(tuple(sorted(branch.sources, key=lambda source: rank.get(type(source), 1))), branch.conditions)


def recurses(net: Net) -> bool:
    """Whether any of what the net reads is recursive."""
    return bool(net.seeds or net.answers) or any(_has_recursion(branch) for branch in net.branches())


def _has_recursion(branch: Branch) -> bool:
    for each in (*branch.sources, *branch.conditions):
        match each:
            case Relation(net=net) | Holds(net):
                if recurses(net):
                    return True
            case Member(branch=inner):
                if _has_recursion(inner):
                    return True
    return False
