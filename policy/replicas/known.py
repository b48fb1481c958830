"""What this process knows of the primary. An answer of a replica that is older does not count.

Of an environment, it knows the latest revision that exists for certain: by a change that was made here, an answer of
the primary, or a look at the primary. Of a key, it knows a position in the primary's log at which its row was already
as it is now. A position that a caller sends in a header counts for that request only; for others, it counts once a
database has confirmed it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from math import inf
from threading import Lock
from typing import NamedTuple

from policy.active import Seen

FORGET_AFTER = 600.0  # seconds without a question: a key is not looked at any more
MOST_KEYS = 10_000


class KeyRow(NamedTuple):
    """What the primary says of a key."""

    version: int  # another one after each change of the key
    environment_id: int
    seen: Seen


class Look(NamedTuple):
    """What the primary says at one time."""

    started: float  # by `monotonic`
    timeline: int
    position: int  # in its log, after all that is committed by then
    keys: Mapping[str, KeyRow]  # by hash, of those that were asked for and are there


class _Mark(NamedTuple):
    version: int | None  # None: there is no such key
    position: int  # what a replica must have replayed to have the key in this version


class Known:
    def __init__(self) -> None:
        self.timeline = 0  # of all that is known
        self.looked_at = -inf
        self._lock = Lock()
        self._environments: dict[int, Seen] = {}
        self._marks: dict[str, _Mark] = {}
        self._wanted: dict[str, float] = {}  # by key: when the last question with it came

    # ---- what is asked ---------------------------------------------------------------------------------------

    def position_of_key(self, key_hash: str) -> int | None:
        """Return what a replica must have replayed to be asked with this key; None if it is not known yet.

        The next look at the primary asks for the key, too.
        """
        if key_hash not in self._wanted and len(self._wanted) >= MOST_KEYS:
            return None
        self._wanted[key_hash] = time.monotonic()
        mark = self._marks.get(key_hash)
        return None if mark is None or mark.version is None else mark.position

    def takes(self, environment_id: int, least: int, seen: Seen) -> bool:
        """Say whether an answer from the snapshot `seen` is as new as what is known, and as `least`.

        At the very offset that is known, its moment must be the known one, too.
        """
        known = self._environments.get(environment_id)
        if known is None or seen.offset < max(least, known.offset):
            return False
        return seen.offset > known.offset or known.moment is None or seen.moment == known.moment

    @property
    def wanted(self) -> list[str]:
        return list(self._wanted)

    # ---- what is learned -------------------------------------------------------------------------------------

    def learn(self, environment_id: int, seen: Seen) -> None:
        """Note that an environment is at least so far."""
        with self._lock:
            self._learn(environment_id, seen)

    def look(self, look: Look, asked: Iterable[str]) -> None:
        """Note what the primary says of the keys that it was `asked` for, and their environments.

        A look on an older timeline is ignored; one on a newer timeline first clears all that is known.
        """
        with self._lock:
            if look.timeline < self.timeline:
                return
            if look.timeline != self.timeline:
                self._forget()
                self.timeline = look.timeline
            for key_hash in asked:
                row = look.keys.get(key_hash)
                version = None if row is None else row.version
                mark = self._marks.get(key_hash)
                if mark is None or mark.version != version:
                    self._marks[key_hash] = _Mark(version, look.position)
                if row is not None:
                    self._learn(row.environment_id, row.seen)
            self.looked_at = look.started
            self._drop_unused(look.started - FORGET_AFTER)

    def forget(self) -> None:
        """Forget all, because another server has taken over."""
        with self._lock:
            self._forget()

    def _learn(self, environment_id: int, seen: Seen) -> None:
        known = self._environments.get(environment_id)
        if known is None or seen.offset > known.offset or (seen.offset == known.offset and seen.moment is not None):
            self._environments[environment_id] = seen

    def _forget(self) -> None:
        self._environments.clear()
        self._marks.clear()
        self.looked_at = -inf

    def _drop_unused(self, before: float) -> None:
        for key_hash in [each for each, last in self._wanted.copy().items() if last < before]:
            self._wanted.pop(key_hash, None)
            self._marks.pop(key_hash, None)
