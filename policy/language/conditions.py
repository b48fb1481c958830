"""The productions of formulas and their terms: the part of the grammar that stands after `if`.

Longhand and shorthand share them, so a string alone is a condition here; `nodes` refuses it in longhand.
"""

from policy.language import ast, nodes, places

# ---- formulas ------------------------------------------------------------------------------------


def p_formula(p):
    """formula : condition
    branch : condition"""
    p[0] = p[1]


def p_formula_and(p):
    """formula : conjunction
    branch : conjunction"""
    p[0] = nodes.conjunction(p[1])


def p_formula_or(p):
    "formula : disjunction"
    p[0] = nodes.disjunction(p[1])


def p_conjunction_first(p):
    """conjunction : condition AND condition
    disjunction : branch OR branch"""
    p[0] = [p[1], p[3]]


def p_conjunction_more(p):
    """conjunction : conjunction AND condition
    disjunction : disjunction OR branch"""
    p[0] = p[1]
    p[0].append(p[3])


def p_condition_not(p):
    "condition : NOT deeper condition"
    p.lexer.notes.leave()
    p[0] = ast.Not(p[3], places.token_span(p, 1).to(p[3].span))


def p_condition_nested(p):
    "condition : LPAREN deeper formula RPAREN"
    p.lexer.notes.leave()
    p[0] = p[3]


def p_deeper(p):
    "deeper :"
    places.enter(p)


def p_condition_call(p):
    "condition : application"
    p[0] = nodes.call(p, 1)


def p_condition_comparison(p):
    """condition : term EQ term
    condition : term COMPARE term"""
    p[0] = ast.Comparison(p[2], p[1], p[3], p[1].span.to(p[3].span))


def p_condition_in(p):
    "condition : term IN list"
    p[0] = nodes.membership(p, 3)


def p_condition_not_in(p):
    "condition : term NOT IN list"
    p[0] = ast.Not(nodes.membership(p, 4), p[1].span.to(p[4].span))


def p_condition_in_no_list(p):
    "condition : term IN term"
    p[0] = nodes.in_no_list(p)


def p_condition_matches(p):
    "condition : term MATCHES name"
    p[0] = nodes.matches(p)


def p_condition_matches_exactly(p):
    "condition : term MATCHES_EXACTLY name"
    p[0] = nodes.matches(p, exact=True)


# ---- conditions of shorthand ---------------------------------------------------------------------


def p_condition_lone(p):
    "condition : term"
    p[0] = nodes.lone(p)


def p_condition_hops(p):
    "condition : hops"
    p[0] = p[1]


def p_hop(p):
    "hops : term ON term"
    p[0] = nodes.on(p)


def p_hop_second(p):
    "hops : hops ON term"
    p[0] = nodes.second_hop(p)


def p_condition_global(p):
    "condition : GLOBAL global_term"
    p[0] = nodes.global_reference(p)


def p_global_string(p):
    "global_term : STRING"
    p[0] = nodes.string(p, 1)


def p_global_name(p):
    "global_term : name"
    p[0] = ast.Variable(p[1].text, p[1].span)


# ---- terms ---------------------------------------------------------------------------------------


def p_list_empty(p):
    "list : LBRACKET RBRACKET"
    p[0] = nodes.Listed([], places.tokens_span(p, 1, 2))


def p_list(p):
    "list : LBRACKET list_items RBRACKET"
    p[0] = nodes.Listed(p[2], places.tokens_span(p, 1, 3))


def p_list_trailing_comma(p):
    "list : LBRACKET list_items COMMA RBRACKET"
    p[0] = nodes.Listed(p[2], places.tokens_span(p, 1, 4))


def p_term_name(p):
    "term : name"
    p[0] = ast.Variable(p[1].text, p[1].span)


def p_term_string(p):
    "term : STRING"
    p[0] = nodes.string(p, 1)


def p_term_integer(p):
    """term : INTEGER
    key : INTEGER"""
    p[0] = nodes.integer(p, 1)


def p_term_boolean(p):
    """term : TRUE
    term : FALSE
    key : TRUE
    key : FALSE"""
    p[0] = nodes.boolean(p, 1)


def p_term_now(p):
    "term : NOW"
    p[0] = ast.CurrentTime(places.token_span(p, 1))


def p_term_constant(p):
    "term : AT_NAME"
    p[0] = nodes.unknown_constant(p)


def p_term_entity(p):
    "term : name LBRACE key RBRACE"
    p[0] = nodes.entity(p)


def p_key_string(p):
    "key : STRING"
    p[0] = nodes.string(p, 1, "an id")


def p_key_name(p):
    "key : name"
    p[0] = nodes.unusable_id(p, 1)


def p_name(p):
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
    p[0] = ast.Name(p[1], places.token_span(p, 1))


# ---- known only to be refused --------------------------------------------------------------------


def p_refused_argument(p):
    "parameter : list"
    p[0] = nodes.misplaced_list(p)


def p_refused_comparison(p):
    """condition : term EQ list
    condition : term COMPARE list"""
    p[0] = nodes.compared_list(p)
