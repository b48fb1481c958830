"""Recursive calls as states: what a branch knows becomes keys, so that equal calls are the same state."""

from __future__ import annotations

from dataclasses import field

from checks.engine.rules.clauses import (
    NOW,
    Call,
    Col,
    Key,
    Literal,
    Operand,
    Slot,
    Term,
    Var,
    mapped,
    terms_of,
)
from checks.engine.values import hashed_once, value

FAR = -1_000_000  # stands for a component: what is far from the entry is a state, though it does not recurse

Active = tuple[tuple[int, int], ...]


@hashed_once
@value
class State:
    """A recursive call and what is to be met after it, with `Key`s for what only the branch before knew.

    `active` are the components that recursion is inside of, each with how much was still to be met when it was
    entered: a call that comes back to one of them with no more than that left is the same state again.
    """

    call: Call
    rest: tuple[Literal, ...]
    outs: tuple[Term, ...]
    active: Active
    _hash: int = field(init=False, repr=False, compare=False)

    @property
    def keys(self) -> list[Key]:
        terms = [term for literal in (self.call, *self.rest) for term in terms_of(literal)]
        found = {term.index: term for term in (*terms, *self.outs) if isinstance(term, Key)}
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
    """The state, whatever the branch's columns and variables are called; and the operands for its keys.

    So are the question's values, if the state is to be the same one `with_values`.
    """
    keys: dict[Operand, Key] = {}
    names: dict[Var, Var] = {}
    typed = zip(call.args, call.types) if with_values else ()
    given = {arg: kind for arg, kind in typed if isinstance(arg, Slot) and arg != NOW}

    def general(term: Term) -> Term:
        if isinstance(term, Var):
            return names.setdefault(term, term.numbered(len(names)))
        if isinstance(term, Col) and term not in fixed:
            return keys.setdefault(term, Key(len(keys), term.type))
        if isinstance(term, Slot) and term in given:
            return keys.setdefault(term, Key(len(keys), given[term]))
        return term

    asked = tuple(map(general, outs))
    state = State(mapped(call, general), tuple(mapped(each, general) for each in rest), asked, active)
    return state, tuple(keys)


def before(active: Active, component: int) -> Active:
    """The components that were entered before this one."""
    entered = tuple(each for each in active if each[0] != FAR)
    numbers = [number for number, _ in entered]
    return entered[: numbers.index(component)] if component in numbers else entered


def innermost(active: Active) -> int:
    """The component that was entered last."""
    return next(number for number, _ in reversed(active) if number != FAR)
