"""Create, find, rotate and revoke API keys, and record when they were last used."""

import hashlib
import logging
import re
import secrets
import string
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.models import F, Q
from django.utils import timezone

from authz_project.database import let_go_if_broken
from authz_project.models import SCOPE_COLUMNS, ApiKey
from policy.active import Caller, KeyCheck, Scope, caller_of_hash
from policy.core import spaces
from policy.core.clock import now, time_of
from policy.core.config import settings
from policy.core.journal import NOBODY, By, changing, stay
from policy.core.threads import start_thread
from policy.errors import AuthzError, KeyRefused, NotFound, Unavailable
from policy.models import Environment

# ---- last use of keys ---------------------------------------------------------------------------------------------
# The day on which a key was last used is stored once a day per key, by a background thread.
#
# If the write fails, because of a lock timeout or because the database is down, the thread retries later. Unwritten
# days are lost when the process ends, which does no harm: they are for display only.

log = logging.getLogger("authz.keys")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 60.0  # seconds before a retry
AT_ONCE = 500  # keys per statement
_DAY = 86_400  # seconds
_MOST = 10_000  # keys

_noted: dict[str, int] = {}  # hash -> the day that is stored or queued
_waiting: set[tuple[str, str]] = set()  # spaces and hashes whose day is queued
_lock = threading.Lock()  # guards the queue and the thread's existence
_is_writing = False


def note_use(key_hash: str) -> None:
    """Queue an update of the key's last use to today, once per day and process."""
    today = int(time.time()) // _DAY
    if _noted.get(key_hash) != today:
        _note(key_hash, today)


def _note(key_hash: str, today: int) -> None:
    global _is_writing
    with _lock:
        if len(_noted) >= _MOST:
            _noted.clear()
        _noted[key_hash] = today
        _waiting.add((spaces.here.name, key_hash))
        if _is_writing:
            return
        _is_writing = True
    try:
        start_thread("last use of keys", _write_what_waits)
    except RuntimeError:  # no thread can be started now; the next use tries again
        with _lock:
            _is_writing = False
            _noted.pop(key_hash, None)


def _write_what_waits() -> None:
    """Write queued keys in batches until the queue is empty; after a failure, wait and retry."""
    pause = SHORTEST_PAUSE
    while taken := _taken():
        by_space: dict[str, list[str]] = {}
        for space, key_hash in taken:
            by_space.setdefault(space, []).append(key_hash)
        failed = [space for space, hashes in by_space.items() if not _is_written(space, hashes)]
        if failed:
            time.sleep(pause)
            with _lock:
                _waiting.update(each for each in taken if each[0] in failed)
        pause = min(2 * pause, LONGEST_PAUSE) if failed else SHORTEST_PAUSE


def _taken() -> list[tuple[str, str]]:
    global _is_writing
    with _lock:
        taken = list(_waiting)[:AT_ONCE]
        _waiting.difference_update(taken)
        _is_writing = bool(taken)
        return taken


def _is_written(space: str, hashes: list[str]) -> bool:
    try:
        with spaces.entered(space):
            let_go_if_broken()
            write(hashes)
    except (Unavailable, Error) as reason:
        log.info("cannot record the last use of %d API keys: %s", len(hashes), reason)
        return False
    except Exception:
        log.exception("cannot record the last use of API keys")
    finally:
        with suppress(Error):
            spaces.close_others()
            connections[DEFAULT_DB_ALIAS].close()
    return True


def write(hashes: list[str]) -> None:
    """Store today, by the database's clock, as the last use of the keys that are not revoked and have an earlier day.

    Reads first: another process has nearly always stored the day already, and then no write lock is needed.
    """
    today = datetime.combine(time_of(now()).date(), datetime.min.time(), UTC)
    is_new = Q(last_used_at__isnull=True) | Q(last_used_at__lt=today)
    behind = ApiKey.objects.filter(is_new, hash__in=hashes, revoked_at__isnull=True)
    numbers = list(behind.values_list("pk", flat=True))
    if numbers:
        with changing():
            ApiKey.objects.filter(is_new, pk__in=numbers).update(last_used_at=today)


