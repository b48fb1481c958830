"""`sync_facts` as people give it: what it prints, how it ends, and what stops it."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from facts import read, store
from facts.store import Inserts
from facts.wire import Fact
from localsql.sync import run as applying
from localsql.sync.run import MINUS, Applying
from policy.core import clock
from policy.core.journal import By
from policy.models import Revision
from policy.publishing import publish
from policy.values import Value
from tests.localsql.sync.conftest import POLICY
from tests.localsql.sync.sources import KEY, config_of
from tests.localsql.sync.test_in_step import delete, fact, insert, stored

pytestmark = pytest.mark.one_database


@pytest.fixture
def staff(published, staff_of):
    return staff_of("sqlite")


@pytest.fixture
def config(staff, tmp_path):
    path = tmp_path / "sync.yaml"
    path.write_text(config_of(staff, "sqlite"))
    return path


def synced(config, *words: str) -> tuple[int, str, str]:
    """The exit code, and both outputs."""
    out, err = StringIO(), StringIO()
    try:
        call_command("sync_facts", str(config), *words, stdout=out, stderr=err)
        code = 0
    except SystemExit as end:
        code = end.code
    except CommandError as error:
        code = error.returncode
        err.write(f"error: {error}\n")
    return code, out.getvalue().replace(MINUS, "-"), err.getvalue()


COUNTS = "1 to add, 1 to delete, 1 unchanged"


def test_a_file_that_is_for_local_sql_as_well_is_warned_of(published, staff, config):
    assert synced(config)[2] == ""
    config.write_text("dialect: sqlite\n" + config.read_text())
    assert "sync these facts or bind them, not both" in synced(config)[2]


def test_what_differs_is_shown_and_made_the_same(published, staff, config):
    insert(published, [("ann", "member", "acme"), ("gone", "member", "acme")])
    staff.fill([("ann", "member", "acme"), ("ben", "owner", "acme"), (None, "owner", "acme"), ("x", None, None)])
    lines = [
        f"{KEY}  {COUNTS}",
        '  + has_role(User:ben, "owner", Org:acme)',
        '  - has_role(User:gone, "member", Org:acme)',
        "  2 rows with a NULL, ignored",
    ]
    code, out, err = synced(config)
    assert (code, err, out.splitlines()) == (
        2,
        "",
        [*lines, "1 to add, 1 to delete, 1 unchanged; run with --apply to apply them"],
    )
    assert len(stored(published)) == 2
    code, out, _ = synced(config, "--apply")
    assert (code, out.splitlines()) == (0, [*lines, "1 added, 1 deleted, 1 unchanged, in 2 revisions"])
    assert synced(config)[0] == 0
    assert stored(published) == {("ann", "member", "acme"), ("ben", "owner", "acme")}


def test_facts_of_other_patterns_are_left_alone(published, staff, tmp_path, config):
    others = [
        Fact("has_role", (Value("User", "ann"), Value("String", "owner"), Value("Org", "acme"))),
        Fact("has_relation", (Value("Project", "p"), Value("String", "org"), Value("Org", "acme"))),
    ]
    store.apply(published.pk, [Inserts(others)])
    config.write_text(
        "facts:\n  has_role(User:_, member, Org:_): {query: 'SELECT who, org FROM staff'}\n"
        f"dbs: {{app: {{connection_string: '{staff.connection_string}'}}}}\n"
    )
    staff.fill([("ben", "x", "acme")])
    assert synced(config, "--apply")[0] == 0
    assert stored(published) == {("ann", "owner", "acme"), ("ben", "member", "acme")}


def test_a_pattern_of_constants_is_a_fact_as_long_as_there_is_a_row(published, staff, config):
    config.write_text(
        "facts:\n  has_role(User:ann, member, Org:acme): {query: 'SELECT who FROM staff'}\n"
        f"dbs: {{app: {{connection_string: '{staff.connection_string}'}}}}\n"
    )
    staff.fill([("a", "x", "y"), ("b", "x", "y")])
    assert "1 added, 0 deleted, 0 unchanged" in synced(config, "--apply")[1]
    assert stored(published) == {("ann", "member", "acme")}
    assert synced(config)[0] == 0
    staff.fill([])
    assert synced(config, "--apply")[0] == 1
    assert stored(published) == {("ann", "member", "acme")}
    synced(config, "--apply", "--max-deletes", "1")
    assert stored(published) == set()


def test_a_source_of_nothing_but_nulls_takes_nothing_away(published, staff, config):
    insert(published, [("ann", "member", "acme")])
    staff.fill([(None, "member", "acme")])
    code, _, err = synced(config, "--apply")
    assert code == 1 and "the source has no valid rows" in err
    assert stored(published) == {("ann", "member", "acme")}


def test_deletions_come_first_and_each_batch_is_a_revision(published, staff, config, monkeypatch):
    monkeypatch.setattr(applying, "BATCH", 10)
    insert(published, [(f"old{number}", "member", "acme") for number in range(15)])
    staff.fill([(f"new{number}", "member", "acme") for number in range(25)])
    assert "in 5 revisions" in synced(config, "--apply", "--max-deletes", "100%")[1]
    revisions = Revision.objects.filter(environment=published).order_by("-number")[:5]
    made = [(each.author, each.inserted, each.deleted) for each in revisions][::-1]
    assert made == [("sync", 0, 10), ("sync", 0, 5), ("sync", 10, 0), ("sync", 10, 0), ("sync", 5, 0)]


@pytest.mark.parametrize(
    ("stored_facts", "left", "words", "passes"),
    [
        (100, 91, (), True),
        (200, 179, (), False),
        (200, 180, (), True),
        (11, 1, (), True),
        (12, 1, (), False),
        (1, 0, (), False),
        (10, 0, (), False),
        (10, 0, ("--max-deletes", "10%"), False),
        (10, 0, ("--max-deletes", "10"), True),
        (200, 0, ("--max-deletes", "100%"), True),
        (200, 199, ("--max-deletes", "0"), False),
        (11, 10, ("--max-deletes", "0%"), False),
        (11, 1, ("--max-deletes", "1%"), True),
        (200, 150, ("--max-deletes", "50"), True),
        (200, 149, ("--max-deletes", "50"), False),
    ],
)
def test_what_looks_like_an_empty_source_is_stopped(published, staff, config, stored_facts, left, words, passes):
    rows = [(f"user{number}", "member", "acme") for number in range(stored_facts)]
    insert(published, rows)
    staff.fill(rows[:left])
    code, _, err = synced(config, "--apply", *words)
    assert code == (0 if passes else 1)
    assert len(stored(published)) == (left if passes else stored_facts)
    assert passes or f"{stored_facts - left:,} of {stored_facts} facts would be deleted" in err
    assert ("the source has no rows" in err) == (not left and not passes)


@pytest.mark.parametrize("bad", ["", "*", "x" * 513, "ü" * 257])
def test_rows_that_can_be_no_facts_are_told(published, staff, config, bad):
    insert(published, [("gone", "member", "acme")])
    staff.fill([("ann", "member", "acme"), (bad, "member", "acme")])
    code, _, err = synced(config, "--apply")
    assert code == 1 and "invalid rows:\n  row" in err and "--skip-bad" in err
    assert stored(published) == {("gone", "member", "acme")}
    code, out, err = synced(config, "--apply", "--skip-bad")
    assert code == 0 and "skipped invalid rows" in out
    assert stored(published) == {("ann", "member", "acme")}


def test_numbers_and_truths_have_one_spelling(published, staff, config):
    config.write_text(
        "facts:\n  age(User:_, Integer:_): {query: 'SELECT who, org FROM staff'}\n"
        f"dbs: {{app: {{connection_string: '{staff.connection_string}'}}}}\n"
    )
    staff.fill([("ann", "", "7"), ("ben", "", "-0")])
    code, _, err = synced(config, "--apply")
    assert code == 1 and "row 2 (ben, -0): the Integer `-0` must be written as 0" in err


def test_what_the_policy_has_no_use_for_is_refused(published, staff, config):
    config.write_text(config.read_text().replace("has_role(User", "has_rol(User"))
    code, _, err = synced(config)
    assert code == 1 and "did you mean `has_role`?" in err


def test_roles_that_the_policy_does_not_know_are_warned_of(published, staff, config):
    staff.fill([("ann", "membr", "acme")])
    _, _, err = synced(config)
    assert "warning: unknown role on Org: `membr`" in err


def test_one_source_that_is_away_leaves_the_others_alone(published, staff, config):
    staff.fill([("ann", "member", "acme")])
    text = config.read_text().replace("dbs:\n", "  is_public(Project:_): {db: away, query: SELECT id FROM t}\ndbs:\n")
    config.write_text(f"{text}  away: {{connection_string: 'postgres://me:s3cret@127.0.0.1:1/x'}}\n")
    code, out, err = synced(config, "--apply")
    assert code == 1 and "`dbs.away`" in err and "s3cret" not in err + out
    assert stored(published) == {("ann", "member", "acme")}


def test_facts_that_end_are_in_step_as_long_as_they_last(published, staff, config):
    soon = clock.now() + 3_600_000_000
    lasting, past = fact("ann", "member", "acme"), fact("ben", "member", "acme")
    store.apply(published.pk, [Inserts([Fact(each.predicate, each.args, soon) for each in (lasting, past)])])
    end(published, "ben")
    staff.fill([("ann", "member", "acme"), ("ben", "member", "acme")])
    _, out, _ = synced(config, "--apply")
    assert "1 added, 0 deleted, 1 unchanged" in out
    assert synced(config)[0] == 0


def end(environment, name: str) -> None:
    """Have the end of a fact come."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE authz_fact SET expires_at = 1 WHERE a0 = %s", (name,))


