"""The service over servers that Patroni switches; `python -m tests.faults.patroni` does it 80 times."""

import os

import pytest
import yaml

from tests.faults import patroni
from tests.faults.consistency import recorded
from tests.faults.patroni import DEPLOY, LEASE, Timed, pauses

COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


@pytest.mark.long
def test_a_primary_that_freezes_is_replaced():
    """When it wakes up, it still has the connections of the service."""
    if missing := patroni.missing_programs():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"not installed: {missing}")
    fault = Timed(patroni.freeze)
    with patroni.patroni() as servers, patroni.place(servers) as where:
        found = recorded(where, [fault], seed=1, calm=1.0, pace=0.1)
    assert (found.problems, found.refused) == ([], [])
    assert sum(bool(each.changes) and each.is_acknowledged for each in found.history) > 10
    (pause,) = pauses(found, fault.times)
    assert pause < 3 * LEASE


def test_the_containers_fit_together():
    services = COMPOSE["services"]
    files = {name: DEPLOY / each["file"] for name, each in COMPOSE["configs"].items()}
    assert all(path.exists() for path in files.values())
    for name, service in services.items():
        assert {each["source"] for each in service.get("configs", ())} <= set(files)
        for volume in service.get("volumes", ()):
            assert volume.split(":")[0] in COMPOSE["volumes"]
        hosts = service["environment"].get("PATRONI_ETCD3_HOSTS", "")
        assert all(host.split(":")[0] in services for host in hosts.split(",") if host), name
    hosts = services["authz1"]["environment"]["DATABASE_URL"].rpartition("@")[2].removesuffix("/authz")
    assert set(hosts.split(",")) == {name for name in services if name.startswith("db")}
    targets = {each["target"] for each in services["db1"]["configs"]}
    assert yaml.safe_load(files["patroni"].read_text())["bootstrap"]["post_init"].split()[-1] in targets


def test_patroni_accepts_its_times():
    """By its own rule; otherwise, it changes them."""
    times = yaml.safe_load((DEPLOY / "patroni.yml").read_text())["bootstrap"]["dcs"]
    assert times["loop_wait"] + 2 * times["retry_timeout"] <= times["ttl"]
