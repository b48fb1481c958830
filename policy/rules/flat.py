"""Flat rules: what normalisation makes of the text, before its variables have types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policy.language.source import Span
from policy.rules.declarations import Mask
from policy.rules.program import Atom, Literal, Member, Not, Term, Var

Key = tuple[str, int]  # predicate and arity
UNLIMITED: Mask = -1


@dataclass(frozen=True, slots=True)
class FlatRule:
    """`bounds` has the types that the text gives a variable; `limits` those that a `not ... matches` leaves, and where.

    `limits` has the variables of equalities too, as `UNLIMITED`: perhaps no literal mentions them any more.
    """

    head: Atom
    body: tuple[Literal, ...]
    places: tuple[Span, ...]  # of the body's literals
    bounds: Mapping[Var, Mask]
    limits: Mapping[Var, tuple[Mask, Span]]
    origin: Span
    caller: int | None  # the rule whose body calls this helper predicate; None for a rule of the text


def is_made_here(predicate: str) -> bool:
    """Say whether normalization created the predicate: that of a helper rule."""
    return "#" in predicate


def variables_of(rule: FlatRule) -> dict[Var, None]:
    return dict.fromkeys(variable for literal in (rule.head, *rule.body) for variable in variables_in(literal))


def variables_in(literal: Literal) -> list[Var]:
    return [term for term in terms_of(literal) if isinstance(term, Var)]


def terms_of(literal: Literal) -> tuple[Term, ...]:
    match literal:
        case Atom(_, args) | Not(Atom(_, args)):
            return args
        case Member(variable, _):
            return (variable,)
    return (literal.left, literal.right)


def key_of(atom: Atom) -> Key:
    return atom.predicate, len(atom.args)


def atoms_of(body: Iterable[Literal]) -> list[Atom]:
    """Return the atoms of a body, negated ones too."""
    found = []
    for literal in body:
        if isinstance(literal, Atom):
            found.append(literal)
        elif isinstance(literal, Not):
            found.append(literal.atom)
    return found
