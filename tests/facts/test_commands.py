"""Facts from and to files."""

import gc
import io
import os
import sys
from contextlib import suppress

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from facts import loading, read, store
from facts.store import Inserts
from facts.table import fact_table, fetch
from facts.wire import WRITERS, Fact, fact_from_text
from policy.publishing import publish
from policy.values import Value

LINES = """{"predicate":"owns","args":[{"type":"User","id":"ann"},{"type":"Repo","id":"r"}]}

{"predicate":"is_public","args":[{"type":"Repo","id":"a, \\"b\\"\\nc"}]}
{"predicate":"owns","args":[{"type":"User","id":"ann"},{"type":"Repo","id":"r"}]}
"""
CSV = 'predicate,type,id,type,id\nowns,User,ann,Repo,r\nis_public,Repo,"a, ""b""\nc",,\n'


def run(*arguments: str, **options: object) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=out, **options)
    return out.getvalue()


def stored(environment) -> list[str]:
    return [str(fact) for fact in read.found(environment.id, None, ()).facts]


@pytest.mark.parametrize(
    ("name", "content"), [("facts.jsonl", LINES), ("facts.csv", CSV), ("facts.csv", "\ufeff" + CSV)]
)
def test_files_are_loaded(environment, tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert ", 2 of them new, 0 lines skipped" in run("load_facts", str(tmp_path / name))
    assert stored(environment) == ['is_public(Repo{"a, \\"b\\"\\nc"})', 'owns(User{"ann"}, Repo{"r"})']
    assert ", 0 of them new" in run("load_facts", str(tmp_path / name))


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_what_is_dumped_can_be_loaded(environment, tmp_path, kind):
    facts = [Fact("p", (Value("T", text), Value("String", "x"))) for text in ("a", "é\n", '"', "a,b", " ", "null")]
    store.apply(environment.id, [Inserts(facts)])
    assert "6 facts written" in run("dump_facts", str(tmp_path / f"facts.{kind}"))
    before = stored(environment)
    store.clear(environment.id)
    run("load_facts", str(tmp_path / f"facts.{kind}"))
    assert stored(environment) == before


@pytest.mark.parametrize("kind", sorted(WRITERS))
def test_what_is_dumped_to_any_terminal_can_be_loaded(environment, tmp_path, kind):
    store.apply(environment.id, [Inserts([fact_from_text("member(User:zoë, Team:☃)")])])
    before = stored(environment)
    with (tmp_path / "facts").open("w", encoding="latin-1") as terminal:
        call_command("dump_facts", format=kind, stdout=terminal)
    store.clear(environment.id)
    run("load_facts", str(tmp_path / "facts"), format=kind)
    assert stored(environment) == before


@pytest.mark.parametrize("kind", sorted(WRITERS))
def test_a_file_with_nothing_but_the_mark_of_its_encoding_has_no_facts(environment, tmp_path, kind):
    (tmp_path / "facts").write_bytes(b"\xef\xbb\xbf")
    assert "0 facts read" in run("load_facts", str(tmp_path / "facts"), format=kind)


def test_what_is_dumped_is_for_the_eyes_of_its_owner(environment, tmp_path):
    file, before = tmp_path / "facts.csv", os.umask(0o022)
    try:
        run("dump_facts", str(file))
        assert file.stat().st_mode & 0o777 == 0o600
        file.chmod(0o640)
        run("dump_facts", str(file))
        assert file.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def test_a_dump_that_fails_leaves_the_earlier_one(environment, tmp_path, monkeypatch):
    file = tmp_path / "facts.jsonl"
    store.apply(environment.pk, [Inserts([fact_from_text("owns(User:ann, Repo:r)")])])
    run("dump_facts", str(file))
    file.chmod(0o640)
    before = file.read_text()
    written = WRITERS["json"]

    def fails(target, facts) -> int:
        target.write("half a line")
        raise CommandError("the database is gone")

    monkeypatch.setitem(WRITERS, "json", fails)
    with pytest.raises(CommandError, match="is gone"):
        run("dump_facts", str(file))
    assert file.read_text() == before and [*tmp_path.iterdir()] == [file]
    monkeypatch.setitem(WRITERS, "json", written)
    run("dump_facts", str(file))
    assert file.read_text() == before and file.stat().st_mode & 0o777 == 0o640


def test_one_bad_line_stops_the_load_and_every_bad_line_is_told(environment, tmp_path):
    file = tmp_path / "facts.jsonl"
    file.write_text(LINES + "nonsense\n" + '{"predicate":"p","args":[{"type":"T"}]}\n')
    with pytest.raises(CommandError) as refused:
        run("load_facts", str(file))
    assert "line 5: invalid JSON at column 1: invalid literal" in str(refused.value)
    assert "char" not in str(refused.value), "each line has one number, that of the file"
    assert "line 6: args[0].id: must be a string" in str(refused.value)
    assert stored(environment) == []


def test_bad_lines_can_be_skipped(environment, tmp_path):
    file = tmp_path / "facts.csv"
    file.write_bytes(CSV.encode() + b"p,T\np,T,\xff\np,T,ok\n")
    told = run("load_facts", str(file), skip_bad=True)
    assert "line 5: argument 1 has a type but no id" in told
    assert "line 6: not valid UTF-8" in told
    assert "3 facts read, 3 of them new, 2 lines skipped" in told


def test_a_load_leaves_the_garbage_collector_on(environment, tmp_path):
    (tmp_path / "facts.jsonl").write_text(LINES, encoding="utf-8")
    usual_turn = sys.getswitchinterval()
    run("load_facts", str(tmp_path / "facts.jsonl"))
    assert gc.isenabled() and sys.getswitchinterval() == usual_turn


@pytest.mark.parametrize("db", ["sqlite"], indirect=True)
def test_a_load_leaves_the_page_cache_as_small_as_it_was(environment):
    """Whether it stores anything or not: servers load files, too, and go on with the connection."""
    before = fetch("PRAGMA cache_size")
    for line in (fact_from_text('has_role(User:ann, "owner", Organization:acme)'), 1):
        with suppress(loading.LinesRejected):
            loading.load(environment.pk, [(1, line)])
        assert fetch("PRAGMA cache_size") == before


def test_an_odd_quote_in_csv_is_a_bad_line(environment, tmp_path):
    file = tmp_path / "facts.csv"
    file.write_text('p,T,"a"b\np,T,ok\n')
    assert "1 fact read" in run("load_facts", str(file), skip_bad=True)


def test_a_load_is_larger_than_a_chunk(environment, tmp_path):
    file = tmp_path / "facts.csv"
    file.write_text("".join(f"p,T,{n}\n" for n in range(20_001)))
    assert "20,001 facts read, 20,001 of them new" in run("load_facts", str(file))
    file.write_text("".join(f"p,T,{n}\n" for n in range(10_000, 30_002)))
    assert "20,002 facts read, 10,001 of them new" in run("load_facts", str(file))


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(loading, "CHUNK", dict.fromkeys(loading.CHUNK, 2))


def test_chunks_may_repeat_facts_and_bring_new_signatures(environment, tmp_path, small_chunks):
    store.apply(environment.id, [Inserts([Fact("p", (Value("T", "3"),))])])
    file = tmp_path / "facts.csv"
    file.write_text("".join(f"{name},T,{n}\n" for name in ("p", "q") for n in (1, 2, 2, 3, 1, 4)) + "\n\n\nr,T,1\n")
    assert "13 facts read, 8 of them new" in run("load_facts", str(file))
    assert stored(environment) == [f'{name}(T{{"{n}"}})' for name in "pq" for n in (1, 2, 3, 4)] + ['r(T{"1"})']


def test_chunks_of_bad_lines_alone_do_not_end_a_load(environment, tmp_path, small_chunks):
    file = tmp_path / "facts.csv"
    file.write_text("p,T,1\n" + "p,T\n" * 5 + "p,T,2\n")
    assert "2 facts read, 2 of them new, 5 lines skipped" in run("load_facts", str(file), skip_bad=True)


def test_a_load_that_the_database_refuses_stores_nothing(environment, tmp_path, small_chunks, monkeypatch):
    file = tmp_path / "facts.csv"
    file.write_text("".join(f"p,T,{n}\n" for n in range(7)))
    on_sqlite = connection.vendor == "sqlite"
    place, name = (type(fact_table()), "insert") if on_sqlite else (loading, "_load_chunk")
    whole = getattr(place, name)

    def broken(*given):
        return whole(*given[:-1], [row if row[1] != "4" else row[:2] for row in given[-1]])

    monkeypatch.setattr(place, name, broken)
    with pytest.raises(Exception, match=r"(?i)column|binding"):
        run("load_facts", str(file))
    monkeypatch.undo()
    assert stored(environment) == []
    assert not connection.allow_thread_sharing
    assert "7 facts read, 7 of them new" in run("load_facts", str(file))


def test_facts_are_deleted_by_pattern_and_counted_first(environment):
    store.apply(environment.id, [Inserts([Fact("p", (Value("T", text), Value("U", "x"))) for text in "abc"])])
    assert "3 matching facts; dry run, nothing was deleted" in run("delete_facts", "p(_, U:x)", dry_run=True)
    assert "1 fact deleted" in run("delete_facts", "p(T:a, _)")
    assert "2 facts deleted" in run("delete_facts", "p(T:_, _)")
    with pytest.raises(CommandError):
        run("delete_facts", "p(")


def test_a_misspelled_pattern_that_matches_nothing_is_told(environment):
    assert run("delete_facts", "has_rol(_, _, _)") == "0 facts deleted\n"  # without a policy
    publish(environment.id, 'actor User {} resource Repo { roles = ["admin"]; }', None)
    told = "warning: the policy has no predicate `has_rol` (did you mean `has_role`?)"
    assert told in run("delete_facts", "has_rol(_, _, _)")
    assert told in run("delete_facts", "has_rol(_, _, _)", dry_run=True)
    assert run("delete_facts", "has_role(User:ann, _, _)") == "0 facts deleted\n"


def test_unknown_environments_and_files_are_told(environment):
    with pytest.raises(CommandError, match="Environment `nope` does not exist"):
        run("delete_facts", "p(_)", environment="nope")
    with pytest.raises(CommandError, match="cannot read"):
        run("load_facts", "/no/such/file")


@pytest.mark.parametrize("kind", ["csv", "json", "notation"])
def test_a_file_that_is_not_utf_8_is_named_with_its_line(db, tmp_path, kind):
    file = tmp_path / "facts"
    lines = io.StringIO()
    WRITERS[kind](
        lines, iter([fact_from_text("member(User:ann, Team:ops)"), fact_from_text("member(User:zoë, Team:ops)")])
    )
    file.write_bytes(lines.getvalue().encode("latin-1"))
    with pytest.raises(CommandError) as refused:
        run("load_facts", str(file), format=kind)
    assert str(refused.value).splitlines() == [
        f"Nothing was stored. Correct these lines of `{file}`, set --format, or pass --skip-bad:",
        "line 2: not valid UTF-8; save the file as UTF-8",
    ]


def test_each_of_many_invalid_lines_is_reported_once(environment, tmp_path):
    (tmp_path / "facts.jsonl").write_text("no JSON\n" * (loading.ENOUGH + 5), encoding="utf-8")
    with pytest.raises(CommandError) as refused:
        run("load_facts", str(tmp_path / "facts.jsonl"))
    named = [line.partition(":")[0] for line in str(refused.value).splitlines()[1:]]
    assert named == [f"line {number}" for number in range(1, loading.ENOUGH + 1)]
