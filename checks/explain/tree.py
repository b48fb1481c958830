"""An explanation as a tree of reasons, used for JSON, terminals and pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from checks.explain.cases import ANY, Case, Goal, RuleBindings, RuleCondition
from checks.explain.search import ByFact, ByRule, Proof, ProofStep, Unexplained, values_of
from facts.history import ValidityPeriod
from policy.language.source import NOWHERE, Span
from policy.rules.program import Atom, Compare, Literal, Member, Not, Now, Program, Rule, Term, Var
from policy.values import BOOLEAN, INTEGER, STRING, Value, quoted

MAX_DEPTH = 100  # levels of a proof; many JSON parsers reject much deeper nesting
MAX_REASONS = 1_000
MAX_RULE_TEXT = 400  # characters of a rule to show
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./@+")


@dataclass(frozen=True, slots=True)
class RuleText:
    """The text of a rule or of a part of one; a default rule has no line number."""

    text: str
    line: int | None


@dataclass(frozen=True, slots=True)
class Reason:
    """A line of text, its kind, and the reasons for it (`because`).

    Of a proof:
    rule         it follows by `rule`, because of what is below
    part         one of a rule's alternatives holds; `rule` is the alternative
    fact         a fact: `source` says whether it is stored (`period`: since when) or from the context
    comparison   a comparison that is true, or a value in a list
    absence      a `not`: does not hold, as required
    again        explained before
    unexplained  it holds, and `note` says why no proof is given

    Of what does not hold:
    obstacle     `rule` could have granted it; its conditions `met` hold, and what is below is missing
    missing      a condition that does not hold: no matching fact or rule; `period` if the fact once was stored
    false        a comparison that is not true
    present      a `not` of something that holds, and why that holds
    """

    kind: str
    text: str
    atom: tuple[str, tuple[Value, ...]] | None = None
    source: str = ""
    rule: RuleText | None = None
    bindings: tuple[tuple[str, Value], ...] = ()
    met: tuple[str, ...] = ()
    note: str = ""
    period: ValidityPeriod | None = None
    because: tuple[Reason, ...] = ()

    def lines(self) -> Iterator[tuple[int, Reason]]:
        """Yield this reason and all below it with their depths, in reading order."""
        waiting = [(0, self)]
        while waiting:
            depth, reason = waiting.pop()
            yield depth, reason
            waiting += [(depth + 1, each) for each in reversed(reason.because)]


# ---- from a proof ------------------------------------------------------------------------------------------


def tree_of(program: Program, proof: Proof, goal: Goal, now: int) -> Reason:
    """Return the proof of the goal as a tree. Each goal is explained once; one beyond a limit says so instead."""
    return _Tree(program, proof, now).of_goal(goal, 0)


@dataclass
class _Tree:
    program: Program
    proof: Proof
    now: int
    explained: set[Goal] = field(default_factory=set)
    count: int = 0

    def of_goal(self, goal: Goal, depth: int) -> Reason:
        self.count += 1
        step = self.proof[goal]
        if goal in self.explained:
            return self._reason("again", goal)
        if isinstance(step, ByRule) and goal.predicate not in self.program.helpers:
            self.explained.add(goal)
        if not isinstance(step, ByFact):
            if depth >= MAX_DEPTH:
                return self._reason("unexplained", goal, note=f"the limit of {MAX_DEPTH:,} levels was reached")
            if self.count > MAX_REASONS:
                return self._reason("unexplained", goal, note=f"the limit of {MAX_REASONS:,} reasons was reached")
        return self._of_step(goal, step, depth)

    def _of_step(self, goal: Goal, step: ProofStep, depth: int) -> Reason:
        match step:
            case ByFact(source):
                return self._reason("fact", goal, source=source)
            case Unexplained(reason):
                return self._reason("unexplained", goal, note=reason)
            case ByRule(case, bindings):
                is_part = goal.predicate in self.program.helpers
                return self._reason(
                    "part" if is_part else "rule",
                    goal,
                    source="" if is_part or case.conditions else "policy",
                    rule=rule_text(self.program, case.rule),
                    bindings=() if is_part else named_bindings(case, bindings),
                    because=tuple([self._of_condition(each, bindings, depth + 1) for each in case.conditions]),
                )

    def _of_condition(self, condition: RuleCondition, bindings: RuleBindings, depth: int) -> Reason:
        match condition.literal:
            case Atom(predicate) as atom:
                now = Value(INTEGER, str(self.now))
                return self.of_goal(Goal(predicate, values_of(atom, condition.call, bindings, now)), depth)
            case Not() as negation:
                return Reason("absence", shown_literal(self.program, negation, bindings, self.now))
            case test:
                return Reason("comparison", shown_literal(self.program, test, bindings, self.now))

    def _reason(self, kind: str, goal: Goal, **members: Any) -> Reason:
        if goal.predicate in self.program.helpers:
            return Reason(kind, formula_of(self.program, goal.predicate, len(goal.args)), **members)
        return Reason(kind, shown_atom(goal.predicate, goal.args), (goal.predicate, goal.args), **members)


# ---- rules as written in the policy -------------------------------------------------------------------------


def rule_text(program: Program, rule: Rule) -> RuleText:
    if rule.origin == NOWHERE:
        return RuleText(str(rule), None)
    return RuleText(abbreviated(source_text(program, rule.origin)), program.source.position(rule.origin.start)[0])


def source_text(program: Program, span: Span) -> str:
    return " ".join(program.source.text[span.start : span.end].split())


def formula_of(program: Program, predicate: str, arity: int) -> str:
    """Return the text of the formula for which the compiler generated this predicate."""
    rules = program.rules_by_predicate.get((predicate, arity), ())
    texts = dict.fromkeys(source_text(program, rule.origin) for rule in rules)
    return abbreviated(" or ".join(texts))


def abbreviated(text: str, most: int = MAX_RULE_TEXT) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def named_bindings(case: Case, bindings: RuleBindings) -> tuple[tuple[str, Value], ...]:
    """Return the values of the rule's variables by their names in the text, in order of appearance, without `_`."""
    named = [(variable, name) for variable, name in case.names.items() if variable in bindings]
    names = [name for _, name in named]
    return tuple(
        [
            (name if names.count(name) == 1 else variable.name.replace("#", " "), bindings[variable])
            for variable, name in named
            if name != "_"
        ]
    )


