"""Roles and relations that the policy does not know are stored, and told of: by commands and in the admin."""

import json

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from facts import loading, read
from facts.accept import LONGEST, MOST_TOLD, WARNING, sentences, stored_names, unknown_names
from facts.wire import Fact
from policy.active import active_program
from policy.models import Revision
from policy.values import Value
from tests.checks.conftest import POLICY, publish, store
from tests.checks.conftest import fact as as_json

UNKNOWN = "unknown role on Repo: `admni` (known: `reader`, `writer`)"


def fact(predicate: str, *args: str) -> Fact:
    return Fact(predicate, tuple(Value(*arg.split(":", 1)) for arg in args))


@pytest.fixture
def program(api):
    publish(api, POLICY)
    return active_program(api.environment.id)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["has_role", "User:a", "String:reader", "Repo:r"], []),
        (["has_role", "User:a", "String:raeder", "Repo:r"],
         ["unknown role on Repo: `raeder` (did you mean `reader`?)"]),
        (["has_role", "User:a", "String:zzz", "Org:o"],
         ["unknown role on Org: `zzz` (known: `admin`, `member`)"]),
        (["has_relation", "Repo:r", "String:organisation", "Org:o"],
         ["unknown relation of Repo: `organisation`"
          " (did you mean `organization`?)"]),
        (["is_public", "Repo:r"], []),
    ],
)  # fmt: skip
def test_a_name_that_is_unknown_is_told_of(program, given, said):
    assert sentences(unknown_names(program, [fact(*given)])) == said


def test_without_a_policy_any_name_may_come_to_mean_something(db):
    assert unknown_names(None, [fact("has_role", "User:a", "String:x", "Repo:r")]) == []


def test_of_many_names_some_are_told(program):
    facts = [fact("has_role", "User:a", f"String:{'n' * n}", "Repo:r") for n in range(1, 400)]
    found = unknown_names(program, facts)
    assert len(found) == 399 and max(map(len, map(str, found))) < 300
    assert len(sentences(found)) == MOST_TOLD + 1 and sentences(found)[-1].startswith("and 379 more unknown names")


def test_a_load_tells_the_line_and_how_many(program, api, tmp_path, capsys):
    lines = [as_json("has_role", f"User:{n}", "admni" if n % 2 else "reader", "Repo:r") for n in range(7)]
    file = tmp_path / "facts.jsonl"
    file.write_text("\n" + "".join(json.dumps(each) + "\n" for each in lines))
    call_command("load_facts", str(file))
    told = capsys.readouterr()
    assert told.err == f"warning: line 3: {UNKNOWN}; 3 such facts\n"
    assert told.out == "7 facts read, 7 of them new, 0 lines skipped\n"
    assert len(read.found(api.environment.id, None, ()).facts) == 7


def test_lines_that_are_looked_at_with_care_are_looked_at_for_names(program, api):
    long = as_json("has_role", "User:" + "é" * 200, "admni", "Repo:r")
    ends = as_json("has_role", "User:a", "admni", "Repo:r") | {"expires_at": "2099-01-01T00:00:00Z"}
    loaded = loading.load(api.environment.id, [(5, long), (9, ends)])
    assert [str(each) for each in loaded.unknown] == [f"line 5: {UNKNOWN}; 2 such facts"]


def test_stored_names_are_audited(program, api, capsys):
    store(api, *[as_json("has_role", f"User:{n}", "admni", "Repo:r") for n in range(3)])
    store(api, as_json("has_role", "User:a", "reader", "Repo:r"), as_json("has_role", "User:a", "member", "Org:r"))
    assert [str(each) for each in stored_names(api.environment.id, program)] == [f"{UNKNOWN}; 3 such facts"]
    call_command("audit_facts", "--strict")
    assert capsys.readouterr().out == f"warning: {UNKNOWN}; 3 such facts\nthe policy accepts every stored fact\n"


def test_the_admin_stores_it_and_warns(program, api):
    client = Client()
    client.force_login(User.objects.create_superuser("admin", password="not used"))
    sent = {"environment": api.environment.id, "fact": "has_role(User:ann, admn, Org:o)"}
    page = client.post("/admin/facts/signature/add/", sent, follow=True).content.decode()
    assert "Stored: has_role" in page
    assert "Unknown role on Org: <code>admn</code> (did you mean <code>admin</code>?)." in page
    page = client.post("/admin/facts/signature/add/", sent | {"fact": "has_role(User:ann, admin, Org:o)"}, follow=True)
    assert "Unknown role" not in page.content.decode()


# ---- warnings of the interface, and refusals ---------------------------------------------------------------------

