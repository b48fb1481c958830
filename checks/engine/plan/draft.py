"""A branch while it is being built, and the plan that it is built for: how that recurses, and what it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from checks.engine.errors import UnboundVariable
from checks.engine.plan.plan import Branch, Comparison, Condition, Same, Source
from checks.engine.plan.states import Active, State
from checks.engine.rules.clauses import (
    FRESH,
    Call,
    Col,
    Const,
    Literal,
    Operand,
    Other,
    Pattern,
    Slot,
    Term,
    Var,
    substituted,
    substituted_terms,
    terms_of,
    variables_of,
)
from checks.engine.values import value
from policy.rules.program import TYPED


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
    sources: tuple[Source, ...] = ()
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


def read(
    draft: Draft, source: Source, bound: Mapping[Var, Term], conditions: Iterable[Condition] = ()
) -> Draft:
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
