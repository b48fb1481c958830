"""The numbers of signatures. A committed number always means the same signature, so processes cache it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import count
from typing import NamedTuple

from django.db import OperationalError, connection, transaction

from facts.models import text_of_types, types_of_text
from facts.table import execute, fetch, of_signatures, select
from policy.core.clock import timeline
from policy.rules.program import Signature
from policy.values import STRING

_REMEMBERED = 100_000

known_numbers: dict[tuple[int, Signature], int] = {}  # those that this process has seen
timeline.forgets(known_numbers.clear)


def signature_number(environment_id: int, signature: Signature, revision: int) -> int:
    """Return the signature's number in the environment. If it has none, assign one, as of the revision being made."""
    key = (environment_id, signature)
    number = known_numbers.get(key)
    if number is None:
        number = _read(environment_id, signature) or _give(environment_id, signature, revision)
        # Not earlier: if this transaction is rolled back, a number that it assigned does not exist.
        transaction.on_commit(lambda: _remember(key, number))
    return number


class Marks(NamedTuple):
    """Two marks of an environment. `signatures` changes with any signature; `ends` if statements are outdated by that.

    They are outdated when a signature gets its first fact with an expiry, and when other arguments lead to few facts.
    """

    signatures: int = 0
    ends: int = 0


@dataclass(frozen=True)
class Numbered:
    """The signatures of an environment that have numbers, and those whose facts may expire."""

    marks: Marks
    numbers: Mapping[Signature, int]
    ending: frozenset[Signature] = frozenset()
    narrow: Mapping[Signature, int] = field(default_factory=dict)  # bits: the arguments that lead to few facts
    since: Mapping[Signature, int] = field(default_factory=dict)  # the revision at which each was assigned its number

    @cached_property
    def by_number(self) -> Mapping[int, Signature]:
        return dict(sorted(zip(self.numbers.values(), self.numbers)))

    @cached_property
    def ending_numbers(self) -> frozenset[int]:
        return frozenset(self.numbers[signature] for signature in self.ending)

    def only(self, numbers: Mapping[Signature, int]) -> Numbered:
        """Return the same of these signatures alone."""
        return replace(self, numbers=numbers, ending=self.ending & numbers.keys())

    def by(self, latest: int) -> Numbered:
        """Return the signatures that existed as of revision `latest`."""
        numbers = {signature: number for signature, number in self.numbers.items() if self.since[signature] <= latest}
        return self if len(numbers) == len(self.numbers) else self.only(numbers)


NUMBERLESS = Numbered(Marks(), {})


def numbers_as_of(environment_id: int, latest: int | None = None) -> Numbered:
    """Return every signature that has a number in the environment, with the environment's marks.

    With `latest`, the revision of a signature, return only those that existed then: a query as of the past is planned
    as it was planned then.
    """
    marks = marks_of(environment_id)
    if marks is None:
        return NUMBERLESS
    return _numbered_under(environment_id, marks) if latest is None else _numbered_by(environment_id, marks, latest)


def latest_signature(environment_id: int, revision: int) -> int:
    """Return the revision of the newest signature that existed at a revision."""
    latest = "SELECT MAX(since) FROM authz_signature WHERE environment_id = %s AND since <= %s"
    return fetch(latest, (environment_id, revision))[0][0] or 0


def marks_of(environment_id: int) -> Marks | None:
    rows = fetch("SELECT signature_mark, ends_mark FROM authz_environment WHERE id = %s", (environment_id,))
    return Marks(*rows[0]) if rows else None


@lru_cache(maxsize=256)
def _numbered_under(environment_id: int, marks: Marks) -> Numbered:
    """Read the signatures; cached by the marks, which change whenever a signature does (see `Marks`)."""
    listed = "SELECT predicate, types, id, may_end, narrow, since FROM authz_signature WHERE environment_id = %s"
    rows = [(Signature(name, types_of_text(types)), *rest) for name, types, *rest in fetch(listed, (environment_id,))]
    ending = frozenset(signature for signature, _, may_end, _, _ in rows if may_end)
    numbers = {signature: number for signature, number, *_ in rows}
    narrow = {signature: bits for signature, _, _, bits, _ in rows}
    return Numbered(marks, numbers, ending, narrow, {signature: since for signature, *_, since in rows})


@lru_cache(maxsize=256)
def _numbered_by(environment_id: int, marks: Marks, latest: int) -> Numbered:
    return _numbered_under(environment_id, marks).by(latest)


def signature_numbers(environment_id: int) -> Mapping[Signature, int]:
    return numbers_as_of(environment_id).numbers


# ---- signatures whose facts may expire ---------------------------------------------------------------------------


def let_end(environment_id: int, numbers: Iterable[int]) -> None:
    """Mark signatures whose facts may expire, in the transaction that stores the first such fact."""
    listed = ", ".join(str(int(number)) for number in numbers)
    execute(f"UPDATE authz_signature SET may_end = %s WHERE id IN ({listed})", (True,))
    outdate_statements(environment_id)


def outdate_statements(environment_id: int) -> None:
    """Have each statement about the environment compiled again, in a transaction that changes its signatures."""
    marks = secrets.randbits(62), secrets.randbits(62)
    execute("UPDATE authz_environment SET signature_mark = %s, ends_mark = %s WHERE id = %s", (*marks, environment_id))


