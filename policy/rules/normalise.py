"""Longhand rules -> flat rules: a head and a conjunction of literals.

    p(x) if q(x) and (r(x, y) or x = "a") and not (s(x, z) and t(z));

    p(x) if q(x) and or#1(x) and not not#2(x);
    or#1(x) if r(x, y);      or#1("a");      not#2(x) if s(x, z) and t(z);

A nested `or`, and a `not` of anything but one atom, become rules of a new helper predicate. Its arguments are the
variables that the part shares with the rest of the rule; the part's other variables are existential in the helper.
(`not not F` becomes a plain call of a helper, so that F's own variables stay inside too.) So the output is about as
large as the text. No text can contain a name with `#`.

`=` is substituted away, and `matches` becomes a bound on a variable's types. What is known already (`true`, comparisons
of two constants, a constant's type) is evaluated here, and a conjunction that is false is dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from policy.language import ast
from policy.language.notes import shown
from policy.language.source import Span
from policy.rules.conjunction import Conjunction, Flattening
from policy.rules.declarations import Mask, Vocabulary
from policy.rules.equalities import solve, substituted
from policy.rules.flat import UNLIMITED, FlatRule
from policy.rules.formulas import alternatives, conjuncts, is_named, mentioned
from policy.rules.literals import add_literal
from policy.rules.problems import Problems
from policy.rules.program import Atom, Not, Term, Var
from policy.values import INTEGER

MAX_VARIABLES = 1_000  # of one rule: which of them a part shares is asked at every level of nesting


def flat_rules(rules: Iterable[ast.Rule], vocabulary: Vocabulary, problems: Problems) -> list[FlatRule]:
    state = Flattening(vocabulary, problems)
    for rule in rules:
        state.memo.clear()
        state.variables.clear()
        _flatten_rule(rule, state)
    return state.rules


# ---- rules of the text --------------------------------------------------------------------------------


def _flatten_rule(rule: ast.Rule, state: Flattening) -> None:
    conjunction = Conjunction(state, {}, {})
    terms = tuple(_parameter(param, conjunction) for param in rule.head.params)
    head = Atom(rule.head.predicate.text, terms)
    for formula in [None] if rule.body is None else alternatives(rule.body):
        _flatten(head, formula, conjunction.bounds, {}, rule.span, None, state)


def _parameter(param: ast.Parameter | ast.Term, conjunction: Conjunction) -> Term:
    if isinstance(param, ast.Parameter):
        variable = conjunction.term(param.variable)
        mask = conjunction.state.vocabulary.mask_of(param.type, conjunction.state.problems)
        conjunction.bound(variable, mask, param.span)
        return variable
    return conjunction.term(param)


def _flatten(
    head: Atom, formula: ast.Formula | None, bounds: Mapping[Var, Mask], env: Mapping[Var, Term], origin: Span,
    caller: int | None, state: Flattening,
) -> bool:  # fmt: skip
    """Add the rule `head if formula`, and the helper rules that it needs after it; False if it can never hold."""
    index = len(state.rules)
    placeholder = FlatRule(head, (), (), {}, {}, origin, caller)
    state.rules.append(placeholder)
    conjunction = Conjunction(state, dict(env), dict(bounds))
    parts = _without_equalities(conjuncts(formula), head, conjunction)
    head = _substituted(head, conjunction)
    compound = [part for part in parts if not add_literal(part, conjunction)]
    for part, shared in _shared_variables(compound, parts, head, conjunction):
        _add_compound(part, shared, index, conjunction)
    if conjunction.is_false:
        del state.rules[index:]
        return False
    if compound:
        conjunction.literals.sort(key=lambda item: item[1].start)
    body = tuple(literal for literal, _ in conjunction.literals)
    places = tuple(span for _, span in conjunction.literals)
    state.rules[index] = FlatRule(head, body, places, conjunction.bounds, conjunction.limits, origin, caller)
    return True


def _substituted(head: Atom, conjunction: Conjunction) -> Atom:
    if not conjunction.env:
        return head
    return Atom(head.predicate, tuple(substituted(arg, conjunction.env) for arg in head.args))


def _without_equalities(parts: list[ast.Formula], head: Atom, conjunction: Conjunction) -> list[ast.Formula]:
    """Return the other conjuncts; the equalities go into the conjunction's substitution."""
    equations = []
    for part in parts:
        match part:
            case ast.Comparison("=", left, right, span) if is_named(left) and is_named(right):
                equations.append((conjunction.term(left), conjunction.term(right), span))
    if not equations:
        return parts
    solved = solve(equations, head.args)
    if solved.contradiction:
        span, one, other = solved.contradiction
        conjunction.fail(span, f"{shown(str(one))} never equals {shown(str(other))}")
    conjunction.literals += solved.compares
    bounds, conjunction.bounds = conjunction.bounds, {}
    changes, known = solved.substitution, conjunction.state.vocabulary
    for _, term, span in equations:
        if isinstance(term := substituted(term, changes), Var):
            conjunction.limits[term] = (UNLIMITED, span)
    conjunction.env = {variable: substituted(term, changes) for variable, term in conjunction.env.items()} | changes
    for variable, mask in bounds.items():
        conjunction.bound(conjunction.env.get(variable, variable), mask, equations[0][2])
    for compare, span in solved.compares:
        conjunction.bound(compare.left, known.bits[INTEGER], span)
    return [part for part in parts if not (isinstance(part, ast.Comparison) and part.operator == "=")]


