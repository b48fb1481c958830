"""Implied types: types that no block declares, but that rules clearly mean, because they ask for facts of them.

    actor User {}
    resource Repo { permissions = ["read"]; }
    has_permission(user: User, action: String, repo: Repo) if
      role matches Role and has_role(user, role, repo) and grants_permission(role, action);

No rule defines `grants_permission`, so this condition asks for stored facts, and implies that there is a type `Role`. A
head's parameter of an undeclared type implies the type too. A call of a predicate that all policies share (`has_role`),
or that rules define, implies nothing: an undeclared type there is a mistake. A name that resembles a declared type, or
another implied one, is a mistake as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator

from policy.language import ast
from policy.language.notes import shown
from policy.rules.formulas import ANONYMOUS, simple_formulas, variables_of
from policy.rules.problems import Problems

MAX_IMPLIED = 50  # each is compared with every declared name
_SHARED = ("allow", "has_permission", "has_role", "has_relation")

Near = Callable[[str, list[str]], str]  # what a name among others was most likely meant to be, as advice


def implied_types(policy: ast.Policy, declared: list[str], near: Near, problems: Problems) -> tuple[str, ...]:
    """Return the types that rules speak for, each with a warning; those that are named most come first."""
    rules = [item for item in policy.items if isinstance(item, ast.Rule)]
    named = [name for rule in rules for _, name in _typed(rule)]
    known = set(declared)
    first = {name.text: name for name in reversed(named) if name.text not in known}
    if not 0 < len(first) <= MAX_IMPLIED:
        return ()
    spoken_for = _spoken_for(rules, first)
    found: list[str] = []
    for name, _ in Counter(name.text for name in named).most_common():
        if name in spoken_for and not near(name, [*declared, *found]):
            found.append(name)
            hint = f"if it is meant, declare it: `resource {name} {{}}`"
            problems.warn(first[name].span, f"no block declares the type {shown(name)}; rules speak of its facts", hint)
    return tuple(found)


def _typed(rule: ast.Rule) -> Iterator[tuple[str, ast.Name]]:
    """Yield each type that the rule names, with the variable that has it."""
    for param in rule.head.params:
        if isinstance(param, ast.Parameter):
            yield param.variable.name, param.type
    for formula in simple_formulas(rule.body):
        if isinstance(formula, ast.Matches):
            yield formula.variable.name, formula.type


def _spoken_for(rules: list[ast.Rule], undeclared: Container[str]) -> set[str]:
    defined = {(rule.head.predicate.text, len(rule.head.params)) for rule in rules}
    found: set[str] = set()
    for rule in rules:
        typed = [(variable, name.text) for variable, name in _typed(rule) if name.text in undeclared]
        if typed:
            in_head = {each.type.text for each in rule.head.params if isinstance(each, ast.Parameter)}
            asked = _asked_of_their_own(rule, defined)
            found.update(name for variable, name in typed if name in in_head or variable in asked)
    return found


def _asked_of_their_own(rule: ast.Rule, defined: Container[tuple[str, int]]) -> set[str]:
    """Return the variables in calls of predicates that are neither shared by all policies nor defined by rules."""
    calls = (formula for formula in simple_formulas(rule.body) if isinstance(formula, ast.Call))
    own = (call for call in calls if not _is_shared(call, defined))
    return {variable.name for call in own for variable in variables_of(call)} - {ANONYMOUS}


def _is_shared(call: ast.Call, defined: Container[tuple[str, int]]) -> bool:
    return call.predicate.text in _SHARED or (call.predicate.text, len(call.args)) in defined
