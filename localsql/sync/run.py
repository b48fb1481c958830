"""Run a sync over all patterns: compare, report, and apply the differences."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from facts import store
from facts.accept import FactRejected, UnknownName, UnknownNames, check_signature
from facts.store import Deletes, EndsStay, Inserts
from facts.wire import Argument, Fact, FactBatch, FactPattern
from localsql.binding_keys import BindingKey
from localsql.sync.compare import (
    OnProgress,
    PatternPart,
    RowIds,
    Spill,
    Spills,
    SyncPlan,
    compared,
    ended_by_others,
    without_rows,
)
from localsql.sync.config import Config, PatternRefused, SourceFailed, SyncPattern, shown
from policy.active import active_program
from policy.core.config import settings
from policy.core.journal import By
from policy.errors import AuthzError
from policy.rules.program import Program
from policy.rules.signatures import PLACE
from policy.values import Value

# ---- apply --------------------------------------------------------------------------------------------------------
# Applies plans: first the deletions of all patterns, so that revoking does not wait for granting.
#
# Each batch is a transaction and a revision of its own, by the author `sync`. If a run is interrupted, its first
# batches are committed, and the next comparison finds the rest.

AUTHOR = By("sync")
BATCH = 5_000  # facts per change, which bounds how long other writers wait


class _NothingLeft(Exception):
    """Nothing is left of a batch to store, so it makes no revision."""


@dataclass
class Applying:
    """Applies plans in batches."""

    environment_id: int
    on_progress: Callable[[int], None] = lambda done: None
    revisions: list[int] = field(default_factory=list)  # that it made
    rejected: list[tuple[SyncPlan, FactRejected]] = field(default_factory=list)
    done: int = 0  # facts

    def apply(self, plans: Sequence[SyncPlan]) -> None:
        """Apply the plans. A plan whose facts a newer policy doesn't use goes to `rejected`."""
        for plan in plans:
            self.delete(plan.pattern.key, plan.deleted)
        for plan in plans:
            try:
                for batch in plan.added.batches(BATCH):
                    self._insert(plan, batch)
            except FactRejected as error:
                self.rejected.append((plan, error))

    def delete(self, key: BindingKey, part: PatternPart) -> None:
        for batch in part.batches(min(BATCH, settings.MAX_DELETE_MATCHES or BATCH)):
            self._change([Deletes(deleted(key, batch))])
            self._count(len(batch))

    def _insert(self, plan: SyncPlan, batch: Sequence[RowIds]) -> None:
        """Store a batch, except facts that were stored with an expiry meanwhile: these are left unchanged."""
        others: set[tuple[str, ...]] = set()
        while True:
            try:
                self._change(self._inserts(plan, batch, others))
            except _NothingLeft:
                pass
            except EndsStay as error:
                arity = len(plan.pattern.key.constants)
                others |= {tuple(str(each) for each in row[1 : 1 + arity]) for row in error.rows}
                continue
            break
        self._count(len(batch))

    def _inserts(self, plan: SyncPlan, batch: Iterable[RowIds], others: set[tuple[str, ...]]) -> Iterator[store.Change]:
        """Yield the change that stores the batch; this runs in its transaction, which locks the environment.

        So no fact can be ended between this check and the commit. Facts ended by others since the comparison began are
        left out, because their rows may be gone, too.
        """
        key = plan.pattern.key
        left_out = others | ended_by_others(self.environment_id, key, plan.revision, self.revisions)
        ids = [each for each in (whole(key, ids) for ids in batch) if each not in left_out]
        if not ids:
            raise _NothingLeft
        yield Inserts(FactBatch(ids={key.signature: ids}), None, ends_stay=True)

    def _change(self, changes: Iterable[store.Change]) -> None:
        self.revisions.append(store.apply(self.environment_id, changes, AUTHOR).offset)

    def _count(self, count: int) -> None:
        self.done += count
        self.on_progress(self.done)


