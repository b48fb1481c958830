"""What is committed counts for the next question, of whichever process; and an answer is of one moment."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event

import pytest
from django.db import connection, transaction

from authz_project.keys import revoke_key
from authz_project.models import ApiKey
from checks.asking import ask
from checks.asking.ask import Trusted
from checks.asking.question import Asked, allow
from facts import store as facts_store
from facts.accept import HEADER
from facts.models import Signature
from facts.store import Deletes, Inserts
from facts.wire import fact_from_json, pattern_from_json
from policy.core.journal import advance
from policy.models import Environment, PolicyVersion
from tests.checks.conftest import about, fact, publish, remove, store, value
from tests.contract import ASKED

READERS = 'actor User {} resource Doc { roles = ["reader", "writer"]; permissions = ["read"]; "read" if "reader"; }'
WRITERS = 'actor User {} resource Doc { roles = ["reader", "writer"]; permissions = ["read"]; "read" if "writer"; }'
ANN_READS = about("User:ann", "Doc:d", action="read")


def allowed(api) -> bool:
    return api.post("/authorize", ANN_READS).json()["allowed"]


def swap_elsewhere(environment: Environment, text: str) -> None:
    """The policy as another process changes it: without a word to this one."""
    number = environment.policy_versions.count() + 1
    version = PolicyVersion.objects.create(environment=environment, number=number, source=text, digest=str(number))
    Environment.objects.filter(pk=environment.pk).update(policy_version=version)


# ---- the next question --------------------------------------------------------------------------------------------


def test_facts_count_from_the_next_question_on(api):
    publish(api, READERS)
    for _ in range(3):
        assert not allowed(api)
        store(api, fact("has_role", "User:ann", "reader", "Doc:d"))
        assert allowed(api)
        remove(api, fact("has_role", "User:ann", "reader", "Doc:d"))
    store(api, fact("has_role", "User:ann", "reader", "Doc:d"))
    assert api.post("/clear_data").status_code == 200
    assert not allowed(api)


def test_a_first_fact_of_its_kind_counts_for_a_question_asked_before(api):
    publish(api, READERS)
    assert not allowed(api)
    store(api, fact("allow", "User:ann", "read", "Doc:d"))
    assert allowed(api)


def test_a_kind_of_fact_that_was_taken_back_leaves_nothing_behind(api):
    publish(api, f"actor Robot {{}} {READERS}")
    store(api, fact("allow", "User:bob", "read", "Doc:d"), fact("has_permission", "User:bob", "read", "Doc:d"))
    assert not allowed(api)
    with suppress(RuntimeError), transaction.atomic():
        store(api, fact("has_role", "User:ann", "reader", "Doc:d"))
        assert allowed(api)
        raise RuntimeError
    store(api, fact("has_role", "Robot:ann", "reader", "Doc:d"))  # perhaps with the number that was taken back
    assert not allowed(api)
    store(api, fact("has_role", "User:ann", "reader", "Doc:d"))
    assert allowed(api)


def test_a_first_fact_of_its_kind_counts_for_every_question_asked_before(api):
    publish(api, READERS)
    body = about("User:ann", action="read", resource_type="Doc", page_size=10000)
    context = [fact("has_role", "User:ann", "writer", "Doc:c"), fact("has_permission", "User:ann", "read", "Doc:c")]
    for kind in ("has_role", "has_permission", "allow"):
        before = api.post("/list", {**body, "context_facts": context}).json()["results"]
        name = "reader" if kind == "has_role" else "read"
        store(api, fact(kind, "User:ann", name, f"Doc:{kind}"))
        assert api.post("/list", {**body, "context_facts": context}).json()["results"] == sorted([*before, kind])
        assert api.post("/actions", about("User:ann", f"Doc:{kind}")).json() == {"results": ["read"]}


def test_questions_write_nothing_and_wait_for_no_writer(api):
    publish(api, READERS)
    with transaction.atomic(), ThreadPoolExecutor(1) as other:
        advance(api.environment.pk)  # the lock that every writer takes first

        def ask() -> list:
            try:
                context = [fact("has_role", "User:ann", "reader", "Doc:d")]
                return [allowed(api), api.post("/authorize", {**ANN_READS, "context_facts": context}).json()["allowed"]]
            finally:
                connection.close()

        assert other.submit(ask).result() == [False, True]
    assert Signature.objects.count() == 0


def test_a_policy_counts_from_the_next_question_on(api):
    store(api, fact("has_role", "User:ann", "reader", "Doc:d"))
    assert not allowed(api)
    for _ in range(3):
        publish(api, READERS)
        assert allowed(api)
        publish(api, WRITERS)
        assert not allowed(api)


def test_a_policy_that_another_process_publishes_counts_at_once(api):
    publish(api, READERS)
    store(api, fact("has_role", "User:ann", "reader", "Doc:d"))
    for _ in range(3):
        assert allowed(api)
        swap_elsewhere(api.environment, WRITERS)
        assert not allowed(api)
        swap_elsewhere(api.environment, READERS)


@pytest.mark.parametrize("is_strict", [False, True])
def test_what_a_policy_has_no_use_for_is_useless_only_while_it_is_active(api, settings, is_strict):
    settings.STRICT_FACTS = is_strict
    publish(api, READERS)
    question = {**ANN_READS, "context_facts": [fact("is_open", "Doc:d")]}
    useless = api.post("/authorize", question)
    assert (useless.status_code, HEADER in useless) == ((400, False) if is_strict else (200, True))
    assert useless.json() != {"allowed": True}
    swap_elsewhere(api.environment, READERS.replace('"read" if "reader";', '"read" if is_open(resource);'))
    useful = api.post("/authorize", question)
    assert (useful.json(), HEADER in useful) == ({"allowed": True}, False)


def test_environments_do_not_see_each_other(new_api):
    first, second = new_api("first"), new_api("second")
    publish(first, READERS)
    publish(second, WRITERS)
    for api in (first, second):
        store(api, fact("has_role", "User:ann", "reader", "Doc:d"))
    assert (allowed(first), allowed(second)) == (True, False)
    store(second, fact("has_role", "User:ann", "writer", "Doc:d"))
    remove(first, fact("has_role", "User:ann", "reader", "Doc:d"))
    assert (allowed(first), allowed(second)) == (False, True)


# ---- keys ------------------------------------------------------------------------------------------------------------

QUESTIONS = [
    *ASKED.items(),
    ("/authorize", {}),
    ("/list", about("User:ann", action="read", resource_type="Doc", page_token="x")),
    ("/authorize_resources", about("User:ann", action="read", resources=[])),
    ("/authorize_each", {"checks": []}),
    ("/query", {"fact": {"predicate": "alow", "args": [None]}}),
    ("/bulk_actions", []),
    ("/expect", {"request_id": "x", "expected": True}),
]


def test_a_revoked_key_is_refused_at_once_by_every_question(api):
    publish(api, READERS)
    for path, body in QUESTIONS:
        assert api.post(path, body).status_code in (200, 400), path
    revoke_key(ApiKey.objects.get(environment=api.environment))
    for path, body in QUESTIONS:
        answer = api.post(path, body)
        assert (answer.status_code, set(answer.json())) == (401, {"message"}), path


def test_an_expired_key_is_refused_at_once(api):
    publish(api, READERS)
    assert api.post("/authorize", ANN_READS).status_code == 200
    ApiKey.objects.filter(environment=api.environment).update(expires_at="2000-01-01T00:00:00Z")
    assert api.post("/authorize", ANN_READS).status_code == 401


def test_a_key_that_opens_another_environment_now_is_not_answered_from_the_old_one(new_api):
    first, second = new_api("first"), new_api("second")
    store(first, fact("has_permission", "User:ann", "read", "Doc:d"))
    assert allowed(first)
    ApiKey.objects.filter(environment=first.environment).update(environment=second.environment)
    answer = first.post("/authorize", ANN_READS)
    assert answer.status_code == 401 or not answer.json()["allowed"]


def test_what_is_asked_from_inside_confirms_no_key_and_makes_none_good(api):
    publish(api, READERS)
    question = allow(Asked("User", ("ann",)), Asked("String", ("read",)), Asked("Doc", ("d",)))
    store(api, fact("has_role", "User:ann", "reader", "Doc:d"))
    inside = Trusted(api.environment.pk)
    assert ask.answer(inside, question).holds
    revoke_key(ApiKey.objects.get(environment=api.environment))
    assert api.post("/authorize", ANN_READS).status_code == 401
    assert ask.answer(inside, question).holds


def test_a_key_that_opens_another_environment_now_explains_nothing_of_the_old_one(new_api):
    first, second = new_api("first"), new_api("second")
    store(first, fact("has_permission", "User:ann", "read", "Doc:d"))
    assert allowed(first)
    ApiKey.objects.filter(environment=first.environment).update(environment=second.environment)
    assert first.post("/explain", ANN_READS).status_code == 401
    assert first.post("/explain", ANN_READS).json()["allowed"] is False


def test_what_many_ask_after_a_first_fact_of_its_kind_is_compiled_once(api, monkeypatch):
    publish(api, READERS)
    assert not allowed(api)
    store(api, fact("has_role", "User:ann", "reader", "Doc:d"))
    made, compiled = [], ask.compiled
    monkeypatch.setattr(ask, "compiled", lambda *args: made.append(args) or compiled(*args))

    def answer() -> bool:
        try:
            return allowed(api)
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        asked = [threads.submit(answer) for _ in range(12)]
        assert all(each.result() for each in asked)
    assert len(made) == 1


# ---- one moment ------------------------------------------------------------------------------------------------

ANYTHING_ALLOWED = {
    "predicate": ["allow", ["user", "action", "doc"]],
    "constraints": {"user": {"type": "User"}, "action": {"type": "String"}, "doc": {"type": "Doc"}},
}


@pytest.mark.parametrize("path", ["/list", "/actions", "/authorize_resources", "/evaluate_query"])
def test_policy_and_facts_that_change_together_are_never_mixed(api, path):
    """Readers with the fact of a reader, or writers with the fact of a writer: other pairs allow nothing."""
    question = {
        "/list": about("User:ann", action="read", resource_type="Doc", page_size=10000),
        "/actions": about("User:ann", "Doc:d"),
        "/authorize_resources": about("User:ann", action="read", resources=[value("Doc:d")]),
        "/evaluate_query": ANYTHING_ALLOWED,
    }[path]  # fmt: skip
    versions = []
    for text in (READERS, WRITERS):
        publish(api, text)
        versions.append(Environment.objects.get(pk=api.environment.pk).policy_version)
        api.post(path, question)
    roles = [fact("has_role", "User:ann", role, "Doc:d") for role in ("reader", "writer")]
    store(api, roles[1])
    done, asked = Event(), []

    def ask() -> None:
        try:
            while not done.is_set():
                asked.append(len(api.post(path, question).json()["results"]))
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(ask) for _ in range(2)]
        until = time.monotonic() + 1.0
        turn = 0
        while time.monotonic() < until:
            change_together(api.environment, versions[turn], roles[turn], roles[1 - turn])
            turn = 1 - turn
        done.set()
        for each in running:
            each.result()
    assert len(asked) > 10 and set(asked) == {1}


def change_together(environment: Environment, version: PolicyVersion, new: dict, old: dict) -> None:
    with transaction.atomic():
        advance(environment.pk)
        changes = [Deletes([pattern_from_json(old, "")]), Inserts([fact_from_json(new, "")])]
        facts_store.apply(environment.pk, changes)
        Environment.objects.filter(pk=environment.pk).update(policy_version=version)
