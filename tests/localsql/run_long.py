"""Hold the produced SQL against the oracle for as long as you like, over all three of the callers' databases.

    python -m tests.localsql.run_long --policies 500 --seed 1

Prints what disagrees, and a closing count with the reasons of what was refused.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random

import django
import psycopg
from django.core.management import call_command

from tests.properties.run_long import database, keys


def main() -> int:
    arguments = parsed()
    with database("sqlite") as url, callers() as databases:
        os.environ |= {"DJANGO_SETTINGS_MODULE": "authz_project.settings", "DATABASE_URL": url, "SECRET_KEY": "x" * 50}
        django.setup()
        logging.disable()
        call_command("migrate", verbosity=0)
        return run(range(arguments.seed, arguments.seed + arguments.policies), databases, arguments.prints)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first policy; the next has the next")
    parser.add_argument("--prints", type=int, default=5, help="disagreements to print at most")
    return parser.parse_args()


@contextmanager
def callers() -> Iterator[list]:
    """SQLite, and the other two where they can be started."""
    from tests import mariadb, postgresql
    from tests.localsql.databases import MariaDB, PostgreSQL, Sqlite

    with ExitStack() as stack:
        found = [Sqlite()]
        for started, caller in ((postgresql.start(), PostgreSQL), (mariadb.start(), MariaDB)):
            if started is None:
                print(f"{caller.__name__} cannot be started here", file=sys.stderr)
                continue
            stack.callback(started.stop)
            url = started.url() if caller is PostgreSQL else None
            found.append(caller(psycopg.connect(url, autocommit=True) if url else started.connect()))
        yield found


def run(seeds: range, databases: list, prints: int) -> int:
    from tests.localsql.moving import differences
    from tests.properties.ask_adapter import PolicyRefused

    new_key, tally, counts, started = keys(), {}, Counter(), time.monotonic()
    for seed in seeds:
        rng = Random(seed)
        try:
            for wrong in differences(random_case_of(rng), rng, new_key, databases, tally):
                counts["wrong"] += 1
                if counts["wrong"] <= prints:
                    print(f"==== seed {seed}\n{wrong}", flush=True)
        except PolicyRefused:
            counts["policies refused"] += 1
    for reason, where in sorted(tally.get("reasons", {}).items(), key=lambda each: -len(each[1])):
        print(f"{len(where):8d} refused: {reason}")
    seconds = time.monotonic() - started
    print(f"{counts['wrong']} wrong of {tally.get('asked', 0)}, {tally.get('refused', 0)} refused, in {seconds:.0f} s")
    return 1 if counts["wrong"] else 0


def random_case_of(rng: Random):
    from tests.properties.random_policies import random_case

    return random_case(rng)


if __name__ == "__main__":
    sys.exit(main())
