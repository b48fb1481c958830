"""The grammar of policies: its productions, each with the function that builds its node.

`p` is PLY's production: `p[n]` is the value of its n-th symbol, a node or the text of a token. The grammar accepts more
than Polar, so that an error message can say what is wrong instead of "unexpected": for what Polar does not allow, the
functions report an error and return a placeholder, and parsing continues.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from policy.language import ast
from policy.language.source import Notes, Span, clipped, shown
from policy.values import BOOLEAN, INTEGER, STRING, Value, canonical_id

# ---- PLY's production, as PLY has no type hints, and where its symbols are in the text -----------------------------


class Lexer(Protocol):
    """What PLY passes to each production as `p.lexer`."""

    notes: Notes


class StackSymbol(Protocol):
    """An entry of the parser's stack: a token, or the result of a production, whose `value` can have any type."""

    type: str
    value: Any
    lexpos: int


class Production(Protocol):
    lexer: Lexer
    slice: Sequence[StackSymbol]
    stack: Sequence[StackSymbol]

    def __getitem__(self, n: int) -> Any: ...


Action = Callable[[Production], object]


def token_span(p: Production, n: int) -> Span:
    start = p.slice[n].lexpos
    return Span(start, start + len(p[n]))


def tokens_span(p: Production, first: int, last: int) -> Span:
    return Span(p.slice[first].lexpos, p.slice[last].lexpos + len(p[last]))


def span_to(p: Production, first: Span, last: int) -> Span:
    """Return the span from the start of `first`, a node's span, to the end of the token `p[last]`."""
    return Span(first.start, p.slice[last].lexpos + len(p[last]))


def refuse(p: Production, n: int, message: str, hint: str) -> None:
    p.lexer.notes.refuse(token_span(p, n), message, hint)


def _enter(p: Production) -> None:
    """Enter a level of nesting, which starts with the `not` or `(` on top of the parser's stack."""
    start = p.stack[-1].lexpos
    p.lexer.notes.enter(Span(start, start + len(p.stack[-1].value)))


def _more(p: Production) -> list[Any]:
    """Append the last symbol to the first one, a list."""
    found: list[Any] = p[1]
    found.append(p.slice[-1].value)
    return found


# ---- terms ---------------------------------------------------------------------------------------

MAX_BYTES = 512
_ESCAPE = re.compile(r"\\([\s\S])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


def text_of(written: str) -> str:
    """Return the text of a string literal; `written` includes the quotes."""
    if "\\" not in written:
        return written[1:-1]
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), written[1:-1])


def _string(p: Production, what: str = "a string") -> ast.Literal:
    notes, written, span = p.lexer.notes, p[1], token_span(p, 1)
    value = notes.values.get(written)
    if value is None:
        value = Value(STRING, text_of(written))
        if _is_sound_id(notes, value.id, span, what):
            notes.values[written] = value
    return ast.Literal(value, span)


def _is_sound_id(notes: Notes, text: str, span: Span, what: str) -> bool:
    """Return whether facts can contain the text. If not, report a problem, which calls the text `what`."""
    if not text:
        notes.refuse(span, f"{what} cannot be empty", "to match any value, use a variable or `_`")
    elif text == "*":
        notes.refuse(span, f"{what} cannot be `*`", "`*` means any value in results; use a variable or `_`")
    elif "\0" in text:
        notes.refuse(span, f"{what} cannot contain the character NUL")
    elif len(text) > MAX_BYTES // 4 and len(text.encode()) > MAX_BYTES:
        notes.refuse(span, f"{what} cannot be longer than {MAX_BYTES} bytes")
    else:
        return True
    return False


def _integer(p: Production) -> ast.Literal:
    span = token_span(p, 1)
    try:
        return ast.Literal(Value(INTEGER, canonical_id(INTEGER, p[1])), span)
    except ValueError:
        hint = "the largest Integer is 9223372036854775807"
        p.lexer.notes.refuse(span, f"{shown(p[1])} does not fit in 64 bits", hint)
        return ast.Literal(Value(INTEGER, "0"), span)


