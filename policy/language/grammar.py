"""The grammar of policies: a function for each production, for PLY."""

from policy.language import ast, nodes
from policy.language.nodes import Production

# ---- conditions ---------------------------------------------------------------------------------------------------
# The productions of formulas and their terms: the part of the grammar that follows `if`.
#
# Longhand and shorthand rules share them, so a string alone is a condition here; `nodes` rejects it in longhand rules.

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
    p[0] = ast.Not(p[3], nodes.token_span(p, 1).to(p[3].span))


def p_condition_nested(p: Production) -> None:
    "condition : LPAREN deeper formula RPAREN"
    p.lexer.notes.leave()
    p[0] = p[3]


def p_deeper(p: Production) -> None:
    "deeper :"
    nodes.enter(p)


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
    p[0] = nodes.ListNode([], nodes.tokens_span(p, 1, 2))


def p_list(p: Production) -> None:
    "list : LBRACKET list_items RBRACKET"
    p[0] = nodes.ListNode(p[2], nodes.tokens_span(p, 1, 3))


def p_list_trailing_comma(p: Production) -> None:
    "list : LBRACKET list_items COMMA RBRACKET"
    p[0] = nodes.ListNode(p[2], nodes.tokens_span(p, 1, 4))


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
    p[0] = ast.CurrentTime(nodes.token_span(p, 1))


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
    name : ASSERT_NOT
    name : ASSERT_NEVER"""
    p[0] = ast.Name(p[1], nodes.token_span(p, 1))


# ---- not Polar: parsed only to give a helpful error ----------------------------------------------


def p_refused_argument(p: Production) -> None:
    "parameter : list"
    p[0] = nodes.misplaced_list(p)


def p_refused_comparison(p: Production) -> None:
    """condition : term EQ list
    condition : term COMPARE list"""
    p[0] = nodes.compared_list(p)


# ---- The productions of a policy and its items --------------------------------------------------------------------
# PLY reads each production from the function's docstring. The grammar accepts somewhat more than Polar, so that an
# error message can say what is wrong instead of "unexpected".

# ---- policy --------------------------------------------------------------------------------------


def p_policy(p: Production) -> None:
    "policy : items"
    p[0] = ast.Policy(tuple(p[1]))


def p_items_none(p: Production) -> None:
    """items :
    entries :
    facts :
    assertions :
    arguments :"""
    p[0] = []


def p_items_more(p: Production) -> None:
    """items : items block
    items : items rule
    items : items declare
    items : items fixture
    items : items test
    entries : entries declaration
    entries : entries shorthand
    facts : facts fact
    assertions : assertions assertion"""
    p[0] = p[1]
    p[0].append(p[2])


def p_items_stray_semicolon(p: Production) -> None:
    "items : items SEMI"
    p[0] = p[1]


# ---- blocks --------------------------------------------------------------------------------------


def p_block(p: Production) -> None:
    """block : ACTOR name extends LBRACE entries RBRACE
    block : RESOURCE name extends LBRACE entries RBRACE"""
    p[0] = nodes.block(p)


def p_block_global(p: Production) -> None:
    "block : GLOBAL LBRACE entries RBRACE"
    p[0] = ast.Block("global", None, (), tuple(p[3]), nodes.tokens_span(p, 1, 4))


def p_extends_none(p: Production) -> None:
    "extends :"
    p[0] = []


def p_extends(p: Production) -> None:
    """extends : EXTENDS names
    extends : EXTENDS names COMMA"""
    p[0] = p[2]


def p_names_first(p: Production) -> None:
    """names : name
    list_items : term
    relations : relation
    argument_list : term
    argument_list : parameter"""
    p[0] = [p[1]]


def p_names_more(p: Production) -> None:
    """names : names COMMA name
    list_items : list_items COMMA term
    relations : relations COMMA relation
    argument_list : argument_list COMMA term
    argument_list : argument_list COMMA parameter"""
    p[0] = p[1]
    p[0].append(p[3])


def p_name_list(p: Production) -> None:
    "declaration : name EQ list SEMI"
    p[0] = nodes.name_list(p)


def p_relation_map(p: Production) -> None:
    """declaration : name EQ LBRACE relations RBRACE SEMI
    declaration : name EQ LBRACE relations COMMA RBRACE SEMI"""
    p[0] = ast.RelationMap(p[1], tuple(p[4]), p[1].span.to(p[4][-1].span))


def p_relation_map_empty(p: Production) -> None:
    "declaration : name EQ LBRACE RBRACE SEMI"
    p[0] = ast.RelationMap(p[1], (), nodes.span_to(p, p[1].span, 4))


def p_relation(p: Production) -> None:
    "relation : name COLON name"
    p[0] = ast.Relation(p[1], p[3], p[1].span.to(p[3].span))


def p_relation_without_type(p: Production) -> None:
    "relation : name"
    p[0] = ast.Relation(p[1], None, p[1].span)


def p_relation_quoted(p: Production) -> None:
    "relation : STRING COLON name"
    p[0] = nodes.quoted_relation(p)


def p_relation_union(p: Production) -> None:
    "relation : name COLON list"
    p[0] = nodes.union_relation(p, p[1])


def p_relation_alternatives(p: Production) -> None:
    "relation : relation OR name"
    p[0] = nodes.union_relation(p, p[1].name)


def p_entries_rule(p: Production) -> None:
    "entries : entries rule"
    p[0] = p[1]
    nodes.rule_in_block(p)


# ---- shorthand -----------------------------------------------------------------------------------


def p_shorthand(p: Production) -> None:
    "shorthand : STRING IF formula SEMI"
    p[0] = nodes.shorthand(p, nodes.reference(p, nodes.string(p, 1)))


def p_shorthand_word(p: Production) -> None:
    "shorthand : name IF formula SEMI"
    p[0] = nodes.shorthand(p, nodes.shorthand_head(p))


# ---- declarations and rules ----------------------------------------------------------------------


def p_declare(p: Production) -> None:
    "declare : DECLARE application SEMI"
    p[0] = nodes.declare(p)


def p_fact_rule(p: Production) -> None:
    "rule : application SEMI"
    p[0] = nodes.rule(p, None, 2)


def p_rule(p: Production) -> None:
    "rule : application IF formula SEMI"
    p[0] = nodes.rule(p, p[3], 4)


def p_application(p: Production) -> None:
    "application : name LPAREN arguments RPAREN"
    p[0] = nodes.application(p)


def p_arguments(p: Production) -> None:
    "arguments : argument_list"
    p[0] = p[1]


def p_parameter(p: Production) -> None:
    "parameter : name COLON name"
    p[0] = ast.Parameter(ast.Variable(p[1].text, p[1].span), p[3], p[1].span.to(p[3].span))


# ---- tests ---------------------------------------------------------------------------------------


def p_fixture(p: Production) -> None:
    "fixture : TEST FIXTURE name LBRACE facts RBRACE"
    p[0] = ast.Fixture(p[3], tuple(p[5]), nodes.tokens_span(p, 1, 6))


def p_test(p: Production) -> None:
    "test : TEST STRING LBRACE setup assertions RBRACE"
    p[0] = nodes.test(p, nodes.test_name(p, 2))


def p_test_unquoted(p: Production) -> None:
    "test : TEST name LBRACE setup assertions RBRACE"
    p[0] = nodes.test(p, nodes.unquoted_test_name(p, 2))


def p_setup_none(p: Production) -> None:
    "setup :"
    p[0] = []


def p_setup(p: Production) -> None:
    "setup : SETUP LBRACE facts RBRACE"
    p[0] = p[3]


def p_fact(p: Production) -> None:
    "fact : application SEMI"
    p[0] = nodes.fact(p, 1)


def p_fact_conditional(p: Production) -> None:
    "fact : application IF formula SEMI"
    p[0] = nodes.conditional_fact(p)


def p_fixture_use(p: Production) -> None:
    "fact : FIXTURE name SEMI"
    p[0] = ast.FixtureUse(p[2], nodes.tokens_span(p, 1, 3))


def p_assertion(p: Production) -> None:
    """assertion : ASSERT application SEMI
    assertion : ASSERT_NOT application SEMI"""
    p[0] = nodes.assertion(p, None, 3)


def p_assertion_iff(p: Production) -> None:
    """assertion : ASSERT application values_clause SEMI
    assertion : ASSERT_NOT application values_clause SEMI"""
    p[0] = nodes.assertion(p, p[3], 4)


def p_assertion_never(p: Production) -> None:
    "assertion : ASSERT_NEVER application SEMI"
    p[0] = nodes.never(p, None, 3)


def p_assertion_never_if(p: Production) -> None:
    "assertion : ASSERT_NEVER application IF formula SEMI"
    p[0] = nodes.never(p, p[4], 5)


def p_values_clause(p: Production) -> None:
    "values_clause : IFF formula"
    p[0] = nodes.values_clause(p)


# ---- not Polar: parsed only to give a helpful error ----------------------------------------------


def p_refused_type(p: Production) -> None:
    "items : items TYPE application SEMI"
    p[0] = p[1]
    nodes.refuse(p, 2, "`type` is not supported", "use `declare` to list the facts that can be stored")


def p_refused_query(p: Production) -> None:
    "items : items INLINE_QUERY formula SEMI"
    p[0] = p[1]
    nodes.refuse(p, 2, "`?=` is not supported", 'use `test "..." { assert ...; }`')


def p_refused_flag(p: Production) -> None:
    """items : items AT_NAME
    entries : entries AT_NAME"""
    p[0] = p[1]
    nodes.refuse(p, 2, "rule flags are not supported", "remove the flag")


def p_refused_assert(p: Production) -> None:
    """assertion : ASSERT NOT application SEMI
    assertion : ASSERT_NOT NOT application SEMI"""
    p[0] = ast.Assertion(p[1] != "assert", p[3].predicate, p[3].args, None, nodes.tokens_span(p, 1, 4))
    nodes.refuse(p, 2, "`not` is not allowed in an assertion", "use `assert_not` or `assert`")
