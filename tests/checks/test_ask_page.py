"""The page of questions: every kind by its address, beside what the interface answers; pages, filters, wrong names."""

import json
import re
import shlex
import subprocess
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client

from checks.ask_pages import pages as answer
from checks.ask_pages.question import question_of
from facts.keyset_pages import known_ids
from policy.core.clock import time_of
from policy.core.pagination import Cursor
from policy.models import Environment, PolicyVersion, Revision
from tests.checks.conftest import POLICY, fact, publish, remove, store, url
from tests.factories import EnvironmentFactory, PolicyVersionFactory

pytestmark = pytest.mark.one_database

HOSTILE = (
    "<b>bold</b>", "a'b\"c`d", "$(touch never); rm -rf .", "x y", "ünï:code", "\u202etxet", "-rf", "100%&a=b#c",
    "back\\slash", "1 OR 1=1", "a\tb", "_",
)  # fmt: skip


def words(answer) -> str:
    """The answer's text on one line, without its tags."""
    assert answer.status_code == 200, answer.status_code
    body = answer.content.decode().partition('<section class="answer"')[2].partition("</section>")[0].partition(">")[2]
    return " ".join(unescape(re.sub(r"<[^>]+>", "", body)).split())


def links(answer, label: str) -> list[str]:
    """Where all links lead that are called so."""
    found = re.findall(r"<a ([^>]*)>(.*?)</a>", answer.content.decode())
    return [unescape(re.search(r'href="([^"]+)"', given)[1]) for given, text in found if text == label]


def answers(answer) -> list[str]:
    """The answers of a list, as they are shown."""
    listed = re.search(r'<ul class="answers">(.*?)</ul>', answer.content.decode(), re.DOTALL)
    items = re.findall(r"<li>(.*?)</li>", listed[1]) if listed else []
    return [unescape(re.sub(r"<[^>]+>", "", each)).replace("Explain", "").strip() for each in items]


def question(**members: str) -> dict:
    asked = {"kind": "authorize", "actor": "User:ann", "action": "read", "resource": "Repo:b", **members}
    return {name: text for name, text in asked.items() if text}


# ---- addresses -----------------------------------------------------------------------------------------------------


def test_an_address_keeps_only_what_is_filled(admin, version):
    form = {"kind": "authorize", "actor": "User:ann", "action": "read", "resource": "Repo:b", "context": "", "at": ""}
    answer = admin.get(url("ask", version), form | {"version": version.pk})
    assert answer.status_code == 302
    assert answer.url == f"{url('ask', version)}?kind=authorize&actor=User:ann&action=read&resource=Repo:b"
    assert "Allowed" in words(admin.get(answer.url))


def test_the_form_is_sent_by_its_address(admin, version):
    page = admin.get(url("ask", version)).content.decode()
    form = re.search(r'<form method="get" id="question".*?</form>', page, re.DOTALL)[0]
    assert "csrfmiddlewaretoken" not in form and 'name="text"' not in form
    assert 'value="User:ann"' in admin.get(url("ask", version), question()).content.decode()


def test_a_long_list_of_a_form_leads_to_the_version_that_is_chosen(admin, version, repos):
    publish(repos, POLICY.replace('"reader" if "member" on "organization";', ""))
    later = PolicyVersion.objects.get(number=2)
    moved = admin.get(url("ask", version), question(version=later.pk))
    assert moved.status_code == 302
    assert moved.url == f"{url('ask', later)}?kind=authorize&actor=User:ann&action=read&resource=Repo:b"
    assert "Denied" in words(admin.get(moved.url))


def test_other_kinds_are_asked_of_the_same_values(admin, version):
    page = admin.get(url("ask", version), question())
    (who,) = links(page, "Actors")
    assert who == f"{url('ask', version)}?kind=who&action=read&resource=Repo:b"
    (listed,) = links(page, "Resources")
    assert listed.endswith("?kind=list&actor=User:ann&action=read&resource=Repo")
    (changed,) = links(page, "Changes")
    assert changed == f"{url('review', version)}?actor_type=User:ann"
    changes = admin.get(changed)
    assert "Choose a start time or revision" in words(changes)
    (of_all,) = links(admin.get(url("ask", version), question(actor="User:*")), "Changes")
    assert of_all == f"{url('review', version)}?actor_type=User"
    assert links(changes, "Actions") == [f"{url('ask', version)}?kind=actions&actor=User:ann"]


def test_an_empty_form_is_no_mistake(admin, version):
    for kind in ("authorize", "actions", "list", "who"):
        said = words(admin.get(url("ask", version), {"kind": kind}))
        assert said.startswith("Fill in the form"), said


