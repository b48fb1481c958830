"""Explaining beside deciding: what it costs to be told why.

    python -m tests.benchmarks.explain --facts 1000000 --database sqlite

For each kind of question, what is allowed and what is denied: the time of the decision, that of its explanation, and
the ratio of the two; 50th and 99th percentile in microseconds. An explanation has to come within 50 times the decision.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tests import standalone
from tests.benchmarks.engine import Sample, at, database, filled, parsed, samples_of, stored

MOST = 50  # times the decision's own time
SECONDS = 3.0  # for one row of the table, at most


def main() -> int:
    arguments = parsed()
    with database(arguments.database) as url:
        standalone.set_up(url)
        started = time.monotonic()
        caller, size = filled(arguments.facts)
        print(f"{stored()} facts on {arguments.database}, loaded in {time.monotonic() - started:.0f} s")
        return compare(caller, size, arguments.runs, arguments.only)


def compare(caller, size, runs: int, only: str) -> int:
    from tests.benchmarks.handwritten import QUESTIONS

    print(f"{'p50 / p99 in us':32}{'decision':>20}{'explanation':>22}{'ratio of p50':>14}")
    beyond = 0
    for question in QUESTIONS:
        if only in question.name and not question.is_list:
            samples = samples_of(caller, question, size, False)
            beyond += rows(caller, question, samples, runs)
    return 1 if beyond else 0


def rows(caller, question, samples: list[Sample], runs: int) -> int:
    """A row for what is allowed and one for what is denied; how many of them took too long."""
    from checks.asking import ask
    from checks.asking.question import Asked, allow
    from checks.explain import explain

    def asked(sample: Sample):
        actor, action = Asked("User", (sample.actor,)), Asked("String", (question.action,))
        return allow(actor, action, Asked(question.resource_type, (sample.resource,)))

    allowed, denied = [], []
    for each in map(asked, samples):
        decided = ask.answer(caller, each).holds
        assert explain.explain(caller, each).allowed == decided, "an explanation is of the decision"
        (allowed if decided else denied).append(each)
    beyond = 0
    for name, group in (("allowed", allowed), ("denied", denied)):
        if group:
            own = times(lambda each: ask.answer(caller, each).holds, group, runs)
            told = times(lambda each: explain.explain(caller, each), group, runs)
            beyond += row(f"{question.name}, {name}", own, told)
    return beyond


def times(act: Callable, group: list, runs: int) -> list[float]:
    taken = []
    until = time.monotonic() + SECONDS
    for index in range(runs):
        started = time.perf_counter()
        act(group[index % len(group)])
        taken.append((time.perf_counter() - started) * 1e6)
        if time.monotonic() > until:
            break
    return taken


def row(name: str, own: list[float], told: list[float]) -> bool:
    ratio = at(told, 0.5) / at(own, 0.5)
    columns = "".join(f"{at(each, 0.5):>12,.0f} / {at(each, 0.99):>7,.0f}" for each in (own, told))
    print(f"{name:30}{columns}{ratio:>14.1f}{'  too long' if ratio > MOST else ''}", flush=True)
    return ratio > MOST


if __name__ == "__main__":
    sys.exit(main())
