"""Answers that are kept are those that would be found now, whatever an answer depends on."""

from __future__ import annotations

import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from threading import Event

import orjson
import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import F

from authz_project.keys import caller_of_token, create_key, revoke_key
from authz_project.models import ApiKey
from checks import views
from checks.asking import ask
from checks.asking.ask import Trusted
from checks.asking.question import Asked, allow
from checks.errors import QueryTooSlow
from facts import loading
from facts import store as facts_store
from facts.accept import HEADER
from facts.models import Signature
from facts.numbering import signature_number
from facts.store import Inserts
from facts.table import fact_table
from facts.wire import fact_from_json, rows_of
from policy.core import memory, spans
from policy.core.clock import new_moment
from policy.core.journal import advance
from policy.endpoint import RESPONDS_LATER, Request, Response
from policy.errors import KeyRefused
from policy.models import Environment, Revision
from policy.publishing import activate
from tests.checks.conftest import POLICY, about, fact, publish, remove, store, value
from tests.checks.statements import counted
from tests.checks.test_freshness import READERS, WRITERS, swap_elsewhere
from tests.conftest import Api
from tests.contract import ASKED

ANN_READS = about("User:ann", "Doc:d", action="read")
READER = fact("has_role", "User:ann", "reader", "Doc:d")
PERMITTED = fact("has_permission", "User:ann", "read", "Doc:d")


@pytest.fixture(autouse=True)
def asked(monkeypatch) -> list[object]:
    """Requests that were not answered from memory."""
    found: list[object] = []
    answered = ask.answered
    monkeypatch.setattr(ask, "answered", lambda *args: found.append(args[1]) or answered(*args))
    views._answers.clear()
    views._latest.clear()
    monkeypatch.setattr(views, "_seen", Everything())
    return found


class Everything:
    """In place of what was seen: every request comes again."""

    def __getitem__(self, place: int) -> Everything:
        return self

    def __ne__(self, number: object) -> bool:
        return False


def allowed(api, body=ANN_READS) -> bool:
    return api.post("/authorize", body).json()["allowed"]


# ---- what is kept -------------------------------------------------------------------------------------------------

REPO_A = value("Repo:a")
REQUESTS = [
    ("/authorize", about("User:ann", "Repo:a", action="read")),
    ("/authorize", about("Robot:ann", "Repo:a", action="read")),
    ("/actions", about("User:ann", "Repo:a")),
    ("/list", about("User:ann", action="read", resource_type="Repo", page_size=10000)),
    ("/authorize_resources", about("User:ann", action="read", resources=[REPO_A, value("Repo:x")])),
    ("/authorize_resources", about("User:ann", action="read", resources=[])),
    ("/authorize_each", {"checks": [{"actor": value("User:ann"), "action": "read", "resource": REPO_A}] * 2}),
    ("/bulk_actions", [about("User:ann", "Repo:a"), about("User:bob", "Repo:a")]),
    (
        "/evaluate_query",
        {"predicate": ["allow", ["u", "a", "r"]], "constraints": {
            "u": {"type": "User"}, "a": {"type": "String"}, "r": {"type": "Repo"},
        }},
    ),
    ("/query", {"fact": {"predicate": "allow", "args": [None, None, None]}}),
]  # fmt: skip


def test_every_endpoint_with_cached_answers_is_tried():
    """Local SQL and explanations are not cached; AuthZEN's questions are cached as those that they stand for."""
    others = {path for path in ASKED if path.startswith("/access/") or "bindings" in str(ASKED[path])}
    assert {f"/api{path}" for path, _ in REQUESTS} | others | {"/api/explain"} == set(ASKED)


@pytest.mark.parametrize(("path", "body"), REQUESTS, ids=lambda part: part if isinstance(part, str) else "")
def test_the_same_request_is_asked_once_and_confirmed_by_one_statement(repos, asked, path, body):
    first = repos.post(path, body)
    assert first.status_code == 200 and len(asked) == 1
    with counted() as statements:
        second = repos.post(path, body)
    assert (second.content, second.headers.get(HEADER)) == (first.content, first.headers.get(HEADER))
    assert len(asked) == 1 and len(statements) == 1 and "moment" in statements[0]


