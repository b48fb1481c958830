"""Choose which literal to resolve next (sideways information passing), and how."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from math import inf

from checks.engine.plan.draft import (
    Draft,
    Enclosing,
    anchors,
    has_unused_end,
    is_anchored,
    is_closed,
    is_fixed,
    is_free,
    prefix_of,
)
from checks.engine.plan.plan import FAR, Branch, Holds, Ids, innermost
from checks.engine.rules.clauses import (
    UNBOUND,
    Call,
    Col,
    Given,
    Literal,
    Member,
    Pattern,
    Scan,
    Term,
    Var,
    is_bound,
    pattern_of,
    value,
)
from checks.engine.rules.ruleset import TABLED, RuleSet

# ---- The selection rule: which literal to resolve next, the one with the most arguments bound ---------------------
# A fact that a given or joined entity leads to is an index search. Names alone (`"reader"`) are no good to search by,
# since half the table may have them. A call with a given argument goes before facts that would have to be read
# through.
#
#     has_role(u, "reader", r) and has_relation(:resource, "org", r)    ->  the relation first: it says which r

# What it costs to resolve a literal next: the least goes first. Only the order of the numbers matters.
PROBE = 0.0  # a fact whose arguments are all known
RENAMING = 0.1  # a call with one clause at most: writing it in place decides nothing yet
LISTED = 0.4  # a variable that is in a list of constants
GIVEN = 0.5  # values that the question brings
PATH_ON = 0.93  # a path from a known start, before what is resolved at its end: a sum of costs, not a product
PATH_FIXED = 0.95  # a path from what the whole plan is given: its answers are few, and evaluated once
SEARCH = 1.0  # a fact that something known leads to
OPEN_ARGUMENT = 0.1  # added to a fact's cost for each argument that is still open
ALONE = 2.5  # a call that shares no variable with anything else
LED_TO = 3.0  # a call that something known leads to
EXISTENTIAL = 4.0  # a recursive or tabled call that is tested with EXISTS: nothing else uses its variables
LISTED_LATE = 5.0  # a list of constants for a variable that a fact will bind: then the list is a test
JUMP = 7.5  # the recursion's own call as the last literal: before facts that are read through
OWN_OPEN = 7.9  # the recursion's own call that nothing leads to
READ_THROUGH = 8.0  # a fact that nothing known leads to
OPEN = 9.0  # a call that nothing known leads to
ANYWHERE = 20.0  # a path with neither end known: from anywhere to anywhere
OWN_LATER = 30.0  # the recursion's own call while more literals are pending

RESOLVED = (Scan, Call, Given, Member)  # all but tests, which wait until their variables are bound


def next_literal(draft: Draft, rules: RuleSet) -> Literal | None:
    """Return the literal to resolve next; None where only tests of unbound variables are left."""
    if len(draft.pending) == 1:
        return draft.pending[0] if isinstance(draft.pending[0], RESOLVED) else None
    found, least = None, inf
    for literal in draft.pending:
        cost = _cost(literal, draft, rules)
        if cost is not None and cost < least:
            found, least = literal, cost
            if cost == PROBE:
                break
    return found


def _cost(literal: Literal, draft: Draft, rules: RuleSet) -> float | None:
    """Return the cost of a pending literal; None for a test."""
    match literal:
        case Scan(signature, args):
            return _scan_cost(signature.types, args)
        case Call():
            return _call_cost(literal, draft, rules)
        case Given():
            return GIVEN
        case Member(variable, _):
            is_scanned = any(isinstance(each, Scan) and variable in each.args for each in draft.pending)
            return LISTED_LATE if is_scanned else LISTED
    return None


def _scan_cost(types: tuple[str, ...], args: tuple[Term, ...]) -> float:
    open_args = len([arg for arg in args if isinstance(arg, UNBOUND)])
    if not open_args:
        return PROBE
    return (SEARCH if anchors(types, args) else READ_THROUGH) + open_args * OPEN_ARGUMENT


def _call_cost(call: Call, draft: Draft, rules: RuleSet) -> float:
    pattern = pattern_of(call)
    component = rules.component(pattern)
    if component is None and len(rules.alternatives(pattern)) <= 1:
        return RENAMING
    rest = draft.without(call)
    if component is not None and component != TABLED:
        return _recursive_cost(call, rest, component)
    if is_closed(call, rest):
        return ALONE if component is None else EXISTENTIAL
    return LED_TO if anchors(call.types, call.args) else OPEN


def _recursive_cost(call: Call, rest: Draft, component: int) -> float:
    entered = dict(rest.inside.active)
    is_own = component in entered
    is_last = not is_own or len(rest.pending) <= entered[component]
    if call.is_path:
        cost = _path_cost(call, rest.inside, is_own, is_last)
        if cost is not None:
            return cost
    is_alone = is_closed(call, rest)
    if is_own and (is_alone or not rest.outs):
        return JUMP if is_last and anchors(call.types, call.args) else OWN_LATER
    if is_alone:
        return EXISTENTIAL
    if anchors(call.types, call.args):
        return LED_TO
    return OWN_OPEN if is_own else OPEN


def _path_cost(path: Call, enclosing: Enclosing, is_own: bool, is_last: bool) -> float | None:
    start, end = path.args
    if not is_bound(start) and not is_bound(end):
        return ANYWHERE
    if not is_own and not is_bound(end) and is_fixed(path, enclosing.fixed):
        return PATH_FIXED
    return PATH_ON if is_last and is_bound(start) and not is_bound(end) else None


# ---- choose -------------------------------------------------------------------------------------------------------
# Chooses how a call is resolved: its clauses inlined, tested with EXISTS, joined as a table, or entered as a state.
#
# allow(:actor, "read", :doc) if …                       in place: its clauses are written where it stands … and
# blocked(:actor, s1.a2)                           tested: nothing else uses its variables, so it is a condition … and
# path(:actor, t) and has_role(t, "reader", :doc)  joined: evaluated once, read wherever it is needed has_role(u,
# "reader", f) in its own recursion          a state: the plan goes on there

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
