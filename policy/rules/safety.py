"""Refuse rules with unbound variables, and warn of variables that are probably mistakes.

    p(x) if q(x) and y < 3;                 nothing gives y a value
    p(x) if q(x) and not r(y) and not s(y);  which y?

A head variable may stay unbound: the question gives its value, or the answer is "every value". A variable that occurs
in one `not` only means "there is none". Every other variable of a comparison or a `not` must be bound by a call, by a
list, or by an `or` that binds it in each alternative.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from policy.language import ast
from policy.language.notes import shown
from policy.language.source import Span
from policy.rules.declarations import Vocabulary
from policy.rules.flat import UNLIMITED, FlatRule, is_made_here, terms_of
from policy.rules.formulas import simple_formulas, variables_of
from policy.rules.problems import Problems
from policy.rules.program import Atom, Compare, Literal, Member, Not, Term, Var

_IMPLICIT = {"actor", "resource", "role", "permission"}  # in shorthand


def check_safety(policy: ast.Policy, rules: list[FlatRule], known: Vocabulary, problems: Problems) -> None:
    modes = _Modes.of(rules)
    for rule in rules:
        _check_bound(rule, modes, problems)
    for item in policy.items:
        if isinstance(item, ast.Rule):
            _check_names(item, known, problems)
        elif isinstance(item, ast.Block):
            for short in item.items:
                if isinstance(short, ast.Shorthand):
                    _warn_of_singles(_written(short.body), _IMPLICIT, problems)


# ---- what binds a variable ---------------------------------------------------------------------------


@dataclass(slots=True)
class _Modes:
    """For each helper predicate, the positions that every alternative binds, and those that some alternative needs."""

    binds: dict[str, set[int]]
    needs: dict[str, set[int]]

    @classmethod
    def of(cls, rules: list[FlatRule]) -> _Modes:
        modes = cls({}, defaultdict(set))
        for rule in reversed(rules):  # a helper's rules come after those that call it
            if rule.caller is None:
                continue
            bound, needed = modes.bound(rule), modes.needed(rule)
            positions = {i for i, arg in enumerate(rule.head.args) if arg in bound or not isinstance(arg, Var)}
            name = rule.head.predicate
            if name.startswith("not#"):  # it binds nothing, even where it is called without `not`, for a `not not`
                modes.binds[name], modes.needs[name] = set(), set(range(len(rule.head.args)))
                continue
            modes.binds[name] = modes.binds.get(name, positions) & positions
            modes.needs[name] |= {i for i, arg in enumerate(rule.head.args) if arg in needed and arg not in bound}
        return modes

    def bound(self, rule: FlatRule) -> set[Term]:
        found: set[Term] = set()
        for literal in rule.body:
            match literal:
                case Atom(predicate, args):
                    binding = self.binds[predicate] if is_made_here(predicate) else range(len(args))
                    found.update(args[i] for i in binding)
                case Member(variable, _):
                    found.add(variable)
        return found

    def needed(self, rule: FlatRule) -> dict[Var, tuple[Literal | None, Span]]:
        """Return the variables that must be bound, each with the literal that needs it; None: a `not ... matches`."""
        uses = Counter(term for literal in rule.body for term in set(terms_of(literal)))
        outside = {*rule.head.args, *rule.bounds, *rule.limits}
        found: dict[Var, tuple[Literal | None, Span]] = {}
        for literal, span in zip(rule.body, rule.places, strict=True):
            for variable in self._needed_by(literal):
                is_inner = isinstance(literal, Not) and uses[variable] == 1 and variable not in outside
                if isinstance(variable, Var) and not is_inner:
                    found.setdefault(variable, (literal, span))
        for variable, (mask, span) in rule.limits.items():
            if mask != UNLIMITED:
                found.setdefault(variable, (None, span))
        return found

    def _needed_by(self, literal: Literal) -> Iterable[Term]:
        match literal:
            case Compare(_, left, right):
                return (left, right)
            case Not(Atom(_, args)):
                return args
            case Atom(predicate, args) if is_made_here(predicate):
                return [args[i] for i in self.needs[predicate]]
        return ()


def _check_bound(rule: FlatRule, modes: _Modes, problems: Problems) -> None:
    if not rule.limits and all(isinstance(lit, Atom) and not is_made_here(lit.predicate) for lit in rule.body):
        return
    bound = modes.bound(rule)
    for variable, (literal, span) in modes.needed(rule).items():
        if variable not in bound and variable not in rule.head.args:
            _refuse_unbound(variable, literal, span, rule, problems)


def _refuse_unbound(variable: Var, literal: Literal | None, span: Span, rule: FlatRule, problems: Problems) -> None:
    name = "`_`" if "#" in variable.name else shown(variable.name)
    hint = f"call a predicate with {name}, outside of any `not`"
    calls = [other for other in rule.body if isinstance(other, Atom) and variable in other.args]
    if any(call.predicate.startswith("or#") for call in calls):
        message = f"an alternative of the `or` gives {name} no value"
        hint = f"let every alternative call a predicate with {name}"
    elif not isinstance(literal, Compare):
        message = f"nothing outside of `not` gives {name} a value"
        hint += f"; or mention {name} nowhere but inside of one `not`, where it means `none such`"
    else:
        message = f"nothing gives {name} a value to compare"
    problems.error(span, message, hint)


# ---- variables that are probably mistakes -----------------------------------------------------------------


def _check_names(rule: ast.Rule, known: Vocabulary, problems: Problems) -> None:
    params = [p.variable if isinstance(p, ast.Parameter) else p for p in rule.head.params]
    in_head = [param for param in params if isinstance(param, ast.Variable)]
    written = [*in_head, *_written(rule.body)]
    _warn_of_singles(written, (), problems, frozenset(variable.span for variable in in_head))
    first = {variable.name: variable for variable in reversed(written)}
    typed = _typed(rule)
    for name, variable in first.items():
        if name in known.types and name not in typed:
            hint = f"a variable of that type is written `{name.lower()}: {name}`, or `_: {name}` for any"
            problems.warn(variable.span, f"{shown(name)} is a type, and stands here as a variable", hint)


def _typed(rule: ast.Rule) -> set[str]:
    """Return the variables that the rule gives a type: whoever does so knows them from a type of the same name."""
    params = {param.variable.name for param in rule.head.params if isinstance(param, ast.Parameter)}
    return params | {each.variable.name for each in simple_formulas(rule.body) if isinstance(each, ast.Matches)}


def _written(formula: ast.Formula | None) -> Iterator[ast.Variable]:
    for simple in simple_formulas(formula):
        yield from variables_of(simple)


def _warn_of_singles(
    variables: Iterable[ast.Variable], known: Iterable[str], problems: Problems, heads: frozenset[Span] = frozenset()
) -> None:
    variables = list(variables)
    uses = Counter(variable.name for variable in variables)
    for variable in variables:
        name = variable.name
        if uses[name] > 1 or name.startswith("_") or name in known:
            continue
        meaning = "so it stands for every value" if variable.span in heads else "so it may be anything"
        problems.warn(
            variable.span, f"{shown(name)} is used only once, {meaning}", f"if that is meant, write `_{name}`"
        )