# ---- may they? -----------------------------------------------------------------------------------------------------


def test_an_answer_is_explained_with_links_to_all_that_it_names(admin, version):
    answer = admin.get(url("ask", version), question())
    page = answer.content.decode()
    assert words(answer).startswith('Allowed allow(User:ann, "read", Repo:b) Why it was allowed')
    assert 'has_role(User:ann, "admin", Org:o) stored fact' in words(answer)
    assert f'href="{url("change", version)}#L14">line 14</a>' in page
    assert 'href="/admin/facts/value/?environment=default&amp;type=User&amp;id=ann"' in page
    assert f'href="/admin/facts/signature/revision/{version.environment_id}/2/"' in page
    link = re.search(r'<a class="tag stored" href="([^"]+)"', page)[1]
    assert "has_relation" in admin.get(unescape(link)).content.decode()
    assert re.search(r"Answered in [\d.]+ ms by version 1", words(answer))


def test_a_denial_shows_what_stood_in_the_way(admin, version):
    said = words(admin.get(url("ask", version), question(actor="User:bob")))
    assert said.startswith("Denied")
    assert "Why it was denied" in said
    assert 'has_role(User:bob, "member", Org:o) no matching fact or rule' in said


def test_context_facts_count(admin, version):
    sent = question(actor="User:bob", context='has_role(User:bob, "member", Org:o)\n')
    assert 'has_role(User:bob, "member", Org:o) context fact' in words(admin.get(url("ask", version), sent))


# ---- lists ---------------------------------------------------------------------------------------------------------


def test_lists_and_actions_lead_to_the_explanation_of_each_answer(admin, version):
    listed = admin.get(url("ask", version), question(kind="list", resource="Repo"))
    assert words(listed).startswith("3 resources")
    assert answers(listed) == ["Repo:a", "Repo:b", "Repo:p"]
    whys = links(listed, "Explain")
    assert len(whys) == 3
    assert all("Allowed" in words(admin.get(address)) for address in whys)
    actions = admin.get(url("ask", version), question(kind="actions", actor="User:bob", resource="Repo:a", action=""))
    assert words(actions).startswith("2 actions") and answers(actions) == ["read", "write"]
    assert 'Allowed allow(User:bob, "read", Repo:a)' in words(admin.get(links(actions, "Explain")[0]))


def test_who_may_do_it_is_listed(admin, version, repos):
    sent = {"kind": "who", "action": "read", "resource": "Repo:b"}
    found = admin.get(url("ask", version), sent)
    assert words(found).startswith("2 actors") and answers(found) == ["User:ann", "User:root"]
    constraints = {"actor": {"type": "User"}, "action": {"type": "String", "ids": ["read"]}}
    constraints["resource"] = {"type": "Repo", "ids": ["b"]}
    asked = {"predicate": ["allow", ["actor", "action", "resource"]], "constraints": constraints}
    same = repos.post("/evaluate_query", asked).json()["results"]
    assert [f"User:{each['actor']}" for each in same] == answers(found)
    assert all("Allowed" in words(admin.get(address)) for address in links(found, "Explain"))
    assert answers(admin.get(url("ask", version), sent | {"actor": "User"})) == answers(found)
    assert words(admin.get(url("ask", version), sent | {"action": "write"})).startswith("No actors")
    then = admin.get(url("ask", version), sent | {"revision": "1"})
    assert words(then).startswith("No actors") and "As of revision 1" in words(then)


def test_who_is_every_one_where_the_rules_say_so(admin, version, repos):
    found = admin.get(url("ask", version), {"kind": "who", "action": "read", "resource": "Repo:p"})
    assert words(found).startswith("Every User")
    assert "every User" in answers(found)
    assert 'Allowed allow(User:_, "read", Repo:p)' in words(admin.get(links(found, "Explain")[0]))


def test_actors_of_several_types_follow_one_another(admin, version, repos, monkeypatch):
    policy = 'actor Robot {} actor User {} resource Doc { permissions = ["read"]; roles = ["r"]; "read" if "r"; }'
    publish(repos, policy + ' has_permission(_: User, "read", Doc{"open"});')
    there = PolicyVersion.objects.get(number=2)
    store(
        repos,
        *(fact("has_role", f"Robot:{n}", "r", "Doc:d") for n in range(5)),
        *(fact("has_role", f"User:{n}", "r", f"Doc:{doc}") for n in range(5) for doc in ("d", "open")),
        *(fact("has_role", f"Robot:{n}", "r", "Doc:open") for n in range(3)),
    )
    monkeypatch.setattr(answer, "PAGE", 4)
    assert walked(admin, f"{url('ask', there)}?kind=who&action=read&resource=Doc:d") == [
        *(f"Robot:{n}" for n in range(5)), *(f"User:{n}" for n in range(5))
    ]  # fmt: skip
    every = walked(admin, f"{url('ask', there)}?kind=who&action=read&resource=Doc:open")
    assert every[:4] == ["Robot:0", "Robot:1", "Robot:2", "every User"]
    only = walked(admin, f"{url('ask', there)}?kind=who&action=read&resource=Doc:d&actor=User")
    assert only == [f"User:{n}" for n in range(5)]


