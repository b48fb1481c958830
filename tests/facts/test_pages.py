"""The pages of facts: every value a link, deleting by asking, and files of facts in and out."""

import io
import re
import time
from dataclasses import replace
from datetime import datetime
from html import unescape
from itertools import groupby
from pathlib import Path

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from facts import loading, read, store
from facts.loading import load
from facts.pages import change
from facts.store import Deletes, Inserts
from facts.wire import READERS, Argument, Fact, FactPattern
from policy.core.clock import microseconds_of, now
from policy.models import Revision
from policy.values import Value, quoted
from tests.checks.conftest import POLICY, publish
from tests.facts.test_history_pages import person
from tests.facts.test_walk import HOSTILE, fact
from tests.waiting import do_before

pytestmark = pytest.mark.one_database

PAGE, VALUE = "/admin/facts/signature/", "/admin/facts/value/"
ACTIONS = {"Org": ("read",), "Repo": ("read", "write")}  # of the policy
LATER = "2096-12-01T00:30:00Z"


@pytest.fixture
def staff(db) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("admin", password="not used"))
    return client


def insert(environment, *facts: Fact) -> None:
    store.apply(environment.id, [Inserts(list(facts))])


def delete(environment, *facts: Fact) -> None:
    patterns = [FactPattern(one.predicate, tuple(Argument(each.type, each.id) for each in one.args)) for one in facts]
    store.apply(environment.id, [Deletes(patterns)])


def text_of(page) -> str:
    assert page.status_code == 200, page.status_code
    return page.content.decode()


def links(text: str) -> list[str]:
    main = text[text.index('id="content-main"') :]
    return [unescape(href) for href in re.findall(r'<a [^>]*?href="([^"]*)"', main)]


def told(page) -> list[str]:
    return [str(message) for message in page.context["messages"]]


# ---- values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*HOSTILE, "x" * 512, "a&b=c#d?e", "<b>", "../..", "a+b"])
def test_every_id_leads_to_its_page_whatever_it_is_made_of(staff, environment, text):
    insert(environment, fact("member", f"User:{text}", "Team:t"), fact("member", "User:other", "Team:t"))
    shown = text_of(staff.get(PAGE, {"id": text, "type": "User"}))
    (address,) = {href for href in links(shown) if href.startswith(VALUE) and "type=User" in href}
    page = staff.get(address)
    assert page.context["value"] == Value("User", text)
    assert [line.fact.args[0].id for line in page.context["facts"]] == [text]
    for href in links(text_of(page)):
        if href.startswith(("/admin/facts", "?")):
            assert staff.get(href).status_code == 200, href
    assert "<b>" not in shown


def test_a_value_shows_its_facts_in_every_place(staff, environment):
    insert(
        environment,
        fact("knows", "User:ann", "User:bob"), fact("knows", "User:bob", "User:ann"),
        fact("knows", "User:ann", "User:ann"), fact("member", "User:ann", "Team:ann"), fact("is_team", "Team:ann"),
    )  # fmt: skip
    page = staff.get(VALUE, {"environment": "default", "type": "User", "id": "ann"})
    assert [(each.kind.predicate, each.position, str(count)) for each, count in page.context["met"]] == [
        ("knows", 0, "2"), ("knows", 1, "1"), ("member", 0, "1"),
    ]  # fmt: skip
    shown = [[str(line.fact) for line in same] for _, same in groupby(page.context["facts"], lambda line: line.column)]
    assert shown == [
        ['knows(User{"ann"}, User{"ann"})', 'knows(User{"ann"}, User{"bob"})'],
        ['knows(User{"bob"}, User{"ann"})'],
        ['member(User{"ann"}, Team{"ann"})'],
    ]
    (address,) = [href for href in links(text_of(page)) if f"in={page.context['met'][1][0].name_in_urls}#" in href]
    assert [str(line.fact) for line in staff.get(address).context["facts"]] == shown[1]


