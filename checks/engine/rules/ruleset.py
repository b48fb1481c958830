"""Rule sets: return, for any pattern of a program, the clauses that can make it true."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import InitVar, dataclass, field
from threading import RLock

from checks.engine.rules.clauses import (
    PATIENCE,
    Call,
    Clause,
    ClausesOf,
    Cmp,
    Literal,
    Member,
    Pattern,
    Refusals,
    Scan,
    bounded,
    calls_made,
    pattern_of,
    spent,
    tick,
)
from checks.engine.rules.recursion import Separated, linearised
from checks.engine.rules.rewrite import ComponentOf, Live, Renamed, merged, subsumed
from checks.engine.rules.specialise import AreFacts, Specialised, any_signature
from checks.errors import PlannedTooLong, TooComplex
from policy.language.source import NOWHERE, without_collections
from policy.rules.components import Components, reachable
from policy.rules.program import Program, Signature

# ---- calls --------------------------------------------------------------------------------------------------------
# Properties of a call, judged by the clauses that can make it true: whether it is expensive, and what it only compares.

_NOTHING: frozenset[int] = frozenset()


@dataclass
class Calls:
    """Computes properties of patterns, and caches them.

    `clauses` returns the clauses of a pattern, `component` its recursive component.
    """

    clauses: ClausesOf
    component: ComponentOf
    _deep: dict[Pattern, bool] = field(default_factory=dict)
    _compared: dict[Pattern, frozenset[int]] = field(default_factory=dict)

    def is_deep(self, pattern: Pattern) -> bool:
        """Return whether the call takes a path or another recursion."""
        if pattern not in self._deep:
            self._deep[pattern] = any(self.component(each) is not None for each in self._led_to(pattern))
        return self._deep[pattern]

    def only_compared(self, pattern: Pattern) -> frozenset[int]:
        """Return the indexes of arguments that some clause compares without binding them: the caller must bind them."""
        if pattern not in self._compared:
            found = dict.fromkeys(self._led_to(pattern), _NOTHING)
            while (more := {each: self._only_compared_by(each, found) for each in found}) != found:
                found = more
            self._compared |= found
        return self._compared[pattern]

    def _led_to(self, pattern: Pattern) -> list[Pattern]:
        """Return the pattern and all patterns that its clauses call, directly or indirectly."""
        return reachable((pattern,), lambda each: calls_made(self.clauses(each)), tick)

    def _only_compared_by(self, pattern: Pattern, known: dict[Pattern, frozenset[int]]) -> frozenset[int]:
        tick()
        return _NOTHING.union(*(_only_compared_in(clause, known) for clause in self.clauses(pattern)))


def _only_compared_in(clause: Clause, known: dict[Pattern, frozenset[int]]) -> set[int]:
    compared, bound = set(), set()
    for literal in clause.body:
        match literal:
            case Cmp(_, left, right):
                compared |= {left, right}
            case Call(args=args):
                passed = known[pattern_of(literal)]
                compared |= {args[index] for index in passed}
                bound |= {arg for index, arg in enumerate(args) if index not in passed}
            case Scan(args=args):
                bound |= set(args)
            case Member(variable, _):
                bound.add(variable)
    return {index for index, param in enumerate(clause.params) if param in compared - bound}


# ---- Program -> for any pattern, the clauses that can make it true, as planning unfolds them ----------------------
# Rules go through passes. Each pass is a function from a pattern to its clauses, built on the pass before it. Passes
# are lazy, and cache what is expensive to compute: a rule set lives as long as its program.

MOST_SHOWN = 200  # characters of a rule in an error message
MOST_RESTRICTED = 4  # rule sets cached by `restricted_to`
TABLED = 0  # the component of all patterns whose answers are tabled, recursive or not


@dataclass(frozen=True)
class Passes:
    """The clauses of any pattern after each pass.

    The order matters. Dead clauses go first: they would prevent a predicate from being made linear, and a chain of
    renaming clauses from reaching its end. Subsumption depends on which calls rename others. Merging needs the facts at
    the ends of such chains. Separation is last: recursion is only known when nothing is left to rewrite.
    """

    specialised: Specialised  # rules with concrete types
    live: Live  # without clauses that no facts can make true
    linear: ClausesOf  # transitive rules with a single recursive call
    renamed: Renamed  # chains of renaming rules followed to their ends
    needed: ClausesOf  # without subsumed clauses
    merged: ClausesOf  # clauses that differ in one constant merged
    separated: Separated  # recursion of each argument separated

    @classmethod
    def over(cls, program: Program, are_facts: AreFacts = any_signature) -> Passes:
        specialised = Specialised(program, are_facts)
        live = Live(specialised)
        linear = linearised(live)
        renamed = Renamed(linear)
        needed = subsumed(renamed, renamed.implying)
        fewer = merged(needed)
        return cls(specialised, live, linear, renamed, needed, fewer, Separated(fewer))


@dataclass
class KnownSignatures:
    """Records which signatures were asked about, and whether they have facts.

    A rule set created with it is valid as long as those answers are.
    """

    are_facts: AreFacts
    answers: dict[Signature, bool] = field(default_factory=dict)

    def __call__(self, signature: Signature) -> bool:
        if signature not in self.answers:
            self.answers[signature] = self.are_facts(signature)
        return self.answers[signature]

    def agrees(self, are_facts: AreFacts) -> bool:
        """Return whether another function gives the same answers; if so, use that one from now on."""
        if are_facts == self.are_facts:  # same question, another root
            return True
        if any(are_facts(signature) is not answer for signature, answer in self.answers.items()):
            return False
        self.are_facts = are_facts
        return True


@dataclass
class RuleSet:
    program: Program
    patience: float = PATIENCE  # seconds of CPU time per plan
    tabled: frozenset[Pattern] | None = None  # patterns with tabled answers: their rules are not inlined at each call
    question: tuple[Pattern, Clause] | None = None  # see `asking`; then all is tabled except mere renamings
    passes_of: InitVar[RuleSet | None] = None  # another rule set over the same facts, to share passes with
    are_facts: InitVar[AreFacts] = any_signature  # whether a signature may have facts
    # Held while planning, when caches may be half filled.
    lock: AbstractContextManager[object] = field(default_factory=RLock)
    refused: Refusals = field(default_factory=Refusals)
    _paths: dict[Pattern, int] = field(default_factory=dict)
    _nonlinear: dict[int, bool] = field(default_factory=dict)
    _renaming: dict[Pattern, bool] = field(default_factory=dict)
    _restricted: list[tuple[KnownSignatures, RuleSet]] = field(default_factory=list)

    def __post_init__(self, passes_of: RuleSet | None, are_facts: AreFacts) -> None:
        self.passes: Passes = passes_of.passes if passes_of else Passes.over(self.program, are_facts)
        self.calls = Calls(self.alternatives, self.component)
        self._components = Components(lambda pattern: calls_made(self.alternatives(pattern)), tick)

    @contextmanager
    def planning(self, asked: Hashable) -> Iterator[None]:
        """Let one thread at a time plan with this rule set, within its patience; repeat recent rejections.

        A rejection due to an outer limit is not remembered: other callers may have more time.

        The garbage collector is off meanwhile: nearly all that planning creates is kept, and none of it is in a cycle.
        """
        self.refused.repeat(asked)
        with self.lock, without_collections(), bounded(self.patience) as is_nearest:
            self.refused.repeat(asked)
            try:
                yield
            except TooComplex as refused:
                self._blame(refused)
                if is_nearest or not isinstance(refused, PlannedTooLong):
                    self.refused.remember(asked, refused)
                raise

    @property
    def is_tabling(self) -> bool:
        return self.tabled is not None

    def _blame(self, refused: TooComplex) -> None:
        """Name a rule in the error: of the predicate unfolded most often, the rule that most clauses came from."""
        by_predicate, taken = self.program.rules_by_predicate, spent()
        unfolded = max(by_predicate, key=lambda each: taken[each], default=None)
        rules = by_predicate[unfolded] if unfolded is not None and taken[unfolded] else self.program.rules
        written = [rule.origin for rule in rules if rule.origin != NOWHERE]
        if written:
            line, _ = self.program.source.position(max(written, key=lambda each: taken[each]).start)
            refused.blame(line, self.program.source.line_text(line).strip()[:MOST_SHOWN])

    # ---- used by plans -------------------------------------------------------------------------------------------

    def alternatives(self, pattern: Pattern, backward: bool = False) -> tuple[Clause, ...]:
        """Return the clauses of a call. `backward` is for a path of which only the end is known, not the start."""
        if self.question and pattern == self.question[0]:
            return self.question[1:]
        return self.passes.separated(pattern, backward)

    def component(self, pattern: Pattern) -> int | None:
        """Return the number of the component that the pattern recurses in; None if it is not recursive.

        A path with hops counts as recursive even if it ends after a few: it is planned as a whole, not inlined hop by
        hop. A pattern whose answers are tabled is in the component `TABLED`.
        """
        if self.tabled and pattern in self.tabled:
            return TABLED
        if self.question:
            is_renaming = self._renaming.get(pattern)
            if is_renaming is None:
                is_renaming = self._renaming[pattern] = self._is_renaming(pattern)
            return None if is_renaming else TABLED
        number = self._components.number(pattern)
        if number is None and pattern.is_path and any(clause.body for clause in self.alternatives(pattern)):
            return self._paths.setdefault(pattern, -1 - len(self._paths))
        return number

    def is_nonlinear(self, component: int) -> bool:
        """Return whether a clause joins two answers of the recursion, which recursive SQL cannot express."""
        if component <= TABLED:
            return False  # a path adds one hop at a time, and a table is only read
        if component not in self._nonlinear:
            members = self._components.members(component)
            clauses = (clause for member in members for clause in self.alternatives(member))
            self._nonlinear[component] = any(
                sum(self.component(called) == component for called in calls_made((clause,))) > 1 for clause in clauses
            )
        return self._nonlinear[component]

    def tabling(self, starts: Iterable[Pattern]) -> RuleSet:
        """Return a rule set for questions about these patterns that tables the answers of what is called several times.

        Tabled answers are a table of the statement, read by name.
        """
        every = reachable(starts, lambda pattern: calls_made(self.alternatives(pattern)), tick)
        return RuleSet(self.program, self.patience, frozenset(self._shared(every)), passes_of=self)

    def restricted_to(self, are_facts: AreFacts) -> RuleSet:
        """Return a rule set without the clauses that only missing facts could make true.

        The last few are cached, and reused if `are_facts` gives the same answers as when they were created.
        """
        for known, rules in self._restricted:
            if known.agrees(are_facts):
                return rules
        known = KnownSignatures(are_facts)
        rules = RuleSet(self.program, self.patience, are_facts=known)
        self._restricted = [(known, rules), *self._restricted[: MOST_RESTRICTED - 1]]
        return rules

    def asking(self, question: Call, body: tuple[Literal, ...]) -> RuleSet:
        """Return a rule set with one more clause, `question if body`. The question and all it leads to are tabled."""
        clause = Clause(question.args, body)
        return RuleSet(self.program, self.patience, passes_of=self, question=(pattern_of(question), clause))

    def _is_renaming(self, pattern: Pattern) -> bool:
        """Return whether the pattern has at most one clause, with at most one call: inlining it multiplies nothing."""
        clauses = self.alternatives(pattern)
        is_question = self.question is not None and pattern == self.question[0]
        return not is_question and len(clauses) <= 1 and len(calls_made(clauses)) <= 1

    def _shared(self, patterns: Iterable[Pattern]) -> Iterator[Pattern]:
        """Yield the patterns that are called more than once and worth tabling: those that call something themselves.

        Excludes recursive ones, and those with an argument that only the caller can bind.
        """
        times: dict[Pattern, int] = {}
        for pattern in patterns:
            for called in calls_made(self.alternatives(pattern)):
                times[called] = times.get(called, 0) + 1
        for pattern, count in times.items():
            is_worth_it = count > 1 and calls_made(self.alternatives(pattern))
            if is_worth_it and self.component(pattern) is None and not self.calls.only_compared(pattern):
                yield pattern