def test_an_answer_that_cannot_be_good_any_more_costs_no_statement(repos, asked):
    path, body = REQUESTS[0]
    repos.post(path, body)
    store(repos, fact("has_role", "User:eve", "reader", "Repo:a"))
    repos.post(*REQUESTS[2])  # from which the process knows of the change
    with counted() as statements:
        repos.post(path, body)
    assert len(asked) == 3 and len(statements) == 1


def test_unused_context_facts_are_told_again(repos, asked, caplog):
    caplog.set_level("INFO", "authz.request")
    body = {**REQUESTS[0][1], "context_facts": [fact("has_rol", "User:ann", "reader", "Repo:a")]}
    first, second = (repos.post("/authorize", body) for _ in range(2))
    assert len(asked) == 1 and first[HEADER] == second[HEADER]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2 and second["X-Request-ID"] in told[1]


def test_nothing_is_kept_for_what_comes_for_the_first_time(repos, asked, monkeypatch):
    monkeypatch.setattr(views, "_seen", [0] * views._MOST_SEEN)
    for wanted in (0, 1, 1):
        repos.post(*REQUESTS[0])
        assert len(views._answers) == wanted
    assert len(asked) == 2
    repos.post(*REQUESTS[1])
    assert len(views._answers) == 1 and len(asked) == 3


def test_refusals_are_not_kept(repos, asked):
    query = {"predicate": ["alow", ["u"]], "constraints": {"u": {"type": "User"}}}
    for turn in (1, 2):
        assert repos.post("/evaluate_query", query).status_code == 400
        assert len(asked) == turn


def test_nothing_is_kept_where_that_is_wanted(repos, asked, settings):
    settings.ANSWER_CACHE = 0
    for turn in (1, 2, 3):
        repos.post(*REQUESTS[0])
        assert len(asked) == turn and not len(views._answers)


def test_what_takes_too_much_room_is_not_kept(repos, asked, settings):
    settings.ANSWER_CACHE = 8_100
    store(repos, *(fact("is_public", f"Repo:{number:050}") for number in range(200)))
    for turn in (1, 2):
        repos.post(*REQUESTS[3])
        assert len(asked) == turn and not len(views._answers)


def test_answers_have_so_much_room_and_no_more(repos, monkeypatch):
    monkeypatch.setattr(views, "_answers", views.Cache(2_000, views._bytes_of))
    for number in range(20):
        repos.post("/authorize", about(f"User:{number}", "Repo:a", action="read"))
    assert 3 <= len(views._answers) <= 6


def test_small_answers_of_a_state_are_one_object(repos):
    for action in ("read", "write", "delete"):
        allowed(repos, about("User:ann", "Doc:d", action=action))
    answers = kept_answers()
    assert len(answers) == 3 and len(set(map(id, answers))) == 1


def kept_answers() -> list[views.CachedAnswer]:
    return [*views._answers.newer.values(), *views._answers._older.values()]


def test_answers_are_stored_without_the_buffer_they_were_written_to(repos):
    tracemalloc.start()
    try:
        repos.post("/authorize", ANN_READS)
        kept = [orjson.dumps({"allowed": False}) for _ in range(100)]
        before, _ = tracemalloc.get_traced_memory()
        kept = [memory.compact(each) for each in kept]
        after, _ = tracemalloc.get_traced_memory()
        (answer,) = kept_answers()
        made_by = tracemalloc.get_object_traceback(answer.body)
    finally:
        tracemalloc.stop()
    assert kept[0] == answer.body and before - after > 100 * 1_000
    assert made_by is not None and made_by[0].filename == memory.__file__


# ---- all that an answer depends on ---------------------------------------------------------------------------------


