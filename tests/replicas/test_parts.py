"""Parts that need no server, or one for a moment: settings, what is known, timelines, what is said of replicas."""

import logging
import os
import secrets
import subprocess
import sys

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections

from authz_project.database import is_outdated
from authz_project.settings import database_from_url, replicas_from_urls
from checks.asking import ask
from policy import active
from policy.active import Seen
from policy.core.clock import Timeline, timeline
from policy.core.journal import NoPrimary, changing
from policy.language.source import Source
from policy.replicas import reading
from policy.replicas.reading import NOWHERE, position_of
from policy.replicas.watch import FORGET_AFTER, KeyRow, Known, Look
from policy.rules import compile_source
from tests import postgresql
from tests.replicas.cluster import DATABASE, begin_anew, connected, wait_for
from tests.service import ROOT

HALF = int(settings.STATEMENT_TIMEOUT * 500)  # milliseconds: of a question's time
PRIMARY = database_from_url("postgres://authz@db1/authz")


# ---- settings ------------------------------------------------------------------------------------------------------


def test_replicas_are_urls_by_commas():
    found = replicas_from_urls(" postgres://u:p@db2:5433/authz , postgresql://u:p@db3/authz", PRIMARY)
    assert [(each["HOST"], each["PORT"]) for each in found] == [("db2", 5433), ("db3", "")]
    assert all(each["OPTIONS"]["options"].endswith(f"-c statement_timeout={HALF}") for each in found)
    assert replicas_from_urls("", PRIMARY) == replicas_from_urls(" , ", PRIMARY) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sqlite:///x.sqlite3", "must be postgres:// URLs"),
        ("postgres://db2/authz,mysql://db3/authz", "must be postgres:// URLs"),
        ("db2", "must be postgres:// URLs"),
        ("postgres://db2,db3/authz", "must name one host in each URL"),
        ("postgres://db2:x/authz", "is not a valid URL"),
    ],
)
def test_what_is_no_replica(text, said):
    with pytest.raises(ImproperlyConfigured, match=said):
        replicas_from_urls(text, PRIMARY)