def test_a_value_with_many_facts_has_pages(staff, environment):
    insert(environment, *[fact("member", f"User:{n:03}", "Team:t") for n in range(230)])
    page, seen = staff.get(VALUE, {"environment": "default", "type": "Team", "id": "t"}), []
    while True:
        seen += [line.fact.args[0].id for line in page.context["facts"]]
        if not page.context["pager"].next:
            break
        page = staff.get(VALUE + page.context["pager"].next)
    assert seen == [f"{n:03}" for n in range(230)]
    before = staff.get(VALUE + page.context["pager"].previous)
    assert [line.fact.args[0].id for line in before.context["facts"]] == seen[100:200]


def test_a_whole_list_is_in_natural_order_and_pages_of_a_longer_one_are_in_that_of_the_index(staff, environment):
    insert(environment, fact("is_team", "Team:9"), *[fact("member", f"User:{n}", "Team:t") for n in (10, 9, 100, 1)])
    for page in (staff.get(PAGE), staff.get(VALUE, {"environment": "default", "type": "Team", "id": "t"})):
        shown = [line.fact.args[0].id for line in page.context["facts"]]
        assert shown in (["9", "1", "9", "10", "100"], ["1", "9", "10", "100"])
    insert(environment, *[fact("member", f"User:{n}", "Team:t") for n in range(200)])
    page = staff.get(PAGE, {"predicate": "member"})
    shown = [line.fact.args[0].id for line in page.context["facts"]]
    assert shown == sorted(map(str, range(200)))[:100]


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"environment": "default", "type": "User", "id": "nobody"}, 200),
        ({"environment": "default", "type": "Nothing", "id": "x" * 4000}, 200),
        ({"environment": "default", "type": "User", "id": ""}, 404),
        ({"environment": "default", "type": "", "id": "ann"}, 404),
        ({"environment": "elsewhere", "type": "User", "id": "ann"}, 404),
        ({"environment": "default\0", "type": "User", "id": "ann"}, 404),
        ({"environment": "default", "type": "User", "id": "a\0b"}, 404),
        ({}, 404),
    ],
)
def test_values_that_nothing_is_known_of(staff, environment, asked, status):
    for page in (VALUE, f"{VALUE}history/"):
        assert staff.get(page, asked).status_code == status


def test_environments_are_apart(staff, new_api):
    one, other = new_api("default").environment, new_api("other").environment
    insert(one, fact("member", "User:ann", "Team:t"))
    insert(other, fact("member", "User:ann", "Team:secret"))
    for slug, team in (("default", "t"), ("other", "secret")):
        page = staff.get(VALUE, {"environment": slug, "type": "User", "id": "ann"})
        assert [line.fact.args[1].id for line in page.context["facts"]] == [team]
    exported = b"".join(staff.get(f"{PAGE}export/", {"environment": one.pk, "format": "notation"}))
    assert exported == b"member(User:ann, Team:t)\n"
    assert staff.get(f"{PAGE}export/", {"format": "notation"}).status_code == 404
    assert {line.column.kind.environment.slug for line in staff.get(PAGE).context["facts"]} == {"default", "other"}


def test_a_value_has_a_history(staff, environment):
    insert(environment, fact("knows", "User:ann", "User:ann"), fact("knows", "User:bob", "User:ann"))
    insert(environment, fact("knows", "User:bob", "User:eve"), fact("member", "User:ann", "Team:t"))
    delete(environment, fact("knows", "User:bob", "User:ann"))
    page = staff.get(f"{VALUE}history/", {"environment": "default", "type": "User", "id": "ann"})
    happened = [
        (revision.number, [f"-{one.fact}" for one in entry.deleted] + [f"+{one.fact}" for one in entry.inserted])
        for revision, _, entry in page.context["happened"]
    ]
    assert happened == [
        (3, ['-knows(User{"bob"}, User{"ann"})']),
        (2, ['+member(User{"ann"}, Team{"t"})']),
        (1, ['+knows(User{"ann"}, User{"ann"})', '+knows(User{"bob"}, User{"ann"})']),
    ]


# ---- what a value may do ---------------------------------------------------------------------------------------