# ---- one line ----------------------------------------------------------------------------------------------


def shown_value(value: Value | None) -> str:
    """Return the value in Polar notation: `User:ann`, `"reader"`, 3; `Repo:_` is any Repo, `_` is unknown."""
    if value is None:
        return "_"
    if value.id == ANY:
        return f"{value.type}:_"
    if value.type == STRING:
        return quoted(value.id)
    if value.type in (INTEGER, BOOLEAN):
        return value.id
    return f"{value.type}:{value.id if is_plain(value.id) else quoted(value.id)}"


def is_plain(text: str) -> bool:
    """Return whether an id needs no quotes, wherever it appears."""
    return _PLAIN.issuperset(text) and text != "_"


def shown_atom(predicate: str, args: tuple[Value | None, ...]) -> str:
    return f"{predicate}({', '.join(map(shown_value, args))})"


def shown_literal(program: Program, literal: Literal, bindings: RuleBindings, now: int) -> str:
    """Return the literal with the values of bound variables, and `_` for the others."""

    def term(each: Term) -> str:
        if isinstance(each, Now):
            return f"{now} (now)"
        return shown_value(bindings.get(each) if isinstance(each, Var) else each)

    match literal:
        case Atom(predicate, args) if predicate in program.helpers:
            return formula_of(program, predicate, len(args))
        case Atom(predicate, args):
            return f"{predicate}({', '.join(map(term, args))})"
        case Not(atom) if atom.predicate in program.helpers:
            return f"not ({shown_literal(program, atom, bindings, now)})"
        case Not(atom):
            return f"not {shown_literal(program, atom, bindings, now)}"
        case Compare(operator, left, right):
            return f"{term(left)} {operator} {term(right)}"
        case Member(variable, values):
            return f"{term(variable)} in [{', '.join(map(shown_value, values))}]"
