"""What holds now: which environment a key opens, and which policy is active there.

A process remembers compiled programs by policy version, which never changes, and never remembers which
version is active: that is read from the database, with the key, in the statement of the question itself
(`Gate`) or in one of its own (`confirm`).
"""

import hmac
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import overload

from django.db import connection

from policy import rules
from policy.errors import KeyRefused
from policy.language.source import Source
from policy.models import PolicyVersion
from policy.rules.program import Program


@dataclass(frozen=True, slots=True)
class Gate:
    """A FROM clause with its WHERE: one row `k`, `e` while the key is good, none when it is not.

    Use as `SELECT e.policy_version_id, … FROM <sql>`, with `params` in the place of `sql`.
    """

    sql: str
    params: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request this is. Until it is `confirmed`, the environment is what the key opened when last seen."""

    environment_id: int
    key_hash: str
    confirmed: bool = False
    policy_version_id: int | None = None  # once confirmed

    @property
    def gate(self) -> Gate:
        return Gate(GATE, (self.key_hash,))


GATE = (
    "api_key k CROSS JOIN environment e WHERE k.hash = %s AND k.revoked_at IS NULL"
    " AND (k.expires_at IS NULL OR k.expires_at > CURRENT_TIMESTAMP) AND e.id = k.environment_id"
)


def caller_of_hash(key_hash: str) -> Caller:
    """The confirmed caller that the key with this hash stands for; `KeyRefused` when there is none."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT k.hash, e.id, e.policy_version_id FROM {GATE}", (key_hash,))
        row = cursor.fetchone()
    if row is None or not hmac.compare_digest(row[0], key_hash):
        raise KeyRefused
    return Caller(row[1], key_hash, confirmed=True, policy_version_id=row[2])


def confirm(caller: Caller) -> Caller:
    """The caller as the database has it now."""
    return caller_of_hash(caller.key_hash)


def active_program(environment_id: int) -> Program | None:
    """The environment's policy, compiled; None before the first upload."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT policy_version_id FROM environment WHERE id = %s", (environment_id,))
        row = cursor.fetchone()
    return program_of_version(row[0]) if row else None


@overload
def program_of_version(version_id: int) -> Program: ...
@overload
def program_of_version(version_id: None) -> None: ...
@overload
def program_of_version(version_id: int | None) -> Program | None: ...
def program_of_version(version_id: int | None) -> Program | None:
    """The compiled text of a policy version; None for none."""
    return None if version_id is None else _compiled(version_id)


# ---- compiled programs ---------------------------------------------------------------------------------------

_REMEMBERED = 16_000_000  # characters of text; a program takes some 30 times its text in memory
_LEAST = 5_000  # characters, that even the program of a short text counts for

_programs: OrderedDict[int, Program] = OrderedDict()  # by version, the least recently used first
_changing = threading.Lock()  # the dictionary above
_compiling = tuple(threading.Lock() for _ in range(16))  # of the requests that meet a new version, one compiles it


def remember_program(version_id: int, program: Program) -> None:
    """Keep the program of a committed version, and let go of those that were not used for longest."""
    with _changing:
        _programs[version_id] = program
        weight = sum(map(_weight, _programs.values()))
        while weight > _REMEMBERED and len(_programs) > 1:
            weight -= _weight(_programs.popitem(last=False)[1])


def _weight(program: Program) -> int:
    return len(program.source.text) + _LEAST


def _remembered(version_id: int) -> Program | None:
    with _changing:
        if version_id not in _programs:
            return None
        _programs.move_to_end(version_id)
        return _programs[version_id]


def _compiled(version_id: int) -> Program:
    program = _remembered(version_id)
    if program is not None:
        return program
    with _compiling[version_id % len(_compiling)]:
        program = _remembered(version_id)
        if program is None:
            version = PolicyVersion.objects.only("source", "filename").get(pk=version_id)
            program = rules.compile_source(Source(version.source, version.filename or ""))
            remember_program(version_id, program)
    return program
