"""Writers that wait together share a commit, and nothing else: each has its own answer."""

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import orjson
import pytest
from django.db import DataError, OperationalError, connection
from django.http import HttpResponse
from django.test.utils import CaptureQueriesContext

from authz_project.keys import create_key, hash_of, revoke_key
from authz_project.models import SCOPE_COLUMNS, ApiKey
from facts import store, together
from facts.store import Deletes, Inserts
from facts.table import fact_table, fetch
from facts.wire import Fact, exact_pattern, fact_from_json
from policy.active import Caller, Scope, caller_of_hash
from policy.core import journal
from policy.core.journal import advance, changing, current_offset
from policy.models import Environment, Revision
from policy.publishing import publish
from tests.conftest import Api
from tests.waiting import Writers, another_writer, are_waiting, elsewhere, wait_for

POLICY = "actor User {} resource Repo { roles = ['reader']; }".replace("'", '"')


ROUNDS = 200
LATER = "2999-01-01T00:00:00Z"


def caller_of(api: Api) -> Caller:
    return caller_of_hash(hash_of(api.key), Scope.FACTS)


def facts(user: str, name: str) -> list[Fact]:
    return [fact_from_json(role(user, name), "")]


def role(user: str, name: str = "reader") -> dict:
    args = [("User", user), ("String", name), ("Repo", "r")]
    return {"predicate": "has_role", "args": [{"type": kind, "id": text} for kind, text in args]}


class Received(HttpResponse):
    def json(self):
        return orjson.loads(self.content)


writers: list[Writers] = []  # those of the test


@pytest.fixture(autouse=True)
def server(db) -> None:
    connection.close()  # a test before may have dropped what it has prepared
    writers[:] = [Writers(4)]


def sent(api: Api, method: str, path: str, body: object):
    """The answer of a server to a change."""
    status, headers, content = writers[0].send(api, method, f"/api{path}", body, "").result(30)
    return Received(content, status=status, headers=dict(headers))


def make_read_only(key: ApiKey) -> None:
    ApiKey.objects.filter(pk=key.pk).update(**{SCOPE_COLUMNS[Scope.FACTS]: False})


def told(api: Api, user: str, name: str = "reader"):
    return sent(api, "POST", "/facts", role(user, name))


def gathered(pool: ThreadPoolExecutor, environment_id: int, calls: list[Callable]) -> list[Future]:
    """Calls that wait for their turn, in this order."""
    futures = []
    for number, call in enumerate(calls, 1):
        futures.append(pool.submit(call))
        wait_for(lambda number=number: are_waiting(environment_id, number))
    return futures


@contextmanager
def waiting(environment_id: int, calls: list[Callable], first: Callable = another_writer) -> Iterator[list[Future]]:
    """They wait for a `first` writer, until the end."""
    with ThreadPoolExecutor(len(calls)) as pool, first(environment_id):
        yield gathered(pool, environment_id, calls)


@contextmanager
def doing(environment_id: int, act: Callable[[], object]) -> Iterator[None]:
    """A writer that has its turn, and acts at the end."""
    begun, done = Event(), Event()

    @contextmanager
    def held() -> Iterator[None]:
        with changing():
            advance(environment_id)
            begun.set()
            done.wait(30)
            yield

    def work() -> None:
        try:
            if act is publish:
                publish(environment_id, POLICY, None, within=held)
            else:
                with held():
                    act()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as thread:
        working = thread.submit(work)
        assert begun.wait(20)
        try:
            yield
        finally:
            done.set()
            working.result()


def codes(futures: list[Future]) -> list[int]:
    return [future.result(30).status_code for future in futures]


def offsets(futures: list[Future]) -> list[int]:
    return [int(future.result(30)["OsoOffset"]) for future in futures]


def users(api: Api) -> list[str]:
    return [fact["args"][0]["id"] for fact in api.get("/facts").json()]


