"""Drafts of a plan, and the choice of the literal to resolve next."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from math import inf

from checks.engine.plan.plan import (
    FAR,
    Active,
    Branch,
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
    UNBOUND,
    Call,
    Cmp,
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
    check,
    is_bound,
    is_stand_in,
    pattern_of,
    substituted,
    substituted_terms,
    terms_of,
    tick,
    type_of,
    value,
    variables_of,
)
from checks.engine.rules.ruleset import TABLED, RuleSet
from checks.errors import CannotEnumerate, UnboundVariable
from policy.rules.components import reachable
from policy.rules.program import TYPED, Signature
from policy.values import STRING

# ---- paths --------------------------------------------------------------------------------------------------------
# Properties of calls: which arguments are known or fixed, and whether they follow paths (see `Separated`).


def is_one_path(call: Call) -> bool:
    """Return whether the call is a path with one known end, and so asks for everything at the other end."""
    return call.is_path and sum(map(is_bound, call.args)) == 1


def is_backward(call: Call) -> bool:
    """Return whether the call is a path of which only the end is known; it is followed from there."""
    return call.is_path and not is_bound(call.args[0]) and is_bound(call.args[1])


def is_free(call: Call) -> bool:
    return not any(map(is_bound, call.args))


def anchors(types: tuple[str, ...], args: tuple[Term, ...]) -> list[Term]:
    """Return the arguments that a search can start from: all known ones except names, which match too many rows."""
    bound = [(kind, arg) for kind, arg in zip(types, args) if not isinstance(arg, UNBOUND)]
    return [arg for kind, arg in bound if kind != STRING or not isinstance(arg, (Const, Other))]


def is_anchored(call: Call) -> bool:
    """Return whether a search for the call can start from the question's values, not only from a column of a row."""
    return not all(isinstance(arg, Col) for arg in anchors(call.types, call.args))


def is_fixed(call: Call, fixed: frozenset[Operand]) -> bool:
    """Return whether all columns that the call mentions are fixed for the whole plan."""
    return not any(isinstance(arg, Col) and arg not in fixed for arg in call.args)


def is_from_fixed(path: Call, fixed: frozenset[Operand]) -> bool:
    """Return whether the start is fixed for the whole plan, and the end is a column: it is looked up in a set."""
    start, end = path.args
    return (
        is_bound(start) and (not isinstance(start, Col) or start in fixed) and isinstance(end, Col) and end not in fixed
    )


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
    """Return the exit's variant. Its guards must only mention answer columns and fixed operands."""
    columns = {out: Var(k, type=type_of(out)) for k, out in enumerate(end.outs)} if end.guards else {}
    guards = []
    for guard in end.guards:
        args = tuple(columns.get(arg, arg) for arg in guard.call.args)
        if any(isinstance(arg, Col) and arg not in fixed for arg in args):
            raise CannotEnumerate("all values except some, by a rule that a list cannot express")
        guards.append(Neg(replace(guard.call, args=args)))
    wild = frozenset(k for k, out in enumerate(end.outs) if isinstance(out, Var))
    # Duplicates are dropped: a recursion that met a guard at each level would otherwise create variants without end.
    return Variant(wild, tuple(sorted(set(guards), key=str)), same_columns(end))


def same_columns(end: Exit) -> tuple[tuple[int, int], ...]:
    """Return pairs of wild columns, an earlier and a later one, that stand for the same value."""
    return tuple((out.number, k) for k, out in enumerate(end.outs) if isinstance(out, Var) and out.number != k)


def guards_for(variant: Variant, results: tuple[Var, ...], known: Mapping[Var, Term]) -> list[Neg]:
    """Return the variant's guards with `results` for its columns, or their values where `known`."""
    if not variant.guards:
        return []
    terms = {Var(k): known.get(variable, variable) for k, variable in enumerate(results)}
    return [substituted(guard, terms) for guard in variant.guards]


# ---- draft --------------------------------------------------------------------------------------------------------
# A branch under construction, and its plan: how that recurses, and which operands it is given.


@value
class Enclosing:
    """The plan that a draft belongs to, and the recursions that the draft is in.

    `fixed` are the operands given to the whole plan, `active` the recursions that were entered (see `State`), and
    `in_place` the states that are inlined where they are entered.
    """

    fixed: frozenset[Operand] = frozenset()
    active: Active = ()
    in_place: frozenset[State] = frozenset()
    may_jump: bool = True  # whether it may enter states: not after it has read an answer, except in rounds
    rounds: int | None = None  # the component that the plan evaluates in rounds
    table: Pattern | None = None  # the pattern whose answers the plan tables


