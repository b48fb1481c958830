"""What a policy that is not published yet would change: its tests, the facts it has no use for, and decisions.

Answers are compared over questions that are given, or over those that the difference between the policies reaches:
what rules that differ are about, and all that depends on it. Both policies are asked in the same way, over the same
facts, as of one moment.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from checks.asking import run
from checks.asking.deadline import Deadline
from checks.asking.snapshot import Snapshot, snapshot, trial
from checks.explain.explain import Explained, explained_goal, question_of
from checks.explain.proof import Goal
from checks.explain.tree import shown_atom
from checks.workbench.differences import Compared, Comparison
from checks.workbench.kinds import DECISION, kinds_of
from checks.workbench.samples import Drawer
from facts.audit import Unused, unused_signatures
from facts.notation import fact_from_text
from facts.signatures import signature_numbers
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
    before: Explained | None = None
    after: Explained | None = None

    @property
    def text(self) -> str:
        return shown_atom(self.goal.predicate, self.goal.args)

    @property
    def sides(self) -> list[Explained]:
        """What explains it, if anything does."""
        return [side for side in (self.before, self.after) if side]


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked: `given` questions, or where none were given, those of the kinds that the difference reaches.

    `refused` are given questions that were not compared, and why. Where `are_all` is false, there are more kinds.
    """

    given: int | None = None
    kinds: tuple[Compared, ...] = ()
    are_all: bool = True
    refused: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Preview:
    """`flips` are the answers that differ, or some of them, where they are more than are shown."""

    draft: Draft
    unused: tuple[Unused, ...]
    rules: tuple[int, int]  # that only the active policy has, and only the new one
    asked: Asked
    flips: tuple[Flip, ...]

    @property
    def decisions(self) -> str:
        """How many decisions differ, of how many, and which those are."""
        if self.asked.given is not None:
            refused = f"; {len(self.asked.refused)} not answered" if self.asked.refused else ""
            return f"{len(self.flips):,} of {self.asked.given:,} asked would be different{refused}"
        silence = "no decision depends on the rules that differ" if any(self.rules) else "no rule differs"
        return self._of_kinds(True) or f"0 would be different: {silence}, so none was asked"

    @property
    def others(self) -> str:
        """The same of what decisions are made of: roles, relations, and whatever else may be asked about."""
        return "" if self.asked.given is not None else self._of_kinds(False)

    def _of_kinds(self, are_decisions: bool) -> str:
        kinds = [each for each in self.asked.kinds if each.kind.is_decision == are_decisions]
        if not kinds:
            return ""
        flips, answers = sum(each.tally.flips for each in kinds), sum(each.tally.answers for each in kinds)
        said = f"{flips:,} of {answers:,} would be different"
        if not self.asked.are_all:
            said += f" in {len(kinds):,} kinds of questions, of more that the difference reaches and nobody asked"
        if self.asked.are_all and all(each.is_all for each in kinds):
            return f"{said}: all that either policy gives and the difference reaches"
        said += f", of those that were asked: not all were, see each kind; drawn with seed {self.asked.seed}"
        return f"{said}; some are refused by the new policy" if any(each.is_refused for each in kinds) else said

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
    """Nothing is stored. `PolicyRejected` where the text is no policy."""
    drafted = publishing.draft(text, filename, force=True)
    unused = tuple(unused_signatures(environment_id, drafted.program))
    with Deadline(3 * seconds + _SHORTEST), _sides(environment_id, drafted.program, goals or ()) as sides:
        changed = _changed(*sides)
        until = time.monotonic() + seconds
        if goals is None:
            asked = _asked(sides, changed, seed, until, most)
            flips = [flip for each in asked.kinds for flip in _flips_of(each)]
        else:
            flips, asked = _answered(sides, list(dict.fromkeys(goals)), until)
        if explains:
            flips = _explained(sides, flips, time.monotonic() + seconds)
    gone, added = (_written(each.rule for each in changed if each.is_new == is_new) for is_new in (False, True))
    return Preview(drafted, unused, (gone, added), asked, tuple(flips))


def _written(rules: Iterable[Rule | None]) -> int:
    """How many rules of the text these are."""
    return len({rule.origin for rule in rules if rule is not None} - {NOWHERE})


def goals_of_text(text: str) -> list[Goal]:
    """One a line, as `allow(User:ann, "read", Repo:acme)`; empty lines and those that begin with # do not count."""
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


# ---- questions that the difference reaches ---------------------------------------------------------------------


def _asked(sides: Sides, changed: list[Changed], seed: int, until: float, most: int) -> Asked:
    before, after = sides
    programs = (before.program, after.program)
    kinds, are_all = kinds_of(reached(*programs, [each.head for each in changed]), programs)
    if before.book.number is None:  # then facts of all kinds hold, and only decisions can be compared with a policy's
        kinds = [kind for kind in kinds if kind.is_decision]
    comparison = Comparison(sides, Drawer(sides, changed, seed, until), until, most)
    return Asked(kinds=tuple(comparison.compared(kinds)), are_all=are_all, seed=seed)


def _flips_of(found: Compared) -> Iterator[Flip]:
    yield from (Flip(goal, is_new) for goal, is_new in found.examples)


# ---- questions that are given ------------------------------------------------------------------------------------


def _answered(sides: Sides, goals: list[Goal], until: float) -> tuple[list[Flip], Asked]:
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
    return flips, Asked(given=len(goals), refused=tuple(refused))


def _holds(asked: Snapshot, goal: Goal) -> bool:
    """A predicate that a policy does not have holds for nothing."""
    if goal.predicate not in asked.program.predicates and goal.predicate != DECISION:
        return False
    return asked.holds(question_of(goal))


# ---- explaining --------------------------------------------------------------------------------------------------


def _explained(sides: Sides, flips: list[Flip], until: float) -> list[Flip]:
    """The flips, the first of each kind of question explained, as long as there is time."""
    for each in sides:
        each.patience = until - each.started
    seen: dict[tuple, int] = {}
    found, told = [], 0
    most = max(1, MAX_EXPLAINED // max(1, len({_sort(flip) for flip in flips})))
    for flip in flips:
        seen[_sort(flip)] = seen.get(_sort(flip), 0) + 1
        if seen[_sort(flip)] <= most and told < MAX_EXPLAINED and time.monotonic() < until:
            flip, told = _with_reasons(sides, flip, until), told + 1
        found.append(flip)
    return found


def _sort(flip: Flip) -> tuple:
    """What flips are alike in: names, types and direction."""
    args = ((arg.type, arg.id if arg.type == STRING else "") for arg in flip.goal.args)
    return flip.goal.predicate, flip.is_allowed, *args


def _with_reasons(sides: Sides, flip: Flip, until: float) -> Flip:
    try:
        with run.limited(max(until - time.monotonic(), _SHORTEST)):
            before, after = (explained_goal(each, flip.goal) for each in sides)
    except AuthzError:
        return flip  # what differs is known all the same
    return replace(flip, before=before, after=after)
