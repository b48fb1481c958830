"""Questions on real standbys: who answers, and that no answer is older than it may be."""

import time
from threading import Event, Thread

import pytest
from django.db import connections
from django.test import override_settings
from django.utils import timezone

from authz_project import keys
from authz_project.keys import caller_of_token, create_key, revoke_key
from checks import views
from checks.asking import postgresql
from policy import moments
from policy.active import Caller, caller_of_hash
from policy.core import journal
from policy.core.clock import text_of
from policy.core.config import settings
from policy.endpoint import OFFSET
from policy.models import Revision
from policy.moments import Moment
from policy.replicas import reading
from policy.replicas.reading import AttemptResult, read
from tests.conftest import Api
from tests.replicas.cluster import DATABASE, pause, resume, wait_for
from tests.replicas.conftest import POLICY, answers, asked, ready, role


@pytest.fixture
def others(monkeypatch):
    """Changes that are made here are as those of other processes: this one does not know that it made them."""
    monkeypatch.setattr(journal, "note_change", lambda *_: None)


@pytest.fixture
def patient(monkeypatch):
    """Lag alone leaves no replica out."""
    monkeypatch.setattr(settings, "REPLICA_MAX_LAG", 10_000)


def may(api: Api, actor: str, resource: str, **headers: str) -> bool:
    answer = api.post("/authorize", asked(actor, resource), **headers)
    assert answer.status_code == 200, answer.json()
    return answer.json()["allowed"]


def stored(api: Api, actor: str, resource: str) -> str:
    """Store a fact; its position."""
    return api.post("/facts", role(actor, resource))[OFFSET]


# ---- who answers -------------------------------------------------------------------------------------------------


def test_questions_are_spread_over_the_replicas(api, watching):
    before = [each.answers for each in watching.replicas]
    for _ in range(40):
        assert not may(api, "ann", "a")
    answered = [each.answers - first for each, first in zip(watching.replicas, before)]
    assert sum(answered) == 40
    assert min(answered) >= 15


def test_a_question_is_one_statement_there_as_well(api, watching, monkeypatch):
    for _ in range(8):
        may(api, "ann", "a")
    seen: list[str] = []
    usual = postgresql._fetched
    monkeypatch.setattr(postgresql, "_fetched", lambda raw, sql, values: seen.append(sql) or usual(raw, sql, values))
    before = answers(watching)
    may(api, "ann", "new here")
    assert (len(seen), answers(watching)) == (1, before + 1)


ANN = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc"}


def test_without_replicas_nothing_is_looked_at(api, watching, monkeypatch):
    with monkeypatch.context() as patched, override_settings(REPLICAS={}):
        patched.setattr(reading, "watch", lambda: pytest.fail("nobody needs it"))
        assert not may(api, "ann", "a")
        assert may(api, "ann", "a", OsoOffset=stored(api, "ann", "a"))


def test_positioned_reading_alone(api, watching, monkeypatch):
    monkeypatch.setattr(settings, "REPLICA_READS", "positioned")
    before = answers(watching)
    may(api, "ann", "a")
    assert answers(watching) == before
    may(api, "ann", "a", OsoOffset="1")
    assert answers(watching) == before + 1


# ---- how old answers are ---------------------------------------------------------------------------------------------


def test_who_brings_a_position_reads_what_was_written(api, watching, cluster, others, patient):
    for each in cluster.standbys:
        pause(each)
    for place in range(20):
        position = stored(api, "ann", f"doc{place}")
        assert may(api, "ann", f"doc{place}", OsoOffset=position)


def test_what_the_primary_said_of_a_new_key_does_not_stand_for_a_replica(api, watching, cluster, others, patient):
    for each in cluster.standbys:
        pause(each)
    for place in range(5):
        stored(api, "ann", f"doc{place}")
        keys._callers.clear()
        assert len(api.get("/facts?predicate=has_role").json()) == place + 1


