"""Plans, made so: what is to go first, of all patterns, since revoking is not to wait for granting.

Each batch is a change of its own, a revision by the author `sync`. Who is interrupted has made the first of them, and
the next comparison finds the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from django.conf import settings

from facts import store
from facts.batches import FactBatch
from facts.store import Deletes, Inserts
from facts.wire import Argument, Pattern
from localsql.binding_keys import BindingKey
from localsql.sync.compare import Plan
from localsql.sync.rows import Ids
from localsql.sync.stored import ended_by_others
from policy.revisions import By

AUTHOR = By("sync")
BATCH = 5_000  # facts of one change: others wait for their turn no longer than it takes


def apply(environment_id: int, plans: Sequence[Plan], tell: Callable[[int], None] = lambda done: None) -> int:
    """The number of revisions that it took."""
    revisions = done = 0
    for count, change in _changes(environment_id, plans):
        store.apply(environment_id, [change], AUTHOR)
        revisions += 1
        done += count
        tell(done)
    return revisions


def _changes(environment_id: int, plans: Sequence[Plan]) -> Iterator[tuple[int, store.Change]]:
    """Each with the number of its facts."""
    for plan in plans:
        for batch in plan.deleted.batches(min(BATCH, settings.MAX_DELETE_MATCHES or BATCH)):
            yield len(batch), Deletes(deleted(plan.pattern.key, batch))
    for plan in plans:
        for batch in plan.added.batches(BATCH):
            ids = _not_ended(environment_id, plan, batch)
            if ids:
                yield len(batch), Inserts(FactBatch(ids={plan.pattern.key.signature: ids}), None)


def _not_ended(environment_id: int, plan: Plan, batch: Iterable[Ids]) -> list[Ids]:
    """The ids of facts, without those that somebody ended since the comparison began: their rows may be gone, too."""
    key = plan.pattern.key
    ended = ended_by_others(environment_id, key, plan.revision, AUTHOR.author)
    every = [whole(key, ids) for ids in batch]
    return [ids for ids in every if ids not in ended] if ended else every


def deleted(key: BindingKey, batch: Iterable[Ids]) -> list[Pattern]:
    types, predicate = key.signature.types, key.signature.predicate
    return [
        Pattern(predicate, tuple([Argument(name, text) for name, text in zip(types, whole(key, ids))]))
        for ids in batch
    ]


def whole(key: BindingKey, ids: Ids) -> tuple[str, ...]:
    """The ids of all arguments."""
    left = iter(ids)
    return tuple([next(left) if constant is None else constant for constant in key.constants])
