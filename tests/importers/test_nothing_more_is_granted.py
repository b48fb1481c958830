"""Corners in which a policy could say more than what it was made of: it says less, or what is missing is reported."""

from authz_project.importers.carry import Options, carried
from authz_project.importers.model import Thing, Who
from authz_project.importers.report import Kind, Report
from authz_project.importers.spicedb.files import imported
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
    report = Report()
    return Carriage(carried(imported(path, []), report, Options(**options))), report


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
    (needed,) = report.of(Kind.NEEDED)
    assert needed.place.line == 14