def test_the_endpoint(repos):
    """Bodies may be the same."""
    body = about("User:ann", "Repo:a", action="read", resource_type="Repo", resources=[REPO_A], page_size=10_000)
    paths = ("/authorize", "/actions", "/list", "/authorize_resources")
    found = [repos.post(path, body).json() for path in paths]
    assert [repos.post(path, body).json() for path in paths] == found
    assert found == [{"allowed": True}, {"results": ["read"]},
                     {"results": ["a", "b", "p"], "next_page_token": None}, {"results": [REPO_A]}]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"actor_id": "eve"}, {"actor_type": "Robot"}, {"action": "write"}, {"resource_id": "x"},
        {"resource_type": "Org"}, {"actor_id": "eve", "context_facts": [fact("is_root", "User:eve")]},
    ],
)  # fmt: skip
def test_the_whole_body(repos, asked, change):
    path, body = REQUESTS[0]
    repos.post(path, body)
    repos.post(path, {**body, **change})
    assert len(asked) == 2


def test_whether_the_client_knows_of_pages(repos):
    body = about("User:ann", action="read", resource_type="Repo")
    published = {"X-OsoApiVersion": "2"}
    assert repos.post("/list", body, **published).json() == {"results": ["a", "b", "p"]}
    assert repos.post("/list", body).status_code == 400
    assert repos.post("/list", body, **published).json() == {"results": ["a", "b", "p"]}


def test_the_environment(new_api):
    first, second = new_api("first"), new_api("second")
    store(first, PERMITTED)
    Environment.objects.update(moment=7)  # which never happens
    for _ in range(2):
        assert (allowed(first), allowed(second)) == (True, False)


def test_another_key_of_the_environment_is_answered_the_same(api, asked):
    store(api, PERMITTED)
    assert allowed(api)
    other = type(api)(api.environment, create_key(api.environment)[1])
    assert allowed(other) and len(asked) == 1


@pytest.mark.parametrize("change", ["revoked", "expired", "moved", "deleted"])
def test_the_key(new_api, change):
    api, other = new_api("first"), new_api("second")
    store(api, PERMITTED)
    assert allowed(api) and allowed(api)
    keys = ApiKey.objects.filter(environment=api.environment)
    if change == "revoked":
        revoke_key(keys.get())
    elif change == "expired":
        keys.update(expires_at="2000-01-01T00:00:00Z")
    elif change == "moved":
        keys.update(environment=other.environment)
    else:
        keys.delete()
    answer = api.post("/authorize", ANN_READS)
    assert answer.status_code == 401 and set(answer.json()) == {"message"}


def grants(api) -> None:
    store(api, PERMITTED)


def loads(api) -> None:
    loading.load(api.environment.pk, [(1, PERMITTED)])


def applies(api) -> None:
    facts_store.apply(api.environment.pk, [Inserts([fact_from_json(PERMITTED, "")])])


def copies(api) -> None:
    origin = Environment.objects.create(slug="origin", name="origin")
    facts_store.apply(origin.pk, [Inserts([fact_from_json(PERMITTED, "")])])
    facts_store.copy_facts(origin.pk, api.environment.pk)


def publishes(api) -> None:
    publish(api, READERS.replace('"reader";', '"reader"; "read" if is_open(resource);'))


def swaps(api) -> None:
    swap_elsewhere(api.environment, READERS.replace('"reader";', '"reader"; "read" if is_open(resource);'))


def goes_back(api) -> None:
    activate(api.environment.pk, 1)


@pytest.mark.parametrize("change", [grants, loads, applies, copies], ids=lambda change: change.__name__)
def test_facts_that_come(api, change):
    publish(api, READERS)
    assert not allowed(api) and not allowed(api)
    change(api)
    assert allowed(api) and allowed(api)


@pytest.mark.parametrize("path", ["/batch", "/facts", "/bulk_delete", "/clear_data"])
def test_facts_that_go(api, path):
    store(api, PERMITTED)
    assert allowed(api) and allowed(api)
    method = "DELETE" if path == "/facts" else "POST"
    body = {"/batch": [{"deletes": [PERMITTED]}], "/facts": PERMITTED, "/bulk_delete": [PERMITTED]}.get(path)
    assert api.request(method, path, body).status_code == 200
    assert not allowed(api) and not allowed(api)


