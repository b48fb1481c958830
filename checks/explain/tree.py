"""What an explanation says, as a tree: the same one for JSON, terminals and pages.

A node is one line to read (`text`), what kind of reason it is, and the reasons for it (`because`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from checks.explain.bindings import ANY
from checks.explain.cases import Case, Env
from policy.language.source import NOWHERE, Span
from policy.rules.program import Atom, Compare, Literal, Member, Not, Now, Program, Rule, Term, Var
from policy.values import BOOLEAN, INTEGER, STRING, Value, quoted

MAX_RULE_TEXT = 400  # characters of a rule that are shown
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./@+")


@dataclass(frozen=True, slots=True)
class Written:
    """A rule, or a part of one, as it stands in the policy; without a line, one that is there by default."""

    text: str
    line: int | None


@dataclass(frozen=True, slots=True)
class Node:
    """`kind` says what the text is:

    rule         it follows by `rule`, because of what is below
    part         one of a rule's alternatives holds; `rule` is the alternative
    fact         `source` has it: the stored facts or the context
    comparison   a comparison that is true, or a value in a list
    absence      a `not`: nothing makes it true
    again        it was explained before
    unexplained  it holds, and `note` says why no more is told
    obstacle     `rule` could have granted it; `met` is how far it got, and what is below is missing
    missing      a condition that does not hold: no such fact, or it does not follow
    false        a comparison that is not true
    present      a `not` of something that holds, and why it does
    """

    kind: str
    text: str
    atom: tuple[str, tuple[Value, ...]] | None = None
    source: str = ""
    rule: Written | None = None
    bindings: tuple[tuple[str, Value], ...] = ()
    met: tuple[str, ...] = ()
    note: str = ""
    because: tuple[Node, ...] = ()

    def lines(self, depth: int = 0) -> Iterator[tuple[int, Node]]:
        """Every node below this one, with its depth, in reading order."""
        waiting = [(depth, self)]
        while waiting:
            depth, node = waiting.pop()
            yield depth, node
            waiting += [(depth + 1, each) for each in reversed(node.because)]


# ---- rules as written --------------------------------------------------------------------------------------


def written(program: Program, rule: Rule) -> Written:
    if rule.origin == NOWHERE:
        return Written(str(rule), None)
    return Written(_clipped(source_text(program, rule.origin)), program.source.position(rule.origin.start)[0])


def source_text(program: Program, span: Span) -> str:
    return " ".join(program.source.text[span.start : span.end].split())


def formula_of(program: Program, predicate: str, arity: int) -> str:
    """The formula that a predicate made by normalisation stands for."""
    rules = program.rules_by_predicate.get((predicate, arity), ())
    texts = dict.fromkeys(source_text(program, rule.origin) for rule in rules)
    return _clipped(" or ".join(texts))


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_RULE_TEXT else f"{text[: MAX_RULE_TEXT - 1]}…"


def bindings(case: Case, env: Env) -> tuple[tuple[str, Value], ...]:
    """What the rule's own variables are, by the names that the text gives them, in order of appearance."""
    named = [(variable, name) for variable, name in case.names.items() if variable in env]
    names = [name for _, name in named]
    return tuple(
        [
            (name if names.count(name) == 1 else variable.name.replace("#", " "), env[variable])
            for variable, name in named
            if name != "_"
        ]
    )


# ---- one line ----------------------------------------------------------------------------------------------


def shown_value(value: Value | None) -> str:
    """As people write it: `User:ann`, `"reader"`, 3; `Repo:_` is any, `_` unknown."""
    if value is None:
        return "_"
    if value.id == ANY:
        return f"{value.type}:_"
    if value.type == STRING:
        return quoted(value.id)
    if value.type in (INTEGER, BOOLEAN):
        return value.id
    return f"{value.type}:{value.id if _PLAIN.issuperset(value.id) and value.id != '_' else quoted(value.id)}"


def shown_atom(predicate: str, args: tuple[Value | None, ...]) -> str:
    return f"{predicate}({', '.join(map(shown_value, args))})"


def shown_literal(program: Program, literal: Literal, env: Env, now: int) -> str:
    """The condition with the values that are known put in."""

    def term(each: Term) -> str:
        if isinstance(each, Now):
            return f"{now} (now)"
        return shown_value(env.get(each) if isinstance(each, Var) else each)

    match literal:
        case Atom(predicate, args) if predicate in program.helpers:
            return formula_of(program, predicate, len(args))
        case Atom(predicate, args):
            return f"{predicate}({', '.join(map(term, args))})"
        case Not(atom) if atom.predicate in program.helpers:
            return f"not ({shown_literal(program, atom, env, now)})"
        case Not(atom):
            return f"not {shown_literal(program, atom, env, now)}"
        case Compare(operator, left, right):
            return f"{term(left)} {operator} {term(right)}"
        case Member(variable, values):
            return f"{term(variable)} in [{', '.join(map(shown_value, values))}]"
