"""Hold every step of planning against what drafts mean, for as long as you like.

    python -m tests.properties.run_steps --minutes 10 --seed 1
    python -m tests.properties.run_steps --minutes 10 --seed 1 --orders     # literals met in other orders, at random

Prints each disagreement with its policy and facts, and closing counts: how often each kind of step, graph and plan was
held, and in how many of these there were rows.
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
    parser.add_argument("--orders", action="store_true", help="meet literals in other orders than the planner's")
    options = parser.parse_args()
    standalone.set_up()
    return run(options)


def run(options: argparse.Namespace) -> int:
    from policy.errors import AuthzError  # they need settings, which are made above
    from tests.properties.steps_by_meaning import held
    from tests.properties.written import some_case

    times, with_rows, other = Counter(), Counter(), Counter()
    started = time.monotonic()
    for seed, features in seeds(options):
        rng = Random(seed)
        try:
            with at_most(LONGEST):
                case = some_case(seed, rng, features, is_written=False)
                for each in held(case, rng, in_order=not options.orders):
                    times[each.said.kind] += 1
                    with_rows[each.said.kind] += bool(each.before)
                    if each.is_wrong:
                        other["WRONG"] += 1
                        if other["WRONG"] <= options.prints:
                            print(f"==== seed {seed}\n{each}", flush=True)
        except TookTooLong:
            other["given up"] += 1
        except AuthzError:
            other["no policy"] += 1
    for kind, number in times.most_common():
        print(f"{kind:20} {number:8} times, of rows in {with_rows[kind]}")
    print(f"{dict(other)} of {seed - options.seed} policies in {time.monotonic() - started:.0f} s")
    return 1 if other["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
