"""Whether questions can be answered here: the database answers, and its form is the one that this program works on."""

from __future__ import annotations

import logging
import threading
from typing import NamedTuple

from django.db import DEFAULT_DB_ALIAS, connections

from authz_project.schema_state import state_of_database

log = logging.getLogger("authz.server")

HEALTH = ("/healthcheck", "/api/healthcheck")  # answered as soon as requests are taken
READINESS = "/readyz"
LONGEST_LINE = 500  # characters

# Set once this process is told to stop. It still answers for a while, but a load balancer should ask others.
draining = threading.Event()


class Readiness(NamedTuple):
    """What /readyz answers. It names no details of the database, since anybody may ask."""

    reason: str  # what is in the way, in one word for programs: nothing where it is empty
    message: str

    @property
    def status(self) -> int:
        return 503 if self.reason else 200

    @property
    def body(self) -> dict[str, object]:
        """Return what is answered."""
        return {"message": self.message, **({"reason": self.reason} if self.reason else {})}


READY = Readiness("", "ready")
DRAINING = Readiness("draining", "the service is about to stop: ask another one")
AWAY = Readiness("database", "the database does not answer")
UNPREPARED = Readiness("form", "the database lacks the form of this version: `migrate` brings it there")
NEWER = Readiness("form", "the database has the form of a later version: start that one")


def current() -> Readiness:
    """Ask the database on this thread's connection, and say whether it is ready. Never raises an `Exception`."""
    if draining.is_set():
        return DRAINING
    try:
        return _of_database()
    except Exception:  # perhaps of the connection alone, which may be older than the database's last start
        connections[DEFAULT_DB_ALIAS].close()
    try:
        return _of_database()
    except Exception as reason:
        log.warning("not ready: %s: %s", AWAY.message, " ".join(str(reason).split())[:LONGEST_LINE])
        return AWAY


def _of_database() -> Readiness:
    state = state_of_database()
    if state.missing:
        return UNPREPARED
    return NEWER if state.newer else READY
