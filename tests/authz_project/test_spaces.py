"""Environments in spaces are answered as any others, and move between spaces without anyone noticing."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from urllib.parse import urljoin

import orjson
import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.core.management.commands import migrate
from django.db import OperationalError, connection, connections, transaction
from django.test import Client
from django.urls import reverse
from prometheus_client import values
from prometheus_client.registry import Collector

from authz_project import keys, metrics, moving, observers, spaces, system_checks
from authz_project.copies import copied
from authz_project.database import SchemaState
from authz_project.environments import made_in
from authz_project.keys import create_key, revoke_key
from authz_project.management.commands import migrate as authz_migrate
from authz_project.models import EnvironmentPlace, Space
from authz_project.server import workers
from authz_project.settings import database_from_url
from facts import history, store
from facts.feed import FeedPage
from facts.management.commands import follow_changes
from facts.table import execute, fetch
from facts.wire import pattern_from_text
from localsql.sync import outbox, watch
from policy import publishing
from policy.core import journal
from policy.core.journal import NOBODY, current_offset
from policy.core.spaces import HOME, _configs, close_others, current, entered
from policy.endpoint import LongPoll, Request
from policy.errors import AuthzError, Moved, NotFound
from policy.models import Environment, PolicyDraft, PolicyVersion, PublishRequest
from tests.conftest import Api, _empty
from tests.faults.worlds import fact

NAMES = ("one", "two")
on_postgresql = pytest.mark.parametrize("db", ["postgresql"], indirect=True)
POLICY = """
actor User {}
resource Doc {{ roles = ["reader", "editor"]; permissions = ["read"]; "read" if "{mode}"; }}
""".replace("{}", "{{}}")


@pytest.fixture
def home(db):
    """Two empty spaces beside the tests' database."""
    spaces.directory.__init__()
    for name in NAMES:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [name])
            is_there = cursor.fetchone() is not None
        if is_there:  # from a test before
            Space.objects.create(name=name, number=NAMES.index(name) + 1, is_ready=True)
        else:
            spaces.create(name)
    yield
    assert current() == HOME
    spaces.directory.__init__()
    for name in NAMES:
        with entered(name):
            _empty(connection)
    close_others()


def api_in(space: str, slug: str, mode: str = "reader") -> Api:
    environment = made_in(space, slug)
    with entered(space):
        found = Api(environment, create_key(environment)[1])
    assert found.post("/policy", {"src": POLICY.format(mode=mode)}).status_code == 200
    return found


def role(user: str, doc: str, name: str = "reader") -> dict:
    return fact("has_role", ("User", user), name, ("Doc", doc))


def insert(api: Api, *facts: dict) -> int:
    answer = api.post("/batch", [{"inserts": list(facts)}])
    assert answer.status_code == 200, answer.content
    return int(answer.headers["OsoOffset"])


def delete(api: Api, *facts: dict) -> None:
    assert api.post("/batch", [{"deletes": list(facts)}]).status_code == 200


def docs(api: Api, user: str, **headers: str) -> list[str]:
    body = {"actor_type": "User", "actor_id": user, "action": "read", "resource_type": "Doc", "page_size": 10_000}
    answer = api.post("/list", body, **headers)
    assert answer.status_code == 200, answer.content
    return sorted(answer.json()["results"])


def rows(environment_id: int) -> dict[str, list[tuple]]:
    """Return all rows of an environment in this thread's space."""
    found = {}
    for table, condition in {**moving.SMALL, **moving.LARGE}.items():
        columns = {*moving._columns(table)} - ({"id"} if table in moving.NUMBERED else set())
        names = ", ".join(sorted(f'"{name}"' for name in columns))
        found[table] = sorted(
            map(repr, fetch(f"SELECT {names} FROM {table} WHERE {condition.format(id=environment_id)}"))
        )
    return found


def where_is(environment_id: int) -> list[str]:
    return [name for name in spaces.everywhere() if Environment.objects.filter(pk=environment_id).exists()]


# ---- answers -----------------------------------------------------------------------------------------------------


@on_postgresql
def test_environments_of_different_spaces_do_not_know_each_other(home):
    apis = [api_in(space, f"e{number}") for number, space in enumerate((HOME, *NAMES, "one"))]
    for number, api in enumerate(apis):
        insert(api, role("ann", f"d{number}"))
    for _ in range(3):  # from caches, too
        for number, api in enumerate(apis):
            assert docs(api, "ann") == [f"d{number}"]
    assert len({api.environment.pk for api in apis}) == len(apis)
    numbers = [number for _ in spaces.everywhere() for (number,) in fetch("SELECT id FROM authz_signature")]
    assert len(numbers) == len(set(numbers)) == len(apis)


@on_postgresql
def test_many_threads_ask_in_many_spaces(home):
    apis = [api_in(space, f"e{number}") for number, space in enumerate((HOME, *NAMES, "one", "two"))]

    def work(number: int) -> None:
        api = apis[number % len(apis)]
        for step in range(6):
            insert(api, role(f"u{number}", f"d{number}_{step}"))
            assert docs(api, f"u{number}") == [f"d{number}_{each}" for each in range(step + 1)]
        for each in (connections["default"], close_others):
            each.close() if hasattr(each, "close") else each()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(2 * len(apis))))


@on_postgresql
def test_a_key_that_opens_nothing_is_refused(home, db):
    api = api_in("one", "acme")
    assert docs(api, "ann") == []
    with entered("one"):
        revoke_key(api.environment.api_keys.get())
    assert api.post("/list", {}).status_code == 401
    for key in ("", "e_", "e_acme_1_2", "e_nowhere_1_2", "e_\0_1_2", f"e_acme_{'x' * 5000}"):
        assert Api(api.environment, key).get("/policy").status_code == 401


@on_postgresql
def test_without_spaces_nothing_more_is_read(db, new_api, monkeypatch):
    """But for a key of the right form that opens nothing."""
    api = new_api()
    looked: list[str] = []
    monkeypatch.setattr(spaces, "place_of", lambda slug: looked.append(slug) or spaces.PlaceFound(HOME))
    for _ in range(3):
        assert api.get("/policy").status_code == 200
        assert Api(api.environment, "no key").get("/policy").status_code == 401
    assert Api(api.environment, "e_no_no_no").get("/policy").status_code == 401
    assert looked == ["no"]


