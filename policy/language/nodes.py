"""Build the nodes of the syntax tree for which a constructor alone is not enough."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from policy.language import ast
from policy.language.source import PolicyRejected, Problem, Source, Span
from policy.values import BOOLEAN, INTEGER, STRING, Value, canonical_id

# ---- notes --------------------------------------------------------------------------------------------------------
# The state of a parse: the errors found so far, the depth of nesting, and the string literals seen.

MAX_PROBLEMS = 50  # no one reads more, and a hostile text must not cause an endless message
MAX_DEPTH = 200  # bounds the recursion of later passes over formulas
MAX_SHOWN = 40  # characters of user text in a message


@dataclass(slots=True)
class Notes:
    source: Source
    problems: list[Problem] = field(default_factory=list)
    depth: int = 0
    values: dict[str, Value] = field(default_factory=dict)  # string literals seen before, by their source text

    def refuse(self, span: Span, message: str, hint: str = "") -> None:
        """Record an error, unless there is one at the same start: the later one is most likely its consequence.

        Raise `PolicyRejected` once there are MAX_PROBLEMS.
        """
        if any(problem.span.start == span.start for problem in self.problems):
            return
        self.problems.append(Problem(message, span, hint))
        if len(self.problems) >= MAX_PROBLEMS:
            self.reject()

    def enter(self, span: Span) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.problems.append(Problem(f"nested more than {MAX_DEPTH} levels deep", span, "use separate rules"))
            self.reject()

    def leave(self) -> None:
        self.depth -= 1

    def reject(self) -> NoReturn:
        raise PolicyRejected(self.source, tuple(self.problems))


def shown(text: str) -> str:
    """Clip user text for a message, and put it in backticks."""
    return f"`{clipped(text)}`"


def clipped(text: str) -> str:
    """Clip user text for a message to MAX_SHOWN characters, and then escape unprintable ones."""
    short = text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in short)


def spelled_out(text: str, kept: str = "") -> str:
    """Escape user text for a line of a report: unprintable characters that are not in `kept` are escaped as in JSON."""
    return "".join(char if char.isprintable() or char in kept else json.dumps(char)[1:-1] for char in text)


# ---- Types for the part of PLY that this package uses, as PLY has no type hints -----------------------------------


class Token:
    """A token as PLY's parser expects it. `value` is as written, unless the token replaces a mistake."""

    __slots__ = ("end", "lexer", "lexpos", "type", "value")  # PLY sets `lexer` on an unexpected token

    def __init__(self, kind: str, value: str, start: int, end: int):
        self.type = kind
        self.value = value
        self.lexpos = start
        self.end = end


class Lexer(Protocol):
    """What PLY passes to each production as `p.lexer`."""

    notes: Notes


class StackSymbol(Protocol):
    """An entry of the parser's stack: a token, or the result of a production, whose `value` can have any type."""

    type: str
    value: Any
    lexpos: int


class Production(Protocol):
    """The argument of each `p_` function: `p[n]` is the value of its n-th symbol, a node or the text of a token."""

    lexer: Lexer
    slice: Sequence[StackSymbol]
    stack: Sequence[StackSymbol]

    def __getitem__(self, n: int) -> Any: ...

    def __setitem__(self, n: int, v: object) -> None: ...


class Rewrite(Protocol):
    """A production in the parser's tables: the name on its left, and the number of symbols on its right."""

    name: str
    len: int


class Parser(Protocol):
    """A parser during a parse: its stacks and its tables.

    `action[state][token]` is a number: 0 accepts, a positive one shifts, and -n reduces by `productions[n]`.
    """

    statestack: Sequence[int]
    symstack: Sequence[StackSymbol]
    action: Mapping[int, Mapping[str, int]]
    goto: Mapping[int, Mapping[str, int]]
    productions: Sequence[Rewrite]
    errorfunc: Callable[[Token | None], NoReturn]

    def parse(self, *, lexer: Lexer, tokenfunc: Callable[[], Token | None]) -> ast.Policy: ...


# ---- Locate a production's symbols in the text, and report errors there -------------------------------------------
# `p` is PLY's production: `p[n]` is the value of its n-th symbol, a node or the text of a token.


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


def enter(p: Production) -> None:
    """Enter a level of nesting, which starts with the `not` or `(` on top of the parser's stack."""
    start = p.stack[-1].lexpos
    p.lexer.notes.enter(Span(start, start + len(p.stack[-1].value)))


