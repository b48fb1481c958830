"""Hold plans against what they mean, and that against the rules, for as long as you like.

    python -m tests.properties.run_plans --policies 2000 --seed 1 --features small_ladder
    python -m tests.properties.run_plans --policies 200 --written

Prints each disagreement with its policy, facts and plan, and a closing count.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from random import Random

from tests import standalone
from tests.properties.patience import TookTooLong, at_most

LONGEST = 30  # seconds for a policy


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first policy; the next has the next")
    parser.add_argument("--features", nargs="*", default=(), help="names of features, or of modules of them: ladders")
    parser.add_argument("--written", action="store_true", help="policies that were written to be tricky")
    parser.add_argument("--prints", type=int, default=5, help="disagreements to print at most")
    options = parser.parse_args()
    standalone.set_up()
    return run(options)


def run(options: argparse.Namespace) -> int:
    from tests.properties.plans_by_meaning import forms_in, planned  # they need settings, which are made above
    from tests.properties.random_policies import is_policy
    from tests.properties.written import some_case

    tally, forms, started = Counter(), Counter(), time.monotonic()
    for seed in range(options.seed, options.seed + options.policies):
        case = some_case(seed, Random(seed), options.features, options.written)
        try:
            with at_most(LONGEST):
                for each in planned(case, only_known=seed % 2 == 0) if is_policy(case) else ():
                    tally["plans" if each.compiled else "refused"] += 1
                    forms.update(forms_in(each))
                    if list(each.faults):
                        tally["WRONG"] += 1
                        if tally["WRONG"] <= options.prints:
                            print(f"==== seed {seed}\n{each}", flush=True)
        except TookTooLong:
            tally["given up"] += 1
    print("\n".join(f"{count:8d} {form}" for form, count in sorted(forms.items())))
    print(f"{dict(tally)} of {options.policies} policies in {time.monotonic() - started:.0f} s")
    return 1 if tally["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
