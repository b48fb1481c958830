"""On which day a key was last used: written down once a day for each key, by a thread that no request waits for.

If the write fails, because the lock is held for too long or the database is away, the thread tries again later. What is
still unwritten when the process ends is lost, which does no harm: the day is only shown to people.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime

from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.models import Q

from authz_project.database import let_go_if_broken
from authz_project.models import ApiKey
from policy.errors import Unavailable
from policy.ground.clock import now, time_of
from policy.ground.journal import changing

log = logging.getLogger("authz.keys")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 60.0  # seconds between a failure and the next attempt
AT_ONCE = 500  # keys in a statement
_DAY = 86_400  # seconds
_MOST = 10_000  # keys

_noted: dict[str, int] = {}  # hash -> the day that is written down, or about to be
_waiting: set[str] = set()  # hashes whose day is still to be written
_lock = threading.Lock()  # of what waits, and of whether there is a thread for it
_is_writing = False


def note_use(key_hash: str) -> None:
    """Queue a write of today as the key's last use, unless this process has queued it today already."""
    today = int(time.time()) // _DAY
    if _noted.get(key_hash) != today:
        _note(key_hash, today)


def _note(key_hash: str, today: int) -> None:
    global _is_writing
    with _lock:
        if len(_noted) >= _MOST:
            _noted.clear()
        _noted[key_hash] = today
        _waiting.add(key_hash)
        if _is_writing:
            return
        _is_writing = True
    try:
        threading.Thread(target=_write_what_waits, name="last use of keys", daemon=True).start()
    except RuntimeError:  # no thread can be had now: the next use may find one
        with _lock:
            _is_writing = False
            _noted.pop(key_hash, None)


def _write_what_waits() -> None:
    """Write queued keys in batches until the queue is empty; after a failure, wait and try again."""
    pause = SHORTEST_PAUSE
    while hashes := _taken():
        if _is_written(hashes):
            pause = SHORTEST_PAUSE
        else:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            with _lock:
                _waiting.update(hashes)


def _taken() -> list[str]:
    global _is_writing
    with _lock:
        taken = list(_waiting)[:AT_ONCE]
        _waiting.difference_update(taken)
        _is_writing = bool(taken)
        return taken


def _is_written(hashes: list[str]) -> bool:
    try:
        let_go_if_broken()
        write(hashes)
    except (Unavailable, Error) as reason:
        log.info("the last use of %d keys is not written yet: %s", len(hashes), reason)
        return False
    except Exception:
        log.exception("the last use of keys cannot be written")
    finally:
        with suppress(Error):
            connections[DEFAULT_DB_ALIAS].close()
    return True


def write(hashes: list[str]) -> None:
    """Store the day, by the database's clock, as the last use of the keys that are not revoked and have an earlier day.

    Reads first: nearly always another process has stored the day already, and then no write lock is taken.
    """
    today = _day_of_database()
    is_new = Q(last_used_at__isnull=True) | Q(last_used_at__lt=today)
    behind = ApiKey.objects.filter(is_new, hash__in=hashes, revoked_at__isnull=True)
    numbers = list(behind.values_list("pk", flat=True))
    if numbers:
        with changing():
            ApiKey.objects.filter(is_new, pk__in=numbers).update(last_used_at=today)


def _day_of_database() -> datetime:
    return datetime.combine(time_of(now()).date(), datetime.min.time(), UTC)