@pytest.fixture(params=[False, True], ids=["new signature", "known signature"])
def warm(request, api) -> int:
    """Whether this process knows the signature of the facts, so that PostgreSQL stores a group by one statement.

    The value is the revision of the environment.
    """
    if request.param:
        assert told(api, "gone").status_code == 200
        assert sent(api, "DELETE", "/facts", role("gone")).status_code == 200
    return current_offset(api.environment.pk)


# ---- one group --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_a_group_that_only_inserts_is_one_statement(api, monkeypatch):
    assert told(api, "zoe").status_code == 200
    for calls in ([("ann", "a")], [("bob", "b"), ("zoe", "reader"), ("bob", "b")]):
        group = [waiting_writer(api, [Inserts(facts(*call))], f"by {call[0]}") for call in calls]
        assert committed(api, group, monkeypatch) == ["SELECT UPDATE WITH"]
    found = Revision.objects.filter(environment=api.environment).order_by("number")
    assert [(each.inserted, each.deleted, each.request_id) for each in found][-4:] == [
        (1, 0, "by ann"), (1, 0, "by bob"), (0, 0, "by zoe"), (0, 0, "by bob"),
    ]  # fmt: skip
    assert {each.author for each in list(found)[-4:]} == {caller_of(api).author}


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_who_comes_alone_takes_one_round_trip_unless_something_is_in_the_way(api, monkeypatch):
    def sent_by(user: str, kind: str = "inserts") -> list[str]:
        return committed(api, [writer_of(api, (kind, user))], monkeypatch)

    assert told(api, "zoe").status_code == 200  # it sees the turn for the first time
    one = ["SELECT UPDATE WITH"]
    assert sent_by("ann") == sent_by("ann", "deletes") == sent_by("ann") == one
    with ThreadPoolExecutor(1) as pool:  # another process has the turn
        with another_writer(api.environment.pk):
            waits = pool.submit(told, api, "bob")
            wait_for(lambda: are_waiting(api.environment.pk, 1))
            assert current_offset(api.environment.pk) == 4
        assert waits.result(20).status_code == 200
    assert sent_by("cid") == one
    elsewhere(lambda: publish(api.environment.pk, POLICY, None))
    assert "INSERT" in sent_by("dan")  # by the new policy
    assert sent_by("dan") == one
    elsewhere(
        lambda: store.apply(api.environment.pk, [Inserts([fact_from_json(role("eve") | {"expires_at": LATER}, "")])])
    )
    assert "INSERT" in sent_by("fay")  # as the fact might be stored with an expiry
    assert users(api) == ["ann", "bob", "cid", "dan", "eve", "fay", "zoe"]
    assert [number for number, *_ in revisions_of(api)] == [1, 2, 3, 4, *range(6, 13)]  # the fifth recorded none


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_what_fails_in_one_round_trip_is_stored_once(api, monkeypatch):
    assert told(api, "zoe").status_code == 200
    assert told(api, "ann").status_code == 200
    usual = together._statement

    def made(environment_id, turn, run):
        sql, values = usual(environment_id, turn, run)
        return sql.replace("RETURNING number", "RETURNING 1 / 0, number"), values

    with monkeypatch.context() as patch:
        patch.setattr(together, "_statement", made)
        assert told(api, "bob").status_code == 200  # step by step
    forget_statements()
    assert told(api, "cid").status_code == 200
    assert revisions_of(api) == [(number, 1, 0) for number in range(1, 5)]


def waiting_writer(api: Api, changes: list[store.Change], request_id: str = "") -> together._Writer:
    return together._Writer(caller_of(api), changes, request_id, None, lambda work: work(None))