OUTERMOST = Enclosing()


@value
class Draft:
    """A branch under construction: the literals still to be resolved, and what is read and tested so far.

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
        """Return the terms that the pending literals and the answer columns use."""
        return variables_of(self.pending).union(self.outs)

    def without(self, literal: Literal) -> Draft:
        """Return the draft without that literal."""
        pending = tuple([each for each in self.pending if each is not literal])
        return Draft(pending, self.outs, self.sources, self.conditions, self.inside)

    def testing(self, conditions: Iterable[Condition]) -> Draft:
        """Return the draft with additional conditions."""
        return Draft(self.pending, self.outs, self.sources, (*self.conditions, *conditions), self.inside)

    def __str__(self) -> str:
        pending = " and ".join(map(str, self.pending)) or "true"
        return f"({', '.join(map(str, self.outs))}) of {pending} <- {self.branch}"


def read(draft: Draft, source: PlanSource, bound: Mapping[Var, Term], conditions: Iterable[Condition] = ()) -> Draft:
    """Return the draft with one more source, whose columns bind variables, and with additional conditions."""
    made = bind(draft, bound)
    tests = (*made.conditions, *conditions)
    return Draft(made.pending, made.outs, (*made.sources, source), tests, made.inside)


def bind(draft: Draft, bound: Mapping[Var, Term]) -> Draft:
    """Return the draft with terms substituted for variables."""
    if not bound:
        return draft
    pending = tuple([substituted(literal, bound) for literal in draft.pending])
    return Draft(pending, substituted_terms(draft.outs, bound), draft.sources, draft.conditions, draft.inside)


def fixed_in(draft: Draft) -> frozenset[Operand]:
    """Return the slots in the pending literals, and the columns there that are not from the draft's own sources."""
    own = {source.number for source in draft.sources}
    terms = (term for literal in draft.pending for term in terms_of(literal))
    given = (term for term in terms if isinstance(term, (Slot, Col)))
    return frozenset(term for term in given if isinstance(term, Slot) or term.source not in own)


def comparison(operator: str, left: Operand, right: Operand) -> Condition | bool:
    """Return the outcome if it is already certain, else the condition to test at run time.

    `=` and `!=` are certain for names, and for anything compared with itself; other comparisons only for two constants.
    How large a value is that nothing mentions is never certain.
    """
    if operator not in ("=", "!=") and any(isinstance(each, Const) and is_stand_in(each.id) for each in (left, right)):
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
    return Cmp(operator, left, right)


def is_closed(call: Call, rest: Draft) -> bool:
    """Return whether nothing else in the draft uses the call's variables."""
    return rest.needed.isdisjoint(variables_of((call,)))


def has_unused_end(call: Call, rest: Draft) -> bool:
    """Return whether nothing else uses one end of the path, and both ends have the same type.

    Any value will do for that end then, such as that of the other end, by a path of no hops.
    """
    return call.types[0] == call.types[1] and not rest.needed.issuperset(call.args)


# ---- prefixes -----------------------------------------------------------------------------------------------------
# Prefixes: facts that bind the start of a path. Branches with equal prefixes share one plan.


def prefix_of(call: Call, rest: Draft, is_own: bool, rules: RuleSet) -> tuple[Col, Branch] | None:
    """Return an end of the path and the facts that lead to it, with their conditions, or None.

    None if anything else uses the columns of those facts, or if the end of the path is used by nothing.

    If both ends are known, what the path leads to from one is a set, in which the other is looked up: fewer rows than
    pairs of both. Steps from the first argument of facts are preferred, since entities have few groups and parents, but
    these have many members and children.
    """
    start, end = call.args
    if not isinstance(start, Col):
        return None
    if isinstance(end, Var):
        prefix = _leading_to(start, rest) if rest.pending and not is_own else None
        return (start, prefix) if prefix else None
    if not isinstance(end, Col) or rest.pending:
        return None
    path = pattern_of(call)
    is_upward = _steps_from_first(rules, path, False) or not _steps_from_first(rules, path, True)
    for known, other in [(start, end), (end, start)][:: 1 if is_upward else -1]:
        prefix = _leading_to(known, rest, other)
        if prefix:
            return known, prefix
    return None


