"""Hold the service against the oracle for as long as you like.

    python -m tests.properties.run_long --policies 2000 --seed 1 --database postgres
    python -m tests.properties.run_long --policies 100000 --minutes 30 --features ladders
    python -m tests.properties.run_long --policies 100000 --minutes 60 --ways 3 --answer-sets

Prints each disagreement with as little policy, as few facts and one question, and a closing count.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from django.core.management import call_command
from django.db import connection

from tests import standalone
from tests.properties.patience import TookTooLong, at_most

if TYPE_CHECKING:  # they need settings, which are made below
    from tests.properties.ask_adapter import Caller
    from tests.properties.differences import Outcome
    from tests.properties.questions import Ask

LONG, TOO_LONG, WHOLE_CASE, SHRINKING = 2, 30, 180, 60  # seconds


def main() -> int:
    arguments = parsed()
    with database(arguments.database) as url:
        standalone.set_up(url)
        logging.disable()  # what breaks is printed once, as small as it gets
        call_command("migrate", verbosity=0)
        if arguments.answer_sets:
            patch(
                "tests.properties.differences.model_of", import_module("tests.properties.answer_sets").solved_model
            ).start()
        skipped = set(arguments.skip)
        seeds = (seed for seed in range(arguments.seed, arguments.seed + arguments.policies) if seed not in skipped)
        return run(seeds, arguments)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first policy; the next has the next")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--minutes", type=float, default=0, help="to end after, whatever policies are left")
    parser.add_argument("--features", nargs="*", default=(), help="names of features, or of modules of them: ladders")
    parser.add_argument("--written", action="store_true", help="policies that were written to be tricky")
    parser.add_argument("--bare", action="store_true", help="programs of few rules without blocks, also as of now")
    parser.add_argument("--mixed", action="store_true", help="such programs with subtypes, values in heads and lists")
    parser.add_argument("--answer-sets", action="store_true", help="held to clingo instead of the oracle")
    parser.add_argument("--ways", type=int, default=1, help="decisions and goals of each policy asked in every way")
    parser.add_argument("--skip", type=int, nargs="*", default=(), help="seeds to leave out")
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


@dataclass
class Asking:
    """Asks as the adapter does, and notes what takes long, or too long, of which case."""

    tally: Counter
    ask: Callable[[Caller, Ask], Any]
    seed: int = 0
    slow: dict[str, float] = field(default_factory=dict)

    def __call__(self, caller: Caller, question: Ask) -> Any:
        from tests.properties import ask_adapter

        started, name = time.process_time(), f"seed {self.seed}: {question}"
        try:
            with at_most(TOO_LONG):
                return self.ask(caller, question)
        except ask_adapter.PastLimit as limit:
            self.tally[f"past {limit}", "refused"] += 1
            raise
        except TookTooLong:
            connection.close()  # in the middle of who knows what
            self.tally["given up", f"after {TOO_LONG} s"] += 1
            raise ask_adapter.PastLimit from None
        finally:
            if (seconds := time.process_time() - started) > LONG:  # of this process: of planning, mostly
                self.slow[name] = seconds


def run(seeds: Iterable[int], options: argparse.Namespace) -> int:
    from tests.properties.ask_adapter import ask
    from tests.properties.bare import now_and_then
    from tests.properties.differences import smallest
    from tests.properties.questions import Refused

    new_key, tally, refusals, started = keys(), Counter(), Counter(), time.monotonic()
    asking = Asking(tally, ask=now_and_then if options.bare or options.mixed else ask)
    prints, wrong = options.prints, defaultdict(set)
    until = started + 60 * options.minutes if options.minutes else float("inf")
    for seed in itertools.takewhile(lambda _: time.monotonic() < until, seeds):
        asking.seed = seed
        for outcome in outcomes_of(seed, options, new_key, asking, tally):
            kind = type(outcome.question.ask).__name__
            tally[kind, "right" if outcome.is_right else "WRONG"] += 1
            if outcome.is_modest:
                tally["refused, though it could be said", kind] += 1
            if isinstance(outcome.said, Refused):
                refusals[outcome.said.status, outcome.said.message.partition(" request ")[0]] += 1
            if outcome.is_right:
                continue
            is_first = not any(seed in where for where in wrong.values())
            wrong[kind].add(seed)
            if is_first and (prints := prints - 1) >= 0:
                least = smallest(outcome, new_key, asking, SHRINKING)
                print(f"==== seed {seed} {outcome.case.features}\n{least}", flush=True)
    for name, seconds in sorted(asking.slow.items(), key=lambda each: -each[1])[:20]:
        print(f"{seconds:8.1f} s {name}")
    for kind, where in wrong.items():
        print(f"{kind} was wrong for the seeds {sorted(where)}")
    return closing(tally, refusals, time.monotonic() - started)


def outcomes_of(seed: int, options: argparse.Namespace, new_key, asking: Asking, tally: Counter) -> list[Outcome]:
    """Of one case; none where the policy is refused or something breaks, which is counted."""
    from tests.properties.ask_adapter import LIMITS, PolicyRefused
    from tests.properties.bare import bare_case
    from tests.properties.differences import MODEST, outcomes
    from tests.properties.every_way import in_every_way
    from tests.properties.stated import refusal
    from tests.properties.written import some_case

    rng = Random(seed)
    is_bare = options.bare or options.mixed
    case = (
        bare_case(rng, seed % 2 == 0, options.mixed)
        if is_bare
        else some_case(seed, rng, options.features, options.written)
    )
    try:
        with at_most(WHOLE_CASE):
            found = outcomes(case if is_bare else in_every_way(case, rng, options.ways), new_key, asking)
            against = None if is_bare else refusal(case, rng, new_key)
            is_modest = against is not None and any(words in against for words in (*MODEST, *LIMITS.values()))
            tally["tests in policies", "refused" if is_modest else "WRONG" if against else "right"] += 1
            if against and not is_modest:
                print(f"==== seed {seed} {case.features} is refused for its test: {against}", flush=True)
            return found
    except PolicyRefused as refused:
        tally["policies refused", str(refused).splitlines()[0].partition(": ")[2]] += 1
    except TookTooLong:
        connection.close()
        tally["cases given up", f"after {WHOLE_CASE} s"] += 1
    except Exception as broken:
        tally["broken", type(broken).__name__] += 1
        print(f"==== seed {seed} {case.features} broke: {broken!r}\n{case.policy}", flush=True)
    return []


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
