"""A follower answers from its copy only if it may, and sends all else to the main service."""

import io
import math
import os
import random
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import orjson
import oso_cloud
import pytest
import requests
from django.core.management import CommandError, call_command
from django.test import override_settings

from authz_project.copies import CopyKeeper, CopyState, digest_of
from authz_project.keys import create_key
from authz_project.management.commands.serve import key_of
from authz_project.route import Route
from authz_project.server import follower as module
from authz_project.server.follower import Copying, Follower
from checks.urls import endpoints
from policy.models import Environment
from tests.faults.following import ROOT, Servers, change_a_lot, restore
from tests.postgresql import free_port
from tests.service import start_service

URL = "http://main.example"
QUESTION = {"actor_type": "User", "actor_id": "u1", "action": "read", "resource_type": "Doc", "resource_id": "d1"}


class Told(Follower):
    """A follower whose main service answers what a test says."""

    def __init__(self, *args, **options):
        super().__init__(URL, "key", *args, **options)
        self.status, self.answer, self.asked, self.plain = 200, {}, [], b""

    def ask(self, target, method="GET", body=b"", headers=None):
        self.asked.append((method, target, body, headers))
        if self.status == 0:
            raise ConnectionError("refused")
        if self.plain:
            return self.status, {}, self.plain
        answer = {
            "format": 2, "environment": "default", "now": time.time() * 1e6, "waited": 0.0, "age": 0.0, "base": None,
            "next": 0, "more": False, "keys": None, "changes": [],
        }  # fmt: skip
        return self.status, {"content-type": "application/json", "osooffset": "7"}, orjson.dumps(answer | self.answer)


def a_key(keeper: Copying) -> str:
    """Return a key of the copy, made as if the main service had sent it."""
    Environment.objects.update(follows="")
    key = create_key(Environment.objects.get())[1]
    keeper._copy.note()
    return key


def copying(told: Told) -> Copying:
    environment = Environment.objects.exclude(follows="").first()
    environment = environment or Environment.objects.create(slug="default", follows=CopyState(URL).text)
    return Copying(told, CopyKeeper(environment.pk, URL))


