"""Every process answers by the policy that is active when it is asked."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.sampling import some
from tests.service import start_service

WORKERS = 3


@pytest.fixture(scope="module", params=some(("sqlite", "postgresql"), 2))
def several(request, migrated_urls, tmp_path_factory):
    """A service of several processes."""
    folder, url = tmp_path_factory.mktemp("several"), migrated_urls(request.param, "several")
    running = start_service(folder, url, "--dev", "--workers", str(WORKERS), SECRET_KEY="only for these tests " * 3)
    yield running
    running.stop()


def policy(name: str) -> str:
    return f'actor User {{}}\nresource Folder {{ permissions = ["{name}"]; }}\n'


def test_a_new_policy_holds_in_every_process_at_once(several):
    client = several.fresh_client()

    def permissions(_) -> list[str]:
        return client.get("/policy_metadata").json()["metadata"]["resources"]["Folder"]["permissions"]

    with ThreadPoolExecutor(8) as pool:
        for turn in range(4):
            assert client.post("/policy", {"src": policy(f"p{turn}")}).status_code == 200
            assert list(pool.map(permissions, range(24))) == [[f"p{turn}"]] * 24


def test_facts_are_checked_by_the_newest_policy_in_every_process(several):
    client = several.fresh_client()
    fact = {"predicate": "likes", "args": [{"type": "User", "id": "ann"}, {"type": "Folder", "id": "f"}]}

    def insert(_) -> int:
        return client.post("/facts", fact).status_code

    with ThreadPoolExecutor(8) as pool:
        for turn in range(2):
            client.post("/policy", {"src": policy(f"p{turn}")})
            assert set(pool.map(insert, range(16))) == {400}
            client.post("/policy", {"src": policy(f"p{turn}") + "declare likes(User, Folder);\n"})
            assert set(pool.map(insert, range(16))) == {200}