def walked(admin: Client, address: str) -> list[str]:
    """All answers, by the pages; going back, each page is the one that came before."""
    found, pages = [], []
    while address:
        page = admin.get(address)
        pages.append(answers(page))
        found += pages[-1]
        last, address = page, (links(page, "Next") or [""])[0]
    for before in pages[-2::-1]:
        last = admin.get(links(last, "Previous")[0])
        assert answers(last) == before
    assert links(last, "Previous") == []
    return found


def test_pages_leave_out_no_id_that_begins_or_ends_with_space(admin, version, repos, monkeypatch):
    monkeypatch.setattr(answer, "PAGE", 1)
    ids = [" z", "x ", "\u3000a", "\n", "\r\n", " ", "c", "m\r\n", "y\t"]
    store(repos, *(fact("has_role", "User:eve", "reader", f"Repo:{text}") for text in ids))
    address, found = f"{url('ask', version)}?kind=list&actor=User:eve&action=read&resource=Repo", []
    while address and len(found) <= len(ids):
        page = admin.get(address)
        (why,) = links(page, "Explain")
        assert words(admin.get(why)).startswith("Allowed")
        found.append(parse_qs(urlsplit(why).query)["resource"][0])
        last, address = address, (links(page, "Next") or [""])[0]
    assert found == [f"Repo:{text}" if text.isalpha() else as_field("Repo", text) for text in sorted([*ids, "p"])]
    back = admin.get(last)
    for _ in ids:
        back = admin.get(links(back, "Previous")[0])
    assert links(back, "Previous") == [] and links(back, "Explain")


@pytest.mark.parametrize("action", [" read", "read ", "\u3000read", "re\nad", "re\r\nad", "re\u2028ad", "\t", '"'])
def test_actions_are_explained_whatever_they_begin_or_end_with(admin, version, repos, action):
    text = json.dumps(action, ensure_ascii=False)
    publish(repos, f'actor User {{}} resource Doc {{ permissions = ["read", {text}]; roles = ["r"]; {text} if "r"; }}')
    there = PolicyVersion.objects.get(number=2)
    store(repos, fact("has_role", "User:ann", "r", "Doc:d"))
    page = admin.get(url("ask", there), {"kind": "actions", "actor": "User:ann", "resource": "Doc:d"})
    assert words(admin.get(links(page, "Explain")[0])).startswith("Allowed")
    changed = admin.get(url("review", there), {"actor_type": "User:ann", "start": "3"})
    assert words(admin.get(links(changed, "now")[0])).startswith("Allowed")


def test_lists_have_pages_totals_and_a_filter(admin, version, repos, monkeypatch):
    monkeypatch.setattr(answer, "PAGE", 10)
    ids = [f"{'x' if n % 3 else 'y'}{n:03}" for n in range(95)]
    store(repos, *(fact("has_role", "User:eve", "reader", f"Repo:{text}") for text in ids))
    address = f"{url('ask', version)}?kind=list&actor=User:eve&action=read&resource=Repo"
    every = sorted([*(f"Repo:{text}" for text in ids), "Repo:p"])
    assert walked(admin, address) == every
    first = admin.get(address)
    assert words(first).startswith("96 resources") and "1 to 10 of 96" in words(first)
    second = admin.get(links(first, "Next")[0])
    assert "11 to 20 of 96" in words(second)
    filtered = admin.get(f"{address}&filter=y0")
    assert words(filtered).startswith("32 resources") and "1 to 10 of 32" in words(filtered)
    assert walked(admin, f"{address}&filter=y0") == [each for each in every if "y0" in each]
    assert "filter=y0" in links(filtered, "Next")[0]
    assert links(filtered, "Clear filter") == [address]
    assert "No results contain “nothing”." in words(admin.get(f"{address}&filter=nothing"))
    monkeypatch.setattr(answer, "COUNTING", 1e-9)
    assert words(admin.get(address)).startswith("More than 10 resources")


