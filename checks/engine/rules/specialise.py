"""Rules + a pattern -> clauses with concrete types: one copy for each way a rule's variables can be typed.

    has_role(u, r, x) if has_relation(x, "parent", y) and has_role(u, r, y)

asked as has_role(User, "reader", Doc), where parents of a Doc are a Folder or a Site, becomes

    (u, "reader", x) if has_relation(Doc:x, String:"parent", Folder:y) and has_role(User:u, String:"reader", Folder:y)
    (u, "reader", x) if has_relation(Doc:x, String:"parent", Site:y) and has_role(User:u, String:"reader", Site:y)

If the policy accepts facts of these types, they are a clause too: `(u, "reader", x) if fact has_role(u, "reader", x)`.
A copy is made only if each call of its body can match a fact or the head of a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from operator import contains

from checks.engine.rules.clauses import (
    NOW,
    Call,
    Clause,
    ClauseSubset,
    Cmp,
    Const,
    Inner,
    Literal,
    Member,
    Neg,
    Pattern,
    Scan,
    Term,
    Var,
    canonical,
    substituted,
)
from checks.engine.rules.closures import Closure, about_between, closure_of, value_between
from checks.engine.rules.limits import spend, tick
from checks.engine.rules.narrow import narrowed
from checks.engine.rules.typings import (
    AreFacts,
    TypesByPredicate,
    Typing,
    atom_typings,
    head_typing,
    may_be,
    types_of,
    typings_of,
)
from checks.engine.rules.unify import applied
from policy.rules import program as p
from policy.rules.flatten import variables_in
from policy.values import Value

Guards = list[tuple[Var, list[tuple[Literal, ...]]]]  # of a closure: the value between two steps, and what it must meet


def any_signature(signature: p.Signature) -> bool:
    """Say that there may be facts of any signature: for use where it is not known which facts are stored."""
    return True


class Specialised:
    """The first pass: rules -> clauses of whole predicates and of closures. Later passes make the other parts."""

    def __init__(self, program: p.Program, are_facts: AreFacts = any_signature):
        self._program = program
        self._are_facts = are_facts
        self._rules: dict[tuple[str, tuple[str, ...]], list[p.Rule]] = {}
        self._closures: dict[tuple[str, int], Closure | None] = {}
        self._guards: dict[str, Guards] = {}
        self._rules_by_last: dict[tuple[str | int, ...], list[p.Rule]] = {}

    @cached_property
    def _types_by_predicate(self) -> TypesByPredicate:
        """The types of the facts and rule heads that calls can match."""
        return (
            self._program.types_by_predicate
            if self._are_facts is any_signature
            else narrowed(self._program, self._are_facts)
        )

    def __call__(self, pattern: Pattern) -> tuple[Clause, ...]:
        return tuple(dict.fromkeys(self._clauses_of(pattern)))

    def _clauses_of(self, pattern: Pattern) -> Iterator[Clause]:
        closure, rules = self._closure_of(pattern), self._rules_for(pattern.predicate, pattern.types)
        if closure is None:
            return self._facts_and_rules(pattern, rules)
        match pattern.subset:
            case ClauseSubset.UNCLOSED:
                others = [rule for rule in rules if rule not in closure.rules]
                return self._facts_and_rules(pattern, [*others, *closure.outside])
            case ClauseSubset.STEP:
                return self._closing(pattern, filter(self._can_hold, closure.steps(pattern)))
        return self._closing(pattern, self._paths(pattern, closure))

    def _paths(self, pattern: Pattern, closure: Closure) -> Iterator[Clause]:
        """Yield the clauses of a closure: one step, or some steps and then one more.

        There may be many, for each type of the value between and each guard: those of one type share their calls.
        """
        yield from filter(self._can_hold, [closure.first_step(pattern)])
        for y, guards in self._guards_of(pattern.predicate, closure):
            joined = closure.next_step(pattern, y)
            if self._can_hold(joined):
                yield from (Clause(joined.params, (*joined.body, *guard)) for guard in guards)

    def _guards_of(self, predicate: str, closure: Closure) -> Guards:
        if predicate not in self._guards:
            self._guards[predicate] = [
                (value_between(rule, name), [*map(about_between, _clauses(self._types_by_predicate, rule, (name,)))])
                for rule in closure.guards
                for name in sorted(closure.types)
            ]
        return self._guards[predicate]

    def _facts_and_rules(self, pattern: Pattern, rules: Iterable[p.Rule]) -> Iterator[Clause]:
        params = pattern.params
        signature = p.Signature(pattern.predicate, pattern.types)
        if self._program.accepts(pattern.predicate, pattern.types) and self._are_facts(signature):
            yield Clause(params, (Scan(signature, params),))
        for rule in rules:
            if not may_match(rule, pattern):
                continue
            for clause in _clauses(self._types_by_predicate, rule, pattern.types):
                tick()
                spend(rule.origin)
                made = applied(clause, params)
                if made is not None:
                    yield canonical(made)

    def _closing(self, pattern: Pattern, clauses: Iterator[Clause]) -> Iterator[Clause]:
        """Yield a closure's clauses for the pattern. `ClauseSubset.UNCLOSED` brings in the rules of its types."""
        for clause in clauses:
            tick()
            spend((pattern.predicate, len(pattern.types)))
            made = clause if clause.params == pattern.params else applied(clause, pattern.params)
            assert made is not None, "a closure is of anything with anything"
            yield canonical(made)

    def _can_hold(self, clause: Clause) -> bool:
        """Say whether each call of the clause can match a fact or the head of a rule."""
        return all(self._can_match(call.predicate, call.types) for call in clause.body if isinstance(call, Call))

    def _can_match(self, predicate: str, types: tuple[str, ...]) -> bool:
        every = self._types_by_predicate.get((predicate, len(types)), ())
        return any(all(map(contains, argument_types, types)) for argument_types in every)

    def _closure_of(self, pattern: Pattern) -> Closure | None:
        """Return the closure of the pattern's predicate; None where there is none, or it lacks one of the types."""
        key = (pattern.predicate, len(pattern.types))
        if len(pattern.types) != 2:
            return None
        if key not in self._closures:
            self._closures[key] = closure_of(self._program.rules_by_predicate.get(key, ()))
        closure = self._closures[key]
        return closure if closure is not None and closure.types.issuperset(pattern.types) else None

    def _rules_for(self, predicate: str, types: tuple[str, ...]) -> list[p.Rule]:
        """Return the rules whose heads can have these types."""
        key = (predicate, types)
        if key not in self._rules:
            rules = self._rules_with_last(predicate, types)
            self._rules[key] = [rule for rule in rules if head_typing(rule, types) is not None]
        return self._rules[key]

    def _rules_with_last(self, predicate: str, types: tuple[str, ...]) -> list[p.Rule]:
        """Return the rules whose last argument can have its type: of a large policy's many rules, most cannot."""
        key: tuple[str | int, ...] = (predicate, len(types), *types[-1:])
        if key not in self._rules_by_last:
            rules = self._program.rules_by_predicate.get((predicate, len(types)), ())
            fitting = (rule for rule in rules if not types or may_be(rule, rule.head.args[-1], types[-1]))
            self._rules_by_last[key] = list(fitting)
        return self._rules_by_last[key]


