"""A database of a version that kept no revisions is taken over whole; what is known begins with the upgrade."""

import secrets
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.authz_project.test_serve import SECRET
from tests.authz_project.test_start import manage
from tests.service import Client, start_service

DUMP = Path(__file__).with_name("before_revisions.sql").read_text()
KEY = "e_default_iMTq7TbCb2_7i7cBof7Gz1anxeNZjyNIwKDWJQWuosMSbjytcui"  # of nothing but the dump
UPGRADE = 3  # the offset of the last change before
TABLES = ("environment", "policy_version", "api_key", "signature", "fact", "past_fact", "revision")
ORIGINALS: dict[str, str] = {}  # URLs, by the dump that they are of
OLD_LABELS = ("facts", "localsql", "policy")  # now with the prefix `authz_`
OURS = ("authz_project", *OLD_LABELS)


@pytest.fixture(params=["sqlite", "postgresql"])
def upgraded(request, database_urls, tmp_path) -> Client:
    """The holder of a key of then, before a server of now."""
    url = database_of(DUMP, request.param, database_urls, tmp_path)
    service = start_service(tmp_path, url, "--workers", "1", SECRET_KEY=SECRET)
    yield service.client(KEY)
    service.stop()


def database_of(text: str, kind: str, database_urls, folder) -> str:
    """The URL of a database with what the dump has."""
    if kind == "postgresql":
        return rows_from_dump(text, database_urls, folder)
    path = folder / "before.sqlite3"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(text)
    return f"sqlite:///{path}"


def rows_from_dump(text: str, database_urls, folder) -> str:
    """The same rows in tables that the migrations of then have made: a copy of what the first who asked has made."""
    if text not in ORIGINALS:
        ORIGINALS[text] = migrated_then(text, database_urls, folder)
    return database_urls("postgresql", f"before_{secrets.token_hex(4)}", ORIGINALS[text])


def migrated_then(text: str, database_urls, folder) -> str:
    url = database_urls("postgresql", f"then_{secrets.token_hex(4)}")
    with closing(sqlite3.connect(":memory:")) as dump:
        dump.executescript(text)
        last = dump.execute("SELECT app, MAX(name) FROM django_migrations GROUP BY app").fetchall()
        for app, name in last:
            if app in OURS:
                manage(folder, url, "migrate", f"authz_{app}" if app in OLD_LABELS else app, name)
        copy_rows(dump, url)
    with closing(connected(url)) as database:
        take_labels_back(database, "django_migrations", "app")
    return url


def take_labels_back(database, table: str, column: str) -> None:
    for label in OLD_LABELS:
        database.execute(f"UPDATE {table} SET {column} = '{label}' WHERE {column} = 'authz_{label}'")
    database.commit()


def copy_rows(dump: sqlite3.Connection, url: str) -> None:
    (there,) = zip(*dump.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
    with psycopg.connect(url) as target:
        for table in (name for name in TABLES if name in there):
            found = dump.execute(f"SELECT * FROM {table}")
            kinds = booleans(target, table)
            names = [each[0] for each in found.description]
            columns, places = ", ".join(f'"{name}"' for name in names), ", ".join(["%s"] * len(names))
            for row in found:
                values = [bool(value) if name in kinds else value for name, value in zip(names, row)]
                target.execute(f"INSERT INTO {table} ({columns}) VALUES ({places})", values)
            if "id" in names:
                target.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT MAX(id) FROM {table}))")


def booleans(target: psycopg.Connection, table: str) -> set[str]:
    """Columns whose values SQLite has as numbers."""
    named = "SELECT column_name FROM information_schema.columns WHERE table_name = %s AND data_type = 'boolean'"
    return {name for (name,) in target.execute(named, (table,))}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_apps_have_their_labels_of_now(kind, database_urls, tmp_path):
    url = database_of(DUMP, kind, database_urls, tmp_path)
    manage(tmp_path, url, "migrate")
    with closing(connected(url)) as database:
        found = contents(database)
    assert not found["types"] & {*OLD_LABELS} and not found["migrations"].keys() & {*OLD_LABELS}