@on_postgresql
def test_a_mistake_is_reported_from_the_space(home):
    """And not as a refused key, which it would be at home."""
    api = api_in("one", "acme")
    assert api.post("/authorize", {"actor_type": 1}).status_code == 400
    assert api.post("/batch", [{"inserts": [fact("nonsense", ("User", "u"))]}]).status_code == 400
    assert api.post("/policy", {"src": "actor"}).status_code == 400


@on_postgresql
def test_a_change_of_another_process_is_noticed_in_a_space(home):
    api = api_in("one", "acme")
    at = insert(api, role("ann", "a"))
    answers: list[dict] = []

    def follow() -> None:
        answers.append(api.get(f"/changes?after={at}&wait=20").json())
        connections["default"].close()
        close_others()

    waiting = threading.Thread(target=follow)
    waiting.start()
    time.sleep(0.3)
    with entered("one"), connection.cursor() as cursor:  # not by this process's own journal
        cursor.execute('UPDATE authz_environment SET "offset" = "offset" + 1 WHERE id = %s', [api.environment.pk])
        cursor.execute(
            f"INSERT INTO authz_revision ({journal.COLUMNS}) VALUES (%s, %s, 0, '', '', NULL, 'facts', 0, 0)",
            [api.environment.pk, at + 1],
        )
    waiting.join(25)
    assert [each["revision"] for each in answers[0]["changes"]] == [at + 1]


@on_postgresql
def test_only_spaces_on_the_pooler_s_server_have_an_entry_there(home, monkeypatch, settings):
    monkeypatch.setitem(connection.settings_dict, "PARAMETERS", {"jit": "off"})
    settings.DATABASE_URLS = {"eu": database_from_url("postgres://db.example.org/other", "DATABASE_URLS")}
    spaces.learn(Space(name="near"))
    spaces.learn(Space(name="far", server="eu"))
    near, far = _configs.pop("near"), _configs.pop("far")
    assert near["NAME"] == f"{connection.settings_dict['NAME']}_near" and near["PARAMETERS"]
    assert near["OPTIONS"] == connection.settings_dict["OPTIONS"]
    assert (far["NAME"], far["HOST"], far["PARAMETERS"]) == ("other", "db.example.org", None)
    assert far["OPTIONS"]["options"].endswith("-c search_path=far")


@on_postgresql
def test_migrate_names_a_space_that_cannot_be_used(home):
    Space.objects.create(name="lost", number=100, server="nowhere", is_ready=True)
    with pytest.raises(CommandError, match="space `lost` is on a server that DATABASE_URLS does not name"):
        call_command("migrate", verbosity=0)


@on_postgresql
def test_a_table_that_a_later_version_adds_is_as_the_others_of_the_space(home, monkeypatch):
    """It gives ids of the space's block, and does not refer to users."""
    api = api_in("one", "acme")
    made = "CREATE TABLE authz_new (id bigint GENERATED BY DEFAULT AS IDENTITY, user_id int REFERENCES auth_user)"

    def upgrade(self, *args, **options) -> None:
        if current() == "one":
            execute(made)

    monkeypatch.setattr(migrate.Command, "handle", upgrade)
    monkeypatch.setattr(authz_migrate, "state_of_database", lambda: SchemaState((), (("authz_project", "0001"),)))
    call_command("migrate", verbosity=0)
    with entered("one"), transaction.atomic():
        ((number,),) = fetch("INSERT INTO authz_new (user_id) VALUES (-1) RETURNING id")
        assert spaces.FIRST <= number < spaces.FIRST + spaces.BLOCK
        spaces.prepare("one")
        assert fetch("INSERT INTO authz_new (user_id) VALUES (-1) RETURNING id") == [(number + 1,)]
        assert create_key(api.environment)[0].pk > api.environment.api_keys.earliest("pk").pk
        execute("DROP TABLE authz_new")


# ---- moves -------------------------------------------------------------------------------------------------------


def filled(space: str) -> Api:
    api = api_in(space, "acme")
    insert(api, role("ann", "a"), role("ann", "b"), role("ben", "b"))
    insert(api, {**role("ann", "late"), "expires_at": "2099-01-01T00:00:00Z"})
    delete(api, role("ann", "b"))
    assert api.post("/batch", [{"inserts": [role("cat", "c")]}], **{"Idempotency-Key": "k"}).status_code == 200
    return api


@on_postgresql
def test_a_moved_environment_is_what_it_was(home):
    api = filled("one")
    before = docs(api, "ann")
    with entered("one"):
        expected = rows(api.environment.pk)
    feed = api.get("/changes?after=0").content
    for target in ("two", HOME, "one"):
        done = moving.move("acme", target)
        assert done.facts == 4 and where_is(api.environment.pk) == [target]
        with entered(target):
            found = rows(api.environment.pk)
        for table in expected:
            if table != "api_key":  # the day of its last use may be noted at any time
                assert found[table] == expected[table], table
        assert docs(api, "ann") == before
        assert docs(api, "ann", OsoOffset="3") == before
        assert api.get("/changes?after=0").content == feed
        assert docs_as_of(api, "ann", 2) == ["a", "b"]
        expected = found
        at = insert(api, role("new", target or "home"))  # and goes on from there
        delete(api, role("new", target or "home"))
        with entered(target):
            expected = rows(api.environment.pk)
        feed = api.get("/changes?after=0").content
        assert at > 4
    assert EnvironmentPlace.objects.get().space == "one"


def docs_as_of(api: Api, user: str, revision: int) -> list[str]:
    body = {"actor_type": "User", "actor_id": user, "action": "read", "resource_type": "Doc", "page_size": 10_000}
    return sorted(api.post("/list", {**body, "as_of": revision}).json()["results"])


