"""The rows of facts and past facts that revisions began and ended.

If a revision both ended and began the same fact, it changed the fact's end (`expires_at`): the fact is listed among the
inserted only. This happens only with signatures whose facts may end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from facts.feed_position import Entry
from facts.models import COLUMNS
from facts.numbering import types_of_text
from policy.clock import short_text_of

MANY = 50_000  # facts of a revision, from which on a part of it is looked for among all facts

_NAMES = ", ".join(COLUMNS)
_SAME = " AND ".join(f"other.{name} = past_fact.{name}" for name in ("sig", *COLUMNS))
_BEGUN_AGAIN = (
    f"EXISTS (SELECT 1 FROM fact other WHERE {_SAME} AND other.since = past_fact.until)"
    f" OR EXISTS (SELECT 1 FROM past_fact other WHERE {_SAME} AND other.since = past_fact.until)"
)

Row = tuple[Any, ...]  # 0 for what was inserted and 1 for what was deleted, sig, ids, expires_at
Changed = tuple[list[dict[str, object]], list[dict[str, object]]]  # facts that were inserted, and deleted


@dataclass(frozen=True, slots=True)
class Chosen:
    """Signatures whose facts are read, by their numbers: each a predicate and types."""

    signatures: dict[int, tuple[str, tuple[str, ...]]]
    ending: frozenset[int]  # of those, the ones whose facts may end

    @classmethod
    def of(cls, environment_id: int, predicates: frozenset[str]) -> Chosen:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT id, predicate, types, may_end FROM signature WHERE environment_id = %s", (environment_id,)
            )
            rows = [row for row in cursor.fetchall() if not predicates or row[1] in predicates]
        signatures = {number: (predicate, types_of_text(types)) for number, predicate, types, _ in sorted(rows)}
        return cls(signatures, frozenset(row[0] for row in rows if row[3]))

    @property
    def listed(self) -> str:
        return _listed(self.signatures)

    @property
    def begun_again(self) -> str:
        """Return the condition that leaves out past facts which began again; it follows those on facts that ended."""
        return f" AND NOT (sig IN ({_listed(self.ending)}) AND ({_BEGUN_AGAIN}))" if self.ending else ""

    def fact_to_json(self, number: int, ids: Sequence[str], expires_at: int | None) -> dict[str, object]:
        predicate, types = self.signatures[number]
        args = [{"type": name, "id": text} for name, text in zip(types, ids)]
        if expires_at is None:
            return {"predicate": predicate, "args": args}
        return {"predicate": predicate, "args": args, "expires_at": short_text_of(expires_at)}


# ---- all facts of some revisions ---------------------------------------------------------------------------------


def inserted_and_deleted(chosen: Chosen, first: int, last: int) -> dict[int, Changed]:
    """Return facts that these revisions inserted and deleted, by revision."""
    found: dict[int, Changed] = {}
    if chosen.signatures:
        columns = f"sig, {_NAMES}"
        inserted = _between("since", f"since, 0, {columns}, expires_at", chosen)
        deleted = _between("until", f"until, 1, {columns}, NULL", chosen)
        with connection.cursor() as cursor:
            cursor.execute(f"{inserted} UNION ALL {deleted}", (first, last) * 3)
            rows = cursor.fetchall()
        rows.sort()
        to_json = chosen.fact_to_json
        for number, gone, sig, *ids, expires_at in rows:
            if number not in found:
                found[number] = ([], [])
            found[number][gone].append(to_json(sig, ids, expires_at))
    return found


def counts(chosen: Chosen, first: int, last: int) -> dict[int, int]:
    """Return how many facts each of these revisions inserted and deleted."""
    if not chosen.signatures:
        return {}
    inserted, deleted = _between("since", "since AS number", chosen), _between("until", "until AS number", chosen)
    counted = f"SELECT number, COUNT(*) FROM ({inserted} UNION ALL {deleted}) changed GROUP BY number"
    with connection.cursor() as cursor:
        cursor.execute(counted, (first, last) * 3)
        return dict(cursor.fetchall())


def _between(column: str, selected: str, chosen: Chosen) -> str:
    """Return rows that began, or ended, from one revision to another."""
    condition = f"sig IN ({chosen.listed}) AND {column} BETWEEN %s AND %s"
    if column == "until":
        return f"SELECT {selected} FROM past_fact{_by('past_fact_until')} WHERE {condition}{chosen.begun_again}"
    stored = f"SELECT {selected} FROM fact{_by('fact_since')} WHERE {condition}"
    return f"{stored} UNION ALL SELECT {selected} FROM past_fact{_by('past_fact_since')} WHERE {condition}"


# ---- one revision, in the order of its facts ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arm:
    """Where some of a revision's facts are."""

    gone: int  # 0: they were inserted, 1: deleted
    table: str
    condition: str
    values: tuple[int, ...]
    index: str  # by which the condition is met


