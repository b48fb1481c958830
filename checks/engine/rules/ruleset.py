"""Program -> for any pattern of call, the clauses that can make it true, as plans unfold them.

Rules go through passes, each from the clauses of any pattern to the clauses of any pattern. None begins before a
pattern is asked for, and where finding took long it is remembered: a rule set lives as long as its program.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from threading import RLock

from checks.engine.errors import TooComplex
from checks.engine.rules.calls import Calls
from checks.engine.rules.clauses import Call, Clause, ClausesOf, Literal, Pattern, calls_made, pattern_of
from checks.engine.rules.limits import PATIENCE, Refusals, bounded, spent, tick
from checks.engine.rules.linearise import linearised
from checks.engine.rules.live import Live
from checks.engine.rules.merge import merged
from checks.engine.rules.rename import Renamed
from checks.engine.rules.separate import Separated
from checks.engine.rules.specialise import Specialised, anywhere
from checks.engine.rules.subsume import subsumed
from checks.engine.rules.typings import AreFacts
from policy.language.collector import without_collections
from policy.language.source import NOWHERE
from policy.rules.components import Components, reachable
from policy.rules.program import Program, Signature

MOST_SHOWN = 200  # characters of a rule in an error
MOST_KNOWING = 4  # rule sets for some facts that are kept
TABLED = 0  # stands for a component: its members need not recurse


@dataclass(frozen=True)
class Passes:
    """The clauses of any pattern after each pass.

    What can never be true goes first: it would keep a relation from being linear, and a chain of names from its end.
    Subsumption asks which calls are others by another name. Merging needs the facts that names lead to, and what
    recurses is known at the end, when there is nothing left to rewrite.
    """

    specialised: Specialised  # rules, with concrete types
    live: Live  # without what no fact can make true
    linear: ClausesOf  # transitive rules with one recursive call
    renamed: Renamed  # chains of renaming rules walked to their ends
    needed: ClausesOf  # without what another clause subsumes
    merged: ClausesOf  # those that differ in one constant drawn together
    separated: Separated  # recursion of one argument apart from that of others

    @classmethod
    def over(cls, program: Program, are_facts: AreFacts = anywhere) -> Passes:
        specialised = Specialised(program, are_facts)
        live = Live(specialised)
        linear = linearised(live)
        renamed = Renamed(linear)
        needed = subsumed(renamed, renamed.implying)
        drawn = merged(needed)
        return cls(specialised, live, linear, renamed, needed, drawn, Separated(drawn))


@dataclass
class Known:
    """Of which signatures there are facts, as far as it was asked: what is made by that is good as long as it is so."""

    are_facts: AreFacts
    answers: dict[Signature, bool] = field(default_factory=dict)

    def __call__(self, signature: Signature) -> bool:
        if signature not in self.answers:
            self.answers[signature] = self.are_facts(signature)
        return self.answers[signature]

    def agrees(self, are_facts: AreFacts) -> bool:
        """Whether the answers are the same by another one, which is asked from now on."""
        if any(are_facts(signature) is not answer for signature, answer in self.answers.items()):
            return False
        self.are_facts = are_facts
        return True


@dataclass
class RuleSet:
    program: Program
    patience: float = PATIENCE  # seconds of processor time for one plan
    tabled: frozenset[Pattern] | None = None  # whose answers are tabled, lest their rules be multiplied out
    question: tuple[Pattern, Clause] | None = None  # with one, all is tabled that is not just another call
    passes_of: InitVar[RuleSet | None] = None  # another rule set over the same facts
    are_facts: InitVar[AreFacts] = anywhere  # of which signatures there may be any
    lock: RLock = field(default_factory=RLock)  # for whoever plans: what is remembered must not be half written
    refused: Refusals = field(default_factory=Refusals)
    _paths: dict[Pattern, int] = field(default_factory=dict)
    _takes_two: dict[int, bool] = field(default_factory=dict)
    _renaming: dict[Pattern, bool] = field(default_factory=dict)
    _knowing: list[tuple[Known, RuleSet]] = field(default_factory=list)

    def __post_init__(self, passes_of: RuleSet | None, are_facts: AreFacts) -> None:
        self.passes: Passes = passes_of.passes if passes_of else Passes.over(self.program, are_facts)
        self.calls = Calls(self.alternatives, self.component)
        self._components = Components(lambda pattern: calls_made(self.alternatives(pattern)), tick)

    @contextmanager
    def planning(self, asked: Hashable) -> Iterator[None]:
        """Only one at a time plans with a rule set, not for long, and not again what was refused a moment ago.

        Without collections, too: plans are values, of which none is a cycle, and it keeps nearly all that it makes.
        """
        self.refused.repeat(asked)
        with self.lock, without_collections(), bounded(self.patience):
            self.refused.repeat(asked)
            try:
                yield
            except TooComplex as refused:
                self._blame(refused)
                self.refused.remember(asked, refused)
                raise

    @property
    def is_tabling(self) -> bool:
        return self.tabled is not None

    def _blame(self, refused: TooComplex) -> None:
        """Name the rule of the text that most clauses were made of, of those for what was unfolded most."""
        by_predicate, taken = self.program.rules_by_predicate, spent()
        unfolded = max(by_predicate, key=lambda each: taken[each], default=None)
        rules = by_predicate[unfolded] if unfolded is not None and taken[unfolded] else self.program.rules
        written = [rule.origin for rule in rules if rule.origin != NOWHERE]
        if written:
            line, _ = self.program.source.position(max(written, key=lambda each: taken[each]).start)
            refused.blame(line, self.program.source.line_text(line).strip()[:MOST_SHOWN])

    # ---- what plans ask ------------------------------------------------------------------------------------------

    def alternatives(self, pattern: Pattern, backward: bool = False) -> tuple[Clause, ...]:
        """The clauses of a call; `backward` where only the end of a path is known, not its start."""
        if self.question and pattern == self.question[0]:
            return self.question[1:]
        return self.passes.separated(pattern, backward)

    def component(self, pattern: Pattern) -> int | None:
        """The number of the component that the pattern recurses in, if it does.

        A path that is no mere identity counts as one of its own: it is followed whole, not hop by hop in place.
        """
        if self.tabled and pattern in self.tabled:
            return TABLED
        if self.question:
            if pattern not in self._renaming:
                self._renaming[pattern] = self._is_renaming(pattern)
            return None if self._renaming[pattern] else TABLED
        number = self._components.number(pattern)
        if number is None and pattern.is_path and any(clause.body for clause in self.alternatives(pattern)):
            return self._paths.setdefault(pattern, -1 - len(self._paths))
        return number

    def takes_two(self, component: int) -> bool:
        """Whether a clause of the component needs two of its own answers at once: no recursive statement says that."""
        if component <= TABLED:
            return False  # paths go on by one hop at a time, and tables are read, not gone on from
        if component not in self._takes_two:
            members = self._components.members(component)
            clauses = (clause for member in members for clause in self.alternatives(member))
            self._takes_two[component] = any(
                sum(self.component(called) == component for called in calls_made((clause,))) > 1 for clause in clauses
            )
        return self._takes_two[component]

    def tabling(self, starts: Iterable[Pattern]) -> RuleSet:
        """A rule set for questions about these, with answers tabled where several rules call for the same.

        Tabled answers are a relation of the statement, read by name.
        """
        every = reachable(starts, lambda pattern: calls_made(self.alternatives(pattern)), tick)
        return RuleSet(self.program, self.patience, frozenset(self._shared(every)), passes_of=self)

    def knowing(self, are_facts: AreFacts) -> RuleSet:
        """A rule set without what only facts could make true that are not there.

        The last ones are kept, for questions by whom the same facts are there.
        """
        for known, rules in self._knowing:
            if known.agrees(are_facts):
                return rules
        known = Known(are_facts)
        rules = RuleSet(self.program, self.patience, are_facts=known)
        self._knowing = [(known, rules), *self._knowing[: MOST_KNOWING - 1]]
        return rules

    def asking(self, question: Call, body: tuple[Literal, ...]) -> RuleSet:
        """A rule set for one question, which holds where the body does: it and all that it leads to are tabled."""
        clause = Clause(question.args, body)
        return RuleSet(self.program, self.patience, passes_of=self, question=(pattern_of(question), clause))

    def _is_renaming(self, pattern: Pattern) -> bool:
        """Whether one clause with one call at most makes the call true: writing it in place multiplies nothing."""
        clauses = self.alternatives(pattern)
        is_question = self.question is not None and pattern == self.question[0]
        return not is_question and len(clauses) <= 1 and len(calls_made(clauses)) <= 1

    def _shared(self, patterns: Iterable[Pattern]) -> Iterator[Pattern]:
        """Those that are called more than once, where answers can be worked out apart and that saves something."""
        times: dict[Pattern, int] = {}
        for pattern in patterns:
            for called in calls_made(self.alternatives(pattern)):
                times[called] = times.get(called, 0) + 1
        for pattern, count in times.items():
            is_worth_it = count > 1 and calls_made(self.alternatives(pattern))
            if is_worth_it and self.component(pattern) is None and not self.calls.only_compared(pattern):
                yield pattern