# ---- when it may answer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_it_is_ready_once_it_has_a_whole_copy(db):
    told = Told()
    keeper = copying(told)
    assert told.readiness.reason == "snapshot" and told.age == math.inf
    told.status = 0
    assert not keeper.step() and told.readiness.reason == "snapshot"
    told.status = 200
    assert keeper.step() and not told.readiness.reason and told.age < 1
    told.status = 0  # it answers on without the main service, also after a restart
    assert not keeper.step() and not told.readiness.reason
    again = Told()
    copying(again)
    assert not again.readiness.reason and 0 < again.age < 5


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_it_stops_answering_when_its_key_is_refused(db):
    told = Told()
    keeper = copying(told)
    keeper.step()
    told.status = 401
    assert not keeper.step() and told.readiness.reason == "key"
    again = Told()
    copying(again)
    assert again.readiness.reason == "key", "also after a restart"
    told.status = 200
    assert keeper.step() and not told.readiness.reason


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_only_what_the_main_service_says_of_the_position_ends_the_copy(db):
    told = Told()
    keeper = copying(told)
    keeper.step()
    told.status, told.answer = 400, {"message": "the request is malformed"}  # such as a host name that is not allowed
    assert not keeper.step() and not told.readiness.reason
    told.plain = b'{"message":"after: revision 7 does not exist yet; the latest is 6"}'
    assert keeper.step() and told.readiness.reason == "snapshot"


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
@pytest.mark.parametrize("seconds", [-3, 3])
def test_it_stops_answering_while_the_clocks_differ(db, seconds):
    told = Told()
    keeper = copying(told)
    told.answer = {"now": (time.time() + seconds) * 1e6}
    keeper.step()
    assert told.readiness.reason == "clock"
    told.answer = {}
    keeper.step()
    assert not told.readiness.reason


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
@pytest.mark.parametrize("seconds", [-3, 3])
def test_a_clock_that_is_set_without_the_main_service_is_noticed(db, seconds, monkeypatch):
    told = Told()
    keeper = copying(told)
    keeper.step()
    told.status = 0
    usual = time.time
    monkeypatch.setattr(module.time, "time", lambda: usual() + seconds)
    keeper.step()
    assert told.readiness.reason == "clock"


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_a_copy_from_the_future_is_not_used(db):
    """The clock was set back while the follower was stopped: nobody knows how old the copy is."""
    told = Told()
    keeper = copying(told)
    keeper.step()
    keeper._copy.note(current_at=time.time() + 60)
    again = Told(stale_after=30)
    copying(again)
    assert again.readiness.reason == "clock" and again.age == math.inf


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_it_is_as_old_as_the_follower_that_it_follows(db):
    told = Told(stale_after=30)
    keeper = copying(told)
    told.answer = {"age": 20.0}
    keeper.step()
    assert 20 <= told.age < 25 and not told.readiness.reason
    told.answer = {"age": 31.0}
    keeper.step()
    assert told.readiness.reason == "stale"


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_requests_are_answered_here_or_there(db):
    told = Told()
    keeper = copying(told)
    route = Route("/api/authorize", endpoints["authorize"])
    with override_settings(FOLLOW=told):
        refused = route.answer(environ(QUESTION))
        assert refused.status == 503 and ("Retry-After", "1") in refused.headers
        keeper.step()
        key = a_key(keeper)
        here = route.answer(environ(QUESTION, key))
        assert here.status == 200 and dict(here.headers)["Age"] == "0"
        told.asked.clear()
        there = route.answer(environ(QUESTION, key, HTTP_OSOOFFSET="0"))
        assert not told.asked and there.content == here.content
        module.REACH_WITHIN, before = 0.05, module.REACH_WITHIN
        try:
            query = "a=é&b=%2f".encode().decode("latin-1")
            there = route.answer(environ(QUESTION, key, HTTP_OSOOFFSET="5", QUERY_STRING=query))
        finally:
            module.REACH_WITHIN = before
        ((method, target, body, headers),) = told.asked
        assert (method, target, orjson.loads(body)) == ("POST", "/api/authorize?a=%C3%A9&b=%2f", QUESTION)
        assert headers["Authorization"] == f"Bearer {key}" and headers["Osooffset"] == "5"
        assert there.status == 200 and dict(there.headers)["Osooffset"] == "7" and b"changes" in there.content


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_an_answer_does_not_count_if_the_copy_is_discarded_meanwhile(db):
    told = Told()
    copying(told).step()

    def handler(request):
        keeper._begin_anew("a test")
        keeper.step()  # even if there is another copy by now
        return module.Response({"allowed": True})

    keeper = copying(told)
    with override_settings(FOLLOW=told):
        route = Route("/api/authorize", endpoints["authorize"])
        route._handled = lambda mine, request: handler(request)
        assert route.answer(environ(QUESTION)).status == 503


def environ(body: object, key: str = "none", **headers: str) -> dict:

    text = orjson.dumps(body)
    return {
        "REQUEST_METHOD": "POST", "PATH_INFO": "/api/authorize", "QUERY_STRING": "", "CONTENT_LENGTH": str(len(text)),
        "wsgi.input": io.BytesIO(text), "HTTP_AUTHORIZATION": f"Bearer {key}", **headers,
    }  # fmt: skip


# ---- servers -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("following")
    servers = Servers(folder, f"sqlite:///{folder}/main.sqlite3", random.Random(1))
    try:
        servers.publish()
        servers.fill(30_000)
        servers.start_follower()
        yield servers
    finally:
        servers.end()


def test_a_follower_provisions_nothing():
    with pytest.raises(CommandError, match=r"--follow .* cannot be combined with --dev or --scim"):
        call_command("serve", "--follow", URL, "--scim", "directory.yaml")