def deleted(key: BindingKey, batch: Iterable[RowIds]) -> list[FactPattern]:
    types, predicate = key.signature.types, key.signature.predicate
    return [
        FactPattern(predicate, tuple([Argument(name, text) for name, text in zip(types, whole(key, ids))]))
        for ids in batch
    ]


def whole(key: BindingKey, ids: RowIds) -> tuple[str, ...]:
    """Return all arguments: the values of the variables, with the key's constants in their places.

    has_role(User:_, admin, Org:_) and ('alice', 'acme')  ->  ('alice', 'admin', 'acme')
    """
    left = iter(ids)
    return tuple([next(left) if constant is None else constant for constant in key.constants])


# ---- run ----------------------------------------------------------------------------------------------------------
# One run over all patterns: compare, and optionally apply. An error in one pattern does not affect the others.

FEW = 10  # facts that may always be deleted, if some row of the source is a fact


@dataclass(frozen=True, slots=True)
class MostDeletes:
    """How many of a pattern's facts may be deleted at once: a number, or a share."""

    number: int | None = None
    percent: float = 10
    is_said: bool = False  # by the user, not the default

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
        raise ArgumentTypeError(f"`{text}` is not a share such as 10%, or a number of facts")
    return MostDeletes(percent=float(found[1]), is_said=True) if found[1] else MostDeletes(int(found[2]), is_said=True)


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """The options of a run."""

    applies: bool = False
    most_deletes: MostDeletes = MostDeletes()
    skips_bad: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """A pattern that was left unchanged, with the reason; `may_pass` if a retry may work."""

    pattern: SyncPattern
    reason: str
    may_pass: bool = False


@dataclass(frozen=True)
class Passed:
    """The results of a run, and whether they were applied."""

    plans: tuple[SyncPlan, ...]
    failed: tuple[Failed, ...]
    unknown: tuple[UnknownName, ...] = ()  # roles and relations that the policy does not declare
    revisions: int = 0
    taken_back: int = 0  # facts that were deleted again, because their rows were gone by then
    is_applied: bool = False

    @property
    def is_in_step(self) -> bool:
        return not self.failed and (self.is_applied or all(plan.is_in_step for plan in self.plans))


class ProgressListener(Protocol):
    """Receives progress and results of a run."""

    def begin(self, pattern: SyncPattern, place: int) -> OnProgress: ...
    def compared(self, plan: SyncPlan) -> None: ...
    def failed(self, failed: Failed) -> None: ...
    def applying(self, changes: int) -> Callable[[int], None]: ...


def passed(environment_id: int, config: Config, wanted: SyncOptions, listener: ProgressListener) -> Passed:
    program = active_program(environment_id)
    plans: list[SyncPlan] = []
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
    applying: Applying, plan: SyncPlan, spills: Spills, failures: list[Failed], listener: ProgressListener
) -> int:
    """Delete the newly stored facts whose rows no longer exist; return how many."""
    if not plan.added.count:
        return 0
    try:
        gone = without_rows(plan, spills.deleted)
    except (AuthzError, SourceFailed) as error:
        reason = f"facts were stored, but their rows could not be checked again: {error.message}"
        failures.append(Failed(plan.pattern, reason, isinstance(error, SourceFailed)))
        listener.failed(failures[-1])
        return 0
    applying.delete(plan.pattern.key, gone)
    return gone.count


def _planned(
    environment_id: int,
    program: Program | None,
    pattern: SyncPattern,
    spills: Spills,
    wanted: SyncOptions,
    on_progress: OnProgress,
) -> SyncPlan:
    if program is not None:
        check_signature(program, pattern.key.signature)
    return compared(environment_id, pattern, spills, wanted.skips_bad, on_progress)


