"""Past facts that are removed for good: people have a right to be forgotten."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connection

from facts import read
from facts.models import Signature
from facts.numbering import signature_numbers
from facts.read import id_conditions, matching
from facts.table import fact_table
from facts.wire import FactPattern
from policy.models import new_moment
from policy.offsets import changing


@dataclass(frozen=True, slots=True)
class Matching:
    """Past facts that a pattern matches, and the revisions at which some of them held, as far as there is history."""

    past: int
    first: int
    last: int
    stored: int  # facts that are not past


def matches(environment_id: int, pattern: FactPattern) -> Matching:
    past, firsts, lasts = 0, [], []
    conditions, ids = id_conditions(pattern.args)
    with connection.cursor() as cursor:
        cursor.execute("SELECT horizon FROM environment WHERE id = %s", (environment_id,))
        horizon = cursor.fetchone()[0]
        for number in _numbers(environment_id, pattern):
            counted = f"SELECT COUNT(*), MIN(since), MAX(until) FROM past_fact WHERE sig = %s{conditions}"
            cursor.execute(counted, (number, *ids))
            found, first, last = cursor.fetchone()
            if found:
                past += found
                firsts.append(max(first, horizon))
                lasts.append(last - 1)
    return Matching(past, min(firsts, default=0), max(lasts, default=0), read.count(environment_id, pattern))


def forget(environment_id: int, pattern: FactPattern) -> int:
    """Remove them, all or none; how many there were. What was answered from them is not remembered either."""
    conditions, ids = id_conditions(pattern.args)
    forgotten = 0
    with changing():
        _scrub_notes(environment_id)
        fact_table().lift_time_limit()
        with connection.cursor() as cursor:
            cursor.execute("UPDATE environment SET moment = %s WHERE id = %s", (new_moment(), environment_id))
            for number in _numbers(environment_id, pattern):
                cursor.execute(f"DELETE FROM past_fact WHERE sig = %s{conditions}", (number, *ids))
                forgotten += cursor.rowcount
    return forgotten


def _scrub_notes(environment_id: int) -> None:
    """Take the facts out of what the admin noted when its notes still had their ids."""
    kinds = map(str, signature_numbers(environment_id).values())
    notes = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(Signature), object_id__in=list(kinds)
    )
    for what in ("added", "deleted"):
        notes.filter(change_message__startswith=f"{what} ", change_message__contains="{").update(
            change_message=f"{what} a fact"
        )


def _numbers(environment_id: int, pattern: FactPattern) -> list[int]:
    return list(matching(signature_numbers(environment_id), pattern.predicate, pattern.args).values())
