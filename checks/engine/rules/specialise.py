"""Specialise rules: one clause with concrete types for each typing of a rule's variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import product
from math import prod
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
    check,
    spend,
    substituted,
    tick,
)
from checks.engine.rules.recursion import Closure, about_between, closure_of, value_between
from checks.engine.rules.rewrite import applied
from policy.rules import program as p
from policy.rules.components import reachable
from policy.rules.flatten import PredicateKey, atoms_of, key_of, variables_in
from policy.values import Value

# ---- Which types the variables of a rule can have, given the facts and rules --------------------------------------
# `has_role(u, r, x) if has_relation(x, "parent", y) and has_role(u, r, y)`, with x a Doc and u a User: y is a Folder or
# a Site, if those are the types of parents that a Doc can have.

ConcreteTyping = dict[p.Var, str]
ArgumentTypes = tuple[p.Types, ...]  # of the arguments of a fact, or of a rule's head
TypesByPredicate = Mapping[tuple[str, int], tuple[ArgumentTypes, ...]]  # what calls can match, by name and arity
AreFacts = Callable[[p.Signature], bool]  # whether a signature may have facts


def typings_of(types_by_predicate: TypesByPredicate, rule: p.Rule, types: tuple[str, ...]) -> Iterator[ConcreteTyping]:
    """Yield every typing of the rule's variables by which each call in the body can match a fact or a rule's head.

    `types` are those of the head's arguments.
    """
    typing = head_typing(rule, types)
    if typing is None:
        return
    atoms = [literal for literal in rule.body if isinstance(literal, p.Atom)]
    seen = set()
    for full in _typings(types_by_predicate, rule, atoms, _member_typings(rule, typing)):
        key = tuple(sorted((variable.name, name) for variable, name in full.items()))
        if key not in seen:
            seen.add(key)
            yield full


def head_typing(rule: p.Rule, types: tuple[str, ...]) -> ConcreteTyping | None:
    """Return the types of the head's variables; None if the head cannot have these types."""
    typing: ConcreteTyping = {}
    for term, name in zip(rule.head.args, types):
        match term:
            case Value(type=own):
                if own != name:
                    return None
            case p.Var():
                if name not in rule.types[term] or typing.setdefault(term, name) != name:
                    return None
    return typing


def _member_typings(rule: p.Rule, typing: ConcreteTyping) -> list[ConcreteTyping]:
    """Extend the typing to variables in lists of values: one result for each combination of the values' types."""
    found = [typing]
    for literal in rule.body:
        if isinstance(literal, p.Member):
            names = {value.type for value in literal.values} & rule.types[literal.variable]
            found = [
                {**each, literal.variable: name}
                for each in found
                for name in sorted(names)
                if each.get(literal.variable, name) == name
            ]
    return found


def _typings(
    types_by_predicate: TypesByPredicate, rule: p.Rule, atoms: list[p.Atom], starts: list[ConcreteTyping]
) -> Iterator[ConcreteTyping]:
    """Yield every typing of the variables of the atoms. The atom with the fewest untyped variables goes first."""
    for typing in starts:
        if not atoms:
            yield typing
            continue
        check()
        atom = min(atoms, key=lambda each: sum(isinstance(t, p.Var) and t not in typing for t in each.args))
        rest = [each for each in atoms if each is not atom]
        yield from _typings(types_by_predicate, rule, rest, list(atom_typings(types_by_predicate, rule, atom, typing)))


def atom_typings(
    types_by_predicate: TypesByPredicate, rule: p.Rule, atom: p.Atom, typing: ConcreteTyping
) -> Iterator[ConcreteTyping]:
    """Yield the typings of the atom's variables by which it can match a fact or a rule's head."""
    seen = set()
    known = [types_of(rule, term, typing) for term in atom.args]
    for pattern in types_by_predicate.get((atom.predicate, len(atom.args)), ()):
        if any(map(frozenset.isdisjoint, known, pattern)):
            continue
        for names in product(*(sorted(own & allowed) for own, allowed in zip(known, pattern))):
            tick()
            if names not in seen:
                seen.add(names)
                extended = _extended(atom, typing, names)
                if extended is not None:
                    yield extended


