"""Making, reading and revoking API keys."""

import hashlib
import re
import secrets
import string
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import Error, connection
from django.utils import timezone

from authz_project.models import ApiKey
from policy.active import Caller, KeyCheck, caller_of_hash
from policy.errors import KeyRefused
from policy.models import Environment

DEV_KEY = "e_0123456789_12345_osotesttoken01xiIn"

TEST_SLUG = re.compile(r"testenv[a-z0-9]{11}")  # of environments for one test run each, and no others
_TEST_KEY = re.compile(rf"e_{TEST_SLUG.pattern}_")

_ALPHABET = string.ascii_letters + string.digits
_REMEMBERED = 10_000  # keys
_USE_NOTED_EVERY = 3600  # seconds


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


DEV_KEY_HASH = hash_of(DEV_KEY)

# What every statement that answers a caller confirms. The apps below find it by `settings.KEY_CHECK`.
CHECK = KeyCheck(
    before="api_key k CROSS JOIN environment e WHERE k.hash = ",
    after=(
        " AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > CURRENT_TIMESTAMP)"
        " AND e.id = k.environment_id"
    ),
    hash="k.hash",
    number="k.id",
    label="k.label",
)


# ---- for administrators ---------------------------------------------------------------------------------


def create_key(environment: Environment, label: str = "", expires_at: datetime | None = None) -> tuple[ApiKey, str]:
    """A new key, and its text, which cannot be had again."""
    key_id = "".join(secrets.choice(_ALPHABET) for _ in range(10))
    secret = "".join(secrets.choice(_ALPHABET) for _ in range(40))
    token = f"e_{environment.slug}_{key_id}_{secret}"
    return keep_key(environment, token, label, expires_at), token


def keep_key(environment: Environment, token: str, label: str, expires_at: datetime | None = None) -> ApiKey:
    prefix = token.rpartition("_")[0]
    return ApiKey.objects.create(
        environment=environment, label=label, prefix=prefix, hash=hash_of(token), expires_at=expires_at
    )


def revoke_key(key: ApiKey) -> None:
    """From the next statement on, in every process, the key opens nothing."""
    if key.revoked_at is None:
        key.revoked_at = timezone.now()
        key.save(update_fields=["revoked_at"])


def keep_dev_key(environment: Environment) -> None:
    """The well-known key of development, for the environment; whatever it opened before."""
    ApiKey.objects.filter(hash=DEV_KEY_HASH).delete()
    keep_key(environment, DEV_KEY, "well-known development key")


def drop_dev_key() -> None:
    ApiKey.objects.filter(hash=DEV_KEY_HASH).delete()


# ---- for requests ----------------------------------------------------------------------------------------

_callers: dict[str, Caller] = {}  # by hash, unconfirmed: a hint, which every statement behind it confirms
_last_noted: dict[str, float] = {}  # hash -> when its use was last written down


def token_of(headers: Mapping[str, Any]) -> str:
    """From `Authorization: Bearer <key>`; the oldest clients say Basic, and send the key just as plainly."""
    scheme, _, token = headers.get("HTTP_AUTHORIZATION", "").strip().partition(" ")
    return token.strip() if scheme.lower() in ("bearer", "basic") else ""


def is_remembered(token: str) -> bool:
    """Whether this process has seen the key open something, and not seen it refused since."""
    return bool(token) and hash_of(token) in _callers


def forget(token: str) -> None:
    """After a refusal: the key may have been good before."""
    _callers.pop(hash_of(token), None)


def caller_of_token(token: str) -> Caller:
    """Who sends this key. Known keys cost no query here, and are not confirmed."""
    key_hash = hash_of(token)
    if not token or (not settings.DEV_SERVER and (key_hash == DEV_KEY_HASH or _TEST_KEY.match(token))):
        raise KeyRefused
    caller = _callers.get(key_hash)
    if caller is None:
        caller = caller_of_hash(key_hash)
        hint = Caller(caller.environment_id, key_hash, environment=caller.environment, key_id=caller.key_id)
        _remember(_callers, key_hash, hint)
    _note_use(key_hash)
    return caller


def _remember(known: dict, key_hash: str, value: object) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()
    known[key_hash] = value


def _note_use(key_hash: str) -> None:
    """Write down that the key is in use: rarely, and out of the request's way."""
    now = time.monotonic()
    if now - _last_noted.get(key_hash, -_USE_NOTED_EVERY) < _USE_NOTED_EVERY:
        return
    _remember(_last_noted, key_hash, now)
    threading.Thread(target=_ignoring_failure, args=(_write_use, key_hash), daemon=True).start()


def _write_use(key_hash: str) -> None:
    ApiKey.objects.filter(hash=key_hash).update(last_used_at=timezone.now())


def _ignoring_failure(act: Callable[[str], None], key_hash: str) -> None:
    try:
        act(key_hash)
    except Error:
        pass  # the time of the last use is a courtesy
    finally:
        connection.close()
