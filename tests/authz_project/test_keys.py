"""Who gets in."""

import io
import sqlite3
from datetime import datetime, timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from authz_project import keys
from authz_project.environments import create_test_environment
from authz_project.models import ApiKey
from policy.models import Environment, default_environment
from tests.conftest import Api
from tests.factories import EnvironmentFactory


def key_of(api) -> ApiKey:
    return ApiKey.objects.get(environment=api.environment)


def run(*arguments: str, **options: object) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, **options)
    return out.getvalue().strip()


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Basic", "basic", "Bearer  "])
def test_the_schemes_of_old_and_new_clients_are_taken(api, scheme):
    assert api.get("/facts", Authorization=f"{scheme} {api.key}").status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer nonsense",
        "Digest {key}",
        "{key}",
        "Bearer {key}x",
        "Bearer {prefix}",
        "Bearer é",
        "Basic ZTpm",
    ],
)
def test_anything_else_is_refused(api, header):
    filled = header.format(key=api.key, prefix=api.key.rpartition("_")[0])
    answer = api.get("/facts", Authorization=filled)
    assert (answer.status_code, set(answer.json())) == (401, {"message"})
    assert answer["X-Request-ID"]


def test_a_key_opens_its_own_environment_only(new_api):
    one, other = new_api("one"), new_api("other")
    one.post("/facts", {"predicate": "p", "args": [{"type": "T", "id": "x"}]})
    assert other.get("/facts").json() == []
    assert other.post("/clear_data").status_code == 200
    assert len(one.get("/facts").json()) == 1


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_revoked_key_is_refused_at_once_even_where_it_is_remembered(api, method):
    path = "/facts" if method == "GET" else "/batch"
    assert api.request(method, path, []).status_code == 200
    run("api_keys", "revoke", key_of(api).prefix)
    assert api.request(method, path, []).status_code == 401


def test_a_key_is_remembered_from_its_first_use_until_it_is_refused(api):
    """Requests with other keys get few threads, and little memory for a body."""
    assert not keys.is_remembered(api.key)
    assert api.get("/facts").status_code == 200
    assert keys.is_remembered(api.key) and not keys.is_remembered(f"{api.key}x")
    run("api_keys", "revoke", key_of(api).prefix)
    assert api.get("/facts").status_code == 401
    assert not keys.is_remembered(api.key)


def test_an_expired_key_is_refused(api):
    assert api.get("/facts").status_code == 200
    ApiKey.objects.update(expires_at=timezone.now() - timedelta(seconds=2))
    assert api.get("/facts").status_code == 401
    ApiKey.objects.update(expires_at=timezone.now() + timedelta(minutes=2))
    assert api.get("/facts").status_code == 200


def stop_sqlite(at: str) -> None:
    """Have this connection's clock stand still."""
    plain = sqlite3.connect(":memory:")

    def julianday(text: str) -> float:
        return plain.execute("SELECT julianday(?)", (at if text == "now" else text,)).fetchone()[0]

    connection.connection.create_function("julianday", 1, julianday)
    connection.connection.create_function("current_timestamp", 0, lambda: at[:19])


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)  # a file's clock is in this process
@pytest.mark.parametrize(
    ("end", "is_good"),
    [
        ("12:00:00", False), ("12:00:00.499999", False), ("12:00:00.500000", False), ("12:00:00.501000", True),
        ("12:00:01", True), ("11:59:59.999999", False),
    ],
)  # fmt: skip
def test_a_key_ends_to_the_millisecond_with_a_fact_of_the_same_end(api, end, is_good):
    """Whether their ends have fractions or not. By the clock of a file, which counts milliseconds."""
    time = datetime.fromisoformat(f"2099-01-01T{end}+00:00")
    stored = {"predicate": "p", "args": [{"type": "T", "id": "x"}], "expires_at": time.isoformat()}
    question = {"predicate": ["p", ["x"]], "constraints": {"x": {"type": "T"}}}
    assert api.post("/facts", stored).status_code == 200
    ApiKey.objects.filter(environment=api.environment).update(expires_at=time)
    other = Api(api.environment, keys.create_key(api.environment)[1])
    stop_sqlite("2099-01-01 12:00:00.500")
    try:
        for _ in range(3):
            got = [api.get("/facts"), api.get("/changes"), api.post("/evaluate_query", question)]
            assert [each.status_code for each in got] == [200 if is_good else 401] * 3
        assert len(other.get("/facts").json()) == is_good
        assert len(other.post("/evaluate_query", question).json()["results"]) == is_good
    finally:
        connection.close()


def test_a_key_ends_at_once(api):
    """By the clock of a server too: in the statement after the one that was its end."""
    assert api.get("/facts").status_code == 200
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("UPDATE api_key SET expires_at = strftime('%Y-%m-%d %H:%M:%f', 'now')")
        else:
            cursor.execute("UPDATE api_key SET expires_at = clock_timestamp()")
    assert {api.get("/facts").status_code for _ in range(3)} == {401}


def test_a_known_key_costs_one_query(api, django_assert_num_queries):
    api.get("/stats")
    with django_assert_num_queries(2):  # the key, and the environment's signatures
        api.get("/stats")


def test_only_the_hash_of_a_key_is_kept(api):
    row = ApiKey.objects.values().get()
    assert all(api.key.rpartition("_")[2] not in str(column) for column in row.values())
    assert len(row["hash"]) == 64


def test_keys_of_development_open_nothing_outside_of_it(db, settings):
    """The well-known key, and those of test environments."""
    environment = default_environment()
    keys.keep_dev_key(environment)
    for key in (keys.DEV_KEY, create_test_environment(copied=False)):
        api = Api(environment, key)
        settings.DEV_SERVER = False
        assert api.get("/facts").status_code == 401
        settings.DEV_SERVER = True
        assert api.get("/facts", Host="localhost").status_code == 200


def test_the_well_known_key_stays_what_it_is_while_another_server_starts(db):
    """Which may be at work with it."""
    environment = EnvironmentFactory()
    keys.keep_dev_key(environment)
    before = ApiKey.objects.get(hash=keys.DEV_KEY_HASH)
    keys.keep_dev_key(environment)
    assert ApiKey.objects.get(hash=keys.DEV_KEY_HASH).pk == before.pk
    keys.revoke_key(before)
    keys.keep_dev_key(environment)
    assert ApiKey.objects.get(hash=keys.DEV_KEY_HASH).revoked_at is None
    other = EnvironmentFactory(slug="other")
    keys.keep_dev_key(other)
    assert ApiKey.objects.get(hash=keys.DEV_KEY_HASH).environment == other


def test_keys_are_made_listed_and_revoked_by_commands(db):
    token = run("api_keys", "create", "--environment", "staging", "--create-environment", "shop", "--expires", "3d")
    assert token.startswith("e_staging_") and len(token.split("_")) == 4
    assert Api(Environment.objects.get(slug="staging"), token).get("/facts").status_code == 200
    prefix = token.rpartition("_")[0]
    listed = run("api_keys", "list")
    assert prefix in listed and "active until" in listed and "shop" in listed
    run("api_keys", "revoke", token)
    assert "revoked" in run("api_keys", "list")
    assert token.rpartition("_")[2] not in run("api_keys", "list")


def test_commands_refuse_what_is_not_there(db):
    with pytest.raises(CommandError, match="Environment `nope` does not exist"):
        run("api_keys", "create", "--environment", "nope")
    with pytest.raises(CommandError, match="API key not found"):
        run("api_keys", "revoke", "e_default_nope")
