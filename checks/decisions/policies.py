"""What another policy would have answered to lines of the log, and which of its rules make the difference.

    "read" if "reader";  ->  gone, and with it 12 answers

An answer that differs is explained by both policies. The rule that makes the difference is the first one that only one
of the policies has: in the proof by the policy that allows, or else among the obstacles by the one that does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from checks.asking.snapshot import Snapshot, UnpublishedProgram, snapshot, trial
from checks.compare.differences import Given, differing
from checks.compare.preview import Flip, Sides, changes_between
from checks.decisions.lines import Line
from checks.decisions.replay import NotAsked, check_can_be_asked, given_for, moment_of_line
from checks.errors import UnknownPredicate
from checks.explain.cases import Goal
from checks.explain.explain import ExplainedGoal, explain_goal
from checks.explain.tree import Reason, RuleText, rule_text, shown_atom
from policy.active import program_of_version
from policy.errors import AuthzError
from policy.models import PolicyVersion
from policy.publishing import active_version
from policy.rules.program import Program


class Change(NamedTuple):
    """What makes a difference: a rule that only one of the policies has. `rule` is None if it could not be found."""

    is_new: bool
    rule: RuleText | None


NO_RULE = Change(True, None)


class Changes(NamedTuple):
    """The rules that would go, and those that would come, as the texts have them."""

    gone: frozenset[RuleText]
    new: frozenset[RuleText]


@dataclass(frozen=True, slots=True)
class Difference:
    """A line whose answer would change, with explanations by both policies, and the rule that makes the difference."""

    line: Line
    flip: Flip
    change: Change


class OtherPolicy:
    """A policy that is not published, to be compared with the published ones."""

    def __init__(self, program: Program):
        self._unpublished = UnpublishedProgram.of(program)
        self._changes: dict[int | None, Changes] = {}

    def differences(self, line: Line, is_now: bool = False) -> list[Difference]:
        """Ask both policies what the line asked, and return what differs; raise `NotAsked` where they cannot be."""
        check_can_be_asked(line, is_now)
        version = _version_now(line) if is_now else _version_then(line)
        try:
            before, after = (
                given_for(line, each) for each in (program_of_version(version), self._unpublished.cases.program)
            )
        except AuthzError as reason:
            raise NotAsked(reason.message) from None
        try:
            with self._sides(line, version, (before, after), is_now) as sides:
                flips = [Flip(goal, is_new) for goal, is_new in differing(sides, before)]
                return [self._explained(line, flip, sides, version) for flip in flips]
        except AuthzError as reason:
            raise NotAsked(f"one of the policies refuses it: {reason.message}") from None

    @contextmanager
    def _sides(self, line: Line, version: int | None, given: tuple[Given, Given], is_now: bool) -> Iterator[Sides]:
        """Open one snapshot, of the facts of the line's revision or of now, with a session by each of the policies."""
        old, new = given
        types = frozenset(old.types)
        moment = None if is_now else moment_of_line(line)
        with (
            snapshot(line.environment, version, old.context, types, moment) as before,
            trial(line.environment, self._unpublished, new.context, moment) as after,
        ):
            yield before, after

    def _explained(self, line: Line, flip: Flip, sides: Sides, version: int | None) -> Difference:
        before, after = (_explained(session, flip.goal) for session in sides)
        flip = replace(flip, before=before, after=after)
        return Difference(line, flip, _change(flip, self._changes_from(version, sides)))

    def _changes_from(self, version: int | None, sides: Sides) -> Changes:
        """Return the rules that differ, found once for each version."""
        if version not in self._changes:
            found = [(each.is_new, each.rule) for each in changes_between(*sides) if each.rule is not None]
            gone, new = (
                frozenset(rule_text(session.program, rule) for is_new, rule in found if is_new == side)
                for side, session in zip((False, True), sides)
            )
            self._changes[version] = Changes(gone, new)
        return self._changes[version]


def _explained(session: Snapshot, goal: Goal) -> ExplainedGoal:
    try:
        return explain_goal(session, goal)
    except UnknownPredicate as reason:
        return ExplainedGoal(shown_atom(goal.predicate, goal.args), False, note=reason.message)


def _change(flip: Flip, changes: Changes) -> Change:
    """Return the first rule that differs: in the proof by the policy that allows, else in the other's obstacles."""
    assert flip.before and flip.after, "both sides are explained"
    gives, lacks = (flip.after, flip.before) if flip.is_allowed else (flip.before, flip.after)
    for goal, is_new in ((gives, flip.is_allowed), (lacks, not flip.is_allowed)):
        for reason in goal.reasons:
            found = next((each for each in _rules_in(reason) if each in changes[is_new]), None)
            if found is not None:
                return Change(is_new, found)
    return NO_RULE


def _rules_in(reason: Reason) -> Iterator[RuleText]:
    for _, each in reason.lines():
        if each.rule is not None:
            yield each.rule


def _version_now(line: Line) -> int | None:
    active = active_version(line.environment)
    return active.pk if active else None


@lru_cache(maxsize=1_000)
def _version_numbered(environment_id: int, number: int) -> int | None:
    found = PolicyVersion.objects.filter(environment=environment_id, number=number)
    return found.values_list("pk", flat=True).first()


def _version_then(line: Line) -> int | None:
    if line.policy_version is None:
        return None
    version = _version_numbered(line.environment, line.policy_version)
    if version is None:
        raise NotAsked(f"there is no policy version {line.policy_version}")
    return version