def _entity(p: Production) -> ast.Literal:
    """Return the literal for `User{"alice"}`. `Integer{3}`, `Integer{"3"}` and `3` become equal literals."""
    type_name, key = p[1], p[3]
    try:
        value = Value(type_name.text, canonical_id(type_name.text, key.value.id))
    except ValueError as mistake:
        p.lexer.notes.refuse(key.span, str(mistake))
        value = key.value
    return ast.Literal(value, span_to(p, type_name.span, 4), type_name.span)


def _variable(p: Production) -> ast.Variable:
    return ast.Variable(p[1].text, p[1].span)


def _unusable_id(p: Production) -> ast.Literal:
    hint = "to match any entity of a type, use a variable of that type"
    p.lexer.notes.refuse(p[1].span, f"id {shown(p[1].text)} is not a string, a number, `true` or `false`", hint)
    return ast.Literal(Value(STRING, "unknown"), p[1].span)


def _unknown_constant(p: Production) -> ast.CurrentTime:
    span = token_span(p, 1)
    p.lexer.notes.refuse(span, f"unknown constant {shown(p[1])}", "the only constant is `@current_unix_time`")
    return ast.CurrentTime(span)


@dataclass(frozen=True, slots=True)
class ListNode:
    """A list as written; it becomes part of the enclosing node."""

    terms: list[ast.Term]
    span: Span


def _membership(p: Production, n: int) -> ast.Membership:
    """Return `x in [...]`, where the list is the n-th symbol. Report elements that are not literals."""
    for term in p[n].terms:
        if not isinstance(term, ast.Literal):
            p.lexer.notes.refuse(term.span, "a list can contain only values", "to compare with a variable, use `=`")
    literals_only = tuple(term for term in p[n].terms if isinstance(term, ast.Literal))
    return ast.Membership(p[1], literals_only, p[1].span.to(p[n].span))


def _misplaced_list(p: Production) -> ast.Literal:
    span = p[1].span
    p.lexer.notes.refuse(span, "a list is not allowed here", "pass one value, or a variable that is tested with `in`")
    return ast.Literal(Value(STRING, "list"), span)


def _compared_list(p: Production) -> ast.Membership:
    refuse(p, 2, "a list cannot be compared", 'test membership with `x in ["a", "b"]`')
    return ast.Membership(p[1], (), p[1].span)


# ---- formulas ------------------------------------------------------------------------------------

WORDS = ("role", "permission")  # bare words allowed in shorthand


def _call(p: Production) -> ast.Call:
    """Return a call inside a body. Report arguments with a type, such as `user: User`."""
    called: ast.Call = p[1]
    for arg in called.args:
        if isinstance(arg, ast.Parameter):
            hint = f"add the condition `{clipped(arg.variable.name)} matches {clipped(arg.type.text)}`"
            p.lexer.notes.refuse(arg.span, "an argument in a rule body cannot have a type", hint)
    return called


def _lone(p: Production) -> ast.Formula:
    """Return the condition that is a single term: `true` or `false`, or in shorthand a string or one of WORDS."""
    match p[1]:
        case ast.Literal(value, span) if value.type == BOOLEAN:
            return ast.Truth(value.id == "true", span)
        case term:
            return _reference(p, term)


def _reference(p: Production, term: ast.Term) -> ast.Reference:
    match term:
        case ast.Literal(value, span) if value.type == STRING:
            return ast.Reference(value.id, False, None, span)
        case ast.Variable(name, span) if name in WORDS:
            return ast.Reference(name, True, None, span)
        case ast.Variable(name, span):
            hint = f'quote a role, permission or relation: `"{clipped(name)}"`; call a predicate with arguments'
            p.lexer.notes.refuse(span, f"{shown(name)} is not a condition", hint)
        case _:
            p.lexer.notes.refuse(term.span, "a value is not a condition", "compare it, or pass it to a predicate")
    return ast.Reference("unknown", False, None, term.span)


