"""Keys by commands: scopes, ends, successors, and what the list says of each."""

import io
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from authz_project.keys import CannotRotate, create_key, revoke_key, rotate_key
from authz_project.models import ApiKey
from policy.active import Scope
from policy.core.clock import now, time_of
from policy.core.journal import By
from policy.models import default_environment
from tests.conftest import Api

pytestmark = pytest.mark.one_database

NEAR = timedelta(seconds=60)


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue().strip()


def told(*arguments: str) -> str:
    """What is not the key."""
    errors = io.StringIO()
    call_command(*arguments, stdout=io.StringIO(), stderr=errors)
    return errors.getvalue()


def made(*options: str) -> tuple[str, ApiKey]:
    token = run("api_keys", "create", *options)
    return token, ApiKey.objects.get(prefix=token.rpartition("_")[0])


def moment():
    return time_of(now())


def opens(token: str) -> bool:
    return Api(default_environment(), token).get("/").status_code == 200


# ---- scopes and ends ---------------------------------------------------------------------------------------------


def test_a_key_is_good_for_all_or_for_what_is_said(db):
    assert made()[1].scopes == tuple(Scope)
    assert made("--scope", "read")[1].scopes == (Scope.READ,)
    assert made("--scope", "policy", "--scope", "read", "--scope", "read")[1].scopes == (Scope.READ, Scope.POLICY)
    with pytest.raises(CommandError, match=r"invalid choice: 'write' \(choose from '?read'?, '?facts'?, '?policy'?, "):
        run("api_keys", "create", "--scope", "write")


@pytest.mark.parametrize(
    ("options", "span"),
    [
        (["--expires", "90d"], timedelta(days=90)),
        (["--expires", "12h"], timedelta(hours=12)),
        (["--expires", "30m"], timedelta(minutes=30)),
    ],
)
def test_a_key_ends_when_it_is_said_by_the_databases_clock(db, options, span):
    _, key = made(*options)
    assert abs(key.expires_at - (moment() + span)) < NEAR


@pytest.mark.parametrize("text", ["0", "0d", "90", "d", "-1d", "1.5d", "1w", "99999d", "9999999999d", "\u0661d", ""])
def test_what_is_no_span_of_time_is_refused(db, text):
    with pytest.raises(CommandError, match="--expires: "):
        run("api_keys", "create", f"--expires={text}")


def test_the_list_says_what_a_key_is_good_for_who_made_it_and_when_it_was_used(db):
    _, narrow = made("--scope", "read", "--scope", "facts", "billing", "--expires", "2d")
    create_key(default_environment(), "by hand")
    past = {"last_used_at": "2026-11-03T00:00:00Z", "expires_at": "2001-01-01T00:00:00Z"}
    ApiKey.objects.filter(label="by hand").update(**past)
    first, second = run("api_keys", "list").splitlines()
    day = r"\d{4}-\d\d-\d\d"
    assert re.fullmatch(
        rf"{narrow.prefix}  active until {day}  read facts  never used  created {day} by command api_keys  billing",
        first,
    )
    assert re.fullmatch(rf"e_\w+  expired 2001-01-01  all  last used 2026-11-03  created {day}  by hand", second)


# ---- successors ----------------------------------------------------------------------------------------------------


def test_a_successor_is_good_for_the_same_and_the_old_key_ends_after_the_overlap(db):
    old, key = made("--scope", "read", "billing")
    new = run("api_keys", "rotate", "billing", "--overlap", "3h")
    key.refresh_from_db()
    successor = ApiKey.objects.get(prefix=new.rpartition("_")[0])
    assert (successor.scopes, successor.label, successor.environment) == (key.scopes, "billing", key.environment)
    assert (successor.expires_at, successor.created_by) == (None, "command api_keys")
    assert key.successor == successor
    assert abs(key.expires_at - (moment() + timedelta(hours=3))) < NEAR
    assert opens(old) and opens(new)
    ApiKey.objects.filter(pk=key.pk).update(expires_at=moment() - timedelta(seconds=2))
    assert not opens(old) and opens(new)


def test_the_overlap_is_a_day_if_nothing_is_said(db):
    _, key = made()
    said = told("api_keys", "rotate", key.prefix)
    assert re.search(rf"{key.prefix} is valid until .*Z; e_default_\w+ replaces it", said)
    key.refresh_from_db()
    assert abs(key.expires_at - (moment() + timedelta(hours=24))) < NEAR


def test_without_an_overlap_the_old_key_ends_at_once(db):
    old, key = made()
    assert opens(old)
    assert f"{key.prefix} is revoked" in told("api_keys", "rotate", key.prefix, "--overlap", "0")
    assert not opens(old)


