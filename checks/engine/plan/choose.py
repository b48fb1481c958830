"""How a call is met: the one place where that is decided.

allow(:actor, "read", :doc) if …                       in place: its clauses are written where it stands
… and blocked(:actor, s1.a2)                           tested: it only has to hold, so it is a condition
… and path(:actor, t) and has_role(t, "reader", :doc)  joined: worked out once, read wherever it is needed
has_role(u, "reader", f) in its own recursion          a state: the plan goes on there
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from checks.engine.plan.draft import Draft, has_idle_end, is_closed
from checks.engine.plan.paths import is_anchored, is_free, is_given
from checks.engine.plan.plan import Branch, Holds, Ids
from checks.engine.plan.prefixes import prefix_of
from checks.engine.plan.states import FAR, innermost
from checks.engine.rules.clauses import Call, Col, Pattern, Var, pattern_of
from checks.engine.rules.ruleset import TABLED, RuleSet
from checks.engine.values import value

FAR_SOURCES = 3  # tables that a branch reads before it is far from the entry


class Meeting(Enum):
    IN_PLACE = auto()  # a branch for each of its clauses
    AT_ONCE = auto()  # a path of which nobody asks one end: it ends where it starts
    TESTED = auto()  # a condition: whether it holds
    JOINED = auto()  # with its answers, worked out apart for all that need them
    LED_TO = auto()  # with all that a path leads to from the facts before it: once for all branches that start so
    ENTERED = auto()  # a state of the plan
    CONTINUED = auto()  # a state of the plan, and then from each of its answers on
    TWICE = auto()  # two answers of one recursion at once: only rounds say that


@value
class Choice:
    """How a call is met, with what that takes: most fields are for some meetings only."""

    meeting: Meeting
    component: int = FAR
    left: int = 0  # literals that may still be pending where the state is entered again
    is_given: bool = False  # whether what is joined knows only what the whole plan is given
    rounds: int | None = None
    table: Pattern | None = None
    prefix: Branch | None = None


IN_PLACE = Choice(Meeting.IN_PLACE)


@dataclass(frozen=True)
class Chooser:
    """`apart` are recursions to work out in rounds, as planning found: no clause of theirs shows it (`takes_two`)."""

    rules: RuleSet
    apart: set[int]

    def chosen(self, call: Call, rest: Draft) -> Choice:
        """How the call is met, where `rest` is all else of the draft."""
        component = self.rules.component(pattern_of(call))
        if TABLED in self.apart:
            return self._in_rounds(rest, component)
        if component == TABLED:
            pattern = pattern_of(call)
            return IN_PLACE if pattern == rest.inside.table else Choice(Meeting.JOINED, table=pattern)
        if call.is_path and is_free(call):
            if has_idle_end(call, rest):
                return Choice(Meeting.AT_ONCE)
            if component not in dict(rest.inside.active):
                return IN_PLACE  # no end is known: its first hop shows one
        if component is None:
            return self._not_recursive(call, rest)
        if component in dict(rest.inside.active):
            return self._own(call, rest, component)
        return self._recursive(call, rest, component)

    def _not_recursive(self, call: Call, rest: Draft) -> Choice:
        if is_closed(call, rest) and not self._is_cheap_in_place(rest, call):
            return Choice(Meeting.TESTED)
        if self._multiplies(rest, call) and (is_given(call, rest.inside.fixed) or is_anchored(call)):
            return Choice(Meeting.JOINED)
        if rest.inside.may_jump and self._is_far(rest, call):
            return Choice(Meeting.ENTERED)
        return IN_PLACE

    def _in_rounds(self, rest: Draft, component: int | None) -> Choice:
        """Where all is tabled and worked out in rounds, what is not is written in place."""
        if component is None:
            return IN_PLACE
        if rest.inside.rounds is None:
            return Choice(Meeting.JOINED, rounds=component)
        is_last = not rest.pending and not any(isinstance(out, Col) for out in rest.outs)
        return Choice(Meeting.ENTERED if is_last else Meeting.CONTINUED, component)

    def _own(self, call: Call, rest: Draft, component: int) -> Choice:
        """The call of a recursion that the draft is inside of."""
        left = dict(rest.inside.active)[component]
        if rest.inside.may_jump and len(rest.pending) <= left:
            return Choice(Meeting.ENTERED, component, left)
        if component == rest.inside.rounds or (rest.outs and rest.inside.may_jump):
            return Choice(Meeting.CONTINUED, component)
        return Choice(Meeting.TWICE, component=component)

    def _recursive(self, call: Call, rest: Draft, component: int) -> Choice:
        if component != rest.inside.rounds and (component in self.apart or self.rules.takes_two(component)):
            return Choice(Meeting.JOINED, rounds=component)
        prefix = prefix_of(call, rest) if call.is_path else None
        if prefix is not None:
            return Choice(Meeting.LED_TO, prefix=prefix)
        if rest.inside.may_jump and not rest.pending:
            return Choice(Meeting.ENTERED, component)
        if is_closed(call, rest):
            return Choice(Meeting.TESTED)
        if is_given(call, rest.inside.fixed):
            return Choice(Meeting.JOINED, is_given=True)
        if rest.inside.may_jump:
            return Choice(Meeting.ENTERED, component, len(rest.pending))
        return Choice(Meeting.TWICE, component=innermost(rest.inside.active))  # from each of its answers

    # ---- what it would come to ---------------------------------------------------------------------------------

    def _is_cheap_in_place(self, rest: Draft, call: Call) -> bool:
        """Whether a check may be written in place: that multiplies nothing."""
        are_many = [isinstance(each, Ids) and each.are_many for each in rest.sources]
        is_last = not rest.pending and (not rest.outs or (any(are_many) and all(are_many)))
        repeats = any(isinstance(condition, Holds) for condition in rest.conditions)
        return (is_last and not repeats) or len(self.rules.alternatives(pattern_of(call))) <= 1

    def _multiplies(self, rest: Draft, call: Call) -> bool:
        """Whether writing the call in place would repeat the clauses of another one for each of its own."""
        others = (each for each in rest.pending if isinstance(each, Call))
        is_wide = self._has_several(call) and any(map(self._has_several, others))
        return is_wide and not is_compared(self.rules, call, (Var, Col))

    def _is_far(self, rest: Draft, call: Call) -> bool:
        """Whether what led here is long enough not to be written again for each clause."""
        return len(rest.sources) >= FAR_SOURCES and not rest.pending and not rest.outs and self._has_several(call)

    def _has_several(self, call: Call) -> bool:
        """Whether the call has several clauses, so that writing it in place makes several branches of one."""
        return len(self.rules.alternatives(pattern_of(call))) > 1


def is_compared(rules: RuleSet, call: Call, kind: type | tuple[type, ...]) -> bool:
    """Whether an argument of that kind is only compared, so that nothing would bind it apart from here."""
    return any(isinstance(call.args[index], kind) for index in rules.calls.only_compared(pattern_of(call)))
