"""One kind of request again and again: how much memory does a worker keep for each?

    python -m tests.faults.growth [--database postgres] [--kind polls] [--times 4]

Each kind has a server of its own with one worker. A first round is for caches to fill. After each further one, the
worker returns what is free to the system, as it does after a large request, and its anonymous memory is read. What
counts is the slope of the line that fits best: what is kept for good adds to each round, what levels off does not.
"""

from __future__ import annotations

import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import orjson

from tests.benchmarks.clients import END_OF_HEAD
from tests.faults.limits import workers_of
from tests.faults.load import request_of
from tests.faults.marks import Mark, at_most, kinds_of, none_of, parser_of, printed
from tests.faults.worlds import POLICY, World, fact, port_of, question, world
from tests.service import Client, Service

ROUNDS = 6
NOISE = 1_500_000  # bytes by which memory differs from one round to another though nothing is kept
SETTLING = b'"' + b"x" * 9_000_000 + b'"'  # a request so large that memory is returned after it: see `memory.LARGE`
PAGE = 10_000
ABOUT = {"actor_type": "User", "actor_id": "all", "action": "read", "resource_type": "Doc"}


class Grown(NamedTuple):
    kind: str
    times: int  # in each round
    memory: list[float]  # bytes, after each round
    wrong: int  # answers that were not as expected

    @property
    def each(self) -> float:
        """How many bytes one of them adds."""
        rounds = range(len(self.memory))
        return statistics.linear_regression(rounds, self.memory).slope / self.times


class Caller:
    """Sends requests to a server with a good key, on one connection that is kept."""

    def __init__(self, place: World, service: Service):
        self.place, self.port = place, port_of(service)
        self._connection: socket.socket | None = None

    def opened(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 60)

    def request(self, path: str, body: object = None, close: bool = False) -> bytes:
        if body is None:
            return request_of(self.place.key, "GET", path, close=close)
        text = body if isinstance(body, bytes) else orjson.dumps(body)
        return request_of(self.place.key, "POST", path, text, close=close)

    def asked(self, path: str, body: object = None) -> tuple[int, bytes, bytes]:
        """The status, the head and the body of an answer."""
        request = self.request(path, body)
        for _ in range(2):  # the server may have closed it meanwhile
            self._connection = self._connection or self.opened()
            with suppress(OSError):
                self._connection.sendall(request)
                if found := answer_on(self._connection):
                    return found
            self.close()
        return 0, b"", b""

    def is_done(self, path: str, body: object = None) -> bool:
        return self.asked(path, body)[0] == 200

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def answer_on(connection: socket.socket) -> tuple[int, bytes, bytes] | None:
    received = b""
    while END_OF_HEAD not in received:
        part = connection.recv(1 << 16)
        if not part:
            return None
        received += part
    head, _, body = received.partition(END_OF_HEAD)
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(body) < length:
        part = connection.recv(1 << 20)
        if not part:
            return None
        body += part
    return int(head[9:12]), head, body


# ---- what is repeated: each says whether it was answered as it should be -----------------------------------------


def cut(caller: Caller, number: int) -> bool:
    """Cut the connection in the middle of a body: a small one, one in chunks, and a larger one, by turns."""
    request = caller.request("/authorize", b"x" * (5_000, 5_000, 200_000)[number % 3])
    if number % 3 == 1:
        head, _, _ = request.partition(b"Content-Length")
        request = head + b"Transfer-Encoding: chunked\r\n\r\n1388\r\n" + b"x" * 5_000
    with caller.opened() as connection:
        connection.sendall(request[:-1_000])
        return number % 4 > 0 or authorized(caller, number)  # so that its beginning has been read before it is cut


def policy(caller: Caller, number: int) -> bool:
    """Publish a policy that nobody has seen, and ask it."""
    text = POLICY.replace("larger(", f"larger{number}(")
    return caller.is_done("/policy", {"src": text}) and authorized(caller, number)


def context(caller: Caller, number: int) -> bool:
    """Give 200 context facts, which nobody has given before."""
    names = (f"c{number}-{n}" for n in range(200))
    facts = [fact("has_relation", ("Doc", name), "folder", ("Folder", "f1")) for name in names]
    return caller.is_done("/authorize", question(number)[0] | {"context_facts": facts})


def poll(caller: Caller, number: int) -> bool:
    """Wait for a change, which is made as soon as the waiting has begun."""
    after = revision(caller)
    with caller.opened() as waiting:
        waiting.sendall(caller.request(f"/changes?after={after}&wait=20"))
        time.sleep(0.003)
        is_changed = changed(caller, number)
        found = answer_on(waiting)
    return is_changed and found is not None and found[0] == 200 and b'"revision"' in found[2]


def revision(caller: Caller) -> str:
    """The newest revision of the facts, which an answer is of."""
    _, head, _ = caller.asked("/authorize", question(0)[0])
    return head.lower().partition(b"osooffset: ")[2].partition(b"\r\n")[0].decode()


