"""What grants what: the graph of a policy, only what leads somewhere, and its files."""

import io
import re
import time
from html import unescape
from xml.etree import ElementTree

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from checks.picture.drawing import document_of_sheets, layout_of_sheet, mermaid
from checks.picture.graph import graph_of, joined, leading_to, targets
from checks.picture.page import PictureRequest, exported, one_layout, picture_page
from policy import publishing, rules
from policy.errors import NotFound
from policy.models import PolicyVersion
from tests.checks.large_policies import chain, policies
from tests.factories import EnvironmentFactory

pytestmark = pytest.mark.one_database

COMPANY = """actor User {}
actor Group {}
global { roles = ["support", "boss"]; permissions = ["read_logs"]; "read_logs" if "boss"; }
resource Org {
  roles = ["member", "admin"]; permissions = ["invite"];
  "member" if "admin"; "invite" if "admin"; "member" if global "support";
}
resource Folder {
  roles = ["viewer", "editor"]; permissions = ["read"]; relations = { parent: Folder, org: Org };
  role if role on "parent"; "viewer" if "editor"; "read" if "viewer"; "editor" if "admin" on "org";
}
resource Repo {
  roles = ["reader", "keeper"]; permissions = ["read", "drop"]; relations = { org: Org, folder: Folder };
  "reader" if "member" on "org"; "reader" if "viewer" on "folder"; "read" if "reader";
  "drop" if "keeper" and not is_locked(resource); "drop" if chief(actor, resource);
}
chief(user: User, repo: Repo) if owns(user, repo) and has_role(user, "admin", org) and org matches Org;
unrelated(user: User, repo: Repo) if owns(user, repo);
"""
HOSTILE = '</text><script>alert(1)</script>"]]> --> x\x1b[31m `"\n; click n0 "javascript:x" %% end #quot;'


def graph(text: str):
    return graph_of(rules.compile_text(text))


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def grants(sheet) -> set[tuple[tuple[str, ...], str]]:
    return {(tuple(node.label for node in grant.sources), grant.target.label) for grant in sheet.grants}


# ---- from type to type -------------------------------------------------------------------------------------------


def test_types_lead_to_the_types_that_take_from_them():
    found = graph(COMPANY)
    assert found.sources["Repo"] == ("Org", "Folder")
    assert found.followers["Org"] == ("Folder", "Repo")
    assert found.sources["Org"] == (None,)
    assert grants(found.sheets[None]) == {(("boss",), "read_logs")}


def test_only_what_leads_to_a_permission_is_walked_back_across_types():
    found = leading_to(graph(COMPANY), "Repo.read")
    by_type = {sheet.name: grants(sheet) for sheet in found.sheets}
    assert by_type == {
        "Repo": {(("reader",), "read"), (("member on org",), "reader"), (("viewer on folder",), "reader")},
        "Org": {(("admin",), "member"), (("global support",), "member")},
        "Folder": {
            (("editor",), "viewer"), (("admin on org",), "editor"), (("viewer on parent",), "viewer"),
            (("editor on parent",), "editor"),
        },
        "global": set(),
    }  # fmt: skip
    assert [sheet.permissions for sheet in found.sheets] == [("read",), (), (), ()]
    assert found.sheets[0].relations == (("org", "Org"), ("folder", "Folder"))


def test_a_role_that_other_rules_ask_for_leads_there_too():
    found = leading_to(graph(COMPANY), "Repo.drop")
    assert [sheet.name for sheet in found.sheets] == ["Repo", "Org"]
    assert grants(found.sheets[1]) == set()  # no rule grants an admin
    assert found.sheets[1].roles == ("admin",)
    assert [text.partition("(")[0] for _, text, _ in found.others] == ["chief"]


def test_a_rule_about_every_role_leads_to_the_one_that_is_asked():
    text = 'actor User {} resource F { roles = ["a", "b"]; relations = { up: F, side: F }; role if role on "up"; }'
    assert grants(leading_to(graph(text), "F.a").sheets[0]) == {(("a on up",), "a")}


