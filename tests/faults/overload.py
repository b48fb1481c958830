"""Four times as many questions as can be answered: what becomes of them, and for how long after.

    python -m tests.faults.overload --seconds 20 [--database postgres]

First a few clients ask as fast as they are answered: that is what the service can. Then it is asked at a quarter of
that rate, at four times that rate, and at a quarter again. Whoever is not answered has to be told to come again.
Clients and servers share this machine, so what the first part finds is less than the service could alone.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from tests.faults.load import How, Load, Told, quantile, statuses
from tests.faults.marks import Mark, at_most, kinds_of, none_of, parser_of, printed
from tests.faults.worlds import Questions, World, port_of, world

TIMES = 4  # what can be answered
SHARE = 0.25  # of it, when it is quiet
SLOWER = 5  # than the quiet ones, at most: half of those that are answered
WELL_WITHIN = 5  # seconds after
CROWD = 256  # connections: who waits for an answer does not ask


class Overloaded(NamedTuple):
    capacity: float
    quiet: list[Told]
    loaded: list[Told]
    after: list[Told]
    after_began: float
    wrong: int


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="of overload")
    parser.add_argument("--workers", default="2")
    options = parser.parse_args()
    failed = 0
    for kind in kinds_of(options):
        with world(kind) as place:
            found = overloaded(place, options.seconds, options.workers)
            failed |= printed(marks(found), f"\n{kind}, {found.capacity:.0f} answers a second")
    return failed


def marks(found: Overloaded) -> list[Mark]:
    counts, quiet = statuses(found.loaded), quantile(found.quiet, 0.5)
    others = len(found.loaded) - counts[200] - counts[503]
    return [
        none_of("neither answered nor told to come again", others, len(found.loaded)),
        none_of("answered wrong", found.wrong, counts[200]),
        at_most("p50 of the answered, beside the quiet p50", SLOWER, quantile(found.loaded, 0.5) / quiet, " times"),
        at_most("well again after", WELL_WITHIN, _recovered(found, quiet), " s"),
        *_told(found, counts[503], quiet),
    ]


def _told(found: Overloaded, refused: int, quiet: float) -> list[Mark]:
    """What has no mark."""
    seconds = found.loaded[-1].at - found.loaded[0].at
    return [
        Mark("quiet p50", "any", f"{quiet * 1000:.2f} ms", True),
        Mark("asked a second", "any", f"{len(found.loaded) / seconds:.0f}", True),
        Mark("told to come again", "any", f"{refused / len(found.loaded):.0%}", True),
        Mark("p99 of the answered", "any", f"{quantile(found.loaded, 0.99) * 1000:.1f} ms", True),
    ]


def _recovered(found: Overloaded, quiet: float) -> float:
    """Seconds after the overload until all are answered, half of them in twice the quiet time, for half a second."""
    for start in range(40):
        begin = found.after_began + start * 0.25
        some = [each for each in found.after if begin <= each.at < begin + 0.5]
        if some and set(statuses(some)) == {200} and quantile(some, 0.5) <= 2 * quiet:
            return start * 0.25
    return float("inf")


def overloaded(place: World, seconds: float, workers: str = "2", calm: float = 3.0) -> Overloaded:
    service = place.started("--workers", workers, ANSWER_CACHE="0", LOG_LEVEL="CRITICAL")
    place.filled(service)
    ports, questions = [port_of(service)], Questions(place.key)
    Load(ports, questions, How(connections=8)).for_seconds(1)
    capacity = len(Load(ports, questions, How(connections=8)).for_seconds(calm)) / calm
    slow = How(connections=8, rate=capacity * SHARE)
    quiet = Load(ports, questions, slow).for_seconds(calm)
    crowd = How(connections=CROWD, rate=capacity * TIMES, keeps_bodies=True)
    loaded = Load(ports, questions, crowd).for_seconds(seconds)
    after = Load(ports, questions, slow).for_seconds(WELL_WITHIN + 1)
    service.stop()
    wrong = sum(each.status == 200 and not questions.is_right(each.number, each.body) for each in loaded)
    return Overloaded(capacity, quiet, loaded, after, min(each.at for each in after), wrong)


if __name__ == "__main__":
    sys.exit(main())
