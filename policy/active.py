"""The current state: which environment an API key belongs to, and which policy is active there.

A process caches compiled programs by policy version, whose text never changes. It never caches which version is active.
That is read from the database together with the key: by the statement of the query itself (`key_check`), or by a
statement of its own (`confirm`).
"""

import hmac
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import NamedTuple, overload

from django.db import connection
from django.utils.module_loading import import_string

from policy import rules
from policy.core.clock import is_to_come, timeline
from policy.core.memory import Recent
from policy.errors import KeyRefused, NotFound, ScopeMissing
from policy.language.source import PolicyRejected, Source
from policy.models import PolicyVersion
from policy.rules.program import Program

# The moment of an environment `e`, plus its offset, since servers of older versions change only the offset. The app
# above, which stores keys, defines what makes a key valid. It is imported when needed.
KEY_CHECK = "authz_project.keys.CHECK"
MOMENT = '(e.moment + e."offset")'


class Seen(NamedTuple):
    """The position of an environment in a statement's snapshot, or a lower bound of its current position."""

    offset: int
    moment: int | None = None  # None: unknown


NOTHING_SEEN = Seen(0)


# ---- API keys, stored by the app above ---------------------------------------------------------------------------


class Scope(StrEnum):
    """What an API key may do. A key that is created without naming scopes has all of them."""

    READ = "read"  # queries, and reading what is stored
    FACTS = "facts"  # changes of facts
    POLICY = "policy"  # publishing policies
    FOLLOW = "follow"  # copying the environment to a follower, with the hashes of its keys


class KeyCheck(NamedTuple):
    """How statements check a key: `FROM {before}<its hash>{after(lasts)}` has one row if the key is valid, else none.

    `lasts` is the condition that `expires_at` is in the future (`policy.core.clock.is_to_come`). In it, `e` is the
    environment of the key. `hash`, `number` and `expires_at` are expressions for columns of the key, `author` for its
    name in revisions, and `usable` is all of the condition that does not depend on the clock. `scopes` has a condition
    for each scope, which is true if the key has it now.

    On PostgreSQL, `version` is a different number after each change of the key, and `before_in` is `before` with a
    place `{schema}` for a schema's name and a dot.
    """

    before: str
    before_in: str
    usable: str
    expires_at: str
    hash: str
    number: str
    author: str
    scopes: Mapping[Scope, str]
    version: str

    def after(self, lasts: str) -> str:
        return f" AND {self.usable} AND ({self.expires_at} IS NULL OR {lasts})"


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request this is. Until `confirmed`, the environment is that of the key when it was last read."""

    environment_id: int
    key_hash: str
    needs: Scope | None = None  # the scope that this request needs; confirming the key includes checking it
    confirmed: bool = False
    policy_version_id: int | None = None  # once confirmed
    author: str = ""  # as revisions name the key, once confirmed
    environment: str = ""  # its name when the key was last looked up
    key_id: int | None = None
    seen: Seen | None = None  # the environment's position, once confirmed


@cache
def key_check() -> KeyCheck:
    """Return the check of API keys, which the app above defines."""
    found: KeyCheck = import_string(KEY_CHECK)
    return found


def caller_of_hash(key_hash: str, needs: Scope | None = None) -> Caller:
    """Look up the key with this hash, and return its caller, confirmed.

    Raise `KeyRefused` if there is no valid key, and `ScopeMissing` if the key is valid, but lacks the scope.
    """
    with connection.cursor() as cursor:
        cursor.execute(_key_statement(connection.vendor, needs), (key_hash,))
        row = cursor.fetchone()
    if row is None or not hmac.compare_digest(row[0], key_hash):
        raise KeyRefused
    if needs is not None and not row[8]:
        raise ScopeMissing(needs)
    return Caller(
        row[1], key_hash, needs, confirmed=True, policy_version_id=row[2], author=row[4], environment=row[5],
        key_id=row[3], seen=Seen(row[6], row[7]),
    )  # fmt: skip


@cache
def _key_statement(vendor: str, needs: Scope | None) -> str:
    check = key_check()
    has_scope = "" if needs is None else f", {check.scopes[needs]}"
    return (
        f"SELECT {check.hash}, e.id, e.policy_version_id, {check.number}, {check.author}, e.slug,"
        f' e."offset", {MOMENT}{has_scope}'
        f" FROM {check.before}%s{check.after(is_to_come(vendor, check.expires_at))}"
    )


def confirm(caller: Caller) -> Caller:
    """Return the caller as the database has it now."""
    return caller_of_hash(caller.key_hash, caller.needs)


# ---- policies ----------------------------------------------------------------------------------------------------


def active_program(environment_id: int) -> Program | None:
    """Return the environment's compiled policy; None before the first one is published."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT policy_version_id FROM authz_environment WHERE id = %s", (environment_id,))
        row = cursor.fetchone()
    return program_of_version(row[0]) if row else None