def test_what_there_was_stays_and_is_known_from_the_upgrade_on(upgraded):
    assert len(upgraded.get("/facts").json()) == 3
    assert may_read(upgraded, "ann") and may_read(upgraded, "ben") and not may_read(upgraded, "eve")
    assert '"read" if "reader"' in upgraded.get("/policy").json()["policy"]["src"]
    gone = upgraded.post("/batch", [{"deletes": [role("ann", "reader")]}, {"inserts": [role("eve", "writer")]}])
    assert gone.headers["OsoOffset"] == str(UPGRADE + 1)
    assert [may_read(upgraded, user) for user in ("ann", "ben", "eve")] == [False, True, True]
    assert [may_read(upgraded, user, as_of=UPGRADE) for user in ("ann", "ben", "eve")] == [True, True, False]
    assert len(upgraded.get("/facts", params={"as_of": UPGRADE}).json()) == 3
    assert may_read(upgraded, "ben", as_of=UPGRADE, policy_version=1)
    assert not may_read(upgraded, "ann", as_of=UPGRADE, policy_version=1)


def test_before_the_upgrade_nothing_is_known(upgraded):
    for as_of in (UPGRADE - 1, 0, "2026-11-22T17:04:30Z"):
        refused = upgraded.post("/authorize", asked("ann") | {"as_of": as_of})
        assert refused.status_code == 400, refused.text
        said = refused.json()["message"]
        assert "is no longer available" in said and f"oldest available is revision {UPGRADE}, 2" in said


# ---- labels of apps --------------------------------------------------------------------------------------------------

HOLDERS = """SELECT 'group', t.app_label, p.codename FROM auth_group_permissions g
    JOIN auth_permission p ON p.id = g.permission_id JOIN django_content_type t ON t.id = p.content_type_id
    UNION ALL SELECT 'user', t.app_label, p.codename FROM auth_user_user_permissions u
    JOIN auth_permission p ON p.id = u.permission_id JOIN django_content_type t ON t.id = p.content_type_id"""
GRANT = """INSERT INTO auth_user
        (password, is_superuser, username, first_name, last_name, email, is_staff, is_active, date_joined)
        VALUES ('', false, 'ada', '', '', '', true, true, '2026-11-03 14:02:11+00:00');
    DELETE FROM auth_group_permissions;
    DELETE FROM auth_group;
    INSERT INTO auth_group (name) VALUES ('auditors');
    INSERT INTO auth_group_permissions (group_id, permission_id) SELECT g.id, p.id FROM auth_group g, auth_permission p
        WHERE p.codename = 'view_signature';
    INSERT INTO auth_user_user_permissions (user_id, permission_id) SELECT u.id, p.id
        FROM auth_user u, auth_permission p WHERE p.codename = 'add_policyversion'"""
HELD = {("group", "facts", "view_signature"), ("user", "policy", "add_policyversion")}


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_permissions_follow_labels_and_servers_of_before_go_on(kind, migrated_urls, tmp_path):
    url = migrated_urls(kind, f"labels_{secrets.token_hex(4)}")
    for label, last in (("authz_project", "0003"), ("authz_facts", "0007"), ("authz_policy", "0007")):
        manage(tmp_path, url, "migrate", label, last)
    with closing(connected(url)) as database:
        take_labels_back(database, "django_migrations", "app")
        take_labels_back(database, "django_content_type", "app_label")
        for statement in GRANT.split(";"):
            database.execute(statement)
        database.commit()
        before = contents(database)
        assert set(before["holders"]) == HELD and before["migrations"]["facts"][-1] == "0007_delete_fact"
        database.commit()
        assert "authz_policy.0008_roles" in manage(tmp_path, url, "migrate", "--plan")
        assert contents(database) == before, "nothing was to be changed"
        database.commit()
        manage(tmp_path, url, "migrate")
        after = contents(database)
        assert {(who, f"authz_{label}", name) for who, label, name in HELD} <= set(after["holders"])
        assert set(before["permissions"]) <= set(after["permissions"]) and not after["types"] & {*OLD_LABELS}
        later = {"policy", "facts"}
        assert not later & {*after["migrations"]}, "there are later ones, so the version before is not ready any more"
        of_then = after["migrations"]["localsql"]
        assert of_then == before["migrations"]["localsql"], "which are what the version before looks for"
        assert of_then == after["migrations"]["authz_localsql"]
        database.commit()
        name = "('authz_localsql', '9999_later', '2027-01-01')"
        database.execute(f"INSERT INTO django_migrations (app, name, applied) VALUES {name}")
        database.commit()
        manage(tmp_path, url, "migrate")
        assert "localsql" not in contents(database)["migrations"], "so the version before is not ready any more"