def committed(api: Api, group: list[together._Writer], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commit the changes of these writers together; return the first words of the statements that are sent.

    Those of one element are sent together: SELECT limits the wait, UPDATE takes the turn, and WITH makes changes and
    commits. The other elements are what Django sends.
    """
    trips: list[str] = []
    usual = journal.in_one_trip

    def noted(statements):
        trips.append(" ".join(sql.split()[0] for sql, _ in statements))
        return usual(statements)

    queues = [together._entered(each) for each in group]
    with monkeypatch.context() as patch, CaptureQueriesContext(connection) as queries:
        patch.setattr(journal, "in_one_trip", noted)
        together._lead(queues[0], group[0])
    assert [each.error for each in group] == [None] * len(group)
    return trips + [word for each in queries if (word := each["sql"].split()[0]) not in ("BEGIN", "COMMIT")]


def writer_of(api: Api, *steps: tuple[str, str]) -> together._Writer:
    changes = [
        Inserts(facts(user, "reader")) if kind == "inserts" else Deletes([exact_pattern(facts(user, "reader")[0])])
        for kind, user in steps
    ]
    return waiting_writer(api, changes)


def revisions_of(api: Api) -> list[tuple[int, int, int]]:
    return list(
        Revision.objects.filter(environment=api.environment).order_by("number")
        .values_list("number", "inserted", "deleted")
    )  # fmt: skip


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_neighbors_that_all_insert_or_all_delete_are_one_statement(api, monkeypatch):
    assert told(api, "zoe").status_code == 200
    steps = [("inserts", "ann"), ("inserts", "bob"), ("deletes", "ann"), ("deletes", "zoe"), ("deletes", "zoe")]
    group = [writer_of(api, step) for step in [*steps, ("inserts", "ann")]]
    assert committed(api, group, monkeypatch) == ["SELECT UPDATE WITH WITH WITH"]
    assert committed(api, [writer_of(api, ("inserts", "dan"))], monkeypatch) == ["SELECT UPDATE WITH"]
    assert revisions_of(api)[1:] == [(2, 1, 0), (3, 1, 0), (4, 0, 1), (5, 0, 1), (6, 0, 0), (7, 1, 0), (8, 1, 0)]
    assert users(api) == ["ann", "bob", "dan"]
    assert past() == [("ann", 2, 4), ("zoe", 1, 5)]


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_a_statement_that_was_prepared_while_tables_were_small_does_not_read_large_ones(api, monkeypatch):
    def read() -> int:
        fetch("SELECT pg_stat_force_next_flush()")
        return fetch("SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'authz_revision'")[0][0]

    assert told(api, "zoe").status_code == 200
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE authz_revision")
    for number in range(20):  # from the sixth time on, PostgreSQL keeps its plan
        committed(api, [writer_of(api, ("inserts", f"u{number}"))], monkeypatch)
    before = read()
    for number in range(20, 40):
        committed(api, [writer_of(api, ("inserts", f"u{number}"))], monkeypatch)
    assert read() == before
    assert fetch("SELECT current_setting('enable_seqscan'), current_setting('lock_timeout')") == [("on", "0")]


def past() -> list[tuple[str, int, int]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT a0, since, until FROM authz_past_fact ORDER BY until, a0")
        return cursor.fetchall()


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
@pytest.mark.parametrize("seed", range(8))
def test_it_makes_no_difference_how_a_group_is_stored(api, monkeypatch, seed):
    """By few statements or step by step: the same facts, past facts and counts."""
    source, outcomes = random.Random(seed), []
    groups = [
        [(source.choice(["inserts", "deletes"]), f"u{source.randrange(4)}") for _ in range(source.randint(1, 6))]
        for _ in range(6)
    ]
    for are_few in (True, False):
        if not are_few:
            monkeypatch.setattr(together, "_runs", lambda *group: None)
        store.clear(api.environment.pk)
        assert told(api, "zoe").status_code == 200
        before = current_offset(api.environment.pk)
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM authz_past_fact")
        words = [
            word for steps in groups for word in committed(api, [writer_of(api, step) for step in steps], monkeypatch)
        ]
        assert ("INSERT" in words) is not are_few
        made = [(number - before, *counts) for number, *counts in revisions_of(api) if number > before]
        periods = [(user, since - before, until - before) for user, since, until in past()]
        outcomes.append((users(api), made, periods))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_what_one_connection_inserts_and_another_deletes_is_counted_as_it_was(api):
    """Each waits for the other's turn with a statement that must see what the other has just committed."""
    assert told(api, "zoe").status_code == 200
    first = current_offset(api.environment.pk)
    caller, fact = caller_of(api), facts("ann", "reader")

    def insert() -> None:
        for _ in range(ROUNDS):
            assert told(api, "ann").status_code == 200

    def delete() -> None:
        try:
            for _ in range(ROUNDS):
                together.apply_alone(caller, [Deletes([exact_pattern(each) for each in fact])], "")
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(insert), pool.submit(delete)]:
            future.result(120)
    is_stored, last = False, 0
    for each in Revision.objects.filter(environment=api.environment, number__gt=first).order_by("number"):
        assert (each.inserted, each.deleted) in ([(0, 1), (0, 0)] if is_stored else [(1, 0), (0, 0)])
        is_stored = bool(each.inserted) or (is_stored and not each.deleted)
        assert each.at >= last
        last = each.at
    assert current_offset(api.environment.pk) == first + 2 * ROUNDS
    assert ("ann" in users(api)) == is_stored


