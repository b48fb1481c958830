"""Which types the variables of a rule can have, given the facts and rules that there are.

`has_role(u, r, x) if has_relation(x, "parent", y) and has_role(u, r, y)`, with x a Doc and u a User: y is a Folder,
or else a Site, where those are the parents that a Doc can have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product

from checks.engine.rules.limits import tick
from policy.rules import program as p
from policy.values import Value

Typing = dict[p.Var, str]
ArgumentTypes = tuple[p.Types, ...]  # the types of the arguments of a fact, or of a rule's head
TypesByPredicate = Mapping[tuple[str, int], tuple[ArgumentTypes, ...]]  # what calls can match, by name and arity
AreFacts = Callable[[p.Signature], bool]  # whether there may be facts of a signature


def typings_of(types_by_predicate: TypesByPredicate, rule: p.Rule, types: tuple[str, ...]) -> Iterator[Typing]:
    """Yield every typing of the rule's variables by which each call in the body can match a fact or the head of a rule.

    `types` are those of the head's arguments.
    """
    typing = head_typing(rule, types)
    if typing is None:
        return
    atoms = [literal for literal in rule.body if isinstance(literal, p.Atom)]
    seen = set()
    for full in _typings(types_by_predicate, rule, atoms, _member_typings(rule, typing)):
        key = tuple(sorted((variable.name, name) for variable, name in full.items()))
        if key not in seen:
            seen.add(key)
            yield full


def may_be(rule: p.Rule, term: p.Term, type_name: str) -> bool:
    """Say whether the term can have the type."""
    return type_name in p.types_of(term, rule.types)


def head_typing(rule: p.Rule, types: tuple[str, ...]) -> Typing | None:
    """Return the types of the head's variables; None where the head cannot have these types."""
    typing: Typing = {}
    for term, name in zip(rule.head.args, types):
        match term:
            case Value(type=own):
                if own != name:
                    return None
            case p.Var():
                if name not in rule.types[term] or typing.setdefault(term, name) != name:
                    return None
    return typing


def _member_typings(rule: p.Rule, typing: Typing) -> list[Typing]:
    """Return the typing with the variables that are in lists of values: one for each type of the values."""
    found = [typing]
    for literal in rule.body:
        if isinstance(literal, p.Member):
            names = {value.type for value in literal.values} & rule.types[literal.variable]
            found = [
                {**each, literal.variable: name}
                for each in found
                for name in sorted(names)
                if each.get(literal.variable, name) == name
            ]
    return found


def _typings(
    types_by_predicate: TypesByPredicate, rule: p.Rule, atoms: list[p.Atom], starts: list[Typing]
) -> Iterator[Typing]:
    """Yield every typing of the variables of the atoms. The atom with the fewest untyped variables goes first."""
    for typing in starts:
        if not atoms:
            yield typing
            continue
        atom = min(atoms, key=lambda each: sum(isinstance(t, p.Var) and t not in typing for t in each.args))
        rest = [each for each in atoms if each is not atom]
        yield from _typings(types_by_predicate, rule, rest, list(atom_typings(types_by_predicate, rule, atom, typing)))


def atom_typings(types_by_predicate: TypesByPredicate, rule: p.Rule, atom: p.Atom, typing: Typing) -> Iterator[Typing]:
    """Yield the typings of the atom's variables by which it can match a fact or a rule's head."""
    seen = set()
    known = [types_of(rule, term, typing) for term in atom.args]
    for pattern in types_by_predicate.get((atom.predicate, len(atom.args)), ()):
        if any(map(frozenset.isdisjoint, known, pattern)):
            continue
        for names in product(*(sorted(own & allowed) for own, allowed in zip(known, pattern))):
            tick()
            if names not in seen:
                seen.add(names)
                extended = _extended(atom, typing, names)
                if extended is not None:
                    yield extended


def _extended(atom: p.Atom, typing: Typing, names: tuple[str, ...]) -> Typing | None:
    """Return the typing with the atom's arguments of these types; None where a variable would have two types."""
    extended = dict(typing)
    for term, name in zip(atom.args, names):
        if isinstance(term, p.Var) and extended.setdefault(term, name) != name:
            return None
    return extended


def types_of(rule: p.Rule, term: p.Term, typing: Typing) -> p.Types:
    """Return the types that the term can have: one, if its variable has a type already."""
    if isinstance(term, p.Var) and term in typing:
        return frozenset((typing[term],))
    return p.types_of(term, rule.types)
