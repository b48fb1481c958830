"""An explanation as a tree of reasons: from a proof, or from what is missing. JSON, terminals and pages show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from checks.asking.snapshot import GIVEN_UP, Snapshot
from checks.engine.rules.clauses import Pattern
from checks.errors import CannotEnumerate, UnboundVariable
from checks.explain.cases import ANY, Case, Goal, RuleBindings, RuleCondition, value_in
from checks.explain.search import ByFact, ByRule, Proof, ProofStep, Unexplained, first_bindings, proof_of, values_of
from facts.history import ValidityPeriod, latest_periods, since_text, until_text
from facts.models import COLUMNS, Row
from policy.language.source import NOWHERE
from policy.rules.program import Atom, Compare, Literal, Member, Not, Now, Program, Rule, Signature, Term, Var
from policy.values import INTEGER, Value

MAX_DEPTH = 100  # levels of a proof; many JSON parsers reject much deeper nesting
MAX_REASONS = 1_000
MAX_RULE_TEXT = 400  # characters of a rule to show


@dataclass(frozen=True, slots=True)
class RuleText:
    """The text of a rule or of a part of one; a default rule has no line number."""

    text: str
    line: int | None


_REMARKS = {
    "absence": "no matching fact or rule",
    "again": "explained above",
    "present": "the negated condition holds",
    "false": "false",
}


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

    @property
    def remark(self) -> str:
        """Return what is said beside the text."""
        return _REMARKS.get(self.kind, self.note)

    @property
    def period_text(self) -> str:
        """Return since when a fact is stored, or until when a missing one was."""
        if self.period is None:
            return ""
        return until_text(self.period) if self.kind == "missing" else since_text(self.period)

    @property
    def period_revision(self) -> int | None:
        """Return the revision that `period_text` mentions, if that revision is kept."""
        end = self.period and (self.period.until if self.kind == "missing" else self.period.since)
        return end.revision if end and end.at is not None else None

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
    return RuleText(abbreviated(program.source.on_one_line(rule.origin)), program.source.position(rule.origin.start)[0])


def formula_of(program: Program, predicate: str, arity: int) -> str:
    """Return the text of the formula for which the compiler generated this predicate."""
    rules = program.rules_by_predicate.get((predicate, arity), ())
    texts = dict.fromkeys(program.source.on_one_line(rule.origin) for rule in rules)
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
    """Return the value in the notation of facts: `User:ann`, `"reader"`, 3; `Repo:_` is any Repo, `_` is unknown."""
    if value is None:
        return "_"
    return f"{value.type}:_" if value.id == ANY else value.noted


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


# ---- failures -----------------------------------------------------------------------------------------------------
# For each rule that could have granted a goal, how far it gets and what is missing.
#
# A rule's conditions are tried in order, until one does not hold together with those before it. Why that one does not
# hold is examined in the same way, a few levels deep.

MAX_LEVELS = 4  # of conditions that are missing because others are
MAX_TRIED = 60  # rules
_Args = tuple[Value | None, ...]  # None is unknown: the goal holds for no value of it


@dataclass(frozen=True)
class _Attempt:
    """How far a case gets: the conditions that hold together, their bindings, and the condition that fails."""

    case: Case
    met: tuple[RuleCondition, ...]
    bindings: RuleBindings
    failing: RuleCondition


def failures_of(session: Snapshot, goal: Goal) -> tuple[Reason, ...]:
    """Return why each rule fails to grant the goal, which does not hold; empty if no rule matches it."""
    return _Failures(session).of_rules(session.cases.pattern(goal), goal.args, MAX_LEVELS)


@dataclass
class _Failures:
    session: Snapshot
    tried: int = 0
    seen: set[tuple[Pattern, _Args]] = field(default_factory=set)

    @property
    def program(self) -> Program:
        return self.session.program

    def of_rules(self, pattern: Pattern, args: _Args, levels: int) -> tuple[Reason, ...]:
        """Return a reason for each rule: of its cases, the one that gets furthest.

        If a limit ends the search, rules with untried cases are left out: they might get further than reported.
        """
        self.seen.add((pattern, args))
        furthest: dict[Rule, _Attempt] = {}
        waiting, limit = list[Case](), ""
        try:
            waiting += self.session.cases.of(pattern)
            while waiting:
                bindings = waiting[0].matched(args)
                if bindings is not None:
                    if limit := self._limit_met():
                        break
                    self.tried += 1
                    attempt = self._attempt(waiting[0], bindings)
                    others = furthest.get(waiting[0].rule)
                    if attempt is not None and (others is None or len(attempt.met) > len(others.met)):
                        furthest[attempt.case.rule] = attempt
                waiting.pop(0)
        except (*GIVEN_UP, CannotEnumerate, UnboundVariable) as reason:
            limit = self.session.gap_of(reason)
        for case in waiting:
            furthest.pop(case.rule, None)
        found = sorted(furthest.values(), key=lambda each: each.case.rule.origin.start)
        reasons = [self._of_rule(each, levels) for each in found]
        if limit:
            reasons.append(Reason("unexplained", "other rules", note=limit))
        return tuple(reasons)

    def _limit_met(self) -> str:
        """Return the limit that ends the search, once one is reached."""
        if self.tried >= MAX_TRIED:
            return f"the limit of {MAX_TRIED:,} rules was reached"
        return self.session.lateness

    def _attempt(self, case: Case, bindings: RuleBindings) -> _Attempt | None:
        """Return how far the case gets; None if all of it holds: what fails beside other conditions may hold alone.

        A comparison of a variable that may still have any value waits until another condition binds it:

            anything(d, n) and n > 3 and level(u, n)   ->   anything(d, n), level(u, n), n > 3
        """
        found, met, early = bindings, list[RuleCondition](), list[RuleCondition]()
        waiting = list(case.conditions)
        while waiting:
            tried = waiting.pop(0)
            try:
                more = self._further(case, bindings, found, met, tried)
            except UnboundVariable:
                if waiting:
                    early.append(tried)
                    continue
                more = first_bindings(self.session, case, bindings, [*met, tried], are_listed=False)
            if more is None:
                return _Attempt(case, tuple(met), found, tried)
            found = more
            met.append(tried)
            waiting, early = [*early, *waiting], []
        return None

    def _further(
        self,
        case: Case,
        bindings: RuleBindings,
        found: RuleBindings,
        met: Sequence[RuleCondition],
        tried: RuleCondition,
    ) -> RuleBindings | None:
        """Return bindings for which one more condition holds with those already met; None if there are none.

        It is first checked alone, for the bindings found so far: that is planned once for all rules that have it, while
        several conditions are planned for each rule separately. Other bindings are only tried if there is a choice.
        """
        binding = {variable for condition in met for variable in condition.binds}
        if met and binding <= found.keys():
            more = first_bindings(self.session, case, found, [tried])
            if more is not None or binding <= bindings.keys():
                return more
        return first_bindings(self.session, case, bindings, [*met, tried])

    def _of_rule(self, attempt: _Attempt, levels: int) -> Reason:
        case, bindings = attempt.case, attempt.bindings
        rule = rule_text(self.program, case.rule)
        return Reason(
            "obstacle",
            rule.text,
            rule=rule,
            bindings=named_bindings(case, bindings),
            met=tuple([self._shown(each, bindings) for each in attempt.met]),
            because=(self._of_condition(attempt.failing, bindings, levels),),
        )

    def _of_condition(self, failing: RuleCondition, bindings: RuleBindings, levels: int) -> Reason:
        match failing.literal:
            case Atom() as atom:
                return self._of_atom(atom, failing, bindings, levels)
            case Not() as negation:
                below = self._why_it_holds(negation.atom, bindings) if failing.asked else ()
                return Reason("present", self._shown(failing, bindings), because=below)
        return Reason("false", self._shown(failing, bindings))

    def _of_atom(self, atom: Atom, failing: RuleCondition, bindings: RuleBindings, levels: int) -> Reason:
        args = tuple([value_in(bindings, arg, self.session.moment) for arg in atom.args])
        pattern = self.session.cases.pattern_of_condition(failing, bindings)
        note, below = self._missing(pattern, args, levels)
        if atom.predicate in self.program.helpers:
            return Reason("missing", self._shown(failing, bindings), note=note, because=below)
        known = tuple([arg for arg in args if arg is not None])
        fact = (atom.predicate, known) if len(known) == len(args) else None
        return Reason("missing", _shown_atom(atom.predicate, args, pattern.types), fact, note=note, because=below)

    def _missing(self, pattern: Pattern, args: _Args, levels: int) -> tuple[str, tuple[Reason, ...]]:
        """Return a note on what is missing, and why no rule grants it."""
        if pattern.predicate in self.program.helpers:
            note = "does not hold"
        elif self.session.is_late or self.session.cases.of(pattern):
            note = "no matching fact or rule"
        elif (pattern.predicate, len(pattern.types)) in self.program.rules_by_predicate:
            return "no matching fact, and no rule applies", ()
        else:
            return "no matching fact", ()
        if (pattern, args) in self.seen:
            return f"{note}, as above", ()
        if levels == 1:
            return f"{note}; not explained further", ()
        return note, self.of_rules(pattern, args, levels - 1)

    def _why_it_holds(self, atom: Atom, bindings: RuleBindings) -> tuple[Reason, ...]:
        """Return the proof of an atom that should not hold but does, if all of its arguments are known."""
        args = [value_in(bindings, arg, self.session.moment) for arg in atom.args]
        known = tuple([arg for arg in args if arg is not None])
        if len(known) < len(args):
            return ()
        goal = Goal(atom.predicate, known)
        return (tree_of(self.program, proof_of(self.session, [goal]), goal, self.session.now),)

    def _shown(self, condition: RuleCondition, bindings: RuleBindings) -> str:
        return shown_literal(self.program, condition.literal, bindings, self.session.now)


def _shown_atom(predicate: str, args: _Args, types: Sequence[str]) -> str:
    """Return the atom's text; an unknown argument is shown as any value of its type."""
    return shown_atom(predicate, tuple([arg or Value(type_name, ANY) for arg, type_name in zip(args, types)]))