def test_they_share_a_commit_and_have_an_offset_each(api):
    with waiting(api.environment.pk, [lambda n=n: told(api, f"u{n}") for n in range(5)]) as futures:
        pass
    assert offsets(futures) == [2, 3, 4, 5, 6]
    assert [future.result().json() for future in futures] == [role(f"u{n}") for n in range(5)]
    assert current_offset(api.environment.pk) == 6
    assert users(api) == [f"u{n}" for n in range(5)]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(DISTINCT xmin::text) FROM authz_fact")
            assert cursor.fetchone() == (1,)


def test_their_changes_apply_in_the_order_in_which_they_came(api):
    calls = [
        lambda: sent(api, "POST", "/facts", role("ann")),
        lambda: sent(api, "DELETE", "/facts", role("ann")),
        lambda: sent(api, "POST", "/batch", [{"inserts": [role("bob")]}, {"deletes": [role("bob")]}]),
        lambda: sent(api, "POST", "/bulk", {"delete": [role("bob")], "tell": [role("cid"), role("ann")]}),
        lambda: sent(api, "POST", "/bulk_delete", [role("cid")]),
    ]
    with waiting(api.environment.pk, calls) as futures:
        pass
    assert codes(futures) == [200] * 5
    assert users(api) == ["ann"]


def test_who_is_refused_by_the_policy_takes_nobody_along(api):
    assert api.post("/policy", {"src": POLICY, "filename": ""}).status_code == 200
    body = [{"inserts": [role("no"), {"predicate": "nonsense", "args": [{"type": "User", "id": "no"}]}]}]
    calls = [
        lambda: sent(api, "POST", "/batch", body),
        lambda: told(api, "ann"),
        lambda: sent(api, "POST", "/batch", body),
        lambda: told(api, "bob"),
    ]
    with waiting(api.environment.pk, calls) as futures:
        pass
    assert codes(futures) == [400, 200, 400, 200]
    assert futures[0].result().json()["message"].startswith("[0].inserts[1]: the fact `nonsense(User)` is not used")
    assert offsets([futures[1], futures[3]]) == [3, 4]  # the policy and the first writer have the others
    assert users(api) == ["ann", "bob"]


def test_a_group_that_is_refused_moves_nothing(api):
    assert api.post("/policy", {"src": POLICY, "filename": ""}).status_code == 200
    nonsense = {"predicate": "nonsense", "args": [{"type": "User", "id": "no"}]}
    with waiting(api.environment.pk, [lambda: sent(api, "POST", "/facts", nonsense)] * 2) as futures:
        pass
    assert codes(futures) == [400, 400]
    assert current_offset(api.environment.pk) == 2


def test_a_policy_that_comes_first_holds_for_all(api):
    nonsense = {"predicate": "nonsense", "args": [{"type": "User", "id": "no"}]}
    calls = [lambda: told(api, "ann"), lambda: sent(api, "POST", "/facts", nonsense), lambda: told(api, "bob")]
    with waiting(api.environment.pk, calls, lambda pk: doing(pk, publish)) as futures:
        pass
    assert codes(futures) == [200, 400, 200]