def _steps_from_first(rules: RuleSet, path: Pattern, backward: bool) -> bool:
    """Return whether all facts in the path's steps are looked up by their first argument."""
    known = int(backward)
    scans = [
        (literal, clause.params[known])
        for clause in rules.alternatives(path, backward)
        for literal in clause.body
        if isinstance(literal, Scan)
    ]
    return bool(scans) and all(scan.args[0] == term for scan, term in scans if term in scan.args)


def _leading_to(column: Col, rest: Draft, *others: Col) -> Branch | None:
    """Return what the column is joined with; None if something else uses that, or it is more than facts and tests."""
    facts = {source.number for source in rest.sources if isinstance(source, FactScan)}
    taken = connected(column.source, map(sources_of, rest.conditions))
    used = [*others, *(term for literal in rest.pending for term in terms_of(literal)), *rest.outs]
    if not taken <= facts or any(isinstance(term, Col) and term.source in taken for term in used):
        return None
    conditions = tuple(each for each in rest.conditions if taken & sources_of(each))
    if not all(isinstance(each, (Same, Member, Cmp)) for each in conditions):
        return None
    return Branch(tuple(each for each in rest.sources if each.number in taken), conditions)


def without_prefix(rest: Draft, prefix: Branch) -> Draft:
    """Return the draft without the sources and conditions of the prefix."""
    sources = tuple(each for each in rest.sources if each not in prefix.sources)
    return replace(rest, sources=sources, conditions=tuple(c for c in rest.conditions if c not in prefix.conditions))


def prefix_key(prefix: Branch, column: Col) -> Hashable:
    """Return a key for the prefix and its column that does not depend on the numbers of its sources."""
    return renumbered(prefix, (column,))


def renumbered(branch: Branch, columns: Iterable[Col]) -> tuple[Branch, tuple[Col, ...]] | None:
    """Return the branch and its columns with sources numbered from 0; None if it has more than facts and tests.

    Branches that differ only in numbers become equal.
    """
    places = {source.number: index for index, source in enumerate(branch.sources)}
    if not all(isinstance(each, FactScan) for each in branch.sources):
        return None
    if not all(isinstance(each, (Same, Member, Cmp)) for each in branch.conditions):
        return None

    def placed(operand: Operand) -> Operand:
        return replace(operand, source=places[operand.source]) if isinstance(operand, Col) else operand

    sources = tuple(replace(each, number=places[each.number]) for each in branch.sources)
    conditions = tuple(_mapped(each, placed) for each in branch.conditions)
    return Branch(sources, conditions), tuple(replace(each, source=places[each.source]) for each in columns)


def connected(start: int, joins: Iterable[set[int]]) -> set[int]:
    """Return the source and all that is joined with it, directly or indirectly; `joins` are groups of sources."""
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
        case Same(left, right) | Cmp(_, left, right):
            return [each for each in (left, right) if isinstance(each, Col)]
        case Member(Col() as column, _):
            return (column,)
        case Holds(plan):
            return plan.outer_columns
    return ()


def _mapped(condition: Condition, change: Callable[[Operand], Operand]) -> Condition:
    match condition:
        case Same(left, right):
            return Same(change(left), change(right))
        case Member(operand, ids):
            return Member(change(operand), ids)
        case Cmp(operator, left, right):
            return Cmp(operator, change(left), change(right))
        case Tagged() | Holds() | ForeignCondition():
            raise AssertionError("no prefix has such a condition")


# ---- The selection rule: resolve the literal with the most bound arguments next -----------------------------------
# A fact that a given or joined entity leads to is an index search. Names alone (`"reader"`) are not selective enough,
# since half the table may have them. A call with a given argument goes before facts that would need a scan.
#
#     has_role(u, "reader", r) and has_relation(:resource, "org", r)    ->  the relation first: it determines r

