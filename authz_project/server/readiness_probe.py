"""Readiness probe: reports within a deadline whether this process is ready, from a dedicated thread."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from http import HTTPStatus
from queue import SimpleQueue

import orjson

from authz_project.database import DATABASE_AWAY, DRAINING, HEALTH, READINESS, READY, Readiness, current, draining
from authz_project.server.workers import run_logged
from authz_project.side_listener import Application, Start
from policy.core.threads import start_thread

log = logging.getLogger("authz.server")

WITHIN = 2.0  # timeout of the database, in seconds
FRESH = 1.0  # seconds for which a result is cached

Callback = Callable[[Readiness], None]


class ReadinessProbe:
    """Answers readiness requests immediately or within just over two seconds, whatever the database does.

    One thread probes the database, on its own connection, and another one answers. If the probe hangs, the other thread
    still answers in time, and the result of that probe counts as soon as it is there (`database_waits` ends a wait for
    a server that does not respond). Both start with the first request.
    """

    def __init__(self, look: Callable[[], Readiness] = current):
        self._look_once = look
        self._inbox: SimpleQueue[Callback] = SimpleQueue()
        self._asked: SimpleQueue[Future[Readiness]] = SimpleQueue()
        self._is_started, self._starting = False, threading.Lock()
        self._look: Future[Readiness] | None = None  # the latest probe, pending or done
        self._begun = 0.0
        self._found, self._found_at = DATABASE_AWAY, float("-inf")

    def call_with_readiness(self, callback: Callback) -> None:
        """Return immediately, and call `callback` with the readiness on another thread, which logs its exceptions."""
        if not self._is_started:
            with self._starting:
                if not self._is_started:
                    start_thread("look at the database", self._keep_looking)
                    start_thread("readiness", self._run)
                    self._is_started = True  # only now: if no thread can be started, the next call tries again
        # Last: if the code above fails, the caller answers the request, which must be answered only once.
        self._inbox.put(callback)

    def _keep_looking(self) -> None:
        while True:
            self._asked.get().set_result(self._look_once())

    def _run(self) -> None:
        while True:
            # No variable may keep the request while this waits for the next one: see `CheckThreads`.
            run_logged(self._inbox.get(), (self._known(),))

    def _known(self) -> Readiness:
        if draining.is_set():
            return DRAINING
        if time.monotonic() - self._found_at > FRESH:
            self._found = self._looked()
            self._found_at = time.monotonic()
        return self._found

    def _looked(self) -> Readiness:
        if self._look is None or self._look.done():
            self._look, self._begun = Future(), time.monotonic()
            self._asked.put(self._look)
        try:
            return self._look.result(WITHIN)
        except TimeoutError:
            log.warning("not ready: the database has not responded for %d seconds", time.monotonic() - self._begun)
            return DATABASE_AWAY


def health_application(lookout: ReadinessProbe) -> Application:
    """Return a WSGI application for `/healthcheck` and `/readyz`, for a separate listener."""

    def application(environ: dict, start_response: Start) -> list[bytes]:
        path, found = environ["PATH_INFO"], READY
        if path == READINESS:
            answered: SimpleQueue[Readiness] = SimpleQueue()
            lookout.call_with_readiness(answered.put)
            found = answered.get()
        is_known = path == READINESS or path in HEALTH
        status, body = (found.status, found.body) if is_known else (404, {"message": "Not found"})
        content = orjson.dumps(body)
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
        start_response(f"{status} {HTTPStatus(status).phrase}", headers)
        return [content]

    return application