def test_a_moment_is_looked_up_in_what_is_as_new(api, watching, cluster, others, patient, monkeypatch):
    """A replica that catches up between the moment and the facts finds what is new by a moment that is not."""
    usual = views.moment_of

    def looked_up(*args: object) -> Moment | None:
        found = usual(*args)
        for each in cluster.standbys:
            resume(each)
            wait_for(lambda each=each: each.asked(replayed)[0][0], "it has caught up")
        return found

    for each in cluster.standbys:
        pause(each)
    position = stored(api, "ann", "a")
    replayed = (
        f"SELECT pg_last_wal_replay_lsn() >= '{cluster.primary.asked('SELECT pg_current_wal_insert_lsn()')[0][0]}'"
    )
    monkeypatch.setattr(views, "moment_of", looked_up)
    monkeypatch.setattr(moments, "_is_settled", lambda *_: True)
    body = asked("ann", "a") | {"as_of": timezone.now().isoformat()}
    answer = api.post("/authorize", body, OsoOffset=position)
    assert answer.json() == {"allowed": True}


def test_a_time_has_all_that_was_committed_by_then(api, watching, cluster, others, patient):
    """Of times that are just over, a replica does not know whether it has the last revision."""
    for each in cluster.standbys:
        pause(each)
    long_ago = text_of(Revision.objects.get(environment=api.environment, number=1).at)
    position = stored(api, "ann", "a")
    just_now = text_of(Revision.objects.get(environment=api.environment, number=int(position)).at)
    answer = api.post("/authorize", asked("ann", "a") | {"as_of": just_now})
    assert (answer.json(), answer[OFFSET]) == ({"allowed": True}, position)
    assert api.post("/authorize", asked("ann", "a") | {"as_of": long_ago}).json() == {"allowed": False}


def test_a_process_reads_what_it_wrote_without_a_position(api, watching, cluster, patient):
    for each in cluster.standbys:
        pause(each)
    stored(api, "ann", "a")
    assert may(api, "ann", "a")


def test_a_change_of_others_counts_within_about_a_second(api, watching, cluster, others, patient):
    for each in cluster.standbys:
        pause(each)
    stored(api, "ann", "a")
    wait_for(lambda: may(api, "ann", "a"), "the fact counts", within=5)
    assert all(each.probe.in_recovery and not each.reason for each in watching.replicas)


def test_a_position_that_nobody_has_concerns_its_request_alone(api, watching):
    assert not may(api, "ann", "a", OsoOffset="999999999999999999999")
    assert not may(api, "ann", "a", OsoOffset="999999")
    before = answers(watching)
    assert not may(api, "ann", "a")
    assert not may(api, "ann", "a", OsoOffset="1")
    assert answers(watching) == before + 2


def test_what_one_caller_proves_counts_for_the_next(api, watching, cluster, others, patient):
    pause(cluster.standbys[0])
    position = stored(api, "ann", "a")
    wait_for(lambda: may(api, "ann", "a", OsoOffset=position), "the fact counts")
    for _ in range(10):
        assert may(api, "ann", "a")


def test_a_revoked_key_opens_nothing_within_about_a_second(api, watching, cluster, patient):
    key, token = create_key(api.environment, "to be revoked")
    other = Api(api.environment, token)
    ready(other, watching)
    for each in cluster.standbys:
        pause(each)
    revoke_key(key)
    wait_for(lambda: other.post("/authorize", asked("ann", "a")).status_code == 401, "the key is refused", within=5)
    for _ in range(10):
        assert other.post("/authorize", asked("ann", "a")).status_code == 401
        assert api.post("/authorize", asked("ann", "a")).status_code == 200


def test_a_deleted_key_opens_nothing_either(api, watching, cluster, patient):
    key, token = create_key(api.environment, "to be deleted")
    other = Api(api.environment, token)
    ready(other, watching)
    for each in cluster.standbys:
        pause(each)
    key.delete()
    wait_for(lambda: other.post("/authorize", asked("ann", "a")).status_code == 401, "the key is refused", within=5)


