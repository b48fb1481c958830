"""How often a comparison over all facts sees what a change of a policy does, and whether it sees what is not there.

    python -m tests.properties.run_policy_changes --changes 300 --rewordings 300 --seed 1

Prints what is missed, what is found of a policy in other words, and how many comparisons reach two ids of each type.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests import standalone

REACH = 0.9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--changes", type=int, default=300, help="that change some decision")
    parser.add_argument("--rewordings", type=int, default=300, help="that change none")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    standalone.set_up()
    from checks.asking.run import in_memory  # needs settings, made above
    from tests.properties.policy_changes import IDS, SECONDS, changed, reworded

    started, missed, invented, reached, slowest, count = time.monotonic(), 0, 0, 0, 0.0, 0
    with in_memory():
        for trial in changed(arguments.seed, arguments.changes):
            missed += bool(trial.missed)
            if trial.missed:
                print(f"==== MISSED {trial.missed}: {trial.base.name}\n{trial.text}", flush=True)
            reached += trial.ids >= IDS and trial.seconds <= SECONDS + 1
            slowest, count = max(slowest, trial.seconds), count + 1
        for trial in reworded(arguments.seed, arguments.rewordings):
            invented += trial.is_found
            if trial.is_found:
                print(f"==== FOUND in other words: {trial.base.name}\n{trial.text}", flush=True)
            reached += trial.ids >= IDS
            slowest, count = max(slowest, trial.seconds), count + 1
    print(f"{arguments.changes - missed} of {arguments.changes} changes found")
    print(f"{invented} of {arguments.rewordings} rewordings found to differ")
    print(f"{reached} of {count} comparisons complete with {IDS} ids of each type; the slowest took {slowest:.1f} s")
    print(f"{time.monotonic() - started:.0f} s")
    return 1 if missed or invented or reached < REACH * count else 0


if __name__ == "__main__":
    sys.exit(main())
