"""Rules as they were written, in a form that lets them be checked one at a time.

The engine rewrites rules for speed; explanations are about the rules of the text. A `Case` is such a rule with one type
for each variable, and with its conditions in an order in which each can be checked after those before it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from checks.asking import limits
from checks.engine.rules.clauses import Call, Const, Other, Pattern, tick
from checks.engine.rules.clauses import Literal as EngineLiteral
from checks.engine.rules.clauses import Var as EngineVar
from checks.engine.rules.ruleset import RuleSet
from checks.engine.rules.specialise import concrete_literals, may_match, numbers_of, only_in, typings_of
from policy.rules.components import Components, reachable
from policy.rules.flatten import terms_of, variables_in
from policy.rules.program import Atom, Literal, Member, Not, Program, Rule, Term, Var
from policy.values import STRING, Value

ANY = ""  # the id of a value that nothing mentions: what holds for it holds for every such value
_ANY_OTHER = Other("")  # a name that no rule mentions

RuleBindings = dict[Var, Value]  # values of a rule's variables
_KnownName = Const | Other | None  # a name of the policy; another name; None: unknown
AnyArgument = TypeVar("AnyArgument")
_CasePlace = tuple[str, int, int]  # predicate, number of arguments, index of the argument


def value_in(bindings: RuleBindings, term: Term, now: Value | None) -> Value | None:
    """Return the term's value; None for an unbound variable. `now` is the value of the current time."""
    if isinstance(term, Value):
        return term
    return bindings.get(term) if isinstance(term, Var) else now


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be explained; an argument with the id ANY stands for any value of its type."""

    predicate: str
    args: tuple[Value, ...]

    def __hash__(self) -> int:
        args = self.args  # goals of one explanation rarely differ only in the arguments between these
        return hash((self.predicate, args[0].id, args[-1].id)) if args else hash(self.predicate)


@dataclass(frozen=True)
class RuleCondition:
    """A literal of a rule, and the engine's literals for it.

    A negation becomes several literals if variables that only it mentions may have several types.
    """

    literal: Literal
    asked: tuple[EngineLiteral, ...]
    pattern: Pattern | None = None  # of an atom whose pattern does not depend on its variables

    @property
    def call(self) -> Call:
        """Return the engine's call for an atom."""
        (call,) = self.asked
        assert isinstance(call, Call), "an atom of a rule is one call"
        return call

    @cached_property
    def binds(self) -> tuple[Var, ...]:
        """Return the variables that the literal can bind."""
        return tuple(variables_in(self.literal)) if isinstance(self.literal, Atom | Member) else ()


@dataclass(frozen=True, eq=False)
class Case:
    """A rule, or a part of one, whose variables have one type each."""

    rule: Rule
    types: dict[Var, str]
    conditions: tuple[RuleCondition, ...]  # in the order of `ordered_body`

    @cached_property
    def numbers(self) -> dict[Var, EngineVar]:
        """Map each variable of the rule to the engine's."""
        return numbers_of(self.rule, self.types)

    @cached_property
    def names(self) -> dict[Var, str]:
        """Return the names of the rule's variables in the text, in order of appearance."""
        literals = (self.rule.head, *self.rule.body)
        return {variable: variable.name.partition("#")[0] for each in literals for variable in variables_in(each)}

    def matched(self, args: Iterable[Value | None]) -> RuleBindings | None:
        """Return the bindings of the head's variables for these arguments; None if they do not match.

        An argument that is None is unknown, and leaves its variable unbound.
        """
        bindings: RuleBindings = {}
        for term, arg in zip(self.rule.head.args, args):
            if arg is None:
                continue
            if isinstance(term, Var):
                if bindings.setdefault(term, arg) != arg:
                    return None
            elif term != arg:
                return None
        return bindings


