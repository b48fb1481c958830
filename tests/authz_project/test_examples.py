"""Each world is whole: its policy is tested, its facts are used, and its questions are answered as it says."""

import pytest

from authz_project.examples import NotEmpty, example_named, examples, load
from checks import testing
from facts import read, store
from facts.accept import unused_signatures
from facts.store import Inserts
from facts.wire import fact_to_json, pattern_from_text
from policy import rules
from policy.core.journal import By
from policy.errors import NotFound
from policy.models import Revision
from policy.publishing import active_version, publish
from tests.factories import EnvironmentFactory

pytestmark = pytest.mark.one_database

ANN = By("admin ann")
each_example = pytest.mark.parametrize("example", examples(), ids=lambda example: example.name)
first = examples()[0]


# ---- what they are ----------------------------------------------------------------------------------------------


def test_names_are_of_one_kind():
    names = [example.name for example in examples()]
    assert len(set(names)) == len(names)
    assert all(name.isascii() and name.isalpha() and name.islower() for name in names)


@each_example
def test_a_policy_is_tested_whole(db, example):
    program = rules.compile_text(example.policy, example.filename)
    assert testing.run(program).success
    assert [program.source.text[span.start : span.end] for span in _uncovered(program)] == []
    assert program.warnings == ()


def _uncovered(program):
    return testing.uncovered(program, testing.covered(program))


@each_example
def test_a_policy_explains_itself(example):
    lines = example.policy.splitlines()
    rules = lines[: next(number for number, line in enumerate(lines) if line.startswith("# ---- tests"))]
    assert sum(line.lstrip().startswith("#") for line in rules) > len(rules) / 8
    assert max(map(len, lines)) <= 120


@each_example
def test_a_world_is_as_full_as_is_told(example):
    assert 200 <= len(example.stored_facts) <= 5000
    assert len(example.facts) < 500_000
    assert 4 <= len(example.questions) <= 6
    assert example.title and example.about and example.patterns
    assert all(question.why for question in example.questions)


# ---- loading -----------------------------------------------------------------------------------------------------


@each_example
def test_an_example_is_loaded_once(db, example):
    environment = EnvironmentFactory()
    loaded = load(environment.pk, example, ANN)
    assert (loaded.policy_version, loaded.facts, loaded.is_unchanged) == (1, len(example.stored_facts), False)
    assert active_version(environment.pk).filename == f"{example.name}.polar"
    assert set(read.every(environment.pk)) == set(example.stored_facts)
    assert unused_signatures(environment.pk, rules.compile_text(example.policy)) == []
    assert set(Revision.objects.values_list("author", flat=True)) == {"admin ann"}
    revisions = Revision.objects.count()
    assert load(environment.pk, example, ANN).is_unchanged
    assert Revision.objects.count() == revisions


def test_an_environment_with_another_policy_is_left_alone(db):
    environment = EnvironmentFactory()
    publish(environment.pk, "actor User {}", None)
    with pytest.raises(NotEmpty, match=f"`{environment.slug}` is not empty: it has a policy, version 1"):
        load(environment.pk, first, ANN)
    assert active_version(environment.pk).source == "actor User {}"


def test_an_environment_with_facts_is_left_alone(db):
    environment = EnvironmentFactory()
    store.apply(environment.pk, [Inserts(first.stored_facts[:1])])
    with pytest.raises(NotEmpty, match="has facts"):
        load(environment.pk, first, ANN)
    assert active_version(environment.pk) is None


def test_an_example_that_was_worked_on_is_left_alone(db):
    environment = EnvironmentFactory()
    load(environment.pk, first, ANN)
    store.apply(environment.pk, [Inserts(example_named(first.name).stored_facts[:1])])
    assert load(environment.pk, first, ANN).is_unchanged
    other = first.stored_facts[-1]
    store.apply(environment.pk, [store.Deletes([pattern_from_text(str(other))])])
    with pytest.raises(NotEmpty, match="other facts than its own"):
        load(environment.pk, first, ANN)


def test_facts_that_did_not_follow_their_policy_follow_later(db):
    """As where the machine stopped between the two."""
    environment = EnvironmentFactory()
    publish(environment.pk, first.policy, first.filename)
    assert not load(environment.pk, first, ANN).is_unchanged
    assert set(read.every(environment.pk)) == set(first.stored_facts)


def test_an_unknown_example_says_which_there_are():
    with pytest.raises(NotFound, match=f"Example `{first.name}s` does not exist. Use one of .*{first.name}"):
        example_named(f"{first.name}s")


# ---- what is asked -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told(services):
    """A client of a running service that was given an example's policy and facts."""
    clients = {}

    def client_of(example):
        if example.name not in clients:
            client = clients[example.name] = services("sqlite").fresh_client()
            assert client.post("/policy", {"filename": example.filename, "src": example.policy}).status_code == 200
            facts = [fact_to_json(fact) for fact in example.stored_facts]
            assert client.post("/batch", [{"inserts": facts}]).status_code == 200
        return clients[example.name]

    return client_of


@each_example
def test_questions_are_answered_as_it_says(told, example):
    client = told(example)
    for question in example.questions:
        assert answered(client, question) == question.answer, str(question)


def answered(client, question):
    actor, resource = question.actor.partition(":"), question.resource.partition(":")
    said = {"actor_type": actor[0], "actor_id": actor[2], "action": question.action}
    said |= {"resource_type": resource[0], "resource_id": resource[2]}
    said = {name: text for name, text in said.items() if text} | {"page_size": 10_000}
    if question.kind == "authorize":
        return client.post("/authorize", said).json()["allowed"]
    if question.kind != "who":
        return sorted(client.post(f"/{question.kind}", said).json()["results"])
    return who(client, question)


def who(client, question):
    kind, _, text = question.resource.partition(":")
    constraints = {
        "who": {"type": question.actor, "ids": None},
        "does": {"type": "String", "ids": [question.action]},
        "it": {"type": kind, "ids": [text]},
    }
    call = ["allow", ["who", "does", "it"]]
    query = {"predicate": call, "calls": [], "constraints": constraints, "context_facts": []}
    return sorted(row["who"] for row in client.post("/evaluate_query", query).json()["results"])
