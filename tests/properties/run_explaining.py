"""Measure what explanations take beside the decisions that they explain, in processor time, on random policies.

    python -m tests.properties.run_explaining --policies 400 --seed 1 --database postgres

Decision and explanation are each asked as if the policy had just been published. Prints how both are distributed, the
slowest explanations, and those past the limit: three times the decision and 0.3 s. On PostgreSQL, the processor time of
the server's process counts, too.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from django.core.management import call_command

from tests import standalone
from tests.properties.patience import TookTooLong, at_most
from tests.properties.run_long import database, keys

if TYPE_CHECKING:
    from tests.properties.questions import Ask
    from tests.properties.random_policies import Case

TIMES, MORE = 3, 0.3  # of a decision's processor time; seconds
LONGEST = 120  # seconds for a policy


@dataclass(frozen=True, slots=True)
class Cost:
    """The processor time of a decision and of its explanation."""

    name: str
    decision: float
    explanation: float
    is_allowed: bool
    is_complete: bool
    size: str

    @property
    def beyond(self) -> float:
        return self.explanation - TIMES * self.decision

    @property
    def is_past(self) -> bool:
        return self.beyond > MORE

    def __str__(self) -> str:
        told = "allowed" if self.is_allowed else "denied"
        rest = "" if self.is_complete else ", incomplete"
        return f"{self.decision:8.3f} s {self.explanation:8.3f} s  {self.name}: {told}{rest}, {self.size}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first policy; the next has the next")
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--features", nargs="*", default=(), help="names of features, or of modules of them: ladders")
    parser.add_argument("--written", action="store_true", help="policies that were written to be tricky")
    parser.add_argument("--worst", type=int, default=20, help="explanations to print")
    options = parser.parse_args()
    with database(options.database) as url:
        standalone.set_up(url)
        logging.disable()
        call_command("migrate", verbosity=0)
        return run(options)


def run(options: argparse.Namespace) -> int:
    from tests.properties.ask_adapter import PolicyRefused
    from tests.properties.written import some_case

    new_key, costs, tally = keys(), [], Counter()
    for seed in range(options.seed, options.seed + options.policies):
        case = some_case(seed, Random(seed), options.features, options.written)
        gc.collect()
        gc.freeze()  # else a collection of all that earlier policies left counts for some question
        try:
            with at_most(LONGEST):
                for cost in costs_of(seed, case, new_key):
                    costs.append(cost)
        except PolicyRefused:
            tally["policies refused"] += 1
        except TookTooLong:
            tally["policies given up"] += 1
    report(costs, options.worst)
    print(dict(tally))
    return 1 if any(cost.is_past for cost in costs) else 0


def report(costs: list[Cost], worst: int) -> None:
    """Print the distribution of both, and of what explanations take beyond their share; then the worst."""
    if not costs:
        return
    columns = {
        "decision": sorted(cost.decision for cost in costs),
        "explanation": sorted(cost.explanation for cost in costs),
        f"explanation - {TIMES} decisions": sorted(cost.beyond for cost in costs),
    }
    for name, seconds in columns.items():
        shares = (f"p{share:g} {seconds[int(share / 100 * (len(seconds) - 1))]:.3f}" for share in (50, 90, 99, 99.9))
        print(f"{name:28} {' '.join(shares)} max {seconds[-1]:.3f} s")
    incomplete = [cost for cost in costs if not cost.is_complete]
    past = [cost for cost in costs if cost.is_past]
    print(f"{len(past)} of {len(costs)} explanations are past {TIMES} times the decision and {MORE} s")
    print(f"{len(incomplete)} are incomplete ({len(incomplete) / len(costs):.2%})")
    print(*sorted(costs, key=lambda cost: -cost.explanation)[:worst], sep="\n")
    print("and furthest beyond", *sorted(costs, key=lambda cost: -cost.beyond)[: worst // 2], sep="\n", flush=True)


def costs_of(seed: int, case: Case, new_key: Callable[[], str]) -> Iterator[Cost]:
    """Yield what each goal of the case costs, in an environment of its own."""
    from tests.properties import ask_adapter
    from tests.properties.ask_adapter import Caller, PastLimit
    from tests.properties.differences import fitted
    from tests.properties.questions import Refused

    caller = Caller(new_key())
    ask_adapter.publish(caller, case.policy)
    case = fitted(case)
    ask_adapter.store(caller, case.facts)
    size = f"{case.policy.count(chr(10))} lines, {len(case.facts)} facts"
    for predicate, row in goals_of(case):
        name = f"seed {seed}: {predicate}({', '.join(map(str, row))})"
        try:
            decided, decision = measured(ask_adapter.ask, caller, given(predicate, row))
            if isinstance(decided, Refused):
                continue
            said, explanation = measured(ask_adapter.explained, caller, predicate, row)
        except PastLimit:
            continue
        if not isinstance(said, Refused):
            yield Cost(name, decision, explanation, said["allowed"], said.get("complete", True), size)


def goals_of(case: Case) -> Iterator[tuple[str, tuple]]:
    """Yield the goals of the case's rules, and its decisions."""
    from policy.values import STRING, Value
    from tests.properties.questions import Authorize

    yield from case.goals
    for ask in {each.ask for each in case.questions}:
        if isinstance(ask, Authorize):
            yield "allow", (ask.actor, Value(STRING, ask.action), ask.resource)


def given(predicate: str, row: tuple) -> Ask:
    from tests.properties.questions import Evaluate

    names = tuple(f"v{index}" for index in range(len(row)))
    return Evaluate(((predicate, names),), tuple((name, v.type, (v.id,)) for name, v in zip(names, row)))


def measured(act: Callable, *args):
    """Return what the act returns and its processor time, with nothing compiled before."""
    from checks.asking import ask, snapshot

    ask.LiveSession.statements.clear()
    snapshot.published.clear()
    ask.rule_sets.clear()
    snapshot._cases.clear()
    began = processor_time()
    result = act(*args)
    return result, processor_time() - began


def processor_time() -> float:
    """Return that of this process, and of the database's process that serves it."""
    from django.db import connection

    theirs = 0.0
    if connection.vendor == "postgresql" and connection.connection is not None:
        on_processor, *_ = Path(f"/proc/{connection.connection.info.backend_pid}/schedstat").read_text().split()
        theirs = int(on_processor) / 1e9
    return time.process_time() + theirs


if __name__ == "__main__":
    sys.exit(main())
