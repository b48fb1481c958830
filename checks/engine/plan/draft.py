"""Drafts of a plan, and the choice of the literal to resolve next."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from math import inf

from checks.engine.errors import CannotEnumerate, UnboundVariable
from checks.engine.plan.plan import (
    FAR,
    Active,
    Among,
    Branch,
    Comparison,
    Condition,
    Exit,
    FactScan,
    ForeignCondition,
    Holds,
    Ids,
    PlanSource,
    Same,
    State,
    Tagged,
    Variant,
    innermost,
)
from checks.engine.rules.clauses import (
    FRESH,
    UNBOUND,
    Call,
    Col,
    Const,
    Given,
    Inner,
    Literal,
    Member,
    Neg,
    Operand,
    Other,
    Pattern,
    Scan,
    Slot,
    Term,
    Var,
    is_bound,
    pattern_of,
    substituted,
    substituted_terms,
    terms_of,
    type_of,
    value,
    variables_of,
)
from checks.engine.rules.ruleset import TABLED, RuleSet
from policy.rules.components import reachable
from policy.rules.program import TYPED
from policy.values import STRING

# ---- A branch of a plan while it is built -------------------------------------------------------------------------

# ---- paths --------------------------------------------------------------------------------------------------------
# Small questions about calls: which arguments are known or fixed, and whether they follow paths (see `separate`).


def is_one_path(call: Call) -> bool:
    """Say whether the call is a path of which one end is known: all that it leads to is asked."""
    return call.is_path and sum(map(is_bound, call.args)) == 1


def is_backward(call: Call) -> bool:
    """Say whether the call is a path of which only the end is known: it is followed from there."""
    return call.is_path and not is_bound(call.args[0]) and is_bound(call.args[1])


def is_free(call: Call) -> bool:
    return not any(map(is_bound, call.args))


def anchors(types: tuple[str, ...], args: tuple[Term, ...]) -> list[Term]:
    """Return the arguments that a search can start from: all known ones but names, which half a table may have."""
    bound = [(kind, arg) for kind, arg in zip(types, args) if not isinstance(arg, UNBOUND)]
    return [arg for kind, arg in bound if kind != STRING or not isinstance(arg, (Const, Other))]


def is_anchored(call: Call) -> bool:
    """Say whether a search for the call can start from what the question gives, not only from a column of a row."""
    return not all(isinstance(arg, Col) for arg in anchors(call.types, call.args))


def is_fixed(call: Call, fixed: frozenset[Operand]) -> bool:
    """Say whether all columns that the call mentions are fixed for the whole plan."""
    return not any(isinstance(arg, Col) and arg not in fixed for arg in call.args)


def outward(call: Call) -> Call:
    """Return the negated call as a call of its own: each `Inner`, which the negation quantifies, becomes a `Var`."""
    typed = zip(call.args, call.types)
    args = tuple(Var(-1 - arg.number, type=name) if isinstance(arg, Inner) else arg for arg, name in typed)
    return replace(call, args=args)


# ---- variants -----------------------------------------------------------------------------------------------------
# Which answer columns of a branch stand for every value, and which negations (guards) exclude some values.
#
# exit (x, s1.a0) unless p(x)   ->   column 0 is wild, with the guard not p(column 0)


def variant_of(end: Exit, fixed: frozenset[Operand]) -> Variant:
    """Return the exit's variant. Refuse guards that mention anything but answer columns and what is fixed."""
    columns = {out: Var(k, type=type_of(out)) for k, out in enumerate(end.outs)} if end.guards else {}
    guards = []
    for guard in end.guards:
        args = tuple(columns.get(arg, arg) for arg in guard.call.args)
        if any(isinstance(arg, Col) and arg not in fixed for arg in args):
            raise CannotEnumerate("all values except some, by a rule that a list cannot express")
        guards.append(Neg(replace(guard.call, args=args)))
    wild = frozenset(k for k, out in enumerate(end.outs) if isinstance(out, Var))
    # Each guard is kept once: a recursion that met it at each level would otherwise make new variants without end.
    return Variant(wild, tuple(sorted(set(guards), key=str)), same_columns(end))


def same_columns(end: Exit) -> tuple[tuple[int, int], ...]:
    """Return pairs of wild columns, an earlier and a later one, that stand for the same value."""
    return tuple((out.number, k) for k, out in enumerate(end.outs) if isinstance(out, Var) and out.number != k)


