"""The ids for which a test of an unbound variable may answer differently than for all other ids.

They are the ids that facts have at certain positions, and those that rules mention. The test answers the same for all
other ids, so "for every value" is answered by asking about those ids and one id that nothing mentions.

`candidates_of` finds the ids that given negations can tell apart. `domains_of` finds all ids that a question's facts,
rules and values mention: any of its rules answers the same for all other ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from checks.engine.answers import FRESH_ID, SECOND_FRESH
from checks.engine.errors import UnboundVariable
from checks.engine.plan.plan import ArgumentPosition, Domain
from checks.engine.rules.clauses import (
    NOW,
    Call,
    Clause,
    Cmp,
    Const,
    Given,
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
    type_of,
)
from checks.engine.rules.limits import tick
from checks.engine.rules.ruleset import RuleSet
from policy.rules.components import reachable
from policy.values import INTEGER


@dataclass(frozen=True, slots=True)
class RelevantIds:
    positions: tuple[ArgumentPosition, ...]
    ids: tuple[str, ...]  # that rules mention
    is_monotone: bool  # nothing in the negations negates or compares the variable: facts with it only make them false
    is_complete: bool  # no rule compares the variable with another one, whose values would matter too


def candidates_of(rules: RuleSet, literals: Iterable[Literal], variable: Var) -> RelevantIds:
    positions: dict[ArgumentPosition, None] = {}
    ids: set[str] = set()
    is_monotone = is_complete = True
    seen: set[tuple[Pattern, int]] = set()
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
                is_monotone &= _mentions(clause, param, positions, ids, queue)
                is_twin = clause.params.count(param) > 1 and not pattern.is_path
                is_complete &= not is_twin and not _is_compared(clause, param)
    return RelevantIds(tuple(positions), tuple(sorted(ids)), is_monotone, is_complete)


def _mentions(
    clause: Clause,
    variable: Term,
    positions: dict[ArgumentPosition, None],
    ids: set[str],
    queue: list[tuple[Pattern, int]],
) -> bool:
    """Note where the clause uses the variable; return False if a negation, `=` or `!=` does."""
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
    """Return the other ends of paths from or to the variable: if a path has no hops, both ends are the same value."""
    paths = (each.args for each in clause.body if isinstance(each, Call) and each.is_path)
    return [end for args in paths if variable in args for end in args if end != variable]


def _is_path_to(literal: Literal, end: Term) -> bool:
    return isinstance(literal, Call) and literal.is_path and end in literal.args


def _is_compared(clause: Clause, variable: Var) -> bool:
    """Say whether the variable is compared with anything but a constant."""
    pairs = ((each.left, each.right) for each in clause.body if isinstance(each, Cmp))
    return any(variable in pair and not any(isinstance(term, Const) for term in pair) for pair in pairs)


# ---- all that a question mentions ----------------------------------------------------------------------------------

FAR_NUMBERS = (str(-(2**62) - 1), str(2**62 + 1))  # Integers beside those next to the ones that are mentioned


@dataclass
class Domains:
    """What a question's facts, rules and values mention, by type."""

    positions: dict[str, dict[ArgumentPosition, None]] = field(default_factory=lambda: defaultdict(dict))
    ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    values: dict[str, dict[Slot | Other | Given, None]] = field(default_factory=lambda: defaultdict(dict))
    has_pairs: bool = False  # whether a rule compares two variables

    def of(self, number: int, type_name: str) -> Domain:
        """Return the ids of a type as a source with this number."""
        stand_ins = (FRESH_ID, SECOND_FRESH) if self.has_pairs else (FRESH_ID,)
        others = FAR_NUMBERS if type_name == INTEGER else stand_ins
        ids = (*others, *sorted(self.ids[type_name] | self.ids[""]))
        return Domain(number, type_name, tuple(self.positions[type_name]), ids, tuple(self.values[type_name]))

    def add(self, types: Iterable[str], terms: Iterable[Term]) -> None:
        for kind, term in zip(types, terms):
            match term:
                case Const(text):
                    self.ids[kind].add(text)
                case Slot() | Other():
                    self.values[INTEGER if term == NOW else kind][term] = None

    def add_literal(self, literal: Literal) -> None:
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
                self.add((type_of(right), type_of(left)), (left, right))
                self.has_pairs |= isinstance(left, Var) and isinstance(right, Var)


def domains_of(rules: RuleSet, literals: Iterable[Literal]) -> Domains:
    """Return what the literals mention, and all clauses that they lead to."""
    found = Domains()
    literals = tuple(literals)
    every = reachable(map(pattern_of, mentioned(literals)), lambda pattern: _led_to(rules, pattern), tick)
    for literal in literals:
        found.add_literal(literal)
    for pattern in every:
        for clause in rules.alternatives(pattern):
            found.add(pattern.types, clause.params)
            variables = [each for each in clause.params if isinstance(each, Var)]
            found.has_pairs |= len(set(variables)) < len(variables) and not pattern.is_path
            for literal in clause.body:
                found.add_literal(literal)
    return found


def _led_to(rules: RuleSet, pattern: Pattern) -> list[Pattern]:
    return [pattern_of(call) for clause in rules.alternatives(pattern) for call in mentioned(clause.body)]