def test_what_is_no_key_is_refused_without_being_told(tmp_path):
    file = tmp_path / "key"
    file.write_text("e_secret\n")
    assert key_of(f"@{file}") == "e_secret"
    file.write_text("e_secret\nof the main service\n")
    with pytest.raises(CommandError, match="--follow needs an API key") as caught:
        key_of(f"@{file}")
    assert "e_secret" not in str(caught.value)


def test_a_follower_that_is_killed_during_its_snapshot_continues_it(servers):
    found = servers.await_stored(lambda found: isinstance(found["position"], str))
    servers.kill(servers.follower)
    change_a_lot(servers)
    found = servers.stored()
    assert not found["is_complete"], "it was killed in the middle"
    servers.start_follower()
    servers.catch_up()
    assert servers.stored()["horizon"] == int(found["position"].partition(".")[0])
    servers.compare()
    servers.compare_all()
    assert not servers.differences


def test_a_follower_that_is_killed_during_changes_continues(servers):
    for _ in range(2):
        change_a_lot(servers)
        servers.kill(servers.follower)
        change_a_lot(servers)
        servers.publish()
        servers.start_follower()
    servers.compare()
    servers.compare_all()
    assert not servers.differences


def test_a_follower_waits_for_news_without_a_thread(servers):
    """More wait than the main service has threads."""
    newest = servers.newest
    digest = digest_of(sent_keys(servers))
    path = f"/follow?after={newest}&keys={digest}&wait="
    told = servers.at_main.get(f"{path}0.5").json()
    assert told["waited"] >= 0.5 and told["changes"] == [] and told["next"] == newest
    with ThreadPoolExecutor(12) as threads:
        waiting = [threads.submit(servers.at_main.get, f"{path}20") for _ in range(12)]
        assert servers.at_main.post("/authorize", QUESTION).status_code == 200
        servers.change()
        for each in waiting:
            told = each.result().json()
            assert told["changes"] and told["waited"] < 20


def sent_keys(servers: Servers) -> bytes:
    content = servers.at_main.get("/follow").content
    return content[content.index(b'"keys":') + 7 : content.index(b',"changes"')]


def test_changes_are_sent_on_and_can_be_read_at_once(servers):
    servers.catch_up()
    for number in range(3):
        fact = {"predicate": "has_role", "args": [
            {"type": "User", "id": f"new{number}"}, {"type": "String", "id": "reader"}, {"type": "Doc", "id": "d1"},
        ]}  # fmt: skip
        made = servers.at_follower.post("/batch", [{"inserts": [fact]}])
        assert made.status_code == 200 and made.json() == {"message": "Batch applied"}
        seen = {"OsoOffset": made.headers["OsoOffset"]}
        told = servers.at_follower.post("/authorize", QUESTION | {"actor_id": f"new{number}"}, headers=seen)
        assert told.json() == {"allowed": True} and int(told.headers["OsoOffset"]) >= int(seen["OsoOffset"])
    assert servers.at_follower.post("/batch", [{"nonsense": []}]).status_code == 400
    latest = servers.at_main.get("/history?page_size=1").json()["results"][0]["author"]
    assert latest.startswith("key ")


def test_a_revoked_key_stops_working_with_the_next_revision(servers):
    key = servers.manage("api_keys", "create", "short").strip()
    servers.change()
    servers.catch_up()
    assert servers.follower.client(key).post("/authorize", QUESTION).status_code == 200
    servers.manage("api_keys", "revoke", key)
    servers.change()
    servers.catch_up()
    assert servers.follower.client(key).post("/authorize", QUESTION).status_code == 401
    key = servers.manage("api_keys", "create", "none").strip()
    until = time.monotonic() + 30  # without a revision, within seconds
    while servers.follower.client(key).post("/authorize", QUESTION).status_code != 200 and time.monotonic() < until:
        time.sleep(0.1)
    assert servers.follower.client(key).post("/authorize", QUESTION).status_code == 200