# ---- creating, finding and revoking API keys ----------------------------------------------------------------------

DEV_KEY = "e_0123456789_12345_osotesttoken01xiIn"

TEST_SLUG = re.compile(r"testenv[a-z0-9]{11}")  # slugs of test environments, and of no others
_OF_ENVIRONMENT = re.compile(r"e_([A-Za-z0-9]{1,40})_")

_ALPHABET = string.ascii_letters + string.digits
_REMEMBERED = 10_000  # keys


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def slug_of(token: str) -> str:
    """Return the name of the environment that a key is for: `e_<name>_<key id>_<secret>`. Empty if it is no key."""
    found = _OF_ENVIRONMENT.match(token)
    return found[1] if found else ""


def prefix_of(token: str) -> str:
    """Return all of a key but its secret."""
    return "_".join(token.split("_")[:3])


DEV_KEY_HASH = hash_of(DEV_KEY)

# Every statement that answers a caller includes this check of its key. Lower apps get it as `policy.active.KEY_CHECK`.
_BEFORE = "{schema}api_key k CROSS JOIN {schema}authz_environment e WHERE k.hash = "
CHECK = KeyCheck(
    before=_BEFORE.format(schema=""),
    before_in=_BEFORE,
    usable="e.id = k.environment_id AND k.revoked_at IS NULL",
    expires_at="k.expires_at",
    hash="k.hash",
    number="k.id",
    author="""'key ' || k.id || CASE k.label WHEN '' THEN '' ELSE ' "' || k.label || '"' END""",
    scopes={scope: f"k.{column}" for scope, column in SCOPE_COLUMNS.items()},
    version="k.xmin",
)
ALL = frozenset(Scope)


# ---- for administrators ---------------------------------------------------------------------------------


def create_key(
    environment: Environment,
    label: str = "",
    expires_at: datetime | None = None,
    scopes: Collection[Scope] = ALL,
    by: By = NOBODY,
) -> tuple[ApiKey, str]:
    """Create a key; return it with its full text, which is not stored."""
    key_id = "".join(secrets.choice(_ALPHABET) for _ in range(10))
    secret = "".join(secrets.choice(_ALPHABET) for _ in range(40))
    token = f"e_{environment.slug}_{key_id}_{secret}"
    return keep_key(environment, token, label, expires_at, scopes, by), token


def keep_key(
    environment: Environment,
    token: str,
    label: str,
    expires_at: datetime | None = None,
    scopes: Collection[Scope] = ALL,
    by: By = NOBODY,
) -> ApiKey:
    assert scopes, "a key is good for something"
    flags = {column: scope in scopes for scope, column in SCOPE_COLUMNS.items()}
    with changing():
        stay(environment.pk)
        return ApiKey.objects.create(
            environment=environment, label=label, prefix=prefix_of(token), hash=hash_of(token),
            expires_at=expires_at, created_by=by.author, created_by_user=by.user_id, **flags,
        )  # fmt: skip


def revoke_key(key: ApiKey) -> None:
    """Revoke the key: no statement on the primary accepts it from now on, in any process.

    Replicas may accept it for just over a second, until each process has polled the primary.
    """
    if key.revoked_at is None:
        with changing():
            stay(key.environment_id)
            key.revoked_at = timezone.now()
            key.save(update_fields=["revoked_at"])


def keep_dev_key(environment: Environment) -> None:
    """Make the well-known development key open this environment, whatever it opened before.

    Another development server may be using the key. So it is replaced in one transaction, and only if necessary.
    """
    usual = dict.fromkeys(SCOPE_COLUMNS.values(), True)
    with changing():
        held = ApiKey.objects.filter(hash=DEV_KEY_HASH)
        if not held.filter(environment=environment, revoked_at=None, expires_at=None, **usual).exists():
            held.delete()
            keep_key(environment, DEV_KEY, "well-known development key")