@dataclass
class Cases:
    """A program's cases, by the pattern of the goals that they are about.

    `number` is that of the policy version; None for an unpublished text.
    """

    program: Program
    rules: RuleSet
    number: int | None = None
    _in_text_order: dict[Pattern, tuple[Case, ...]] = field(default_factory=dict)
    _found: dict[Pattern, tuple[Case, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._components = Components(self._called, tick)

    def pattern(self, goal: Goal) -> Pattern:
        """Return the goal's pattern: its predicate, types and names. Goals of one pattern have the same cases."""
        args = goal.args
        return Pattern(goal.predicate, tuple([arg.type for arg in args]), tuple(map(self._name, args)))

    def pattern_of_condition(self, condition: RuleCondition, bindings: RuleBindings) -> Pattern:
        """Return the pattern of an atom's goals; some of its variables may be unbound."""
        if condition.pattern is not None:
            return condition.pattern
        bound = (variable for variable in condition.binds if variable in bindings)
        names: dict[Term, _KnownName] = {variable: self._name(bindings[variable]) for variable in bound}
        return self._pattern_of_call(condition.literal, condition.call, names)

    def of(self, pattern: Pattern) -> tuple[Case, ...]:
        """Return the cases for goals of this pattern in the order of the text, with recursive ones last."""
        known = self._found.get(pattern)
        if known is None:
            with self.rules.lock:
                cases = self._cases(pattern)
                known = self._found[pattern] = tuple(sorted(cases, key=lambda case: self._leads_back(case, pattern)))
        return known

    def component(self, pattern: Pattern) -> int | None:
        """Return the number of the recursion that goals of this pattern take part in; None if they do not.

        Goals that may follow from each other have the same number, whatever names their open arguments have: rules
        accept any name there, so the name may change on the way from a goal back to itself.
        """
        with self.rules.lock:  # numbers must not change while a proof is being searched
            return self._components.number(self._without_open_names(pattern))

    def _without_open_names(self, pattern: Pattern) -> Pattern:
        places = _places(pattern.predicate, pattern.consts)
        consts = tuple([None if place in self._open_places else name for place, name in places])
        return pattern if consts == pattern.consts else replace(pattern, consts=consts)

    @cached_property
    def _open_places(self) -> frozenset[_CasePlace]:
        """Return the arguments for which some rule accepts any name, and those that such a name is passed on to.

        The rule `reads(u, d) if gives(r) and has_role(u, r, d)` accepts any name in the argument of `gives`, and in the
        second one of `has_role`.
        """
        asked: list[_CasePlace] = []
        passed: dict[_CasePlace, list[_CasePlace]] = defaultdict(list)
        for rule in self.program.rules:
            heads = _places(rule.head.predicate, rule.head.args)
            called = (_places(each.predicate, each.args) for each in rule.body if isinstance(each, Atom))
            for place, term in (each for places in called for each in places):
                if isinstance(term, Var) and STRING in rule.types[term]:
                    given = [head for head, other in heads if other == term]
                    for head in given:
                        passed[head].append(place)
                    if not given:
                        asked.append(place)
        return frozenset(reachable(asked, lambda place: passed.get(place, ())))

    def _name(self, value: Value) -> _KnownName:
        if value.type != STRING:
            return None
        return Const(value.id) if value.id in self.program.names else _ANY_OTHER

    def _pattern_of_call(self, literal: Literal, call: Call, names: Mapping[Term, _KnownName]) -> Pattern:
        """Return the pattern of a call; `names` has the names of variables, as far as they are known."""
        terms = terms_of(literal)
        known = [self._name(term) if isinstance(term, Value) else names.get(term) for term in terms]
        return Pattern(call.predicate, call.types, tuple(known))

    def _cases(self, pattern: Pattern) -> tuple[Case, ...]:
        if pattern not in self._in_text_order:
            self._in_text_order[pattern] = tuple(self._made(pattern))
        return self._in_text_order[pattern]

    def _made(self, pattern: Pattern) -> Iterator[Case]:
        for rule in self.program.rules_by_predicate.get((pattern.predicate, len(pattern.types)), ()):
            if not may_match(rule, pattern):
                continue
            body = ordered_body(rule)
            for types in typings_of(self.program.types_by_predicate, rule, pattern.types):
                limits.check()
                found = [self._condition(rule, literal, types) for literal in body]
                conditions = tuple([each for each in found if each is not None])
                if len(conditions) == len(body):
                    yield Case(rule, types, conditions)

    def _condition(self, rule: Rule, literal: Literal, types: dict[Var, str]) -> RuleCondition | None:
        """Return the condition; None if the literal can never hold for these types."""
        asked = concrete_literals(self.program.types_by_predicate, rule, literal, types)
        if asked is None:
            return None
        condition = RuleCondition(literal, asked)
        is_always_alike = isinstance(literal, Atom) and not any(types[each] == STRING for each in condition.binds)
        if not is_always_alike:
            return condition
        return RuleCondition(literal, asked, self._pattern_of_call(literal, condition.call, {}))

    def _leads_back(self, case: Case, pattern: Pattern) -> bool:
        own = self.component(pattern)
        return own is not None and any(self.component(called) == own for called in self._calls(case, pattern))

    def _called(self, pattern: Pattern) -> list[Pattern]:
        called = (each for case in self._cases(pattern) for each in self._calls(case, pattern))
        return list(dict.fromkeys(map(self._without_open_names, called)))

    def _calls(self, case: Case, pattern: Pattern) -> Iterator[Pattern]:
        """Yield the patterns of the atoms in the case's body, for a head of this pattern."""
        names: dict[Term, _KnownName] = dict(zip(case.rule.head.args, pattern.consts))
        for condition in case.conditions:
            if isinstance(condition.literal, Atom):
                yield self._pattern_of_call(condition.literal, condition.call, names)


def _places(predicate: str, terms: Sequence[AnyArgument]) -> list[tuple[_CasePlace, AnyArgument]]:
    return [((predicate, len(terms), index), term) for index, term in enumerate(terms)]


# ---- the order of conditions -----------------------------------------------------------------------------------


def ordered_body(rule: Rule) -> list[Literal]:
    """Return the body in the order of the text, but with each test after the literals that bind its variables.

    is_senior(user) if level > 3 and has_level(user, level)   ->   has_level(user, level), level > 3
    """
    bound = set(variables_in(rule.head)).union(*(only_in(rule, each) for each in rule.body if isinstance(each, Not)))
    waiting, found = list(rule.body), []
    while waiting:
        ready = (each for each in waiting if isinstance(each, Atom | Member) or bound.issuperset(variables_in(each)))
        literal = next(ready, waiting[0])
        waiting.remove(literal)
        found.append(literal)
        if isinstance(literal, Atom | Member):
            bound.update(variables_in(literal))
    return found