@pytest.mark.parametrize(("withdraw", "code"), [(revoke_key, 401), (make_read_only, 403)])
def test_a_key_that_is_revoked_or_narrowed_in_between_opens_nothing(api, warm, withdraw, code):
    key, text = create_key(api.environment)
    revoked = Api(api.environment, text)
    assert revoked.get("/facts").status_code == 200
    calls = [lambda: told(revoked, "no"), lambda: told(api, "ann"), lambda: told(revoked, "no")]
    with waiting(api.environment.pk, calls, lambda pk: doing(pk, lambda: withdraw(key))) as futures:
        pass
    assert codes(futures) == [code, 200, code]
    assert users(api) == ["ann"]


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
@pytest.mark.parametrize("how", ["alone", "key", "policy"])
def test_a_key_that_is_revoked_while_another_change_waits_opens_nothing(api, how):
    """One that shares no transaction. On SQLite, nobody can revoke it meanwhile."""
    expiring = [{"inserts": [role("ann") | {"expires_at": LATER}]}]
    path, body = ("/policy", {"src": POLICY}) if how == "policy" else ("/batch", expiring)

    def told_once():
        try:
            return api.post(path, body, **({"Idempotency-Key": "k"} if how == "key" else {}))
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with another_writer(api.environment.pk):
            sending = pool.submit(told_once)
            wait_for(somebody_waits)
            revoke_key(ApiKey.objects.get(environment=api.environment))
        assert sending.result(30).status_code == 401
    assert current_offset(api.environment.pk) == 1  # that of the other writer


def somebody_waits() -> bool:
    return bool(fetch("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"))


def test_a_key_that_is_revoked_in_between_deletes_nothing(api, warm):
    key, text = create_key(api.environment)
    revoked = Api(api.environment, text)
    assert told(revoked, "zoe").status_code == 200
    calls = [lambda: told(api, "ann"), lambda: sent(revoked, "DELETE", "/facts", role("zoe")), lambda: told(api, "bob")]
    with waiting(api.environment.pk, calls, lambda pk: doing(pk, lambda: revoke_key(key))) as futures:
        pass
    assert codes(futures) == [200, 401, 200]
    assert users(api) == ["ann", "bob", "zoe"]


def test_a_key_that_opens_another_environment_now_writes_there(api, new_api, warm):
    key, text = create_key(api.environment)
    moved, other = Api(api.environment, text), new_api("other")
    assert moved.get("/facts").status_code == 200

    def move() -> None:
        key.environment = other.environment
        key.save()

    calls = [lambda: told(moved, "bob"), lambda: told(api, "ann")]
    with waiting(api.environment.pk, calls, lambda pk: doing(pk, move)) as futures:
        pass
    assert codes(futures) == [200, 200]
    assert (users(api), users(other)) == (["ann"], ["bob"])


def test_an_environment_that_is_removed_in_between_has_no_writers(api, warm):
    def remove() -> None:
        Environment.objects.filter(pk=api.environment.pk).delete()

    calls = [lambda: told(api, "ann"), lambda: told(api, "bob")]
    with waiting(api.environment.pk, calls, lambda pk: doing(pk, remove)) as futures:
        pass
    assert codes(futures) == [401, 401]


def test_environments_do_not_wait_for_each_other_in_a_process(api, new_api):
    if connection.vendor == "sqlite":
        pytest.skip("the whole file has one writer")
    other = new_api("other")
    with waiting(api.environment.pk, [lambda: told(api, "ann")]):
        assert told(other, "bob").status_code == 200


LOSE = "SELECT pg_terminate_backend(pg_backend_pid())"
CANCEL = "SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(5)"

# ---- what goes wrong --------------------------------------------------------------------------------------------


