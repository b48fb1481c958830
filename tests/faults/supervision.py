"""Workers that are killed again and again, and a parent that is killed, under load: who notices?

    python -m tests.faults.supervision --seconds 60 [--database postgres]

Workers are killed 1, 2 and 20 times a minute, while clients ask and change things, and never the only one that serves:
so fewer are killed while the parent waits longer and longer before it restarts one. A killed worker takes the requests
with it that it was answering; all others must be answered, and right. Then the parent is killed: its workers must end
within two seconds, and a server that is started on the same port must serve.
"""

from __future__ import annotations

import itertools
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.faults.limits import workers_that_listen
from tests.faults.load import CUT_OFF, REFUSED, UNANSWERED, How, Load, Told
from tests.faults.marks import Mark, at_most, kinds_of, none_of, parser_of, printed
from tests.faults.worlds import Changes, Questions, World, port_of, world
from tests.service import Service

WORKERS = 2
CONNECTIONS = 4
RATES = (1, 2, 20)  # kills a minute
REPLACED_WITHIN = 90  # seconds: the longest pause, and a start on a busy machine
ENDS_WITHIN = 2.0  # seconds, of workers without a parent


class Supervised(NamedTuple):
    kills: int
    asked: int
    wrong: int  # answers that are not right
    failed: int  # requests without an answer that no killed worker had
    lost: int  # changes that were acknowledged, and are not stored
    parent_ended: int


class Orphaned(NamedTuple):
    seconds: float  # until the last worker had ended
    wrong: int
    lost: int
    told: int


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="of load at each rate of kills")
    options = parser.parse_args()
    failed = 0
    for kind in kinds_of(options):
        for rate in RATES:
            with world(kind) as place:
                found = supervised(place, options.seconds, 60 / rate)
                failed |= printed(marks(found), f"\n{kind}, a worker killed {rate} times a minute ({found.kills})")
        with world(kind) as place:
            failed |= printed(marks_of_orphans(orphaned(place)), f"\n{kind}, the parent killed")
    return failed


def marks(found: Supervised) -> list[Mark]:
    return [
        none_of("answered wrong", found.wrong, found.asked),
        none_of("not answered, and not by a killed worker", found.failed, found.asked),
        none_of("acknowledged, and lost", found.lost, found.asked),
        none_of("parents that ended", found.parent_ended, found.kills),
    ]


def marks_of_orphans(found: Orphaned) -> list[Mark]:
    return [
        at_most("until all workers had ended", ENDS_WITHIN, found.seconds, " s"),
        none_of("answered wrong", found.wrong, found.told),
        none_of("acknowledged, and lost", found.lost, found.told),
    ]


def supervised(place: World, seconds: float, every: float) -> Supervised:
    """Kill a worker every so many seconds, at least one, but never the only one that serves."""
    service = place.started("--workers", str(WORKERS))
    place.filled(service)
    with _load(place, service) as (changes, told, asked):
        until, kills = time.monotonic() + seconds, 0
        while kills == 0 or time.monotonic() < until:
            began = time.monotonic()
            workers = _serving(service)
            workers[kills % WORKERS].send_signal(signal.SIGKILL)
            workers[kills % WORKERS].wait(REPLACED_WITHIN)
            kills += 1
            time.sleep(max(0.0, min(began + every, until) - time.monotonic()))
        _serving(service)
        parent_ended = int(service.process.poll() is not None)
    lost = len(_acknowledged(told) - changes.made(service.client(place.key)))
    service.stop()
    # Each kill cuts off what its worker was answering: one request of each connection at the most.
    cut = sum(each.status == CUT_OFF for each in (*told, *asked))
    failed = _count(told, asked, UNANSWERED, REFUSED) + max(0, cut - kills * 2 * CONNECTIONS)
    return Supervised(kills, len(asked) + len(told), _wrong(place, told, asked), failed, lost, parent_ended)


def orphaned(place: World) -> Orphaned:
    service = place.started("--workers", str(WORKERS))
    place.filled(service)
    with _load(place, service) as (changes, told, asked):
        workers = _serving(service)
        time.sleep(1)
        began = time.monotonic()
        service.process.kill()
        _, alive = psutil.wait_procs(workers, REPLACED_WITHIN)
        seconds = time.monotonic() - began if not alive else float("inf")
        again = place.started("--workers", "1", port=port_of(service))
        time.sleep(1)
    lost = len(_acknowledged(told) - changes.made(again.client(place.key)))
    again.stop()
    return Orphaned(seconds, _wrong(place, told, asked), lost, len(told))


def _serving(service: Service) -> list[psutil.Process]:
    """The workers, once each has a socket of its own that takes connections."""
    listening = f":{port_of(service):04X} 00000000:0000 0A"  # state 10, as `/proc/net/tcp` writes it
    until = time.monotonic() + REPLACED_WITHIN
    while Path("/proc/net/tcp").read_text().count(listening) < WORKERS:
        assert time.monotonic() < until, f"fewer than {WORKERS} workers serve"
        time.sleep(0.05)
    return workers_that_listen(service, WORKERS, REPLACED_WITHIN)


@contextmanager
def _load(place: World, service: Service) -> Iterator[tuple[Changes, list[Told], list[Told]]]:
    """Clients that go on while the server is disturbed: what they change, and what became of their requests."""
    changes, how = Changes(place.key), How(connections=CONNECTIONS, rate=40, keeps_bodies=True)
    loads = [Load([port_of(service)], changes, how), Load([port_of(service)], Questions(place.key), how)]
    threads = [threading.Thread(target=load.run) for load in loads]
    for each in threads:
        each.start()
    try:
        yield changes, loads[0].told, loads[1].told
    finally:
        for load, thread in zip(loads, threads):
            load.is_over = True
            thread.join()


def _acknowledged(told: list[Told]) -> set[int]:
    return {each.number for each in told if each.status == 200}


def _wrong(place: World, told: list[Told], asked: list[Told]) -> int:
    """Answers other than the right ones; where a worker died, there is none."""
    questions = Questions(place.key)
    is_wrong = [each.status == 200 and not questions.is_right(each.number, each.body) for each in asked]
    return sum(is_wrong) + sum(each.status not in (200, REFUSED, CUT_OFF, UNANSWERED) for each in (*told, *asked))


def _count(told: list[Told], asked: list[Told], *statuses: int) -> int:
    return sum(each.status in statuses for each in itertools.chain(told, asked))


if __name__ == "__main__":
    sys.exit(main())