@pytest.fixture
def repos(api):
    publish(api, POLICY)
    insert(
        api.environment,
        fact("has_role", "User:ann", "String:reader", "Repo:a"), fact("has_role", "User:ann", "String:admin", "Org:o"),
        fact("has_relation", "Repo:b", "String:organization", "Org:o"), fact("is_public", "Repo:p"),
        fact("has_role", "User:bob", "String:writer", "Repo:a"), fact("is_root", "User:root"),
    )  # fmt: skip
    return api.environment


def test_a_value_leads_to_what_it_may_do_and_who_may_do_what_to_it(staff, repos):
    page = staff.get(VALUE, {"environment": "default", "type": "User", "id": "ann"})
    asked = [href for href in links(text_of(page)) if "/ask/" in href]
    assert [href.partition("?")[2] for href in asked] == [
        f"kind=list&actor=User:ann&action={action}&resource={name}"
        for name in ("Org", "Repo")
        for action in ACTIONS[name]
    ]
    said = text_of(staff.get(next(href for href in asked if href.endswith("action=read&resource=Repo"))))
    assert "3 resources" in said and all(f"Repo</span>:{text}" in said for text in "abp")
    page = staff.get(VALUE, {"environment": "default", "type": "Repo", "id": "a"})
    asked = [href for href in links(text_of(page)) if "/ask/" in href]
    assert [href.partition("?")[2] for href in asked] == [
        f"kind=who&action={each}&resource=Repo:a" for each in ACTIONS["Repo"]
    ]
    assert "3 actors" in text_of(staff.get(asked[0]))


@pytest.mark.parametrize("action", [" read", '"read"', "re\nad", "a&b=c#d"])
def test_questions_about_a_value_are_right_whatever_the_action_is_made_of(staff, api, action):
    declared = f"permissions = [{quoted(action)}]; {quoted(action)} if is_public(resource);"
    publish(api, f"actor User {{}} resource Doc {{ {declared} }}")
    insert(api.environment, fact("is_public", "Doc:d 1"))
    page = staff.get(VALUE, {"environment": "default", "type": "Doc", "id": "d 1"})
    (address,) = [href for href in links(text_of(page)) if "/ask/" in href]
    assert "Every User" in text_of(staff.get(address))


def test_questions_want_the_permission_to_view_policies(repos):
    asked = {"environment": "default", "type": "Repo", "id": "a"}
    assert person("view_signature").get(VALUE, asked).context["questions"] == {}


# ---- completion --------------------------------------------------------------------------------------------------


def test_ids_are_completed_byte_by_byte(staff, environment):
    insert(environment, *[fact("member", f"User:{text}", "Team:Ann") for text in ("ann", "anna", "Anna", "bob", "a%b")])

    def completed(**asked: str) -> list[str]:
        return staff.get(f"{PAGE}ids/", asked).json()["ids"]

    assert completed(id="an") == ["ann", "anna"]
    assert completed(id="An") == ["Ann", "Anna"]
    assert completed(id="An", type="Team") == ["Ann"]
    assert completed(id="a%") == ["a%b"] and completed(id="%") == []
    assert completed(id="x" * 4000) == [] and completed(id="a\0") == [] and completed(predicate="unheard") == []


def test_ids_of_few_facts_are_not_hidden_by_those_of_many(staff, environment):
    insert(
        environment, *[fact("member", "User:a1", f"Team:{n}") for n in range(500)], fact("member", "User:a2", "Team:1")
    )
    assert staff.get(f"{PAGE}ids/", {"id": "a", "type": "User"}).json()["ids"] == ["a1", "a2"]


def test_where_nothing_is_found_near_ids_are_named(staff, environment):
    insert(environment, fact("member", "User:annabel", "Team:t"))
    page = staff.get(PAGE, {"id": "annette"})
    assert [value for value, _ in page.context["near"]] == [Value("User", "annabel")]


# ---- deleting ----------------------------------------------------------------------------------------------------


ANN, BOB = fact("member", "User:ann", "Team:t"), fact("member", "User:bob", "Team:t")


