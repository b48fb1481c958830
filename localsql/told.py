"""What may be told of a confidential question for the caller's own database: its shape, and its plan's size."""

from __future__ import annotations

from checks.asking.told import shape_of_root
from localsql.asking import PlanKey, plans


def shape_of(key: PlanKey) -> str:
    """Return the question by types alone."""
    return f"{shape_of_root(key.root)} in SQL"


def reads_of(key: PlanKey) -> int | None:
    """Return how many tables its plan reads; None where it is not remembered any more."""
    found = plans.get(key)
    return None if found is None else found.reads
