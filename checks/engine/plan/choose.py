"""Chooses how a call is resolved: its clauses inlined, tested with EXISTS, joined as a table, or entered as a state.

allow(:actor, "read", :doc) if …                       in place: its clauses are written where it stands
… and blocked(:actor, s1.a2)                           tested: nothing else uses its variables, so it is a condition
… and path(:actor, t) and has_role(t, "reader", :doc)  joined: evaluated once, read wherever it is needed
has_role(u, "reader", f) in its own recursion          a state: the plan goes on there
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from checks.engine.plan.draft import Draft, has_unused_end, is_closed
from checks.engine.plan.paths import is_anchored, is_fixed, is_free
from checks.engine.plan.plan import Branch, Holds, Ids
from checks.engine.plan.prefixes import prefix_of
from checks.engine.plan.states import FAR, innermost
from checks.engine.rules.clauses import Call, Col, Pattern, Var, pattern_of
from checks.engine.rules.ruleset import TABLED, RuleSet
from checks.engine.values import value

FAR_SOURCES = 3  # tables that a branch reads before it is far from the entry


class Resolution(Enum):
    IN_PLACE = auto()  # a branch for each of its clauses
    EMPTY_PATH = auto()  # a path with an end that nothing else uses: it ends where it starts
    TESTED = auto()  # a condition: whether it holds
    JOINED = auto()  # a derived table of its answers, evaluated once for all branches that need them
    AFTER_PREFIX = auto()  # a derived table of what facts and then a path lead to, for all branches with these facts
    ENTERED = auto()  # a state of the plan
    JOINED_TO_STATE = auto()  # a state of the plan; the branch goes on from each of its answers
    NONLINEAR = auto()  # not at all: the recursion is nonlinear, so it needs rounds


@value
class Choice:
    """How a call is resolved, with what is needed for it: most fields are for some resolutions only."""

    resolution: Resolution
    component: int = FAR
    left: int = 0  # so many literals may be pending where the state is entered again
    is_fixed: bool = False  # whether all columns that the joined call mentions are fixed for the whole plan
    rounds: int | None = None
    table: Pattern | None = None
    prefix: Branch | None = None


IN_PLACE = Choice(Resolution.IN_PLACE)


@dataclass(frozen=True)
class Chooser:
    """Decides how calls are resolved.

    `nonlinear` are the recursions that planning found to need rounds, though no clause shows it (see `is_nonlinear`).
    With `TABLED` among them, all that is tabled is evaluated in rounds.
    """

    rules: RuleSet
    nonlinear: set[int]

    def chosen(self, call: Call, rest: Draft) -> Choice:
        """Return how to resolve the call, where `rest` is the draft without it."""
        component = self.rules.component(pattern_of(call))
        if TABLED in self.nonlinear:
            return self._in_rounds(rest, component)
        if component == TABLED:
            pattern = pattern_of(call)
            return IN_PLACE if pattern == rest.inside.table else Choice(Resolution.JOINED, table=pattern)
        if call.is_path and is_free(call):
            if has_unused_end(call, rest):
                return Choice(Resolution.EMPTY_PATH)
            if component not in dict(rest.inside.active):
                return IN_PLACE  # neither end is known: its first hop binds one
        if component is None:
            return self._not_recursive(call, rest)
        if component in dict(rest.inside.active):
            return self._own(rest, component)
        return self._recursive(call, rest, component)

    def _not_recursive(self, call: Call, rest: Draft) -> Choice:
        if is_closed(call, rest) and not self._is_cheap_in_place(rest, call):
            return Choice(Resolution.TESTED)
        if self._multiplies(rest, call) and (is_fixed(call, rest.inside.fixed) or is_anchored(call)):
            return Choice(Resolution.JOINED)
        if rest.inside.may_jump and self._is_far(rest, call):
            return Choice(Resolution.ENTERED)
        return IN_PLACE

    def _in_rounds(self, rest: Draft, component: int | None) -> Choice:
        """Return how to resolve a call if all that is tabled is evaluated in rounds: in place, if it is not tabled."""
        if component is None:
            return IN_PLACE
        if rest.inside.rounds is None:
            return Choice(Resolution.JOINED, rounds=component)
        is_last = not rest.pending and not any(isinstance(out, Col) for out in rest.outs)
        return Choice(Resolution.ENTERED if is_last else Resolution.JOINED_TO_STATE, component)

    def _own(self, rest: Draft, component: int) -> Choice:
        """Return how to resolve a call of a recursion that the draft is already inside of."""
        left = dict(rest.inside.active)[component]
        if rest.inside.may_jump and len(rest.pending) <= left:
            return Choice(Resolution.ENTERED, component, left)
        if component == rest.inside.rounds or (rest.outs and rest.inside.may_jump):
            return Choice(Resolution.JOINED_TO_STATE, component)
        return Choice(Resolution.NONLINEAR, component=component)

    def _recursive(self, call: Call, rest: Draft, component: int) -> Choice:
        if component != rest.inside.rounds and (component in self.nonlinear or self.rules.is_nonlinear(component)):
            return Choice(Resolution.JOINED, rounds=component)
        prefix = prefix_of(call, rest) if call.is_path else None
        if prefix is not None:
            return Choice(Resolution.AFTER_PREFIX, prefix=prefix)
        if rest.inside.may_jump and not rest.pending:
            return Choice(Resolution.ENTERED, component)
        if is_closed(call, rest):
            return Choice(Resolution.TESTED)
        if is_fixed(call, rest.inside.fixed):
            return Choice(Resolution.JOINED, is_fixed=True)
        if rest.inside.may_jump:
            return Choice(Resolution.ENTERED, component, len(rest.pending))
        return Choice(Resolution.NONLINEAR, component=innermost(rest.inside.active))  # it goes on from its answers here

    # ---- what it would come to ---------------------------------------------------------------------------------

    def _is_cheap_in_place(self, rest: Draft, call: Call) -> bool:
        """Say whether writing a check in place multiplies nothing."""
        are_many = [isinstance(each, Ids) and each.are_many for each in rest.sources]
        is_last = not rest.pending and (not rest.outs or (any(are_many) and all(are_many)))
        repeats = any(isinstance(condition, Holds) for condition in rest.conditions)
        return (is_last and not repeats) or len(self.rules.alternatives(pattern_of(call))) <= 1

    def _multiplies(self, rest: Draft, call: Call) -> bool:
        """Say whether writing the call in place would repeat another call's clauses for each of its own clauses."""
        others = (each for each in rest.pending if isinstance(each, Call))
        is_wide = self._has_several(call) and any(map(self._has_several, others))
        return is_wide and not is_compared(self.rules, call, (Var, Col))

    def _is_far(self, rest: Draft, call: Call) -> bool:
        """Say whether only the call is left, and the branch so far is too long to repeat for each of its clauses."""
        return len(rest.sources) >= FAR_SOURCES and not rest.pending and not rest.outs and self._has_several(call)

    def _has_several(self, call: Call) -> bool:
        """Say whether the call has several clauses, so that writing it in place makes several branches of one."""
        return len(self.rules.alternatives(pattern_of(call))) > 1


def is_compared(rules: RuleSet, call: Call, kind: type | tuple[type, ...]) -> bool:
    """Say whether an argument of that kind is only compared: a plan of the call alone could not bind it."""
    return any(isinstance(call.args[index], kind) for index in rules.calls.only_compared(pattern_of(call)))
