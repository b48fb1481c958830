"""The simulation of `scale` loses nothing, and gives the same figures again; the document has what the model says."""

import pytest

from tests.benchmarks import scale
from tests.service import ROOT


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(scale, "DAYS", 5)
    monkeypatch.setattr(scale, "SERVERS", (3, 30))


def test_the_same_seed_gives_the_same_figures(short):
    figures = list(scale.spread(300, 0.8, 1))
    assert list(scale.spread(300, 0.8, 1)) == figures
    assert list(scale.spread(300, 0.8, 2)) != figures


@pytest.mark.parametrize("servers", [1, 3, 30])
def test_what_moves_is_conserved(servers):
    tenants = scale.Tenants(servers, 300, 0.8, 1)
    for _ in range(20):
        tenants.day()
        before = {tenant: facts for each in tenants.servers for tenant, facts in each.items()}
        tenants.balance()
        after = [(tenant, facts) for each in tenants.servers for tenant, facts in each.items()]
        assert sorted(after) == sorted(before.items()), "each tenant is on one server, with all of its facts"
        assert tenants.full == [sum(each.values()) for each in tenants.servers]
        assert all(tenant in tenants.servers[server] for tenant, server in tenants.place.items())
    assert (tenants.moves > 0) == (servers > 3)


def test_moves_make_the_fullest_less_full():
    tenants = scale.Tenants(3, 300, 0.8, 1)
    for tenant in list(tenants.servers[1]):
        tenants.move(tenant, 0)
    assert tenants.fullest() > 1.9
    tenants.balance()
    assert tenants.fullest() <= scale.ROOM


def test_the_document_has_the_figures_of_the_model():
    text = (ROOT / "authz_project" / "docs" / "scale.md").read_text()
    assert "\n".join(scale.model()) in text