def may_match(rule: p.Rule, pattern: Pattern) -> bool:
    """Say whether no constant of the rule's head differs from the pattern's constant at the same place."""
    return all(
        const is None or not isinstance(term, Value) or const == Const(term.id)
        for term, const in zip(rule.head.args, pattern.consts)
    )


def _clauses(types_by_predicate: TypesByPredicate, rule: p.Rule, types: tuple[str, ...]) -> Iterator[Clause]:
    """Yield the rule's clauses for these types of the head; none where the head cannot have them."""
    for typing in typings_of(types_by_predicate, rule, types):
        clause = _clause(types_by_predicate, rule, typing)
        if clause is not None:
            yield clause


# ---- a rule whose variables have types -----------------------------------------------------------------------------


def concrete_literals(
    types_by_predicate: TypesByPredicate, rule: p.Rule, literal: p.Literal, typing: Typing
) -> tuple[Literal, ...] | None:
    """Return one literal of the rule with concrete types; None where it can never hold.

    It becomes none where it always holds, and several if it is a negation (see `_literals`).
    """
    made = _literals(types_by_predicate, rule, literal, typing, numbers_of(rule, typing))
    return None if made is None else tuple(made)


def numbers_of(rule: p.Rule, typing: Typing) -> dict[p.Var, Var]:
    """Return what each of the rule's variables is in its clauses."""
    return {variable: Var(index, variable.name, typing.get(variable, "")) for index, variable in enumerate(rule.types)}