def test_sqlite_has_no_replicas(tmp_path):
    with pytest.raises(ImproperlyConfigured, match="requires a DATABASE_URL that begins with postgres"):
        replicas_from_urls("postgres://db2/authz", database_from_url(f"sqlite:///{tmp_path / 'authz.sqlite3'}"))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("REPLICA_MAX_LAG", "1", "at least 3 seconds"),
        ("REPLICA_MAX_LAG", "-1", "must be a number of seconds"),
        ("REPLICA_READS", "always", "must be after-writes or positioned"),
    ],
)
def test_settings_that_cannot_be_meant(tmp_path, name, value, said):
    environment = os.environ | {"PYTHONPATH": str(ROOT), name: value}
    done = subprocess.run(
        [sys.executable, ROOT / "manage.py", "version"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert said in done.stderr


def test_of_several_hosts_the_one_is_meant_that_takes_changes():
    several = database_from_url("postgres://u:p@db1:5432,db2:5433/authz")
    assert (several["HOST"], several["PORT"]) == ("db1,db2", "5432,5433")
    assert several["OPTIONS"]["target_session_attrs"] == "read-write"
    asked = database_from_url("postgres://u:p@db1,db2/authz?target_session_attrs=any")
    assert asked["OPTIONS"]["target_session_attrs"] == "any"
    assert "target_session_attrs" not in PRIMARY["OPTIONS"]


@pytest.mark.parametrize(
    ("text", "position"),
    [("", None), ("0", 0), ("17", 17), ("9" * 40, NOWHERE), ("-1", NOWHERE), ("null", NOWHERE),
     ("0" * 5000 + "17", 17), ("0" * 20 + "9" * 5000, NOWHERE)],
)  # fmt: skip
def test_positions(text, position):
    assert position_of(text) == position


# ---- what is known -------------------------------------------------------------------------------------------------


def looked(known: Known, offset: int, moment: int = 1, version: int = 1, at: float = 0.0, position: int = 100) -> None:
    row = KeyRow(version, 7, Seen(offset, moment))
    known.look(Look(at, 1, position, {"hash": row} if version else {}), ["hash"])


def test_what_is_older_than_what_is_known_does_not_count():
    known = Known()
    assert not known.takes(7, 0, Seen(5, 1))  # nothing is known of the environment yet
    looked(known, 5)
    assert known.takes(7, 0, Seen(5, 1))
    assert known.takes(7, 0, Seen(6, 9))
    assert not known.takes(7, 0, Seen(4, 9))
    assert not known.takes(7, 0, Seen(5, 2))  # the same revision, and something else: it went another way
    assert not known.takes(7, 6, Seen(5, 1))  # the caller has seen more
    known.learn(7, Seen(6))
    assert not known.takes(7, 0, Seen(5, 1))
    assert known.takes(7, 0, Seen(6, 2))
    known.learn(7, Seen(3, 3))
    assert not known.takes(7, 0, Seen(3, 3))


def test_a_key_counts_from_where_it_was_seen_as_it_is():
    known = Known()
    assert known.position_of_key("hash") is None
    looked(known, 5, position=100)
    looked(known, 5, position=200)
    assert known.position_of_key("hash") == 100
    looked(known, 5, version=2, position=300)
    assert known.position_of_key("hash") == 300
    looked(known, 5, version=0, position=400)
    assert known.position_of_key("hash") is None
    looked(known, 5, version=2, position=500)
    assert known.position_of_key("hash") == 500


def test_keys_that_nobody_uses_are_not_looked_at_for_ever():
    known = Known()
    known.position_of_key("hash")
    assert known.wanted == {"": ["hash"]}
    looked(known, 5, at=float(2**40) + FORGET_AFTER)
    assert known.wanted == {"": []}


def test_on_another_timeline_nothing_is_known():
    known = Known()
    known.position_of_key("hash")
    looked(known, 5)
    known.look(Look(1.0, 2, 50, {}), [])
    assert not known.takes(7, 0, Seen(5, 1))
    assert known.position_of_key("hash") is None
    looked(known, 5)  # of the one before: it comes late
    assert known.timeline == 2
    assert not known.takes(7, 0, Seen(5, 1))


def test_what_was_remembered_by_number_is_forgotten_with_a_timeline():
    mine, forgotten = Timeline(), []
    mine.forgets(lambda: forgotten.append(mine.number))
    mine.meet(0)
    mine.meet(3)
    mine.meet(3)
    assert (mine.number, forgotten, mine.has_moved) == (3, [], False)
    mine.meet(4)
    assert (mine.number, forgotten, mine.has_moved) == (4, [3], True)
    with pytest.raises(OperationalError, match=r"a server on timeline \d+ has taken over"):
        mine.meet(3)


def test_what_comes_late_is_not_remembered_again():
    program, history = compile_source(Source("actor User {}", "")), active._history
    late = ask.LiveSession(7, 1, True)
    try:
        active.remember_program(-7, program, history)
        assert active._programs.get(-7) is program
        for forget in timeline._forgetting:
            forget()
        active.remember_program(-7, program, history)
        assert active._programs.get(-7) is None
        assert ask.session_after(late, 2).generation > late.generation
    finally:
        for forget in timeline._forgetting:
            forget()


# ---- servers -------------------------------------------------------------------------------------------------------


def test_a_connection_to_a_server_of_before_is_refused(watching):
    mine = connections["default"]
    mine.ensure_connection()
    assert mine.timeline == timeline.number == 1
    assert not is_outdated(mine)
    timeline.meet(2)
    assert is_outdated(mine)
    mine.close()
    with pytest.raises(OperationalError, match=r"a server on timeline \d+ has taken over"):
        mine.ensure_connection()
    begin_anew()


def test_a_server_that_takes_no_changes_is_let_go(watching, cluster):
    connections["default"].ensure_connection()
    before = connections["default"].connection
    with pytest.raises(NoPrimary), changing(), connections["default"].cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.execute("UPDATE authz_environment SET slug = slug")
    connections["default"].ensure_connection()
    assert connections["default"].connection is not before


def described() -> list[str]:
    return [f"{each.name} is {reading.state_of(each)}" for each in reading.looked_at()]


def test_what_is_said_of_replicas(watching, cluster, caplog):
    caplog.set_level(logging.INFO, "authz.database")
    said = [f"127.0.0.1:{each.port} is in use, lag 0.0 s" for each in cluster.standbys]
    wait_for(lambda: described() == said, "both are in step", described)
    assert all(each.position and each.lag is not None and each.asked == 0 for each in reading.statuses())
    assert "is in use" in caplog.text


def test_the_primary_and_strangers_are_no_replicas(request, watching, cluster):
    stranger = postgresql.start()
    stranger.create(DATABASE)
    nobody = f"postgres://postgres@127.0.0.1:{postgresql.free_port()}/{DATABASE}"
    urls = ",".join((cluster.url, stranger.url(DATABASE), nobody))
    with connected((cluster.url, urls)):
        itself, other, gone = described()
    stranger.stop()
    assert itself.endswith("is not in use: it is not a replica: it accepts writes")
    assert other.endswith("is not in use: it replicates another database, not the primary")
    assert "is not in use: unreachable: " in gone


def test_a_role_without_rights_may_use_replicas(watching, cluster):
    cluster.primary.asked("CREATE ROLE plain LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO plain", DATABASE)
    at = cluster.primary.asked("SELECT pg_current_wal_insert_lsn()")[0][0]
    for each in cluster.standbys:
        wait_for(lambda each=each: each.asked(f"SELECT pg_last_wal_replay_lsn() >= '{at}'")[0][0], "it knows the role")
    url, urls = (text.replace("postgres@", "plain@") for text in (cluster.url, cluster.replica_urls))
    with connected((url, urls)):
        wait_for(lambda: all("is in use" in line for line in described()), "both may be asked", described)
    cluster.primary.asked("DROP OWNED BY plain; DROP ROLE plain", DATABASE)


def test_a_server_does_not_start_with_a_copy_of_another_database(watching, cluster, tmp_path):
    stranger = postgresql.start()
    stranger.create(DATABASE)
    environment = os.environ | {
        "PYTHONPATH": str(ROOT), "DATABASE_URL": cluster.url, "SECRET_KEY": secrets.token_hex(32),
        "DATABASE_REPLICA_URL": f"{cluster.replica_urls},{stranger.url(DATABASE)}",
    }  # fmt: skip
    command = [sys.executable, ROOT / "manage.py", "serve", "--port", str(postgresql.free_port())]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    looked = [sys.executable, ROOT / "manage.py", "check", "--deploy", "--tag", "service"]
    told = subprocess.run(looked, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120).stderr
    stranger.stop()
    assert "it replicates another database, not the primary" in done.stderr
    assert done.returncode != 0
    assert f"127.0.0.1:{cluster.standbys[0].port}" not in told
    assert "it replicates another database" in told