def test_what_leads_to_something_is_one_picture_with_the_target_last():
    found = leading_to(graph(COMPANY), "Repo.read")
    layout = one_layout(found)
    last = max(layout.ranks.values())
    assert [(node.owner, node.label) for node, rank in layout.ranks.items() if rank == last] == [("Repo", "read")]
    arcs = {(source.owner, source.label, each.target.label) for each in joined(found.sheets) for source in each.sources}
    assert ("Org", "member", "member on org") in arcs and ("Folder", "viewer", "viewer on folder") in arcs
    backwards = [
        grant for grant in layout.grants for node in grant.sources if layout.ranks[node] >= layout.ranks[grant.target]
    ]
    assert len(backwards) == 2  # the roles that come from the parent folder go round


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("Rpo.read", "the policy has no type `Rpo` (did you mean `Repo`?"),
        ("Repo.raed", "`Repo` has no role or permission `raed` (did you mean `read`?"),
        ("Repo", "`Repo` has no role or permission ``"),
        ("", "the policy has no type ``"),
        ("<b>.x", "the policy has no type `<b>`"),
    ],
)
def test_what_there_is_not_is_said(target, message):
    with pytest.raises(NotFound) as refused:
        leading_to(graph(COMPANY), target)
    assert message in refused.value.message


def test_every_target_of_ordinary_policies_can_be_drawn():
    for each in policies():
        found = graph(each.text)
        names = targets(found)
        for name in (*names[:3], *names[-3:]):
            leading = leading_to(found, name)
            assert leading.sheets[0].name == name.partition(".")[0]
            one_layout(leading)


# ---- the page ------------------------------------------------------------------------------------------------------


@pytest.fixture
def reader(db) -> Client:
    person = User.objects.create_user("bea", is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename="view_policyversion"))
    client = Client()
    client.force_login(person)
    return client


def published(text: str) -> PolicyVersion:
    return publishing.publish(EnvironmentFactory().pk, text, None).version


def url(version: PolicyVersion) -> str:
    return reverse("admin:authz_policy_policyversion_picture", args=[version.pk])


def words(answer) -> str:
    assert answer.status_code == 200, answer.status_code
    body = answer.content.decode().partition('<div id="content"')[2]
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_a_few_types_are_drawn_and_many_are_listed(reader):
    few = reader.get(url(published(COMPANY))).content.decode()
    assert few.count('<svg class="picture"') == 4
    many = reader.get(url(published(chain(40)))).content.decode()
    assert '<svg class="picture"' not in many and many.count('href="?type=T') == 40
    one = reader.get(url(PolicyVersion.objects.latest("pk")), {"type": "T7"})
    assert one.content.decode().count('<svg class="picture"') == 1
    assert "Granted through T6 Grants on T8" in words(one)


def test_a_role_of_another_type_links_to_its_sheet(reader):
    version = published(COMPANY)
    page = reader.get(url(version), {"type": "Repo"}).content.decode()
    (address,) = re.findall(r'<a href="([^"]+)"><g class="relation"><title>viewer on folder<', page)
    assert unescape(address) == "?type=Folder&mark=role.viewer"
    there = reader.get(url(version) + unescape(address)).content.decode()
    assert there.count('<g class="role meant"><title>viewer<') == 1
    assert 'href="?leads_to=Repo.read"' in page


def test_types_are_found_by_what_they_have(reader):
    version = published(COMPANY)
    said = words(reader.get(url(version), {"q": "VIEW"}))
    assert "1 type matching “VIEW” Folder viewer" in said
    assert words(reader.get(url(version), {"q": "fold"})).count("folder") >= 1  # the relation of a Repo
    assert "No type, role, permission or relation matches" in words(reader.get(url(version), {"q": "zz"}))


def test_only_what_leads_to_a_permission_is_shown(reader):
    version = published(COMPANY)
    page = reader.get(url(version), {"leads_to": "Repo.drop"})
    assert "Policy diagram: Repo.drop" in words(page) and "2 types involved" in words(page)
    assert "chief (user: User , repo: Repo )" in words(page) and "unrelated" not in words(page)
    assert page.content.decode().count('<svg class="picture"') == 1
    assert page.content.decode().count(" download>SVG<") == 1 and "Whole policy" not in words(page)
    wrong = words(reader.get(url(version), {"leads_to": "Repo.dorp"}))
    assert "Repo has no role or permission dorp (did you mean drop ?" in wrong