def _clause(types_by_predicate: TypesByPredicate, rule: p.Rule, typing: Typing) -> Clause | None:
    numbers = numbers_of(rule, typing)
    body: list[Literal] = []
    for literal in rule.body:
        made = _literals(types_by_predicate, rule, literal, typing, numbers)
        if made is None:
            return None
        body += made
    typed = _typed_by_negations(body)
    params = tuple(_term(term, numbers) for term in rule.head.args)
    return Clause(params, tuple([substituted(literal, typed) for literal in body] if typed else body))


def _typed_by_negations(body: list[Literal]) -> dict[Var, Term]:
    """Return the variables that have no type since only negations mention them, with the type of the first mention."""
    found: dict[Var, Term] = {}
    for literal in body:
        if isinstance(literal, Neg):
            for arg, name in zip(literal.call.args, literal.call.types):
                if isinstance(arg, Var) and not arg.type:
                    found.setdefault(arg, Var(arg.number, arg.name, name))
    return found


def _literals(
    types_by_predicate: TypesByPredicate, rule: p.Rule, literal: p.Literal, typing: Typing, numbers: dict[p.Var, Var]
) -> list[Literal] | None:
    """Return what the literal becomes with concrete types; None where it can never hold."""
    match literal:
        case p.Atom():
            return [_call(rule, literal, typing, numbers)]
        case p.Not(atom):
            # A variable that only the negation mentions may have any of its types: one negation for each typing.
            typings = atom_typings(types_by_predicate, rule, atom, typing)
            alone = only_in(rule, literal)
            inner: dict[p.Var, Term] = {**numbers, **{variable: Inner(numbers[variable].number) for variable in alone}}
            return [Neg(_call(rule, atom, each, inner)) for each in typings]
        case p.Member(variable, values):
            ids = tuple(sorted({value.id for value in values if value.type == typing[variable]}))
            return [Member(numbers[variable], ids)] if ids else None
        case p.Compare(operator, left, right):
            return _comparison(rule, operator, left, right, typing, numbers)


def only_in(rule: p.Rule, negation: p.Not) -> set[p.Var]:
    """Return the variables that only this negation mentions."""
    outside = set(variables_in(rule.head))
    for literal in rule.body:
        if literal is not negation:
            outside.update(variables_in(literal))
    return set(variables_in(negation)) - outside


def _comparison(
    rule: p.Rule, operator: str, left: p.Term, right: p.Term, typing: Typing, numbers: dict[p.Var, Var]
) -> list[Literal] | None:
    """Return the comparison; nothing where it always holds by its types, None where it never does."""
    types = [types_of(rule, term, typing) for term in (left, right)]
    if operator in ("=", "!="):
        if not types[0] & types[1]:
            return [] if operator == "!=" else None  # values of different types are different
    elif types != [frozenset((p.TYPED[operator].type,))] * 2:
        return None  # an order comparison is false for values of other types
    return [Cmp(operator, _term(left, numbers), _term(right, numbers))]


def _call(rule: p.Rule, atom: p.Atom, typing: Typing, numbers: Mapping[p.Var, Term]) -> Call:
    types = tuple(min(types_of(rule, term, typing)) for term in atom.args)
    return Call(atom.predicate, types, tuple(_term(term, numbers) for term in atom.args))


def _term(term: p.Term, numbers: Mapping[p.Var, Term]) -> Term:
    match term:
        case Value(id=text):
            return Const(text)
        case p.Now():
            return NOW
        case _:
            return numbers[term]
