"""Writers of one environment that wait in the same process share a transaction: one turn, one commit, for all of them.

Whoever comes first leads. Once it has the environment's row, it takes all that wait by then, files what they bring in
the order in which they came, each with an offset of its own, and commits; each gets its own answer, after the commit.
Whoever is refused (by its key, or by the policy) is left out before anything of it is filed.

Only small changes of known rows come together. What may take long or match without limit has a transaction of its own,
and so has each of a group whose common transaction fails for a reason that may be one writer's alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from threading import Event, Lock

from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction

from facts import store
from facts.accept import check_facts
from facts.models import Row
from facts.store import Change, Deletes, Inserts, is_exact
from facts.table import fact_table
from policy.active import Caller, caller_of_hash, confirm, program_of_version
from policy.errors import AuthzError, Busy, Unavailable
from policy.offsets import Turn, advance, changing, claim
from policy.rules.program import Program
from policy.waiting import come_back, leave_place

SMALL = 100  # facts and patterns of a change that may share
MOST = 100  # writers of one commit


def apply(caller: Caller, changes: Sequence[Change]) -> int:
    """Make the changes, all or none, as the holder of the caller's key; the offset at which they are committed."""
    if not _may_share(changes):
        return _apply_alone(caller, changes)
    writer = _Writer(caller, changes)
    queue = _enter(caller.environment_id, writer)
    if not writer.leads:
        leave_place()
        queue.wait(writer)
        if writer.leads or writer.is_alone:
            come_back()
    if writer.leads:
        _lead(queue, writer)
    if writer.is_alone:
        return _apply_alone(caller, changes)
    if writer.error is not None:
        raise writer.error
    return writer.offset


def _may_share(changes: Sequence[Change]) -> bool:
    entries, deletes = 0, 0
    for change in changes:
        match change:
            case Inserts(facts):
                entries += len(facts)
            case Deletes(patterns):
                deletes += len(patterns)
                if not all(map(is_exact, patterns)):
                    return False
    limit = settings.MAX_DELETE_MATCHES
    return entries + deletes <= SMALL and (not limit or deletes <= limit)


def _apply_alone(caller: Caller, changes: Sequence[Change]) -> int:
    with changing():
        return store.apply(confirm(caller).environment_id, changes).offset


# ---- waiting -----------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Writer:
    """A change that waits, and what became of it: an offset, an error, or that it is to be made alone."""

    caller: Caller
    changes: Sequence[Change]
    since: float = field(default_factory=time.monotonic)
    woken: Event = field(default_factory=Event)
    leads: bool = False
    is_alone: bool = False
    offset: int = 0
    error: Exception | None = None

    @property
    def is_decided(self) -> bool:
        return bool(self.is_alone or self.offset or self.error)


class _Queue:
    """Writers of one environment. The first that waits leads, and as long as somebody does, the others wait."""

    def __init__(self, environment_id: int):
        self.environment_id = environment_id
        self.waiting: list[_Writer] = []
        self.lock = Lock()

    def wait(self, writer: _Writer) -> None:
        """Until it is decided or leads; `Busy` is raised where it waits for too long."""
        if writer.woken.wait(settings.WRITE_TIMEOUT or None):
            return
        with _entering:
            if writer in self.waiting and not writer.leads:
                self.waiting.remove(writer)
                raise Busy(settings.WRITE_TIMEOUT)
        writer.woken.wait()  # a group that is at work has it: what becomes of that is what becomes of it

    def take(self) -> list[_Writer]:
        """All that wait, its leader first."""
        with _entering:
            taken = self.waiting[:MOST]
            del self.waiting[:MOST]
        return taken

    def hand_on(self, leader: _Writer) -> None:
        """To whoever has waited for longest."""
        with _entering:
            if leader in self.waiting:
                self.waiting.remove(leader)
            if self.waiting:
                self.waiting[0].leads = True
                self.waiting[0].woken.set()
            else:
                del _queues[self.environment_id]


_queues: dict[int, _Queue] = {}  # by environment, of those that have a leader
_entering = Lock()


def _enter(environment_id: int, writer: _Writer) -> _Queue:
    with _entering:
        queue = _queues.get(environment_id)
        if queue is None:
            queue = _queues[environment_id] = _Queue(environment_id)
            writer.leads = True
        queue.waiting.append(writer)
    return queue


# ---- writing -----------------------------------------------------------------------------------------------------


class _Nothing(Exception):
    """Nobody of a group had anything that is accepted: its turn is given back."""


def _lead(queue: _Queue, leader: _Writer) -> None:
    group: list[_Writer] = []
    try:
        with changing():
            turn = advance(queue.environment_id)
            group = queue.take()
            _write(queue.environment_id, turn, group)
    except _Nothing:
        pass
    except Exception as error:
        if not group:
            raise
        if isinstance(error, (OperationalError, InterfaceError, Unavailable)):
            for each in group:
                each.error = each.error or _told_again(error)
    finally:
        queue.hand_on(leader)
        for each in group:
            each.is_alone = not each.is_decided
            each.woken.set()


def _write(environment_id: int, turn: Turn, group: Sequence[_Writer]) -> None:
    """All that is accepted of the group, in its order."""
    for each in group:
        each.error = None
    _refuse_keys(environment_id, group)
    program = program_of_version(turn.policy_version_id)
    accepted = [each for each in group if not each.is_decided and _is_accepted(program, each)]
    if not accepted:
        raise _Nothing
    claim(environment_id, len(accepted) - 1)
    inserted = 0
    changes = [change for each in accepted for change in each.changes]
    for kind, run in groupby(changes, type):
        if kind is Inserts:
            inserted += _insert(environment_id, run)
        else:
            store.delete_exactly(environment_id, [pattern for change in run for pattern in change.patterns])
    # What is committed is told before the statistics are looked at.
    transaction.on_commit(partial(_tell, accepted, turn.offset))
    fact_table().note_stored(inserted)


def _tell(writers: Iterable[_Writer], first: int) -> None:
    for offset, each in enumerate(writers, first):
        each.offset = offset
        if not each.leads:
            each.woken.set()


def _refuse_keys(environment_id: int, group: Sequence[_Writer]) -> None:
    """As the database has them now. Who turns out to belong elsewhere goes there alone."""
    for key_hash in {each.caller.key_hash for each in group}:
        refusal, is_alone = None, False
        try:
            is_alone = caller_of_hash(key_hash).environment_id != environment_id
        except AuthzError as error:
            refusal = error
        for each in group:
            if each.caller.key_hash == key_hash:
                each.error, each.is_alone = refusal, is_alone


def _is_accepted(program: Program | None, writer: _Writer) -> bool:
    try:
        for change in writer.changes:
            if isinstance(change, Inserts):
                check_facts(program, change.facts, change.path)
    except AuthzError as error:
        writer.error = error
    return writer.error is None


def _insert(environment_id: int, run: Iterable[Inserts]) -> int:
    rows: dict[Row, None] = {}
    for change in run:
        rows |= dict.fromkeys(store.rows_of_facts(environment_id, change.facts))
    return fact_table().insert(list(rows)) if rows else 0


def _told_again(error: Exception) -> Exception:
    """For another thread: an exception that is raised remembers where."""
    copied = type(error)(*error.args)
    copied.__cause__ = error.__cause__
    return copied
