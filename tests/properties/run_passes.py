"""Hold every pass over rules against what clauses mean, for as long as you like.

    python -m tests.properties.run_passes --minutes 10 --seed 1
    python -m tests.properties.run_passes --minutes 10 --seed 1 --features small_ladder

Prints each disagreement with its policy and facts, and closing counts: for each pass how many policies it was held on,
and on how many of those it changed clauses.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from random import Random

from tests import standalone
from tests.properties.long_runs import parser_of, seeds
from tests.properties.patience import TookTooLong, at_most

LONGEST = 10  # seconds for a policy


def main() -> int:
    parser = parser_of(__doc__)
    options = parser.parse_args()
    standalone.set_up()
    return run(options)


def run(options: argparse.Namespace) -> int:
    from checks.errors import TooComplex  # they need settings, which are made above
    from policy.errors import AuthzError
    from tests.properties.passes_by_meaning import held
    from tests.properties.random_policies import random_case

    held_on, changed_by, other = Counter(), Counter(), Counter()
    started = time.monotonic()
    for seed, features in seeds(options):
        found = []
        try:
            with at_most(LONGEST):
                found += held(random_case(Random(seed), features), Random(seed))
        except TookTooLong:
            other["given up"] += 1
        except TooComplex:
            other["too complex"] += 1
        except AuthzError:
            other["no policy"] += 1
        held_on.update(list(dict.fromkeys(each.name for each in found)))
        changed_by.update({each.name for each in found if each.has_changed})
        for each in found:
            if each.is_wrong:
                other["WRONG"] += 1
                if other["WRONG"] <= options.prints:
                    print(f"==== seed {seed}\n{each}", flush=True)
    for name, times in held_on.items():
        print(f"{name:20} {times:8} policies, clauses changed in {changed_by[name]}")
    print(f"{dict(other)} of {seed - options.seed} policies in {time.monotonic() - started:.0f} s")
    return 1 if other["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