def test_a_statement_that_fails_for_one_is_made_without_it(api, monkeypatch):
    insert = type(fact_table()).insert

    def insert_what_is_good(table, rows):
        if any("poison" in row for row in rows):
            raise DataError("poison")
        return insert(table, rows)

    monkeypatch.setattr(type(fact_table()), "insert", insert_what_is_good)
    calls = [lambda: told(api, "ann"), lambda: told(api, "poison"), lambda: told(api, "bob")]
    with waiting(api.environment.pk, calls) as futures:
        pass
    assert codes(futures) == [200, 500, 200]
    assert sorted(offsets([futures[0], futures[2]])) == [2, 3]
    assert users(api) == ["ann", "bob"]


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_a_database_that_is_lost_in_the_middle_fails_all_of_them(api, warm, monkeypatch):
    def lose(*arguments):
        with connection.cursor() as cursor:
            cursor.execute(LOSE)

    monkeypatch.setattr(together, "claim", lose)
    monkeypatch.setattr(together, "_statement", lambda *run: (LOSE, ()))
    monkeypatch.setattr(together, "_store_in_one_trip", lambda *group: False)
    with waiting(api.environment.pk, [lambda n=n: told(api, f"u{n}") for n in range(3)]) as futures:
        pass
    for future in futures:
        answer = future.result()
        assert (answer.status_code, answer["Retry-After"]) == (503, "1")
        assert answer.json() == {"message": "the database is unreachable; try again"}
    monkeypatch.undo()
    assert users(api) == []
    assert int(told(api, "ann")["OsoOffset"]) == warm + 2


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_a_database_that_is_lost_with_the_commit_is_an_error_and_no_second_try(api, warm, monkeypatch):
    assert told(api, "ann").status_code == 200
    monkeypatch.setattr(together, "_statement", lambda *run: (LOSE, ()))
    assert told(api, "bob").status_code == 503
    monkeypatch.undo()
    assert users(api) == ["ann"]


@pytest.mark.parametrize("error", [ZeroDivisionError, OperationalError])
def test_what_fails_after_a_commit_neither_repeats_nor_denies_it(api, warm, monkeypatch, error):
    def fail(*revision):
        raise error

    monkeypatch.setattr(journal, "_tell", fail)
    assert told(api, "ann").status_code == 200
    assert current_offset(api.environment.pk) == warm + 1


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_a_group_whose_statement_the_driver_has_dropped_is_stored(api):
    assert told(api, "ann").status_code == 200
    for name in "abc":
        with waiting(api.environment.pk, [lambda n=n, name=name: told(api, f"{name}{n}") for n in range(3)]) as futures:
            pass
        assert codes(futures) == [200] * 3
        forget_statements()
    assert len(users(api)) == 10


def forget_statements() -> None:
    """Drop the prepared statements of all connections of this process, as the driver does after a rollback."""
    for raw in list(journal._prepared):
        if not raw.closed:
            raw.execute("DEALLOCATE ALL")
            raw._prepared.clear()


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_a_common_statement_that_somebody_cancels_fails_all_of_them(api, warm, monkeypatch):
    def cancel(*arguments):
        with connection.cursor() as cursor:
            cursor.execute(CANCEL)

    monkeypatch.setattr(together, "claim", cancel)
    monkeypatch.setattr(together, "_statement", lambda *run: (CANCEL, ()))
    with waiting(api.environment.pk, [lambda n=n: told(api, f"u{n}") for n in range(3)]) as futures:
        pass
    assert codes(futures) == [503] * 3
    assert "cancelled" in futures[2].result().json()["message"]
    assert current_offset(api.environment.pk) == warm + 1  # that of the writer before


def test_who_has_waited_too_long_does_not_hold_up_the_others(api, settings):
    settings.WRITE_TIMEOUT = 2.0
    with ThreadPoolExecutor(2) as pool:
        with another_writer(api.environment.pk):
            first = gathered(pool, api.environment.pk, [lambda: told(api, "no")])[0]
            time.sleep(1.5)
            second = pool.submit(told, api, "ann")
            assert first.result().status_code == 503
        assert second.result().status_code == 200
    assert users(api) == ["ann"]
    assert not together._queues


