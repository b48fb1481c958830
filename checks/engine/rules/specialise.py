"""Rule + argument types -> clauses: one copy for each way its variables can be typed.

`has_role(u, r, x) if has_relation(x, "parent", y) and has_role(u, r, y)` asked for a Doc becomes one clause for
each type that a parent of a Doc can have. Only typings that some fact or rule can meet are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from checks.engine.rules.clauses import (
    NOW,
    Call,
    Clause,
    Cmp,
    Const,
    Inner,
    Literal,
    Member,
    Neg,
    Term,
    Var,
    substituted,
)
from checks.engine.rules.limits import tick
from policy.rules import program as p
from policy.values import INTEGER, Value

Typing = dict[p.Var, str]


def concrete_clauses(program: p.Program, rule: p.Rule, types: tuple[str, ...]) -> Iterator[Clause]:
    """The rule's clauses for these head types; none where the head cannot have them."""
    for typing in typings_of(program, rule, types):
        clause = _clause(program, rule, typing)
        if clause is not None:
            yield clause


def typings_of(program: p.Program, rule: p.Rule, types: tuple[str, ...]) -> Iterator[Typing]:
    """Every way to type the rule's variables that a fact or some rule can meet."""
    typing = head_typing(rule, types)
    if typing is None:
        return
    atoms = [literal for literal in rule.body if isinstance(literal, p.Atom)]
    seen = set()
    for full in _typings(program, rule, atoms, _member_typings(rule, typing)):
        key = tuple(sorted((variable.name, name) for variable, name in full.items()))
        if key not in seen:
            seen.add(key)
            yield full


def concrete_literals(
    program: p.Program, rule: p.Rule, literal: p.Literal, typing: Typing
) -> tuple[Literal, ...] | None:
    """One literal of the rule with types decided; None where it can never hold."""
    made = _literals(program, rule, literal, typing, numbers_of(rule, typing))
    return None if made is None else tuple(made)


def numbers_of(rule: p.Rule, typing: Typing) -> dict[p.Var, Var]:
    """What the rule's variables are called in its clauses."""
    return {
        variable: Var(index, variable.name, typing.get(variable, "")) for index, variable in enumerate(rule.types)
    }


def may_be(rule: p.Rule, term: p.Term, type_name: str) -> bool:
    """Whether the term can have the type."""
    return type_name in _term_types(rule, term, {})


def head_typing(rule: p.Rule, types: tuple[str, ...]) -> Typing | None:
    """The types of the head's variables; None where the head cannot have these."""
    typing: Typing = {}
    for term, name in zip(rule.head.args, types):
        match term:
            case Value(type=own):
                if own != name:
                    return None
            case p.Var():
                if name not in rule.types[term] or typing.setdefault(term, name) != name:
                    return None
            case p.Now():
                if name != INTEGER:
                    return None
    return typing


def _member_typings(rule: p.Rule, typing: Typing) -> list[Typing]:
    """A variable in a list of values has the type of one of them."""
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


def _typings(program: p.Program, rule: p.Rule, atoms: list[p.Atom], starts: list[Typing]) -> Iterator[Typing]:
    """Every way to type the variables of the atoms, the most determined atom first."""
    for typing in starts:
        if not atoms:
            yield typing
            continue
        atom = min(atoms, key=lambda each: sum(isinstance(t, p.Var) and t not in typing for t in each.args))
        rest = [each for each in atoms if each is not atom]
        yield from _typings(program, rule, rest, list(atom_typings(program, rule, atom, typing)))


def atom_typings(program: p.Program, rule: p.Rule, atom: p.Atom, typing: Typing) -> Iterator[Typing]:
    """The typings of the atom's variables that a fact or a rule's head allows."""
    seen = set()
    known = [_term_types(rule, term, typing) for term in atom.args]
    for pattern in program.shapes.get((atom.predicate, len(atom.args)), ()):
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
    """The typing with the atom's variables so; None where one would have two types."""
    extended = dict(typing)
    for term, name in zip(atom.args, names):
        if isinstance(term, p.Var) and extended.setdefault(term, name) != name:
            return None
    return extended


