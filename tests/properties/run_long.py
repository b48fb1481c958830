"""Hold the service against the oracle for as long as you like.

    python -m tests.properties.run_long --policies 2000 --seed 1 --database postgres

Prints each disagreement with as little policy, as few facts and one question, and a closing count.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import django
from django.core.management import call_command


def main() -> int:
    arguments = parsed()
    with database(arguments.database) as url:
        os.environ |= {"DJANGO_SETTINGS_MODULE": "authz_project.settings", "DATABASE_URL": url, "SECRET_KEY": "x" * 50}
        django.setup()
        logging.disable()  # what breaks is printed once, as small as it gets
        call_command("migrate", verbosity=0)
        return run(range(arguments.seed, arguments.seed + arguments.policies), arguments.prints)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first policy; the next has the next")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--prints", type=int, default=10, help="disagreements to print at most")
    return parser.parse_args()


@contextmanager
def database(kind: str) -> Iterator[str]:
    """The URL of an empty database, while it lasts."""
    from tests import postgresql  # needs settings of its own, made above

    if kind == "postgres":
        server = postgresql.start()
        if server is None:
            raise SystemExit("no PostgreSQL can be started here")
        try:
            yield server.create("long_run")
        finally:
            server.stop()
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{Path(folder) / 'long_run.sqlite3'}"


def keys() -> Callable[[], str]:
    """Makes a key to a new environment each time."""
    from authz_project.keys import create_key
    from policy.models import Environment

    numbers = itertools.count()

    def new_key() -> str:
        slug = f"longrun{next(numbers)}"
        return create_key(Environment.objects.create(slug=slug, name=slug))[1]

    return new_key


def run(seeds: range, prints: int) -> int:
    from tests.properties.ask_adapter import PolicyRefused
    from tests.properties.differences import outcomes, smallest
    from tests.properties.questions import Refused
    from tests.properties.random_policies import random_case

    new_key, tally, refusals, started = keys(), Counter(), Counter(), time.monotonic()
    for seed in seeds:
        case = random_case(Random(seed))
        try:
            found = outcomes(case, new_key)
        except PolicyRefused as refused:
            tally["policies refused", str(refused).splitlines()[0].partition(": ")[2]] += 1
            continue
        except Exception as broken:
            tally["broken", type(broken).__name__] += 1
            print(f"==== seed {seed} {case.features} broke: {broken}\n{case.policy}")
            continue
        for outcome in found:
            kind = type(outcome.question.ask).__name__
            tally[kind, "right" if outcome.is_right else "WRONG"] += 1
            if isinstance(outcome.said, Refused):
                refusals[outcome.said.status, outcome.said.message.partition(" request ")[0]] += 1
            if not outcome.is_right and (prints := prints - 1) >= 0:
                print(f"==== seed {seed} {case.features}\n{smallest(outcome, new_key)}", flush=True)
    return closing(tally, refusals, time.monotonic() - started)


def closing(tally: Counter, refusals: Counter, seconds: float) -> int:
    for (status, message), count in refusals.most_common(20):
        print(f"{count:8d} times {status}: {message}")
    for (kind, result), count in sorted(tally.items()):
        print(f"{count:8d} {kind}: {result}")
    asked = sum(count for (_, result), count in tally.items() if result in ("right", "WRONG"))
    wrong = sum(count for (kind, result), count in tally.items() if result == "WRONG" or kind == "broken")
    print(f"{wrong} wrong of {asked} in {seconds:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