def connection(caller: Caller, number: int) -> bool:
    """Open a connection for one question."""
    with caller.opened() as opened:
        opened.sendall(caller.request("/authorize", question(number)[0], close=True))
        found = answer_on(opened)
    return found is not None and found[0] == 200


def first_page(caller: Caller, number: int) -> bool:
    """Ask for the first page of a list, which has a token for the next one."""
    body = ABOUT | {"page_size": PAGE, "context_facts": []}
    return b'"next_page_token":"' in caller.asked("/list", body)[2]


def explained(caller: Caller, number: int) -> bool:
    body, _ = question(number)
    return caller.is_done("/explain", body)


def changed(caller: Caller, number: int) -> bool:
    return caller.is_done("/facts", fact("change", ("Number", f"n{number % 2_000}")))


def authorized(caller: Caller, number: int) -> bool:
    return caller.is_done("/authorize", question(number)[0])


def rotated(caller: Caller, number: int) -> bool:
    """Ask; now and then, move the log of decisions away, as logrotate does."""
    if number % 5 == 0:
        with suppress(OSError):
            (caller.place.folder / "log").replace(caller.place.folder / "log.1")
    return authorized(caller, number)


USUAL = (authorized,) * 12 + (changed,) * 3 + (first_page, explained, connection, context, cut)


def mixed(caller: Caller, number: int) -> bool:
    """All of it by turns; a poll now and then."""
    if number % 97 == 0:
        return poll(caller, number)
    return USUAL[number % len(USUAL)](caller, number)


class Kind(NamedTuple):
    repeat: Callable[[Caller, int], bool]
    times: int  # in each round
    most: float  # bytes that each may add
    at_once: int = 1  # clients


KINDS = {
    "cut bodies": Kind(cut, 1_000, 1_000),
    "policies": Kind(policy, 100, 6_000),
    "context facts": Kind(context, 500, 500),
    "polls": Kind(poll, 300, 500),
    "connections": Kind(connection, 2_000, 100),
    "first pages": Kind(first_page, 100, 250),
    "explanations": Kind(explained, 500, 500),
    "changes": Kind(changed, 1_000, 250),
    "rotations": Kind(rotated, 2_000, 100),
    "mixed": Kind(mixed, 1_000, 250, at_once=4),
}


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--kind", choices=KINDS, help="one of them; without it, all")
    parser.add_argument("--times", type=float, default=1, help="so many times as many")
    options = parser.parse_args()
    failed = 0
    for database in kinds_of(options):
        for name in [options.kind] if options.kind else KINDS:
            with world(database) as place, measured(place) as running:
                found = grown(running, name, options.times)
                failed |= printed(marks(found), f"\n{database}, {name}: {_told(found)}")
    return failed


def _told(found: Grown) -> str:
    return " ".join(f"{each / 1e6:.2f}" for each in found.memory) + " MB"


def marks(found: Grown) -> list[Mark]:
    """What one adds, where all of them add more than noise does."""
    most, of = KINDS[found.kind].most, found.times * (len(found.memory) - 1)
    return [
        none_of("not answered as expected", found.wrong, found.times * (len(found.memory) + 1)),
        at_most(f"memory that each of {of} keeps", most + NOISE / of, found.each, " B"),
    ]


class Running(NamedTuple):
    """A server with one worker."""

    callers: list[Caller]
    memory: Callable[[], float]  # of the worker, once it has returned what is free


def grown(running: Running, name: str, share: float = 1, rounds: int = ROUNDS) -> Grown:
    kind = KINDS[name]
    times = max(kind.at_once, int(kind.times * share))
    found, wrong = list[float](), 0
    for turn in range(rounds + 1):
        wrong += _round(kind, running.callers[: kind.at_once], range(turn * times, (turn + 1) * times))
        found.append(running.memory())
    return Grown(name, times, found[1:], wrong)


def _round(kind: Kind, callers: list[Caller], numbers: range) -> int:
    """Repeat it for each number; return how many were not answered as expected."""
    wrong: list[int] = []

    def work(index: int) -> None:
        for number in numbers[index :: len(callers)]:
            if not kind.repeat(callers[index], number):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(callers))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return len(wrong)


def prepare(client: Client) -> None:
    """Give one user more than a page of documents."""
    facts = [fact("has_role", ("User", "all"), "reader", ("Doc", f"m{n}")) for n in range(PAGE + 1)]
    client.post("/batch", [{"inserts": facts}]).raise_for_status()


@contextmanager
def measured(place: World) -> Iterator[Running]:
    service = place.started("--workers", "1", LOG_LEVEL="CRITICAL", DECISION_LOG=str(place.folder / "log"))
    prepare(place.filled(service))
    callers = [Caller(place, service) for _ in range(4)]
    (worker,) = workers_of(service)

    def memory() -> float:
        callers[0].asked("/authorize", SETTLING)
        time.sleep(1)
        return _anonymous(worker.pid)

    try:
        yield Running(callers, memory)
    finally:
        for each in callers:
            each.close()
        service.stop()


def _anonymous(process: int) -> int:
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Anonymous:"))


if __name__ == "__main__":
    sys.exit(main())