def _extended(atom: p.Atom, typing: ConcreteTyping, names: tuple[str, ...]) -> ConcreteTyping | None:
    """Return the typing, with the atom's arguments of these types; None if a variable would have two types."""
    extended = dict(typing)
    for term, name in zip(atom.args, names):
        if isinstance(term, p.Var) and extended.setdefault(term, name) != name:
            return None
    return extended


def types_of(rule: p.Rule, term: p.Term, typing: ConcreteTyping) -> p.Types:
    """Return the types that the term can have: one, if its variable is already typed."""
    if isinstance(term, p.Var) and term in typing:
        return frozenset((typing[term],))
    return p.types_of(term, rule.types)


# ---- narrow -------------------------------------------------------------------------------------------------------
# Argument types of calls -> only those that the stored facts can lead to.
#
#     linked(x, y) if near(x, y);                             near: (Item, Page), if only such facts are stored
#     linked(y, x) if linked(x, y);                       ->  linked: (Item, Page) by the first rule,
#     linked(x, z) if linked(x, y) and linked(y, z);                  ({Item, Page}, {Item, Page}) by the others
#
# Without this, each variable may have any type that its rule allows, and untyped rules combine in all of them. The
# result has one set of types for each argument of a rule's head. It may contain too many types, but nothing makes the
# missing ones true.

MOST_SIGNATURES = 1_000  # per accepted pattern; with more, each is assumed to have facts
MOST_LOOKS = 20_000  # at argument types; rules that take more are not narrowed


def are_missing(program: p.Program, asked: Iterable[PredicateKey], are_facts: AreFacts) -> bool:
    """Return whether the predicates depend on some signature that has no facts."""

    def called(key: PredicateKey) -> list[PredicateKey]:
        return [key_of(atom) for rule in program.rules_by_predicate.get(key, ()) for atom in atoms_of(rule.body)]

    patterns = ((key[0], each) for key in reachable(asked, called) for each in program.accepted.get(key, ()))
    return any(not are_facts(each) for name, pattern in patterns for each in _signatures(name, pattern))


def narrowed(program: p.Program, are_facts: AreFacts) -> TypesByPredicate:
    """Return the least fixpoint of "a head has the types that its body allows", starting from the facts.

    If that takes too many looks, return all types that the program allows.
    """
    work = _TypingWork(program, are_facts)
    return work.found() if work.is_finished() else program.types_by_predicate


