"""Questions in spaces, on real standbys: each has the tables of its space, and answers are no older than at home."""

import pytest
from django.db import connection

from authz_project import moving, spaces
from authz_project.environments import made_in
from authz_project.keys import create_key, revoke_key
from policy.core.spaces import HOME, close_others, entered
from tests.conftest import Api, _empty
from tests.replicas.cluster import pause, resume, wait_for
from tests.replicas.conftest import POLICY, answers, asked, ready
from tests.replicas.test_reading import may, others, patient, stored  # noqa: F401

SPACES = ("north", "south")


@pytest.fixture(scope="module")
def _created():
    return []


@pytest.fixture
def apis(api, watching, _created):
    """An environment at home, and one in each space, whose questions replicas answer."""
    spaces.directory.__init__()
    found = [api]
    for number, name in enumerate(SPACES, 1):
        if name in _created:
            spaces.Space.objects.create(name=name, number=number, is_ready=True)
        else:
            spaces.create(name)
            _created.append(name)
        environment = made_in(name, f"of{name}")
        with entered(name):
            found.append(Api(environment, create_key(environment)[1]))
        assert found[-1].post("/policy", {"src": POLICY}).status_code == 200
        ready_again(found[-1], watching)
    yield found
    spaces.directory.__init__()
    for name in SPACES:
        with entered(name):
            _empty(connection)
    close_others()


def ready_again(api: Api, watching) -> None:
    for each in watching.replicas:
        each.answers = 0
    ready(api, watching)


def test_replicas_answer_in_each_space(apis, watching):
    for number, api in enumerate(apis):
        stored(api, "ann", f"doc{number}")

    def replicas_answer_all() -> bool:
        before = answers(watching)
        for number, api in enumerate(apis):  # on the same connections
            found = [may(api, "ann", f"doc{each}") for each in range(len(apis))]
            assert found == [each == number for each in range(len(apis))]
        return answers(watching) == before + len(apis) ** 2

    for _ in range(4):
        wait_for(replicas_answer_all, "replicas answer")


def test_who_brings_a_position_reads_what_was_written_in_a_space(apis, watching, cluster, others, patient):  # noqa: F811
    for each in cluster.standbys:
        pause(each)
    for number in range(5):
        assert may(apis[1], "ann", f"d{number}", OsoOffset=stored(apis[1], "ann", f"d{number}"))


def test_what_others_change_in_a_space_counts_within_about_a_second(
    apis, watching, cluster, others, patient, monkeypatch  # noqa: F811
):  # fmt: skip
    for each in cluster.standbys:
        pause(each)
    stored(apis[1], "ann", "late")
    wait_for(lambda: may(apis[1], "ann", "late"), "the fact counts", within=5)
    with entered(SPACES[0]):
        revoke_key(apis[1].environment.api_keys.get())
    wait_for(
        lambda: apis[1].post("/authorize", asked("ann", "late")).status_code == 401, "the key is refused", within=5
    )
    assert not may(apis[2], "ann", "late")


def test_an_environment_that_moves_is_asked_where_it_is(apis, watching, cluster, patient):  # noqa: F811
    api = apis[1]
    position = stored(api, "ann", "a")
    for place in (SPACES[1], HOME, SPACES[0]):
        for each in cluster.standbys:
            pause(each)
        moving.move(f"of{SPACES[0]}", place)
        for _ in range(6):
            assert may(api, "ann", "a", OsoOffset=position)
            assert may(api, "ann", "a")
        for each in cluster.standbys:
            resume(each)
        ready_again(api, watching)
        position = stored(api, "ann", f"in {place}")
        assert may(api, "ann", f"in {place}", OsoOffset=position)


def test_a_space_that_is_gone_leaves_the_others_their_replicas(apis, watching):
    with entered(SPACES[1]), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE api_key RENAME TO no_api_key")
    try:
        wait_for(lambda: watching.known.position_of_key(_hash(apis[2])) is None, "its keys are unknown")
        ready_again(apis[1], watching)
        ready_again(apis[0], watching)
    finally:
        with entered(SPACES[1]), connection.cursor() as cursor:
            cursor.execute("ALTER TABLE no_api_key RENAME TO api_key")
    ready_again(apis[2], watching)


def _hash(api: Api) -> str:
    return spaces.hash_of(api.key)
