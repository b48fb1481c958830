"""What statements cost on SQLite: steps of its machine, and rows that are read. Both are exact counts.

Another SQLite may well take other steps. So a budget has some room: ROOM times the count that was written down where
the library has the version that it was counted with, OTHER_ROOM times where it has another.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import NamedTuple

from checks.engine.compile import Compiled
from tests.checks.in_memory import Engine
from tests.checks.plan_questions import ENTITIES, GOLDEN, brought_for, facts_for, policy_of, question_of

ASKED_ABOUT = (0, ENTITIES // 2, ENTITIES - 1)  # entities that many facts are about, and hardly any
MOST_STEPS = 300_000  # that are waited for, of one asking

ROOM, OTHER_ROOM = 1.1, 1.5
VERSION = f"SQLite {sqlite3.sqlite_version}"
HEADING = "    steps     rows  answers  question"

COUNTING = """
ALTER TABLE authz_fact RENAME TO counted_fact;
CREATE VIEW authz_fact AS SELECT * FROM counted_fact WHERE is_read(sig);
"""


class Cost(NamedTuple):
    steps: int  # of all askings
    rows: int  # of stored facts, looked at by way of an index or without
    answers: int

    def __str__(self) -> str:
        return f"{self.steps:9} {self.rows:8} {self.answers:8}"

    @property
    def is_endless(self) -> bool:
        return self.answers < 0


ENDLESS = Cost(-1, -1, -1)  # more than MOST_STEPS


class Measure:
    """A policy with facts in two databases: one as it is, and one that counts the rows that are read of it."""

    def __init__(self, name: str):
        self.engine = filled(name)
        self.counting = filled(name)
        self.rows = 0
        # Each row that an index leads to is shown to the function first, before any other test of it.
        self.counting.database.create_function("is_read", 1, self._count)
        self.counting.database.executescript(COUNTING)

    def _count(self, _: int) -> int:
        self.rows += 1
        return 1

    def compiled(self, text: str) -> Compiled:
        return self.engine.compiled_for(self._shape(text)[0])

    def _shape(self, text: str, first: int = 0):
        question, signatures = question_of(text, first)
        return self.engine.shape([question], brought_for(self.engine.rules.program, signatures))

    def cost(self, text: str) -> Cost:
        """Of asking the question about some entities, one after the other."""
        compiled, steps, answers, self.rows = self.compiled(text), 0, 0, 0
        try:
            for first in ASKED_ABOUT:
                slots = self._shape(text, first)[1]
                with counted(self.engine.database) as done:
                    found = self.engine.rows(compiled, slots)
                steps += done[0]
                answers += sum(row != (0,) for row in found)
                assert sorted(map(repr, self.counting.rows(compiled, slots))) == sorted(map(repr, found))
        except sqlite3.OperationalError as error:
            assert str(error) == "interrupted"
            return ENDLESS
        return Cost(steps, self.rows, answers)


def filled(name: str) -> Engine:
    engine = Engine(policy_of(name))
    for signature, rows in facts_for(engine.rules.program).items():
        engine.store_all(signature, rows)
    engine.database.commit()
    return engine


@contextmanager
def counted(database: sqlite3.Connection) -> Iterator[list[int]]:
    done = [0]

    def step() -> bool:
        done[0] += 1
        return done[0] > MOST_STEPS

    database.set_progress_handler(step, 1)
    try:
        yield done
    finally:
        database.set_progress_handler(None, 0)


# ---- budgets ------------------------------------------------------------------------------------------------------


def budget_path(name: str) -> Path:
    return GOLDEN / f"{name}.budget"


def text_of(costs: dict[str, Cost]) -> str:
    return "\n".join([VERSION, HEADING, *(f"{cost}  {text}" for text, cost in costs.items()), ""])


def budgets_of(name: str) -> dict[str, Cost]:
    """What each question about the policy may cost here."""
    version, _, *lines = budget_path(name).read_text().splitlines()
    room = ROOM if version == VERSION else OTHER_ROOM
    found = {}
    for line in lines:
        *counts, question = line.split(maxsplit=3)
        found[question] = with_room(Cost(*map(int, counts)), room)
    return found


def with_room(cost: Cost, room: float) -> Cost:
    return cost._replace(steps=ceil(cost.steps * room), rows=ceil(cost.rows * room))


def is_dear(cost: Cost, budget: Cost) -> bool:
    """More than it may be, or not about the same answers. What was too much to count cannot become worse here."""
    if budget.is_endless:
        return False
    return cost.is_endless or cost.answers != budget.answers or cost.steps > budget.steps or cost.rows > budget.rows