# ---- leaves -------------------------------------------------------------------------------------------------------
# Looks up since when facts in an explanation are stored, and until when its missing facts were.


def with_periods(session: Snapshot, reasons: Sequence[Reason]) -> list[Reason]:
    """Return the reasons with the storage periods of their leaves, as of the session's moment.

    All leaves are looked up together, by few statements.
    """
    rows = {row for root in reasons for _, each in root.lines() if (row := _row(session, each)) is not None}
    if session.environment_id is None or not rows:
        return list(reasons)
    revision = session.past.revision if session.past else None
    periods = latest_periods(session.environment_id, sorted(rows), revision)
    return [_with_period(session, each, periods) for each in reasons] if periods else list(reasons)


def _row(session: Snapshot, reason: Reason) -> Row | None:
    """Return the row that a leaf has, or could have had, among the stored facts; else None."""
    if reason.atom is None or not (reason.kind == "missing" or (reason.kind == "fact" and reason.source == "stored")):
        return None
    predicate, args = reason.atom
    signature = Signature(predicate, tuple([arg.type for arg in args]))
    number = session.numbers.get(signature)
    if number is None or any(arg.id == ANY for arg in args) or not session.program.accepts(predicate, signature.types):
        return None
    return (number, *[*[arg.id for arg in args], *[""] * (len(COLUMNS) - len(args))])


def _with_period(session: Snapshot, reason: Reason, periods: Mapping[Row, ValidityPeriod]) -> Reason:
    row = _row(session, reason)
    period = periods.get(row) if row is not None else None
    if period is not None and reason.kind == "missing" and not _is_over(period):
        period = None
    because = tuple([_with_period(session, each, periods) for each in reason.because])
    return replace(reason, period=period, because=because)


def _is_over(period: ValidityPeriod) -> bool:
    """Return whether a fact once held: it was deleted, or has expired, pruned or not."""
    return period.until is not None or period.expires_at is not None