def test_a_key_that_ends_sooner_does_so_and_its_successor_lasts_as_long_as_it_was_made_for(db):
    _, key = made("--expires", "90d")
    ApiKey.objects.update(created_at=moment() - timedelta(days=89), expires_at=moment() + timedelta(hours=1))
    run("api_keys", "rotate", key.prefix, "--overlap", "24h")
    key.refresh_from_db()
    assert abs(key.expires_at - (moment() + timedelta(hours=1))) < NEAR
    assert abs(key.successor.expires_at - (moment() + timedelta(days=89, hours=1))) < NEAR


def test_a_key_that_ends_too_late_to_last_as_long_again_has_a_successor_that_ends_when_it_does(db):
    _, key = made()
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    ApiKey.objects.update(created_at=moment() - timedelta(days=89), expires_at=last)
    run("api_keys", "rotate", key.prefix)
    key.refresh_from_db()
    assert key.successor.expires_at == last


def test_the_end_of_a_successor_can_be_said(db):
    _, key = made("--expires", "90d")
    run("api_keys", "rotate", key.prefix, "--expires", "7d")
    key.refresh_from_db()
    assert abs(key.successor.expires_at - (moment() + timedelta(days=7))) < NEAR


def test_what_is_over_or_has_a_successor_is_not_rotated(db):
    _, gone = made("gone")
    revoke_key(gone)
    _, expired = made("expired")
    ApiKey.objects.filter(pk=expired.pk).update(expires_at=moment() - timedelta(seconds=2))
    _, key = made("billing")
    run("api_keys", "rotate", key.prefix)
    key.refresh_from_db()
    for named, reason in (
        (gone.prefix, "is revoked. Create another key with `api_keys create`"),
        (expired.prefix, "is expired. Create another key with `api_keys create`"),
        (key.prefix, f"was already rotated. Rotate its successor, {key.successor.prefix}"),
    ):
        with pytest.raises(CommandError, match=reason):
            run("api_keys", "rotate", named)
    run("api_keys", "rotate", "billing")  # which is now the successor's
    assert ApiKey.objects.filter(label="billing").count() == 3


def test_of_two_who_rotate_a_key_at_once_one_does(db):
    _, key = made("billing")

    def rotate(_: int) -> bool:
        try:
            rotate_key(ApiKey.objects.get(pk=key.pk), By("test"))
        except CannotRotate:
            return False
        else:
            return True
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(rotate, range(4))) == [False, False, False, True]
    assert ApiKey.objects.count() == 2


# ---- what keys are called --------------------------------------------------------------------------------------------


def test_a_key_is_found_by_all_that_names_it(db):
    token, key = made("billing")
    made("other")
    for name in (token, key.prefix, str(key.pk), "billing"):
        run("api_keys", "revoke", name)
        key.refresh_from_db()
        assert key.revoked_at
        ApiKey.objects.update(revoked_at=None)


def test_who_revokes_a_successor_is_told_of_keys_before_it_that_are_still_good(db):
    """A label means the latest: those before it go on until their overlap is over."""
    token, first = made("billing")
    run("api_keys", "rotate", "billing", "--overlap", "2h")
    run("api_keys", "rotate", "billing")
    second = ApiKey.objects.get(successor__isnull=False, label="billing", expires_at__gt=moment() + timedelta(hours=3))
    lines = told("api_keys", "revoke", "billing").splitlines()
    assert [line.split(",")[0] for line in lines] == [f"warning: {second.prefix}", f"warning: {first.prefix}"]
    assert re.search(r" is still valid until \d{4}-\d\d-\d\dT\d\d:\d\dZ\. Revoke that key", lines[1])
    assert opens(token)
    assert told("api_keys", "revoke", second.prefix) == f"{lines[1]}\n"
    assert told("api_keys", "revoke", first.prefix) == ""
    assert not opens(token)


@pytest.mark.parametrize("name", ["", "nobody", "e_default_nope", "999999999", "9" * 30, "\u0661"])
def test_what_names_no_key_is_refused(db, name):
    create_key(default_environment())
    with pytest.raises(CommandError, match="API key not found"):
        run("api_keys", "revoke", name)


def test_a_label_of_several_keys_names_none(db):
    keys = [made("billing")[1] for _ in range(2)]
    with pytest.raises(CommandError, match=f"2 keys have this label. Use one of: {keys[0].prefix}, {keys[1].prefix}"):
        run("api_keys", "rotate", "billing")
    revoke_key(keys[0])
    assert run("api_keys", "rotate", "billing")