def test_every_table_of_an_environment_is_moved():
    """A table whose rows belong to environments is in one of the lists."""
    listed = {"authz_environment", *moving.SMALL, *moving.LARGE}
    of_environments = {Environment}
    while True:
        more = {
            model
            for model in apps.get_models(include_auto_created=True)
            if any(field.is_relation and field.many_to_one and field.related_model in of_environments
                   for field in model._meta.get_fields())
        }  # fmt: skip
        if more <= of_environments:
            break
        of_environments |= more
    assert {model._meta.db_table for model in of_environments} <= listed


@on_postgresql
def test_facts_that_were_forgotten_meanwhile_are_not_moved(home, monkeypatch):
    """They leave no past fact."""
    api = filled("one")
    copy_all = moving._Mover._copy_all

    def copied(self) -> None:
        copy_all(self)
        with entered("one"):
            fetch("DELETE FROM authz_fact WHERE a0 = 'ann' AND a2 = 'a' RETURNING 1")
            fetch("DELETE FROM authz_past_fact RETURNING 1")

    monkeypatch.setattr(moving._Mover, "_copy_all", copied)
    moving.move("acme", "two")
    assert docs(api, "ann") == ["late"]
    assert docs_as_of(api, "ann", 2) == ["late"] or docs_as_of(api, "ann", 2) == []


@pytest.mark.parametrize("source", ["one", HOME])
@on_postgresql
def test_an_environment_that_is_deleted_during_its_move_is_gone(home, admin_user_of_home, monkeypatch, source):
    """And other moves that were interrupted are ended."""
    api = filled(source)
    made_in(HOME, "other")
    EnvironmentPlace.objects.create(slug="other", space=HOME, target="one")
    catch_up = moving._Mover._catch_up

    def deleted(self) -> None:
        with entered(source):
            store.remove(self.id)
            Environment.objects.get(pk=self.id).delete()
        catch_up(self)

    monkeypatch.setattr(moving, "IN_FLIGHT", 0)
    monkeypatch.setattr(moving._Mover, "_catch_up", deleted)
    with pytest.raises(NotFound, match="Environment `acme` was deleted meanwhile"):
        moving.move("acme", "two")
    moving.finish_moves()
    assert where_is(api.environment.pk) == [] and not EnvironmentPlace.objects.exists()
    with entered("two"):
        assert fetch("SELECT COUNT(*) FROM authz_fact") == [(0,)]


@on_postgresql
def test_what_a_mover_is_deleting_is_left_to_it(home, monkeypatch):
    """And a space that cannot be used keeps nothing from being deleted in others."""
    filled("two")
    Space.objects.create(name="lost", number=100, server="nowhere", is_ready=True)
    remove, removed = moving.remove, []

    def removing(environment_id: int) -> None:
        if current() == "two" and not removed:
            removed.append(environment_id)
            moving.finish_moves()
            assert Environment.objects.filter(pk=environment_id).exists()
            raise OperationalError("the process died")
        remove(environment_id)

    monkeypatch.setattr(moving, "remove", removing)
    with pytest.raises(OperationalError):
        moving.move("acme", "one")
    moving.finish_moves()
    Space.objects.get(name="lost").delete()
    assert where_is(*removed) == ["one"]


@pytest.mark.parametrize("source", ["one", HOME])
@on_postgresql
def test_a_move_that_dies_anywhere_is_ended(home, monkeypatch, source):
    """Each statement of the mover fails in turn, as if the process had died; then all is at one place, and open."""
    api = filled(source)
    target = "two"
    run, copy = moving.execute, moving._Mover._copy
    calls, failing = [], 0

    def counted(do):
        def called(*arguments, **options):
            calls.append(do)
            if len(calls) == failing:
                raise OperationalError("the process died")
            return do(*arguments, **options)

        return called

    monkeypatch.setattr(moving, "execute", counted(run))
    monkeypatch.setattr(moving._Mover, "_copy", counted(copy))
    monkeypatch.setattr(moving, "IN_FLIGHT", 0)
    monkeypatch.setattr(spaces, "SETTLED", 0.05)
    ends = set()
    for failing in range(1 if source else 2, 200, 2):
        calls.clear()
        with entered(source):
            expected = rows(api.environment.pk)
        try:
            moving.move("acme", target)
        except OperationalError:
            assert api.get("/policy").status_code in (200, 503)
            assert copied() is None
        else:
            break
        failing = 0
        moving.finish_moves()
        (place,) = where_is(api.environment.pk)
        ends.add(place)
        with entered(place):
            found = rows(api.environment.pk)
        assert all(found[table] == expected[table] for table in expected if table != "api_key")
        assert docs(api, "ann") == ["a", "late"]
        insert(api, role("new", "n"))
        if place != source:
            calls.clear()
            moving.move("acme", source)
    else:
        pytest.fail("it ends")
    assert ends == {source, target}


@on_postgresql
def test_a_place_that_closes_before_it_answers_is_left_too(home, monkeypatch):
    """The directory names a place, and a move closes it before the request gets there."""
    answers, places = iter([401, 401, 401, 200]), iter(["one", "two", "one"])
    monkeypatch.setattr(spaces.directory, "look_up", lambda token: next(places))
    asked = []

    def answer() -> int:
        asked.append(current())
        return next(answers)

    assert spaces.in_place("e_acme_1_2", answer, lambda status: status == 401) == 200
    assert asked == [HOME, "one", "two", "one"]
    for refused in (HOME, "one"):  # where it has been refused already
        monkeypatch.setattr(spaces.directory, "look_up", lambda token, space=refused: space)
        assert spaces.in_place("e_acme_1_2", lambda: 401, lambda status: status == 401) == 401


def after(first, do):
    """Return a method that does something else before."""

    def method(self):
        first()
        do(self)

    return method


@on_postgresql
def test_who_has_no_key_does_not_wait_for_a_move(home, monkeypatch):
    """While an environment is copied, and while its old place is closed; who has one waits for as long as it takes."""
    api = filled("one")
    monkeypatch.setattr(spaces, "SETTLED", 0.2)
    statuses: list[tuple[int, int]] = []

    def ask() -> None:
        started = time.monotonic()
        stranger = Api(None, f"{api.key.rpartition('_')[0]}_other").get("/policy").status_code
        assert time.monotonic() - started < 0.2
        statuses.append((stranger, api.get("/policy").status_code))

    for name in ("_catch_up", "_copy_rest"):
        monkeypatch.setattr(moving._Mover, name, after(ask, getattr(moving._Mover, name)))
    moving.move("acme", "two")
    assert statuses == [(401, 200), (401, 503)]
    assert api.get("/policy").status_code == 200