# ---- Convert a literal to its canonical value, or report a problem ------------------------------------------------

MAX_BYTES = 512
_ESCAPE = re.compile(r"\\([\s\S])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}


def text_of(written: str) -> str:
    """Return the text of a string literal; `written` includes the quotes."""
    if "\\" not in written:
        return written[1:-1]
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), written[1:-1])


def string_value(notes: Notes, written: str, span: Span, what: str = "a string") -> ast.Literal:
    value = notes.values.get(written)
    if value is None:
        value = Value(STRING, text_of(written))
        if is_sound_id(notes, value.id, span, what):
            notes.values[written] = value
    return ast.Literal(value, span)


def integer_value(notes: Notes, written: str, span: Span) -> ast.Literal:
    try:
        return ast.Literal(Value(INTEGER, canonical_id(INTEGER, written)), span)
    except ValueError:
        notes.refuse(span, f"{shown(written)} does not fit in 64 bits", "the largest Integer is 9223372036854775807")
        return ast.Literal(Value(INTEGER, "0"), span)


def boolean_value(written: str, span: Span) -> ast.Literal:
    return ast.Literal(Value(BOOLEAN, written), span)


def entity_value(notes: Notes, type_name: ast.Name, key: ast.Literal, span: Span) -> ast.Literal:
    """Return the literal for `User{"alice"}`. `Integer{3}`, `Integer{"3"}` and `3` become equal literals."""
    try:
        value = Value(type_name.text, canonical_id(type_name.text, key.value.id))
    except ValueError as mistake:
        notes.refuse(key.span, str(mistake))
        value = key.value
    return ast.Literal(value, span, type_name.span)


def is_sound_id(notes: Notes, text: str, span: Span, what: str) -> bool:
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


# ---- Build the nodes of the grammar's productions, where a constructor alone is not enough ------------------------
# `p` is PLY's production: `p[n]` is the value of its n-th symbol, a node or the text of a token. The grammar accepts
# more than Polar. For what Polar does not allow, these functions report an error and return a placeholder, so that
# parsing continues.

WORDS = ("role", "permission")  # bare words allowed in shorthand


# ---- terms ---------------------------------------------------------------------------------------


def string(p: Production, n: int, what: str = "a string") -> ast.Literal:
    return string_value(p.lexer.notes, p[n], token_span(p, n), what)


def integer(p: Production, n: int) -> ast.Literal:
    return integer_value(p.lexer.notes, p[n], token_span(p, n))


def boolean(p: Production, n: int) -> ast.Literal:
    return boolean_value(p[n], token_span(p, n))


def entity(p: Production) -> ast.Literal:
    return entity_value(p.lexer.notes, p[1], p[3], span_to(p, p[1].span, 4))


def unusable_id(p: Production, n: int) -> ast.Literal:
    hint = "to match any entity of a type, use a variable of that type"
    p.lexer.notes.refuse(p[n].span, f"id {shown(p[n].text)} is not a string, a number, `true` or `false`", hint)
    return ast.Literal(Value("String", "unknown"), p[n].span)


def unknown_constant(p: Production) -> ast.CurrentTime:
    span = token_span(p, 1)
    p.lexer.notes.refuse(span, f"unknown constant {shown(p[1])}", "the only constant is `@current_unix_time`")
    return ast.CurrentTime(span)


@dataclass(frozen=True, slots=True)
class ListNode:
    """A list as written; it becomes part of the enclosing node."""

    terms: list[ast.Term]
    span: Span


def membership(p: Production, n: int) -> ast.Membership:
    """Return `x in [...]`, where the list is the n-th symbol. Report elements that are not literals."""
    for term in p[n].terms:
        if not isinstance(term, ast.Literal):
            p.lexer.notes.refuse(term.span, "a list can contain only values", "to compare with a variable, use `=`")
    literals_only = tuple(term for term in p[n].terms if isinstance(term, ast.Literal))
    return ast.Membership(p[1], literals_only, p[1].span.to(p[n].span))


def misplaced_list(p: Production) -> ast.Literal:
    span = p[1].span
    p.lexer.notes.refuse(span, "a list is not allowed here", "pass one value, or a variable that is tested with `in`")
    return ast.Literal(Value("String", "list"), span)


def compared_list(p: Production) -> ast.Membership:
    refuse(p, 2, "a list cannot be compared", 'test membership with `x in ["a", "b"]`')
    return ast.Membership(p[1], (), p[1].span)


# ---- formulas ------------------------------------------------------------------------------------