def test_a_list_of_one_page_is_in_natural_order(admin, version, repos):
    store(repos, *(fact("has_role", "User:eve", "reader", f"Repo:{text}") for text in ("10", "9", "r10", "r9", "100")))
    address = f"{url('ask', version)}?kind=list&actor=User:eve&action=read&resource=Repo"
    assert answers(admin.get(address)) == ["Repo:9", "Repo:10", "Repo:100", "Repo:p", "Repo:r9", "Repo:r10"]


def beyond(version: PolicyVersion, type_name: str, **sent: str) -> str:
    """The cursor of a page that begins after all answers of a type."""
    return Cursor(question_of(version, sent).of, [type_name, "zzz"]).token


def test_a_page_that_facts_went_from_under_leads_back(admin, version):
    sent = {"kind": "list", "actor": "User:ann", "action": "read", "resource": "Repo"}
    page = admin.get(url("ask", version), sent | {"after": beyond(version, "Repo", **sent)})
    assert answers(page) == []
    assert words(page).startswith("3 resources") and "No more results" in words(page)
    assert len(answers(admin.get(links(page, "First")[0]))) == 3


def test_a_page_of_another_list_is_its_first_one(admin, version, repos):
    """Its cursor stands at a row that the other list need not have."""
    sent = {"kind": "list", "actor": "User:ann", "action": "read", "resource": "Repo"}
    after = {"after": beyond(version, "Repo", **sent)}
    first = answers(admin.get(url("ask", version), sent | {"actor": "User:bob"}))
    assert first and answers(admin.get(url("ask", version), sent | after | {"actor": "User:bob"})) == first
    assert answers(admin.get(url("ask", version), sent | after)) == []


def test_every_value_is_told_on_whatever_page(admin, version, repos, monkeypatch):
    policy = 'actor Bot {} actor User {} resource Doc { permissions = ["read"]; roles = ["r"]; "read" if "r"; }'
    publish(repos, policy + ' has_permission(_: User, "read", doc: Doc) if is_public(doc);')
    there = PolicyVersion.objects.get(number=2)
    store(repos, fact("is_public", "Doc:d"), *(fact("has_role", f"Bot:{n}", "r", "Doc:d") for n in range(3)))
    monkeypatch.setattr(answer, "PAGE", 2)
    sent = {"kind": "who", "action": "read", "resource": "Doc:d"}
    first = admin.get(url("ask", there), sent)
    assert answers(first) == ["Bot:0", "Bot:1"]
    second = admin.get(links(first, "Next")[0])
    assert answers(second) == ["Bot:2", "every User"]
    for page in (first, second, admin.get(url("ask", there), sent | {"after": beyond(there, "User", **sent)})):
        assert words(page).startswith("Every User")
        assert 'class="verdict yes"' in page.content.decode()


def test_what_rules_hold_back_is_listed_in_pages_as_well(admin, version, repos, monkeypatch):
    """Such answers are told apart after they were read."""
    publish(repos, POLICY.replace("if is_public(resource);", "if is_public(resource) and not is_shut(resource);"))
    there = PolicyVersion.objects.get(number=2)
    store(repos, *(fact("is_public", f"Repo:{n:02}") for n in range(25)), fact("is_shut", "Repo:07"))
    monkeypatch.setattr(answer, "PAGE", 10)
    address = f"{url('ask', there)}?kind=list&actor=User:zoe&action=read&resource=Repo"
    assert walked(admin, address) == [*(f"Repo:{n:02}" for n in range(25) if n != 7), "Repo:p"]
    assert words(admin.get(address)).startswith("25 resources")


def test_every_value_is_explained_as_well(admin, version):
    listed = admin.get(url("ask", version), question(kind="list", actor="User:root", resource="Repo"))
    assert words(listed).startswith("Every Repo") and answers(listed)[0] == "every Repo"
    assert 'Allowed allow(User:root, "read", Repo:_)' in words(admin.get(links(listed, "Explain")[0]))


# ---- what changed --------------------------------------------------------------------------------------------------