@pytest.mark.parametrize("change", [publishes, swaps], ids=lambda change: change.__name__)
def test_the_policy(api, change):
    publish(api, READERS.replace('"reader";', '"writer"; "read" if is_open(resource);'))
    publish(api, READERS.replace('"reader";', '"writer"; "read" if is_open(resource);') + " # again")
    store(api, READER)
    assert not allowed(api) and not allowed(api)
    change(api)
    assert allowed(api) and allowed(api)


def test_a_policy_that_is_gone_back_to(api):
    publish(api, READERS)
    publish(api, WRITERS)
    store(api, READER)
    assert not allowed(api) and not allowed(api)
    goes_back(api)
    assert allowed(api) and allowed(api)


def test_the_time(api):
    publish(api, 'actor User {} resource Doc { permissions = ["read"]; }'
                 'has_permission(u: User, "read", d: Doc) if may_until(u, d, t) and @current_unix_time < t;'
                 'has_permission(u: User, "look", d: Doc) if may_until(u, d, _);')  # fmt: skip
    store(api, fact("may_until", "User:ann", "Doc:d", f"Integer:{int(time.time()) + 2}"))
    until = time.monotonic() + 10
    assert allowed(api)
    while allowed(api):
        assert time.monotonic() < until
        time.sleep(0.1)
    listing = about("User:ann", action="read", resource_type="Doc", page_size=10_000)
    checks = [{"actor": value("User:ann"), "action": name, "resource": value("Doc:d")} for name in ("read", "look")]
    assert api.post("/list", listing).json()["results"] == []
    assert api.post("/authorize_each", {"checks": checks}).json() == {"results": [False, True]}


def test_what_depends_on_the_time_is_not_kept(api, asked):
    publish(api, 'actor User {} resource Doc { permissions = ["read"]; relations = { left: Doc, right: Doc }; '
                 '"read" if "read" on "left" and "read" on "right"; }'
                 'has_permission(_: User, "read", d: Doc) if until(d, t) and @current_unix_time < t;')  # fmt: skip
    store(api, fact("until", "Doc:x", "Integer:7"))  # without any, nothing depends on the time
    check = {"actor": value("User:ann"), "action": "read", "resource": value("Doc:d")}
    for turn in (1, 2, 3):
        allowed(api)  # works in rounds
        api.post("/actions", about("User:ann", "Doc:d"))
        api.post("/authorize_each", {"checks": [check] * 2})
        assert len(asked) == 3 * turn


# ---- moments -------------------------------------------------------------------------------------------------------


def test_no_moment_comes_again(api):
    """Not after what was rolled back, and not after a backup is put back."""
    publish(api, READERS)
    before = Environment.objects.values().get(pk=api.environment.pk)
    store(api, READER)
    assert allowed(api) and allowed(api)
    remove(api, READER)  # as a backup would, with the row of the environment that it has
    Environment.objects.filter(pk=api.environment.pk).update(**{
        name: before[name] for name in ("offset", "moment", "signature_mark")
    })  # fmt: skip
    Revision.objects.filter(environment=api.environment, number__gt=before["offset"]).delete()
    assert not allowed(api) and not allowed(api)
    store(api, fact("has_role", "User:eve", "reader", "Doc:d"))
    assert Environment.objects.get(pk=api.environment.pk).offset == before["offset"] + 1
    assert not allowed(api) and not allowed(api)


def test_a_change_by_a_server_of_before_there_were_moments_counts(api):
    """It moves the offset alone."""
    publish(api, READERS)
    store(api, READER)
    assert allowed(api) and allowed(api)
    remove(api, READER)
    Environment.objects.filter(pk=api.environment.pk).update(offset=F("offset") + 1)
    assert not allowed(api)