# The cost of resolving a literal next: the lowest goes first. Only the order of the numbers matters.
PROBE = 0.0  # a fact whose arguments are all known
RENAMING = 0.1  # a call with at most one clause: inlining it decides nothing yet
LISTED = 0.4  # a variable with a list of constants
GIVEN = 0.5  # values from the question
PATH_ON = 0.93  # a path from a known start, before what is resolved at its end: a sum of costs, not a product
PATH_FIXED = 0.95  # a path from an operand given to the whole plan: few answers, evaluated once
SEARCH = 1.0  # a fact that something known leads to
OPEN_ARGUMENT = 0.1  # added to a fact's cost for each unbound argument
ALONE = 2.5  # a call that shares no variable with anything else
LED_TO = 3.0  # a call that something known leads to
EXISTENTIAL = 4.0  # a recursive or tabled call tested with EXISTS: nothing else uses its variables
LISTED_LATE = 5.0  # a list of constants for a variable that a fact will bind, which makes it a test
JUMP = 7.5  # the recursion's own call as the last literal: before facts that need a scan
OWN_OPEN = 7.9  # the recursion's own call that nothing leads to
READ_THROUGH = 8.0  # a fact that nothing known leads to
OPEN = 9.0  # a call that nothing known leads to
ANYWHERE = 20.0  # a path with neither end known
OWN_LATER = 30.0  # the recursion's own call while more literals are pending

PATH_LATE = 1.45  # a path from a known start to what few facts will bind: they are read first, and looked up in its set

IsNarrow = Callable[[Signature, int], bool]  # whether each value of an argument is in few facts of the signature


def nowhere(signature: Signature, index: int) -> bool:
    return False


RESOLVED = (Scan, Call, Given, Member)  # all except tests, which wait until their variables are bound


def _scan_cost(types: tuple[str, ...], args: tuple[Term, ...]) -> float:
    open_args = len([arg for arg in args if isinstance(arg, UNBOUND)])
    if not open_args:
        return PROBE
    return (SEARCH if anchors(types, args) else READ_THROUGH) + open_args * OPEN_ARGUMENT


def _path_cost(path: Call, enclosing: Enclosing, is_own: bool, is_last: bool) -> float | None:
    start, end = path.args
    if not is_bound(start) and not is_bound(end):
        return ANYWHERE
    if not is_own and not is_bound(end) and is_fixed(path, enclosing.fixed):
        return PATH_FIXED
    return PATH_ON if is_last and is_bound(start) and not is_bound(end) else None


# ---- choose -------------------------------------------------------------------------------------------------------
# How a call is resolved: its clauses inlined, tested with EXISTS, joined as a table, or entered as a state.
#
# allow(:actor, "read", :doc) if …                       in place:  replaced by its clauses
# … and blocked(:actor, s1.a2)                           tested:  nothing else uses its variables: a condition
# … and path(:actor, t) and has_role(t, "reader", :doc)  joined:  evaluated once, read wherever it is needed
# has_role(u, "reader", f) in its own recursion          a state:  the plan goes on there

FAR_SOURCES = 3  # tables that a branch reads before it is far from the entry


class Resolution(Enum):
    IN_PLACE = auto()  # a branch for each of its clauses
    EMPTY_PATH = auto()  # a path with an otherwise unused end: it ends where it starts
    TESTED = auto()  # a condition: whether it holds
    JOINED = auto()  # a derived table of its answers, evaluated once for all branches
    AFTER_PREFIX = auto()  # a derived table of what facts and then a path lead to, for all branches with these facts
    ENTERED = auto()  # a state of the plan
    JOINED_TO_STATE = auto()  # a state of the plan; the branch continues from each of its answers
    NONLINEAR = auto()  # not possible: the recursion is nonlinear and needs rounds


@value
class Choice:
    """How to resolve a call, with parameters, most of which are for some resolutions only."""

    resolution: Resolution
    component: int = FAR
    left: int = 0  # maximum number of pending literals when the state is entered again
    is_fixed: bool = False  # whether all columns that the joined call mentions are fixed for the whole plan
    rounds: int | None = None
    table: Pattern | None = None
    prefix: Branch | None = None
    known: Col | None = None  # the end of the path that the prefix leads to


IN_PLACE = Choice(Resolution.IN_PLACE)