def test_what_changed_for_an_actor_is_told_with_why(admin, version, repos):
    remove(repos, fact("has_role", "User:ann", "admin", "Org:o"))
    store(repos, fact("has_role", "User:ann", "writer", "Repo:new"), fact("has_role", "User:cat", "reader", "Repo:new"))
    found = admin.get(url("review", version), {"actor_type": "User:ann", "start": "2"})
    said = words(found)
    assert said.startswith("2 gained, 2 lost")
    for line in ("lost User:ann read Org:o", "lost User:ann read Repo:b", "gained User:ann write Repo:new"):
        assert line in said
    assert "Repo:a" not in said and "cat" not in said
    before, now = links(found, "before"), links(found, "now")
    for place, state in enumerate(re.findall(r"\b(lost|gained) User:ann (?:read|write) ", said)):
        told = [words(admin.get(each)).split()[0] for each in (before[place], now[place])]
        assert told == (["Allowed", "Denied"] if state == "lost" else ["Denied", "Allowed"])


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_a_filter_without_visible_characters_filters_nothing(admin, version):
    fields = question(kind="list", resource="Repo")
    shown, filtered = (words(admin.get(url("ask", version), fields | more)) for more in ({}, {"filter": "\0"}))
    assert filtered.partition("Answered")[0] == shown.partition("Answered")[0]
    said = words(admin.get(url("review", version), {"start": "1", "filter": "\0"}))
    assert "Null characters are not allowed." in said


def test_what_changed_is_narrowed_filtered_and_paged(admin, version, repos, monkeypatch):
    store(repos, *(fact("has_role", "User:ann", "writer", f"Repo:{n:02}") for n in range(25)))
    asked = {"actor_type": "User:ann", "start": "2", "end": "3"}
    assert words(admin.get(url("review", version), asked)).startswith("50 gained, 0 lost")
    only = asked | {"action": "write", "resource_type": "Repo"}
    assert words(admin.get(url("review", version), only)).startswith("25 gained, 0 lost")
    other = words(admin.get(url("review", version), asked | {"resource_type": "Org"}))
    assert other.startswith("No access gained or lost")
    assert words(admin.get(url("review", version), only | {"filter": "Repo:1"})).startswith("10 gained, 0 lost")
    every = words(admin.get(url("review", version), only | {"filter": "ann"}))
    assert every.startswith("No results contain"), "the actor of all lines is not searched"
    monkeypatch.setattr("checks.compare.review_walk.PAGE", 20)
    first = admin.get(url("review", version), only)
    assert "1 to 20 of 25" in words(first)
    second = admin.get(links(first, "Next")[0])
    assert "21 to 25 of 25" in words(second) and "Repo:24" in words(second)
    assert "1 to 20 of 25" in words(admin.get(links(second, "First")[0]))


def test_what_changed_for_all_values_has_exceptions(admin, version, repos):
    store(repos, fact("is_root", "User:ann"))
    found = words(admin.get(url("review", version), {"actor_type": "User:ann", "start": "2"}))
    assert found.startswith("1 gained, 0 lost")
    assert "gained User:ann read Repo:*" in found
    assert "kept User:ann read Repo:a" in found and "kept User:ann read Repo:p" in found
    assert "Rows marked kept are exceptions" in found


def test_another_policy_changes_what_an_actor_may(admin, version, repos):
    publish(repos, POLICY.replace('"reader" if "member" on "organization";', ""))
    found = words(admin.get(url("review", version), {"actor_type": "User:ann", "start": "2"}))
    assert found.startswith("0 gained, 1 lost") and "lost User:ann read Repo:b" in found


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"start": "1000"}, "revision 1000 does not exist yet"),
        ({"start": "3", "end": "2"}, "is after the end"),
        ({"start": "yesterday"}, "must be a revision number or a time such as"),
        ({"actor_type": "User:*"}, "The id of User: must not be *"),
        ({"actor_type": "Usr:ann"}, "The policy has no type `Usr` (did you mean `User`?"),
        ({"resource_type": "Rpo"}, "The policy has no type `Rpo` (did you mean `Repo`?"),
        ({"actor_type": "User:nobody"}, "No stored facts mention User:nobody."),
        ({"actor_type": "User:anna"}, "No stored facts mention User:anna. Did you mean User:ann?"),
    ],
)
def test_changes_that_cannot_be_told_say_why(admin, version, repos, changed, message):
    store(repos, fact("is_public", "Repo:z"))
    asked = {"actor_type": "User:ann", "start": "2", **changed}
    said = words(admin.get(url("review", version), asked))
    assert message.replace("`", "").lower() in said.lower()


# ---- moments, versions and texts -----------------------------------------------------------------------------------