def arms_of(number: int, is_state: bool) -> tuple[Arm, ...]:
    if is_state:
        stored = Arm(0, "fact", "+since <= %s", (number,), "")
        return stored, Arm(0, "past_fact", "+since <= %s AND +until > %s", (number, number), "")
    return (
        Arm(0, "fact", "since = %s", (number,), "fact_since"),
        Arm(0, "past_fact", "since = %s", (number,), "past_fact_since"),
        Arm(1, "past_fact", "until = %s", (number,), "past_fact_until"),
    )


def count(arms: Iterable[Arm], chosen: Chosen) -> int:
    counted = 0
    with connection.cursor() as cursor:
        for arm in arms:
            again = chosen.begun_again if arm.gone else ""
            condition = f"sig IN ({chosen.listed}) AND {arm.condition}{again}"
            cursor.execute(f"SELECT COUNT(*) FROM {arm.table}{_by(arm.index)} WHERE {condition}", arm.values)
            counted += cursor.fetchone()[0]
    return counted


def part_of(arms: Sequence[Arm], chosen: Chosen, after: Entry | None, most: int, size: int) -> list[Row]:
    """Return the next so many facts of a revision of this size: inserted ones first, by signature and ids."""
    found: list[Row] = []
    if connection.vendor == "postgresql" and (size > MANY or not all(arm.index for arm in arms)):
        # It would rather read all that is left and sort it, as it does not expect there to be much.
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_sort = off")
    for gone in (0, 1):
        mine = [arm for arm in arms if arm.gone == gone]
        for sig in chosen.signatures if mine else ():
            if after is not None and (gone, sig) < after[:2]:
                continue
            start = after[2] if after is not None and (gone, sig) == after[:2] else None
            found += _of_signature(mine, chosen, sig, start, most - len(found), size)
            if len(found) == most:
                return found
    return found


def _of_signature(
    arms: Sequence[Arm], chosen: Chosen, sig: int, start: tuple[str, ...] | None, most: int, size: int
) -> list[Row]:
    """Return facts of one signature, by ids. Past facts are looked for no further than stored ones."""
    found: list[Row] = []
    end: tuple[str, ...] | None = None
    with connection.cursor() as cursor:
        for arm in arms:
            cursor.execute(
                _statement(arm, chosen, start is not None, end is not None, size),
                (sig, *arm.values, *(start or ()), *(end or ()), most),
            )
            rows = cursor.fetchall()
            found += [(arm.gone, sig, *row) for row in rows]
            if len(rows) == most:
                end = rows[-1][:-1]
    found.sort()
    return found[:most]


def _statement(arm: Arm, chosen: Chosen, is_begun: bool, is_bounded: bool, size: int) -> str:
    bounds = f" AND ({_NAMES}) > (%s, %s, %s, %s, %s)" if is_begun else ""
    bounds += f" AND ({_NAMES}) <= (%s, %s, %s, %s, %s)" if is_bounded else ""
    selected = f"{_NAMES}, {'NULL' if arm.gone else 'expires_at'} AS expires_at"
    again = chosen.begun_again if arm.gone else ""
    ordered = f"ORDER BY {_NAMES} LIMIT %s"
    if not arm.index or (size > MANY and not (connection.vendor == "sqlite" and arm.table == "fact")):
        condition = arm.condition if not arm.index else f"+{arm.condition}"
        return f"SELECT {selected} FROM {arm.table} WHERE sig = %s AND {condition}{again}{bounds} {ordered}"
    if connection.vendor == "sqlite":
        by = _by(arm.index)
        return f"SELECT {selected} FROM {arm.table}{by} WHERE sig = %s AND {arm.condition}{again}{bounds} {ordered}"
    mine = f"SELECT {selected} FROM {arm.table} WHERE sig = %s AND {arm.condition}{again}{bounds}"
    return f"WITH mine AS MATERIALIZED ({mine}) SELECT * FROM mine {ordered}"


def _by(index: str) -> str:
    """Return the clause that names an index, for a database that would not choose it."""
    return f" INDEXED BY {index}" if index and connection.vendor == "sqlite" else ""


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(int(number)) for number in numbers) or "NULL"