def _on(p: Production) -> ast.Reference:
    left, right = _reference(p, p[1]), _reference(p, p[3])
    if right.is_word:
        p.lexer.notes.refuse(right.span, f"{shown(right.name)} cannot follow `on`", "write a relation of this block")
    return ast.Reference(left.name, left.is_word, right.name, left.span.to(right.span), right.span)


def _second_hop(p: Production) -> object:
    hint = "declare a role or permission on the type in between, and use that"
    p.lexer.notes.refuse(p[3].span, "`on` cannot be chained", hint)
    return p[1]


def _global_reference(p: Production) -> ast.GlobalReference:
    found = _reference(p, p[2])
    return ast.GlobalReference(found.name, found.is_word, Span(p.slice[1].lexpos, found.span.end))


def _not(p: Production) -> ast.Not:
    p.lexer.notes.leave()
    return ast.Not(p[3], token_span(p, 1).to(p[3].span))


def _nested(p: Production) -> object:
    p.lexer.notes.leave()
    return p[3]


def _matches(p: Production, exact: bool = False) -> ast.Matches:
    if not isinstance(p[1], ast.Variable):
        p.lexer.notes.refuse(p[1].span, "`matches` requires a variable", "remove it: values have known types")
    return ast.Matches(p[1], p[3], exact, p[1].span.to(p[3].span))


def _in_no_list(p: Production) -> ast.Membership:
    p.lexer.notes.refuse(p[3].span, "`in` requires a list of values", 'write `in ["a", "b"]`, or call a predicate')
    return ast.Membership(p[1], (), p[1].span)


def _flat(parts: list[ast.Formula], kind: type[ast.And | ast.Or]) -> ast.Formula:
    """Return a conjunction or disjunction without others of its kind inside: `a and (b and c)` -> And(a, b, c)."""
    flat: list[ast.Formula] = []
    for part in parts:
        flat.extend(part.parts) if isinstance(part, kind) else flat.append(part)
    return kind(tuple(flat), flat[0].span.to(flat[-1].span))


# ---- blocks --------------------------------------------------------------------------------------


def _name_list(p: Production) -> ast.NameList:
    names = tuple(_listed_name(p.lexer.notes, p[1].text, term) for term in p[3].terms)
    return ast.NameList(p[1], names, span_to(p, p[1].span, 4))


def _listed_name(notes: Notes, keyword: str, term: ast.Term) -> ast.String:
    match term:
        case ast.Literal(value, span) if value.type == STRING:
            return ast.String(value.id, span)
        case ast.Variable(name, span):
            notes.refuse(span, f"{shown(name)} must be quoted", f'write `"{clipped(name)}"`')
        case _:
            notes.refuse(term.span, f"{shown(keyword)} can contain only strings", 'write `"..."`')
    return ast.String("unknown", term.span)


def _quoted_relation(p: Production) -> ast.Relation:
    span = token_span(p, 1)
    hint = f"write `{clipped(text_of(p[1]))}: {clipped(p[3].text)}`"
    p.lexer.notes.refuse(span, "the name of a relation must not be quoted here", hint)
    return ast.Relation(ast.Name("unknown", span), p[3], span)


def _union_relation(p: Production, name: ast.Name) -> ast.Relation:
    hint = "use a common type that they extend, or write rules outside of the block"
    p.lexer.notes.refuse(name.span, f"relation {shown(name.text)} has more than one type", hint)
    return ast.Relation(name, None, name.span)


def _shorthand(p: Production, head: ast.Reference) -> ast.Shorthand:
    return ast.Shorthand(head, p[3], span_to(p, head.span, 4))


