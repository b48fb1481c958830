"""Which arguments lead to few facts, as counted from time to time; plans read those facts first."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, connection

from checks.asking import ask
from facts import numbering
from facts.models import Signature
from facts.numbering import NARROW
from tests.checks.conftest import about, fact, publish, remove, store
from tests.facts.test_together import LATER, doing, somebody_waits
from tests.waiting import wait_for

TEAMS = """
actor User {}
actor Team {}
resource Folder {
  roles = ["viewer"];
  permissions = ["read"];
  relations = { parent: Folder };
  "read" if "viewer";
  role if role on "parent";
}
has_team(x: User, outer: Team) if inner matches Team and has_team(x, inner) and has_team(inner, outer);
has_team(x: Team, outer: Team) if inner matches Team and has_team(x, inner) and has_team(inner, outer);
has_role(user: User, role: String, folder: Folder) if
  team matches Team and has_team(user, team) and has_role(team, role, folder);
"""
REPOS = """
resource Organization { roles = ["member"]; }
resource Repo {
  roles = ["reader", "writer"];
  permissions = ["read"];
  relations = { organization: Organization };
  "read" if "reader";
  "reader" if "writer";
  "reader" if "member" on "organization";
}
has_role(user: User, role: String, repo: Repo) if
  team matches Team and has_team(user, team) and has_role(team, role, repo);
"""
ASKED = about("User:ann", "Folder:leaf", action="read")
GRANT = fact("has_role", "Team:everyone", "viewer", "Folder:root")


@pytest.fixture(autouse=True)
def not_counted(monkeypatch):
    monkeypatch.setattr(numbering, "_counted", {})


@pytest.fixture
def teams(api):
    publish(api, TEAMS)
    store(api, fact("has_team", "User:ann", "Team:dev"), fact("has_team", "Team:dev", "Team:everyone"))
    store(api, fact("has_relation", "Folder:leaf", "parent", "Folder:root"), GRANT)
    return api


def narrow(api) -> dict[str, int]:
    found = Signature.objects.filter(environment=api.environment)
    return {f"{each.predicate}{each.types}": each.narrow for each in found}


def allowed(api) -> bool:
    return api.post("/authorize", ASKED).json()["allowed"]


def test_arguments_whose_values_are_in_few_facts_are_narrow(teams):
    store(teams, *[fact("has_role", f"Team:t{n}", "viewer", "Folder:root") for n in range(NARROW - 1)])
    store(teams, *[fact("has_team", f"User:u{n}", "Team:dev") for n in range(NARROW)])
    numbering.count_all()
    assert narrow(teams) == {
        'has_team["User","Team"]': 0b01,
        'has_team["Team","Team"]': 0b11,
        'has_relation["Folder","String","Folder"]': 0b101,
        'has_role["Team","String","Folder"]': 0b101,
    }
    store(teams, fact("has_role", "Team:one-more", "viewer", "Folder:root"))
    numbering._counted.clear()
    numbering.count_all()
    assert narrow(teams)['has_role["Team","String","Folder"]'] == 0b001


def test_statements_are_planned_anew_once_it_changes_and_answer_the_same(teams, monkeypatch):
    made = []
    compiled = ask.compiled
    monkeypatch.setattr(ask, "compiled", lambda *args: made.append(found := compiled(*args)) or found)
    assert allowed(teams) and len(made) == 1
    for _ in range(2):
        numbering._counted.clear()
        numbering.count_all()
        store(teams, fact("has_team", "User:ben", "Team:dev"))  # so that answers are not repeated
        assert allowed(teams) and len(made) == 2
        remove(teams, fact("has_team", "User:ben", "Team:dev"))
    assert str(made[0].roots[0]) != str(made[1].roots[0])
    remove(teams, GRANT)
    assert not allowed(teams)


def test_postgresql_looks_teams_of_a_resource_up_among_those_of_the_user(api, monkeypatch):
    publish(api, TEAMS + REPOS)
    store(api, fact("has_team", "User:ann", "Team:dev"), fact("has_team", "Team:dev", "Team:all"))
    store(api, *(fact("has_role", f"Team:{name}", "writer", f"Repo:{name}") for name in ("dev", "all", "far")))
    store(api, fact("has_relation", "Repo:other", "organization", "Organization:acme"))
    made = []
    compiled = ask.compiled
    monkeypatch.setattr(ask, "compiled", lambda *args: made.append(found := compiled(*args)) or found)
    for _ in range(2):
        asked = [about("User:ann", f"Repo:{name}", action="read") for name in ("dev", "all", "far", "other")]
        found = [api.post("/authorize", each).json()["allowed"] for each in asked]
        assert found == [True, True, False, False]
        numbering.count_all()
        store(api, fact("has_team", "User:ben", "Team:dev"))
    before, after = (str(each.roots[0]) for each in made)
    assert ("stored has_team(User, Team); s" in before) and (before != after) == (connection.vendor == "postgresql")


def test_it_is_counted_only_where_facts_changed_and_seldom_where_that_takes_long(teams, monkeypatch):
    counted, clock = [], [100.0]
    monkeypatch.setattr(numbering, "count_narrow", lambda environment: counted.append(clock.append(clock[-1] + 2.0)))
    monkeypatch.setattr(numbering.time, "monotonic", lambda: clock[-1])
    numbering.count_all()
    numbering.count_all()
    assert len(counted) == 1
    remove(teams, GRANT)
    numbering.count_all()
    assert len(counted) == 1
    clock.append(clock[-1] + 2.0 * numbering.SELDOM)
    numbering.count_all()
    assert len(counted) == 2


def test_an_argument_that_takes_too_long_to_count_is_not_narrow(teams, monkeypatch):
    def slow(*_: object) -> None:
        raise OperationalError("canceling statement due to statement timeout")

    fetch = numbering.fetch
    monkeypatch.setattr(numbering, "fetch", lambda sql, *given: slow() if "HAVING" in sql else fetch(sql, *given))
    numbering.count_all()
    assert set(narrow(teams).values()) == {0}


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_counting_waits_for_a_writer_that_stores_the_first_expiry_of_what_is_counted(teams):
    def count() -> None:
        try:
            numbering.count_all()
        finally:
            connection.close()

    def store_ending() -> None:
        store(teams, GRANT | {"expires_at": LATER})

    with ThreadPoolExecutor(1) as pool:
        with doing(teams.environment.pk, store_ending):
            counting = pool.submit(count)
            wait_for(somebody_waits)
        counting.result(30)
    assert set(narrow(teams).values()) != {0}
    assert Signature.objects.filter(environment=teams.environment, may_end=True).count() == 1
