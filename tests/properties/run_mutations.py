"""How often the preview of a changed policy sees what the change does, held to the oracle.

    python -m tests.properties.run_mutations --mutants 200 --seed 1 --database postgres
    python -m tests.properties.run_mutations --drawn 4       # as if there were too many values: 4 of each are asked

Prints each mutant that changes an answer without the preview saying so, and a closing count.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from unittest.mock import patch

from django.core.management import call_command

from tests import standalone
from tests.properties.run_long import database

PASS_MARK = 0.99


def main() -> int:
    arguments = parsed()
    with database(arguments.database) as url:
        standalone.set_up(url)
        logging.disable()
        call_command("migrate", verbosity=0)
        if not arguments.drawn:
            return run(arguments)
        limits = {"comparing._FEW_FACTS": -1, "drawing.QUOTA": arguments.drawn, "comparing._OTHERS": arguments.drawn}
        for name, limit in limits.items():
            patch(f"checks.{name}", limit).start()
        return run(arguments)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=200, help="that change some answer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=int, default=4, help="of one policy at most")
    parser.add_argument("--drawn", type=int, default=0, help="ask about so many values only; 0: as the preview does")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    return parser.parse_args()


def run(arguments: argparse.Namespace) -> int:
    from tests.properties.mutations import trials  # needs settings, made above

    started, tried, found, whole = time.monotonic(), 0, 0, 0
    for trial in trials(arguments.seed, arguments.mutants, arguments.each):
        tried += 1
        found += trial.is_found
        whole += not trial.missed
        if not trial.is_found or (trial.missed and not arguments.drawn):
            kind = "incomplete" if trial.is_found else "MISSED"
            print(f"==== {kind}: {trial.base.name}\n{trial.text}\n{_said(trial)}", flush=True)
    print(f"{found} of {tried} changes are seen, {whole} to the last decision; {time.monotonic() - started:.0f} s")
    return 0 if tried and found >= PASS_MARK * tried else 1


def _said(trial) -> str:
    """Some of what was missed, and what the preview said was asked."""
    missed = [f"  {predicate}({', '.join(map(str, row))})" for predicate, row in sorted(trial.missed)[:5]]
    asked = trial.said.kinds
    kinds = [f"  {each.kind}: {each.tally.flips} of {each.tally.answers}, {each.extent}" for each in asked]
    return "\n".join(["missed:", *missed, "asked:", *kinds])


if __name__ == "__main__":
    sys.exit(main())
