"""What a policy that is not published yet would change: its tests, the facts it has no use for, and decisions.

Answers are compared for questions that are given, or for those that the difference between the policies reaches: what
rules that differ are about, and all that depends on it. Both policies are asked the same questions over the same facts,
as of one moment.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from checks.asking import run
from checks.asking.deadline import Deadline
from checks.asking.snapshot import Snapshot, snapshot, trial
from checks.explain.cases import Goal
from checks.explain.explain import ExplainedGoal, explain_goal, question_of_goal
from checks.explain.tree import shown_atom
from checks.workbench.differences import Compared, PolicyComparison
from checks.workbench.kinds import DECISION, kinds_of
from checks.workbench.samples import Sampler
from facts.accept import UnusedStored, unused_signatures
from facts.notation import fact_from_text
from facts.numbering import signature_numbers
from policy import publishing
from policy.errors import AuthzError
from policy.language.source import NOWHERE
from policy.publishing import Draft
from policy.rules.changes import Changed, changed_facts, changed_rules, reached
from policy.rules.program import Program, Rule
from policy.values import STRING

SECONDS = 5.0  # for asking, if not said otherwise; and as many again for explaining
MOST_SHOWN = 100  # answers that differ, of each kind of question and in each direction; the others are counted
MAX_EXPLAINED = 50  # answers that differ; of the others, only which
_SHORTEST = 0.05  # seconds that a question has at least


@dataclass(frozen=True, slots=True)
class Flip:
    """An answer that would be another one. `before` and `after` are explained for some of them only."""

    goal: Goal
    is_allowed: bool  # by the new policy
    before: ExplainedGoal | None = None
    after: ExplainedGoal | None = None

    @property
    def text(self) -> str:
        return shown_atom(self.goal.predicate, self.goal.args)

    @property
    def sides(self) -> list[ExplainedGoal]:
        """What the old and the new policy say, if it is explained."""
        return [side for side in (self.before, self.after) if side]


@dataclass(frozen=True, slots=True)
class Survey:
    """What was asked: so many `given` questions, or else those of the kinds that the difference reaches.

    `refused` are given questions that were not compared, and why. Where `are_all` is false, there are more kinds.
    """

    given: int | None = None
    kinds: tuple[Compared, ...] = ()
    are_all: bool = True
    refused: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Preview:
    """What would change; `flips` are the answers that differ, or some of them, where they are too many to show."""

    draft: Draft
    unused: tuple[UnusedStored, ...]
    rules: tuple[int, int]  # that only the active policy has, and only the new one
    asked: Survey
    flips: tuple[Flip, ...]

    @property
    def decisions(self) -> str:
        """How many decisions differ, out of which ones."""
        if self.asked.given is not None:
            refused = f"; {len(self.asked.refused)} not answered" if self.asked.refused else ""
            return f"{len(self.flips):,} of {self.asked.given:,} asked would be different{refused}"
        why = "no decision depends on the rules that differ" if any(self.rules) else "no rule differs"
        return self._of_kinds(True) or f"0 would be different: {why}, so none was asked"

    @property
    def others(self) -> str:
        """The same for what decisions are made of: roles, relations, and whatever else may be asked about."""
        return "" if self.asked.given is not None else self._of_kinds(False)

    def _of_kinds(self, are_decisions: bool) -> str:
        kinds = [each for each in self.asked.kinds if each.kind.is_decision == are_decisions]
        if not kinds:
            return ""
        flips, answers = sum(each.tally.flips for each in kinds), sum(each.tally.answers for each in kinds)
        text = f"{flips:,} of {answers:,} would be different"
        if not self.asked.are_all:
            text += f" in {len(kinds):,} kinds of questions, of more that the difference reaches and nobody asked"
        if self.asked.are_all and all(each.is_all for each in kinds):
            return f"{text}: all that either policy gives and the difference reaches"
        text += f", of those that were asked: not all were, see each kind; drawn with seed {self.asked.seed}"
        return f"{text}; some are refused by the new policy" if any(each.is_refused for each in kinds) else text

    @property
    def differs(self) -> str:
        gone, new = self.rules
        if not any(self.rules):
            return "no rule differs"
        return f"{gone:,} {'rule' if gone == 1 else 'rules'} would go, and {new:,} come"

    @property
    def refuses(self) -> bool:
        """Whether there are questions that only the active policy answers."""
        return any(each.is_refused for each in self.asked.kinds)

    @property
    def differ(self) -> int:
        """How many answers differ, of those that were asked."""
        return len(self.flips) if self.asked.given is not None else sum(each.tally.flips for each in self.asked.kinds)


def preview(
    environment_id: int,
    text: str,
    filename: str,
    goals: list[Goal] | None = None,
    *,
    seconds: float = SECONDS,
    seed: int = 0,
    most: int = MOST_SHOWN,
    explains: bool = True,
) -> Preview:
    """Compare the active policy with the text, which raises `PolicyRejected` if it is none. Nothing is stored."""
    drafted = publishing.draft(text, filename, force=True)
    unused = tuple(unused_signatures(environment_id, drafted.program))
    with Deadline(3 * seconds + _SHORTEST), _sides(environment_id, drafted.program, goals or ()) as sides:
        changed = _changed(*sides)
        until = time.monotonic() + seconds
        if goals is None:
            survey = _compare_reached(sides, changed, seed, until, most)
            flips = [Flip(goal, is_new) for each in survey.kinds for goal, is_new in each.examples]
        else:
            flips, survey = _compare_given(sides, list(dict.fromkeys(goals)), until)
        if explains:
            flips = _with_some_explained(sides, flips, time.monotonic() + seconds)
    gone, added = (_count(each.rule for each in changed if each.is_new == is_new) for is_new in (False, True))
    return Preview(drafted, unused, (gone, added), survey, tuple(flips))


def _count(rules: Iterable[Rule | None]) -> int:
    """Return how many rules of the text these are."""
    return len({rule.origin for rule in rules if rule is not None} - {NOWHERE})


def goals_of_text(text: str) -> list[Goal]:
    """Read one a line, as `allow(User:ann, "read", Repo:acme)`, without empty lines and those that begin with #."""
    lines = (line.strip() for line in text.splitlines())
    facts = [fact_from_text(line) for line in lines if line and not line.startswith("#")]
    return [Goal(fact.predicate, fact.args) for fact in facts]


