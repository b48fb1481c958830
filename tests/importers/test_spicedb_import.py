"""`import_model spicedb`: from files to a policy, facts and answers."""

import io
import math
import re
from pathlib import Path

import orjson
import pytest
from django.core.management import CommandError, call_command

from checks.testing import run
from policy.rules import compile_text
from tests.importers import spicedb_suite
from tests.importers.random_schemas import validation_file
from tests.samples import DOCS

pytestmark = pytest.mark.one_database

SAMPLES = sorted((Path(__file__).parent / "spicedb_samples").glob("*.yaml"))


@pytest.fixture
def imported(tmp_path):
    """Runs the command over a schema and others; what it printed."""

    def imported(schema: str, *others: str, name: str = "schema.zed", **options) -> str:
        (tmp_path / name).write_text(schema)
        paths = [tmp_path / name]
        for number, text in enumerate(others):
            suffix = "yaml" if text.startswith("assertions") else "txt"
            paths.append(tmp_path / f"other{number}.{suffix}")
            paths[-1].write_text(text)
        out, err = io.StringIO(), io.StringIO()
        imported.said = err
        call_command("import_model", "spicedb", *map(str, paths), stdout=out, stderr=err, **options)
        return out.getvalue()

    def said() -> list[str]:
        return imported.said.getvalue().replace(f"{tmp_path}/", "").splitlines()

    imported.lines = said
    return imported


# ---- the samples ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_becomes_a_policy_to_read(sample, tmp_path, db, rewrite):
    files = {".polar": tmp_path / "policy.polar", ".facts": tmp_path / "facts.txt"}
    call_command(
        "import_model", "spicedb", str(sample), policy=str(files[".polar"]), facts=str(files[".facts"]),
        stdout=io.StringIO(), stderr=io.StringIO(),
    )  # fmt: skip
    for suffix, file in files.items():
        if rewrite:
            sample.with_suffix(suffix).write_text(file.read_text())
        assert file.read_text() == sample.with_suffix(suffix).read_text(), "see --rewrite"
    program = compile_text(files[".polar"].read_text())
    assert not program.warnings
    report = run(program)
    assert report.tests
    assert report.success, report.errors


# On one kind of database: that engines say the same on both is held elsewhere, by every kind of question.
on_sqlite = pytest.mark.parametrize("db", ["sqlite"], indirect=True)


@pytest.fixture
def unhurried(monkeypatch):
    """Tests of policies take as long as they take: a busy machine is no mistake of theirs."""
    monkeypatch.setattr("checks.asking.snapshot.FACTS_ALONE_TIME_LIMIT", math.inf)


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_all_that_can_be_asked_of_a_sample_is_answered_as_it_means(sample, tmp_path, db, unhurried):
    """Every subject, relation and object, with each context that the sample mentions."""
    outcome = spicedb_suite.carried(sample, tmp_path)
    assert not outcome.wrong + outcome.lacking
    assert outcome.right > 500


@pytest.mark.long
@on_sqlite
@pytest.mark.parametrize("seed", range(5))
def test_random_schemas_are_answered_as_they_mean(seed, tmp_path, db, unhurried):
    (tmp_path / "random.yaml").write_text(validation_file(seed))
    outcome = spicedb_suite.carried(tmp_path / "random.yaml", tmp_path)
    assert not outcome.wrong
    assert outcome.right > 200


# ---- where it goes --------------------------------------------------------------------------------------------------

SCHEMA = """
use expiration
definition user {}
caveat after(now timestamp, from timestamp) { now >= from }
definition doc {
  relation owner: user | user with expiration | user with after
  permission view = owner
}
"""
RELATIONSHIPS = """
doc:1#owner@user:ann
doc:1#owner@user:bob[expiration:2199-01-01T00:00:00Z]
doc:1#owner@user:past[expiration:2020-01-01T00:00:00Z]
doc:1#owner@user:cat[after:{"from": "2020-01-01T00:00:00Z"}]
"""


def test_it_loads_policy_and_facts_into_an_environment(imported, api):
    imported(SCHEMA, RELATIONSHIPS, load=True, environment=api.environment.slug)

    def allowed(user: str, *context: dict) -> bool:
        asked = {"actor_type": "user", "actor_id": user, "action": "view", "resource_type": "doc", "resource_id": "1"}
        return api.post("/authorize", {**asked, "context_facts": list(context)}).json()["allowed"]

    now = {"predicate": "context", "args": [{"type": "String", "id": "now"}, {"type": "Integer", "id": "1800000000"}]}
    assert allowed("ann")
    assert allowed("bob")
    assert not allowed("past")
    assert not allowed("cat")
    assert allowed("cat", now)


def test_a_parameter_can_be_the_clock(imported):
    policy = imported(SCHEMA, clock=["now"])
    assert "@current_unix_time >= from" in policy


def test_ends_go_into_the_facts(imported, tmp_path):
    imported(SCHEMA, RELATIONSHIPS, facts=str(tmp_path / "facts.json"))
    lines = [orjson.loads(line) for line in (tmp_path / "facts.json").read_text().splitlines()]
    assert [line.get("expires_at") for line in lines if line["predicate"] == "has_role"] == [
        None, "2199-01-01T00:00:00Z",
    ]  # fmt: skip
    assert imported.lines()[0] == "expired: other0.txt:4:1: tuple doc:1#owner@user:past"