def drop_dev_key() -> None:
    with changing():
        ApiKey.objects.filter(hash=DEV_KEY_HASH).delete()


# ---- for requests ----------------------------------------------------------------------------------------

# Cache of callers, by the key's hash and the required scope. Every statement that uses an entry verifies it.
_callers: dict[str, Mapping[Scope | None, Caller]] = {}


def token_of(headers: Mapping[str, Any]) -> str:
    """Return the key of `Authorization: Bearer <key>`; empty if there is none.

    `Basic <key>`, with the key not encoded, is accepted too, for the oldest clients.
    """
    scheme, _, token = headers.get("HTTP_AUTHORIZATION", "").strip().partition(" ")
    return token.strip() if scheme.lower() in ("bearer", "basic") else ""


def is_remembered(token: str) -> bool:
    """Return whether the key is cached: this process found it valid, and has not seen it refused since."""
    return bool(token) and hash_of(token) in _callers


def forget(token: str) -> None:
    """Remove the key from the cache after it was refused."""
    _callers.pop(hash_of(token), None)


def caller_of_token(token: str, needs: Scope | None = None) -> Caller:
    """Return the caller with this key, for the required scope. Raise `KeyRefused` or `ScopeMissing`.

    A cached key costs no query, and is not verified here.
    """
    key_hash = hash_of(token)
    if not token or (not settings.DEV_SERVER and (key_hash == DEV_KEY_HASH or TEST_SLUG.fullmatch(slug_of(token)))):
        raise KeyRefused
    known = _callers.get(key_hash)
    if known is None:
        caller = caller_of_hash(key_hash, needs)
        _remember(caller)
    else:
        caller = known[needs]
    note_use(key_hash)
    return caller


def _remember(caller: Caller) -> None:
    if len(_callers) >= _REMEMBERED:
        _callers.clear()
    needs: tuple[Scope | None, ...] = (None, *Scope)
    _callers[caller.key_hash] = {
        each: Caller(caller.environment_id, caller.key_hash, each, environment=caller.environment, key_id=caller.key_id)
        for each in needs
    }


# ---- finding keys by prefix, number or label ----------------------------------------------------------------------

_SHOWN = 5


def keys_exactly(text: str) -> list[ApiKey]:
    """Return the key with this prefix or, if there is none, number. Of a whole key, the secret is ignored."""
    by_beginning = ApiKey.objects.filter(prefix=prefix_of(text))
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    return list(by_beginning) or (list(ApiKey.objects.filter(pk=int(text))) if is_number else [])


def keys_labelled(label: str) -> list[ApiKey]:
    """Return the keys with this label that are neither revoked nor expired."""
    moment = time_of(now())
    labelled = ApiKey.objects.filter(label=label, revoked_at__isnull=True).order_by("pk") if label else ()
    return [key for key in labelled if key.expires_at is None or key.expires_at > moment]


def only_one(found: Collection[ApiKey]) -> ApiKey:
    """Return the only key; keys that were rotated are skipped if there are others. Raise `NotFound` otherwise."""
    latest = [key for key in found if key.successor_id is None] or [*found]
    if len(latest) == 1:
        return latest[0]
    if not latest:
        raise NotFound("API key not found. `api_keys list` shows all keys.")
    named = ", ".join(key.prefix for key in latest[:_SHOWN]) + (", …" if len(latest) > _SHOWN else "")
    raise NotFound(f"{len(latest)} keys have this label. Use one of: {named}")


def maker_of(author: str) -> By:
    """Return who created a key, which is the author of a change: `key 3 "deployment"` -> `admin ann`."""
    number = re.match(r"key (\d{1,18})", author)
    key = ApiKey.objects.filter(pk=number[1]).first() if number else None
    return By(key.created_by, user_id=key.created_by_user) if key else NOBODY