def call(p: Production, n: int) -> ast.Call:
    """Return the n-th symbol, a call inside a body. Report arguments with a type, such as `user: User`."""
    called: ast.Call = p[n]
    for arg in called.args:
        if isinstance(arg, ast.Parameter):
            hint = f"add the condition `{clipped(arg.variable.name)} matches {clipped(arg.type.text)}`"
            p.lexer.notes.refuse(arg.span, "an argument in a rule body cannot have a type", hint)
    return called


def lone(p: Production) -> ast.Formula:
    """Return the condition that is a single term: `true` or `false`, or in shorthand a string or one of WORDS."""
    match p[1]:
        case ast.Literal(value, span) if value.type == "Boolean":
            return ast.Truth(value.id == "true", span)
        case term:
            return reference(p, term)


def reference(p: Production, term: ast.Term) -> ast.Reference:
    match term:
        case ast.Literal(value, span) if value.type == "String":
            return ast.Reference(value.id, False, None, span)
        case ast.Variable(name, span) if name in WORDS:
            return ast.Reference(name, True, None, span)
        case ast.Variable(name, span):
            hint = f'quote a role, permission or relation: `"{clipped(name)}"`; call a predicate with arguments'
            p.lexer.notes.refuse(span, f"{shown(name)} is not a condition", hint)
        case _:
            p.lexer.notes.refuse(term.span, "a value is not a condition", "compare it, or pass it to a predicate")
    return ast.Reference("unknown", False, None, term.span)


def on(p: Production) -> ast.Reference:
    left, right = reference(p, p[1]), reference(p, p[3])
    if right.is_word:
        p.lexer.notes.refuse(right.span, f"{shown(right.name)} cannot follow `on`", "write a relation of this block")
    return ast.Reference(left.name, left.is_word, right.name, left.span.to(right.span), right.span)


def second_hop(p: Production) -> ast.Reference:
    hint = "declare a role or permission on the type in between, and use that"
    p.lexer.notes.refuse(p[3].span, "`on` cannot be chained", hint)
    first: ast.Reference = p[1]
    return first


def global_reference(p: Production) -> ast.GlobalReference:
    found = reference(p, p[2])
    return ast.GlobalReference(found.name, found.is_word, Span(p.slice[1].lexpos, found.span.end))


def matches(p: Production, exact: bool = False) -> ast.Matches:
    if not isinstance(p[1], ast.Variable):
        p.lexer.notes.refuse(p[1].span, "`matches` requires a variable", "remove it: values have known types")
        return ast.Matches(ast.Variable("_"), p[3], exact, p[1].span.to(p[3].span))
    return ast.Matches(p[1], p[3], exact, p[1].span.to(p[3].span))


def in_no_list(p: Production) -> ast.Membership:
    p.lexer.notes.refuse(p[3].span, "`in` requires a list of values", 'write `in ["a", "b"]`, or call a predicate')
    return ast.Membership(p[1], (), p[1].span)


def conjunction(parts: list[ast.Formula]) -> ast.And:
    flat: list[ast.Formula] = []  # `a and (b and c)` -> And(a, b, c)
    for part in parts:
        flat.extend(part.parts) if isinstance(part, ast.And) else flat.append(part)
    return ast.And(tuple(flat), flat[0].span.to(flat[-1].span))


def disjunction(parts: list[ast.Formula]) -> ast.Or:
    flat: list[ast.Formula] = []
    for part in parts:
        flat.extend(part.parts) if isinstance(part, ast.Or) else flat.append(part)
    return ast.Or(tuple(flat), flat[0].span.to(flat[-1].span))


# ---- blocks --------------------------------------------------------------------------------------


def block(p: Production) -> ast.Block:
    return ast.Block(p[1], p[2], tuple(p[3]), tuple(p[5]), tokens_span(p, 1, 6))


def name_list(p: Production) -> ast.NameList:
    names = tuple(_listed_name(p.lexer.notes, p[1].text, term) for term in p[3].terms)
    return ast.NameList(p[1], names, span_to(p, p[1].span, 4))


def _listed_name(notes: Notes, keyword: str, term: ast.Term) -> ast.String:
    match term:
        case ast.Literal(value, span) if value.type == "String":
            return ast.String(value.id, span)
        case ast.Variable(name, span):
            notes.refuse(span, f"{shown(name)} must be quoted", f'write `"{clipped(name)}"`')
        case _:
            notes.refuse(term.span, f"{shown(keyword)} can contain only strings", 'write `"..."`')
    return ast.String("unknown", term.span)