def _unknown(program: Program | None, plans: list[SyncPlan]) -> tuple[UnknownName, ...]:
    """Return the roles and relations in added facts that the policy does not declare."""
    names = UnknownNames(program)
    for plan in plans:
        key = plan.pattern.key
        if plan.added.count and names.concern(key.signature):
            for batch in plan.added.batches(BATCH):
                names.take(key.signature, [whole(key, ids)[PLACE] for ids in batch])
    return tuple(names.unknown_names)


def _check(plan: SyncPlan, wanted: SyncOptions) -> None:
    """Refuse a plan that is most likely caused by a mistake in the source."""
    if plan.read.bad_count and not wanted.skips_bad:
        raise PatternRefused(f"{plan.read.sentence}\nCorrect these rows, or skip them with --skip-bad.")
    deleted, stored = plan.deleted.count, plan.stored
    has_rows = plan.read.has_facts
    if wanted.applies and not wanted.most_deletes.allows(deleted, stored, has_rows):
        empty = "" if has_rows else f"; the source has no {'valid ' if plan.read.rows else ''}rows"
        raise PatternRefused(
            f"{deleted:,} of {stored:,} facts would be deleted, more than --max-deletes {wanted.most_deletes}"
            f" allows{empty}. If this is intended, pass --max-deletes 100%."
        )


@contextmanager
def _spills() -> Iterator[Spills]:
    spills = Spills(Spill(), Spill())
    try:
        yield spills
    finally:
        spills.added.close()
        spills.deleted.close()


# ---- messages about a run -----------------------------------------------------------------------------------------

MINUS = "\N{MINUS SIGN}"


def lines_of(plan: SyncPlan) -> Iterator[str]:
    """Yield the pattern with its counts, and examples of facts to add (`+`) and to delete (minus)."""
    yield f"{plan.pattern}  {plan.added.count:,} to add, {plan.deleted.count:,} to delete, {plan.equal:,} unchanged"
    yield from _examples(plan.pattern.key, "+", plan.added)
    yield from _examples(plan.pattern.key, MINUS, plan.deleted)
    if plan.read.nulls:
        yield f"  {_rows(plan.read.nulls)} with a NULL, ignored"
    if plan.read.bad_count and plan.read.skips_bad:
        yield f"  skipped {plan.read.sentence}"


def _examples(key: BindingKey, sign: str, part: PatternPart) -> Iterator[str]:
    for ids in part.examples:
        yield f"  {sign} {shown(fact_of(key, ids).noted)}"
    if part.count > len(part.examples):
        yield f"  {sign} … and {part.count - len(part.examples):,} more"


def fact_of(key: BindingKey, ids: RowIds) -> Fact:
    signature = key.signature
    return Fact(signature.predicate, tuple([Value(*each) for each in zip(signature.types, whole(key, ids))]))


def summary(found: Passed) -> str:
    added = sum(plan.added.count for plan in found.plans)
    deleted = sum(plan.deleted.count for plan in found.plans)
    equal = sum(plan.equal for plan in found.plans)
    if not (added or deleted):
        said = f"{equal:,} fact{'' if equal == 1 else 's'} in sync"
    elif found.is_applied:
        back = f" ({found.taken_back:,} of them deleted again, as their rows were deleted)" if found.taken_back else ""
        revisions = f"{found.revisions:,} revision{'' if found.revisions == 1 else 's'}"
        said = f"{added:,} added{back}, {deleted:,} deleted, {equal:,} unchanged, in {revisions}"
    else:
        said = f"{added:,} to add, {deleted:,} to delete, {equal:,} unchanged; run with --apply to apply them"
    return said if not found.failed else f"{said}; {len(found.failed)} of {_patterns(found)} failed"


def _patterns(found: Passed) -> str:
    number = len({str(each.pattern) for each in found.plans} | {str(each.pattern) for each in found.failed})
    return f"{number} pattern{'' if number == 1 else 's'}"


def _rows(number: int) -> str:
    return f"{number:,} row{'' if number == 1 else 's'}"