def guards_for(variant: Variant, results: tuple[Var, ...], known: Mapping[Var, Term]) -> list[Neg]:
    """Return the variant's guards with `results` for its columns, or what is `known` of those."""
    if not variant.guards:
        return []
    terms = {Var(k): known.get(variable, variable) for k, variable in enumerate(results)}
    return [substituted(guard, terms) for guard in variant.guards]


# ---- draft --------------------------------------------------------------------------------------------------------
# A branch while it is being built, and the plan that it is built for: how that recurses, and what it is given.


@value
class Enclosing:
    """What the plan that a draft is built for is given, and which recursions the draft is in.

    `fixed` are the operands that the whole plan is given, `active` the recursions that were entered (see `State`), and
    `in_place` the states that are written out where they are entered.
    """

    fixed: frozenset[Operand] = frozenset()
    active: Active = ()
    in_place: frozenset[State] = frozenset()
    may_jump: bool = True  # whether it may enter states: not after it has read an answer, except in rounds
    rounds: int | None = None  # the component that the plan evaluates in rounds, if any
    table: Pattern | None = None  # the pattern whose answers the plan tables, if any


OUTERMOST = Enclosing()


@value
class Draft:
    """A branch that is being built: the literals still to be resolved, what is asked, what is read and tested so far.

    It stands for rows of `outs`: one for each row of its sources that meets its conditions, and for each way to make
    the pending literals true from there.
    """

    pending: tuple[Literal, ...]
    outs: tuple[Term, ...]
    sources: tuple[PlanSource, ...] = ()
    conditions: tuple[Condition, ...] = ()
    inside: Enclosing = OUTERMOST

    @property
    def branch(self) -> Branch:
        return Branch(self.sources, self.conditions)

    @property
    def needed(self) -> set[Term]:
        """Return what the pending literals and the answer columns use."""
        return variables_of(self.pending).union(self.outs)

    def without(self, literal: Literal) -> Draft:
        """Return the draft with that literal left out."""
        pending = tuple([each for each in self.pending if each is not literal])
        return Draft(pending, self.outs, self.sources, self.conditions, self.inside)

    def testing(self, conditions: Iterable[Condition]) -> Draft:
        """Return the draft with more conditions."""
        return Draft(self.pending, self.outs, self.sources, (*self.conditions, *conditions), self.inside)

    def __str__(self) -> str:
        pending = " and ".join(map(str, self.pending)) or "true"
        return f"({', '.join(map(str, self.outs))}) of {pending} <- {self.branch}"


def read(draft: Draft, source: PlanSource, bound: Mapping[Var, Term], conditions: Iterable[Condition] = ()) -> Draft:
    """Return the draft with one more source, whose columns bind variables, and with more conditions."""
    made = bind(draft, bound)
    tests = (*made.conditions, *conditions)
    return Draft(made.pending, made.outs, (*made.sources, source), tests, made.inside)


def bind(draft: Draft, bound: Mapping[Var, Term]) -> Draft:
    """Return the draft with terms in the place of variables."""
    if not bound:
        return draft
    pending = tuple([substituted(literal, bound) for literal in draft.pending])
    return Draft(pending, substituted_terms(draft.outs, bound), draft.sources, draft.conditions, draft.inside)


def fixed_in(draft: Draft) -> frozenset[Operand]:
    """Return the slots in the pending literals, and the columns there that are not of the draft's own sources."""
    own = {source.number for source in draft.sources}
    terms = (term for literal in draft.pending for term in terms_of(literal))
    given = (term for term in terms if isinstance(term, (Slot, Col)))
    return frozenset(term for term in given if isinstance(term, Slot) or term.source not in own)


def comparison(operator: str, left: Operand, right: Operand) -> Condition | bool:
    """Return the outcome if it is known now, else the condition to test when the statement runs.

    `=` and `!=` are known now of names, and of anything with itself; other comparisons only of two constants. How large
    a value is that nothing mentions is not known at all.
    """
    if FRESH in (left, right) and operator not in ("=", "!="):
        raise UnboundVariable("")
    if left == right and operator in ("=", "!="):
        return operator == "="
    if isinstance(left, (Const, Other)) and isinstance(right, (Const, Other)):
        if operator in ("=", "!="):
            return operator == "!="
        if isinstance(left, Const) and isinstance(right, Const):
            return TYPED[operator].holds(left.id, right.id)
    if operator == "=":
        return Same(left, right)
    return Comparison(operator, left, right)


