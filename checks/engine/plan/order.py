"""The selection rule: which literal to resolve next, the one with the most arguments bound.

A fact that a given or joined entity leads to is an index search. Names alone (`"reader"`) are no good to search by,
since half the table may have them. A call with a given argument goes before facts that would have to be read through.

    has_role(u, "reader", r) and has_relation(:resource, "org", r)    ->  the relation first: it says which r
"""

from __future__ import annotations

from math import inf

from checks.engine.plan.draft import Draft, Enclosing, is_closed
from checks.engine.plan.paths import anchors, is_fixed
from checks.engine.rules.clauses import (
    UNBOUND,
    Call,
    Given,
    Literal,
    Member,
    Scan,
    Term,
    is_bound,
    pattern_of,
)
from checks.engine.rules.ruleset import TABLED, RuleSet

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