@lru_cache(maxsize=256)
def numbers_that_may_end(environment_id: int, ends_mark: int) -> frozenset[int]:
    """Return `ending_numbers`, cached by the environment's mark. If that is 0, there are none."""
    return numbers_as_of(environment_id).ending_numbers if ends_mark else frozenset()


def environments_with_ends() -> list[int]:
    """Return the environments whose expired facts are to be ended here, and not by a service that they copy."""
    ending = (
        "SELECT id FROM authz_environment WHERE follows = ''"
        " AND id IN (SELECT environment_id FROM authz_signature WHERE may_end) ORDER BY id"
    )
    return [number for (number,) in fetch(ending)]


# ---- arguments that lead to few facts ------------------------------------------------------------------------------
# Counted from time to time. A plan may read the facts that a value of such an argument is in, and then test each,
# instead of looking each pair of two sets up. Whatever the counts, answers are the same.

NARROW = 16  # facts that each value of an argument is in at most
SELDOM = 100  # times as long as counting took, until an environment is counted again

_counted: dict[int, tuple[int, float]] = {}  # by environment: the offset that was counted, and when to count again


def count_all() -> None:
    """Count, in every environment that has changed, which arguments of its signatures lead to few facts."""
    for environment_id, offset in fetch('SELECT id, "offset" FROM authz_environment ORDER BY id'):
        counted, due = _counted.get(environment_id, (-1, 0.0))
        started = time.monotonic()
        if offset != counted and started >= due:
            count_narrow(environment_id)
            now = time.monotonic()
            _counted[environment_id] = offset, now + SELDOM * (now - started)


def count_narrow(environment_id: int) -> None:
    rows = fetch("SELECT id, types, narrow FROM authz_signature WHERE environment_id = %s", [environment_id])
    now = {number: _narrow_arguments(number, types_of_text(types)) for number, types, _ in rows}
    changed = [(now[number], number) for number, _, before in rows if now[number] != before]
    if changed:
        with transaction.atomic(savepoint=False), connection.cursor() as cursor:
            outdate_statements(environment_id)  # first: like all writers, it waits for the environment's row
            cursor.executemany("UPDATE authz_signature SET narrow = %s WHERE id = %s", changed)


def _narrow_arguments(number: int, types: tuple[str, ...]) -> int:
    """Return a bit for each argument that leads to few facts. Names are none: half of the facts may have the same."""
    entities = [index for index, kind in enumerate(types) if kind != STRING]
    return sum(1 << index for index in entities if len(types) > 1 and not _is_wide(number, index))


def _is_wide(number: int, index: int) -> bool:
    """Return whether some value of the argument is in more than `NARROW` facts. Reads an index until one is found."""
    group = f"a{index} HAVING COUNT(*) > {NARROW}"
    try:
        return bool(fetch(select("1", of_signatures([number]), by=f"a{index}", group=group, limit=1)))
    except OperationalError:  # takes too long, so there are many facts
        return True


# ---- numbers in statements ---------------------------------------------------------------------------------------


@dataclass
class Numbering:
    """The numbers of signatures in one statement. A signature without a number gets a negative one, which no fact has.

    A query writes nothing, and so waits for no writer. Facts of a signature without a number are left out of the
    statement. As such facts may be stored before the statement runs, it checks that the environment's marks are still
    the same.
    """

    known: Numbered
    missing: dict[Signature, int] = field(default_factory=dict)
    _unused: Iterator[int] = field(default_factory=lambda: count(-1, -1))

    @property
    def marks(self) -> Marks:
        """Return the environment's marks at the time when its signatures were read."""
        return self.known.marks

    def knows(self, signature: Signature) -> bool:
        """Return whether facts of the signature may be stored."""
        return self.of(signature) > 0

    def may_end(self, signature: Signature) -> bool:
        """Return whether stored facts of the signature may have expiries."""
        return signature in self.known.ending

    def is_narrow(self, signature: Signature, index: int) -> bool:
        """Return whether each value of the argument is in few facts of the signature, as last counted, or in none."""
        return bool(self.known.narrow.get(signature, -1) >> index & 1)

    def of(self, signature: Signature) -> int:
        known = self.known.numbers.get(signature) or self.missing.get(signature)
        return known or self.missing.setdefault(signature, next(self._unused))


def _read(environment_id: int, signature: Signature) -> int | None:
    number = "SELECT id FROM authz_signature WHERE environment_id = %s AND predicate = %s AND types = %s"
    rows = fetch(number, (environment_id, signature.predicate, text_of_types(signature.types)))
    return rows[0][0] if rows else None


def _give(environment_id: int, signature: Signature, revision: int) -> int:
    mark = secrets.randbits(62)  # random, so that it never equals the mark of a change that was rolled back
    # In one transaction: a statement compiled between the two would cache the new mark without this signature.
    with transaction.atomic(savepoint=False):
        execute("UPDATE authz_environment SET signature_mark = %s WHERE id = %s", (mark, environment_id))
        execute(
            "INSERT INTO authz_signature (environment_id, predicate, types, since) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            (environment_id, signature.predicate, text_of_types(signature.types), revision),
        )
    number = _read(environment_id, signature)  # ours, or that of a concurrent transaction
    assert number is not None, "a signature that was just inserted exists"
    return number


def _remember(key: tuple[int, Signature], number: int) -> None:
    if len(known_numbers) >= _REMEMBERED:
        known_numbers.clear()
    known_numbers[key] = number
