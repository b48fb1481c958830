"""A program's rules as clauses that know no types: what is true before any pass, said for the oracle of clauses.

Values are texts that begin with their types, `User:ann` (Integers are bare, to be compared), and the types that a
variable can have are a list of all their values:

    has_role(u: User, "reader", r: Repo) if owns(u, r)
->  (u, "String:reader", r) if owns(u, r) and u in ["User:ann", "User:bob"] and r in ["Repo:one", "Repo:two"]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from checks.engine.rules.clauses import Call, Clause, Cmp, Const, Inner, Literal, Member, Neg, Pattern, Scan, Term, Var
from policy.rules import program as p
from policy.rules.flatten import terms_of
from policy.values import INTEGER, Value

Key = tuple[str, int]


def text_of(value: Value) -> str:
    return value.id if value.type == INTEGER else f"{value.type}:{value.id}"


def untyped(key: Key) -> Pattern:
    predicate, width = key
    return Pattern(predicate, ("",) * width, (None,) * width)


@dataclass
class Untyped:
    """`values` are those of the world, by type."""

    program: p.Program
    values: Mapping[str, Iterable[Value]]
    now: Value
    _helpers: dict[Pattern, tuple[Clause, ...]] = field(default_factory=dict)

    def __call__(self, pattern: Pattern) -> tuple[Clause, ...]:
        if pattern in self._helpers:
            return self._helpers[pattern]
        key = (pattern.predicate, len(pattern.types))
        rules = (self._clause(rule) for rule in self.program.rules_by_predicate.get(key, ()))
        return (Clause(pattern.params, (Scan(signature(key), pattern.params),)), *rules)

    def _clause(self, rule: p.Rule) -> Clause:
        numbers: dict[p.Var, Term] = {variable: Var(index) for index, variable in enumerate(rule.types)}
        alone = {variable for literal in rule.body for variable in only_in(rule, literal)}
        typed = [self._typed(numbers[v], types) for v, types in rule.types.items() if v not in alone]
        body = [self._literal(rule, literal, numbers) for literal in rule.body]
        return Clause(self._terms(rule.head.args, numbers), (*body, *typed))

    def _literal(self, rule: p.Rule, literal: p.Literal, numbers: dict[p.Var, Term]) -> Literal:
        match literal:
            case p.Atom():
                return self._call(literal, numbers)
            case p.Member(variable, values):
                return Member(numbers[variable], tuple(map(text_of, values)))
            case p.Compare(operator, left, right):
                return Cmp(operator, *self._terms((left, right), numbers))
            case p.Not(atom):
                return self._negation(rule, literal, atom, numbers)

    def _negation(self, rule: p.Rule, literal: p.Not, atom: p.Atom, numbers: dict[p.Var, Term]) -> Neg:
        """Of the atom with the types of the variables that it alone has, as a predicate of its own."""
        alone = only_in(rule, literal)
        key = (f"not {atom} of {rule}", len(atom.args))
        own: dict[p.Var, Term] = {v: Var(100 + index) for index, v in enumerate(dict.fromkeys(variables_in(literal)))}
        typed = [self._typed(own[variable], rule.types[variable]) for variable in alone]
        self._helpers[untyped(key)] = (Clause(self._terms(atom.args, own), (self._call(atom, own), *typed)),)
        inner: dict[p.Var, Term] = {v: Inner(v_.number) for v, v_ in numbers.items() if isinstance(v_, Var)}
        shown = {v: inner[v] if v in alone else term for v, term in numbers.items()}
        return Neg(Call(key[0], ("",) * key[1], self._terms(atom.args, shown)))

    def _call(self, atom: p.Atom, numbers: Mapping[p.Var, Term]) -> Call:
        return Call(atom.predicate, ("",) * len(atom.args), self._terms(atom.args, numbers))

    def _typed(self, variable: Term, types: p.Types) -> Member:
        return Member(variable, tuple(text_of(value) for name in types for value in self.values.get(name, ())))

    def _terms(self, terms: Iterable[p.Term], numbers: Mapping[p.Var, Term]) -> tuple[Term, ...]:
        return tuple(self._term(term, numbers) for term in terms)

    def _term(self, term: p.Term, numbers: Mapping[p.Var, Term]) -> Term:
        match term:
            case p.Var():
                return numbers[term]
            case p.Now():
                return Const(text_of(self.now))
        return Const(text_of(term))


def signature(key: Key) -> p.Signature:
    return p.Signature(key[0], ("",) * key[1])


def only_in(rule: p.Rule, literal: p.Literal) -> set[p.Var]:
    """The variables that nothing but this negation mentions."""
    others = (each for each in (rule.head, *rule.body) if each is not literal)
    outside = {variable for each in others for variable in variables_in(each)}
    return set(variables_in(literal)) - outside if isinstance(literal, p.Not) else set()


def variables_in(literal: p.Literal) -> list[p.Var]:
    return [term for term in terms_of(literal) if isinstance(term, p.Var)]