@on_postgresql
def test_only_the_first_requests_wait_for_a_move_that_does_not_end(home, monkeypatch):
    """The threads that they occupy are those of other environments, too."""
    api = filled("one")
    monkeypatch.setattr(spaces, "SETTLED", 0.3)
    waited: list[float] = []

    def ask() -> None:
        for _ in range(3):
            started = time.monotonic()
            assert api.get("/policy").status_code == 503
            waited.append(time.monotonic() - started)

    monkeypatch.setattr(moving._Mover, "_copy_rest", after(ask, moving._Mover._copy_rest))
    moving.move("acme", "two")
    assert waited[0] > 0.3 > max(waited[1:])
    assert api.get("/policy").status_code == 200
    assert not spaces.directory.in_vain


@on_postgresql
def test_a_key_that_is_revoked_during_a_move_stays_revoked(home, monkeypatch):
    """The move waits for what has begun to change keys. Later, the old place refuses it."""
    api = filled("one")
    with entered("one"):
        key, other = api.environment.api_keys.get(), create_key(api.environment)[0]
    began, stay, close = threading.Event(), journal.stay, moving._Mover._close

    def stays(environment_id: int) -> None:
        stay(environment_id)
        began.set()
        time.sleep(0.5)

    def revoke() -> None:
        with entered("one"):
            revoke_key(key)
        close_others()
        connections["default"].close()

    def closing(self) -> None:
        revoking.start()
        assert began.wait(20)
        close(self)
        with entered("one"), pytest.raises(Moved):
            revoke_key(other)

    revoking = threading.Thread(target=revoke)
    monkeypatch.setattr(keys, "stay", stays)
    monkeypatch.setattr(moving._Mover, "_close", closing)
    moving.move("acme", "two")
    revoking.join()
    assert api.get("/policy").status_code == 401
    with entered("two"):
        assert [each.revoked_at is not None for each in api.environment.api_keys.order_by("pk")] == [True, False]


@on_postgresql
def test_drafts_rejections_and_erasures_are_in_the_new_place_or_refused(home, admin_user_of_home, monkeypatch):
    """The move waits for those that have begun. Later, the old place refuses them."""
    api, root = filled("one"), admin_user_of_home
    began, stay, close = threading.Event(), journal.stay, moving._Mover._close
    with entered("one"):
        version = PolicyVersion.objects.get()
        asked = PublishRequest.objects.create(version=version, replaces=0, force=False, author="key 1")

    def stays(environment_id: int) -> None:
        stay(environment_id)
        began.set()
        time.sleep(0.5)

    def keep(text: str, stamp: int | None = None) -> PolicyDraft | None:
        return publishing.keep(root, api.environment, publishing.DraftText(text, "", 1), stamp)

    def keep_first() -> None:
        with entered("one"):
            keep("first")
        close_others()
        connections["default"].close()

    def closing(self) -> None:
        keeping.start()
        assert began.wait(20)
        close(self)
        with entered("one"):
            stamp = PolicyDraft.objects.get().stamp
            for act in (
                lambda: keep("second", stamp),
                lambda: publishing.discard(root, api.environment, stamp),
                lambda: publishing.reject(asked, NOBODY, "no"),
                lambda: history.forget(api.environment.pk, pattern_from_text("has_role(_, _, _)")),
            ):
                with pytest.raises(Moved):
                    act()
            publishing.discard_published(root, api.environment, "first", stamp)

    keeping = threading.Thread(target=keep_first)
    monkeypatch.setattr(publishing, "stay", stays)
    monkeypatch.setattr(moving._Mover, "_close", closing)
    moving.move("acme", "two")
    keeping.join()
    with entered("two"):
        assert PolicyDraft.objects.get().source == "first" and PublishRequest.objects.get().outcome == ""
        assert keep("second", PolicyDraft.objects.get().stamp)
    with entered("one"), pytest.raises(NotFound):
        keep("third")


@on_postgresql
def test_writers_who_knew_the_old_place_go_on_at_the_new_one(home):
    """Whatever they sent: a body is decoded again."""
    api = filled("one")
    insert(api, role("dan", "d"))
    moving.move("acme", "two")
    delete(api, role("dan", "d"))
    assert docs(api, "dan") == []
    moving.move("acme", "one")
    insert(api, role("dan", "d"))
    moving.move("acme", "two")
    assert api.post("/policy", {"src": POLICY.format(mode="editor")}).status_code == 200
    assert docs(api, "dan") == []


@on_postgresql
def test_what_users_left_in_a_space_moves_home_without_them(home, admin_user_of_home, django_user_model):
    api = api_in("one", "acme")
    ann, root = django_user_model.objects.create_user("ann"), admin_user_of_home
    with entered("one"):
        version = PolicyVersion.objects.get()
        for user in (ann, root):
            PolicyDraft.objects.create(user_id=user.pk, environment=api.environment, source="", stamp=1)
            PublishRequest.objects.create(version=version, replaces=0, force=False, user_id=user.pk, author=str(user))
    ann.delete()
    moving.move("acme", HOME)
    assert [each.user_id for each in PolicyDraft.objects.all()] == [root.pk]
    assert {(each.author, each.user_id) for each in PublishRequest.objects.all()} == {("ann", None), ("root", root.pk)}


