"""Two servers of one database, restarted one after the other under load: does a request fail?

    python -m tests.faults.rolling --rounds 2 [--database postgres]

Clients know both addresses. They ask and change facts. Where a connection is refused, or closed without a word, they
try the other. What is sent twice is right to be sent twice: an insert of what is stored is no mistake.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import NamedTuple

from tests.faults.load import How, Load, Told, statuses
from tests.faults.marks import Mark, kinds_of, none_of, parser_of, printed
from tests.faults.worlds import Changes, Questions, World, port_of, world
from tests.service import Service

TRIES = 8  # each a few milliseconds after the one before, on the other server


class Rolled(NamedTuple):
    asked: list[Told]
    told: list[Told]
    told_unmade: int


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="restarts of both")
    options = parser.parse_args()
    failed = 0
    for kind in kinds_of(options):
        with world(kind) as place:
            failed |= printed(marks(rolled(place, options.rounds)), f"\n{kind}, {options.rounds} rounds")
    return failed


def marks(found: Rolled) -> list[Mark]:
    both = [*found.asked, *found.told]
    counts = statuses(both)
    failed = {status: number for status, number in counts.items() if status != 200}
    again = sum(each.attempts > 1 for each in both)
    return [
        Mark("failed", f"none of {len(both)}", f"{len(both) - counts[200]} {failed or ''}", not failed),
        none_of("told to be made, and not stored", found.told_unmade, len(found.told)),
        Mark("tried on more than one connection", "any", str(again), True),
    ]


def rolled(place: World, rounds: int, workers: int = 1) -> Rolled:
    options = ("--workers", str(workers))
    servers = [place.started(*options), place.started(*options)]
    place.filled(servers[0])
    ports, changes = [port_of(each) for each in servers], Changes(place.key)
    how = How(connections=8, tries=TRIES)
    loads = [Load(ports, Questions(place.key), how), Load(ports, changes, how)]
    threads = [threading.Thread(target=load.run) for load in loads]
    for each in threads:
        each.start()
    for _ in range(rounds):
        for index in range(2):
            servers[index] = _restarted(place, servers[index], *options)
            time.sleep(0.5)
    for load, thread in zip(loads, threads):
        load.is_over = True
        thread.join()
    made = changes.made(servers[0].client(place.key))
    for each in servers:
        each.stop()
    told = {each.number for each in loads[1].told if each.status == 200}
    return Rolled(loads[0].told, loads[1].told, len(told - made))


def _restarted(place: World, server: Service, *options: str) -> Service:
    """At the same address, as whoever knows both expects."""
    server.stop()
    return place.started(*options, port=port_of(server))


if __name__ == "__main__":
    sys.exit(main())
