"""The rules as they were written, ready to be asked one at a time.

The engine's `Rulebook` rewrites rules until they are quick; explanations are about the rules of the text. A `Case`
is one of these with the types of its variables decided; `told` puts its conditions in an order in which each can be
asked after those before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count

from checks.asking import deadline
from checks.engine.compile import Compiled
from checks.engine.rules.clauses import Call, Const, Other, Pattern
from checks.engine.rules.clauses import Literal as EngineLiteral
from checks.engine.rules.clauses import Var as EngineVar
from checks.engine.rules.limits import tick
from checks.engine.rules.rulebook import Rulebook
from checks.engine.rules.specialise import concrete_literals, numbers_of, typings_of
from policy.rules.components import Components
from policy.rules.program import Atom, Compare, Literal, Member, Not, Program, Rule, Signature, Term, Var
from policy.values import STRING, Value

_MOST_STATEMENTS = 4096
_ANY_OTHER = Other("")  # a name that no rule mentions
Env = dict[Var, Value]


def value_in(env: Env, term: Term, now: Value | None = None) -> Value | None:
    """The term's value, where it has one; `now` is the current time's."""
    if isinstance(term, Value):
        return term
    return env.get(term) if isinstance(term, Var) else now


@dataclass(frozen=True)
class Condition:
    """A literal of the text, and what the engine is asked for it: several negations, where types are open."""

    literal: Literal
    asked: tuple[EngineLiteral, ...]
    kind: Pattern | None = None  # of an atom's goals, where they are all alike

    @property
    def call(self) -> Call:
        """What is asked for an atom."""
        (call,) = self.asked
        assert isinstance(call, Call)
        return call

    @cached_property
    def binds(self) -> tuple[Var, ...]:
        """The variables that it can find values for."""
        return tuple(variables_of(self.literal)) if isinstance(self.literal, Atom | Member) else ()


@dataclass(frozen=True, eq=False)
class Case:
    """A rule, or a part of one, its variables each of one type."""

    rule: Rule
    types: dict[Var, str]
    conditions: tuple[Condition, ...]  # in an order in which they can be asked

    @cached_property
    def numbers(self) -> dict[Var, EngineVar]:
        """What the rule's variables are called in what the engine is asked."""
        return numbers_of(self.rule, self.types)

    @cached_property
    def names(self) -> dict[Var, str]:
        """What the text calls the rule's variables, in order of appearance."""
        literals = (self.rule.head, *self.rule.body)
        return {variable: variable.name.partition("#")[0] for each in literals for variable in variables_of(each)}

    def bound(self, args: Iterable[Value | None]) -> Env | None:
        """What the head's variables are for these arguments, of which None is unknown; None if it does not fit."""
        env: Env = {}
        for term, arg in zip(self.rule.head.args, args):
            if arg is None:
                continue
            if isinstance(term, Var):
                if env.setdefault(term, arg) != arg:
                    return None
            elif term != arg:
                return None
        return env