@on_postgresql
def test_a_batch_that_was_applied_before_a_move_is_not_applied_again(home, monkeypatch):
    """Whichever way it moved: the ids of a space are larger than those of the home database."""
    monkeypatch.setattr(outbox, "_FORGOTTEN_EVERY", 1)
    monkeypatch.setattr(store, "KEYS_KEPT", 2)
    api = api_in(HOME, "acme")

    def found_after(key: str) -> list[str]:
        delete(api, role("ann", "a"))
        step = {"inserts": [role("ann", "a")]}
        assert api.post("/batch", [step], **{"Idempotency-Key": key}).status_code == 200
        return docs(api, "ann")

    assert found_after("one") == ["a"]
    for space, before, key in (("one", "one", "two"), (HOME, "two", "three"), ("two", "three", "four")):
        moving.move("acme", space)
        assert found_after(key) == ["a"] and found_after(before) == []
    assert found_after("two") == ["a"]  # it has been forgotten


@on_postgresql
def test_a_space_that_cannot_be_used_holds_up_no_other(home, caplog, new_api):
    """Its server is not known here, or does not answer."""
    new_api()
    api = api_in("two", "acme")
    Space.objects.create(name="lost", number=100, server="nowhere", is_ready=True)
    EnvironmentPlace.objects.create(slug="far", space="lost")
    done = []
    spaces.in_each(lambda: done.append(current()))
    assert done == [HOME, "one", "two"]
    assert "space lost: space `lost` is on a server that DATABASE_URLS does not name" in caplog.text
    assert Api(None, "e_far_1_2").get("/policy").status_code == 503
    assert docs(api, "ann") == []
    assert [each.trouble != "" for each in spaces.seen()] == [False, True, False, False]


@on_postgresql
def test_checks_look_at_each_space(home, monkeypatch):
    assert [*system_checks.space_findings()] == []
    Space.objects.create(name="lost", number=100, server="nowhere", is_ready=True)
    monkeypatch.setattr(system_checks, "is_citus", lambda: True)
    monkeypatch.setattr(system_checks, "is_distributed", lambda: current() == "two")
    given = "FROM pg_sequences WHERE schemaname = current_schema() AND sequencename = 'api_key_id_seq'"
    with entered("one"), transaction.atomic():
        fetch("DELETE FROM django_migrations WHERE name = '0007_spaces' RETURNING 1")
        fetch(f"SELECT setval('api_key_id_seq', max_value - 1) {given}")
        found = [(each.id, each.msg) for each in system_checks.space_findings()]
        fetch(f"SELECT setval('api_key_id_seq', min_value, false) {given}")
        transaction.set_rollback(True)
    assert [of for of, _ in found] == ["authz.E014", "authz.E015", "authz.W016", "authz.W017"]
    assert "lost" in found[0][1] and "Space one: 1 migration not applied" in found[1][1]


@on_postgresql
def test_changes_are_made_again_after_a_connection_to_a_space_was_lost(home):
    """By threads that make changes for others, and not only in the home database."""
    api = filled("one")
    changes = workers.ChangeThreads(1)

    def in_space(work: Callable[[], object]) -> object:
        made: Future[object] = Future()

        def make(failed: Exception | None) -> None:
            try:
                made.set_exception(failed) if failed else made.set_result(work())
            except Exception as error:
                made.set_exception(error)

        def begin() -> None:
            with entered("one"):
                journal.thread.run(make)

        changes.do(begin)
        return made.exception(20) or made.result()

    offset = partial(current_offset, api.environment.pk)
    known = in_space(offset)
    lost = in_space(lambda: fetch("SELECT pg_backend_pid()")[0][0])
    fetch("SELECT pg_terminate_backend(%s)", [lost])
    assert isinstance(in_space(offset), OperationalError)
    assert in_space(offset) == known


@on_postgresql
def test_followers_wait_again_after_a_connection_to_a_space_was_lost(home):
    api = filled("one")
    with entered("one"):
        known = current_offset(api.environment.pk)
    requests = workers.LongPolls(9, lambda *_: None)
    poll = LongPoll(lambda *_: True)
    with entered("one"):
        digest = workers._keys_of(api.environment.pk, "one")
        poll.wait(Request("GET", {}, bytes, "", 0), api.environment.pk, known, 60, keys=digest)
    waiting = workers._WaitingPoll({}, None, poll)
    requests._waiting = [waiting]
    assert requests._due() == []
    with entered("one"), connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (lost,) = cursor.fetchone()
    fetch("SELECT pg_terminate_backend(%s)", [lost])
    due = requests._due()
    assert due == [waiting]  # its request says what is wrong, if it is still
    until = time.monotonic() + 10
    while due and time.monotonic() < until:  # the space is looked at again after a moment
        time.sleep(0.05)
        requests._waiting = [waiting]
        due = requests._due()
    assert due == []


# ---- commands and pages --------------------------------------------------------------------------------------------


def said(capsys, *words: str) -> str:
    capsys.readouterr()
    call_command(*words)
    return capsys.readouterr().out


@on_postgresql
@pytest.mark.parametrize("what", ["apply", "outbox"])
def test_commands_that_run_for_long_go_on_in_the_new_space(home, tmp_path, monkeypatch, what):
    api = api_in("one", "acme")
    app = sqlite3.connect(tmp_path / "app.sqlite3", isolation_level=None)
    app.execute("CREATE TABLE authz_outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, changes TEXT NOT NULL)")
    app.execute("CREATE TABLE readers (person TEXT, role TEXT, doc TEXT)")
    synced = {"has_role(User:_, String:_, Doc:_)": {"query": "SELECT person, role, doc FROM readers"}}
    config = {"facts": synced, "dbs": {"app": {"connection_string": f"sqlite:///{tmp_path}/app.sqlite3"}}}
    (tmp_path / "config.yaml").write_bytes(orjson.dumps(config | {"outbox": {}}))

    def share(doc: str) -> None:
        app.execute("INSERT INTO readers VALUES ('ann', 'reader', ?)", [doc])
        app.execute("INSERT INTO authz_outbox (changes) VALUES (?)", [orjson.dumps([{"inserts": [role("ann", doc)]}])])

    def again(once: Callable[[], bool], *_: object) -> None:
        share("a")
        assert not once() and docs(api, "ann") == ["a"]
        with entered(HOME):
            moving.move("acme", "two")
        share("b")
        assert not once() and docs(api, "ann") == ["a", "b"]

    monkeypatch.setattr(watch, "again_and_again", again)
    call_command("sync_facts", str(tmp_path / "config.yaml"), watch=1, environment="acme", **{what: True})


