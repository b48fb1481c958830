"""`import_model openfga`: what it prints, writes and loads, and when it does not."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from authz_project.importers.files import _parser
from authz_project.importers.ir import ImportRejected
from authz_project.importers.spicedb import imported
from facts import read
from policy.errors import Unavailable
from policy.models import Environment, PublishRequest
from policy.publishing import active_version, publish
from tests.service import ROOT

pytestmark = pytest.mark.one_database

DRIVE = str(Path(__file__).with_name("openfga_models") / "drive.fga.yaml")
ELSEWHERE = str(Path(__file__).with_name("openfga_models") / "office.fga.yaml")
PARTLY = """model
  schema 1.1
type user
type doc
  relations
    define owner: [user]
    define viewer: [user with c] or owner
    define editor: owner but not viewer
condition c(x: string) {
  x.startsWith("a")
}
"""


def run(*words: str) -> tuple[str, str]:
    out, errors = io.StringIO(), io.StringIO()
    try:
        call_command("import_model", "openfga", *words, stdout=out, stderr=errors)
    except CommandError as reason:
        raise CommandError(f"{errors.getvalue()}{reason}") from None
    return out.getvalue(), errors.getvalue()


@pytest.fixture
def partly(tmp_path) -> str:
    (tmp_path / "model.fga").write_text(PARTLY)
    return str(tmp_path / "model.fga")


def test_it_prints_the_policy_and_counts_what_there_is(db):
    out, errors = run(DRIVE)
    assert out.startswith("# Files in folders, shared with people and teams.\n")
    assert 'test "what comes down from folders" {' in out
    assert errors.startswith("converted from OpenFGA: 4 types, 14 relations, 0 conditions, 10 tuples as 10 facts, ")


def test_it_writes_into_a_folder_what_the_other_commands_read(environment, tmp_path):
    out, _ = run(DRIVE, "--output", str(tmp_path / "new"))
    policy, facts = out.split()
    call_command("load_policy", policy, stdout=io.StringIO())
    call_command("load_facts", facts, "--format", "notation", stdout=io.StringIO())
    assert len(list(read.every(environment.pk))) == 10


@pytest.mark.parametrize(("name", "starts"), [("f.csv", "has_role,user,dana,"), ("f.json", '{"predicate"'),
                                              ("f.txt", "has_role(user:dana, ")])  # fmt: skip
def test_facts_are_written_as_their_file_is_called(db, tmp_path, name, starts):
    run(DRIVE, "--facts", str(tmp_path / name))
    assert (tmp_path / name).read_text().startswith(starts)


@pytest.mark.parametrize("name", ["f.csv", "f.jsonl", "f.txt", "f"])
def test_facts_are_read_again_by_the_name_of_their_file(environment, tmp_path, name):
    run(DRIVE, "--policy", str(tmp_path / "p.polar"), "--facts", str(tmp_path / name))
    call_command("load_policy", str(tmp_path / "p.polar"), stdout=io.StringIO())
    call_command("load_facts", str(tmp_path / name), stdout=io.StringIO())
    assert len(list(read.every(environment.pk))) == 10


def test_it_loads_into_an_environment_that_it_makes(db):
    out, _ = run(DRIVE, "--load", "--environment", "drive", "--note", "from there")
    environment = Environment.objects.get(slug="drive")
    assert active_version(environment.pk).note == "from there"
    assert "10 facts stored, 10 of them new" in out
    assert len(list(read.every(environment.pk))) == 10


def test_it_loads_no_facts_before_the_policy_is_approved(environment):
    Environment.objects.update(needs_approval=True)
    with pytest.raises(CommandError, match="needs approval for policies"):
        run(DRIVE, "--load", "--environment", environment.slug)
    assert not PublishRequest.objects.exists() and not [*read.every(environment.pk)]


def test_it_loads_only_where_no_facts_are(environment, api):
    """Facts of an earlier model may grant what the new one denies."""
    slug = ("--load", "--environment", environment.slug)
    run(DRIVE, *slug)
    before = active_version(environment.pk).number
    facts = set(read.every(environment.pk))
    with pytest.raises(CommandError, match=r"already has facts, .*--environment NAME.*load_facts"):
        run(ELSEWHERE, *slug)
    assert active_version(environment.pk).number == before
    assert set(read.every(environment.pk)) == facts


def test_where_facts_cannot_be_stored_no_policy_is_published(environment, monkeypatch):
    def broken(*_, **__):
        raise Unavailable("no room")

    slug = ("--load", "--environment", environment.slug)
    with monkeypatch.context() as patched:
        patched.setattr("authz_project.importers.convert.loading.load", broken)
        with pytest.raises(CommandError, match="no room"):
            run(DRIVE, *slug)
    assert active_version(environment.pk) is None
    run(DRIVE, *slug)
    assert len(list(read.every(environment.pk))) == 10


def test_facts_are_stored_beside_the_same_policy_too(environment, tmp_path):
    run(DRIVE, "--policy", str(tmp_path / "policy.polar"))
    publish(environment.pk, (tmp_path / "policy.polar").read_text(), "policy.polar")
    out, _ = run(DRIVE, "--load", "--environment", environment.slug)
    assert "is already active" in out
    assert len(list(read.every(environment.pk))) == 10


def test_what_cannot_be_said_is_named_and_nothing_is_written(db, partly, tmp_path):
    with pytest.raises(CommandError) as refused:
        run(partly, "--output", str(tmp_path / "new"))
    said = str(refused.value)
    assert f'not imported: {partly}:10:3: condition c: `x.startsWith("a")`: the function `startsWith`' in said
    assert "1 element cannot be converted. Nothing was written. Pass --partial" in said
    assert not (tmp_path / "new").exists()


def test_partly_nothing_is_granted_by_what_is_left_out(db, partly):
    out, errors = run(partly, "--partial")
    assert "not imported:" in errors
    assert "c(when: c) if false;" in out
    assert '"editor" if "owner" and not "possibly_viewer";' in out


def test_a_wrong_model_is_refused_with_its_places(db, tmp_path):
    wrong = PARTLY.replace("or owner", "or ownr").replace("but not viewer", "but not viewr")
    (tmp_path / "model.fga").write_text(wrong)
    with pytest.raises(CommandError) as refused:
        run(str(tmp_path / "model.fga"))
    assert "model.fga:7:37: `doc` has no `ownr`; did you mean `owner`?" in str(refused.value)
    assert "model.fga:8:34: `doc` has no `viewr`; did you mean `viewer`?" in str(refused.value)
    assert "2 problems found. Nothing was imported" in str(refused.value)


def test_tuples_that_the_model_does_not_allow_are_left_out_only_if_asked_for(db, tmp_path):
    (tmp_path / "t.yaml").write_text("- {user: 'doc:1', relation: owner, object: 'doc:1'}\n")
    (tmp_path / "m.fga").write_text(PARTLY.replace('x.startsWith("a")', 'x == "a"'))
    words = (str(tmp_path / "m.fga"), str(tmp_path / "t.yaml"))
    said = "not imported: .*t.yaml:1:3: tuple doc:1#owner@doc:1: the model does not allow this subject"
    with pytest.raises(CommandError, match=rf"{said}[\s\S]*1 element cannot be converted\. Nothing was written"):
        run(*words)
    assert re.search(said, run(*words, "--partial")[1])


def test_an_id_that_is_no_unicode_is_named(db, tmp_path):
    (tmp_path / "m.fga").write_text(PARTLY.replace('x.startsWith("a")', 'x == "a"'))
    (tmp_path / "t.json").write_text(r'[{"user": "user:\ud800", "relation": "owner", "object": "doc:1"}]')
    with pytest.raises(CommandError, match=r"t\.json:1:2: .*: an id must have 1 to 512 bytes of UTF-8"):
        run(str(tmp_path / "m.fga"), str(tmp_path / "t.json"))


def test_a_test_that_fails_here_is_no_small_thing(db, tmp_path):
    store = tmp_path / "wrong.fga.yaml"
    store.write_text(Path(DRIVE).read_text().replace("can_share: false", "can_share: true"))
    with pytest.raises(CommandError, match=r'not imported: .*: test `what comes down from folders`: .*"can_share"'):
        run(str(store))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("can_edit: true, can_share: false", "can_edit: false, can_share: false"),
        ('can_edit: ["file:logo"]', "can_edit: []"),
        ('can_read: ["file:logo", "file:press-kit"]', 'can_read: ["file:logo"]'),
    ],
)
def test_what_grants_more_than_a_test_says_is_not_even_written_in_part(db, tmp_path, written, expected):
    store = tmp_path / "wrong.fga.yaml"
    text = Path(DRIVE).read_text()
    assert written in text
    store.write_text(text.replace(written, expected, 1))
    with pytest.raises(CommandError, match=r"cannot be left out: .*: test `what .*[\s\S]*Nothing was written"):
        run(str(store), "--partial", "--policy", str(tmp_path / "policy.polar"))
    assert not (tmp_path / "policy.polar").exists()


def test_the_clock_fills_only_times(tmp_path):
    """Another condition that compares an integer `now` would be met by any clock."""
    conditions = (
        "condition late(now: int) { now > 100 }\ncondition until(now: timestamp, end: timestamp) { now < end }\n"
    )
    (tmp_path / "two.fga").write_text(f"model\n  schema 1.1\ntype user\n{conditions}")
    with pytest.raises(CommandError, match="another condition has a parameter of this name that is no timestamp"):
        call_command("import_model", "openfga", str(tmp_path / "two.fga"), clock=["now"])


@pytest.mark.parametrize("words", [["missing.fga"], [DRIVE, "missing.json"], [DRIVE, "--clock", "now"]])
def test_what_is_not_there(db, words):
    with pytest.raises(CommandError, match=r"cannot read `missing|no condition has a timestamp parameter"):
        run(*words)


def test_a_value_that_no_condition_asks_for_is_refused(db, tmp_path):
    (tmp_path / "m.fga").write_text(PARTLY.replace('x.startsWith("a")', 'x == "a"'))
    tuple_ = "user: 'user:1', relation: viewer, object: 'doc:1', condition: {name: c, context: {y: a}}"
    (tmp_path / "t.yaml").write_text(f"- {{{tuple_}}}\n")
    with pytest.raises(CommandError, match=r"t.yaml:1:3: .* condition c has no parameter `y`"):
        run(str(tmp_path / "m.fga"), str(tmp_path / "t.yaml"))


def test_no_file_is_written_twice_or_over_what_was_read(db, tmp_path):
    store, both = tmp_path / "drive.fga.yaml", str(tmp_path / "both")
    store.write_text(Path(DRIVE).read_text())
    (tmp_path / "link").symlink_to(store)
    with pytest.raises(CommandError, match="cannot be both the policy and the facts file"):
        run(str(store), "--policy", both, "--facts", both)
    for name in (store, tmp_path / "link"):
        with pytest.raises(CommandError, match="already exists; not overwritten"):
            run(str(store), "--policy", both, "--facts", str(name))
    assert store.read_text() == Path(DRIVE).read_text()
    with pytest.raises(CommandError, match="cannot write"):
        run(str(store), "--policy", both, "--facts", str(tmp_path / "missing" / "facts.txt"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["drive.fga.yaml", "link"]


@pytest.mark.parametrize("name", ["policy.polar", "facts.txt"])
def test_files_of_an_earlier_import_are_kept(db, tmp_path, name):
    """They may have been changed by hand since."""
    (tmp_path / name).write_text("mine")
    with pytest.raises(CommandError, match=f"{name}` already exists; not overwritten"):
        run(DRIVE, "--output", str(tmp_path))
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [(name, "mine")]


def test_a_device_is_written_to(db):
    assert run(DRIVE, "--policy", "/dev/null")[0] == "/dev/null\n"


def test_a_model_with_tests_is_converted_without_a_database():
    variables = {**os.environ, "DATABASE_URL": "postgres://nobody@127.0.0.1:1/none", "SECRET_KEY": "x" * 50}
    variables.pop("DJANGO_SETTINGS_MODULE", None)
    words = [sys.executable, str(ROOT / "manage.py"), "import_model", "openfga", DRIVE]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=120)
    assert 'test "what comes down from folders" {' in done.stdout, done.stderr


@pytest.mark.parametrize("named", ["../secret.fga", "/etc/hostname", "link.fga"])
def test_files_name_only_what_is_below_their_folder(db, tmp_path, named):
    (tmp_path / "secret.fga").write_text(PARTLY)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link.fga").symlink_to(tmp_path / "secret.fga")
    for name, text in (("s.fga.yaml", f"model_file: {named}\n"), ("fga.mod", f"contents: [{named}]\n")):
        (tmp_path / "in" / name).write_text(text)
        with pytest.raises(CommandError, match=f"`{named}` is outside the folder"):
            run(str(tmp_path / "in" / name))
    (tmp_path / "in" / "v.yaml").write_text(f"schemaFile: {named}\n")
    with pytest.raises(ImportRejected, match=f"`{named}` is not a file below"):
        imported(tmp_path / "in" / "v.yaml")


# ---- without the extra -----------------------------------------------------------------------------------------------


@pytest.fixture
def without_lark(monkeypatch):
    _parser.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "lark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lark", None)
    yield
    _parser.cache_clear()


def test_without_lark_it_says_what_to_install(db, without_lark, partly):
    with pytest.raises(CommandError, match=r'pip install "authz-project\[import\]"'):
        run(partly)


def test_what_needs_no_grammar_is_read_without_lark(db, without_lark, tmp_path):
    (tmp_path / "model.json").write_text('{"schema_version": "1.1", "type_definitions": [{"type": "user"}]}')
    assert run(str(tmp_path / "model.json"))[0] == "actor user {}\n"


def test_the_command_starts_without_lark():
    program = (
        "import sys, django; django.setup();"
        " import authz_project.importers.openfga, authz_project.importers.spicedb; sys.exit('lark' in sys.modules)"
    )
    variables = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    assert subprocess.run([sys.executable, "-c", program], env=variables, timeout=120).returncode == 0