# ---- what cannot be carried over ------------------------------------------------------------------------------------

LOSING = """
definition user {}
caveat young(age int, name string) {
  age < 30 &&
  name.startsWith("a")
}
definition doc {
  relation owner: user
  relation banned: user | user with young
  relation viewer: user with young
  permission view = viewer + owner
  permission edit = owner - banned
}
"""
CONDITIONAL = """
doc:1#owner@user:ann
doc:1#owner@user:bob
doc:1#banned@user:bob[young]
doc:1#viewer@user:bea[young]
"""
ASKED = """assertions:
  assertTrue:
    - doc:1#edit@user:ann
    - 'doc:1#view@user:bea with {"age": 20, "name": "abe"}'
  assertFalse:
    - 'doc:1#edit@user:bob with {"age": 20, "name": "abe"}'
"""


def test_what_has_no_equal_is_named_and_nothing_is_written(imported, tmp_path):
    with pytest.raises(CommandError, match=r"Nothing was written\. Pass --partial to leave out"):
        imported(LOSING, policy=str(tmp_path / "policy.polar"))
    assert imported.lines()[0] == (
        'not imported: schema.zed:5:3: condition young: `name.startsWith("a")`: the function `startsWith` is not'
        " supported; affects doc#banned, doc#viewer"
    )
    assert not (tmp_path / "policy.polar").exists()


def test_in_part_nobody_is_granted_anything_by_it(imported, db):
    """Neither what it would grant, nor what it might keep somebody from."""
    text = imported(LOSING, CONDITIONAL, ASKED, partial=True)
    report = run(compile_text(text))
    assert report.success, report.errors
    assert [test.total for test in report.tests] == [1, 1]
    lost = [line for line in imported.lines() if line.startswith("not imported")]
    assert lost[0] == (
        "not imported: other1.yaml:3:7: test `other1: age 20`: "
        'assert allow(user{"bea"}, "view", doc{"1"});: expected true, got false'
    )


@pytest.mark.parametrize(
    "relationship",
    [
        'doc:1#banned@user:bob[young:{"age": 1.5}]',
        f"doc:1#banned@user:{'b' * 600}",
    ],
)
def test_what_keeps_somebody_out_is_never_left_out(imported, relationship):
    with pytest.raises(CommandError, match="left out without granting more"):
        imported(LOSING, relationship, partial=True)
    said = "cannot be left out: other0.txt:1:1: tuple doc:1#banned@"
    assert any(line.startswith(said) for line in imported.lines())


def test_what_lets_somebody_in_may_be_left_out(imported):
    text = imported(LOSING, 'doc:1#viewer@user:bob[young:{"age": 1.5}]\ndoc:1#owner@user:ann', partial=True)
    assert "resource doc {" in text


ALL = """
definition user {}
definition group { relation member: user }
definition doc {
  relation reviewer: group
  permission publish = reviewer.all(member)
}
"""


def test_neither_is_one_of_those_that_must_all_agree(imported):
    with pytest.raises(CommandError, match="left out without granting more"):
        imported(ALL, f"doc:1#reviewer@group:{'g' * 600}", partial=True)


LISTED = """
definition user {}
caveat listed(day list<int>) { ((1 in day) ? (2 in day) : (3 in day)) ? (4 in day) : (5 in day) }
definition doc { relation viewer: user with listed }
"""


@pytest.mark.parametrize(("days", "held"), [("1, 2, 4", True), ("1, 2, 5", False), ("3, 4", True), ("5", True)])
def test_a_condition_may_test_a_list_several_times(imported, db, days, held):
    asked = f"assertions:\n  assert{held}:\n    - 'doc:1#viewer@user:ann with {{\"day\": [{days}]}}'\n"
    report = run(compile_text(imported(LISTED, "doc:1#viewer@user:ann[listed]", asked)))
    assert report.success, report.errors
    assert [test.total for test in report.tests] == [1]


def test_relationships_that_the_schema_does_not_allow_are_named(imported):
    wrong = "doc:1#reviewer@user:ann\ndoc:1#publish@user:ann\nnothing:1#reviewer@user:ann"
    with pytest.raises(CommandError, match="3 elements cannot be converted"):
        imported(ALL, wrong)
    text = imported(ALL, wrong, partial=True)
    assert [line for line in imported.lines() if line.startswith("not imported")] == [
        "not imported: other0.txt:1:1: tuple doc:1#reviewer@user:ann: the model does not allow this subject",
        "not imported: other0.txt:2:1: tuple doc:1#publish@user:ann: the relation does not exist in the model,"
        " or cannot have tuples",
        "not imported: other0.txt:3:1: tuple nothing:1#reviewer@user:ann: the relation does not exist in the model,"
        " or cannot have tuples",
    ]
    assert "resource doc {" in text


