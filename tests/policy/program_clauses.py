"""A program's rules as clauses of the oracle, which so can say what they mean."""

from policy.language import ast
from policy.rules.flatten import terms_of
from policy.rules.program import Atom, Compare, Literal, Member, Not, Now, Program, Rule, Term, Types, Var
from tests.reference_clauses import Clause, clause


def clauses_of(program: Program) -> list[Clause]:
    """The rules for the oracle, each variable's types beside the literals; inside of the `not` that alone has it."""
    return [clause(rule.head.predicate, map(term_of, rule.head.args), _conditions(rule)) for rule in program.rules]


def _conditions(rule: Rule) -> list[ast.Formula]:
    local = {literal: _local_variables(literal, rule) for literal in rule.body if isinstance(literal, Not)}
    inner = {variable for variables in local.values() for variable in variables}
    conditions = [_typed(literal, local.get(literal, ()), rule) for literal in rule.body]
    return conditions + [one_of(ast.Variable(v.name), types) for v, types in rule.types.items() if v not in inner]


def _local_variables(literal: Not, rule: Rule) -> list[Var]:
    elsewhere = {*rule.head.args, *(term for other in rule.body if other != literal for term in terms_of(other))}
    return [term for term in literal.atom.args if isinstance(term, Var) and term not in elsewhere]


def _typed(literal: Literal, variables: list[Var], rule: Rule) -> ast.Formula:
    if not variables:
        return formula_of(literal)
    types = (one_of(ast.Variable(variable.name), rule.types[variable]) for variable in variables)
    return ast.Not(ast.And((formula_of(literal.atom), *types)))


def formula_of(literal: Literal) -> ast.Formula:
    match literal:
        case Atom(predicate, args):
            return ast.Call(ast.Name(predicate), tuple(map(term_of, args)))
        case Not(atom):
            return ast.Not(formula_of(atom))
        case Compare(operator, left, right):
            return ast.Comparison(operator, term_of(left), term_of(right))
        case Member(variable, values):
            return ast.Membership(term_of(variable), tuple(map(ast.Literal, values)))


def term_of(term: Term) -> ast.Term:
    match term:
        case Var(name):
            return ast.Variable(name)
        case Now():
            return ast.CurrentTime()
    return ast.Literal(term)


def one_of(variable: ast.Variable, types: Types) -> ast.Formula:
    return ast.Or(tuple(ast.Matches(variable, ast.Name(name), exact=True) for name in sorted(types)))
