"""Making, reading and revoking API keys."""

import hashlib
import re
import secrets
import string
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from authz_project.key_use import note_use
from authz_project.models import SCOPE_COLUMNS, ApiKey
from policy.active import Caller, KeyCheck, caller_of_hash
from policy.configured import configured
from policy.errors import KeyRefused
from policy.models import Environment
from policy.offsets import changing
from policy.revisions import NOBODY, By
from policy.scopes import Scope

DEV_KEY = "e_0123456789_12345_osotesttoken01xiIn"

TEST_SLUG = re.compile(r"testenv[a-z0-9]{11}")  # slugs of environments for one test run each, and of no others
_TEST_KEY = re.compile(rf"e_{TEST_SLUG.pattern}_")

_ALPHABET = string.ascii_letters + string.digits
_REMEMBERED = 10_000  # keys


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


DEV_KEY_HASH = hash_of(DEV_KEY)

# Every statement that answers a caller includes this check of its key. Lower apps find it by `settings.KEY_CHECK`.
CHECK = KeyCheck(
    before="api_key k CROSS JOIN environment e WHERE k.hash = ",
    usable="e.id = k.environment_id AND k.revoked_at IS NULL",
    expires_at="k.expires_at",
    hash="k.hash",
    number="k.id",
    label="k.label",
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
    """Create a key, and return it with its text, which is stored nowhere."""
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
        return ApiKey.objects.create(
            environment=environment, label=label, prefix=token.rpartition("_")[0], hash=hash_of(token),
            expires_at=expires_at, created_by=by.author, **flags,
        )  # fmt: skip


def revoke_key(key: ApiKey) -> None:
    """Revoke the key: no statement on the primary accepts it from now on, in any process.

    Replicas answer with it for a second and a bit, until each process has looked at the primary.
    """
    if key.revoked_at is None:
        with changing():
            key.revoked_at = timezone.now()
            key.save(update_fields=["revoked_at"])


def keep_dev_key(environment: Environment) -> None:
    """Have the well-known development key open this environment, whatever it opened before.

    Another development server may be using the key. So it is replaced in one transaction, and only if it must be.
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

# Callers, by the key's hash and the scope that is needed: hints, which every statement that uses one confirms.
_callers: dict[str, Mapping[Scope | None, Caller]] = {}


def token_of(headers: Mapping[str, Any]) -> str:
    """Return the key of `Authorization: Bearer <key>`; empty if there is none.

    The oldest clients send `Basic <key>`, with the key as it is, too.
    """
    scheme, _, token = headers.get("HTTP_AUTHORIZATION", "").strip().partition(" ")
    return token.strip() if scheme.lower() in ("bearer", "basic") else ""


def is_remembered(token: str) -> bool:
    """Say whether this process has looked the key up, found it good, and not seen it refused since."""
    return bool(token) and hash_of(token) in _callers


def forget(token: str) -> None:
    """Forget the key after a refusal: it may have been good before."""
    _callers.pop(hash_of(token), None)


def caller_of_token(token: str, needs: Scope | None = None) -> Caller:
    """Return the caller with this key, for the scope that is needed. Raise `KeyRefused` or `ScopeMissing`.

    A key that is remembered costs no query here, and is not confirmed.
    """
    key_hash = hash_of(token)
    if not token or (not configured.DEV_SERVER and (key_hash == DEV_KEY_HASH or _TEST_KEY.match(token))):
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
