"""What a program was to show, and what it measured."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import NamedTuple

from tests.faults.worlds import KINDS


class Mark(NamedTuple):
    name: str
    wanted: str
    measured: str
    is_met: bool


def at_most(name: str, most: float, measured: float, unit: str = "") -> Mark:
    """Whether it is; of nothing, it is not."""
    return Mark(name, f"≤ {most:g}{unit}", f"{measured:.3g}{unit}", measured <= most)


def none_of(name: str, found: int, of: int) -> Mark:
    return Mark(name, f"none of {of}", str(found), found == 0 and of > 0)


def printed(marks: Iterable[Mark], title: str = "") -> int:
    """Print them as a table; return what the program exits with."""
    marks = list(marks)
    if title:
        print(title)
    width = max(len(each.name) for each in marks)
    for each in marks:
        sign = "ok  " if each.is_met else "MISS"
        print(f"{sign}  {each.name:<{width}}  {each.wanted:<18}  {each.measured}", flush=True)
    return 0 if all(each.is_met for each in marks) else 1


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """With `--database`: one kind, or both where it is not said."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--database", choices=KINDS, help="one of them; without it, both")
    return parser


def kinds_of(options: argparse.Namespace) -> tuple[str, ...]:
    return (options.database,) if options.database else KINDS
