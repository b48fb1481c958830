"""One pass over all patterns: compare, and, if wanted, apply. An error in one pattern leaves the others alone."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from facts.accept import check_signature
from facts.names import Names, UnknownName
from localsql.sync.apply import BATCH, Applying, whole
from localsql.sync.compare import OnProgress, Plan, Spills, compared
from localsql.sync.config import Config, Pattern
from localsql.sync.errors import PatternRefused, SourceFailed
from localsql.sync.second_look import without_rows
from localsql.sync.spill import Spill
from policy.active import active_program
from policy.errors import AuthzError
from policy.rules.known_names import PLACE
from policy.rules.program import Program

FEW = 10  # facts that may always go, if some row of the source is a fact


@dataclass(frozen=True, slots=True)
class MostDeletes:
    """How many of a pattern's facts may go at once: a number, or a share of them."""

    number: int | None = None
    percent: float = 10
    is_said: bool = False  # by the user, and not as our default

    def allows(self, deleted: int, stored: int, has_rows: bool) -> bool:
        if not deleted:
            return True
        if not (has_rows or self.is_said):
            return False
        if self.number is not None:
            return deleted <= self.number
        return (has_rows and deleted <= FEW) or deleted <= stored * self.percent / 100

    def __str__(self) -> str:
        return f"{self.percent:g}%" if self.number is None else f"{self.number:,}"


def most_deletes(text: str) -> MostDeletes:
    """Parse `10%`, or a number of facts."""
    found = re.fullmatch(r"([0-9]{1,3}(?:\.[0-9]{1,3})?)%|([0-9]{1,12})", text, re.ASCII)
    if not found or (found[1] and float(found[1]) > 100):
        raise ArgumentTypeError(f"`{text}` is neither a share such as 10% nor a number of facts")
    return MostDeletes(percent=float(found[1]), is_said=True) if found[1] else MostDeletes(int(found[2]), is_said=True)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of a pass."""

    applies: bool = False
    most_deletes: MostDeletes = MostDeletes()
    skips_bad: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """A pattern that is left as it is, and why; `may_pass` if a retry may work."""

    pattern: Pattern
    reason: str
    may_pass: bool = False


@dataclass(frozen=True)
class Passed:
    """What a pass found, and whether that was applied."""

    plans: tuple[Plan, ...]
    failed: tuple[Failed, ...]
    unknown: tuple[UnknownName, ...] = ()  # roles and relations that the policy does not know
    revisions: int = 0
    taken_back: int = 0  # facts that were deleted again, as their rows were gone by then
    is_applied: bool = False

    @property
    def is_in_step(self) -> bool:
        return not self.failed and (self.is_applied or all(plan.is_in_step for plan in self.plans))


class ProgressListener(Protocol):
    """Receives how far a pass is, and what it found."""

    def begin(self, pattern: Pattern, place: int) -> OnProgress: ...
    def compared(self, plan: Plan) -> None: ...
    def failed(self, failed: Failed) -> None: ...
    def applying(self, changes: int) -> Callable[[int], None]: ...


def passed(environment_id: int, config: Config, wanted: Wanted, listener: ProgressListener) -> Passed:
    program = active_program(environment_id)
    plans: list[Plan] = []
    failures: list[Failed] = []
    with _spills() as spills:
        for place, pattern in enumerate(config.patterns):
            on_progress = listener.begin(pattern, place)
            try:
                plan = _planned(environment_id, program, pattern, spills, wanted, on_progress)
                plans.append(plan)
                listener.compared(plan)
                _check(plan, wanted)
            except (AuthzError, SourceFailed) as error:
                if plans and plans[-1].pattern is pattern:
                    plans.pop()
                failures.append(Failed(pattern, error.message, isinstance(error, SourceFailed)))
                listener.failed(failures[-1])
        unknown = _unknown(program, plans)
        revisions = taken_back = 0
        changes = sum(plan.added.count + plan.deleted.count for plan in plans)
        if wanted.applies and changes:
            applying = Applying(environment_id, listener.applying(changes))
            applying.apply(plans)
            taken_back = sum(_taken_back(applying, plan, spills, failures, listener) for plan in plans)
            for plan, rejection in applying.rejected:
                plans.remove(plan)
                failures.append(Failed(plan.pattern, rejection.message))
                listener.failed(failures[-1])
            revisions = len(applying.revisions)
    return Passed(tuple(plans), tuple(failures), unknown, revisions, taken_back, wanted.applies)


def _taken_back(
    applying: Applying, plan: Plan, spills: Spills, failures: list[Failed], listener: ProgressListener
) -> int:
    """Delete the facts that were just stored and have no row any more; return how many."""
    if not plan.added.count:
        return 0
    try:
        gone = without_rows(plan, spills.deleted)
    except (AuthzError, SourceFailed) as error:
        reason = f"facts are stored, and whether their rows are still there could not be seen: {error.message}"
        failures.append(Failed(plan.pattern, reason, isinstance(error, SourceFailed)))
        listener.failed(failures[-1])
        return 0
    applying.delete(plan.pattern.key, gone)
    return gone.count


def _planned(
    environment_id: int,
    program: Program | None,
    pattern: Pattern,
    spills: Spills,
    wanted: Wanted,
    on_progress: OnProgress,
) -> Plan:
    if program is not None:
        check_signature(program, pattern.key.signature)
    return compared(environment_id, pattern, spills, wanted.skips_bad, on_progress)


def _unknown(program: Program | None, plans: list[Plan]) -> tuple[UnknownName, ...]:
    """Return the roles and relations that the policy does not know, among the facts that are to be added."""
    names = Names(program)
    for plan in plans:
        key = plan.pattern.key
        if plan.added.count and names.concern(key.signature):
            for batch in plan.added.batches(BATCH):
                names.take(key.signature, [whole(key, ids)[PLACE] for ids in batch])
    return tuple(names.unknown_names)


def _check(plan: Plan, wanted: Wanted) -> None:
    """Refuse a plan that is most likely due to a mistake in the source."""
    if plan.read.bad_count and not wanted.skips_bad:
        raise PatternRefused(f"{plan.read.sentence}\ncorrect them, or leave them out with --skip-bad")
    deleted, stored = plan.deleted.count, plan.stored
    has_rows = plan.read.has_facts
    if wanted.applies and not wanted.most_deletes.allows(deleted, stored, has_rows):
        empty = "" if has_rows else "; its source has no rows" if not plan.read.rows else "; no row of it is a fact"
        raise PatternRefused(
            f"{deleted:,} of {stored:,} facts would be deleted, more than --max-deletes {wanted.most_deletes}"
            f" allows{empty}; if that is right, say so with --max-deletes 100%"
        )


@contextmanager
def _spills() -> Iterator[Spills]:
    spills = Spills(Spill(), Spill())
    try:
        yield spills
    finally:
        spills.added.close()
        spills.deleted.close()