def test_a_key_that_a_replica_does_not_know_yet_is_good(api, watching, cluster, patient):
    for each in cluster.standbys:
        pause(each)
    other = Api(api.environment, create_key(api.environment)[1])
    until = time.monotonic() + 2.5
    while time.monotonic() < until:
        assert other.post("/authorize", asked("ann", "a")).status_code == 200


def test_another_policy_counts_within_about_a_second(api, watching, cluster, others, patient):
    stored(api, "ann", "a")
    for each in cluster.standbys:
        pause(each)
    api.post("/policy", {"src": POLICY.replace('"read" if "reader";', "")})
    wait_for(lambda: not may(api, "ann", "a"), "the policy counts", within=5)


def test_a_change_by_hand_counts_by_its_moment(api, watching, cluster, patient):
    """Changes in SQL draw a moment, and make no revision."""
    stored(api, "ann", "a")
    wait_for(lambda: may(api, "ann", "a"), "the fact counts")
    for each in cluster.standbys:
        pause(each)
    cluster.primary.asked("DELETE FROM authz_fact; UPDATE authz_environment SET moment = moment + 7", DATABASE)
    wait_for(lambda: not may(api, "ann", "a"), "the fact is gone", within=5)


def test_pages_do_not_go_back(api, watching, cluster, others, patient):
    """A page that a replica answers is no older than the one before it."""
    stored(api, "ann", "a")
    for each in cluster.standbys:
        pause(each)
    api.post("/bulk_load", [role("ann", f"b{place:05}") for place in range(10_001)])
    resume(cluster.standbys[0])
    page: dict = {}
    wait_for(
        lambda: page.update(api.post("/list", ANN | {"page_size": 10_000}).json()) or page["next_page_token"],
        "there is another page",
    )
    rest = api.post("/list", ANN | {"page_size": 10_000, "page_token": page["next_page_token"]}).json()
    assert len(page["results"] + rest["results"]) == 10_002


def test_pages_of_a_moment_are_all_of_that_one(api, watching, cluster, others, patient):
    """A token says which revision; a replica that does not know it yet answers nothing, and no other one."""
    stored(api, "ann", "a")
    for each in cluster.standbys:
        pause(each)
    loaded = api.post("/bulk_load", [role("ann", f"b{place:05}") for place in range(10_001)])
    asked_for = ANN | {"page_size": 10_000}
    first = api.post("/list", asked_for | {"as_of": int(loaded[OFFSET])}).json()
    api.post("/clear_data")
    resume(cluster.standbys[0])
    rest = api.post("/list", asked_for | {"page_token": first["next_page_token"]}).json()
    assert len(first["results"] + rest["results"]) == 10_002 and rest["next_page_token"] is None


# ---- replicas that fail ----------------------------------------------------------------------------------------------


def test_a_paused_replica_is_left_out_and_comes_back(api, watching, cluster, monkeypatch):
    monkeypatch.setattr(settings, "REPLICA_MAX_LAG", 3)
    pause(cluster.standbys[0])
    stored(api, "ann", "a")
    wait_for(lambda: watching.replicas[0].reason, "it is left out")
    assert reading.state_of(reading.statuses()[0]).endswith("and REPLICA_MAX_LAG is 3")
    resume(cluster.standbys[0])
    wait_for(lambda: not watching.replicas[0].reason, "it is back")
    assert reading.state_of(reading.statuses()[0]).startswith("in use")


def test_a_question_that_a_replica_cancels_is_the_primarys(api, watching, cluster):
    """As where what it reads is vacuumed on the primary."""
    where: list[str] = []

    def attempt() -> AttemptResult[str]:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT pg_is_in_recovery()")
            where.append("replica" if cursor.fetchone()[0] else "primary")
            if where == ["replica"]:
                cursor.execute("SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(30)")
        return AttemptResult(where[-1], _seen(api))

    assert read(_caller(api), None, attempt) == "primary"
    assert where == ["replica", "primary"]
    assert all(not each.reason for each in watching.replicas)  # it was the question alone