def contents(database) -> dict[str, Any]:
    def rows(statement: str) -> list[Any]:
        return database.execute(statement).fetchall()

    migrations: dict[str, list[str]] = {}
    for label, name in rows("SELECT app, name FROM django_migrations ORDER BY app, name"):
        migrations.setdefault(label, []).append(name)
    return {
        "migrations": migrations,
        "holders": rows(HOLDERS),
        "permissions": rows("SELECT id, content_type_id, codename FROM auth_permission ORDER BY id"),
        "types": {label for (label,) in rows("SELECT app_label FROM django_content_type")},
    }


def test_tables_of_another_app_named_policy_are_left_alone(tmp_path):
    url = f"sqlite:///{tmp_path / 'shared.sqlite3'}"
    with closing(connected(url)) as database:
        database.executescript(
            """CREATE TABLE django_migrations (id integer PRIMARY KEY, app text, name text, applied text);
            INSERT INTO django_migrations (app, name, applied) VALUES ('policy', '0001_initial', '2026-11-03');
            CREATE TABLE policy_environment (id integer)"""
        )
        manage(tmp_path, url, "migrate")
        migrations = contents(database)["migrations"]
        assert migrations["policy"] == ["0001_initial"] and "0007_table_prefix" in migrations["authz_policy"]


# ---- who published what --------------------------------------------------------------------------------------------

PUBLISHED = datetime(2026, 11, 3, 14, 2, 11, tzinfo=UTC)
REVISIONS = (  # of version 1 and 2, the publishing; of version 3, which is older, only that it was made active again
    (1, 0.2, "admin ada", 1),
    (2, 5.0, "command load_policy", 2),
    (3, 86_400, "admin ben", 1),
    (4, 86_400, "admin ben", 3),
)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_who_published_a_version_is_taken_from_its_revision(kind, database_urls, tmp_path):
    url = database_urls(kind, f"authors_{secrets.token_hex(4)}")
    manage(tmp_path, url, "migrate", "authz_policy", "0004")
    with closing(connected(url)) as database:
        mark = "?" if kind == "sqlite" else "%s"
        database.execute(
            "INSERT INTO environment (id, slug, name, created_at, moment) VALUES"
            f" (1, 'default', 'Default', '{PUBLISHED:%Y-%m-%d %H:%M:%S+00:00}', 1)"
        )
        for number in (1, 2, 3):
            database.execute(
                "INSERT INTO policy_version (id, environment_id, number, source, filename, digest, created_at)"
                f" VALUES ({mark}, 1, {mark}, 'actor User {{}}', NULL, '', {mark})",
                (number, number, f"{PUBLISHED - timedelta(days=30 * (number == 3)):%Y-%m-%d %H:%M:%S+00:00}"),
            )
        for number, seconds, author, version in REVISIONS:
            at = int((PUBLISHED.timestamp() + seconds) * 1_000_000)
            database.execute(
                "INSERT INTO revision (environment_id, number, at, author, request_id, policy_version_id, kind,"
                f" inserted, deleted) VALUES (1, {mark}, {mark}, {mark}, '', {mark}, 'policy', 0, 0)",
                (number, at, author, version),
            )
        database.commit()
    manage(tmp_path, url, "migrate")
    with closing(connected(url)) as database:
        found = database.execute("SELECT number, author, note, tests, rules FROM authz_policy_version ORDER BY number")
        assert found.fetchall() == [
            (1, "admin ada", "", None, None), (2, "command load_policy", "", None, None), (3, "", "", None, None),
        ]  # fmt: skip


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_since_when_there_are_such_facts_is_taken_from_the_oldest(kind, database_urls, tmp_path):
    url = database_urls(kind, f"kinds_{secrets.token_hex(4)}")
    manage(tmp_path, url, "migrate", "authz_facts", "0003")
    with closing(connected(url)) as database:
        database.execute(
            "INSERT INTO environment (id, slug, name, created_at, moment) VALUES"
            f" (1, 'default', 'Default', '{PUBLISHED:%Y-%m-%d %H:%M:%S+00:00}', 1)"
        )
        for number in (1, 2, 3, 4):
            names = "id, environment_id, predicate, types"
            database.execute(f"INSERT INTO signature ({names}) VALUES ({number}, 1, 'p{number}', '[]')")
        for number, revision in ((1, 9), (2, 6)):
            database.execute(f"INSERT INTO fact (sig, a0, since) VALUES ({number}, 'x', {revision})")
        for number, revision in ((1, 5), (3, 7)):
            database.execute(f"INSERT INTO past_fact VALUES ({number}, 'x', '', '', '', '', {revision}, 8, NULL)")
        database.commit()
    manage(tmp_path, url, "migrate")
    with closing(connected(url)) as database:
        found = database.execute("SELECT id, since FROM authz_signature ORDER BY id").fetchall()
    assert found == [(1, 5), (2, 6), (3, 7), (4, 0)], "of the last one, nothing is known"