def test_a_change_that_is_taken_back_leaves_no_answer(api):
    publish(api, READERS)
    assert not allowed(api)
    with suppress(RuntimeError), transaction.atomic():
        facts_store.apply(api.environment.pk, [Inserts([fact_from_json(READER, "")])])
        assert allowed(api)
        raise RuntimeError
    assert not allowed(api)


def test_nothing_is_kept_within_a_transaction(api, asked):
    """Its changes come one after the other, at one moment."""
    publish(api, READERS)
    with transaction.atomic():
        advance(api.environment.pk)
        assert not allowed(api)
        number_of = partial(signature_number, api.environment.pk, revision=1)
        fact_table().insert(rows_of([fact_from_json(READER, "")], number_of, 1))
        assert allowed(api)
    assert len(asked) == 2 and allowed(api)


def test_a_change_that_is_not_committed_changes_no_answer(api):
    publish(api, READERS)
    store(api, fact("has_role", "User:eve", "reader", "Doc:d"))
    assert not allowed(api)
    with elsewhere(api) as commit:
        assert not allowed(api) and not allowed(api)
        commit()
        assert allowed(api) and allowed(api)


@contextmanager
def elsewhere(api):
    """Another connection, which stores the fact and commits when told to."""
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            other.set_autocommit(False)
            number = api_number(api)
            cursor.execute(
                'UPDATE authz_environment SET "offset" = "offset" + 1, moment = %s WHERE id = %s',
                (new_moment(), api.environment.pk),
            )
            row = "(%s, 'ann', 'reader', 'd', '', '')"
            cursor.execute(f"INSERT INTO authz_fact (sig, a0, a1, a2, a3, a4) VALUES {row}", (number,))
            yield other.commit
    finally:
        other.close()


def api_number(api) -> int:
    return Signature.objects.get(environment=api.environment, predicate="has_role").pk


def test_types_that_are_looked_up_before_the_statement_are_not_relied_on(api, asked):
    """Without a policy, a pattern is asked about the types of stored facts, which are read before."""
    pattern = {"fact": {"predicate": "has_permission", "args": [None, None, None]}}
    store(api, PERMITTED)
    for turn in (1, 2):
        assert len(api.post("/query", pattern).json()["results"]) == 1
        assert len(asked) == turn


def test_who_asks_from_inside_is_answered_from_no_memory(api):
    publish(api, POLICY)
    question = allow(Asked("User", ("ann",)), Asked("String", ("read",)), Asked("Repo", ("a",)))
    assert ask.answer(Trusted(api.environment.pk), question).valid_while is not None
    assert not len(views._answers)


# ---- answers that are confirmed together ---------------------------------------------------------------------------


AUTHORIZE = views.Authorize()


@dataclass
class Together:
    """Requests that a server answers later: what each was told, and those that are answered again from their start."""

    api: Api
    told: list[dict] = field(default_factory=list)
    again: list[Request] = field(default_factory=list)
    parts: list[spans.Parts] = field(default_factory=list)  # of each request

    def ask(self, body=ANN_READS) -> Response:
        request = Request("POST", {}, lambda: orjson.dumps(body), "an id", time.perf_counter())
        request.auth = caller_of_token(self.api.key)
        request.respond_later = lambda request, respond: self.told.append(orjson.loads(respond().data))
        request.answer_again = partial(self.again.append, request)
        self.parts.append(spans.begin(request.started))
        return AUTHORIZE.post(request)


@pytest.fixture
def together(api) -> Together:
    """A check that is cached, and allowed."""
    store(api, PERMITTED)
    together = Together(api)
    assert together.ask().data and not together.told
    return together


def meanwhile(monkeypatch, *acts) -> list[object]:
    """Have other threads act while each confirming statement runs, in turn; return the states that statements found."""
    found, confirmed, left = [], views.confirmed, list(acts)

    def confirm(who):
        found.append(confirmed(who))
        if left:
            left.pop(0)()
        return found[-1]

    monkeypatch.setattr(views, "confirmed", confirm)
    return found