def tokens(client: Client) -> list[str]:
    return re.findall(r'name="selected" value="([^"]+)"', text_of(client.get(PAGE)))


def asked_about(client: Client) -> tuple[str, list[str]]:
    shown = text_of(client.post(f"{PAGE}delete/", {"selected": tokens(client), "back": "id=ann"}))
    return shown, re.findall(r'name="fact" value="([^"]+)"', shown)


def confirm(client: Client, sent: list[str]):
    return client.post(f"{PAGE}delete/", {"fact": sent, "confirmed": "yes", "back": ""}, follow=True)


def stored(environment) -> list[Fact]:
    return read.found(environment.id, None, ()).facts


def test_nothing_is_deleted_before_it_was_asked_about(staff, environment):
    insert(environment, ANN, BOB)
    shown, sent = asked_about(staff)
    assert "Delete these 2 facts?" in shown and "member(User:ann, Team:t)" in shown
    assert len(stored(environment)) == 2 and len(sent) == 2
    staff.get(f"{PAGE}delete/")
    confirm(staff, [])
    confirm(staff, ["tampered", *tokens(staff)])
    assert len(stored(environment)) == 2
    assert told(confirm(staff, sent)) == ["2 facts deleted."]
    assert stored(environment) == []
    assert Revision.objects.filter(environment=environment).count() == 2  # all of them in one


def test_a_fact_that_is_gone_meanwhile_is_told_of(staff, environment):
    insert(environment, ANN, BOB)
    _, sent = asked_about(staff)
    delete(environment, ANN)
    page = confirm(staff, sent)
    assert told(page) == [f"Already deleted: {ANN.noted}", "1 fact deleted."] and stored(environment) == []


def test_a_fact_that_has_changed_is_asked_about_again(staff, environment):
    insert(environment, ANN, BOB)
    _, sent = asked_about(staff)
    insert(environment, Fact(ANN.predicate, ANN.args, now() + 10**12))
    page = confirm(staff, sent)
    assert "No facts were deleted: some have changed since you selected them. Confirm again." in told(page)
    assert text_of(page).count("changed since you selected it</span>") == 1 and len(stored(environment)) == 2
    again = re.findall(r'name="fact" value="([^"]+)"', text_of(page))
    assert told(confirm(staff, again)) == ["2 facts deleted."] and stored(environment) == []


def test_a_fact_that_was_deleted_and_stored_again_is_asked_about_again(staff, environment):
    insert(environment, ANN)
    _, sent = asked_about(staff)
    delete(environment, ANN)
    insert(environment, ANN)
    confirm(staff, sent)
    assert stored(environment) == [ANN]


def test_facts_of_an_environment_that_was_deleted_meanwhile_are_passed_over(staff, environment, new_api):
    other = new_api("other").environment
    insert(environment, ANN)
    insert(other, BOB)
    _, sent = asked_about(staff)
    store.remove(other.pk)
    other.delete()
    assert told(confirm(staff, sent)) == ["1 fact deleted."] and stored(environment) == []


def test_a_limit_of_deletes_holds_here(staff, environment, settings):
    insert(environment, ANN, BOB)
    _, sent = asked_about(staff)
    settings.MAX_DELETE_MATCHES = 1
    (said,) = told(confirm(staff, sent))
    assert (
        said.startswith("No facts were deleted: the deletes match more than 1 facts") and len(stored(environment)) == 2
    )


def test_no_note_of_the_admin_has_an_id(staff, environment):
    add(staff, environment, "member(User:cat, Team:t)", LATER.removesuffix("Z"))
    insert(environment, ANN, fact("owns", "User:ann", "Team:t"), fact("owns", "User:bob", "Team:t"))
    _, sent = asked_about(staff)
    confirm(staff, sent)
    assert stored(environment) == []
    notes = LogEntry.objects.values_list("object_repr", "change_message")
    member, owns = 'member ["User","Team"]', 'owns ["User","Team"]'
    assert sorted(notes) == [
        (member, "Added a fact."), (member, "Deleted 2 facts."), (owns, "Deleted 2 facts."),
    ]  # fmt: skip