def test_a_picture_has_sizes_that_need_no_script(reader):
    version = published(COMPANY)
    full, half = (
        int(re.search(r'<svg class="picture"[^>]* width="(\d+)"', page.content.decode())[1])
        for page in (reader.get(url(version), {"type": "Repo", "size": size}) for size in ("100", "50"))
    )
    assert abs(half - full / 2) <= 1
    page = reader.get(url(version), {"type": "Repo", "size": "nonsense"}).content.decode()
    assert 'href="?type=Repo&amp;size=150"' in page


def test_two_hundred_types_are_shown_at_once(reader):
    (large,) = [each for each in policies() if each.name == "tenants with 200 types"]
    version = published(large.text)
    reader.get(url(version))  # compiles
    for asked in ({}, {"type": "Org"}, {"leads_to": "T150.read"}, {"q": "T1"}):
        spent = []
        for _ in range(3):
            began = time.process_time()
            assert reader.get(url(version), asked).status_code == 200
            spent.append(time.process_time() - began)
        assert min(spent) < 0.3, (asked, spent)


def test_a_page_of_a_policy_that_declares_nothing(reader):
    assert "Nothing to show" in words(reader.get(url(published(""))))


def test_strangers_see_no_picture(db):
    version = published(COMPANY)
    person = User.objects.create_user("eve", is_staff=True)
    client = Client()
    client.force_login(person)
    for asked in ({}, {"format": "svg"}, {"format": "mermaid"}):
        assert client.get(url(version), asked).status_code == 403
        assert Client().get(url(version), asked).status_code == 302


# ---- files ---------------------------------------------------------------------------------------------------------


def test_lines_that_need_not_cross_do_not():
    graphed = graph("""
        actor User {}
        resource Document {
          permissions = ["read", "edit"]; relations = { folder: Document, owner: User };
          "read" if "read" on "folder"; "edit" if "edit" on "folder"; "read" if "owner"; "edit" if "owner";
        }
        has_permission(_: Actor, "read", document: Document) if is_public(document);
    """)
    layout = layout_of_sheet(graphed.sheets["Document"])
    ends = [(source, grant.target) for grant in layout.grants for source in grant.sources]
    lines = {tuple(layout.boxes[end].left[1] for end in each) for each in ends}
    assert len(lines) == 5
    assert not any((one[0] - other[0]) * (one[1] - other[1]) < 0 for one in lines for other in lines)


def test_files_are_kept_not_shown(reader):
    version = published(COMPANY)
    svg = reader.get(url(version), {"format": "svg", "leads_to": "Repo.read"})
    assert svg["Content-Type"] == "image/svg+xml"
    assert svg["Content-Disposition"].startswith("attachment; filename=")
    assert "sandbox" in svg["Content-Security-Policy"] and svg["X-Content-Type-Options"] == "nosniff"
    assert "What grants Repo.read" in svg.content.decode()
    text = reader.get(url(version), {"format": "mermaid", "type": "Repo"}).content.decode()
    assert text.startswith("flowchart LR\n")
    assert reader.get(url(version), {"format": "svg", "type": "Nothing"}).status_code == 404


def test_a_file_needs_nothing_else_and_has_colours_for_the_dark():
    svg = exported(rules.compile_text(COMPANY), "svg")
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme:dark" in svg
    assert re.findall(r"https?://[^\"]+", svg) == ["http://www.w3.org/2000/svg"]
    assert "href" not in svg and "var(" not in svg and "url(" not in svg and "@import" not in svg


def test_names_cannot_break_out_of_an_svg():
    name = quoted(HOSTILE)
    text = f'actor User {{}} resource Doc {{ roles = [{name}]; permissions = ["read"]; "read" if {name}; }}'
    program = rules.compile_text(text)
    for svg in (exported(program, "svg"), exported(program, "svg", target="Doc.read")):
        root = ElementTree.fromstring(svg)
        tags = {each.tag.partition("}")[2] for each in root.iter()}
        assert tags <= {"svg", "style", "g", "rect", "text", "title", "path", "circle"}
        assert "\x1b" not in svg
        assert any("<script>alert(1)</script>" in (each.text or "") for each in root.iter())  # as text