def _term_types(rule: p.Rule, term: p.Term, typing: Typing) -> p.Types:
    match term:
        case Value(type=name):
            return frozenset((name,))
        case p.Now():
            return frozenset((INTEGER,))
        case _:
            return frozenset((typing[term],)) if term in typing else rule.types[term]


def _clause(program: p.Program, rule: p.Rule, typing: Typing) -> Clause | None:
    numbers = numbers_of(rule, typing)
    body: list[Literal] = []
    for literal in rule.body:
        made = _literals(program, rule, literal, typing, numbers)
        if made is None:
            return None
        body += made
    typed = _typed_by_negations(body)
    params = tuple(_term(term, numbers) for term in rule.head.args)
    return Clause(params, tuple(substituted(literal, typed) for literal in body))


def _typed_by_negations(body: list[Literal]) -> dict[Var, Term]:
    """Variables that only negations mention, with the type that the first of these gives them."""
    found: dict[Var, Term] = {}
    for literal in body:
        if isinstance(literal, Neg):
            for arg, name in zip(literal.call.args, literal.call.types):
                if isinstance(arg, Var) and not arg.type:
                    found.setdefault(arg, Var(arg.number, arg.name, name))
    return found


def _literals(
    program: p.Program, rule: p.Rule, literal: p.Literal, typing: Typing, numbers: dict[p.Var, Var]
) -> list[Literal] | None:
    """The literal with types decided; None where it can never hold."""
    match literal:
        case p.Atom():
            return [_call(rule, literal, typing, numbers)]
        case p.Not(atom):
            # Variables of the negation alone range over all their types: no typing of them may hold.
            typings = atom_typings(program, rule, atom, typing)
            alone = _only_in(rule, literal)
            inner: dict[p.Var, Term] = {**numbers, **{variable: Inner(numbers[variable].number) for variable in alone}}
            return [Neg(_call(rule, atom, each, inner)) for each in typings]
        case p.Member(variable, values):
            ids = tuple(sorted({value.id for value in values if value.type == typing[variable]}))
            return [Member(numbers[variable], ids)] if ids else None
        case p.Compare(operator, left, right):
            return _comparison(rule, operator, left, right, typing, numbers)


def _only_in(rule: p.Rule, negation: p.Not) -> set[p.Var]:
    """The variables that nothing but this negation mentions."""
    outside = set(_variables(rule.head))
    for literal in rule.body:
        if literal is not negation:
            outside.update(_variables(literal))
    return set(_variables(negation)) - outside


def _variables(literal: p.Literal) -> list[p.Var]:
    match literal:
        case p.Not(atom):
            return _variables(atom)
        case p.Atom(_, args):
            terms: tuple[p.Term, ...] = args
        case p.Member(variable, _):
            terms = (variable,)
        case p.Compare(_, left, right):
            terms = (left, right)
    return [term for term in terms if isinstance(term, p.Var)]


def _comparison(
    rule: p.Rule, operator: str, left: p.Term, right: p.Term, typing: Typing, numbers: dict[p.Var, Var]
) -> list[Literal] | None:
    types = [_term_types(rule, term, typing) for term in (left, right)]
    if operator in ("=", "!="):
        if not types[0] & types[1]:
            return [] if operator == "!=" else None
    elif types != [frozenset((INTEGER,))] * 2:
        return None  # order is for Integers; on anything else it is false
    return [Cmp(operator, _term(left, numbers), _term(right, numbers))]


def _call(rule: p.Rule, atom: p.Atom, typing: Typing, numbers: Mapping[p.Var, Term]) -> Call:
    types = tuple(min(_term_types(rule, term, typing)) for term in atom.args)
    return Call(atom.predicate, types, tuple(_term(term, numbers) for term in atom.args))


def _term(term: p.Term, numbers: Mapping[p.Var, Term]) -> Term:
    match term:
        case Value(id=text):
            return Const(text)
        case p.Now():
            return NOW
        case _:
            return numbers[term]
