"""Recursive calls as states: columns become keys, so that calls which differ only in those are the same state.

(y) of p(s1.a0, x) and q(x, y)   ->   the state (y) of p(c0, x) and q(x, y), entered with (s1.a0)
"""

from __future__ import annotations

from dataclasses import field

from checks.engine.rules.clauses import (
    NOW,
    Call,
    Col,
    GoalKey,
    Literal,
    Operand,
    Slot,
    Term,
    Var,
    mapped,
    terms_of,
)
from checks.engine.values import hashed_once, value

FAR = -1_000_000  # the component of a state that does not recurse: it was made because it is far from the entry

Active = tuple[tuple[int, int], ...]


@hashed_once
@value
class State:
    """A recursive call and what is resolved after it. `GoalKey`s stand for what only the branch that enters it knows.

    `active` are the components that the recursion is inside of, outermost first, each with the number of literals that
    were pending when it was entered. A later call of that component is a state again if no more than that are pending.
    """

    call: Call
    rest: tuple[Literal, ...]
    outs: tuple[Term, ...]
    active: Active
    _hash: int = field(init=False, repr=False, compare=False)

    @property
    def keys(self) -> list[GoalKey]:
        terms = [term for literal in (self.call, *self.rest) for term in terms_of(literal)]
        found = {term.index: term for term in (*terms, *self.outs) if isinstance(term, GoalKey)}
        return [found[index] for index in range(len(found))]

    @property
    def key_count(self) -> int:
        return len(self.keys)

    @property
    def width(self) -> int:
        return len(self.outs)

    def __str__(self) -> str:
        asked = f"({', '.join(map(str, self.outs))}) of " if self.outs else ""
        return asked + " and ".join(map(str, (self.call, *self.rest)))


def state_of(
    call: Call,
    rest: tuple[Literal, ...],
    outs: tuple[Term, ...],
    active: Active,
    fixed: frozenset[Operand],
    with_values: bool = False,
) -> tuple[State, tuple[Operand, ...]]:
    """Return the state that the branch enters, and the operands for its keys.

    Columns become keys, other than those in `fixed`, and variables are numbered anew. `with_values`: the question's
    values in the call become keys, too, so that the state is the same for any values.
    """
    keys: dict[Operand, GoalKey] = {}
    names: dict[Var, Var] = {}
    typed = zip(call.args, call.types) if with_values else ()
    given = {arg: kind for arg, kind in typed if isinstance(arg, Slot) and arg != NOW}

    def general(term: Term) -> Term:
        if isinstance(term, Var):
            return names.setdefault(term, term.numbered(len(names)))
        if isinstance(term, Col) and term not in fixed:
            return keys.setdefault(term, GoalKey(len(keys), term.type))
        if isinstance(term, Slot) and term in given:
            return keys.setdefault(term, GoalKey(len(keys), given[term]))
        return term

    asked = tuple(map(general, outs))
    state = State(mapped(call, general), tuple(mapped(each, general) for each in rest), asked, active)
    return state, tuple(keys)


def before(active: Active, component: int) -> Active:
    """Return the active components that were entered before this one, without `FAR`."""
    entered = tuple(each for each in active if each[0] != FAR)
    numbers = [number for number, _ in entered]
    return entered[: numbers.index(component)] if component in numbers else entered


def innermost(active: Active) -> int:
    """Return the component that was entered last, without `FAR`."""
    return next(number for number, _ in reversed(active) if number != FAR)
