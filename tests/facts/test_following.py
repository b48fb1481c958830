"""Who waits for changes is told of them as soon as they are committed, by this process or by another one."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from django.db import connection

from authz_project.keys import create_key, revoke_key
from authz_project.models import ApiKey
from tests.facts.test_feed import POLICY, role
from tests.service import ROOT, Client, start_service

WITHIN = 60.0  # seconds, for what takes a moment
SOON = 5.0  # seconds, on a machine that others use as well; far less than anybody waits here


def waiting(api, path: str, meanwhile) -> tuple[dict, float]:
    """The answer to somebody who waits, and how long after what happens meanwhile it came."""

    def ask() -> tuple[object, float]:
        try:
            return api.get(path), time.monotonic()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(ask)
        time.sleep(0.5)
        assert not asked.done()
        meanwhile()
        done = time.monotonic()
        answer, at = asked.result(40)
    return answer, at - done


def test_a_change_of_this_process_wakes(api):
    answer, late = waiting(api, "/changes?after=0&wait=30", lambda: api.post("/facts", role("ann", "reader", "1")))
    assert [each["revision"] for each in answer.json()["changes"]] == [1] and late < SOON


def test_a_change_that_is_not_asked_for_wakes_nobody(api):
    def change() -> None:
        api.post("/facts", role("ann", "reader", "1"))
        time.sleep(1)
        api.post("/facts", {"predicate": "likes", "args": [{"type": "User", "id": "ann"}]})

    answer, late = waiting(api, "/changes?predicate=likes&wait=30", change)
    assert [each["revision"] for each in answer.json()["changes"]] == [2] and late < SOON


def test_who_waits_in_vain_is_told_where_to_go_on(api):
    api.post("/facts", role("ann", "reader", "1"))
    began = time.monotonic()
    answer = api.get("/changes?predicate=likes&wait=0.7")
    assert 0.7 <= time.monotonic() - began < 0.7 + SOON
    assert answer.json() == {"changes": [], "next": 1, "more": False}
    assert api.get("/changes?after=1").json()["changes"] == []


def test_a_key_that_is_revoked_meanwhile_opens_nothing(api):
    other = type(api)(api.environment, create_key(api.environment)[1])

    def revoke() -> None:
        revoke_key(ApiKey.objects.get(prefix=api.key.rpartition("_")[0]))
        other.post("/facts", role("ann", "reader", "1"))

    answer, _ = waiting(api, "/changes?after=0&wait=30", revoke)
    assert answer.status_code == 401 and "ann" not in answer.content.decode()


# ---- the server --------------------------------------------------------------------------------------------------


def test_more_wait_than_there_are_threads_and_hold_nobody_up(service):
    """The service has one worker, with four threads."""
    client = service.fresh_client()
    client.post("/policy", {"src": POLICY, "filename": ""})
    after = client.get("/changes").json()["next"]

    def wait(_: int) -> dict:
        return client.get(f"/changes?after={after}&wait=20").json()

    with ThreadPoolExecutor(12) as threads:
        waits = [threads.submit(wait, number) for number in range(12)]
        time.sleep(2)
        assert not any(each.done() for each in waits)
        asked = [threads.submit(client.get, "/stats") for _ in range(20)]
        client.post("/facts", role("ann", "reader", "1"))
        told = [each.result(10)["changes"] for each in waits]
        assert all(each.result(10).status_code == 200 for each in asked)
    assert [[change["revision"] for change in changes] for changes in told] == [[after + 1]] * 12


def test_a_request_with_a_body_does_not_wait(service):
    """It has a thread of those that answer."""
    client = service.fresh_client()
    for body in (b"{}", iter([b"{}"])):  # of known length, and chunked
        began = time.monotonic()
        whose = {"Authorization": f"Bearer {client.key}"}
        answer = requests.get(f"{client.origin}/api/changes?wait=30", data=body, headers=whose, timeout=60)
        assert answer.json()["changes"] == [] and time.monotonic() - began < 25


def test_the_places_of_those_who_waited_are_free_again(service):
    client = service.fresh_client()
    for _ in range(6):
        began = time.monotonic()
        assert client.get("/changes?wait=0.3").json()["changes"] == []
        assert time.monotonic() - began >= 0.3
        assert client.get("/changes?after=7&wait=1").status_code == 400


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_server_that_is_told_to_stop_answers_who_waits(tmp_path, migrated_urls, kind):
    """And a change that another process makes is told before."""
    url = migrated_urls(kind, "following")
    service = start_service(tmp_path, url, "--dev", "--workers", "1")
    key = service.fresh_client().key
    other = start_service(tmp_path, url, "--dev", "--workers", "1")
    told: list[dict] = []

    def wait() -> None:
        for after in (0, 1):
            told.append(Client(service.origin, key).get(f"/changes?after={after}&wait=50").json())

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.5)
    Client(other.origin, key).post("/facts", role("ann", "reader", "1"))
    time.sleep(2)
    assert [len(each["changes"]) for each in told] == [1]
    began = time.monotonic()
    service.stop()
    thread.join(20)
    assert time.monotonic() - began < 15
    assert told[1] == {"changes": [], "next": 1, "more": False}
    other.stop()


# ---- on the command line -----------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def manage(request, migrated_urls, tmp_path):
    """Starts commands over a database that is prepared."""
    url = migrated_urls(request.param, f"follow_{abs(hash(request.node.name))}")
    variables = {"DATABASE_URL": url, "SECRET_KEY": "only for these tests " * 3, "PYTHONPATH": str(ROOT)}

    def start(*arguments: str, **options) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), *arguments], cwd=tmp_path, env=os.environ | variables,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
        )  # fmt: skip

    def run(*arguments: str, **options) -> tuple[int, str, str]:
        process = start(*arguments, **options)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    facts = tmp_path / "facts.jsonl"
    facts.write_text("".join(json.dumps(role("ann", "reader", each)) + "\n" for each in "123"))
    assert run("load_facts", str(facts))[0] == 0
    return start, run


@pytest.mark.parametrize(
    ("manage", "number"), [("sqlite", signal.SIGINT), ("postgresql", signal.SIGTERM)], indirect=["manage"]
)
def test_follow_changes(manage, number):
    start, run = manage
    process = start("follow_changes")
    first = json.loads(process.stdout.readline())
    assert (first["revision"], first["kind"], len(first["inserted"])) == (1, "load", 3)
    time.sleep(0.3)
    assert run("delete_facts", "has_role(User:ann, _, Doc:1)")[0] == 0
    second = json.loads(process.stdout.readline())
    assert (second["revision"], second["deleted"]) == (2, [role("ann", "reader", "1")])
    process.send_signal(number)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == 0
    after = start("follow_changes", "--after", "1", "--predicate", "has_role")
    assert json.loads(after.stdout.readline()) == second
    after.stdout.close()  # nobody reads any more
    assert after.wait(30) == 128 + signal.SIGPIPE and after.stderr.read() == ""


def test_follow_changes_goes_on_inside_of_a_large_revision(manage, tmp_path):
    start, run = manage
    facts = tmp_path / "many.jsonl"
    facts.write_text("".join(json.dumps(role("ben", "reader", str(each))) + "\n" for each in range(2_500)))
    assert run("load_facts", str(facts))[0] == 0
    process = start("follow_changes", "--after", "1")
    whole = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert [(each["part"], each["parts"], len(each["inserted"])) for each in whole] == [
        (1, 3, 1000), (2, 3, 1000), (3, 3, 500)
    ]  # fmt: skip
    assert whole[-1]["next"] == 2
    again = start("follow_changes", "--after", whole[0]["next"])
    assert [json.loads(again.stdout.readline()) for _ in range(2)] == whole[1:]
    again.send_signal(signal.SIGTERM)
    again.communicate(timeout=30)


@pytest.mark.parametrize("manage", ["sqlite"], indirect=True)
def test_follow_changes_says_what_is_wrong(manage):
    _, run = manage
    assert "error: --after: must be a revision number" in run("follow_changes", "--after", "x")[2]
    code, out, err = run("follow_changes", "--after", "9")
    assert (code, out) == (1, "") and "error: --after: revision 9 does not exist yet" in err
    assert run("follow_changes", "--predicate", "")[0] == 1