# ---- key rotation -------------------------------------------------------------------------------------------------
# Rotation replaces a key by a successor with a new secret, while the old one stays valid for a while (overlap).

OVERLAP = timedelta(hours=24)


class CannotRotate(AuthzError):
    """The key is no longer valid, or has a successor already."""


class Rotated(NamedTuple):
    old: ApiKey
    new: ApiKey
    token: str  # of the new key

    @property
    def outcome(self) -> str:
        """Return what happens to the old key."""
        if self.old.revoked_at is not None:
            return f"{self.old.prefix} is revoked"
        return f"{self.old.prefix} is valid until {self.old.expires_at:%Y-%m-%dT%H:%MZ}"


def rotate_key(key: ApiKey, by: By, overlap: timedelta = OVERLAP, expires_at: datetime | None = None) -> Rotated:
    """Create a successor with the same environment, label and scopes; the old key expires after the overlap.

    Without `expires_at`, the new key is valid for as long as the old one originally was. An old key that expires
    before the end of the overlap still does. Of two concurrent rotations, one is refused.
    """
    with changing():
        stay(key.environment_id)
        # The first transaction locks the row until it commits; the second then sees the successor.
        ApiKey.objects.filter(pk=key.pk).update(label=F("label"))
        old = ApiKey.objects.select_related("environment", "successor").get(pk=key.pk)
        moment = time_of(now())
        _refuse_what_is_over(old, moment)
        expires_at = expires_at or _same_span(old, moment)
        new, token = create_key(old.environment, old.label, expires_at, old.scopes, by)
        old.successor = new
        if overlap:
            end = moment + overlap
            old.expires_at = end if old.expires_at is None else min(end, old.expires_at)
            old.save(update_fields=["successor", "expires_at"])
        else:
            old.save(update_fields=["successor"])
            revoke_key(old)
    return Rotated(old, new, token)


def good_predecessors(key: ApiKey) -> list[ApiKey]:
    """Return the predecessors of this key that are still valid, latest first."""
    found: list[ApiKey] = []
    moment = time_of(now())
    waiting = [key.pk]
    while waiting:
        before = list(ApiKey.objects.filter(successor_id__in=waiting))
        found += [each for each in before if not each.revoked_at and (not each.expires_at or each.expires_at > moment)]
        waiting = [each.pk for each in before]
    return found


def _refuse_what_is_over(key: ApiKey, moment: datetime) -> None:
    if key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= moment):
        over = "revoked" if key.revoked_at is not None else "expired"
        raise CannotRotate(f"{key.prefix} is {over}. Create another key with `api_keys create`.")
    if key.successor is not None:
        raise CannotRotate(f"{key.prefix} was already rotated. Rotate its successor, {key.successor.prefix}.")
    if not key.scopes:
        raise CannotRotate(f"{key.prefix} has no scope. Create another key with `api_keys create`.")


def _same_span(key: ApiKey, moment: datetime) -> datetime | None:
    if key.expires_at is None:
        return None
    try:
        return moment + (key.expires_at - key.created_at)
    except OverflowError:  # it would expire after the year 9999
        return key.expires_at


# ---- texts about keys ---------------------------------------------------------------------------------------------


def state_of(key: ApiKey, moment: datetime) -> str:
    """Return whether the key is valid at this time, and until when."""
    if key.revoked_at:
        return f"revoked {key.revoked_at:%Y-%m-%d}"
    if key.expires_at is None:
        return "active"
    return f"{'expired' if key.expires_at <= moment else 'active until'} {key.expires_at:%Y-%m-%d}"


def scopes_text(key: ApiKey) -> str:
    return "all" if len(key.scopes) == len(Scope) else " ".join(key.scopes) or "nothing"


def used_text(key: ApiKey) -> str:
    return f"last used {key.last_used_at:%Y-%m-%d}" if key.last_used_at else "never used"