@overload
def program_of_version(version_id: int) -> Program: ...
@overload
def program_of_version(version_id: None) -> None: ...
@overload
def program_of_version(version_id: int | None) -> Program | None: ...
def program_of_version(version_id: int | None) -> Program | None:
    """Return the compiled program of a policy version; None without a version."""
    if version_id is None:
        return None
    return _programs.newer.get(version_id) or _compiled(version_id)


# ---- compiled programs ---------------------------------------------------------------------------------------

_REMEMBERED = 16_000_000  # characters of text; a program takes about 30 times its text in memory
_LATEST = 4  # versions of an environment
_MOST_ENVIRONMENTS = 10_000
_LEAST = 5_000  # characters: the least weight of a program, however short its text


def _weight(version_id: int, program: Program) -> int:
    # A program larger than the whole cache is cached alone.
    return min(len(program.source.text) + _LEAST, _REMEMBERED)


_programs: Recent[int, Program] = Recent(_REMEMBERED, _weight)  # by version
_compiling = tuple(threading.Lock() for _ in range(16))  # only one of concurrent requests compiles a version

_history = 0  # how often the cache was cleared after a failover: since then, version numbers may stand for other texts
_changing = threading.Lock()  # keeps programs of an earlier history out of the cache of a later one


def remember_program(version_id: int, program: Program, history: int | None = None) -> None:
    """Cache the program of a committed version; evict those not used lately.

    A program that was read in an earlier `history` is not cached: its version's number may be that of another text now.
    """
    with _changing:
        if history in (None, _history):
            _programs.store(version_id, program)


def _forget_programs() -> None:
    global _history
    with _changing:
        _history += 1
        _programs.clear()


timeline.forgets(_forget_programs)


def forget_program(version_id: int) -> None:
    """Drop the program of a version that was not committed after all."""
    _programs.drop(version_id)


class Versions:
    """The most recently active policy versions of each environment. Cached data of older ones is dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[int, list[int]] = {}
        self._forgetting: list[Callable[[int], object]] = [forget_program]

    def forgets(self, forget: Callable[[int], object]) -> None:
        """Register a function that drops a version from a cache, called for versions that are no longer recent."""
        self._forgetting.append(forget)

    def note(self, environment_id: int, version_id: int) -> None:
        """Note that a version is active. Replicas may still answer by those that were active just before."""
        with self._lock:
            latest = self._latest.setdefault(environment_id, [])
            if version_id in latest:
                return
            latest.append(version_id)
            old = latest.pop(0) if len(latest) > _LATEST else None
            if len(self._latest) > _MOST_ENVIRONMENTS:
                self._latest.clear()
        if old is not None:
            for forget in self._forgetting:
                forget(old)


versions = Versions()


NO_VERSION = "the policy version no longer exists"  # its transaction was rolled back, after a question had seen it


def _compiled(version_id: int) -> Program:
    with _compiling[version_id % len(_compiling)]:
        program = _programs.get(version_id)
        if program is None:
            history = _history
            version = PolicyVersion.objects.only("source", "filename", "number").filter(pk=version_id).first()
            if version is None:
                raise NotFound(NO_VERSION)
            try:
                program = rules.compile_source(Source(version.source, version.filename or ""))
            except PolicyRejected as reason:
                raise reason.of_version(version.number) from None
            remember_program(version_id, program, history)
    return program