@on_postgresql
def test_follow_changes_goes_on_in_the_new_space(home, admin_user_of_home, monkeypatch, capsys):
    """Also if a move ends just before it reads. It ends once the environment is deleted."""
    api = filled("one")

    def remove() -> None:
        store.remove(api.environment.pk)
        Environment.objects.get(pk=api.environment.pk).delete()

    steps = iter([
        lambda: insert(api, role("dan", "1")), lambda: moving.move("acme", "two"),
        lambda: insert(api, role("dan", "2")), lambda: moving.move("acme", HOME),
        lambda: insert(api, role("dan", "3")), remove,
    ])  # fmt: skip
    found = follow_changes.found

    def read(*asked: object) -> FeedPage:
        with entered(HOME):
            next(steps)()
        return found(*asked)

    monkeypatch.setattr(follow_changes, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(follow_changes, "found", read)
    with pytest.raises(CommandError, match="the environment no longer exists"):
        call_command("follow_changes", environment="acme", after="0")
    changes = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    inserted = [each["args"][2]["id"] for change in changes for each in change["inserted"]]
    assert [each["revision"] for each in changes] == list(range(1, len(changes) + 1))
    assert inserted[-3:] == ["1", "2", "3"]


@on_postgresql
def test_commands_work_in_the_environment_s_space(home, capsys, tmp_path):
    call_command("spaces", "add", "acme", "one")
    key = said(capsys, "api_keys", "create", "billing", "--environment", "acme").split()[-1]
    file = tmp_path / "facts.jsonl"
    file.write_bytes(orjson.dumps(role("ann", "a")))
    policy = tmp_path / "main.polar"
    policy.write_text(POLICY.format(mode="reader"))
    call_command("load_policy", str(policy), environment="acme")
    call_command("load_facts", str(file), environment="acme")
    assert current() == HOME
    assert orjson.loads(said(capsys, "dump_facts", "--environment", "acme")) == role("ann", "a")
    assert docs(Api(None, key), "ann") == ["a"]
    listed = said(capsys, "spaces", "list")
    assert [line.split()[0] for line in listed.splitlines()] == ["home", *NAMES]
    assert "one  " in listed and "1 environment, " in listed.splitlines()[1]
    assert "e_acme_" in said(capsys, "api_keys", "list")
    call_command("spaces", "move", "acme", "two")
    assert "version 1 of `acme`" in said(capsys, "version")
    assert "policy of `acme` (two)" in said(capsys, "verify")
    said(capsys, "api_keys", "create", "billing")
    with pytest.raises(CommandError, match=r"2 keys have this label. Use one of: e_default_.*, e_acme_"):
        said(capsys, "api_keys", "revoke", "billing")
    said(capsys, "api_keys", "revoke", key)
    assert Api(None, key).get("/policy").status_code == 401
    assert current() == HOME


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("create", "One"), "not a name for a space"),
        (("create", "pg_one"), "not a name for a space"),
        (("create", "one"), "Space `one` already exists"),
        (("create", "three", "--on", "mars"), "Server `mars` does not exist. DATABASE_URLS names none."),
        (("add", "default", "one"), "already exists"),
        (("add", "x-y", "one"), "not a valid name"),
        (("add", "e" * 41, "one"), "not a valid name"),
        (("add", "acme", "nowhere"), "Space `nowhere` does not exist. Create it with `spaces create nowhere`"),
        (("move", "default", "one"), "stays in the home database"),
        (("move", "nobody", "one"), "Environment `nobody` does not exist"),
        (("move", "here", "one"), "is in space one already"),
        (("move", "here", "nowhere"), "Space `nowhere` does not exist"),
        (("drop", "one"), "Space `one` has environments, such as `here`. Move or delete them first."),
        (("spread",), "Only Citus moves spaces by itself"),
    ],
)
@on_postgresql
def test_what_cannot_be_done_says_why(home, new_api, words, message):
    new_api()
    api_in("one", "here")
    before = list(EnvironmentPlace.objects.values())
    with pytest.raises(CommandError, match=message):
        call_command("spaces", *words)
    assert list(EnvironmentPlace.objects.values()) == before
    assert where_is(Environment.objects.get().pk) == [HOME]
    assert docs(api_in("two", "other"), "ann") == []


@on_postgresql
def test_a_space_is_not_dropped_while_an_environment_is_moved_there(home, monkeypatch):
    """Its rows are copied in a transaction, of which nobody else sees anything."""
    api = filled("one")
    monkeypatch.setattr(moving._Mover, "_copy_all", after(refused_to_drop, moving._Mover._copy_all))
    moving.move("acme", "two")
    assert where_is(api.environment.pk) == ["two"]


@on_postgresql
@pytest.mark.parametrize("is_move_first", [False, True])
def test_a_space_is_not_dropped_as_a_move_there_begins(home, monkeypatch, is_move_first):
    """Whichever is first, the other one is refused, and no move is left that nobody can end."""
    filled("one")
    spaces.create("three")
    looked, begun, refused = threading.Event(), threading.Event(), []

    def drop() -> None:
        try:
            spaces.drop("three")
        except spaces.NotASpace as reason:
            refused.append(str(reason))
        finally:
            connections.close_all()

    def found_while_another_drops(name: str) -> None:
        usual(name)
        dropping.start()
        if is_move_first:
            looked.wait(20)
        else:
            dropping.join()

    def ids_given() -> int:
        """It has found no move, and no environment."""
        looked.set()
        if is_move_first:
            begun.wait(20)
        return given()

    def begin(*move: str) -> str:
        source = beginning(*move)
        begun.set()
        dropping.join()
        return source

    dropping = threading.Thread(target=drop)
    usual, given, beginning = moving.space_named, spaces._ids_given, moving._beginning
    monkeypatch.setattr(moving, "space_named", found_while_another_drops)
    monkeypatch.setattr(spaces, "_ids_given", ids_given)
    monkeypatch.setattr(moving, "_beginning", begin)
    if is_move_first:
        moving.move("acme", "three")
        assert "Environment `acme` is being moved to space `three`" in refused[0]
    else:
        with pytest.raises(NotFound, match="Space `three` does not exist"):
            moving.move("acme", "three")
        assert not refused
    monkeypatch.undo()
    assert not EnvironmentPlace.objects.filter(target__isnull=False).exists()
    moving.move("acme", HOME)


