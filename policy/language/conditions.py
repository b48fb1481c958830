"""The productions of formulas and their terms: the part of the grammar that stands after `if`.

Longhand and shorthand rules share them, so a string alone is a condition here; `nodes` refuses it in longhand rules.
"""

from policy.language import ast, nodes, spans
from policy.language.ply_types import Production

# ---- formulas ------------------------------------------------------------------------------------


def p_formula(p: Production) -> None:
    """formula : condition
    branch : condition"""
    p[0] = p[1]


def p_formula_and(p: Production) -> None:
    """formula : conjunction
    branch : conjunction"""
    p[0] = nodes.conjunction(p[1])


def p_formula_or(p: Production) -> None:
    "formula : disjunction"
    p[0] = nodes.disjunction(p[1])


def p_conjunction_first(p: Production) -> None:
    """conjunction : condition AND condition
    disjunction : branch OR branch"""
    p[0] = [p[1], p[3]]


def p_conjunction_more(p: Production) -> None:
    """conjunction : conjunction AND condition
    disjunction : disjunction OR branch"""
    p[0] = p[1]
    p[0].append(p[3])


def p_condition_not(p: Production) -> None:
    "condition : NOT deeper condition"
    p.lexer.notes.leave()
    p[0] = ast.Not(p[3], spans.token_span(p, 1).to(p[3].span))


def p_condition_nested(p: Production) -> None:
    "condition : LPAREN deeper formula RPAREN"
    p.lexer.notes.leave()
    p[0] = p[3]


def p_deeper(p: Production) -> None:
    "deeper :"
    spans.enter(p)


def p_condition_call(p: Production) -> None:
    "condition : application"
    p[0] = nodes.call(p, 1)


def p_condition_comparison(p: Production) -> None:
    """condition : term EQ term
    condition : term COMPARE term"""
    p[0] = ast.Comparison(p[2], p[1], p[3], p[1].span.to(p[3].span))


def p_condition_in(p: Production) -> None:
    "condition : term IN list"
    p[0] = nodes.membership(p, 3)


def p_condition_not_in(p: Production) -> None:
    "condition : term NOT IN list"
    p[0] = ast.Not(nodes.membership(p, 4), p[1].span.to(p[4].span))


def p_condition_in_no_list(p: Production) -> None:
    "condition : term IN term"
    p[0] = nodes.in_no_list(p)


def p_condition_matches(p: Production) -> None:
    "condition : term MATCHES name"
    p[0] = nodes.matches(p)


def p_condition_matches_exactly(p: Production) -> None:
    "condition : term MATCHES_EXACTLY name"
    p[0] = nodes.matches(p, exact=True)


# ---- conditions of shorthand ---------------------------------------------------------------------


def p_condition_lone(p: Production) -> None:
    "condition : term"
    p[0] = nodes.lone(p)


def p_condition_hops(p: Production) -> None:
    "condition : hops"
    p[0] = p[1]


def p_hop(p: Production) -> None:
    "hops : term ON term"
    p[0] = nodes.on(p)


def p_hop_second(p: Production) -> None:
    "hops : hops ON term"
    p[0] = nodes.second_hop(p)


def p_condition_global(p: Production) -> None:
    "condition : GLOBAL global_term"
    p[0] = nodes.global_reference(p)


def p_global_string(p: Production) -> None:
    "global_term : STRING"
    p[0] = nodes.string(p, 1)


def p_global_name(p: Production) -> None:
    "global_term : name"
    p[0] = ast.Variable(p[1].text, p[1].span)


# ---- terms ---------------------------------------------------------------------------------------


def p_list_empty(p: Production) -> None:
    "list : LBRACKET RBRACKET"
    p[0] = nodes.Listed([], spans.tokens_span(p, 1, 2))


def p_list(p: Production) -> None:
    "list : LBRACKET list_items RBRACKET"
    p[0] = nodes.Listed(p[2], spans.tokens_span(p, 1, 3))


def p_list_trailing_comma(p: Production) -> None:
    "list : LBRACKET list_items COMMA RBRACKET"
    p[0] = nodes.Listed(p[2], spans.tokens_span(p, 1, 4))


def p_term_name(p: Production) -> None:
    "term : name"
    p[0] = ast.Variable(p[1].text, p[1].span)


def p_term_string(p: Production) -> None:
    "term : STRING"
    p[0] = nodes.string(p, 1)


def p_term_integer(p: Production) -> None:
    """term : INTEGER
    key : INTEGER"""
    p[0] = nodes.integer(p, 1)


def p_term_boolean(p: Production) -> None:
    """term : TRUE
    term : FALSE
    key : TRUE
    key : FALSE"""
    p[0] = nodes.boolean(p, 1)


def p_term_now(p: Production) -> None:
    "term : NOW"
    p[0] = ast.CurrentTime(spans.token_span(p, 1))


def p_term_constant(p: Production) -> None:
    "term : AT_NAME"
    p[0] = nodes.unknown_constant(p)


def p_term_entity(p: Production) -> None:
    "term : name LBRACE key RBRACE"
    p[0] = nodes.entity(p)


def p_key_string(p: Production) -> None:
    "key : STRING"
    p[0] = nodes.string(p, 1, "an id")


def p_key_name(p: Production) -> None:
    "key : name"
    p[0] = nodes.unusable_id(p, 1)


def p_name(p: Production) -> None:
    """name : NAME
    name : ACTOR
    name : RESOURCE
    name : GLOBAL
    name : EXTENDS
    name : DECLARE
    name : TYPE
    name : TEST
    name : FIXTURE
    name : SETUP
    name : ASSERT
    name : ASSERT_NOT"""
    p[0] = ast.Name(p[1], spans.token_span(p, 1))


# ---- not Polar: parsed only to give a helpful error ----------------------------------------------


def p_refused_argument(p: Production) -> None:
    "parameter : list"
    p[0] = nodes.misplaced_list(p)


def p_refused_comparison(p: Production) -> None:
    """condition : term EQ list
    condition : term COMPARE list"""
    p[0] = nodes.compared_list(p)