# ---- conjuncts that need helper rules ---------------------------------------------------------------------------


def _shared_variables(
    compound: list[ast.Formula], parts: list[ast.Formula], head: Atom, conjunction: Conjunction
) -> list[tuple[ast.Formula, tuple[Var, ...]]]:
    """Return each compound conjunct with the variables that it shares with the head or with another conjunct."""
    if not compound:
        return []
    used = {id(part): _variables_in(part, conjunction) for part in parts}
    uses = Counter(variable for variables in used.values() for variable in variables)
    outside = {arg for arg in head.args if isinstance(arg, Var)}
    if any(len(variables) > MAX_VARIABLES for variables in used.values()):
        span, hint = compound[0].span, "give parts of it names as rules of their own"
        conjunction.state.problems.error(span, f"a rule has at most {MAX_VARIABLES} variables", hint)
        return []
    found = []
    for part in compound:
        shared = (variable for variable in used[id(part)] if uses[variable] > 1 or variable in outside)
        found.append((part, tuple(sorted(shared, key=lambda variable: variable.name))))
    return found


def _variables_in(part: ast.Formula, conjunction: Conjunction) -> frozenset[Var]:
    terms = (conjunction.term(ast.Variable(name)) for name in mentioned(part, conjunction.state.memo))
    return frozenset(term for term in terms if isinstance(term, Var))


def _add_compound(part: ast.Formula, shared: tuple[Var, ...], index: int, conjunction: Conjunction) -> None:
    match part:
        case ast.Not(ast.Not(inner)):
            is_negated, name, formulas = False, "not#", alternatives(inner)
        case ast.Not(inner):
            is_negated, name, formulas = True, "not#", alternatives(inner)
        case ast.Membership(term, values, span):
            is_negated, name = False, "or#"
            formulas = [ast.Comparison("=", term, value, span) for value in values]
        case _:
            is_negated, name, formulas = False, "or#", alternatives(part)
    conjunction.state.made += 1
    call = Atom(f"{name}{conjunction.state.made}", shared)
    bounds = {variable: conjunction.bounds[variable] for variable in shared if variable in conjunction.bounds}
    is_possible = False
    for formula in formulas:  # no comprehension: it would add a frame to each level of this recursion
        is_possible |= _flatten(call, formula, bounds, conjunction.env, formula.span, index, conjunction.state)
    if is_possible:
        conjunction.add(Not(call) if is_negated else call, part.span)
    elif not is_negated:
        conjunction.fail(part.span, "no alternative of this can hold")