def test_a_file_that_is_not_there_and_one_that_is_wrong(published, staff, config):
    code, _, err = synced("no-such.yaml")
    assert code == 1 and "cannot read `no-such.yaml`" in err
    config.write_text("facts: {}")
    assert synced(config)[0] == 0
    assert synced(config, "--metrics-port", "1")[2] == "error: --metrics-port needs --watch.\n"


def test_a_database_whose_texts_are_in_another_order(published, tmp_path, staff, config):
    """UTF-16 sorts what is beyond its first plane before the end of that."""
    staff.path.unlink()
    staff.execute("PRAGMA encoding = 'UTF-16le'; CREATE TABLE staff (who, role, org)")
    rows = [(each, "member", "acme") for each in ("\U0001f600", "\ufb00", "a", "\u0100", "b")]
    staff.fill(rows)
    assert synced(config, "--apply")[0] == 0
    assert stored(published) == set(rows)
    assert synced(config)[0] == 0


@pytest.mark.parametrize("author", ["key 1", "sync"])
def test_what_somebody_deletes_meanwhile_is_not_stored_again(published, staff, config, monkeypatch, author):
    """An application that commits a row, tells the service, and takes both back while a comparison runs."""
    staff.fill([("ann", "member", "acme"), ("ben", "member", "acme")])
    meanwhile(monkeypatch, lambda: insert(published, [("ann", "member", "acme")]),
              lambda: delete(published, [("ann", "member", "acme")], By(author)))  # fmt: skip
    synced(config, "--apply")
    assert stored(published) == {("ben", "member", "acme")}


