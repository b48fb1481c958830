"""Waiting for one's turn to change something is not asking: it has its own limit, and its own answer."""

import time
from threading import Timer

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from django.test import Client

from facts.models import Signature
from localsql.models import OutboxState
from policy.models import Environment
from tests.waiting import another_writer, holding

FACT = {"predicate": "likes", "args": [{"type": "User", "id": "ann"}]}
CHANGES = [
    ("/batch", [{"inserts": [FACT]}]),
    ("/batch", [{"deletes": [FACT]}]),
    ("/facts", FACT),
    ("/clear_data", None),
    ("/policy", {"src": "actor User {}", "filename": ""}),
]


def keyed_writer():
    """Be another batch with a key, until the end or until the event is set."""
    return holding(lambda: OutboxState.objects.update(turn=F("turn") + 1))


@pytest.fixture
def limits(settings):
    """Sets both limits, of questions and of waiting, in settings and on this thread's connection."""

    def limit(asking: float, waiting: float) -> None:
        settings.STATEMENT_TIMEOUT, settings.WRITE_TIMEOUT = asking, waiting
        with connection.cursor() as cursor:
            if connection.vendor == "sqlite":
                cursor.execute(f"PRAGMA busy_timeout = {int(waiting * 1000)}")
            else:
                cursor.execute(f"SET statement_timeout = {int(asking * 1000)}")

    yield limit
    connection.close()


@pytest.mark.parametrize(("path", "body"), CHANGES)
def test_who_waits_too_long_is_told_so_and_may_try_again(api, limits, path, body):
    limits(5, 0.2)
    with another_writer(api.environment.pk):
        started = time.monotonic()
        answer = api.post(path, body)
        assert time.monotonic() - started >= 0.2
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert answer.json()["message"] == (
        "timed out after 0.2 seconds waiting for other changes (WRITE_TIMEOUT); nothing changed; try again"
    )
    limits(5, 30)
    assert Environment.objects.get(pk=api.environment.pk).offset == 1  # the other writer's
    assert Signature.objects.count() == 0
    assert api.post(path, body).status_code == 200


@pytest.mark.parametrize("waiting", [30, 0])
@pytest.mark.parametrize(("path", "body"), CHANGES[:1])
def test_waiting_may_take_longer_than_asking(api, limits, path, body, waiting):
    limits(0.1, waiting)
    with another_writer(api.environment.pk) as done:
        Timer(0.5, done.set).start()
        assert api.post(path, body).status_code == 200


@pytest.mark.parametrize("waiting", [30, 0])
def test_a_batch_with_a_key_waits_for_another_with_a_key_as_long_as_for_any_other(api, limits, waiting):
    def put(key: str):
        return api.post("/batch", [{"inserts": [FACT]}], **{"Idempotency-Key": key})

    assert put("first").status_code == 200
    limits(0.1, waiting)
    with keyed_writer() as done:
        Timer(0.5, done.set).start()
        assert put("second").status_code == 200
    if waiting:
        limits(5, 0.2)
        with keyed_writer():
            answer = put("third")
        assert answer.status_code == 503
        assert "(WRITE_TIMEOUT)" in answer.json()["message"]


def test_a_command_that_waits_too_long_ends_with_the_reason(environment, limits, tmp_path):
    file = tmp_path / "facts.csv"
    file.write_text("likes,User,ann\n")
    limits(5, 0.2)
    with another_writer(environment.pk), pytest.raises(CommandError, match="WRITE_TIMEOUT"):
        call_command("load_facts", str(file))


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)  # SQLite has nobody to cancel a statement
def test_a_change_that_somebody_cancels_may_be_tried_again(api, db):
    assert api.get("/facts").status_code == 200  # the first request of a process takes longer
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (own,) = cursor.fetchone()
    with another_writer(api.environment.pk):
        Timer(0.3, _cancel, [own]).start()
        answer = api.post("/batch", [{"inserts": [FACT]}])
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert "cancelled" in answer.json()["message"]


def _cancel(process: int) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_cancel_backend(%s)", (process,))
    finally:
        connection.close()


def test_in_the_admin_an_environment_is_changed_in_its_turn(api, limits):
    client = Client()
    client.force_login(User.objects.create_superuser("admin", password="not used"))
    page = f"/admin/policy/environment/{api.environment.pk}/change/"
    limits(5, 0.2)
    with another_writer(api.environment.pk):
        answer = client.post(page, {"name": "Shop"}, follow=False)
    assert (answer.status_code, answer["Location"]) == (302, page)
    limits(5, 30)
    assert "(WRITE_TIMEOUT)" in client.get(page).content.decode()
    assert Environment.objects.get(pk=api.environment.pk).name != "Shop"
    assert client.post(page, {"name": "Shop"}).status_code == 302
    changed = Environment.objects.get(pk=api.environment.pk)
    assert (changed.name, changed.offset) == ("Shop", 2)


def test_in_the_admin_a_key_waits_no_longer_than_other_changes(api, limits):
    if connection.vendor != "sqlite":
        pytest.skip("keys and facts are changed side by side there")
    client = Client()
    client.force_login(User.objects.create_superuser("admin", password="not used"))
    (key,) = api.environment.api_keys.all()
    limits(5, 0.2)
    with another_writer(api.environment.pk):
        answer = client.post("/admin/authz_project/apikey/", {"action": "revoke", "_selected_action": [key.pk]})
    assert answer.status_code == 302
    limits(5, 30)
    assert "(WRITE_TIMEOUT)" in client.get("/admin/authz_project/apikey/").content.decode()
    assert api.get("/facts").status_code == 200
