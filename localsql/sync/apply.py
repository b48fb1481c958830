"""Applies plans: first the deletions of all patterns, since revoking must not wait for granting.

Each batch is a transaction and a revision of its own, by the author `sync`. If a pass is interrupted, its first batches
are made, and the next comparison finds the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from django.conf import settings

from facts import store
from facts.accept import FactRejected
from facts.batches import FactBatch
from facts.ends import EndsStay
from facts.store import Deletes, Inserts
from facts.wire import Argument, FactPattern
from localsql.binding_keys import BindingKey
from localsql.sync.compare import Plan
from localsql.sync.rows import Ids
from localsql.sync.spill import Part
from localsql.sync.stored import ended_by_others
from policy.revisions import By

AUTHOR = By("sync")
BATCH = 5_000  # facts of one change: other writers wait no longer than it takes


class _NothingLeft(Exception):
    """Nothing of a batch is left to be stored, so that it makes no revision."""


@dataclass
class Applying:
    """Applies plans, batch by batch."""

    environment_id: int
    on_progress: Callable[[int], None] = lambda done: None
    revisions: list[int] = field(default_factory=list)  # the numbers of those that it made
    rejected: list[tuple[Plan, FactRejected]] = field(default_factory=list)
    done: int = 0  # facts

    def apply(self, plans: Sequence[Plan]) -> None:
        """Apply the plans. A plan whose facts a newer policy has no use for is put aside, with what was rejected."""
        for plan in plans:
            self.delete(plan.pattern.key, plan.deleted)
        for plan in plans:
            try:
                for batch in plan.added.batches(BATCH):
                    self._insert(plan, batch)
            except FactRejected as error:
                self.rejected.append((plan, error))

    def delete(self, key: BindingKey, part: Part) -> None:
        for batch in part.batches(min(BATCH, settings.MAX_DELETE_MATCHES or BATCH)):
            self._change([Deletes(deleted(key, batch))])
            self._count(len(batch))

    def _insert(self, plan: Plan, batch: Sequence[Ids]) -> None:
        """Store a batch, except facts that somebody stored with an end meanwhile: these stay, and keep it."""
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

    def _inserts(self, plan: Plan, batch: Iterable[Ids], others: set[tuple[str, ...]]) -> Iterator[store.Change]:
        """Yield the change that stores the batch; this runs in its transaction, which holds the environment's turn.

        So nobody ends a fact between this look and the commit. Facts that somebody ended since the comparison began are
        left out: their rows may be gone, too.
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


def deleted(key: BindingKey, batch: Iterable[Ids]) -> list[FactPattern]:
    types, predicate = key.signature.types, key.signature.predicate
    return [
        FactPattern(predicate, tuple([Argument(name, text) for name, text in zip(types, whole(key, ids))]))
        for ids in batch
    ]


def whole(key: BindingKey, ids: Ids) -> tuple[str, ...]:
    """Return the ids of all arguments: those of the variables, with the key's constants in their places.

    has_role(User:_, admin, Org:_) and ('alice', 'acme')  ->  ('alice', 'admin', 'acme')
    """
    left = iter(ids)
    return tuple([next(left) if constant is None else constant for constant in key.constants])
