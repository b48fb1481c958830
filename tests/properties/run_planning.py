"""Measure how long planning takes, in processor time of its thread, and how large the statements get.

    python -m tests.properties.run_planning --policies 1000 --seed 1 --database postgresql
    python -m tests.properties.run_planning --policies 0 --large --hard

Each question is planned by a rule set that nobody asked before. As in the service, the planner knows of which
signatures there are facts: of a random policy, those that come with it. Prints the distribution and the worst.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from checks.engine.compile import Compiled
from checks.engine.sql.text import PostgreSQL, SQLite
from checks.errors import TooComplex
from policy.errors import AuthzError
from tests import standalone

DIALECTS = {"sqlite": SQLite(), "postgresql": PostgreSQL()}
SHARES = (0.5, 0.9, 0.99, 0.999, 1)


@dataclass(frozen=True)
class Cost:
    """What planning one question took, and what came of it: a statement of so many characters, or a refusal."""

    name: str
    seconds: float
    text: int = 0
    refusal: str = ""

    def __str__(self) -> str:
        return f"{self.seconds * 1000:8.1f} ms {self.text:8d}  {self.name}  {self.refusal}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", type=int, default=100, help="random ones")
    parser.add_argument("--seed", type=int, default=0, help="of the first random policy; the next has the next")
    parser.add_argument("--features", nargs="*", default=(), help="names of features, or of modules of them: ladders")
    parser.add_argument("--written", action="store_true", help="policies that were written to be tricky, as well")
    parser.add_argument("--large", action="store_true", help="ordinary policies of large applications, as well")
    parser.add_argument("--hard", action="store_true", help="policies that combine in many ways, as well")
    parser.add_argument("--database", choices=DIALECTS, default="sqlite")
    parser.add_argument("--limit", type=float, default=1, help="seconds of CPU time")
    parser.add_argument("--any-facts", action="store_true", help="random policies have facts of all kinds they accept")
    parser.add_argument("--worst", type=int, default=20, help="questions to print")
    options = parser.parse_args()
    standalone.set_up()
    for title, costs in groups(options):
        gc.collect()
        gc.freeze()  # as servers do once all is imported: else a collection of all that is there is some question's
        report(title, list(costs), options.worst)
    return 0


def groups(options: argparse.Namespace) -> Iterator[tuple[str, Iterator[Cost]]]:
    if options.large:
        yield "large policies", large(options)
    if options.hard:
        yield "hard policies", hard(options)
    if options.policies:
        yield "random policies", random(options)


def report(title: str, costs: list[Cost], worst: int) -> None:
    planned = sorted(each.seconds for each in costs if not each.refusal)
    texts = sorted(each.text for each in costs if not each.refusal)
    print(f"==== {title}: {len(costs)} questions, {len(costs) - len(planned)} refused")
    if planned:
        places = [min(int(share * len(planned)), len(planned) - 1) for share in SHARES]
        shown = (
            f"{share:7.1%} {planned[at] * 1000:8.1f} ms {texts[at]:8d} characters" for share, at in zip(SHARES, places)
        )
        print("\n".join(shown))
        print(f"in all  {sum(planned) * 1000:8.0f} ms {sum(texts):8d} characters")
    for refusal, count in Counter(each.refusal for each in costs if each.refusal).most_common():
        print(f"{count:8d} times {refusal}")
    print(*sorted(costs, key=lambda each: -each.seconds)[:worst], sep="\n")
    print("and the largest", *sorted(costs, key=lambda each: -each.text)[: worst // 2], sep="\n", flush=True)


# ---- what is planned -----------------------------------------------------------------------------------------------


def large(options: argparse.Namespace) -> Iterator[Cost]:
    from tests.checks.in_memory import Engine
    from tests.checks.large_policies import policies
    from tests.checks.test_large_policies import KINDS

    for each in policies():
        for kind in KINDS:
            engine = Engine(each.text, DIALECTS[options.database], patience=options.limit)
            yield timed(
                f"{each.name}: {kind}",
                lambda: engine.compiled(kind, each.action, each.actor, each.resource),  # noqa: B023
            )


def hard(options: argparse.Namespace) -> Iterator[Cost]:
    from tests.checks.hard_policies import policies
    from tests.checks.in_memory import Engine
    from tests.checks.plan_questions import question_of

    for each in policies():
        for text in each.questions:
            engine = Engine(each.text, DIALECTS[options.database], patience=options.limit)
            shape, _ = engine.shape([question_of(text)[0]])
            yield timed(f"{each.name}: {text}", lambda: engine.compiled_for(shape))  # noqa: B023


def random(options: argparse.Namespace) -> Iterator[Cost]:
    from facts.wire import Fact
    from tests.checks.in_memory import Engine
    from tests.properties.differences import fitted
    from tests.properties.plans_by_meaning import by_signature, put
    from tests.properties.questions import Explain
    from tests.properties.random_policies import is_policy
    from tests.properties.written import some_case

    for seed in range(options.seed, options.seed + options.policies):
        case = some_case(seed, Random(seed), options.features, options.written)
        if not is_policy(case):
            continue
        case = fitted(case)
        stored = by_signature(case.facts)
        knows = (lambda signature: True) if options.any_facts else stored.__contains__
        seen = set()
        for each in case.questions:
            context = [Fact(*fact) for fact in case.context if fact not in case.facts] if each.with_context else []
            engine = Engine(case.policy, DIALECTS[options.database], patience=options.limit)
            questions = [] if isinstance(each.ask, Explain) else put(each.ask, engine.rules.program)
            shape = engine.shape(questions, context)[0] if questions else None
            if shape is not None and shape not in seen:
                seen.add(shape)
                yield timed(f"seed {seed}: {each.ask}", lambda: engine.compiled_for(shape, knows))  # noqa: B023


def timed(name: str, plan) -> Cost:
    started = time.thread_time()
    try:
        made: Compiled | None = plan()
    except TooComplex as refused:
        return Cost(name, time.thread_time() - started, refusal=str(refused))
    except AuthzError:
        made = None  # no answer can be said, which planning found out
    taken = time.thread_time() - started
    return Cost(name, taken, size(made) if made else 0)


def size(made: Compiled) -> int:
    """The characters of all statements of the question."""
    every = [made.statement] if made.statement else []
    for rounds in made.rounds:
        steps = (step.statement for step in rounds.steps)
        every += [each for each in (rounds.seed, *steps, *(exits for _, exits in rounds.exits)) if each]
    return sum(len(each.sql) for each in every)


if __name__ == "__main__":
    sys.exit(main())