def test_the_copy_is_changed_by_no_command(servers):
    (servers.folder / "one.csv").write_text("has_role,User,x,String,reader,Doc,d1")
    changes = ["load_facts one.csv", "api_keys create mine", "delete_facts has_role(User:u1,_,Doc:_)"]
    for command in changes:
        ended = at_copy(servers, *command.split())
        assert ended.returncode == 1 and "make the change at the main service" in ended.stderr
    ended = at_copy(servers, "serve", "--port", str(free_port()))
    assert ended.returncode == 1 and "start with --follow" in ended.stderr
    ended = at_copy(servers, "verify")
    assert ended.returncode == 0, ended.stdout + ended.stderr


def at_copy(servers: Servers, *command: str) -> subprocess.CompletedProcess:
    """Run a command of the follower."""
    variables = os.environ | servers.variables | {"DATABASE_URL": f"sqlite:///{servers.file}", "PYTHONPATH": str(ROOT)}
    program = [sys.executable, ROOT / "manage.py", *command]
    return subprocess.run(program, cwd=servers.folder, capture_output=True, text=True, env=variables, timeout=300)


def test_a_follower_of_a_follower_is_the_same(servers):
    variables = servers.variables | {"FOLLOW_KEY": servers.follow_key}
    file = servers.folder / "second.sqlite3"
    second = start_service(
        servers.folder, f"sqlite:///{file}", "--workers", "1", "--follow", servers.follower.origin, **variables
    )
    try:
        made = second.client(servers.key).post("/batch", [{"deletes": []}])  # by way of the first one
        seen = {"OsoOffset": made.headers["OsoOffset"]}
        first, usual = servers.file, servers.follower
        servers.file, servers.follower = file, second
        try:
            servers.compare_all()
        finally:
            servers.file, servers.follower = first, usual
        told = second.client(servers.key).post("/authorize", QUESTION, headers=seen)
        assert told.json() == {"allowed": True}
        assert not servers.differences
    finally:
        servers.kill(second)


def test_published_clients_fall_back_to_it_when_the_main_service_is_down(servers):
    servers.catch_up()
    servers.kill(servers.main)
    client = oso_cloud.Oso(url=servers.main.origin, api_key=servers.key, fallback_url=servers.follower.origin)
    user, doc = oso_cloud.Value("User", "u1"), oso_cloud.Value("Doc", "d1")
    assert client.authorize(user, "read", doc) is True
    assert client.list(user, "read", "Doc") == ["d1"]
    assert client.get(("has_role", user, None, None))
    with pytest.raises(requests.ConnectionError):
        client.insert(("has_role", user, "writer", doc))
    assert servers.change(servers.at_follower).status_code == 503
    told = servers.at_follower.post("/authorize", QUESTION, headers={"OsoOffset": str(10**6)})
    assert told.status_code == 503, "it has not seen that revision, and never guesses"
    ready = requests.get(f"{servers.follower.origin}/readyz", timeout=10)
    assert ready.status_code == 200 and re.search(r"the copy is \d+ seconds old", ready.json()["message"])


def test_an_old_copy_is_not_used_if_it_must_not_be(servers):
    """The main service is still down."""
    servers.kill(servers.follower)
    servers.start_follower("--stale-after", "1s")
    told = servers.at_follower.post("/authorize", QUESTION)
    assert told.status_code == 503 and "--stale-after" in told.json()["message"]
    assert requests.get(f"{servers.follower.origin}/readyz", timeout=10).json()["reason"] == "stale"
    servers.kill(servers.follower)
    servers.start_main()
    servers.start_follower()
    servers.compare_all()
    assert not servers.differences


def test_a_main_service_that_is_restored_from_a_backup_is_copied_anew(servers):
    restore(servers)
    servers.compare()
    servers.compare_all()
    assert not servers.differences
    assert "the copy is replaced by a new snapshot" in servers.log()