# ---- provisioned users, and what keys have since ---------------------------------------------------------------------

PROVISIONED = (
    ("Users", "u1", "ann", '{"userName": "Ann"}'),
    ("Users", "u2", "ben", '{"userName": "Ben"}'),
    ("Groups", "g1", "team", '{"displayName": "Team", "members": [{"value": "u1"}, {"value": "gone"}]}'),
    ("Groups", "g2", "empty", '{"displayName": "Empty"}'),
)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_groups_keep_their_members_and_keys_get_what_is_new(kind, migrated_urls, tmp_path):
    url = migrated_urls(kind, f"provisioned_{secrets.token_hex(4)}")
    for label, *scopes in (("full",), ("reading", "read"), ("changing", "read", "facts")):
        options = [word for scope in scopes for word in ("--scope", scope)]
        manage(tmp_path, url, "api_keys", "create", label, *options, SECRET_KEY=SECRET)
    manage(tmp_path, url, "migrate", "authz_project", "0004")
    mark = "?" if kind == "sqlite" else "%s"
    with closing(connected(url)) as database:
        for row in PROVISIONED:
            database.execute(
                "INSERT INTO scim_resource (environment_id, kind, uid, name, resource, facts, created_at, changed_at)"
                f" SELECT id, {mark}, {mark}, {mark}, {mark}, '[]', '2026-11-03', '2026-11-03' FROM authz_environment",
                row,
            )
        database.execute(
            "INSERT INTO auth_user (id, password, is_superuser, username, first_name, last_name, email, is_staff,"
            " is_active, date_joined) VALUES (7, '', false, 'ann', '', '', '', true, true, '2026-11-03')"
        )
        for label, author in (("full", "admin ann"), ("reading", "admin gone")):
            database.execute(f"UPDATE api_key SET created_by = '{author}' WHERE label = '{label}'")
        database.commit()
    manage(tmp_path, url, "migrate")
    with closing(connected(url)) as database:
        titles = database.execute("SELECT title FROM scim_resource ORDER BY uid").fetchall()
        members = database.execute(
            "SELECT g.uid, u.uid FROM scim_member m JOIN scim_resource g ON g.id = m.from_scimresource_id"
            " JOIN scim_resource u ON u.id = m.to_scimresource_id"
        ).fetchall()
        keys = database.execute("SELECT label, may_follow, created_by_user FROM api_key ORDER BY label").fetchall()
    assert titles == [("Team",), ("Empty",), ("Ann",), ("Ben",)]
    assert members == [("g1", "u1")]
    assert keys == [("changing", False, None), ("full", True, 7), ("reading", False, None)]


def connected(url: str):
    return sqlite3.connect(url.removeprefix("sqlite:///")) if url.startswith("sqlite") else psycopg.connect(url)


def test_versions_of_before_have_no_figures(upgraded):
    posted = upgraded.post("/policy", {"src": "actor User {}", "note": "after the upgrade"})
    assert posted.status_code == 200
    assert upgraded.get("/policy", params={"id": 1}).json()["policy"]["src"] != "actor User {}"


def role(user: str, name: str) -> dict:
    args = [{"type": "User", "id": user}, {"type": "String", "id": name}, {"type": "Doc", "id": "d"}]
    return {"predicate": "has_role", "args": args}


def asked(user: str) -> dict:
    return {"actor_type": "User", "actor_id": user, "action": "read", "resource_type": "Doc", "resource_id": "d"}


def may_read(client: Client, user: str, **moment: int) -> bool:
    answer = client.post("/authorize", asked(user) | moment)
    assert answer.status_code == 200, answer.text
    return answer.json()["allowed"]
