"""A follower: answers reads from a copy of a main service's environment, and sends all else to the main service.

A process of its own keeps the copy up to date. Workers share what it knows: how old the copy is, whether it may answer,
and which revision it has.
"""

from __future__ import annotations

import http.client
import logging
import math
import ssl
import string
import time
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from multiprocessing.sharedctypes import RawArray
from urllib.parse import quote, urlencode, urlsplit

import orjson
from django.db import Error

from authz_project.copies import CopyKeeper, Differs, Sent
from authz_project.database import READY, Readiness, let_go_if_broken
from authz_project.server.supervisor import WorkerReport
from policy.active import Scope
from policy.core.journal import give_up_slot
from policy.endpoint import RESPONDS_LATER, Endpoint, Handler, Request, Response, position_seen
from policy.errors import AuthzError, Unavailable, one_line

log = logging.getLogger("authz.follower")

WAIT = 5.0  # seconds that the main service holds a request if nothing is new: the age of an idle follower
PACE = 0.75  # seconds between requests while there are changes
PAUSE = 1.0  # seconds after a failure
TIMEOUT = 15.0  # seconds for the main service to answer
REACH_WITHIN = 1.0  # seconds to wait for a revision that a caller has seen, before the main service is asked
CLOCKS_APART = 1.0  # seconds by which the clocks may differ

OF_COPY, INCOMPLETE, REFUSED, CLOCK = range(4)  # whether the copy may answer
_REASONS = {
    INCOMPLETE: Readiness("snapshot", "this follower has no complete copy yet; try again"),
    REFUSED: Readiness("key", "the main service refuses the key of this follower, which needs the scope `follow`"),
    CLOCK: Readiness("clock", "the clocks of this follower and of the main service differ by more than a second"),
}
_FRESH, _STATE, _OFFSET, _EPOCH = range(4)  # places in shared memory
# What is not passed on: headers of one connection, and those that each service sets itself.
_OWN = {
    "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length", "date", "server",
    "allow", "x-frame-options", "x-request-id", "server-timing", "x-content-type-options", "referrer-policy", "host",
    "proxy-authorization", "accept-encoding", "expect", "cookie", "forwarded", "x-forwarded-for",
}  # fmt: skip

# A clock that no one can set, and that also counts while the machine is suspended.
ticks = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