def refused_to_drop() -> None:
    with pytest.raises(AuthzError, match="Environment `acme` is being moved to space `two`"):
        spaces.drop("two")


@on_postgresql
def test_an_environment_can_be_added_at_home(home, capsys):
    call_command("spaces", "add", "acme", "home")
    assert where_is(Environment.objects.get(slug="acme").pk) == [HOME]
    assert not EnvironmentPlace.objects.exists()


@on_postgresql
def test_an_environment_has_one_place(home):
    api_in("one", "acme")
    with pytest.raises(AuthzError, match="already exists"):
        made_in("two", "acme")
    call_command("api_keys", "create", environment="acme", create_environment=True)
    assert [Environment.objects.filter(slug="acme").count() for _ in spaces.everywhere()] == [0, 1, 0]


@on_postgresql
def test_pages_show_the_environment_s_space(home, admin_user_of_home):
    insert(api_in("one", "acme"), role("ann", "a"))
    client = Client()
    client.force_login(admin_user_of_home)
    assert "acme" in client.get("/admin/spaces/").content.decode()
    page = client.get("/admin/?environment=acme").content.decode()
    assert "has_role(User, String, Doc)" in page
    assert "has_role" in client.get("/admin/go/facts/", follow=True).content.decode()  # it is remembered
    assert "has_role(User, String, Doc)" not in client.get("/admin/?environment=default").content.decode()
    assert current() == HOME


@on_postgresql
def test_an_environment_of_a_page_has_a_name_of_its_own_in_all_spaces(home, admin_user_of_home):
    others = {"acme": api_in("one", "acme"), "globex": api_in("two", "globex"), "initech": api_in(HOME, "initech")}
    client = Client()
    client.force_login(admin_user_of_home)
    add = reverse("admin:authz_policy_environment_add")
    for page, names in (("acme", ("globex", "initech", "default")), ("default", ("acme", "globex"))):
        client.get(f"/admin/?environment={page}")
        for name in names:
            answer = client.post(add, {"slug": name, "name": "x"})
            assert "exists in another space" in answer.content.decode(), (page, name)
    client.get("/admin/?environment=acme")
    assert client.post(add, {"slug": "fresh", "name": "x"}).status_code == 302
    spaces.directory.__init__()
    for name, api in others.items():
        Client().get("/api/", headers={"Authorization": f"Bearer e_{name}_x_y"})  # looks for the place
        assert docs(api, "ann") == []


@on_postgresql
def test_a_policy_is_published_in_the_space_of_its_page(home, admin_user_of_home):
    """Another tab may show another environment, whose space the session remembers."""
    for space, slug in (("one", "acme"), (HOME, "other")):
        api_in(space, slug)
    with entered("one"):
        version = PolicyVersion.objects.get()
    client = Client()
    client.force_login(admin_user_of_home)
    client.get("/admin/?environment=acme")
    add = f"{reverse('admin:authz_policy_policyversion_add')}?from={version.pk}"
    page = client.get(add)
    client.get("/admin/?environment=other")
    sent = {"source": f"{version.source}# new\n", "seen": 1, "person": admin_user_of_home.pk}
    for address in (add, add, urljoin(add, action_of(page))):
        page = client.post(address, sent | {"environment": environment_of(page)})
    assert page.status_code == 302
    assert [Environment.objects.filter(policy_version__number=2).count() for _ in spaces.everywhere()] == [0, 1, 0]


@on_postgresql
def test_a_fact_is_stored_in_the_space_of_its_page(home, admin_user_of_home):
    for space, slug in (("one", "acme"), (HOME, "other")):
        api_in(space, slug)
    client = Client()
    client.force_login(admin_user_of_home)
    client.get("/admin/?environment=acme")
    with entered("one"):
        number = Environment.objects.get().pk
    add = f"{reverse('admin:authz_facts_signature_add')}?environment={number}"
    page = client.get(add)
    client.get("/admin/?environment=other")
    for text in ("no fact", 'has_role(User:ann, "reader", Doc:a)'):
        page = client.post(urljoin(add, action_of(page)), {"environment": number, "fact": text})
    assert page.status_code == 302
    assert [len(fetch("SELECT 1 FROM authz_fact")) for _ in spaces.everywhere()] == [0, 1, 0]


def action_of(page) -> str:
    return re.findall(r'<form method="post" action="(\?[^"]*)"', page.content.decode())[0]


def environment_of(page) -> str:
    return re.findall(r'name="environment" value="(\d+)"', page.content.decode())[-1]


@on_postgresql
def test_policies_are_edited_requested_and_approved_in_a_space(home, admin_user_of_home, django_user_model):
    """Drafts and requests are in the space, their authors at home."""
    api = api_in("one", "acme")
    root, add = admin_user_of_home, reverse("admin:authz_policy_policyversion_add")
    sent = {"environment": api.environment.pk, "filename": "", "stamp": "", "person": root.pk, "window": "w"}
    client = Client()
    client.force_login(root)
    client.get("/admin/?environment=acme")
    text = POLICY.format(mode="editor")
    assert client.post(f"{add}draft/", sent | {"source": text, "seen": 1}).json()["stamp"]
    with entered("one"):
        assert PolicyDraft.objects.get().user_id == root.pk
    assert client.post(add, sent | {"source": text, "seen": 1}).status_code == 302
    with entered("one"):
        assert not PolicyDraft.objects.exists()
        Environment.objects.filter(slug="acme").update(needs_approval=True)
    assert client.post(add, sent | {"source": f"{text}# again\n", "seen": 2}).status_code == 302
    with entered("one"):
        asked = PublishRequest.objects.get()
    page = reverse("admin:authz_policy_policyversion_activate", args=[asked.version_id])
    approval = {"request": asked.pk, "approve": "1"}
    assert "you made this request" in client.post(page, approval).content.decode()
    other = Client()
    other.force_login(django_user_model.objects.create_superuser("other", "other@example.org", "secret"))
    other.get("/admin/?environment=acme")
    root.delete()
    assert other.get(page).status_code == 200
    assert other.post(page, approval).status_code == 302
    with entered("one"):
        assert PublishRequest.objects.get().outcome == "approved"
        assert Environment.objects.get(slug="acme").policy_version_id == asked.version_id