def test_an_earlier_version_and_an_unpublished_text_can_be_asked(admin, version, repos):
    publish(repos, POLICY.replace('"reader" if "member" on "organization";', ""))
    later = PolicyVersion.objects.get(number=2)
    assert "Allowed" in words(admin.get(url("ask", version), question()))
    assert "Denied" in words(admin.get(url("ask", later), question()))
    text = POLICY + 'has_permission(_: User, "read", _: Repo);'
    there = f"{url('ask', later)}?kind=authorize&actor=User:nobody&action=read&resource=Repo:b"
    said = words(admin.post(there, {"text": text}))
    assert said.startswith("Allowed") and "(not published)" in said
    assert PolicyVersion.objects.count() == 2
    listed = admin.post(there.replace("authorize", "list").replace("Repo:b", "Repo"), {"text": text})
    why = re.search(r'form="tried" formaction="([^"]+)" class="plain-button">Explain', listed.content.decode())[1]
    assert words(admin.post(unescape(why), {"text": text})).startswith("Allowed")


def test_other_environments_can_be_chosen_however_many_versions_one_has(admin, version, repos, monkeypatch):
    monkeypatch.setattr(answer, "_MOST_VERSIONS", 3)
    other = PolicyVersionFactory(environment=EnvironmentFactory(slug="zoo"))
    for number in range(4):
        publish(repos, f"{POLICY}# {number}")
    page = admin.get(url("ask", version)).content.decode()
    shown = re.findall(r'<option value="\d+"(?: selected)?>(\w+, version \d+)', page)
    assert shown == [*(f"default, version {number}" for number in (1, 5, 4, 3)), f"zoo, version {other.number}"]


def test_an_earlier_moment_can_be_asked(admin, version, repos):
    revision = Environment.objects.get(pk=version.environment_id).offset
    assert repos.post("/clear_data").status_code == 200
    assert "Denied" in words(admin.get(url("ask", version), question()))
    then = admin.get(url("ask", version), question(revision=str(revision)))
    assert "Allowed" in words(then) and f"As of revision {revision}, 20" in words(then)
    assert f'href="/admin/facts/signature/revision/{version.environment_id}/{revision}/"' in then.content.decode()
    at = Revision.objects.get(environment=version.environment_id, number=revision + 1).at
    later = f"{time_of(at):%Y-%m-%dT%H:%M:%S.%f}"
    assert "Denied" in words(admin.get(url("ask", version), question(at=later)))
    both = words(admin.get(url("ask", version), question(at=later, revision="1")))
    assert "enter a revision or a time, not both." in both
    assert "does not exist yet" in words(admin.get(url("ask", version), question(revision="1000")))


# ---- wrong names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"actor": "ann"}, "`ann` is not a valid value; did you mean `User:ann`?"),
        ({"actor": "User:ann smith"}, 'write it as `User:"ann smith"`.'),
        ({"action": ""}, "Enter an action, such as `read`."),
        ({"context": "nonsense("}, "expected an argument"),
        ({"context": "has_rol(User:ann)"}, "`has_rol(User)` is not used in policy (did you mean `has_role`?)."),
        ({"context": "has_rol(User:ann)", "kind": "list", "resource": "Repo"}, "`has_rol(User)` is not used in policy"),
        (
            {"context": 'has_role(User:bob, "raeder", Repo:b)'},
            "The policy has no role `raeder` on Repo. Did you mean reader",
        ),
        ({"context": "has_rol(User:ann)", "text": "actor User {}"}, "`has_rol(User)` is not used in policy"),
        ({"text": "actor User"}, "the policy has errors"),
        ({"kind": "guess"}, "`guess` is not a valid `kind`"),
        ({"version": "zzz"}, "this policy version does not exist"),
        ({"version": "99999999999999"}, "this policy version does not exist"),
        ({"actor": "User:<b>bold</b>"}, 'User:"<b>bold</b>"'),
        ({"resource": "Nothing:x"}, "The policy has no type `Nothing`. Declared: Org, Repo, User."),
        ({"action": "reed"}, "The policy has no action `reed` on Repo. Did you mean read? Declared: read, write."),
        (
            {"kind": "list", "resource": "Rpo"},
            "The policy has no type `Rpo`. Did you mean Repo? Declared: Org, Repo, User.",
        ),
        ({"kind": "who", "actor": "Usr"}, "The policy has no type `Usr`. Did you mean User?"),
        (
            {"kind": "who", "actor": "", "action": "wriet"},
            "The policy has no action `wriet` on Repo. Did you mean write?",
        ),
        ({"actor": "User:anna"}, "No stored facts mention User:anna. Did you mean User:ann?"),
        ({"resource": "Repo:unheard"}, "No stored facts mention Repo:unheard."),
    ],
)
def test_mistakes_are_shown_on_the_page(admin, version, changed, message):
    answer = admin.post(url("ask", version), question(**{"version": str(version.pk), **changed}))
    assert message.replace("`", "").lower() in words(answer).lower()
    assert b"<b>bold" not in answer.content and "?." not in words(answer)