def test_a_connection_to_a_server_of_before_is_not_asked(api, watching):
    """As where the server that is looked at was started anew, or its address leads elsewhere now."""
    replica = watching.replicas[0]
    watching.stop()
    usual, found = connections["default"], []

    def attempt() -> str:
        found.append(connections["default"].alias)
        return "found"

    assert watching.tried(replica, usual, attempt) == "found"
    replica.probe = replica.probe._replace(since=replica.probe.since + 1)
    assert watching.tried(replica, usual, attempt) is None
    assert found == [replica.alias]
    assert replica.reason.startswith("a connection reached another server")


def test_a_question_that_is_broken_off_leaves_no_connection(api, watching):
    class BrokenOff(BaseException):
        pass

    def attempt() -> None:
        raise BrokenOff

    usual, replica = connections["default"], watching.replicas[0]
    with pytest.raises(BrokenOff):
        watching.tried(replica, usual, attempt)
    assert connections["default"] is usual
    assert connections[replica.alias].connection is None
    assert replica.asked == 0


def test_a_conflict_with_recovery_is_no_error(api, watching, cluster):
    stored(api, "ann", "a")
    for each in cluster.standbys:
        each.asked("ALTER SYSTEM SET max_standby_streaming_delay = 0")
        each.asked("SELECT pg_reload_conf()")
    where: list[str] = []

    def attempt() -> AttemptResult[str]:
        mine = connections["default"]
        mine.ensure_connection()
        where.append(mine.alias)  # what the change has left to clean up may already conflict with the first statement
        with postgresql.snapshot(mine.connection):
            postgresql.rows(mine.connection, "SELECT count(*) FROM authz_fact", [])
            if mine.alias != "default":
                cluster.primary.asked("DELETE FROM authz_fact", DATABASE)
                cluster.primary.asked("VACUUM authz_fact", DATABASE)
                postgresql.rows(mine.connection, "SELECT count(*) FROM authz_fact, pg_sleep(2)", [])
        return AttemptResult(mine.alias, _seen(api))

    assert read(_caller(api), None, attempt) == "default"
    assert len(where) == 2
    for each in cluster.standbys:
        each.asked("ALTER SYSTEM RESET max_standby_streaming_delay")
        each.asked("SELECT pg_reload_conf()")


def test_a_replica_that_dies_under_load_is_no_error(api, watching, cluster):
    failed, stop = [], Event()

    def ask() -> None:
        try:
            while not stop.is_set():
                answer = api.post("/authorize", asked("ann", "a"))
                if answer.status_code != 200:
                    failed.append(answer.json())
        finally:
            connections.close_all()

    threads = [Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    try:
        time.sleep(0.5)
        cluster.standbys[1].kill()
        wait_for(lambda: watching.replicas[1].reason, "it is left out")
        assert cluster.standbys[1].run()
        before = watching.replicas[1].answers
        wait_for(lambda: watching.replicas[1].answers > before, "it is back")
    finally:
        stop.set()
        for each in threads:
            each.join()
    assert failed == []


def test_a_replica_that_hangs_holds_up_nobody_for_long(api, watching, cluster, monkeypatch):
    monkeypatch.setattr(settings, "REPLICA_TIMEOUT", 1.0)
    other = watching.replicas[0]
    wait_for(lambda: may(api, "ann", "a") is False and watching.replicas[1].answers, "connections are open")
    cluster.standbys[1].stopped(True)
    try:
        until = time.monotonic() + 6
        while time.monotonic() < until:
            started = time.monotonic()
            assert not may(api, "ann", "a")
            assert time.monotonic() - started < 5
        assert watching.replicas[1].reason
        assert not other.reason
    finally:
        cluster.standbys[1].stopped(False)
    wait_for(lambda: not watching.replicas[1].reason, "it is back")


def _caller(api: Api) -> Caller:
    return caller_of_token(api.key)


def _seen(api: Api):
    return caller_of_hash(_caller(api).key_hash).seen