def _shorthand_head(p: Production) -> ast.Reference:
    if p[1].text not in WORDS:
        hint = f'write `"{clipped(p[1].text)}" if ...`'
        p.lexer.notes.refuse(p[1].span, f"{shown(p[1].text)} must be quoted", hint)
    return ast.Reference(p[1].text, True, None, p[1].span)


def _rule_in_block(p: Production) -> object:
    hint = "move it after the closing `}` of the block"
    p.lexer.notes.refuse(p[2].head.span, "a rule for a predicate is not allowed in a block", hint)
    return p[1]


# ---- rules ---------------------------------------------------------------------------------------


def _application(p: Production) -> ast.Call:
    if p[1].text == "_":
        p.lexer.notes.refuse(p[1].span, "`_` is not a valid predicate name", "choose a name")
    return ast.Call(p[1], tuple(p[3]), span_to(p, p[1].span, 4))


def _rule(p: Production, body: ast.Formula | None, end: int) -> ast.Rule:
    called = p[1]
    for param in called.args:
        if isinstance(param, ast.CurrentTime):
            p.lexer.notes.refuse(param.span, "a rule head cannot contain `@current_unix_time`", "use it in the body")
    if body is not None:
        _refuse_shorthand(p.lexer.notes, body)
    head = ast.Head(called.predicate, called.args, called.span)
    return ast.Rule(head, body, span_to(p, called.span, end))


def _refuse_shorthand(notes: Notes, body: ast.Formula) -> None:
    hint = 'write a call, such as `has_role(actor, "member", resource)`'
    pending = [body]
    while pending:
        match pending.pop():
            case ast.And(parts) | ast.Or(parts):
                pending.extend(parts)
            case ast.Not(formula):
                pending.append(formula)
            case ast.Reference(name, span=span) | ast.GlobalReference(name, span=span):
                notes.refuse(span, f"{shown(name)} is shorthand, which is allowed only in a block", hint)


def _declare(p: Production) -> ast.Declare:
    types = tuple(_declared_type(p.lexer.notes, arg) for arg in p[2].args)
    return ast.Declare(p[2].predicate, types, tokens_span(p, 1, 3))


def _declared_type(notes: Notes, arg: ast.Parameter | ast.Term) -> ast.Name:
    match arg:
        case ast.Variable(name, span):
            return ast.Name(name, span)
        case ast.Parameter(_, type_name, span):
            notes.refuse(span, "`declare` can contain only types", f"write `{clipped(type_name.text)}`")
            return type_name
        case _:
            notes.refuse(arg.span, "`declare` can contain only types", "write the name of a type, such as `String`")
            return ast.Name("unknown", arg.span)


# ---- tests ---------------------------------------------------------------------------------------


def _fact(p: Production) -> ast.Call:
    hint = 'write a value, such as `User{"alice"}`, a string or a number'
    stated: ast.Call = p[1]
    for arg in stated.args:
        if not isinstance(arg, ast.Literal):
            p.lexer.notes.refuse(arg.span, "a fact in a test can contain only values", hint)
    return stated


def _test(p: Production, name: ast.String) -> ast.Test:
    if not p[5]:
        p.lexer.notes.refuse(name.span, f"test {shown(name.text)} has no assertions", "add `assert` or `assert_not`")
    never = next((each for each in p[5] if isinstance(each, ast.NeverAssertion)), None)
    if p[4] and never:
        hint = "move it to a test without `setup`"
        p.lexer.notes.refuse(never.span, "`assert_never` is about all facts, not about those of `setup`", hint)
    return ast.Test(name, tuple(p[4]), tuple(p[5]), tokens_span(p, 1, 6))


def _test_name(p: Production) -> ast.String:
    text, span = text_of(p[2]), token_span(p, 2)
    if not text or "\0" in text:
        p.lexer.notes.refuse(span, "a test name is empty or contains NUL", 'write `test "owners can edit" { ... }`')
    return ast.String(text, span)


