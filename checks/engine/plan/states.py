"""Recursive calls as states: what a branch knows becomes keys, so that equal calls are the same state."""

from __future__ import annotations

from checks.engine.plan.plan import State
from checks.engine.rules.clauses import Call, Col, Key, Literal, Operand, Term, Var, mapped

FAR = -1_000_000  # stands for a component: what is far from the entry is a state, though it does not recurse

Active = tuple[tuple[int, int], ...]


def state_of(
    call: Call,
    rest: tuple[Literal, ...],
    outs: tuple[Term, ...],
    active: Active,
    fixed: frozenset[Operand],
) -> tuple[State, tuple[Operand, ...]]:
    """The state, whatever the branch's columns and variables are called; and the operands for its keys."""
    keys: dict[Operand, Key] = {}
    names: dict[Var, Var] = {}

    def general(term: Term) -> Term:
        if isinstance(term, Var):
            return names.setdefault(term, term.numbered(len(names)))
        if isinstance(term, Col) and term not in fixed:
            return keys.setdefault(term, Key(len(keys), term.type))
        return term

    asked = tuple(map(general, outs))
    state = State(mapped(call, general), tuple(mapped(each, general) for each in rest), asked, active)
    return state, tuple(keys)


def before(active: Active, component: int) -> Active:
    """The components that were entered before this one."""
    entered = tuple(each for each in active if each[0] != FAR)
    numbers = [number for number, _ in entered]
    return entered[: numbers.index(component)] if component in numbers else entered
