"""`ask_local authorize --explain`: decisions over the rows of a caller's database, explained."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command

from localsql.management.commands import ask_local
from policy.publishing import publish

POLICY = """
actor User {}
resource Org { roles = ["member", "owner"]; "member" if "owner"; }
resource Project { permissions = ["read"]; relations = { org: Org }; "read" if "member" on "org"; }
has_permission(_: User, "read", p: Project) if is_public(p) and not is_closed(p);
has_permission(_: User, "read", _: Project) if is_holiday(Org{"acme"});
"""
SCRIPT = """
DROP TABLE IF EXISTS project;
CREATE TABLE project (id varchar(20), org varchar(20), state varchar(20));
INSERT INTO project VALUES ('p', 'acme', 'open%'), ('q', NULL, 'public'), ('r', 'bank', 'public closed'),
    ('s', 'bank', NULL), ('t', '', NULL);
"""
BINDINGS = """
dialect: {dialect}
facts:
  has_role(User:_, String:_, Org:_): {{query: "SELECT who, role, org FROM staff"}}
  has_relation(Project:_, org, Org:_): {{query: "SELECT id, org FROM project"}}
  is_public(Project:_): {{query: "SELECT id FROM project WHERE state LIKE 'public%'"}}
  is_holiday(Org:acme): {{query: "SELECT state FROM project WHERE id = 's'"}}
  is_closed(Project:_): {{query: "SELECT id FROM project WHERE state LIKE '%closed'"}}
"""
pytestmark = pytest.mark.one_database


@pytest.fixture(params=["sqlite", "postgres", "mysql"])
def explained(request, environment, staff_of, tmp_path):
    publish(environment.pk, POLICY, "main.polar")
    staff = staff_of(request.param)
    staff.execute(SCRIPT)
    staff.fill([("ann", "owner", "acme"), ("ben", "member", "bank"), ("cat", None, "bank"), ("dan", "owner", "")])
    file = tmp_path / "bindings.yaml"
    file.write_text(BINDINGS.format(dialect=request.param))

    def explain(actor: str, resource: str, *more: str, action: str = "read", status: int = 0) -> str:
        out = io.StringIO()
        words = [actor, action, resource, "--explain", "--bindings", str(file), *more]
        command = ask_local.Command()
        call_command(command, "authorize", *words, "--database", staff.connection_string, stdout=out)
        assert command.status == status
        return out.getvalue()

    return explain


def test_what_rows_allow_is_proved(explained):
    told = explained("User:ann", "Project:p")
    assert told.startswith("allowed ")
    assert 'has_role(User:ann, "owner", Org:acme)  row or context fact' in told
    assert 'has_relation(Project:p, "org", Org:acme)  row or context fact' in told
    assert explained("User:ann", "Project:q").startswith("allowed ")


def test_what_rows_lack_is_told(explained):
    told = explained("User:ben", "Project:p", status=1)
    assert told.startswith("denied ")
    assert 'has_relation(Project:p, "org", Org:acme)' in told and 'has_role(User:ben, "owner", Org:acme)' in told
    told = explained("User:ann", "Project:r", status=1)
    assert told.startswith("denied ") and "is_closed(Project:r)  the negated condition holds" in told


def test_a_row_with_null_is_no_fact(explained):
    assert explained("User:ann", "Project:s", status=1).startswith("denied ")


def test_a_row_with_an_empty_text_is_no_fact(explained):
    assert explained("User:dan", "Project:t", status=1).startswith("denied ")


def test_unknown_words_are_told(explained):
    told = explained("User:ann", "Project:p", action="raed", status=2)
    assert told.startswith("denied ") and "did you mean `read`?" in told


def test_context_facts_count_as_well(explained):
    told = explained("User:ben", "Project:p", "--context", 'has_role(User:ben, "member", Org:acme)')
    assert told.startswith("allowed ")


def test_an_explanation_that_differs_from_the_decision_is_refused(explained, monkeypatch):
    monkeypatch.setattr(ask_local, "MOST_ROWS", 1)
    with pytest.raises(CommandError, match="cannot be explained by the 1 rows"):
        explained("User:ann", "Project:p")


def test_it_needs_bindings_and_a_database(environment):
    with pytest.raises(CommandError, match="needs --bindings FILE and --database URL"):
        call_command("ask_local", "authorize", "User:a", "read", "Project:p", "--explain")