def _unquoted_test_name(p: Production) -> ast.String:
    p.lexer.notes.refuse(p[2].span, "a test name must be quoted", f'write `test "{clipped(p[2].text)}" {{ ... }}`')
    return ast.String(p[2].text, p[2].span)


def _assertion(p: Production, iff: ast.ValuesClause | None, end: int) -> ast.Assertion:
    notes, called = p.lexer.notes, p[2]
    for arg in called.args:
        if not isinstance(arg, ast.Parameter | ast.Literal):
            hint = f"write `{clipped(arg.name)}: Type`" if isinstance(arg, ast.Variable) else "write an Integer"
            notes.refuse(arg.span, "an assertion can contain only values, and one variable with a type", hint)
    if sum(isinstance(arg, ast.Parameter) for arg in called.args) > 1:
        notes.refuse(called.span, "an assertion can contain at most one variable", "write several assertions")
    if iff:
        _refuse_stranger(notes, iff.variable, called.args)
    return ast.Assertion(p[1] == "assert", called.predicate, called.args, iff, tokens_span(p, 1, end))


def _never(p: Production, condition: ast.Formula | None, end: int) -> ast.NeverAssertion:
    called = p[2]
    for arg in called.args:
        if isinstance(arg, ast.CurrentTime):
            hint = "use it in a condition after `if`"
            p.lexer.notes.refuse(arg.span, "`assert_never` cannot have `@current_unix_time` as an argument", hint)
    if condition:
        _refuse_shorthand(p.lexer.notes, condition)
    return ast.NeverAssertion(ast.Head(called.predicate, called.args, called.span), condition, tokens_span(p, 1, end))


def _refuse_stranger(notes: Notes, variable: ast.Variable, args: tuple[ast.Parameter | ast.Term, ...]) -> None:
    """Report the variable of an `iff` that is not an argument of the assertion. Each `_` is a new variable."""
    variables = [arg.variable if isinstance(arg, ast.Parameter) else arg for arg in args]
    if variable.name == "_":
        notes.refuse(variable.span, "`iff` cannot refer to `_`", "give the variable a name")
    elif variable not in variables:
        hint = f"add it as `{clipped(variable.name)}: Type`"
        notes.refuse(variable.span, f"{shown(variable.name)} is not an argument of the assertion", hint)


def _values_clause(p: Production) -> ast.ValuesClause | None:
    match p[2]:
        case ast.Membership(ast.Variable() as variable, listed, span):
            return ast.ValuesClause(variable, False, listed, span)
        case ast.Not(ast.Membership(ast.Variable() as variable, listed), span):
            return ast.ValuesClause(variable, True, listed, span)
    hint = 'write `iff v in ["a", "b"]` or `iff v not in ["a"]`'
    p.lexer.notes.refuse(p[2].span, "`iff` requires a list of values for the variable", hint)
    return None


def _refused_assertion(p: Production) -> ast.Assertion:
    refuse(p, 2, "`not` is not allowed in an assertion", "use `assert_not` or `assert`")
    return ast.Assertion(p[1] != "assert", p[3].predicate, p[3].args, None, tokens_span(p, 1, 4))


def _refused(message: str, hint: str) -> Action:
    """Return an action that refuses the second symbol, and keeps the first one."""

    def action(p: Production) -> object:
        refuse(p, 2, message, hint)
        return p[1]

    return action


# ---- productions ---------------------------------------------------------------------------------
# Longhand and shorthand rules share conditions, so a string alone is a condition here; `_rule` rejects it in longhand.


def _first(p: Production) -> object:
    return p[1]