Sides = tuple[Snapshot, Snapshot]  # of the active policy, and of the new one


@contextmanager
def _sides(environment_id: int, program: Program, goals: Iterable[Goal]) -> Iterator[Sides]:
    active = publishing.active_version(environment_id)
    asked = {arg.type for goal in goals for arg in goal.args}
    stored = {name for signature in signature_numbers(environment_id) for name in signature.types}
    types = frozenset() if active else frozenset(asked | stored | set(filter(program.knows, program.subtypes)))
    with (
        snapshot(environment_id, active.pk if active else None, (), types) as before,
        trial(environment_id, program, ()) as after,
    ):
        yield before, after


def _changed(before: Snapshot, after: Snapshot) -> list[Changed]:
    programs = (before.program, after.program)
    return [*changed_rules(*programs), *changed_facts(*programs, before.numbers)]


# ---- comparing ---------------------------------------------------------------------------------------------------


def _compare_reached(sides: Sides, changed: list[Changed], seed: int, until: float, most: int) -> Survey:
    """Ask the questions that the difference reaches."""
    before, after = sides
    programs = (before.program, after.program)
    kinds, are_all = kinds_of(reached(*programs, [each.head for each in changed]), programs)
    if before.cases.number is None:  # without a policy all facts hold, so only decisions can be compared with one's
        kinds = [kind for kind in kinds if kind.is_decision]
    comparison = PolicyComparison(sides, Sampler(sides, changed, seed, until), until, most)
    return Survey(kinds=tuple(comparison.compared(kinds)), are_all=are_all, seed=seed)


def _compare_given(sides: Sides, goals: list[Goal], until: float) -> tuple[list[Flip], Survey]:
    flips: list[Flip] = []
    refused: list[str] = []
    for index, goal in enumerate(goals):
        left = until - time.monotonic()
        if left <= 0:
            refused.append(f"{len(goals) - index:,} of the questions: there was no time left")
            break
        try:
            with run.limited(max(left, _SHORTEST)):
                was, is_now = (_holds(each, goal) for each in sides)
        except AuthzError as reason:
            refused.append(f"{shown_atom(goal.predicate, goal.args)}: {reason.message}")
            continue
        if was != is_now:
            flips.append(Flip(goal, is_now))
    return flips, Survey(given=len(goals), refused=tuple(refused))


def _holds(session: Snapshot, goal: Goal) -> bool:
    """A predicate that a policy does not have holds for nothing."""
    if goal.predicate not in session.program.predicates and goal.predicate != DECISION:
        return False
    return session.holds(question_of_goal(goal))


# ---- explaining --------------------------------------------------------------------------------------------------


def _with_some_explained(sides: Sides, flips: list[Flip], until: float) -> list[Flip]:
    """Explain the first flips of each sort, as long as there is time."""
    for session in sides:
        session.patience = until - session.started
    seen: Counter[tuple] = Counter()
    found, explained = [], 0
    most = max(1, MAX_EXPLAINED // max(1, len({_sort(flip) for flip in flips})))
    for flip in flips:
        seen[_sort(flip)] += 1
        if seen[_sort(flip)] <= most and explained < MAX_EXPLAINED and time.monotonic() < until:
            flip, explained = _explained(sides, flip, until), explained + 1
        found.append(flip)
    return found


def _sort(flip: Flip) -> tuple:
    """Return what flips of one sort have in common: predicate, types, text and direction."""
    args = ((arg.type, arg.id if arg.type == STRING else "") for arg in flip.goal.args)
    return flip.goal.predicate, flip.is_allowed, *args


def _explained(sides: Sides, flip: Flip, until: float) -> Flip:
    try:
        with run.limited(max(until - time.monotonic(), _SHORTEST)):
            before, after = (explain_goal(session, flip.goal) for session in sides)
    except AuthzError:
        return flip  # that it differs is known all the same
    return replace(flip, before=before, after=after)
