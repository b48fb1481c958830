"""Open values: the ids for which a test of an unbound variable may have another result than for all other ids.

They are the ids that facts have at certain positions, and those that rules mention. The test has the same result for
all other ids, so "for every value" is tested with those ids and some that nothing mentions.

`candidates_of` finds the ids that given negations can tell apart. `domains_of` finds all ids that a question's facts,
rules and values mention: any of its rules has the same result for all other ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from checks.engine.plan.plan import ArgumentPosition, Domain
from checks.engine.rules.clauses import (
    NOW,
    Call,
    Clause,
    Cmp,
    Const,
    Given,
    Inner,
    Literal,
    Member,
    Neg,
    Other,
    Pattern,
    Scan,
    Slot,
    Term,
    Var,
    mentioned,
    pattern_of,
    stand_in,
    tick,
    type_of,
)
from checks.engine.rules.ruleset import RuleSet
from checks.errors import TooManyIntegers, UnboundVariable
from policy.rules.components import reachable
from policy.values import INTEGER

# ---- what negations tell apart --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RelevantIds:
    positions: tuple[ArgumentPosition, ...]
    ids: tuple[str, ...]  # mentioned in rules
    is_monotone: bool  # it is not negated again, compared, or passed on: facts with it only make the negations false
    is_complete: bool  # no rule compares the variable with another one, whose values would matter too


def candidates_of(rules: RuleSet, literals: Iterable[Literal], variable: Var) -> RelevantIds:
    positions: dict[ArgumentPosition, None] = {}
    ids: set[str] = set()
    is_monotone = is_complete = True
    seen: set[tuple[Pattern, int]] = set()
    called: set[tuple[Pattern, int]] = set()  # by clauses
    twins: set[tuple[Pattern, int]] = set()  # pass the value on, if called
    queue = [
        (pattern_of(literal.call), index)
        for literal in literals
        if isinstance(literal, Neg)
        for index, arg in enumerate(literal.call.args)
        if arg == variable
    ]
    while queue:
        tick()
        pattern, index = queue.pop()
        if (pattern, index) in seen:
            continue
        seen.add((pattern, index))
        for clause in rules.alternatives(pattern):
            param = clause.params[index]
            if isinstance(param, Const):
                ids.add(param.id)
            elif isinstance(param, Var):
                found: list[tuple[Pattern, int]] = []
                is_monotone &= _mentions(clause, param, positions, ids, found)
                called.update(found)
                queue += found
                if clause.params.count(param) > 1 and not pattern.is_path:
                    twins.add((pattern, index))
                is_complete &= not _is_compared(clause, param)
    is_monotone &= twins.isdisjoint(called)
    is_complete &= not twins
    return RelevantIds(tuple(positions), tuple(sorted(ids)), is_monotone, is_complete)


def _mentions(
    clause: Clause,
    variable: Term,
    positions: dict[ArgumentPosition, None],
    ids: set[str],
    queue: list[tuple[Pattern, int]],
) -> bool:
    """Collect where the clause uses the variable; return False if a negation, `=` or `!=` does."""
    positive = True
    for end in _other_ends(clause, variable):
        if isinstance(end, Const):
            ids.add(end.id)
        else:
            rest = tuple(each for each in clause.body if not _is_path_to(each, end))
            positive &= _mentions(Clause(clause.params, rest), end, positions, ids, queue)
    for literal in clause.body:
        match literal:
            case Scan(signature, args):
                positions.update(
                    (ArgumentPosition(signature, index), None) for index, arg in enumerate(args) if arg == variable
                )
            case Call(args=args):
                queue += [(pattern_of(literal), index) for index, arg in enumerate(args) if arg == variable]
            case Neg(call):
                positive = False
                queue += [(pattern_of(call), index) for index, arg in enumerate(call.args) if arg == variable]
            case Member(member, values) if member == variable:
                ids.update(values)
            case Cmp("!=" | "=", left, right) if variable in (left, right):
                positive = False
                ids.update(term.id for term in (left, right) if isinstance(term, Const))
            case Cmp(_, left, right) if variable in (left, right):
                raise UnboundVariable(variable.name if isinstance(variable, Var) else "_")
    return positive


def _other_ends(clause: Clause, variable: Term) -> list[Term]:
    """Return the other ends of paths from or to the variable: without hops, both ends are the same value."""
    paths = (each.args for each in clause.body if isinstance(each, Call) and each.is_path)
    return [end for args in paths if variable in args for end in args if end != variable]


def _is_path_to(literal: Literal, end: Term) -> bool:
    return isinstance(literal, Call) and literal.is_path and end in literal.args


def _is_compared(clause: Clause, variable: Var) -> bool:
    """Return whether the variable is compared with anything but a constant."""
    pairs = ((each.left, each.right) for each in clause.body if isinstance(each, Cmp))
    return any(variable in pair and not any(isinstance(term, Const) for term in pair) for pair in pairs)


# ---- all that a question mentions ----------------------------------------------------------------------------------

FAR_NUMBERS = (str(-(2**62) - 1), str(2**62 + 1))  # in addition to the Integers next to those that are mentioned
LEAST_COMPARED = 2  # values of a type that a rule may compare with each other, at least


@dataclass
class Domains:
    """What a question's facts, rules and values mention, by type.

    No clause can tell more values apart than it has variables. So that many stand for all that nothing mentions: other
    ids or, on either side of each Integer, the next ones. Of Integers there may be more (see `told_apart`).
    """

    positions: dict[str, dict[ArgumentPosition, None]] = field(default_factory=lambda: defaultdict(dict))
    ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    values: dict[str, dict[Slot | Other | Given, None]] = field(default_factory=lambda: defaultdict(dict))
    variables: dict[str, set[Term]] = field(default_factory=lambda: defaultdict(set))  # of the last clause
    most_variables: dict[str, int] = field(default_factory=lambda: defaultdict(lambda: LEAST_COMPARED))
    has_pairs: bool = False  # whether a rule compares two variables
    clauses: list[tuple[Pattern, Clause, set[Term]]] = field(default_factory=list)  # each with its Integers

    @property
    def most_stand_ins(self) -> int:
        return max(self.most_variables.values(), default=LEAST_COMPARED)

    def of(self, number: int, type_name: str) -> Domain:
        """Return the ids of a type as a source with this number."""
        most = self.most_variables[type_name]
        others = FAR_NUMBERS if type_name == INTEGER else map(stand_in, range(most if self.has_pairs else 1))
        ids = (*others, *sorted(self.ids[type_name]))
        near = max(most, told_apart(self.clauses)) if type_name == INTEGER else 0
        return Domain(number, type_name, tuple(self.positions[type_name]), ids, tuple(self.values[type_name]), near)

    def add(self, types: Iterable[str], terms: Iterable[Term]) -> None:
        for kind, term in zip(types, terms):
            match term:
                case Const(text):
                    self.ids[kind].add(text)
                case Slot() | Other():
                    self.values[INTEGER if term == NOW else kind][term] = None
                case Var() | Inner():
                    self.variables[kind].add(term)

    def add_clause(self, pattern: Pattern, clause: Clause) -> None:
        self.variables.clear()
        self.add(pattern.types, clause.params)
        for literal in clause.body:
            self._add_literal(literal)
        for kind, found in self.variables.items():
            self.most_variables[kind] = max(self.most_variables[kind], len(found))
        self.clauses.append((pattern, clause, self.variables[INTEGER]))

    def _add_literal(self, literal: Literal) -> None:
        match literal:
            case Scan(signature, args):
                for index, kind in enumerate(signature.types):
                    self.positions[kind][ArgumentPosition(signature, index)] = None
                self.add(signature.types, args)
            case Call(types=types, args=args) | Neg(Call(types=types, args=args)):
                self.add(types, args)
            case Member(variable, ids):
                self.ids[type_of(variable)].update(ids)
            case Given(variable, type=kind):
                self.values[kind or type_of(variable)][literal] = None
            case Cmp(_, left, right):
                for term, other in ((left, right), (right, left)):
                    if isinstance(other, Var):  # constants that are compared with each other tell no ids apart
                        self.add((other.type,), (term,))
                self.has_pairs |= isinstance(left, Var) and isinstance(right, Var)


def domains_of(rules: RuleSet, literals: Iterable[Literal]) -> Domains:
    """Return what is mentioned by the literals, and by all clauses that they lead to."""
    found = Domains()
    asked = Clause((), tuple(literals))
    every = reachable(map(pattern_of, mentioned(asked.body)), lambda pattern: _led_to(rules, pattern), tick)
    found.add_clause(Pattern("", (), ()), asked)
    for pattern in every:
        for clause in rules.alternatives(pattern):
            found.add_clause(pattern, clause)
            variables = [each for each in clause.params if isinstance(each, Var)]
            found.has_pairs |= len(set(variables)) < len(variables) and not pattern.is_path
    return found


def _led_to(rules: RuleSet, pattern: Pattern) -> list[Pattern]:
    return [pattern_of(call) for clause in rules.alternatives(pattern) for call in mentioned(clause.body)]


# ---- Integers that nothing mentions --------------------------------------------------------------------------------
#     any(_: Integer);
#     has_one(x: Integer, y: Integer) if any(z) and x < z and z < y;
#     has_two(x: Integer, y: Integer) if any(z) and x < z and has_one(z, y);
#
# Clauses that compare such Integers count those between two others: more of them, the deeper they call each other.

MOST_TOLD_APART = 100


def told_apart(clauses: Sequence[tuple[Pattern, Clause, set[Term]]]) -> int:
    """Return how many Integers between two others the clauses can tell from any larger number.

    A clause picks n Integers, along with what it calls. They make n + 1 parts of those between two others. If negations
    can tell m in each part, the clause can tell (n + 1)(m + 1) - 1. In a recursion there is no limit.
    """
    unbound = _unbound_integers(clauses)
    counts: dict[Pattern, tuple[int, int]] = {}  # n, m + 1
    before = None
    while counts != before:
        before = dict(counts)
        for (pattern, clause, _), terms in zip(reversed(clauses), reversed(unbound)):
            tick()
            picked, inner = map(max, _counts(clause, terms, counts), counts.get(pattern, (0, 0)))
            if (picked + 1) * inner > MOST_TOLD_APART:
                raise TooManyIntegers
            counts[pattern] = picked, inner
    return max((picked + 1) * inner - 1 for picked, inner in counts.values())


def _counts(clause: Clause, terms: set[Term], counts: Mapping[Pattern, tuple[int, int]]) -> tuple[int, int]:
    """Return the clause's n, and m + 1; zeros if it compares the size of no Integers among these terms."""
    sizes = (each for each in clause.body if isinstance(each, Cmp) and each.operator not in ("=", "!="))
    inner = int(any(each.left in terms and each.right in terms for each in sizes))
    picked = sum(isinstance(each, Var) for each in terms.difference(clause.params))
    for literal in clause.body:
        match literal:
            case Call():
                more, inside = counts.get(pattern_of(literal), (0, 0))
                picked, inner = picked + more, max(inner, inside)
            case Neg(call):
                more, inside = counts.get(pattern_of(call), (0, 0))
                more += sum(isinstance(each, Inner) for each in call.args)
                inner = max(inner, (more + 1) * inside)
    return (picked, inner) if inner else (0, 0)


def _unbound_integers(clauses: Sequence[tuple[Pattern, Clause, set[Term]]]) -> list[set[Term]]:
    """Return the Integers of each clause that may be any: those that no fact, value of the question or rule binds."""
    is_any: set[tuple[Pattern, int]] = set()  # arguments
    while True:
        unbound = [integers - _bound(clause, is_any) for _, clause, integers in clauses]
        found = {
            (pattern, index)
            for (pattern, clause, _), terms in zip(clauses, unbound)
            for index, param in enumerate(clause.params)
            if param in terms
        }
        if found <= is_any:
            return unbound
        is_any |= found


def _bound(clause: Clause, is_any: set[tuple[Pattern, int]]) -> set[Term]:
    found: set[Term] = set()
    for literal in clause.body:
        match literal:
            case Scan(args=args):
                found.update(args)
            case Given(variable=variable) | Member(variable=variable):
                found.add(variable)
            case Call() | Neg():
                call = literal if isinstance(literal, Call) else literal.call
                bound = [arg for index, arg in enumerate(call.args) if (pattern_of(call), index) not in is_any]
                found.update(arg for arg in bound if isinstance(literal, Call) or isinstance(arg, Inner))
    return found