class _TypingWork:
    """The argument types found so far: those of stored facts, and for each rule some that grow until the fixpoint."""

    def __init__(self, program: p.Program, are_facts: AreFacts):
        self._program = program
        self._stored = {
            key: tuple(argument_types for pattern in patterns for argument_types in _stored(key[0], pattern, are_facts))
            for key, patterns in program.accepted.items()
        }
        self._heads: dict[PredicateKey, dict[int, ArgumentTypes]] = {}  # by the rule's index
        self._callers: dict[PredicateKey, list[int]] = {}
        self._looks = 0
        for place, rule in enumerate(program.rules):
            for key in {key_of(each) for each in rule.body if isinstance(each, p.Atom)}:
                self._callers.setdefault(key, []).append(place)

    def found(self) -> TypesByPredicate:
        return {key: self._of(key) for key in self._stored.keys() | self._heads.keys()}

    def is_finished(self) -> bool:
        """Iterate to the fixpoint; return False, with the work unfinished, if that takes too many looks."""
        waiting = dict.fromkeys(range(len(self._program.rules)))
        while waiting:
            tick()
            place = next(iter(waiting))
            del waiting[place]
            head = self._head(self._program.rules[place])
            if self._looks > MOST_LOOKS:
                return False
            key = key_of(self._program.rules[place].head)
            known = self._heads.setdefault(key, {})
            if head is not None and known.get(place) != head:
                known[place] = head
                waiting |= dict.fromkeys(self._callers.get(key, ()))
        return True

    def _of(self, key: PredicateKey) -> tuple[ArgumentTypes, ...]:
        return (*self._stored.get(key, ()), *dict.fromkeys(self._heads.get(key, {}).values()))

    def _head(self, rule: p.Rule) -> ArgumentTypes | None:
        """Return the types that the rule's head can have so far; None if nothing makes the body true yet."""
        types = dict(rule.types)
        for literal in rule.body:
            match literal:
                case p.Atom(args=args):
                    met = self._met(key_of(literal), tuple(p.types_of(term, types) for term in args))
                    if met is None:
                        return None
                    for term, names in zip(args, met):
                        if isinstance(term, p.Var):
                            types[term] &= names
                case p.Member(variable, values):
                    types[variable] &= {value.type for value in values}
        return tuple(p.types_of(term, types) for term in rule.head.args)

    def _met(self, key: PredicateKey, types: ArgumentTypes) -> ArgumentTypes | None:
        """Return the types of each argument that facts and heads of the predicate allow; None if none fits."""
        met: list[p.Types] | None = None
        every = self._of(key)
        self._looks += len(every)
        for argument_types in every:
            both = [own & allowed for own, allowed in zip(types, argument_types)]
            if all(both):
                met = both if met is None else [one | other for one, other in zip(met, both)]
        return None if met is None else tuple(met)


def _stored(predicate: str, pattern: ArgumentTypes, are_facts: AreFacts) -> list[ArgumentTypes]:
    """Return the argument types of stored facts: for each signature, or just the pattern if all have facts.

    A pattern with too many signatures to look up is assumed to have facts of all.
    """
    every = list(_signatures(predicate, pattern))
    there_are = [each for each in every if are_facts(each)]
    if len(there_are) == len(every):
        return [pattern]
    return [tuple(frozenset((name,)) for name in each.types) for each in there_are]


def _signatures(predicate: str, pattern: ArgumentTypes) -> Iterator[p.Signature]:
    """Yield the signatures of the pattern; none if there are more than MOST_SIGNATURES."""
    if prod(map(len, pattern)) <= MOST_SIGNATURES:
        yield from (p.Signature(predicate, names) for names in product(*map(sorted, pattern)))


# ---- specialise ---------------------------------------------------------------------------------------------------
# Rules + a pattern -> clauses with concrete types: one copy for each typing of a rule's variables.
#
#     has_role(u, r, x) if has_relation(x, "parent", y) and has_role(u, r, y)
#
# called as has_role(User, "reader", Doc), where parents of a Doc are a Folder or a Site, becomes
#
#     (u, "reader", x) if has_relation(Doc:x, String:"parent", Folder:y) and has_role(User:u, String:"reader", Folder:y)
#     (u, "reader", x) if has_relation(Doc:x, String:"parent", Site:y) and has_role(User:u, String:"reader", Site:y)
#
# If the policy accepts facts of these types, they are a clause too: `(u, "reader", x) if fact has_role(u, "reader",
# x)`. A copy is made only if each call of its body can match a fact or a rule's head.

Guards = list[tuple[Var, list[tuple[Literal, ...]]]]  # of a closure: the value between two steps, and conditions on it


def any_signature(signature: p.Signature) -> bool:
    """Treat every signature as possibly stored (used when stored facts are unknown)."""
    return True


