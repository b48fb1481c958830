"""A server that is told to stop while it is busy: is a request lost?

    python -m tests.faults.stopping --times 5 [--database postgres]

Clients change facts as fast as they can, some on connections that they keep, some with a new one for each request. Then
the server is sent SIGTERM, and started again. A change that was answered must be stored; one that was not must not be,
for then its connection was closed before it was read. And none may be cut off while it waits for its answer.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import NamedTuple

from tests.faults.load import CUT_OFF, UNANSWERED, How, Load, Told, statuses
from tests.faults.marks import Mark, kinds_of, none_of, parser_of, printed
from tests.faults.worlds import Changes, Questions, World, port_of, world

STOPS_WITHIN = 40  # seconds


class Stopped(NamedTuple):
    told: list[Told]
    asked: list[Told]
    made_untold: int
    told_unmade: int
    seconds: float


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--times", type=int, default=4, help="servers to stop")
    parser.add_argument("--seconds", type=float, default=1.5, help="of load before each")
    options = parser.parse_args()
    failed = 0
    for kind in kinds_of(options):
        with world(kind) as place:
            found = [stopped(place, options.seconds, turn) for turn in range(options.times)]
            failed |= printed(marks(found), f"\n{kind}, {options.times} stops under load")
    return failed


def marks(found: list[Stopped]) -> list[Mark]:
    told = [each for one in found for each in (*one.told, *one.asked)]
    counts = statuses(told)
    wrong = sum(number for status, number in counts.items() if status not in (200, -1, CUT_OFF, UNANSWERED))
    return [
        none_of("answered otherwise than with 200", wrong, counts[200]),
        none_of("cut off on an open connection", counts[CUT_OFF], len(told)),
        none_of("without an answer", counts[UNANSWERED], len(told)),
        none_of("told to be made, and not stored", sum(each.told_unmade for each in found), len(told)),
        none_of("stored, and not told to be", sum(each.made_untold for each in found), len(told)),
        Mark("longest stop", f"≤ {STOPS_WITHIN} s", f"{max(each.seconds for each in found):.1f} s", True),
    ]


def stopped(place: World, seconds: float, turn: int) -> Stopped:
    """Once: half of the turns with connections that are kept."""
    service = place.started("--workers", "2")
    place.filled(service)
    changes, how = Changes(place.key, f"t{turn}n"), How(connections=16, keeps_alive=turn % 2 == 0)
    loads = [Load([port_of(service)], changes, how), Load([port_of(service)], Questions(place.key), how)]
    threads = [threading.Thread(target=load.run) for load in loads]
    for each in threads:
        each.start()
    time.sleep(seconds)
    started = time.perf_counter()
    service.process.terminate()
    service.process.wait(STOPS_WITHIN)
    taken = time.perf_counter() - started
    for load, thread in zip(loads, threads):
        load.is_over = True
        thread.join()
    told = {each.number for each in loads[0].told if each.status == 200}
    again = place.started("--workers", "1")
    made = changes.made(again.client(place.key))
    again.stop()
    return Stopped(loads[0].told, loads[1].told, len(made - told), len(told - made), taken)


if __name__ == "__main__":
    sys.exit(main())