def test_what_was_meant_is_one_click_away(admin, version):
    answer = admin.get(url("ask", version), question(action="reed"))
    assert 'Allowed allow(User:ann, "read", Repo:b)' in words(admin.get(links(answer, "<code>read</code>")[0]))
    answer = admin.get(url("ask", version), question(resource="Rpo:b"))
    assert 'Allowed allow(User:ann, "read", Repo:b)' in words(admin.get(links(answer, "<code>Repo</code>")[0]))
    answer = admin.get(url("ask", version), question(actor="User:anna"))
    assert "Allowed" in words(admin.get(links(answer, "<code>User:ann</code>")[0]))


def test_an_id_that_only_the_past_or_the_policy_knows_is_no_stranger(admin, version, repos):
    publish(repos, POLICY + 'has_permission(User{"boss"}, "read", _: Repo);')
    later = PolicyVersion.objects.get(number=2)
    assert "mentions" not in words(admin.get(url("ask", later), question(actor="User:boss")))
    remove(repos, fact("is_root", "User:root"))
    assert "No stored facts mention User:root." in words(admin.get(url("ask", later), question(actor="User:root")))
    assert "mentions" not in words(admin.get(url("ask", later), question(actor="User:root", revision="2")))
    context = question(actor="User:new", context='has_role(User:new, "reader", Repo:b)')
    assert "mentions" not in words(admin.get(url("ask", later), context))


# ---- hostile ids, and copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_ids_go_all_the_way(admin, version, repos, text, monkeypatch, capsys):
    store(repos, fact("has_role", f"User:{text}", "reader", f"Repo:{text}"))
    listed = admin.get(url("ask", version), {"kind": "who", "action": "read", "resource": as_field("Repo", text)})
    page = listed.content.decode()
    assert "<b>bold" not in page
    assert len(answers(listed)) == 2  # and root
    whys = [each for each in links(listed, "Explain") if "root" not in each]
    assert "Allowed" in words(admin.get(whys[0]))
    value = next(
        each
        for each in re.findall(r'<a class="value" href="([^"]+)">', page)
        if "type=User" in each and "root" not in each
    )
    assert parse_qs(urlsplit(unescape(value)).query) == {"environment": ["default"], "type": ["User"], "id": [text]}
    explained = admin.get(whys[0])
    commands = copied(explained)
    assert all(each.isprintable() for each in commands)
    name, *given = split_by_a_shell(commands[0])
    assert name == "authz"
    call_command(*given)
    assert capsys.readouterr().out == "allowed\n"
    program, *given = split_by_a_shell(commands[1])
    assert program == "curl" and "$KEY" not in given[2]
    body = json.loads(given[-1])
    assert (body["actor_id"], body["resource_id"]) == (text, text)
    assert repos.post("/authorize", body).json() == {"allowed": True}


def as_field(type_name: str, text: str) -> str:
    return f"{type_name}:{json.dumps(text)}"


def copied(answer) -> list[str]:
    return [unescape(each) for each in re.findall(r'<div class="copy">.*?<code>(.*?)</code>', answer.content.decode())]


def split_by_a_shell(line: str) -> list[str]:
    """What a program is given by a shell that runs the line."""
    printed = f"KEY=secret; show() {{ printf '%s\\0' \"$@\"; }}; show {line}"
    return subprocess.run(["/bin/sh", "-c", printed], capture_output=True, check=True, text=True).stdout.split("\0")[
        :-1
    ]


def test_copies_ask_what_the_page_asks(admin, version, repos, capsys):
    asked = [
        (question(), {"allowed": True}, ["allowed"]),
        (question(kind="actions", action=""), {"results": ["read"]}, ["read"]),
        (
            question(kind="list", resource="Repo"),
            {"results": ["a", "b", "p"], "next_page_token": None},
            ["a", "b", "p"],
        ),
        (question(kind="who", actor=""), None, ["User:ann", "User:root"]),
        (question(revision="1"), {"allowed": False}, ["denied"]),
        (question(context='has_role(User:ann, "admin", Org:o)', actor="User:ann"), {"allowed": True}, ["allowed"]),
    ]
    for sent, body, lines in asked:
        command, curl = copied(admin.get(url("ask", version), sent))
        call_command(*split_by_a_shell(command)[1:])
        assert capsys.readouterr().out.split() == lines
        *_, address, _, data = split_by_a_shell(curl)
        answer = repos.post(urlsplit(address).path.removeprefix("/api"), json.loads(data)).json()
        if body is None:
            assert [each["actor"] for each in answer["results"]] == ["ann", "root"]
        else:
            assert answer == body