class Specialised:
    """The first pass: rules -> clauses of whole predicates and of closures. Later passes create the other subsets."""

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

        There may be many, one for each type of the middle value and each guard; those of one type share their calls.
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
        """Return whether each call of the clause can match a fact or a rule's head."""
        return all(self._can_match(call.predicate, call.types) for call in clause.body if isinstance(call, Call))

    def _can_match(self, predicate: str, types: tuple[str, ...]) -> bool:
        every = self._types_by_predicate.get((predicate, len(types)), ())
        return any(all(map(contains, argument_types, types)) for argument_types in every)

    def _closure_of(self, pattern: Pattern) -> Closure | None:
        """Return the closure of the pattern's predicate; None if it has none, or one that lacks a type."""
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
        """Return the rules whose last argument can have its type, which excludes most rules of a large policy."""
        key: tuple[str | int, ...] = (predicate, len(types), *types[-1:])
        if key not in self._rules_by_last:
            rules = self._program.rules_by_predicate.get((predicate, len(types)), ())
            fitting = (rule for rule in rules if not types or types[-1] in p.types_of(rule.head.args[-1], rule.types))
            self._rules_by_last[key] = list(fitting)
        return self._rules_by_last[key]


def may_match(rule: p.Rule, pattern: Pattern) -> bool:
    """Return whether no constant of the rule's head differs from the pattern's constant at the same position."""
    return all(
        const is None or not isinstance(term, Value) or const == Const(term.id)
        for term, const in zip(rule.head.args, pattern.consts)
    )


def _clauses(types_by_predicate: TypesByPredicate, rule: p.Rule, types: tuple[str, ...]) -> Iterator[Clause]:
    """Yield the rule's clauses for these types of the head; none if the head cannot have them."""
    for typing in typings_of(types_by_predicate, rule, types):
        clause = _clause(types_by_predicate, rule, typing)
        if clause is not None:
            yield clause


# ---- a rule whose variables have types -----------------------------------------------------------------------------


def concrete_literals(
    types_by_predicate: TypesByPredicate, rule: p.Rule, literal: p.Literal, typing: ConcreteTyping
) -> tuple[Literal, ...] | None:
    """Return one literal of the rule with concrete types; None if it can never hold.

    The result is empty if it always holds, and may have several literals if it is a negation (see `_literals`).
    """
    made = _literals(types_by_predicate, rule, literal, typing, numbers_of(rule, typing))
    return None if made is None else tuple(made)


def numbers_of(rule: p.Rule, typing: ConcreteTyping) -> dict[p.Var, Var]:
    """Map each of the rule's variables to the one in its clauses."""
    return {variable: Var(index, variable.name, typing.get(variable, "")) for index, variable in enumerate(rule.types)}


def _clause(types_by_predicate: TypesByPredicate, rule: p.Rule, typing: ConcreteTyping) -> Clause | None:
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
    """Return the variables that are untyped because only negations mention them, with the type of the first mention."""
    found: dict[Var, Term] = {}
    for literal in body:
        if isinstance(literal, Neg):
            for arg, name in zip(literal.call.args, literal.call.types):
                if isinstance(arg, Var) and not arg.type:
                    found.setdefault(arg, Var(arg.number, arg.name, name))
    return found


def _literals(
    types_by_predicate: TypesByPredicate,
    rule: p.Rule,
    literal: p.Literal,
    typing: ConcreteTyping,
    numbers: dict[p.Var, Var],
) -> list[Literal] | None:
    """Return the literal with concrete types; None if it can never hold."""
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
    rule: p.Rule, operator: str, left: p.Term, right: p.Term, typing: ConcreteTyping, numbers: dict[p.Var, Var]
) -> list[Literal] | None:
    """Return the comparison; empty if its types make it always true, None if they make it always false."""
    types = [types_of(rule, term, typing) for term in (left, right)]
    if operator in ("=", "!="):
        if not types[0] & types[1]:
            return [] if operator == "!=" else None  # values of different types are different
    elif types != [frozenset((p.TYPED[operator].type,))] * 2:
        return None  # an order comparison is false for values of other types
    return [Cmp(operator, _term(left, numbers), _term(right, numbers))]


def _call(rule: p.Rule, atom: p.Atom, typing: ConcreteTyping, numbers: Mapping[p.Var, Term]) -> Call:
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
