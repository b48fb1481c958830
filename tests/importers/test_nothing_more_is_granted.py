"""Corners in which a policy could say more than what it was made of: it says less, or what is missing is reported."""

import pytest

from authz_project.importers.convert import carried
from authz_project.importers.ir import ImportRejected, ImportReport, ModelKind, Thing, Who
from authz_project.importers.spicedb import imported
from tests.importers.asking import Carriage

ANN, DOC = Who("user", "ann"), Thing("doc", "1")


def carriage(folder, schema, relationships, **options):
    path = folder / "corner.yaml"
    lines = [
        "schema: |-",
        *(f"  {line}" for line in schema.strip().splitlines()),
        "relationships: |-",
        *(f"  {line}" for line in relationships.strip().splitlines()),
    ]
    path.write_text("\n".join(lines) + "\n")
    report = ImportReport()
    return Carriage(carried(imported(path, []), report, **options)), report


# ---- an arrow over folders and members of groups ---------------------------------------------------------------------

MIXED = """
definition user {}
caveat c(x string) { x != "z" }
definition group { relation member: user }
definition folder { relation b: user with c permission banned = b }
definition doc {
  relation parent: folder | group#member
  relation viewer: user
  permission view = viewer - parent->banned
}
"""


def test_who_may_be_banned_in_what_a_mixed_relation_leads_to_is_not_let_in(tmp_path, db):
    asked, _ = carriage(tmp_path, MIXED, "doc:1#viewer@user:ann\ndoc:1#parent@folder:f\nfolder:f#b@user:ann[c]")
    assert not asked.check(ANN, "view", DOC)
    assert not asked.check(ANN, "view", DOC, (), (("x", "a"),))
    assert asked.check(ANN, "view", DOC, (), (("x", "z"),))


def test_what_a_mixed_relation_leads_to_cannot_be_left_out_where_it_keeps_somebody_out(tmp_path, db):
    tuples = 'doc:1#viewer@user:ann\ndoc:1#parent@folder:f\nfolder:f#b@user:ann[c:{"x":""}]'
    _, report = carriage(tmp_path, MIXED, tuples)
    (needed,) = report.of(ModelKind.NEEDED)
    assert needed.place.line == 14


# ---- what tuples bind ------------------------------------------------------------------------------------------------

TWO_TEXTS = """
definition user {}
caveat c(a string, b string, x string) { x == a && b != "y" }
definition doc {
  relation viewer: user with c
  permission view = viewer
}
"""


def test_texts_of_two_tuples_are_not_taken_for_each_other(tmp_path, db):
    tuples = 'doc:1#viewer@user:ann[c:{"a":"x b=y"}]\ndoc:2#viewer@user:ann[c:{"a":"x","b":"y"}]'
    asked, _ = carriage(tmp_path, TWO_TEXTS, tuples)
    ids = {fact.args[-1].id for fact in asked.carried.facts if fact.predicate == "has_role_if"}
    assert ids == {'a="x b=y"', "a=x b=y"}
    assert not asked.check(ANN, "view", Thing("doc", "2"), (), (("x", "x b=y"), ("b", "z")))


def test_a_time_that_a_tuple_binds_is_not_the_clock(tmp_path, db):
    schema = """
definition user {}
caveat c(now timestamp, till timestamp) { now < till }
definition doc {
  relation viewer: user with c
  permission view = viewer
}
"""
    bound = '{"now":"2190-01-01T00:00:00Z","till":"2180-01-01T00:00:00Z"}'
    asked, report = carriage(tmp_path, schema, f"doc:1#viewer@user:ann[c:{bound}]", clock=frozenset(["now"]))
    (lost,) = report.of(ModelKind.LOST)
    assert lost.place.line == 9
    assert "sets now, which the service's clock replaces" in lost.message
    assert not asked.check(ANN, "view", DOC)


@pytest.mark.parametrize("first", ['[c:{"a":"y"}]', ""])
def test_a_tuple_that_is_there_twice_and_says_two_things_is_refused(tmp_path, first):
    schema = TWO_TEXTS.replace("user with c", "user with c | user")
    with pytest.raises(ImportRejected) as refused:
        carriage(tmp_path, schema, f'doc:1#viewer@user:ann{first}\ndoc:1#viewer@user:ann[c:{{"a":"x"}}]')
    (fault,) = refused.value.faults
    assert fault.place.line == 10
    assert "occurs twice, with different conditions, values or expiries" in fault.message


CHOICE = """
definition user {}
caveat c(on bool, n int) { on ? n < 3 : n > 9 }
definition doc {
  relation viewer: user
  relation blocked: user with c
  permission view = viewer - blocked
}
"""


def test_a_choice_whose_condition_is_unknown_is_not_known_to_fail(tmp_path, db):
    """Both of its results would be false: there, too, access depends on what is missing."""
    asked, _ = carriage(tmp_path, CHOICE, 'doc:1#viewer@user:ann\ndoc:1#blocked@user:ann[c:{"n":5}]')
    assert not asked.check(ANN, "view", DOC)
    assert asked.check(ANN, "view", DOC, (), (("on", False),))
    assert asked.check(ANN, "view", DOC, (), (("on", True),))


# ---- names that mean something here ----------------------------------------------------------------------------------


def test_types_and_conditions_may_be_called_as_what_has_a_meaning_here(tmp_path, db):
    schema = """
definition user {}
caveat Actor(x int) { x < 9 }
caveat String(x int) { x < 9 }
caveat low(x int) { x < 9 }
definition actor { relation b: user with low | user with String }
definition actor_ {
  relation parent: actor with low | actor with Actor
  relation b: user
  permission v = b - parent->b
}
"""
    tuples = "actor_:1#b@user:ann\nactor_:1#parent@actor:f[low]\nactor:f#b@user:ann[low]"
    asked, _ = carriage(tmp_path, schema, tuples)
    assert not asked.check(ANN, "v", Thing("actor_", "1"), (), (("x", 3),))
    assert asked.check(ANN, "v", Thing("actor_", "1"), (), (("x", 30),))
