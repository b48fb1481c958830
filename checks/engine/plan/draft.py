"""A branch of a plan while it is built."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from checks.engine.errors import CannotEnumerate, UnboundVariable
from checks.engine.plan.plan import (
    Active,
    Among,
    Branch,
    Comparison,
    Condition,
    Exit,
    FactScan,
    ForeignCondition,
    Holds,
    PlanSource,
    Same,
    State,
    Tagged,
    Variant,
)
from checks.engine.rules.clauses import (
    FRESH,
    UNBOUND,
    Call,
    Col,
    Const,
    Inner,
    Literal,
    Neg,
    Operand,
    Other,
    Pattern,
    Slot,
    Term,
    Var,
    is_bound,
    substituted,
    substituted_terms,
    terms_of,
    type_of,
    value,
    variables_of,
)
from policy.rules.components import reachable
from policy.rules.program import TYPED
from policy.values import STRING

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
