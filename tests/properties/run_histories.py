"""Hold what is answered as of earlier revisions against what was answered then, and against the oracle.

    python -m tests.properties.run_histories --minutes 10 --seed 1 --database postgres

Prints each disagreement with the history it is of, and closing counts.
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections import Counter
from random import Random

from django.core.management import call_command

from tests import standalone
from tests.properties.long_runs import parser_of, seeds
from tests.properties.patience import TookTooLong, at_most
from tests.properties.run_long import database, keys

LONGEST = 240  # seconds for a history


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--questions", type=int, default=0, help="to end after, whatever time is left")
    options = parser.parse_args()
    with database(options.database) as url:
        standalone.set_up(url)
        logging.disable()
        call_command("migrate", verbosity=0)
        return run(options)


def run(options) -> int:
    from django.db import connection

    from tests.properties.ask_adapter import PolicyRefused
    from tests.properties.histories import outcomes

    new_key, tally, started = keys(), Counter(), time.monotonic()
    kept, prints = 0, options.prints
    for seed, features in seeds(options):
        try:
            with at_most(LONGEST):
                history, found = outcomes(Random(seed), seed, new_key, features)
        except PolicyRefused:
            tally["histories", "whose policies are refused"] += 1
            continue
        except TookTooLong:
            connection.close()
            tally["histories", "given up"] += 1
            continue
        except Exception as broken:
            tally["histories", "BROKEN"] += 1
            print(f"==== seed {seed} broke: {broken!r}\n{traceback.format_exc()}", flush=True)
            continue
        kept += len(history.kept)
        tally["histories", "played"] += 1
        tally["histories", "revisions"] += len(history.states)
        for move, times in history.tally.items():
            tally["changes", move] += times
        for _, row in {fact for state in history.states.values() for fact in state.stored}:
            tally["facts by arguments", str(len(row))] += 1
        tally.update(("features", name) for name in history.case.features)
        for outcome in found:
            tally[outcome.kind, "WRONG" if outcome.fault else "right"] += 1
            tally["as of", "of another state than the latest"] += outcome.is_moved
            tally["as of", "that say something"] += outcome.is_some
        wrong = [outcome.fault for outcome in found if outcome.fault]
        prints -= bool(wrong)
        if wrong and prints >= 0:
            print(f"==== seed {seed} {history.case.features}\n{history}", *wrong[:5], sep="\n", flush=True)
        if options.questions and kept >= options.questions:
            break
    return closing(tally, kept, time.monotonic() - started)


def closing(tally: Counter, kept: int, seconds: float) -> int:
    for (kind, result), count in sorted(tally.items()):
        print(f"{count:8d} {kind}: {result}")
    wrong = sum(count for (_, result), count in tally.items() if result in ("WRONG", "BROKEN"))
    held = sum(count for (_, result), count in tally.items() if result in ("WRONG", "right"))
    print(f"{wrong} wrong of {held}, over {kept} kept questions in {seconds:.0f} s")
    return 1 if wrong or not kept else 0


if __name__ == "__main__":
    sys.exit(main())