def test_who_follows_waits_no_longer_than_it_may(api, settings):
    settings.WRITE_TIMEOUT = 0.5
    with waiting(api.environment.pk, [lambda: told(api, "no")] * 3) as futures:
        started = time.monotonic()
        assert codes(futures) == [503] * 3
        assert time.monotonic() - started < 5
        assert "(WRITE_TIMEOUT)" in futures[2].result().json()["message"]
    assert not together._queues


def test_what_may_take_long_has_a_commit_of_its_own(api):
    many = [role(f"u{n}") for n in range(together.SMALL + 1)]
    assert api.post("/bulk_load", many).status_code == 200
    pattern = {"predicate": "has_role", "args": [{"type": "User", "id": None}, None, None]}
    with ThreadPoolExecutor(2) as pool, another_writer(api.environment.pk):
        calls = [("/bulk_load", many), ("/bulk_delete", [pattern])]
        futures = [pool.submit(sent, api, "POST", path, body) for path, body in calls]
        time.sleep(0.3)
        assert not together._queues
    assert codes(futures) == [200, 200]


# ---- any of them ------------------------------------------------------------------------------------------------

WRITERS, CHANGES = 6, 25


def changes_at_random(source: random.Random) -> tuple[str, object, list[tuple[str, str | None]]]:
    """A path, a body, and what it does: users that come and go, None for all."""
    steps = [(source.choice(("inserts", "deletes")), source.randrange(8)) for _ in range(source.randint(1, 3))]
    if source.random() < 0.1:
        return "/bulk_delete", [{"predicate": "has_role", "args": [{"type": "User"}, None, None]}], [("deletes", None)]
    body = [{kind: [role(f"u{user}")]} for kind, user in steps]
    if source.random() < 0.2:
        body.insert(source.randrange(len(body) + 1), {"inserts": [role("no", "x") | {"predicate": "nonsense"}]})
        return "/batch", body, []
    return "/batch", body, [(kind, f"u{user}") for kind, user in steps]


def applied(before: frozenset[str], steps: list[tuple[str, str | None]]) -> frozenset[str]:
    after = set(before)
    for kind, user in steps:
        if user is None:
            after.clear()
        elif kind == "inserts":
            after.add(user)
        else:
            after.discard(user)
    return frozenset(after)


def seen(environment_id: int) -> tuple[int, frozenset[str]]:
    """The offset and the facts, in one statement."""
    joined = "string_agg(a0, ',')" if connection.vendor == "postgresql" else "group_concat(a0, ',')"
    with connection.cursor() as cursor:
        cursor.execute(
            f'SELECT "offset", (SELECT {joined} FROM authz_fact) FROM authz_environment WHERE id = %s',
            (environment_id,),
        )
        offset, found = cursor.fetchone()
    return offset, frozenset(found.split(",") if found else ())


@pytest.mark.parametrize("seed", range(3))
def test_writers_at_random_are_as_one_after_the_other(api, seed):
    assert api.post("/policy", {"src": POLICY, "filename": ""}).status_code == 200
    made: dict[int, list] = {}
    read: list[tuple[int, frozenset[str]]] = []

    def write(number: int) -> None:
        source = random.Random(f"{seed} {number}")
        try:
            for _ in range(CHANGES):
                path, body, steps = changes_at_random(source)
                answer = sent(api, "POST", path, body)
                assert answer.status_code == (200 if steps else 400), answer.content
                if steps:
                    offset = int(answer["OsoOffset"])
                    assert offset not in made
                    made[offset] = steps
                    now = seen(api.environment.pk)
                    assert now[0] >= offset
                    read.append(now)
        finally:
            connection.close()

    with ThreadPoolExecutor(WRITERS) as pool:
        for future in [pool.submit(write, number) for number in range(WRITERS)]:
            future.result(120)
    states = {1: frozenset[str]()}
    for offset in sorted(made):
        states[offset] = applied(states[offset - 1], made[offset])  # none is left out
    assert len(read) > WRITERS
    for offset, users_then in read:
        assert states[offset] == users_then
    assert not together._queues
