"""The compiled rules say what the text says: the oracle finds the same model for both."""

import os
from random import Random

import pytest

from policy.language import ast, parse
from policy.language.source import Source
from policy.rules import compile_source
from policy.rules.program import Atom, Compare, Literal, Member, Not, Now, Program, Rule, Term, Types, Var
from policy.values import Value
from tests.properties.random_policies import random_case
from tests.reference import Model, Row, World, fixpoint, model_of
from tests.reference_clauses import Clause, clause, names

NOW = 1_700_000_000
SEEDS = range(int(os.environ.get("POLICIES", "60")))


def clauses_of_program(program: Program) -> list[Clause]:
    return [_clause(rule) for rule in program.rules]


def _clause(rule: Rule) -> Clause:
    """A variable that only one `not` has is existential in it, so its types stand there too."""
    conditions, inside = [_formula(literal) for literal in rule.body], names(tuple(map(_term, rule.head.args)))
    shared = inside.union(*(names(each) for each in conditions))
    for index, literal in enumerate(rule.body):
        if isinstance(literal, Not):
            own = [each for each in literal.atom.args if isinstance(each, Var) and each.name not in shared]
            types = [_one_of(ast.Variable(each.name), rule.types[each]) for each in own if each in rule.types]
            conditions[index] = ast.Not(ast.And((_formula(literal.atom), *types)))
    bound = [(variable, types) for variable, types in rule.types.items() if variable.name in shared]
    conditions += [_one_of(ast.Variable(variable.name), types) for variable, types in bound]
    return clause(rule.head.predicate, map(_term, rule.head.args), conditions)


def _one_of(variable: ast.Variable, types: Types) -> ast.Formula:
    return ast.Or(tuple(ast.Matches(variable, ast.Name(name), exact=True) for name in sorted(types)))


def _formula(literal: Literal) -> ast.Formula:
    match literal:
        case Atom(predicate, args):
            return ast.Call(ast.Name(predicate), tuple(map(_term, args)))
        case Not(atom):
            return ast.Not(_formula(atom))
        case Compare(operator, left, right):
            return ast.Comparison(operator, _term(left), _term(right))
        case Member(variable, values):
            return ast.Membership(_term(variable), tuple(map(ast.Literal, values)))


def _term(term: Term) -> ast.Term:
    match term:
        case Var(name):
            return ast.Variable(name)
        case Now():
            return ast.CurrentTime()
        case Value():
            return ast.Literal(term)


def visible(model: Model, program: Program) -> set[tuple[str, Row]]:
    shown = [(predicate, rows) for (predicate, _), rows in model.items() if predicate not in program.helpers]
    return {(predicate, row) for predicate, rows in shown for row in rows}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_compiled_rules_have_the_model_of_the_text(seed):
    """And facts that the policy has no use for make no difference."""
    case = random_case(Random(seed))
    source = Source(case.policy)
    program, policy = compile_source(source), parse(source)
    facts = [*case.facts, *case.context]
    useless = {fact for fact in facts if not program.accepts(fact[0], tuple(value.type for value in fact[1]))}
    world = World.of(policy, facts, (), NOW)
    compiled = fixpoint(clauses_of_program(program), [fact for fact in facts if fact not in useless], world)
    assert visible(compiled, program) == visible(model_of(policy, facts, world), program) - useless
