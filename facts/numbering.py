"""The numbers of signatures. One that is committed means the same for ever, so processes remember it."""

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count

import orjson
from django.db import connection, transaction

from policy.rules.program import Signature

_REMEMBERED = 100_000

_numbers: dict[tuple[int, Signature], int] = {}


def signature_number(environment_id: int, signature: Signature) -> int:
    """The signature's number in the environment, given now if it has none."""
    key = (environment_id, signature)
    number = _numbers.get(key)
    if number is None:
        number = _read(environment_id, signature) or _give(environment_id, signature)
        # One that this transaction gave is nobody's until it commits.
        transaction.on_commit(lambda: _remember(key, number))
    return number


def numbers_as_of(environment_id: int) -> tuple[int, Mapping[Signature, int]]:
    """Every signature that has a number in the environment, and the mark under which it has."""
    mark = signature_mark(environment_id)
    return (0, {}) if mark is None else (mark, _numbers_under(environment_id, mark))


def signature_mark(environment_id: int) -> int | None:
    """What the environment is marked with as long as no other signature is given a number."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT signature_mark FROM environment WHERE id = %s", (environment_id,))
        row = cursor.fetchone()
    return row[0] if row else None


@lru_cache(maxsize=256)
def _numbers_under(environment_id: int, mark: int) -> Mapping[Signature, int]:
    """A mark is drawn by lot with each number that is given: while it is the same, so are the numbers."""
    return signature_numbers(environment_id)


def signature_numbers(environment_id: int) -> dict[Signature, int]:
    """Every signature that has a number in the environment."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT predicate, types, id FROM signature WHERE environment_id = %s", (environment_id,))
        return {Signature(name, types_of_text(types)): number for name, types, number in cursor.fetchall()}


@dataclass
class Numbering:
    """The numbers of signatures in one statement. One that has none yet gets one that no fact has.

    A question writes nothing, and so waits for no writer. What had no number is left out of the statement, which
    checks that its environment's signatures are the same still: facts that gave it one may be of the moment that
    the statement sees.
    """

    environment_id: int
    missing: dict[Signature, int] = field(default_factory=dict)
    mark: int = field(init=False)  # of the environment when its signatures were read
    _known: Mapping[Signature, int] = field(init=False)
    _unused: Iterator[int] = field(default_factory=lambda: count(-1, -1))

    def __post_init__(self):
        self.mark, self._known = numbers_as_of(self.environment_id)

    def knows(self, signature: Signature) -> bool:
        """Whether facts of the signature may be stored."""
        return self.of(signature) > 0

    def of(self, signature: Signature) -> int:
        known = self._known.get(signature) or self.missing.get(signature)
        return known or self.missing.setdefault(signature, next(self._unused))


def text_of_types(types: tuple[str, ...]) -> str:
    return orjson.dumps(types).decode()


def types_of_text(text: str) -> tuple[str, ...]:
    return tuple(orjson.loads(text))


def _read(environment_id: int, signature: Signature) -> int | None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM signature WHERE environment_id = %s AND predicate = %s AND types = %s",
            (environment_id, signature.predicate, text_of_types(signature.types)),
        )
        row = cursor.fetchone()
    return row[0] if row else None


def _give(environment_id: int, signature: Signature) -> int:
    mark = secrets.randbits(62)  # never the mark of a change that was taken back
    # Both or neither: a statement that was compiled in between would take the mark for one without this signature.
    with transaction.atomic(savepoint=False), connection.cursor() as cursor:
        cursor.execute("UPDATE environment SET signature_mark = %s WHERE id = %s", (mark, environment_id))
        cursor.execute(
            "INSERT INTO signature (environment_id, predicate, types) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            (environment_id, signature.predicate, text_of_types(signature.types)),
        )
    number = _read(environment_id, signature)  # ours, or that of whoever was faster
    assert number is not None, "a signature that was just inserted exists"
    return number


def _remember(key: tuple[int, Signature], number: int) -> None:
    if len(_numbers) >= _REMEMBERED:
        _numbers.clear()
    _numbers[key] = number