def quoted_relation(p: Production) -> ast.Relation:
    span = token_span(p, 1)
    hint = f"write `{clipped(text_of(p[1]))}: {clipped(p[3].text)}`"
    p.lexer.notes.refuse(span, "the name of a relation must not be quoted here", hint)
    return ast.Relation(ast.Name("unknown", span), p[3], span)


def union_relation(p: Production, name: ast.Name) -> ast.Relation:
    hint = "use a common type that they extend, or write rules outside of the block"
    p.lexer.notes.refuse(name.span, f"relation {shown(name.text)} has more than one type", hint)
    return ast.Relation(name, None, name.span)


def shorthand(p: Production, head: ast.Reference) -> ast.Shorthand:
    return ast.Shorthand(head, p[3], span_to(p, head.span, 4))


def shorthand_head(p: Production) -> ast.Reference:
    if p[1].text not in WORDS:
        hint = f'write `"{clipped(p[1].text)}" if ...`'
        p.lexer.notes.refuse(p[1].span, f"{shown(p[1].text)} must be quoted", hint)
    return ast.Reference(p[1].text, True, None, p[1].span)


def rule_in_block(p: Production) -> ast.Rule:
    misplaced: ast.Rule = p[2]
    hint = "move it after the closing `}` of the block"
    p.lexer.notes.refuse(misplaced.head.span, "a rule for a predicate is not allowed in a block", hint)
    return misplaced


# ---- rules ---------------------------------------------------------------------------------------


def application(p: Production) -> ast.Call:
    if p[1].text == "_":
        p.lexer.notes.refuse(p[1].span, "`_` is not a valid predicate name", "choose a name")
    return ast.Call(p[1], tuple(p[3]), span_to(p, p[1].span, 4))


def rule(p: Production, body: ast.Formula | None, end: int) -> ast.Rule:
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


def declare(p: Production) -> ast.Declare:
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


def fact(p: Production, n: int) -> ast.Call:
    hint = 'write a value, such as `User{"alice"}`, a string or a number'
    stated: ast.Call = p[n]
    for arg in stated.args:
        if not isinstance(arg, ast.Literal):
            p.lexer.notes.refuse(arg.span, "a fact in a test can contain only values", hint)
    return stated


def conditional_fact(p: Production) -> ast.Call:
    p.lexer.notes.refuse(token_span(p, 2), "a fact in a test cannot have conditions", "remove the conditions")
    stated: ast.Call = p[1]
    return stated


def test(p: Production, name: ast.String) -> ast.Test:
    if not p[5]:
        p.lexer.notes.refuse(name.span, f"test {shown(name.text)} has no assertions", "add `assert` or `assert_not`")
    never = next((each for each in p[5] if isinstance(each, ast.NeverAssertion)), None)
    if p[4] and never:
        hint = "move it to a test without `setup`"
        p.lexer.notes.refuse(never.span, "`assert_never` is about all facts, not about those of `setup`", hint)
    return ast.Test(name, tuple(p[4]), tuple(p[5]), tokens_span(p, 1, 6))


def test_name(p: Production, n: int) -> ast.String:
    text, span = text_of(p[n]), token_span(p, n)
    if not text or "\0" in text:
        p.lexer.notes.refuse(span, "a test name is empty or contains NUL", 'write `test "owners can edit" { ... }`')
    return ast.String(text, span)


def unquoted_test_name(p: Production, n: int) -> ast.String:
    p.lexer.notes.refuse(p[n].span, "a test name must be quoted", f'write `test "{clipped(p[n].text)}" {{ ... }}`')
    return ast.String(p[n].text, p[n].span)


def assertion(p: Production, iff: ast.ValuesClause | None, end: int) -> ast.Assertion:
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


def never(p: Production, condition: ast.Formula | None, end: int) -> ast.NeverAssertion:
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


def values_clause(p: Production) -> ast.ValuesClause | None:
    match p[2]:
        case ast.Membership(ast.Variable() as variable, listed, span):
            return ast.ValuesClause(variable, False, listed, span)
        case ast.Not(ast.Membership(ast.Variable() as variable, listed), span):
            return ast.ValuesClause(variable, True, listed, span)
    hint = 'write `iff v in ["a", "b"]` or `iff v not in ["a"]`'
    p.lexer.notes.refuse(p[2].span, "`iff` requires a list of values for the variable", hint)
    return None