def is_closed(call: Call, rest: Draft) -> bool:
    """Say whether nothing else in the draft uses the call's variables."""
    return rest.needed.isdisjoint(variables_of((call,)))


def has_unused_end(call: Call, rest: Draft) -> bool:
    """Say whether nothing else uses one end of the path, and both ends have the same type.

    Any value of that end will do then, so it may be that of the other end, by a path of no hops.
    """
    return call.types[0] == call.types[1] and not rest.needed.issuperset(call.args)


# ---- prefixes -----------------------------------------------------------------------------------------------------
# Prefixes: the facts that bind the start of a path. Branches with equal prefixes share one plan.


def prefix_of(call: Call, rest: Draft) -> Branch | None:
    """Return the facts that lead to the start of the path, with their conditions; None where there is no such prefix.

    There is none if anything else uses the columns of those facts, or if nothing is resolved after the path.
    """
    start, end = call.args
    if not isinstance(start, Col) or not isinstance(end, Var) or not rest.pending:
        return None
    facts = {source.number for source in rest.sources if isinstance(source, FactScan)}
    taken = connected(start.source, map(sources_of, rest.conditions))
    asked = [term for literal in rest.pending for term in terms_of(literal)] + list(rest.outs)
    if not taken <= facts or any(isinstance(term, Col) and term.source in taken for term in asked):
        return None
    conditions = tuple(each for each in rest.conditions if taken & sources_of(each))
    if not all(isinstance(each, (Same, Among, Comparison)) for each in conditions):
        return None
    return Branch(tuple(each for each in rest.sources if each.number in taken), conditions)


def without_prefix(rest: Draft, prefix: Branch) -> Draft:
    """Return the draft without the sources and conditions of the prefix."""
    sources = tuple(each for each in rest.sources if each not in prefix.sources)
    return replace(rest, sources=sources, conditions=tuple(c for c in rest.conditions if c not in prefix.conditions))


def prefix_key(prefix: Branch, column: Col) -> Hashable:
    """Return a key for the prefix and its column, which is the same whatever numbers its sources have."""
    return renumbered(prefix, (column,))


def renumbered(branch: Branch, columns: Iterable[Col]) -> tuple[Branch, tuple[Col, ...]] | None:
    """Return the branch and columns of it with its sources numbered from 0; None if it has more than facts and tests.

    Branches that differ in numbers alone become equal.
    """
    places = {source.number: index for index, source in enumerate(branch.sources)}
    if not all(isinstance(each, FactScan) for each in branch.sources):
        return None
    if not all(isinstance(each, (Same, Among, Comparison)) for each in branch.conditions):
        return None

    def placed(operand: Operand) -> Operand:
        return replace(operand, source=places[operand.source]) if isinstance(operand, Col) else operand

    sources = tuple(replace(each, number=places[each.number]) for each in branch.sources)
    conditions = tuple(_mapped(each, placed) for each in branch.conditions)
    return Branch(sources, conditions), tuple(replace(each, source=places[each.source]) for each in columns)


def connected(start: int, joins: Iterable[set[int]]) -> set[int]:
    """Return the source and all that is joined with it, directly or through others; `joins` are sources in groups."""
    groups = list(joins)
    return set(reachable((start,), lambda source: [each for group in groups if source in group for each in group]))


def sources_of(condition: Condition) -> set[int]:
    """Return the numbers of the sources that the condition mentions."""
    if isinstance(condition, Tagged):
        return {condition.source}
    return {column.source for column in columns_in(condition)}


def columns_in(condition: Condition) -> Sequence[Col]:
    """Return the columns that the condition mentions."""
    match condition:
        case Same(left, right) | Comparison(_, left, right):
            return [each for each in (left, right) if isinstance(each, Col)]
        case Among(Col() as column, _):
            return (column,)
        case Holds(plan):
            return plan.outer_columns
    return ()


def _mapped(condition: Condition, change: Callable[[Operand], Operand]) -> Condition:
    match condition:
        case Same(left, right):
            return Same(change(left), change(right))
        case Among(operand, ids):
            return Among(change(operand), ids)
        case Comparison(operator, left, right):
            return Comparison(operator, change(left), change(right))
        case Tagged() | Holds() | ForeignCondition():
            raise AssertionError("no prefix has such a condition")


# ---- Choose which literal to resolve next (sideways information passing), and how ---------------------------------

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
