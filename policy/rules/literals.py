"""Conjuncts that become literals without helper rules: calls, comparisons, lists, `matches`, and these under `not`.

1 < 2            nothing: it is true                x matches T          a bound on the types of x
x in ["a"]       a list that x is in                not x matches T      a limit of the types of x
not x = y        x != y                             not x in ["a", "b"]  x != "a" and x != "b"
"""

from __future__ import annotations

from policy.language import ast
from policy.language.notes import shown
from policy.language.source import Span
from policy.rules.conjunction import Conjunction
from policy.rules.declarations import union
from policy.rules.equalities import NOW
from policy.rules.flat import UNLIMITED
from policy.rules.formulas import is_named
from policy.rules.program import TYPED, Atom, Compare, Member, Not, Now, Term, Var
from policy.values import Value


def add_literal(part: ast.Formula, conjunction: Conjunction) -> bool:
    """Add what the conjunct says; False if it needs helper rules."""
    match part:
        case ast.Call(predicate, args, span):
            conjunction.add(Atom(predicate.text, tuple(map(conjunction.term, args))), span)
        case ast.Comparison("="):
            pass  # `_` equals anything
        case ast.Comparison(operator, left, right, span):
            _compare(operator, conjunction.term(left), conjunction.term(right), span, conjunction)
        case ast.Membership(ast.CurrentTime(), values) if values:
            return False
        case ast.Membership():
            _member(part, conjunction)
        case ast.Matches():
            _match(part, conjunction)
        case ast.Truth(value, span):
            if not value:
                conjunction.fail(span, "this is never true")
        case ast.Not(inner, span):
            return _add_negated(inner, span, conjunction)
        case _:
            return False
    return True


def _add_negated(inner: ast.Formula, span: Span, conjunction: Conjunction) -> bool:
    match inner:
        case ast.Call(predicate, args):
            conjunction.add(Not(Atom(predicate.text, tuple(map(conjunction.term, args)))), span)
        case ast.Comparison("=", left, right):
            _compare("!=", conjunction.term(left), conjunction.term(right), span, conjunction)
        case ast.Membership(term, values):
            for value in values:
                _compare("!=", conjunction.term(term), conjunction.term(value), span, conjunction)
        case ast.Matches():
            _exclude(inner, conjunction)
        case ast.Truth(value):
            if value:
                conjunction.fail(span, "this is never true")
        case _:
            return False
    return True


def _compare(operator: str, left: Term, right: Term, span: Span, conjunction: Conjunction) -> None:
    if operator in TYPED:
        wanted = conjunction.state.vocabulary.bits[TYPED[operator].type]
        sound = [conjunction.bound(term, wanted, span, operator) for term in (left, right)]
        if not all(sound):
            return
    if isinstance(left, Var) or isinstance(right, Var) or {left, right} > {NOW}:
        outcome = False if left == right and operator in ("!=", "<", ">") else None
    else:
        outcome = _decided(operator, left, right)
    if outcome is None:
        conjunction.add(Compare(operator, left, right), span)
    elif not outcome:
        conjunction.fail(span, f"{shown(f'{left} {operator} {right}')} is never true")


def _decided(operator: str, left: Value | Now, right: Value | Now) -> bool:
    if operator in ("=", "!="):
        return (left == right) == (operator == "=")
    if isinstance(left, Now) or isinstance(right, Now):
        return left == right and "=" in operator
    return TYPED[operator].holds(left.id, right.id)


def _member(part: ast.Membership, conjunction: Conjunction) -> None:
    if not is_named(part.term):
        return
    term, values = conjunction.term(part.term), tuple(dict.fromkeys(map(conjunction.value, part.values)))
    if isinstance(term, Var) and values:
        bits = conjunction.state.vocabulary.bits
        conjunction.bound(term, union(bits.get(value.type, 0) for value in values), part.span)
        conjunction.add(Member(term, values), part.span)
    elif term not in values:
        message = f"{shown(str(term))} is not in the list" if values else "nothing is in an empty list"
        conjunction.fail(part.span, message)


def _match(part: ast.Matches, conjunction: Conjunction) -> None:
    mask = conjunction.state.vocabulary.mask_of(part.type, conjunction.state.problems, part.exact)
    if is_named(part.variable):
        conjunction.bound(conjunction.term(part.variable), mask, part.span)


def _exclude(part: ast.Matches, conjunction: Conjunction) -> None:
    """Note `not x matches T`: whatever else x is, it is no T."""
    mask = conjunction.state.vocabulary.mask_of(part.type, conjunction.state.problems, part.exact)
    term = conjunction.term(part.variable)
    if mask is None:
        return
    if isinstance(term, Var):
        before, _ = conjunction.limits.get(term, (UNLIMITED, part.span))
        conjunction.limits[term] = (before & ~mask, part.span)
    elif conjunction.types_of(term) & mask:
        conjunction.fail(part.span, f"{shown(str(term))} is always {shown(part.type.text)}")