# ---- in and out --------------------------------------------------------------------------------------------------


def send(client: Client, environment, text: str = "", **others):
    return client.post(f"{PAGE}import/", {"environment": environment.pk, "text": text, **others}, follow=True)


def test_facts_are_pasted_in_the_notation_and_as_json(staff, environment):
    lines = [
        "# a comment", "", "member(User:ann, Team:t)", f"member(User:bob, Team:t) until {LATER}",
        '{"predicate": "is_team", "args": [{"type": "Team", "id": "t"}]}', "member(User:ann, Team:t);",
    ]  # fmt: skip
    page = send(staff, environment, "\r\n".join(lines))
    assert told(page) == ["4 facts imported, 3 new."]
    assert [str(each) for each in stored(environment)] == [
        'is_team(Team{"t"})', 'member(User{"ann"}, Team{"t"})', 'member(User{"bob"}, Team{"t"})',
    ]  # fmt: skip
    assert [bool(each.expires_at) for each in stored(environment)] == [False, False, True]
    assert Revision.objects.filter(environment=environment).count() == 1


def test_all_of_a_file_is_stored_or_nothing_and_why(staff, environment):
    insert(environment, ANN)
    lines = [
        "member(User:x, Team:t)",
        "member(User:",
        '{"predicate": "p"}',
        "p(User:_)",
        "<b>(User:a)",
        "q(User:" + "x" * 4000,
    ]
    page = send(staff, environment, "\n".join(lines))
    wrong = page.context["form"].wrong
    assert [each.number for each, _ in wrong] == [2, 3, 4, 6]
    assert "args: must be an array" in wrong[1][0].reason and len(wrong[3][1]) == 301
    assert stored(environment) == [ANN]
    assert "member(User:x, Team:t)" in text_of(page), "what was pasted is there to be mended"


@pytest.mark.parametrize("name", ["facts.csv", "facts.txt"])
def test_files_are_read_by_their_names(staff, environment, name, tmp_path):
    file = tmp_path / name
    file.write_text("member,User,ann,Team,t\n" if name.endswith("csv") else "member(User:ann, Team:t)\n")
    with file.open("rb") as opened:
        assert told(send(staff, environment, file=opened)) == ["1 fact imported, 1 new."]
    assert stored(environment) == [ANN]


def test_an_import_of_nothing_or_of_two_things_says_so(staff, environment, tmp_path):
    assert "Enter facts or choose a file." in text_of(send(staff, environment, "  \n"))
    file = tmp_path / "facts.txt"
    file.write_text("member(User:ann, Team:t)\n")
    with file.open("rb") as opened:
        assert "not both" in text_of(send(staff, environment, "member(User:bob, Team:t)", file=opened))
    assert stored(environment) == []


def test_facts_that_the_policy_has_no_use_for_are_not_imported(staff, repos):
    before = stored(repos)
    page = send(staff, repos, "has_role(User:x, reader, Repo:x)\nhas_rol(User:x, reader, Repo:x)")
    ((wrong, _),) = page.context["form"].wrong
    assert wrong.number == 2 and "did you mean `has_role`?" in wrong.reason and stored(repos) == before


def test_an_import_warns_of_roles_that_nothing_knows(staff, repos):
    page = send(staff, repos, "has_role(User:x, reader, Repo:x)\n\nhas_role(User:x, raeder, Repo:x)")
    assert told(page) == [
        "2 facts imported, 2 new.",
        "Line 3: unknown role on Repo: <code>raeder</code> (did you mean <code>reader</code>?).",
    ]


def add(client: Client, environment, text: str, ends: str = ""):
    return client.post(f"{PAGE}add/", {"environment": environment.pk, "fact": text, "ends": ends})


def ended_at(environment) -> dict[Fact, int | None]:
    return {each: each.expires_at for each in stored(environment)}


def microseconds_of_text(text: str) -> int:
    return microseconds_of(datetime.fromisoformat(text))