@pytest.mark.parametrize("unseen", ["\x1b", "\x03", "\n", "\u202e", "\u2028"])
def test_no_command_line_has_what_cannot_be_seen(admin, version, unseen):
    """A terminal that it is pasted into would take some of it for keys."""
    action = f"re{unseen}ad"
    for changed in ({}, {"kind": "list", "resource": "Repo"}, {"kind": "who", "actor": ""}):
        found = copied(admin.get(url("ask", version), question(**{"action": action, **changed})))
        assert found and all(each.startswith("curl ") and each.isprintable() for each in found)
        body = json.loads(split_by_a_shell(found[0])[-1])
        assert action in (body.get("action"), *body.get("constraints", {}).get("action", {}).get("ids", ()))
    for sent, has_command in ((action, False), ("read", True)):
        page = admin.get(url("review", version), {"start": "1", "action": sent})
        assert bool(page.context.get("command")) == has_command  # a review of an unknown action is refused
        assert ("To list everything, run" in words(page)) == has_command


def test_copies_name_the_version_and_the_moments(admin, version, repos, capsys):
    publish(repos, POLICY.replace('"reader" if "member" on "organization";', ""))
    command, curl = copied(admin.get(url("ask", version), question()))
    assert "--policy-version=1" in command and '"policy_version": 1' in curl
    call_command(*shlex.split(command)[1:])
    assert capsys.readouterr().out == "allowed\n"
    command = admin.get(url("review", version), {"actor_type": "User:ann", "start": "2", "end": "3"}).context["command"]
    assert command == "authz review_access --from=2 --to=3 --actor=User:ann"
    call_command(*shlex.split(command)[1:])
    assert "- lost    User:ann" in capsys.readouterr().out
    assert copied(admin.post(url("ask", version), question(text=POLICY))) == []


def test_who_is_asked_on_the_command_line_too(repos, capsys):
    call_command("ask", "who", "read", "Repo:p")
    assert capsys.readouterr().out == "User:*\nUser:root\n"
    call_command("ask", "who", "read", "Repo:b", "--actor-type", "Org")
    assert capsys.readouterr().out == ""


# ---- what may be filled in -----------------------------------------------------------------------------------------


def test_fields_are_completed_from_the_policy_and_the_facts(admin, version):
    page = admin.get(url("ask", version)).content.decode()
    for value in ("User:ann", "Repo:p", "write", "Org"):
        assert f'<option value="{value}">' in page
    found = admin.get(url("ids", version), {"start": "User:a"}).json()
    assert found["actors"] == ["User:ann"]
    assert admin.get(url("ids", version), {"start": "Repo:a"}).json() == {"actors": [], "resources": ["Repo:a"]}
    assert admin.get(url("ids", version), {"start": "Nothing:"}).json()["resources"] == []


def test_types_of_actors_are_completed_where_they_are_asked_for(admin, version):
    page = admin.get(url("ask", version), {"kind": "who"}).content.decode()
    assert 'name="actor" id="id_actor" list="actor-types"' in page
    assert '<datalist id="actor-types"><option value="User"></datalist>' in page


def test_completion_looks_at_a_bounded_number_of_facts(repos, environment):
    store(repos, *(fact("is_public", f"Repo:z{number:04}") for number in range(1000)))
    assert known_ids(environment.pk, ["Repo"], "z09")["Repo"][:2] == ["z0900", "z0901"]
    assert len(known_ids(environment.pk, ["Repo"])["Repo"]) == 50


# ---- who may see ---------------------------------------------------------------------------------------------------


def test_a_version_that_one_may_not_see_is_not_asked(version):
    person = User.objects.create_user("bea", is_staff=True)
    person.user_permissions.set(Permission.objects.filter(codename="view_policyversion"))
    client = Client()
    client.force_login(person)
    for kind in ("authorize", "actions", "list", "who"):
        assert client.get(url("ask", version), question(kind=kind)).status_code == 403
    assert client.get(url("review", version), {"start": "1"}).status_code == 403
    assert client.post(url("ask", version), question()).status_code == 403


def test_asking_changes_nothing(admin, version, repos):
    before = Environment.objects.values_list("offset", "moment").get(pk=version.environment_id)
    for kind in ("authorize", "actions", "list", "who"):
        admin.get(url("ask", version), question(kind=kind))
    admin.get(url("review", version), {"start": "2", "actor_type": "User:ann"})
    assert Environment.objects.values_list("offset", "moment").get(pk=version.environment_id) == before