@dataclass(frozen=True)
class Chooser:
    """Decides which literal is resolved next, and how calls are resolved.

    `nonlinear` are recursions that planning found to need rounds, though no clause shows it (see `is_nonlinear`). If it
    contains `TABLED`, all that is tabled is evaluated in rounds.
    """

    rules: RuleSet
    nonlinear: set[int]
    is_narrow: IsNarrow = nowhere
    prefers_sets: bool = False  # whether a look-up takes longer than a row of a set

    # ---- what is resolved next -----------------------------------------------------------------------------------

    def next_literal(self, draft: Draft) -> Literal | None:
        """Return the literal to resolve next; None if only tests of unbound variables are left."""
        if len(draft.pending) == 1:
            return draft.pending[0] if isinstance(draft.pending[0], RESOLVED) else None
        found, least = None, inf
        for literal in draft.pending:
            cost = self._cost(literal, draft)
            if cost is not None and cost < least:
                found, least = literal, cost
                if cost == PROBE:
                    break
        return found

    def _cost(self, literal: Literal, draft: Draft) -> float | None:
        """Return the cost of a pending literal; None for a test."""
        match literal:
            case Scan(signature, args):
                return _scan_cost(signature.types, args)
            case Call():
                return self._call_cost(literal, draft)
            case Given():
                return GIVEN
            case Member(variable, _):
                is_scanned = any(isinstance(each, Scan) and variable in each.args for each in draft.pending)
                return LISTED_LATE if is_scanned else LISTED
        return None

    def _call_cost(self, call: Call, draft: Draft) -> float:
        pattern = pattern_of(call)
        component = self.rules.component(pattern)
        if component is None and len(self.rules.alternatives(pattern)) <= 1:
            return RENAMING
        check()
        rest = draft.without(call)
        if component is not None and component != TABLED:
            return self._recursive_cost(call, rest, component)
        if is_closed(call, rest):
            return ALONE if component is None else EXISTENTIAL
        return LED_TO if anchors(call.types, call.args) else OPEN

    def _recursive_cost(self, call: Call, rest: Draft, component: int) -> float:
        entered = dict(rest.inside.active)
        is_own = component in entered
        is_last = not is_own or len(rest.pending) <= entered[component]
        if call.is_path:
            cost = _path_cost(call, rest.inside, is_own, is_last)
            if cost in (PATH_ON, PATH_FIXED) and not is_own and not rest.outs:
                return self._late(call, rest, cost)
            if cost is not None:
                return cost
        is_alone = is_closed(call, rest)
        if is_own and (is_alone or not rest.outs):
            return JUMP if is_last and anchors(call.types, call.args) else OWN_LATER
        if is_alone:
            return EXISTENTIAL
        if anchors(call.types, call.args):
            return LED_TO + (OPEN_ARGUMENT if is_last and self._waits(call, rest) else 0)
        return OWN_OPEN if is_own else OPEN

    def _late(self, path: Call, rest: Draft, cost: float) -> float:
        """Return the cost of a path from a known start, in a check: `PATH_LATE` if few facts bind its end.

        A little less than its `cost` if its end leads to few facts, so that it is resolved before another path to them.
        """
        start, end = path.args
        scans = [each for each in rest.pending if isinstance(each, Scan) and end in each.args]
        for scan in scans:
            bound = [index for index, arg in enumerate(scan.args) if not isinstance(arg, UNBOUND)]
            is_led_to = any(self.is_narrow(scan.signature, index) for index in bound)
            if is_led_to and (not isinstance(start, Col) or start in rest.inside.fixed or _leading_to(start, rest)):
                return PATH_LATE
        is_good = any(self.is_narrow(scan.signature, scan.args.index(end)) for scan in scans)
        return PATH_ON - OPEN_ARGUMENT / 10 if is_good else cost

    def _waits(self, path: Call, rest: Draft) -> bool:
        """Return whether calls go before a path with one known end, in a check: few facts lead to either end.

        What the calls bind is then looked up in the set that the path leads to, as what facts bind is.
        """
        if not self.prefers_sets or not path.is_path or rest.outs:
            return False
        known, end = sorted(path.args, key=is_bound, reverse=True)
        prefix = _leading_to(known, rest) if isinstance(known, Col) else None
        calls = [each for each in rest.pending if isinstance(each, Call) and end in each.args]
        if prefix is None or not calls or not all(map(self._is_led_to, prefix.sources)):
            return False
        return all(anchors(each.types, each.args) and self._binds_few(each, end) for each in calls)

    def _is_led_to(self, source: PlanSource) -> bool:
        return isinstance(source, FactScan) and self.is_narrow(source.signature, 0)

    def _binds_few(self, call: Call, end: Term) -> bool:
        """Return whether few facts bind the variable, whatever clauses of the call they are in."""
        waiting, seen = [(pattern_of(call), call.args.index(end))], set()
        while waiting:
            tick()
            pattern, index = waiting.pop()
            if (pattern, index) in seen:
                continue
            seen.add((pattern, index))
            if self.rules.component(pattern) is not None:
                return False
            for clause in self.rules.alternatives(pattern):
                place = clause.params[index]
                for literal in clause.body:
                    if isinstance(literal, Call) and place in literal.args:
                        waiting.append((pattern_of(literal), literal.args.index(place)))
                    elif isinstance(literal, Scan) and place in literal.args and not self._is_few(literal, place):
                        return False
        return True

    def _is_few(self, scan: Scan, term: Term) -> bool:
        """Return whether another argument of the fact is in few facts."""
        return any(self.is_narrow(scan.signature, index) for index, arg in enumerate(scan.args) if arg != term)

    # ---- how a call is resolved ----------------------------------------------------------------------------------

    def chosen(self, call: Call, rest: Draft) -> Choice:
        """Return how to resolve the call; `rest` is the draft without it."""
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
        is_own = component in dict(rest.inside.active)
        if (
            call.is_path
            and not self._takes_rounds(component, rest)
            and (found := prefix_of(call, rest, is_own, self.rules))
        ):
            return Choice(Resolution.AFTER_PREFIX, known=found[0], prefix=found[1])
        return self._own(rest, component) if is_own else self._recursive(call, rest, component)

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
        """Return how to resolve a call of a recursion that the draft is already in."""
        left = dict(rest.inside.active)[component]
        if rest.inside.may_jump and len(rest.pending) <= left:
            return Choice(Resolution.ENTERED, component, left)
        if component == rest.inside.rounds or (rest.outs and rest.inside.may_jump):
            return Choice(Resolution.JOINED_TO_STATE, component)
        return Choice(Resolution.NONLINEAR, component=component)

    def _recursive(self, call: Call, rest: Draft, component: int) -> Choice:
        if self._takes_rounds(component, rest):
            return Choice(Resolution.JOINED, rounds=component)
        if call.is_path and not rest.pending and is_from_fixed(call, rest.inside.fixed):
            return Choice(Resolution.JOINED)
        if rest.inside.may_jump and not rest.pending:
            return Choice(Resolution.ENTERED, component)
        if is_closed(call, rest):
            return Choice(Resolution.TESTED)
        if is_fixed(call, rest.inside.fixed):
            return Choice(Resolution.JOINED, is_fixed=True)
        if rest.inside.may_jump:
            return Choice(Resolution.ENTERED, component, len(rest.pending))
        return Choice(Resolution.NONLINEAR, component=innermost(rest.inside.active))  # its answers are continued here

    def _takes_rounds(self, component: int, rest: Draft) -> bool:
        """Return whether the recursion is evaluated in rounds, and the draft is outside of it."""
        return component != rest.inside.rounds and (component in self.nonlinear or self.rules.is_nonlinear(component))

    # ---- estimates ---------------------------------------------------------------------------------------------

    def _is_cheap_in_place(self, rest: Draft, call: Call) -> bool:
        """Return whether inlining a check multiplies nothing."""
        are_many = [isinstance(each, Ids) and each.are_many for each in rest.sources]
        is_last = not rest.pending and (not rest.outs or (any(are_many) and all(are_many)))
        repeats = any(isinstance(condition, Holds) for condition in rest.conditions)
        return (is_last and not repeats) or len(self.rules.alternatives(pattern_of(call))) <= 1

    def _multiplies(self, rest: Draft, call: Call) -> bool:
        """Return whether inlining the call would repeat another call's clauses for each of its own."""
        others = (each for each in rest.pending if isinstance(each, Call))
        is_wide = self._has_several(call) and any(map(self._has_several, others))
        return is_wide and not is_compared(self.rules, call, (Var, Col))

    def _is_far(self, rest: Draft, call: Call) -> bool:
        """Return whether only the call is left, and the branch is too long to repeat for each of its clauses."""
        return len(rest.sources) >= FAR_SOURCES and not rest.pending and not rest.outs and self._has_several(call)

    def _has_several(self, call: Call) -> bool:
        """Return whether the call has several clauses, so that inlining splits the branch."""
        return len(self.rules.alternatives(pattern_of(call))) > 1


def is_compared(rules: RuleSet, call: Call, kind: type | tuple[type, ...]) -> bool:
    """Return whether an argument of that kind is only compared: a plan of the call alone could not bind it."""
    return any(isinstance(call.args[index], kind) for index in rules.calls.only_compared(pattern_of(call)))