class Follower:
    """What the processes of a follower know of the main service, and of the copy."""

    def __init__(self, url: str, key: str, stale_after: float = math.inf):
        self.url, self._key, self._stale_after = url.rstrip("/"), key, stale_after
        self._kept: http.client.HTTPConnection | None = None  # of the process that keeps the copy up to date
        self._shared = RawArray("d", [-math.inf, INCOMPLETE, 0, 0])

    def note(self, state: int, offset: int) -> None:
        self._shared[_STATE], self._shared[_OFFSET] = state, offset

    def note_discarded(self) -> None:
        """Note, before the copy is discarded, that answers that are not sent yet do not count."""
        self.note(INCOMPLETE, 0)
        self._shared[_EPOCH] += 1

    def note_current(self, seconds_ago: float) -> None:
        self._shared[_FRESH] = ticks() - seconds_ago

    @property
    def age(self) -> float:
        """Return how many seconds ago the copy was certainly the same as the main service."""
        return ticks() - self._shared[_FRESH]

    @property
    def readiness(self) -> Readiness:
        state, age = int(self._shared[_STATE]), self.age
        if state != OF_COPY:
            return _REASONS[state]
        if age > self._stale_after:
            return Readiness("stale", f"the copy of this follower is {age:.0f} seconds old (--stale-after)")
        return READY._replace(message=f"ready; the copy is {age:.0f} seconds old" if age < math.inf else "ready")

    # ---- requests ----------------------------------------------------------------------------------------------

    def answered(self, request: Request, endpoint: Endpoint, path: str, handler: Handler) -> Response:
        """Return the handler's response, or the main service's if the copy must not give it."""
        if endpoint.scope_of(request.method) in (Scope.FACTS, Scope.POLICY):
            return self._passed_on(request, path)
        self.check()
        position = position_seen(request)
        if position is not None and not self._reaches(position):
            return self._passed_on(request, path)
        fresh, epoch = self._shared[_FRESH], self._shared[_EPOCH]
        response = handler(request)
        if response is RESPONDS_LATER:  # it waits, and will be answered again
            return response
        self.check()
        if self._shared[_EPOCH] != epoch:  # the copy was discarded, perhaps between two statements of the handler
            raise Unavailable(_REASONS[INCOMPLETE].message)
        if fresh > -math.inf:
            response.headers["Age"] = str(int(ticks() - fresh))
        return response

    def check(self) -> None:
        """Raise `Unavailable` if the copy may not answer now."""
        found = self.readiness
        if found.reason:
            raise Unavailable(found.message)

    def _reaches(self, position: int) -> bool:
        if position > self._shared[_OFFSET]:
            give_up_slot()
            until = time.monotonic() + REACH_WITHIN
            while position > self._shared[_OFFSET] and time.monotonic() < until:
                time.sleep(0.01)
        return position <= self._shared[_OFFSET]

    def _passed_on(self, request: Request, path: str) -> Response:
        give_up_slot()
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").title(): value
            for name, value in request.headers.items()
            if name.startswith("HTTP_") or name == "CONTENT_TYPE"
        }
        sent = {name: value for name, value in headers.items() if name.lower() not in _OWN}
        query = quote(request.headers.get("QUERY_STRING", ""), string.punctuation, "latin-1")
        try:
            status, received, content = self.ask(
                f"{path}?{query}" if query else path, request.method, request.body, sent | {"X-Request-ID": request.id}
            )
        except (OSError, http.client.HTTPException) as reason:
            raise Unavailable(
                "the main service does not answer; a change may have been made, and can be repeated"
            ) from reason
        kept = {name.title(): value for name, value in received.items() if name.lower() not in _OWN}
        return Response(content, status, kept)

    def ask(
        self, target: str, method: str = "GET", body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request to the main service; by default, with the follower's key, on a connection that is kept."""
        if headers is not None:
            with closing(self._connection()) as mine:
                return self._sent(mine, target, method, body, headers)
        mine, self._kept = self._kept or self._connection(), None
        found = self._sent(mine, target, method, body, {"Authorization": f"Bearer {self._key}"})
        self._kept = mine
        return found

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname, "checked by the command"
        if parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=TIMEOUT, context=context)
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT)

    def _sent(
        self, mine: http.client.HTTPConnection, target: str, method: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        mine.request(method, urlsplit(self.url).path + target, body or None, dict(headers))
        found = mine.getresponse()
        return found.status, dict(found.getheaders()), found.read()

    # ---- the process that keeps the copy up to date --------------------------------------------------------------

    def follow(self, environment_id: int, number: int, report: WorkerReport) -> None:
        """Keep the copy up to date, for the lifetime of the process."""
        with report.starting():
            copying = Copying(self, CopyKeeper(environment_id, self.url))
        while True:
            started = time.monotonic()
            pause = PAUSE
            if copying.step():
                pause = 0.0 if copying.has_more else PACE - (time.monotonic() - started)
            time.sleep(max(0.0, pause))


class Copying:
    """The steps of a follower's process. Each asks for what is new, and stores it."""

    def __init__(self, follower: Follower, copy: CopyKeeper):
        self._follower, self._copy = follower, copy
        self.has_more = True
        self._clock: float | None = None  # this machine's clock minus `ticks`, when both clocks agreed
        self._said = ""  # the failure that was logged last
        since = time.time() - copy.state.current_at
        self._is_clock_wrong = since < 0
        if copy.state.current_at and since >= 0:
            follower.note_current(since)
        self._tell()

    def step(self) -> bool:
        """Ask once; return False after a failure, which is logged once."""
        try:
            let_go_if_broken()
            self._copy.take(self._asked(self._copy.state.position), self._asked)
            if not self.has_more:
                self._follower.note_current(max(0.0, time.time() - self._copy.state.current_at))
            self._said = ""
            return True
        except Differs as reason:
            self._begin_anew(str(reason))
            return True
        except (OSError, http.client.HTTPException, Error, AuthzError, Unavailable) as reason:
            self._log(one_line(reason))
        except Exception:
            log.exception("cannot follow %s", self._follower.url)
        finally:
            if self._clock is not None and abs(time.time() - ticks() - self._clock) > CLOCKS_APART:
                self._is_clock_wrong = True
            self._tell()
        self.has_more = True  # ask without waiting next time
        return False

    def _asked(self, position: int | str | None) -> Sent:
        """Return the answer of the main service. Raise `Differs` if it cannot continue there."""
        wait = 0.0 if self.has_more else WAIT
        query = {"after": "" if position is None else position, "keys": self._copy.digest, "wait": wait}
        asked_at = time.time()
        status, _, content = self._follower.ask(f"/api/follow?{urlencode(query)}")
        is_of_position = status == 410 or (status == 400 and content.startswith(b'{"message":"after'))
        if is_of_position and position is not None:
            raise Differs(f"the main service cannot continue after {position}: {content[:200]!r}")
        if status in (401, 403):
            self._copy.note(is_refused=True)
        if status != 200:
            raise Unavailable(f"the main service answers {status}: {content[:200]!r}")
        answer: Sent = orjson.loads(content)
        self.has_more = answer["more"] or isinstance(answer["next"], str)
        asked_at += answer["waited"]  # it has read the answer later than this
        self._compare_clocks(answer["now"] / 1e6, asked_at)
        return answer | {"current_at": None if self.has_more else asked_at - answer["age"]}

    def _compare_clocks(self, now: float, asked_at: float) -> None:
        self._is_clock_wrong = not asked_at - CLOCKS_APART < now < time.time() + CLOCKS_APART
        self._clock = None if self._is_clock_wrong else time.time() - ticks()

    def _tell(self) -> None:
        """Tell the workers whether the copy may answer."""
        found = self._copy.state
        state = REFUSED if found.is_refused else CLOCK if self._is_clock_wrong else OF_COPY
        self._follower.note(state if found.is_complete else INCOMPLETE, self._copy.offset)

    def _begin_anew(self, reason: str) -> None:
        log.warning("the copy is replaced by a new snapshot: %s", reason)
        self._follower.note_discarded()
        self._copy.discard()
        self.has_more = True

    def _log(self, reason: str) -> None:
        if reason != self._said:
            log.warning("cannot follow %s: %s", self._follower.url, reason)
        self._said = reason