@pytest.mark.parametrize("ends", [None, 4_000_000_000_000_000])
def test_whoever_may_only_add_facts_changes_no_end(environment, ends):
    insert(environment, replace(ANN, expires_at=ends), BOB)
    client, soon = person("add_signature", "view_signature"), "2095-01-01T00:00:00"
    page = add(client, environment, "member(User:ann, Team:t)", soon)
    assert page.context["form"].errors == {
        "ends": ["this fact is already stored with another expiry, and you do not have permission to change it"]
    }
    lines = ["member(User:new, Team:t)", "# a comment", f"member(User:ann, Team:t) until {soon}Z"]
    ((wrong, _),) = send(client, environment, "\n".join(lines)).context["form"].wrong
    assert (wrong.number, wrong.reason) == (
        3,
        "this fact is already stored with another expiry, and you do not have permission to change it",
    )
    if ends is not None:  # for good is another end as well
        assert add(client, environment, "member(User:ann, Team:t)").status_code == 200
    assert ended_at(environment) == {ANN: ends, BOB: None}
    assert Revision.objects.filter(environment=environment).count() == 1


def test_whoever_may_only_add_facts_adds_them_as_they_are(environment):
    insert(environment, replace(ANN, expires_at=microseconds_of_text(LATER)), BOB)
    client = person("add_signature", "view_signature")
    assert add(client, environment, "member(User:ann, Team:t)", LATER.removesuffix("Z")).status_code == 302
    assert add(client, environment, "member(User:bob, Team:t)").status_code == 302
    assert add(client, environment, "member(User:new, Team:t)", LATER.removesuffix("Z")).status_code == 302
    lines = [f"member(User:ann, Team:t) until {LATER}", "member(User:bob, Team:t)", "member(User:cat, Team:t)"]
    assert told(send(client, environment, "\n".join(lines)))[-1] == "3 facts imported, 1 new."


def test_a_fact_that_has_ended_is_added_again_by_whoever_may_only_add(environment):
    insert(environment, replace(ANN, expires_at=now() + 400_000))
    time.sleep(0.5)
    client = person("add_signature", "view_signature")
    assert add(client, environment, "member(User:ann, Team:t)", LATER.removesuffix("Z")).status_code == 302
    assert stored(environment) == [ANN]


def test_a_file_says_the_end_of_a_new_fact_twice(environment, monkeypatch):
    monkeypatch.setattr(loading, "CHUNK", dict.fromkeys(loading.CHUNK, 1))
    client = person("add_signature", "view_signature")
    lines = ["member(User:ann, Team:t)", f"member(User:ann, Team:t) until {LATER}"]
    assert "2 facts imported" in told(send(client, environment, "\n".join(lines)))[0]
    assert ended_at(environment) == {ANN: microseconds_of_text(LATER)}


@pytest.mark.parametrize("permission", ["change_signature", "delete_signature"])
def test_whoever_may_change_or_delete_facts_changes_their_ends(environment, permission):
    insert(environment, ANN, BOB)
    client = person("add_signature", "view_signature", permission)
    assert add(client, environment, "member(User:ann, Team:t)", LATER.removesuffix("Z")).status_code == 302
    assert "1 fact imported" in told(send(client, environment, f"member(User:bob, Team:t) until {LATER}"))[-1]
    assert ended_at(environment) == dict.fromkeys((ANN, BOB), microseconds_of_text(LATER))