def test_those_that_come_while_a_statement_runs_share_the_next_one(together, monkeypatch):
    def two_more():
        assert [together.ask(), together.ask()] == [RESPONDS_LATER] * 2 and not together.told

    found = meanwhile(monkeypatch, two_more)
    assert together.ask() is RESPONDS_LATER
    assert together.told == [{"allowed": True}] * 3 and len(found) == 2 and not views._together


def test_the_time_until_another_thread_has_confirmed_an_answer_is_told(together, monkeypatch):
    monkeypatch.setattr(spans, "is_on", True)
    meanwhile(monkeypatch, together.ask)
    together.ask()
    (_, alone, other), facts = together.parts, {"of": "confirmation"}
    assert [name for name, *_ in alone] == ["statement", "kept", "decision"]
    assert [name for name, *_ in other] == ["statement", "wait", "kept", "decision"] and other[1][3] == facts
    assert 0 < other[0][2] < other[1][2] < other[1][1]


def test_no_one_is_told_what_was_so_before_it_asked(together, monkeypatch):
    def revoke_and_ask():
        remove(together.api, PERMITTED)
        together.ask()

    meanwhile(monkeypatch, revoke_and_ask)
    together.ask()
    assert together.told == [{"allowed": True}]  # to the first one, which asked before
    assert len(together.again) == 1 and not views._together


@pytest.mark.parametrize("error", [OperationalError(), KeyRefused(), QueryTooSlow(1.0)], ids=repr)
def test_what_fails_is_answered_again_by_each_itself(together, monkeypatch, error):
    def fail(who):
        if not together.again:
            together.ask()
        raise error

    monkeypatch.setattr(views, "confirmed", fail)
    assert together.ask() is RESPONDS_LATER
    assert not together.told and not views._together
    assert len({id(request) for request in together.again}) == len(together.again) == 2


def test_a_thread_confirms_answers_of_others_for_a_while_only(together, monkeypatch):
    monkeypatch.setattr(views, "_LONGEST", 0.0)
    assert together.ask() is RESPONDS_LATER and len(together.again) == 1 and not views._together


def test_so_many_wait_for_one_statement_and_no_more(together, monkeypatch):
    monkeypatch.setattr(views, "_MOST_TOGETHER", 1)
    answers = []
    meanwhile(monkeypatch, lambda: answers.extend([together.ask(), together.ask()]))
    together.ask()
    assert answers[0] is RESPONDS_LATER and orjson.loads(answers[1].data) == {"allowed": True}
    assert len(together.told) == 2


def test_a_server_tells_nobody_what_a_change_before_the_request_made_untrue(services):
    """The same check by eight clients, while a ninth one revokes and grants."""
    client = services("postgresql").fresh_client()
    assert client.post("/policy", {"src": READERS}).status_code == 200
    known: list[tuple[float, float, bool]] = []  # from when to when nothing changed, and whether it was granted
    is_over, question = Event(), orjson.dumps(ANN_READS)

    def ask() -> list[tuple[float, float, bool]]:
        heard = []
        with closing(HTTPConnection(client.origin.removeprefix("http://"))) as kept_open:
            while not is_over.is_set():
                began = time.perf_counter()
                kept_open.request("POST", "/api/authorize", question, {"Authorization": f"Bearer {client.key}"})
                said = orjson.loads(kept_open.getresponse().read())["allowed"]
                heard.append((began, time.perf_counter(), said))
        return heard

    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(ask) for _ in range(8)]
        for turn in range(40):
            change = "deletes" if turn % 2 else "inserts"
            assert client.post("/batch", [{change: [READER]}]).status_code == 200
            began = time.perf_counter()
            time.sleep(0.03)
            known.append((began, time.perf_counter(), change == "inserts"))
        is_over.set()
        heard = [each for future in asking for each in future.result()]
    sure = [
        (said, is_so)
        for since, until, is_so in known
        for began, ended, said in heard
        if since <= began and ended <= until
    ]
    assert {said for said, _ in sure} == {True, False} and all(said == is_so for said, is_so in sure)