@dataclass
class Book:
    """A program's cases by what is asked for, and the statements that were compiled to ask them.

    `number` is the policy version's; a text that is not published has none.
    """

    program: Program
    rulebook: Rulebook
    number: int | None = None
    statements: dict[tuple, Compiled] = field(default_factory=dict)
    _stand_ins: dict[Signature, int] = field(default_factory=dict)
    _unused: Iterator[int] = field(default_factory=lambda: count(-1, -1))
    _cases: dict[Pattern, tuple[Case, ...]] = field(default_factory=dict)
    _ordered: dict[Pattern, tuple[Case, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._components = Components(self._called, tick)

    def kind(self, predicate: str, args: Sequence[Value]) -> Pattern:
        """What is alike about goals: predicate, types, and the names that rules mention."""
        return Pattern(predicate, tuple([arg.type for arg in args]), tuple(map(self._name, args)))

    def kind_of_condition(self, condition: Condition, env: Env) -> Pattern:
        """The same of an atom whose variables need not all have values."""
        if condition.kind is not None:
            return condition.kind
        assert isinstance(condition.literal, Atom), "goals are of atoms"
        return self._kind_of_call(condition.literal, condition.call, env)

    def cases(self, kind: Pattern) -> tuple[Case, ...]:
        """The cases for goals of this kind, in the order of the text, those first that do not lead back to it."""
        known = self._ordered.get(kind)
        if known is None:
            with deadline.holding(self.rulebook.lock):
                found = self._unordered(kind)
                known = self._ordered[kind] = tuple(sorted(found, key=lambda case: self._leads_back(case, kind)))
        return known

    def component(self, kind: Pattern) -> int | None:
        """The number of the recursion that goals of this kind take part in, if they do."""
        with deadline.holding(self.rulebook.lock):  # numbers must not change while a proof is searched
            return self._components.number(kind)

    def stand_in(self, signature: Signature) -> int:
        """A number that no signature has, below zero, for one that has none; always the same."""
        return self._stand_ins.get(signature) or self._stand_ins.setdefault(signature, next(self._unused))

    def remember(self, key: tuple, made: Compiled) -> None:
        if len(self.statements) >= _MOST_STATEMENTS:
            self.statements.clear()
        self.statements[key] = made

    def _name(self, value: Value) -> Const | Other | None:
        if value.type != STRING:
            return None
        return Const(value.id) if value.id in self.program.names else _ANY_OTHER

    def _unordered(self, kind: Pattern) -> tuple[Case, ...]:
        if kind not in self._cases:
            self._cases[kind] = tuple(self._made(kind))
        return self._cases[kind]

    def _made(self, kind: Pattern) -> Iterator[Case]:
        for rule in self.program.rules_by_predicate.get((kind.predicate, len(kind.types)), ()):
            if _fits(rule, kind):
                for typing in typings_of(self.program, rule, kind.types):
                    deadline.check()
                    literals = told(rule)
                    found = (self._condition(rule, literal, typing) for literal in literals)
                    conditions = tuple([each for each in found if each is not None])
                    if len(conditions) == len(literals):
                        yield Case(rule, typing, conditions)

    def _condition(self, rule: Rule, literal: Literal, typing: dict[Var, str]) -> Condition | None:
        asked = concrete_literals(self.program, rule, literal, typing)
        if asked is None:
            return None
        found = Condition(literal, asked)
        return replace(found, kind=self._only_kind(literal, found.call)) if isinstance(literal, Atom) else found

    def _only_kind(self, atom: Atom, call: Call) -> Pattern | None:
        differ = any(isinstance(arg, Var) and name == STRING for arg, name in zip(atom.args, call.types))
        return None if differ else self._kind_of_call(atom, call, {})

    def _kind_of_call(self, atom: Atom, call: Call, env: Env) -> Pattern:
        args = (value_in(env, arg) for arg in atom.args)
        return Pattern(call.predicate, call.types, tuple([None if arg is None else self._name(arg) for arg in args]))

    def _leads_back(self, case: Case, kind: Pattern) -> bool:
        own = self.component(kind)
        return own is not None and any(self.component(called) == own for called in self._calls(case, kind))

    def _called(self, kind: Pattern) -> list[Pattern]:
        return list(dict.fromkeys(called for case in self._unordered(kind) for called in self._calls(case, kind)))

    def _calls(self, case: Case, kind: Pattern) -> Iterator[Pattern]:
        names = {term: name for term, name in zip(case.rule.head.args, kind.consts) if isinstance(term, Var)}
        for condition in case.conditions:
            if isinstance(condition.literal, Atom):
                (call,) = condition.asked
                assert isinstance(call, Call), "an atom of a rule is one call"
                consts = [self._const(term, name, names) for term, name in zip(condition.literal.args, call.types)]
                yield Pattern(call.predicate, call.types, tuple(consts))

    def _const(self, term: Term, type_name: str, names: dict) -> Const | Other | None:
        if isinstance(term, Value):
            return self._name(term)
        return names.get(term) if type_name == STRING else None


def _fits(rule: Rule, kind: Pattern) -> bool:
    """Whether the head can be what is asked for, as far as names tell."""
    for term, name in zip(rule.head.args, kind.consts):
        if isinstance(term, Value) and name is not None and not (term.type == STRING and Const(term.id) == name):
            return False
    return True


# ---- the order of conditions -----------------------------------------------------------------------------------


def told(rule: Rule) -> list[Literal]:
    """The body in the order of the text, but tests not before what they test has a value."""
    alone = _quantified(rule)
    bound = {term for term in rule.head.args if isinstance(term, Var)}
    waiting, found = list(rule.body), []
    while waiting:
        ready = (each for each in waiting if _is_ready(each, bound | alone))
        literal = next(ready, waiting[0])
        waiting.remove(literal)
        found.append(literal)
        if isinstance(literal, Atom | Member):
            bound.update(variables_of(literal))
    return found


def _is_ready(literal: Literal, bound: set[Var]) -> bool:
    return isinstance(literal, Atom | Member) or bound.issuperset(variables_of(literal))


def _quantified(rule: Rule) -> set[Var]:
    """The variables that one negation alone mentions."""
    uses: dict[Var, int] = {}
    for literal in (rule.head, *rule.body):
        for variable in set(variables_of(literal)):
            uses[variable] = uses.get(variable, 0) + 1
    negated = {v for literal in rule.body if isinstance(literal, Not) for v in variables_of(literal)}
    return {variable for variable in negated if uses[variable] == 1}


def variables_of(literal: Literal) -> list[Var]:
    match literal:
        case Atom(_, args) | Not(Atom(_, args)):
            terms: tuple[Term, ...] = args
        case Member(variable, _):
            terms = (variable,)
        case Compare(_, left, right):
            terms = (left, right)
    return [term for term in terms if isinstance(term, Var)]