@pytest.mark.parametrize("form", change.FORMATS)
def test_what_is_exported_can_be_imported(staff, environment, new_api, form):
    facts = [
        Fact("p", (Value("User", text), Value("Team", "t")), now() + 10**12 if n % 2 else None)
        for n, text in enumerate(HOSTILE)
    ]
    insert(environment, *facts, fact("q", "User:a"))
    other = new_api("other").environment
    answered = staff.get(f"{PAGE}export/", {"environment": environment.pk, "predicate": "p", "format": form})
    assert answered["Content-Disposition"].startswith('attachment; filename="facts-default.')
    content = b"".join(answered)
    path = Path(answered.path)
    assert path.stat().st_mode & 0o777 == 0o600 and path.read_bytes() == content
    load(other.pk, READERS[form](io.BytesIO(content)))
    ours = {each: each.expires_at for each in stored(environment) if each.predicate == "p"}
    assert {each: each.expires_at for each in stored(other)} == ours


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({"id": "a", "match": "begins"}, ["a1", "a2", "a3"]),
        ({"id": "a1"}, ["a1"]),
        ({"id": "A", "match": "begins"}, []),
        ({"id": "%", "match": "begins"}, []),
        ({"type": "Team"}, ["a1", "a2", "a3", "b"]),
        ({"predicate": "unheard"}, None),
        ({"format": "zip"}, None),
    ],
)
def test_what_is_shown_is_what_is_exported(staff, environment, asked, ids):
    insert(
        environment, *[fact("member", f"User:{text}", "Team:t") for text in ("a3", "a1", "b", "a2")], fact("r", "R:x")
    )
    answered = staff.get(f"{PAGE}export/", {"format": "notation"} | asked)
    if ids is None:
        assert answered.status_code == 404
    else:
        found = re.findall(r"User:(\w+)", b"".join(answered).decode())
        assert found == ids


def test_an_export_is_whole_and_its_file_goes(staff, environment, monkeypatch):
    monkeypatch.setattr(change, "KEPT", 0.2)
    insert(environment, *[fact("member", f"User:{n}", "Team:t") for n in range(1234)])
    answered = staff.get(f"{PAGE}export/", {"format": "json"})
    assert b"".join(answered).count(b"\n") == 1234 == len(stored(environment))
    time.sleep(0.6)
    assert not Path(answered.path).exists()


def test_an_export_has_no_part_of_a_change_that_is_made_meanwhile(staff, environment, monkeypatch):
    insert(environment, fact("member", "User:ann", "Team:t"))
    more = fact("member", "User:bob", "Team:t"), fact("of_a_new_signature", "User:bob")
    do_before(monkeypatch, change, "exported", lambda: insert(environment, *more))
    assert b"".join(staff.get(f"{PAGE}export/", {"format": "notation"})) == b"member(User:ann, Team:t)\n"


# ---- facts that count for nothing ------------------------------------------------------------------------------


def test_what_counts_for_nothing_is_listed_with_links(staff, api):
    insert(
        api.environment, fact("has_rol", "User:ann", "Repo:a"), fact("has_role", "User:ann", "String:raeder", "Repo:a")
    )
    publish(api, POLICY)
    page = staff.get(PAGE)
    assert [each.sentence for each in page.context["useless"]] == [
        "1 fact: `has_rol(User, Repo)` is not used in policy (did you mean `has_role`?)",
        "unknown role on Repo: `raeder` (did you mean `reader`?)",
    ]
    for each, number in zip(
        page.context["useless"], ("1 fact.", "1 fact has an argument of type String whose id is “raeder”.")
    ):
        assert staff.get(each.url).context["summary"] == number
    assert staff.get(PAGE, {"predicate": "has_role"}).context["useless"] == []


@pytest.mark.parametrize("name", ["facts.txt", "facts.csv"])
@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n\x00", b"\xff\xfep\x00(\x00", b'p(User:a)\np(User:"\xff")', b"p,User,\xff"]
)
def test_a_file_that_is_not_text_is_refused_with_a_message(staff, environment, name, data):
    file = SimpleUploadedFile(name, data)
    page = staff.post(f"{PAGE}import/", {"environment": environment.pk, "format": "", "text": "", "file": file})
    assert "the file is not valid UTF-8" in text_of(page)
    assert stored(environment) == []


def test_the_page_says_that_csv_is_quoted(staff, environment):
    insert(environment, fact("p", "User:+1+1"))
    assert "are prefixed with &#x27;" in text_of(staff.get(PAGE)).replace("'", "&#x27;")
    assert b"p,User,'+1+1" in b"".join(staff.get(f"{PAGE}export/", {"environment": environment.pk, "format": "csv"}))
