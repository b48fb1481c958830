import os

import pytest
from django.db import connections
from pytest_django.plugin import blocking_manager_key

from authz_project.keys import create_key
from tests.conftest import Api, _empty
from tests.contract import SOURCE
from tests.factories import EnvironmentFactory
from tests.replicas import cluster as replicated
from tests.replicas.cluster import Cluster, connected, is_used, resume, wait_for

POLICY = """
actor User {}
resource Doc { permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }
"""


@pytest.fixture(scope="session")
def cluster(request):
    """One of the run. Who breaks it makes one of their own."""
    found = replicated.cluster()
    if found is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("no PostgreSQL can be started here")
    blocker = request.config.stash[blocking_manager_key]
    with blocker.unblock(), connected((found.url, found.replica_urls), migrate=True):
        pass
    yield found
    found.stop()


@pytest.fixture
def watching(request, cluster: Cluster):
    """This process, connected to the servers; the value is its `Watch`."""
    blocker = request.config.stash[blocking_manager_key]
    with blocker.unblock(), connected((cluster.url, cluster.replica_urls)) as found:
        yield found
        for each in cluster.standbys:
            resume(each)
        _empty(connections["default"])


@pytest.fixture
def api(watching) -> Api:
    """Of an environment with a policy, whose questions replicas answer."""
    environment = EnvironmentFactory(slug="default")
    found = Api(environment, create_key(environment)[1])
    assert found.post("/policy", {"src": POLICY}).status_code == 200
    ready(found, watching)
    return found


@pytest.fixture(scope="module")
def cluster_api(request, cluster: Cluster):
    """The same for all tests of a file that change nothing, and its `Watch`."""
    blocker = request.config.stash[blocking_manager_key]
    with blocker.unblock(), connected((cluster.url, cluster.replica_urls)) as watching:
        environment = EnvironmentFactory(slug="shared")
        found = Api(environment, create_key(environment)[1])
        assert found.post("/policy", {"src": POLICY + SOURCE.removeprefix("actor User {}")}).status_code == 200
        ready(found, watching)
        yield found, watching
        _empty(connections["default"])


def ready(api: Api, watching) -> None:
    """Wait until both replicas answer this key's questions."""

    def is_answered_by_both() -> bool:
        api.post("/authorize", asked("nobody", "nothing"))
        return all(each.answers and is_used(each, watching) for each in watching.replicas)

    wait_for(is_answered_by_both, "both replicas answer")


def answers(watching) -> int:
    return sum(each.answers for each in watching.replicas)


def asked(actor: str, resource: str) -> dict:
    return {
        "actor_type": "User", "actor_id": actor, "action": "read", "resource_type": "Doc", "resource_id": resource,
    }  # fmt: skip


def role(actor: str, resource: str) -> dict:
    args = [{"type": "User", "id": actor}, {"type": "String", "id": "reader"}, {"type": "Doc", "id": resource}]
    return {"predicate": "has_role", "args": args}