def meanwhile(monkeypatch, *happens: Callable[[], object]) -> None:
    """Between the comparison and what comes of it."""
    usual = Applying.apply

    def apply(self, plans):
        for each in happens:
            each()
        usual(self, plans)

    monkeypatch.setattr(Applying, "apply", apply)


def test_what_was_deleted_before_it_was_stored_is_taken_back(published, staff, config, monkeypatch):
    """Its row is deleted, and then its fact, which is not stored yet: nothing of that can be seen here."""
    staff.fill([("ann", "member", "acme"), ("ben", "member", "acme"), ("cat", "member", "acme")])
    meanwhile(monkeypatch, lambda: staff.fill([("ben", "member", "acme")]),
              lambda: delete(published, [("ann", "member", "acme"), ("cat", "member", "acme")]))  # fmt: skip
    code, out, _ = synced(config, "--apply")
    assert code == 0 and "(2 of them deleted again, as their rows were deleted)" in out
    assert stored(published) == {("ben", "member", "acme")}


def test_rows_that_cannot_be_read_again_are_told(published, staff, config, monkeypatch):
    staff.fill([("ann", "member", "acme")])
    meanwhile(monkeypatch, lambda: staff.execute("DROP TABLE staff"))
    code, out, err = synced(config, "--apply")
    assert code == 1 and "but their rows could not be checked again: `dbs.app`: no such table" in err
    assert "1 of 1 pattern failed" in out


def test_what_a_policy_of_meanwhile_has_no_use_for_is_not_stored(published, staff, config, monkeypatch):
    """Of two patterns, the one that the new policy knows is made all the same."""
    config.write_text(
        "facts:\n"
        "  is_public(Project:_): {query: 'SELECT org FROM staff'}\n"
        "  has_role(User:_, member, Org:_): {query: 'SELECT who, org FROM staff'}\n"
        f"dbs: {{app: {{connection_string: '{staff.connection_string}'}}}}\n"
    )
    staff.fill([("ann", "member", "acme")])
    meanwhile(monkeypatch, lambda: publish(published.pk, POLICY.replace("declare is_public(Project);", ""), None))
    code, out, err = synced(config, "--apply")
    assert code == 1 and "is_public(Project:_): the fact `is_public(Project)` is not used in policy" in err
    assert "1 added, 0 deleted, 0 unchanged, in 1 revision; 1 of 2 patterns failed" in out
    assert not list(read.found(published.pk, "is_public", ()).facts)
    assert stored(published) == {("ann", "member", "acme")}


def test_what_somebody_stores_with_an_end_meanwhile_keeps_it(published, staff, config, monkeypatch):
    staff.fill([("ann", "member", "acme"), ("ben", "member", "acme")])
    ann, end = fact("ann", "member", "acme"), clock.now() + 3_600_000_000
    meanwhile(monkeypatch, lambda: store.apply(published.pk, [Inserts([Fact(ann.predicate, ann.args, end)])]))
    assert synced(config, "--apply")[0] == 0
    ends = {each.args[0].id: each.expires_at for each in read.found(published.pk, "has_role", ()).facts}
    assert ends == {"ann": end, "ben": None}


def test_what_a_row_says_is_shown_as_text(published, staff, config):
    staff.fill([("\x1b[2J\n\x7f\x9b" + "x" * 513, "*\x1b", "acme")])
    _, out, err = synced(config)
    assert "\\x1b[2J\\n\\x7f\\x9bxxx" in err and not set(out + err) & set("\x1b\x7f\x9b")
