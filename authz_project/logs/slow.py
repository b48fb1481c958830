"""Logs questions that took long: their shapes without ids, how many tables they read, and where the time went."""

from __future__ import annotations

import logging

from authz_project.logs.access import facts_of
from authz_project.logs.formats import FACTS
from authz_project.observing import Seen
from checks.asking.advice import redacted_questions, tables_read
from checks.asking.session import StatementKey
from localsql.asking import PlanKey

log = logging.getLogger("authz.slow")

SHOWN = 5  # shapes of one request
LONGEST = 500  # characters of one shape
QUESTIONS = frozenset({"compile", "found"})  # parts that only questions have


def tell_if_question(seen: Seen) -> None:
    """Log the request, if it asked a question. An observer that is told only of requests that took long."""
    keys = dict.fromkeys(part.facts["key"] for part in seen.parts if part.name in QUESTIONS)
    if not keys:
        return
    shapes, reads = _shapes(keys), _reads(keys)
    took = {name: sum(part.seconds for part in seen.parts if part.name == name) for name in ("compile", "statement")}
    statements = [part for part in seen.parts if part.name == "statement"]
    rows = sum(part.facts.get("rows", 0) for part in statements)
    shown = " | ".join(shapes[:SHOWN]) + (f" | and {len(shapes) - SHOWN} more" if len(shapes) > SHOWN else "")
    log.warning(
        "slow question: %s %d took %.0f ms, of which %.0f ms compiling and %.0f ms in %d statements (%d rows); "
        "plan reads %s tables: %s",
        seen.endpoint, seen.status, seen.seconds * 1000, took["compile"] * 1000, took["statement"] * 1000,
        len(statements), rows, "?" if reads is None else reads, shown,
        extra={
            FACTS: facts_of(seen)
            | {
                "shapes": shapes[:SHOWN],
                "shapes_left_out": max(0, len(shapes) - SHOWN),
                "plan_reads": reads,
                "compile_microseconds": int(took["compile"] * 1_000_000),
                "statement_microseconds": int(took["statement"] * 1_000_000),
                "statements": len(statements),
                "rows": rows,
            }
        },
    )  # fmt: skip


def _shapes(keys: dict[object, None]) -> list[str]:
    found: dict[str, None] = {}
    for key in keys:
        match key:
            case StatementKey():
                found |= dict.fromkeys(redacted_questions(key))
            case PlanKey():
                found |= dict.fromkeys([key.redacted])
    return [each if len(each) <= LONGEST else f"{each[:LONGEST]}…" for each in found]


def _reads(keys: dict[object, None]) -> int | None:
    """Return how many tables the largest plan reads, of those still in the caches; None if none is."""
    known = []
    for key in keys:
        match key:
            case StatementKey():
                known.append(tables_read(key))
            case PlanKey():
                known.append(key.tables_read)
    return max((reads for reads in known if reads is not None), default=None)