def test_names_cannot_break_out_of_mermaid():
    name = quoted(HOSTILE)
    text = f'actor User {{}} resource Doc {{ roles = [{name}]; permissions = ["read"]; "read" if {name}; }}'
    drawn = exported(rules.compile_text(text), "mermaid")
    said = r'"[^"<>`]*"'
    node = rf"    n\d+(\(\[{said}\]\)|\[{said}\]|\[/{said}/\]|\{{\{{{said}\}}\}})"
    arrow = r"  n\d+ --> n\d+|  n\d+ --- d\d+|  d\d+ --> n\d+|    d\d+\(\(\"and\"\)\)"
    style = r"  classDef \w+ [\w:#,\- ]+|  class [n\d,]+ \w+"
    line = re.compile(rf"flowchart LR|  subgraph t\d+\[{said}\]|  end|{node}|{arrow}|{style}")
    assert [each for each in drawn.splitlines() if not line.fullmatch(each)] == []
    assert "#60;script#62;" in drawn


def test_global_roles_are_not_those_of_a_type_of_that_name():
    text = """actor User {}
    global { roles = ["admin"]; permissions = ["shut"]; "shut" if "admin"; }
    resource Global { roles = ["admin"]; permissions = ["read"]; "read" if "admin"; }
    """
    granted = {(grant.sources[0].owner, grant.target.label) for grant in joined([*graph(text).sheets.values()])}
    assert granted == {("Global roles", "shut"), ("Global", "read")}


def test_mermaid_joins_the_types():
    drawn = mermaid(leading_to(graph(COMPANY), "Repo.read").sheets)
    names = dict(re.findall(r'^    (n\d+)\W+"([^"]+)"', drawn, re.MULTILINE))
    arrows = {(names[a], names[b]) for a, b in re.findall(r"^  (n\d+) --> (n\d+)$", drawn, re.MULTILINE)}
    assert {("member", "member on org"), ("member on org", "reader"), ("reader", "read")} <= arrows
    assert 'subgraph t0["Repo"]' in drawn


def test_every_sheet_of_an_ordinary_policy_is_well_formed():
    for each in policies():
        sheets = list(graph(each.text).sheets.values())[-2:]
        ElementTree.fromstring(document_of_sheets(sheets))
        assert all(layout_of_sheet(sheet).boxes for sheet in sheets)


# ---- the command -----------------------------------------------------------------------------------------------------


def run(*args: str, form: str = "svg") -> str:
    out = io.StringIO()
    call_command("show_policy", *args, "--diagram", form, stdout=out, stderr=out)
    return out.getvalue()


def test_the_command_draws_files_and_versions(db, tmp_path):
    file = tmp_path / "main.polar"
    file.write_text(COMPANY)
    with pytest.raises(CommandError, match="No policy is loaded"):
        run()
    drawn = run(str(file), "--leads-to", "Repo.read", form="mermaid")
    assert drawn.startswith("flowchart LR\n")
    environment = EnvironmentFactory()
    publishing.publish(environment.pk, COMPANY, None)
    publishing.publish(environment.pk, chain(3), None)
    assert (
        run("--environment", environment.slug, "--version", "1", "--leads-to", "Repo.read", form="mermaid")
        == run("--environment", environment.slug, "--as-of", "1", "--leads-to", "Repo.read", form="mermaid")
        == drawn
    )
    assert ElementTree.fromstring(run("--environment", environment.slug, "--type", "T1")).tag.endswith("svg")
    with pytest.raises(CommandError, match="no type `Nix`"):
        run(str(file), "--type", "Nix")
    with pytest.raises(CommandError, match="--version cannot be combined with FILE"):
        run(str(file), "--version", "1")
    file.write_text("resource {")
    with pytest.raises(CommandError, match="1 problem"):
        run(str(file))


def test_the_page_reads_its_address_without_trust():
    asked = PictureRequest.of({"size": "9999999", "mark": "x", "q": "  spaces  "})
    assert (asked.size, asked.meant, asked.q) == ("100", None, "spaces")
    page = picture_page(rules.compile_text(COMPANY), PictureRequest(type='"><script>'))
    assert "has no type" in page["trouble"] and len(page["drawn"]) == 4
