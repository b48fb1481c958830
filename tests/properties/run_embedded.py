"""Hold the engine inside a Django project against the oracle for as long as you like.

    python -m tests.properties.run_embedded --questions 20000 --database postgres

Some facts of each random policy are rows of models, the others are stored. Questions are asked inside and outside of
transactions: by `authorize` and the like, by querysets, and by the endpoints. Prints what disagrees, and a count, also
if it is interrupted or terminated. Most of the time is spent in this process: run some with other seeds beside it.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import Random

from django.core.management import call_command
from django.db import connection

from tests import standalone
from tests.properties.patience import TookTooLong, at_most
from tests.properties.run_long import database, keys

WHOLE_CASE = 120  # seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=20_000, help="to end after")
    parser.add_argument("--policies", type=int, default=1_000_000, help="to end after")
    parser.add_argument("--seed", type=int, default=0, help="of the first policy; the next has the next")
    parser.add_argument("--minutes", type=float, default=600, help="to end after")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--remote", action="store_true", help="Ask a server (in this process) by local SQL.")
    options = parser.parse_args()
    with database(options.database) as url:
        standalone.set_up(url)
        logging.disable()
        call_command("migrate", verbosity=0)
        return run(options)


def _chain(failure: BaseException | None) -> Iterator[BaseException]:
    while failure is not None:
        yield failure
        failure = failure.__context__


def run(options: argparse.Namespace) -> int:
    tally, began = Counter(), time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        hold(options, tally, began + 60 * options.minutes)
    for name, count in sorted(tally.items()):
        print(f"{count:8d} {name}")
    asked = tally["right"] + tally["WRONG"] + tally["querysets"]
    print(f"{tally['WRONG']} wrong of {asked} in {time.monotonic() - began:.0f} s")
    return 1 if tally["WRONG"] else 0


def hold(options: argparse.Namespace, tally: Counter, until: float) -> None:
    from tests.properties.ask_adapter import PolicyRefused
    from tests.properties.embedded import differences
    from tests.properties.every_way import in_every_way
    from tests.properties.written import some_case

    new_key = keys()
    for seed in itertools.islice(itertools.count(options.seed), options.policies):
        asked = tally["right"] + tally["WRONG"] + tally["querysets"]
        if asked >= options.questions or time.monotonic() > until:
            break
        rng = Random(seed)
        case = in_every_way(some_case(seed, rng, (), False), rng, 1)
        try:
            with at_most(WHOLE_CASE):
                found, project = differences(case, seed, new_key, options.remote)
        except PolicyRefused:
            tally["policies refused"] += 1
            continue
        except (Exception, TookTooLong) as failure:
            connection.close()  # the driver may have been interrupted, and ending a transaction then fails, too
            if any(isinstance(each, TookTooLong) for each in _chain(failure)):
                tally[f"cases given up after {WHOLE_CASE} s"] += 1
                continue
            tally["WRONG"] += 1
            print(f"==== seed {seed}\n{traceback.format_exc()}", flush=True)
            continue
        tally["policies"] += 1
        tally.update(project.waits)
        tally["facts of models"] += project.bound
        tally["stored facts"] += project.stored
        for outcome in found:
            tally["right" if outcome.is_right else "WRONG"] += 1
            if not outcome.is_right:
                print(f"==== seed {seed}\n{outcome}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