ADMNI = as_json("has_role", "User:a", "admni", "Repo:r")
READER = as_json("has_role", "User:a", "reader", "Repo:r")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/batch", [{"inserts": [READER, ADMNI]}]),
        ("/bulk", {"delete": [], "tell": [ADMNI]}),
        ("/bulk_load", [ADMNI]),
    ],
)
def test_a_write_warns_of_unknown_names(program, api, path, body):
    """Published clients get the same bodies as before: some of them fail on members that they do not know."""
    for headers, is_told in (({}, True), ({"X-OsoApiVersion": "0"}, False)):
        answer = api.post(path, body, **headers)
        assert (answer.status_code, answer[WARNING]) == (200, UNKNOWN)
        assert answer.json().get("warnings") == ([UNKNOWN] if is_told else None)
        assert answer.json().keys() - {"warnings"} == {"message"}


def test_a_write_of_known_names_has_no_warning(program, api):
    answer = api.post("/batch", [{"inserts": [READER]}, {"deletes": [ADMNI]}])
    assert (answer.json(), WARNING in answer) == ({"message": "Batch applied"}, False)


def test_writers_that_share_a_transaction_are_each_warned_of_their_own(program, api):
    with_names = [api.post("/facts", fact) for fact in (ADMNI, READER, ADMNI)]
    assert [answer.get(WARNING) for answer in with_names] == [UNKNOWN, None, UNKNOWN]


def test_the_warning_of_a_write_is_one_line_of_ascii(program, api):
    names = [f"{number}\r\nSet-Cookie=é🙂{'x' * 90}" for number in range(100)]
    answer = api.post("/batch", [{"inserts": [as_json("has_role", "User:a", name, "Repo:r") for name in names]}])
    assert answer.status_code == 200, answer.json()
    assert answer[WARNING].isascii() and answer[WARNING].isprintable() and len(answer[WARNING]) <= LONGEST
    assert len(answer.json()["warnings"]) == MOST_TOLD + 1


def test_a_setting_refuses_unknown_names(program, api, settings, tmp_path):
    settings.STRICT_FACTS = True
    answer = api.post("/batch", [{"inserts": [READER]}, {"inserts": [READER, ADMNI, ADMNI]}])
    assert (answer.status_code, answer.json()) == (400, {"message": f"[1].inserts[1]: {UNKNOWN}"})
    assert api.post("/facts", ADMNI).json() == {"message": UNKNOWN}
    assert read.found(api.environment.id, None, ()).facts == []
    assert api.post("/batch", [{"deletes": [ADMNI]}, {"inserts": [READER]}]).status_code == 200
    context = {"actor_type": "User", "actor_id": "a", "action": "read", "resource_type": "Repo", "resource_id": "r"}
    assert api.post("/authorize", {**context, "context_facts": [ADMNI]}).status_code == 200
    file = tmp_path / "facts.jsonl"
    file.write_text(json.dumps(ADMNI))
    with pytest.raises(CommandError, match="Nothing was stored"):
        call_command("load_facts", str(file))


def test_a_strict_load_refuses_unknown_names(program, api, tmp_path, capsys):
    file = tmp_path / "facts.jsonl"
    long = as_json("has_role", "User:" + "é" * 200, "admni", "Repo:r")
    file.write_text("".join(json.dumps(each) + "\n" for each in (READER, ADMNI, long)))
    with pytest.raises(CommandError) as refused:
        call_command("load_facts", str(file), "--strict")
    assert str(refused.value).splitlines()[1:] == [f"line 2: {UNKNOWN}", f"line 3: {UNKNOWN}"]
    assert read.found(api.environment.id, None, ()).facts == []
    call_command("load_facts", str(file), "--strict", "--skip-bad")
    told = capsys.readouterr()
    assert told.err == f"line 2: {UNKNOWN}\nline 3: {UNKNOWN}\n"
    assert told.out == "1 fact read, 1 of them new, 2 lines skipped\n"


def test_a_change_of_nothing_makes_no_revision(program, api, tmp_path, capsys):
    file = tmp_path / "facts.jsonl"
    file.write_text(json.dumps(READER))
    call_command("load_facts", str(file))
    before = list(Revision.objects.values_list("number", flat=True))
    call_command("load_facts", str(file))
    assert "1 fact read, 0 of them new" in capsys.readouterr().out
    assert list(Revision.objects.values_list("number", flat=True)) == before
    call_command("delete_facts", "is_public(Repo:none)")
    assert capsys.readouterr().out == "0 facts deleted\n"
    assert list(Revision.objects.values_list("number", flat=True)) == before
    assert int(api.post("/facts", as_json("is_public", "Repo:new"))["OsoOffset"]) == max(before) + 1
