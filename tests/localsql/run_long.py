"""Hold the produced SQL against the oracle for as long as you like, over all three of the callers' databases.

    python -m tests.localsql.run_long --policies 500 --seed 1
    python -m tests.localsql.run_long --policies 100000 --minutes 30 --features ladders --database postgres
    python -m tests.localsql.run_long --policies 50 --collations

Prints what disagrees, how long requests take, and a closing count with the reasons of what was refused.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import logging
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random

import psycopg
from django.core.management import call_command
from django.db import connection

from localsql import dialects
from tests import standalone
from tests.properties.patience import TookTooLong, at_most
from tests.properties.run_long import TOO_LONG, database, keys

CALLERS = ("sqlite", "postgres", "mariadb")
WHOLE_CASE = 240  # seconds, over all callers' databases
LONG = 1  # seconds of processor time: longer than planning may take


def main() -> int:
    arguments = parsed()
    with database("sqlite") as url, callers(arguments.database) as databases:
        standalone.set_up(url)
        logging.disable()
        call_command("migrate", verbosity=0)
        seeds = range(arguments.seed, arguments.seed + arguments.policies)
        return run((seed for seed in seeds if seed not in arguments.skip), databases, arguments)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first policy; the next has the next")
    parser.add_argument("--database", nargs="*", choices=CALLERS, default=CALLERS)
    parser.add_argument("--minutes", type=float, default=0, help="to end after, whatever policies are left")
    parser.add_argument("--features", nargs="*", default=(), help="names of features, or of modules of them: ladders")
    parser.add_argument("--written", action="store_true", help="policies that were written to be tricky")
    parser.add_argument("--collations", action="store_true", help="correlated subqueries over ids equal by collation")
    parser.add_argument("--skip", type=int, nargs="*", default=(), help="seeds to leave out")
    parser.add_argument("--prints", type=int, default=5, help="disagreements to print at most")
    return parser.parse_args()


@contextmanager
def callers(wanted: Collection[str]) -> Iterator[list]:
    """SQLite, and the other two where they can be started; of them those wanted."""
    from tests import mariadb, postgresql
    from tests.localsql.databases import MariaDB, PostgreSQL, Sqlite

    with ExitStack() as stack:
        found = [Sqlite()] if "sqlite" in wanted else []
        for start, caller in ((postgresql.start, PostgreSQL), (mariadb.start, MariaDB)):
            if caller.dialect not in wanted:
                continue
            started = start()
            if started is None:
                print(f"{caller.__name__} cannot be started here", file=sys.stderr)
                continue
            stack.callback(started.stop)
            dialects.MariaDB.fails_when_cut = True  # nothing is cut here, and MySQL, which is not run, never is
            url = started.url() if caller is PostgreSQL else None
            found.append(
                caller(psycopg.connect(url, autocommit=True, options="-c jit=off") if url else started.connect())
            )
        yield found


def run(seeds: Iterable[int], databases: list, options: argparse.Namespace) -> int:
    from tests.localsql.local_questions import Tally

    new_key, tally, broken, wrong, slow = keys(), Tally(), Counter(), defaultdict(list), {}
    post, started = Posting(slow), time.monotonic()
    until = started + 60 * options.minutes if options.minutes else float("inf")
    for seed in itertools.takewhile(lambda _: time.monotonic() < until, seeds):
        post.seed = seed
        gc.collect()
        gc.freeze()  # else a collection of all that earlier policies left counts for some request
        for text in differences_of(seed, options, new_key, databases, tally, broken, post):
            wrong[seed].append(text)
        if seed in wrong and len(wrong) <= options.prints:
            print(f"==== seed {seed}: {len(wrong[seed])} times, such as\n{min(wrong[seed], key=len)}", flush=True)
    if taken := sorted(post.seconds):
        shares = ((share, taken[int(share / 100 * (len(taken) - 1))]) for share in (50, 90, 99, 100))
        print(f"a request takes {', '.join(f'p{share} {each:.3f}' for share, each in shares)} s of processor time")
    return closing(tally, broken, wrong, slow, time.monotonic() - started)


@dataclass
class Posting:
    """Posts with an alarm, and notes what took long."""

    slow: dict[str, float]
    seed: int = 0
    seconds: list[float] = field(default_factory=list)  # of processor time, of each request

    def __call__(self, caller, path: str, body: dict) -> object:
        from tests.properties import ask_adapter

        began = time.process_time()
        try:
            with at_most(TOO_LONG):
                return ask_adapter._post(caller, path, body)
        except TookTooLong:
            connection.close()
            raise ask_adapter.PastLimit from None
        finally:
            self.seconds.append(seconds := time.process_time() - began)
            if seconds > LONG:
                said = {key: value for key, value in body["query"].items() if key != "context_facts"}
                self.slow[f"seed {self.seed}: {path} {said}"] = seconds


def differences_of(seed, options, new_key, databases, tally, broken: Counter, post: Posting) -> Iterator[str]:
    from tests.localsql.collations import POLICIES, collated_case
    from tests.localsql.local_questions import differences
    from tests.localsql.moving import all_moved, moved
    from tests.properties.ask_adapter import PolicyRefused
    from tests.properties.written import some_case

    rng = Random(seed)
    if options.collations:
        case, move = collated_case(list(POLICIES)[seed % len(POLICIES)], rng), all_moved
    else:
        case, move = some_case(seed, rng, options.features, options.written), moved
    try:
        with at_most(WHOLE_CASE):
            yield from differences(case, rng, new_key, databases, tally, post, move)
    except PolicyRefused:
        broken["policies refused"] += 1
    except TookTooLong:
        connection.close()
        broken[f"cases given up after {WHOLE_CASE} s"] += 1
    except Exception as error:
        broken[f"broken: {type(error).__name__}"] += 1
        print(f"==== seed {seed} broke: {error!r}\n{case.policy}", flush=True)


def closing(tally, broken: Counter, wrong: dict[int, list[str]], slow: dict[str, float], seconds: float) -> int:
    for text, count in [*tally.refused.most_common(20), *broken.items()]:
        print(f"{count:8d} refused: {text}" if text in tally.refused else f"{count:8d} {text}")
    for name, taken in sorted(slow.items(), key=lambda each: -each[1])[:20]:
        print(f"{taken:8.1f} s {name}")
    print(f"{tally.with_nulls} conditions held for a row whose column is NULL")
    print(f"wrong for the seeds {sorted(wrong)}")
    print(f"{tally.wrong} wrong of {tally.asked}, {tally.refused.total()} refused, in {seconds:.0f} s")
    return 1 if wrong or any(text.startswith("broken") for text in broken) else 0


if __name__ == "__main__":
    sys.exit(main())