def test_relationships_end_where_the_schema_says_so_and_only_there(imported):
    """One for ever, where each has an end, would grant for longer than anybody meant."""
    schema = """
use expiration
definition user {}
caveat c(x int) { x > 1 }
definition d {
  relation a: user with expiration
  relation b: user | user with c and expiration
}
"""
    end = "[expiration:2100-01-01T00:00:00Z]"
    tuples = f"d:1#a@user:p\nd:1#a@user:q{end}\nd:1#b@user:r{end}\nd:1#b@user:s\nd:1#b@user:t[c]{end}"
    imported(schema, tuples, partial=True)
    assert [line for line in imported.lines() if line.startswith("not imported")] == [
        "not imported: other0.txt:1:1: tuple d:1#a@user:p: the model does not allow this subject",
        "not imported: other0.txt:3:1: tuple d:1#b@user:r: the model does not allow this subject with expiration",
    ]
    assert imported.lines()[-1].endswith(" 5 tuples as 3 facts, 0 assertions in 0 tests")


def test_assertions_that_are_wrong_there_are_told(imported, db):
    """A test of theirs that fails is no test here."""
    with pytest.raises(CommandError):
        imported(ALL, "assertions: {assertTrue: ['doc:1#publish@user:ann']}")
    assert imported.lines()[0] == (
        'not imported: other0.yaml:1:27: test `other0`: assert allow(user{"ann"}, "publish", doc{"1"});: '
        "expected true, got false"
    )


NESTED = """
schema: |-
  definition user {}
  definition group {
    relation parent: group
    relation member: user | group#member
    permission view = member + parent->member
  }
  definition doc {
    relation viewer: user | group#view | group#member
    permission view = viewer
  }
relationships: |-
  group:eng#member@user:ann
  group:all#member@group:eng#member
  group:eng#parent@group:all
  doc:1#viewer@group:eng#view
validation:
  group:all#member:
    - "[group:eng#member] is <group:all#member>"
    - "[user:ann] is <group:eng#member>"
  doc:1#view:
    - "[group:eng#view] is <doc:1#viewer>"
    - "[group:eng#member] is <group:all#member>"
    - "[user:ann] is <group:eng#member>"
"""


def test_expected_usersets_are_those_of_relationships_and_not_those_on_the_way(imported, db):
    """`doc:1#view` passes through `group:all#member`, which is a member of itself, and stands in no list."""
    policy = imported(NESTED, name="nested.yaml")
    assert imported.lines()[-1].endswith(" 5 relations, 0 conditions, 4 tuples as 4 facts, 5 assertions in 3 tests")
    for asked in (
        'allow(userset{"group:eng#member"}, "member", group{"all"});',
        'allow(userset{"group:eng#member"}, "view", doc{"1"});',
        'allow(each: userset, "view", doc{"1"}) iff each in [userset{"group:eng#view"}];',
    ):
        assert f"  assert {asked}\n" in policy
    assert run(compile_text(policy)).success


def test_a_permission_that_takes_away_what_depends_on_it_is_named(imported, db):
    schema = "definition user {}\ndefinition d { relation a: user  relation up: d\n permission p = a - up->p }"
    with pytest.raises(CommandError):
        imported(schema)
    assert imported.lines()[0] == (
        "not imported: schema.zed:3:17: d#p: what it excludes depends on the relation itself"
    )
    policy = imported(schema, "d:1#a@user:ann", partial=True)
    assert run(compile_text(policy)).success


def test_all_that_is_wrong_is_told(imported):
    with pytest.raises(CommandError, match="2 problems found"):
        imported("definition d { relation a: usr | group }")
    assert imported.lines() == [
        "schema.zed:1:28: unknown definition `usr`",
        "schema.zed:1:34: unknown definition `group`",
    ]


MANY = range(1500)


def test_an_expression_may_be_long(imported):
    """Each of those who are excluded is."""
    relations = "\n".join(f"relation r{number}: user" for number in MANY)
    long = " - ".join(f"r{number}" for number in MANY)
    policy = imported(f"definition user {{}}\ndefinition d {{\n{relations}\npermission p = {long}\n}}")
    written = " and not ".join(f'"r{number}"' for number in MANY)
    assert f'"p" if {written};' in " ".join(policy.split())


def test_what_is_nested_too_deeply_is_refused(imported):
    with pytest.raises(CommandError, match="nested too deeply"):
        imported(f"caveat c(n int) {{ {' + '.join(['n'] * 2500)} < 5 }}")


def test_comments_end_where_their_line_ends(imported):
    """Nothing of a comment can become a rule."""
    text = imported("/** one\rallow(_, _, _);\u2028allow(_, _, _); */\ndefinition user {}")
    assert "allow(_" in text
    assert all(line.startswith("#") for line in text.splitlines() if "allow(_" in line)


def test_the_page_about_moving_shows_what_becomes_of_its_schema(imported, db):
    section = (DOCS / "moving.md").read_text().split("## From SpiceDB")[1].split("\n## ")[0]
    schema = re.search(r"<<'END'\n(.*?)^END$", section, re.DOTALL | re.MULTILINE)[1]
    policy = re.search(r"^```polar\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)[1]
    assert imported(schema, name="drive.yaml") == policy