@pytest.fixture
def admin_user_of_home(db, new_api, django_user_model):
    new_api()
    return django_user_model.objects.create_superuser("root", "root@example.org", "secret")


@on_postgresql
def test_pages_of_a_space_come_back_after_its_connection_was_lost(home, admin_user_of_home):
    insert(api_in("one", "acme"), role("ann", "a"))
    client = Client()
    client.force_login(admin_user_of_home)
    with entered("one"):
        ((lost,),) = fetch("SELECT pg_backend_pid()")
    fetch("SELECT pg_terminate_backend(%s)", [lost])
    pages = [client.get("/admin/?environment=acme").content.decode() for _ in range(2)]
    assert "has_role(User, String, Doc)" in pages[1]


@on_postgresql
def test_test_environments_have_the_space_that_is_for_them(home, settings):
    settings.DEV_SERVER = True
    spaces.create("test")
    token = Client(HTTP_HOST="localhost").post("/test_environment").json()["token"]
    assert EnvironmentPlace.objects.get().space == "test"
    assert Api(None, token).get("/policy", Host="localhost").status_code == 200
    call_command("spaces", "drop", "test")
    assert not EnvironmentPlace.objects.exists() and not Space.objects.filter(pk="test", is_ready=True).exists()
    assert Api(None, token).get("/policy", Host="localhost").status_code == 401


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_on_sqlite_there_is_one_space(db, admin_user_of_home):
    for words in (("list",), ("create", "one"), ("move", "default", "one")):
        with pytest.raises(CommandError, match="Spaces need PostgreSQL"):
            call_command("spaces", *words)
    client = Client()
    client.force_login(admin_user_of_home)
    assert "Spaces need PostgreSQL" in client.get("/admin/spaces/").content.decode()
    assert client.get("/admin/?environment=default").status_code == 200


# ---- metrics -------------------------------------------------------------------------------------------------------


def samples(collector: Collector) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("space", "")): sample.value
        for family in collector.collect()
        for sample in family.samples
    }


@on_postgresql
def test_metrics_tell_spaces_apart(home):
    looking = metrics.SpaceMetrics()
    assert samples(looking) == {}
    api = api_in("one", "acme")
    insert(api, *(role("ann", f"d{number}") for number in range(5)))
    for name in NAMES:
        with entered(name), connection.cursor() as cursor:
            cursor.execute("ANALYZE authz_fact")
    Space.objects.create(name="lost", number=100, server="nowhere", is_ready=True)
    EnvironmentPlace.objects.filter(slug="acme").update(target="two")
    looking.look()
    found = samples(looking)
    assert found["authz_space_facts", "one"] == 5 and found["authz_space_facts", "two"] == 0
    assert found["authz_space_environments", "one"] == 1 and found["authz_space_environments", "home"] == 0
    assert 100_000 < found["authz_space_size_bytes", "two"] < 10_000_000
    assert found["authz_moves_in_progress", ""] == 1
    assert {space for _, space in found} == {"", "home", *NAMES}
    for name in ("lost", *NAMES):
        Space.objects.filter(pk=name).delete()
    looking.look()
    assert samples(looking) == {}


@on_postgresql
def test_changes_are_counted_by_space(home, new_api, tmp_path, monkeypatch):
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    at_home, in_space = new_api(), api_in("one", "acme")
    assert at_home.post("/policy", {"src": POLICY.format(mode="reader")}).status_code == 200
    seen: list[observers.AnsweredRequest] = []
    observers.observe(seen.append)
    try:
        insert(in_space, role("ann", "a"))
        insert(at_home, role("ann", "a"))
    finally:
        observers.stop(seen.append)
    parts = [part for each in seen for part in each.parts if part.name == "revision"]
    assert [part.facts["space"] for part in parts] == ["one", ""]
    metrics.write_to(tmp_path, "1")
    worker = metrics.Worker(1, {})
    for each in seen:
        worker.seen(each)
    worker.look()
    counted = {(metric.name, *sample.labels.values()): sample.value for metric in metrics.merged(tmp_path)
               for sample in metric.samples}  # fmt: skip
    assert counted["authz_revisions", "facts"] == 2 and counted["authz_space_revisions", "one"] == 1
    assert ("authz_space_revisions", "") not in counted


@on_postgresql
def test_ids_of_a_dropped_space_are_not_given_again(home):
    """Neither in the next space nor in one of the same name: environments that were moved before still have them."""
    apis = []
    for number, name in enumerate(("three", "four", "three", "three")):
        spaces.create(name)
        apis.append(api_in(name, f"e{number}"))
        insert(apis[-1], role("ann", f"d{number}"))
        moving.move(f"e{number}", HOME)
        spaces.drop(name)
    assert [docs(api, "ann") for api in apis] == [["d0"], ["d1"], ["d2"], ["d3"]]
    assert Environment.objects.count() == len(apis)


@on_postgresql
def test_no_environment_is_created_in_a_space_while_it_is_dropped(home, monkeypatch):
    """It would be dropped with the space, though whoever created it was told that it exists."""
    spaces.create("three")
    created, refused, given = [], [], spaces._ids_given

    def create() -> None:
        try:
            created.append(made_in("three", "late"))
        except Exception as reason:
            refused.append(reason)
        finally:
            connections.close_all()

    def ids_given_while_another_creates() -> int:
        thread.start()
        thread.join(1)  # seconds, unless it waits for the drop
        return given()

    thread = threading.Thread(target=create)
    monkeypatch.setattr(spaces, "_ids_given", ids_given_while_another_creates)
    spaces.drop("three")
    thread.join()
    assert (len(created), len(refused)) == (0, 1)
