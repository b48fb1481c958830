"""Find why something does not hold: how far each rule gets, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from checks.asking.snapshot import GIVEN_UP, Snapshot
from checks.engine.rules.clauses import Pattern
from checks.errors import UnboundVariable
from checks.explain.cases import ANY, Case, Goal, RuleBindings, RuleCondition, value_in
from checks.explain.search import first_bindings, proof_of
from checks.explain.tree import Reason, named_bindings, rule_text, shown_atom, shown_literal, tree_of
from facts.history import ValidityPeriod, latest_periods
from facts.models import COLUMNS, Row
from policy.rules.program import Atom, Not, Program, Rule, Signature
from policy.values import Value

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
        except GIVEN_UP as reason:
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