PRODUCTIONS: tuple[tuple[Action, *tuple[str, ...]], ...] = (
    (lambda p: ast.Policy(tuple(p[1])), "policy : items"),
    (lambda p: [], "items :", "entries :", "facts :", "assertions :", "arguments :", "extends :", "setup :"),
    (_more, "items : items block", "items : items rule", "items : items declare", "items : items fixture",
            "items : items test", "entries : entries declaration", "entries : entries shorthand",
            "facts : facts fact", "assertions : assertions assertion"),
    (_first, "items : items SEMI", "formula : condition", "branch : condition", "condition : hops",
             "arguments : argument_list"),
    # blocks
    (lambda p: ast.Block(p[1], p[2], tuple(p[3]), tuple(p[5]), tokens_span(p, 1, 6)),
     "block : ACTOR name extends LBRACE entries RBRACE", "block : RESOURCE name extends LBRACE entries RBRACE"),
    (lambda p: ast.Block("global", None, (), tuple(p[3]), tokens_span(p, 1, 4)),
     "block : GLOBAL LBRACE entries RBRACE"),
    (lambda p: p[2], "extends : EXTENDS names", "extends : EXTENDS names COMMA"),
    (lambda p: [p[1]], "names : name", "list_items : term", "relations : relation", "argument_list : term",
                       "argument_list : parameter"),
    (_more, "names : names COMMA name", "list_items : list_items COMMA term", "relations : relations COMMA relation",
            "argument_list : argument_list COMMA term", "argument_list : argument_list COMMA parameter"),
    (_name_list, "declaration : name EQ list SEMI"),
    (lambda p: ast.RelationMap(p[1], tuple(p[4]), p[1].span.to(p[4][-1].span)),
     "declaration : name EQ LBRACE relations RBRACE SEMI", "declaration : name EQ LBRACE relations COMMA RBRACE SEMI"),
    (lambda p: ast.RelationMap(p[1], (), span_to(p, p[1].span, 4)), "declaration : name EQ LBRACE RBRACE SEMI"),
    (lambda p: ast.Relation(p[1], p[3], p[1].span.to(p[3].span)), "relation : name COLON name"),
    (lambda p: ast.Relation(p[1], None, p[1].span), "relation : name"),
    (_quoted_relation, "relation : STRING COLON name"),
    (lambda p: _union_relation(p, p[1]), "relation : name COLON list"),
    (lambda p: _union_relation(p, p[1].name), "relation : relation OR name"),
    (_rule_in_block, "entries : entries rule"),
    (lambda p: _shorthand(p, _reference(p, _string(p))), "shorthand : STRING IF formula SEMI"),
    (lambda p: _shorthand(p, _shorthand_head(p)), "shorthand : name IF formula SEMI"),
    # rules and declarations
    (_declare, "declare : DECLARE application SEMI"),
    (lambda p: _rule(p, None, 2), "rule : application SEMI"),
    (lambda p: _rule(p, p[3], 4), "rule : application IF formula SEMI"),
    (_application, "application : name LPAREN arguments RPAREN"),
    (lambda p: ast.Parameter(_variable(p), p[3], p[1].span.to(p[3].span)), "parameter : name COLON name"),
    # tests
    (lambda p: ast.Fixture(p[3], tuple(p[5]), tokens_span(p, 1, 6)), "fixture : TEST FIXTURE name LBRACE facts RBRACE"),
    (lambda p: _test(p, _test_name(p)), "test : TEST STRING LBRACE setup assertions RBRACE"),
    (lambda p: _test(p, _unquoted_test_name(p)), "test : TEST name LBRACE setup assertions RBRACE"),
    (lambda p: p[3], "setup : SETUP LBRACE facts RBRACE"),
    (_fact, "fact : application SEMI"),
    (_refused("a fact in a test cannot have conditions", "remove the conditions"),
     "fact : application IF formula SEMI"),
    (lambda p: ast.FixtureUse(p[2], tokens_span(p, 1, 3)), "fact : FIXTURE name SEMI"),
    (lambda p: _assertion(p, None, 3),
     "assertion : ASSERT application SEMI", "assertion : ASSERT_NOT application SEMI"),
    (lambda p: _assertion(p, p[3], 4),
     "assertion : ASSERT application values_clause SEMI", "assertion : ASSERT_NOT application values_clause SEMI"),
    (lambda p: _never(p, None, 3), "assertion : ASSERT_NEVER application SEMI"),
    (lambda p: _never(p, p[4], 5), "assertion : ASSERT_NEVER application IF formula SEMI"),
    (_values_clause, "values_clause : IFF formula"),
    # formulas
    (lambda p: _flat(p[1], ast.And), "formula : conjunction", "branch : conjunction"),
    (lambda p: _flat(p[1], ast.Or), "formula : disjunction"),
    (lambda p: [p[1], p[3]], "conjunction : condition AND condition", "disjunction : branch OR branch"),
    (_more, "conjunction : conjunction AND condition", "disjunction : disjunction OR branch"),
    (_enter, "deeper :"),
    (_not, "condition : NOT deeper condition"),
    (_nested, "condition : LPAREN deeper formula RPAREN"),
    (_call, "condition : application"),
    (lambda p: ast.Comparison(p[2], p[1], p[3], p[1].span.to(p[3].span)),
     "condition : term EQ term", "condition : term COMPARE term"),
    (lambda p: _membership(p, 3), "condition : term IN list"),
    (lambda p: ast.Not(_membership(p, 4), p[1].span.to(p[4].span)), "condition : term NOT IN list"),
    (_in_no_list, "condition : term IN term"),
    (_matches, "condition : term MATCHES name"),
    (lambda p: _matches(p, exact=True), "condition : term MATCHES_EXACTLY name"),
    (_lone, "condition : term"),
    (_on, "hops : term ON term"),
    (_second_hop, "hops : hops ON term"),
    (_global_reference, "condition : GLOBAL global_term"),
    # terms
    (lambda p: ListNode([], tokens_span(p, 1, 2)), "list : LBRACKET RBRACKET"),
    (lambda p: ListNode(p[2], tokens_span(p, 1, 3)), "list : LBRACKET list_items RBRACKET"),
    (lambda p: ListNode(p[2], tokens_span(p, 1, 4)), "list : LBRACKET list_items COMMA RBRACKET"),
    (_variable, "term : name", "global_term : name"),
    (_string, "term : STRING", "global_term : STRING"),
    (_integer, "term : INTEGER", "key : INTEGER"),
    (lambda p: ast.Literal(Value(BOOLEAN, p[1]), token_span(p, 1)),
     "term : TRUE", "term : FALSE", "key : TRUE", "key : FALSE"),
    (lambda p: ast.CurrentTime(token_span(p, 1)), "term : NOW"),
    (_unknown_constant, "term : AT_NAME"),
    (_entity, "term : name LBRACE key RBRACE"),
    (lambda p: _string(p, "an id"), "key : STRING"),
    (_unusable_id, "key : name"),
    (lambda p: ast.Name(p[1], token_span(p, 1)),
     "name : NAME", "name : ACTOR", "name : RESOURCE", "name : GLOBAL", "name : EXTENDS", "name : DECLARE",
     "name : TYPE", "name : TEST", "name : FIXTURE", "name : SETUP", "name : ASSERT", "name : ASSERT_NOT",
     "name : ASSERT_NEVER"),
    # not Polar: parsed only to give a helpful error
    (_misplaced_list, "parameter : list"),
    (_compared_list, "condition : term EQ list", "condition : term COMPARE list"),
    (_refused("`type` is not supported", "use `declare` to list the facts that can be stored"),
     "items : items TYPE application SEMI"),
    (_refused("`?=` is not supported", 'use `test "..." { assert ...; }`'),
     "items : items INLINE_QUERY formula SEMI"),
    (_refused("rule flags are not supported", "remove the flag"), "items : items AT_NAME", "entries : entries AT_NAME"),
    (_refused_assertion, "assertion : ASSERT NOT application SEMI", "assertion : ASSERT_NOT NOT application SEMI"),
)  # fmt: skip
