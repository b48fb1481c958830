"""What programs share that hold passes to their meaning, policy after policy, for as long as you like."""

import argparse
import time
from collections.abc import Iterator
from itertools import count

SMALL_LADDERS_EVERY = 3  # policies, where no features are named


def parser_of(doc: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first policy; the next has the next")
    parser.add_argument("--features", nargs="*", default=(), help="names of features, or of modules of them: ladders")
    parser.add_argument("--prints", type=int, default=5, help="disagreements to print at most")
    return parser


def seeds(options: argparse.Namespace) -> Iterator[tuple[int, list[str]]]:
    """The seeds of policies, with the features of each, until the time is over."""
    started = time.monotonic()
    for seed in count(options.seed):
        if time.monotonic() - started > 60 * options.minutes:
            return
        yield seed, list(options.features) or (["small_ladder"] if seed % SMALL_LADDERS_EVERY == 0 else [])
