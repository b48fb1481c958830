"""What the editor asks while somebody writes: problems, completions, tests, layout; and drafts, which keep the text."""

import itertools
import json
import re
import threading
import time
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from policy import publishing
from policy.core.journal import By
from policy.models import PolicyDraft
from policy.pages.editing import LatestOnly, Superseded
from policy.publishing import DraftText
from tests.policy.test_admin import EDITOR, Person, page_of, published, text_of
from tests.policy.test_publishing import OTHER, POLICY, TESTED, tests_fail, tests_pass  # noqa: F401  fixtures

pytestmark = pytest.mark.one_database

VIEWS = ("problems", "completions", "tests", "format", "meanwhile", "draft")
WRONG = POLICY.replace('"viewer" if', '"viewr" if')


class Writer(Person):
    """Somebody with the editor open, who sends what it sends."""

    def token(self) -> str:
        page = self.get(EDITOR).content.decode()
        return re.search(r'csrfmiddlewaretoken" value="(\w+)"', page)[1]

    def ask(self, where, view: str, token: str | None = None, **fields: object):
        sent = {"environment": where.pk, "person": self.user.pk, "csrfmiddlewaretoken": token or self.token(), **fields}
        return self.client.post(f"{EDITOR}{view}/", {name: text for name, text in sent.items() if text is not None})

    def told(self, where, view: str, status: int = 200, **fields: object) -> dict:
        answer = self.ask(where, view, **fields)
        assert answer.status_code == status, answer.content
        return json.loads(answer.content)


@pytest.fixture
def writer(db) -> Writer:
    return Writer("view", "add")


# ---- what is told of a text ----------------------------------------------------------------------------------------


def test_problems_are_told_at_their_places(environment, writer):
    told = writer.told(environment, "problems", source=WRONG)
    (problem,) = told["problems"]
    assert WRONG[problem["start"] : problem["end"]] == '"viewr"'
    assert (problem["severity"], problem["line"], problem["column"]) == ("error", 5, 3)
    assert "viewr" in problem["message"] and "viewer" in problem["hint"]
    assert told["amounts"] is None


def test_warnings_are_told_of_a_policy(environment, writer):
    told = writer.told(environment, "problems", source=TESTED + "p(x: User) if q(x, y);\n")
    assert [each["severity"] for each in told["problems"]] == ["warning"]
    assert told["amounts"] == {"types": 2, "rules": 3, "tests": 1}


def test_places_count_characters(environment, writer):
    text = f"# \U0001f600\U0001f600\n{WRONG}"
    (problem,) = writer.told(environment, "problems", source=text)["problems"]
    assert text[problem["start"] : problem["end"]] == '"viewr"'


def test_line_ends_are_those_of_the_page(environment, writer):
    (problem,) = writer.told(environment, "problems", source=WRONG.replace("\n", "\r\n"))["problems"]
    assert WRONG[problem["start"] : problem["end"]] == '"viewr"'


def test_the_active_version_is_told_with_the_problems(environment, writer):
    assert writer.told(environment, "problems", source=POLICY)["active"] is None
    published(environment, POLICY)
    assert writer.told(environment, "problems", source=POLICY)["active"] == 1


def test_completions_are_told(environment, writer):
    place = POLICY.index('"owner";') + 1
    told = writer.told(environment, "completions", source=POLICY, place=place)
    assert POLICY[told["start"] : told["end"]] == "owner"
    assert {"text": "viewer", "kind": "role", "detail": "role of Folder"} in told["options"]
    assert writer.told(environment, "completions", source="", place=10**6)["start"] == 0


def test_a_text_is_laid_out(environment, writer):
    told = writer.told(environment, "format", source="actor   User{}")
    assert told["text"] == "actor User {}\n"
    assert "nonsense" in writer.told(environment, "format", source="nonsense")["refused"]


# ---- tests -----------------------------------------------------------------------------------------------------------


def test_all_tests_are_run(environment, writer):
    text = TESTED + TESTED.partition('test "')[2].join(['test "other ', ""]).replace("assert ", "assert_not ")
    told = writer.told(environment, "tests", source=text)
    assert [(test["name"], test["passed"], test["total"]) for test in told["tests"]] == [
        ("viewers view", 1, 1),
        ("other viewers view", 0, 1),
    ]
    (failure,) = told["tests"][1]["failures"]
    assert text[failure["start"] : failure["end"]].startswith("assert_not allow")
    assert failure["message"] == "expected false, got true"
    assert failure["explanation"][0].startswith("✓ ")


def test_one_test_is_run(environment, writer, tests_pass):  # noqa: F811
    text = TESTED + '\ntest "another" { assert_not allow(User{"x"}, "view", Folder{"y"}); }\n'
    for place, name in ((text.index('test "viewers'), "viewers view"), (text.index('test "another') + 9, "another")):
        told = writer.told(environment, "tests", source=text, place=place)
        assert [test["name"] for test in told["tests"]] == [name]
        assert text[told["tests"][0]["start"] :].startswith(f'test "{name}"')
    assert writer.told(environment, "tests", source=text, place=0)["tests"] == []


def test_failures_are_told_as_the_runner_has_them(environment, writer, tests_fail):  # noqa: F811
    (test,) = writer.told(environment, "tests", source=TESTED)["tests"]
    assert (test["passed"], test["total"], test["failures"][0]["message"]) == (0, 1, "expected a result")


def test_no_test_of_what_is_no_policy_is_run(environment, writer):
    assert writer.told(environment, "tests", source=WRONG) == {"tests": None, "problems": 1}


# ---- who may ask -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", [*VIEWS, "discard"])
def test_only_who_may_publish_may_ask(environment, writer, view):
    token = writer.token()
    assert writer.client.get(f"{EDITOR}{view}/").status_code == 405
    assert writer.client.post(f"{EDITOR}{view}/", {"environment": environment.pk}).status_code == 403  # no token
    reader = Writer("view", "change")
    reader.client.cookies["csrftoken"] = writer.client.cookies["csrftoken"].value
    assert reader.ask(environment, view, token, source=POLICY).status_code == 403
    stranger = Client().post(f"{EDITOR}{view}/", {"environment": environment.pk})
    assert stranger.status_code == 302 and "/admin/login/" in stranger["Location"]


@pytest.mark.parametrize(
    "fields",
    [{"environment": "99999"}, {"environment": None}, {"source": "a\0b"}, {"place": "-1"}, {"place": "x"},
     {"seen": "9" * 30}, {"stamp": "x"}, {"window": "w" * 41}],
    ids=lambda fields: next(iter(fields)),
)  # fmt: skip
@pytest.mark.parametrize("view", ["problems", "draft"])
def test_what_no_editor_sends_is_refused(environment, writer, view, fields):
    assert writer.told(environment, view, 400, **({"source": POLICY} | fields))["message"]


def test_texts_of_any_length_are_answered(environment, writer):
    for view in ("problems", "completions", "tests", "format", "draft"):
        assert "larger than" in writer.told(environment, view, source="#" * 1_000_001)["refused"]


# ---- drafts ----------------------------------------------------------------------------------------------------------


def test_a_draft_is_kept_and_found_again(environment, writer):
    published(environment, POLICY)
    told = writer.told(environment, "draft", source=WRONG, filename="mine.polar", seen=1)
    assert int(told["stamp"]) == PolicyDraft.objects.get().stamp
    page = writer.get(EDITOR)
    shown = text_of(page)
    assert page.context["source"] == WRONG and page.context["filename"] == "mine.polar"
    assert "Draft saved" in shown and "based on version 1" in shown
    assert f'name="stamp" value="{told["stamp"]}"' in page.content.decode()
    assert publishing.active_version(environment.pk).source == POLICY


def test_a_draft_is_its_writers_alone(environment, writer):
    other = Writer("view", "add", "change")
    writer.told(environment, "draft", source=WRONG)
    assert other.get(EDITOR).context["source"] == ""
    other.told(environment, "draft", source=OTHER)
    assert writer.get(EDITOR).context["source"] == WRONG


def test_environments_have_drafts_of_their_own(new_api, writer):
    one, other = new_api().environment, new_api("other").environment
    writer.told(one, "draft", source=POLICY)
    writer.told(other, "draft", source=OTHER)
    assert writer.get(EDITOR).context["source"] == POLICY
    assert writer.get(f"{EDITOR}?environment=other").context["source"] == OTHER


def test_a_draft_is_saved_again_by_who_knows_it(environment, writer):
    first = writer.told(environment, "draft", source=POLICY)["stamp"]
    second = writer.told(environment, "draft", source=WRONG, stamp=first)["stamp"]
    assert first != second
    refused = writer.told(environment, "draft", source=OTHER, stamp=first)
    assert refused["other"]["source"] == WRONG and refused["other"]["stamp"] == second
    assert writer.told(environment, "draft", source=OTHER)["other"]["source"] == WRONG
    assert PolicyDraft.objects.get().source == WRONG
    writer.told(environment, "draft", source=OTHER, stamp=second)
    assert PolicyDraft.objects.get().source == OTHER


def test_a_draft_that_was_published_is_in_nobodys_way(environment, writer):
    writer.told(environment, "draft", source=WRONG)
    published(environment, WRONG.replace("viewr", "viewer"), POLICY + "#\n")
    PolicyDraft.objects.update(source=POLICY + "#\n")
    assert "Draft saved" not in text_of(writer.get(EDITOR))
    writer.told(environment, "draft", source=OTHER)
    assert PolicyDraft.objects.get().source == OTHER


def test_there_is_no_draft_of_what_is_active(environment, writer):
    published(environment, POLICY)
    stamp = writer.told(environment, "draft", source=WRONG)["stamp"]
    assert writer.told(environment, "draft", source=POLICY, stamp=stamp) == {"stamp": None}
    assert not PolicyDraft.objects.exists()


def test_a_version_that_is_asked_for_is_shown_beside_a_draft(environment, writer):
    old, _ = published(environment, POLICY, OTHER)
    writer.told(environment, "draft", source=WRONG)
    page = writer.get(f"{EDITOR}?from={old.pk}")
    assert page.context["source"] == POLICY
    assert "You have a draft saved" in text_of(page) and "Resume draft" in text_of(page)
    assert f'href="{EDITOR}?environment=default"' in page.content.decode()


def test_a_draft_is_discarded(environment, writer):
    published(environment, POLICY)
    writer.told(environment, "draft", source=WRONG)
    stamp = re.search(r'id="drafted">.*?name="stamp" value="(\d+)"', writer.get(EDITOR).content.decode(), re.DOTALL)[1]
    answer = writer.ask(environment, "discard", stamp=stamp)
    assert (answer.status_code, answer["Location"]) == (302, f"{EDITOR}?environment=default")
    assert writer.get(EDITOR).context["source"] == POLICY
    assert not PolicyDraft.objects.exists()
    assert writer.ask(environment, "discard", stamp=stamp).status_code == 302  # again, when there is none
    for wrong in ({"environment": "99999"}, {"stamp": "x"}):
        assert writer.ask(environment, "discard", **wrong).status_code == 400


@pytest.mark.parametrize("is_known", [True, False])
def test_a_newer_draft_is_not_discarded_unseen(environment, writer, is_known):
    stamp = writer.told(environment, "draft", source=WRONG)["stamp"]
    writer.told(environment, "draft", source=OTHER, stamp=stamp)
    assert writer.ask(environment, "discard", stamp=stamp if is_known else None).status_code == 302
    page = writer.get(EDITOR)
    said = "Draft not discarded: a newer draft was saved in another window or on another machine. Review it below,"
    assert said in text_of(page) and page.context["source"] == OTHER


def test_publishing_lets_go_of_the_draft(environment, writer):
    stamp = writer.told(environment, "draft", source=WRONG)["stamp"]
    writer.send(EDITOR, source=POLICY, _publish="1")
    assert not PolicyDraft.objects.exists()
    writer.told(environment, "draft", source=WRONG)
    answer = writer.send(EDITOR, source=OTHER, stamp=stamp, seen="1", _publish="1")
    assert answer.status_code == 302
    assert PolicyDraft.objects.get().source == WRONG  # it is another


def test_a_refused_text_keeps_its_draft(environment, writer):
    stamp = writer.told(environment, "draft", source=WRONG)["stamp"]
    page = writer.send(EDITOR, source=WRONG, _publish="1")
    assert page.context["source"] == WRONG and f'name="stamp" value="{stamp}"' in page.content.decode()
    assert PolicyDraft.objects.get().source == WRONG


def test_drafts_go_with_their_writer(environment, writer):
    writer.told(environment, "draft", source=WRONG)
    User.objects.all().delete()
    assert not PolicyDraft.objects.exists()


def test_saving_at_once_keeps_one_draft(environment, writer):
    user = User.objects.get()
    first = publishing.keep(user, environment, DraftText(POLICY, "", None), None)
    kept = publishing.keep(user, environment, DraftText(POLICY, "", None), None)  # the same text from another window
    assert PolicyDraft.objects.get() == kept and kept.stamp != first.stamp


# ---- two people publish ----------------------------------------------------------------------------------------------


def test_who_published_meanwhile_is_told_with_the_difference(environment, writer):
    published(environment, POLICY)
    publishing.publish(environment.pk, OTHER, "main.polar", by=By('key 7 "deploy"'))
    told = writer.told(environment, "meanwhile", seen=1)
    assert told["active"] == 2
    assert "version 2 is active now, but your draft is based on version 1." in told["html"]
    assert "Version 2 by key 7 &quot;deploy&quot;" in told["html"]
    assert "Document" in told["html"]
    assert writer.told(environment, "meanwhile", seen=2) == {"html": "", "active": 2}


def test_taking_an_older_version_back_is_told_too(environment, writer):
    published(environment, POLICY, OTHER)
    publishing.activate(environment.pk, 1, by=By("admin ben"))
    html = writer.told(environment, "meanwhile", seen=2)["html"]
    assert "version 1 is active now, but your draft is based on version 2." in html and "Version 1 by admin ben" in html


def test_a_draft_of_an_earlier_version_takes_a_second_look(environment, writer):
    published(environment, POLICY)
    writer.told(environment, "draft", source=POLICY + "# mine\n", seen=1)
    published(environment, OTHER)
    page = writer.get(EDITOR)
    assert "version 2 is active now" in text_of(page) and 'name="seen" value="1"' in page.content.decode()
    second = writer.send(EDITOR, _publish="1")
    assert "version 2 became active while you were editing" in text_of(second).lower() and "Document" in text_of(second)
    assert second.context["source"] == POLICY + "# mine\n"
    assert publishing.active_version(environment.pk).source == OTHER
    writer.send(EDITOR, source=POLICY + "# mine\n", seen="2", _publish="1")
    assert publishing.active_version(environment.pk).source == POLICY + "# mine\n"


def test_who_may_not_look_sees_no_difference(environment, db):
    writer = Writer("add")
    published(environment, POLICY)
    publishing.publish(environment.pk, OTHER, "", by=By("admin ben"))
    told = writer.told(environment, "meanwhile", seen=1)
    assert "admin ben" in told["html"] and "Document" not in told["html"] and "Folder" not in told["html"]


def test_a_text_begun_from_nothing_is_told_of_the_first(environment, writer):
    published(environment, POLICY)
    assert "your draft was started when no version was active" in writer.told(environment, "meanwhile", seen="")["html"]


# ---- somebody else logs in in the same browser -----------------------------------------------------------------------


@pytest.fixture
def other(writer) -> Writer:
    """Who logged in while the writer's page was open."""
    return Writer("view", "add", "change")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("is_said", [True, False])
def test_a_page_does_not_go_on_as_somebody_else(environment, writer, other, view, is_said):
    other.told(environment, "draft", source=OTHER)
    told = other.told(environment, view, 403, source=WRONG, person=writer.user.pk if is_said else None)
    assert told == {"message": "this page was opened by another user", "somebody_else": True}
    assert [(draft.user_id, draft.source) for draft in PolicyDraft.objects.all()] == [(other.user.pk, OTHER)]


@pytest.mark.parametrize("button", ["_publish", "_check"])
@pytest.mark.parametrize("person", ["writer", "nobody", None, "", "\0"])
def test_a_page_of_somebody_else_is_shown_again_before_it_is_published(environment, writer, other, button, person):
    sent = str(writer.user.pk) if person == "writer" else person
    again = other.send(EDITOR, source=POLICY, person=sent, **{button: "1"})
    assert again.status_code == 200 and again.context["source"] == POLICY
    word = "This page was opened by another user. Check the user name at the top of the page, then publish again."
    assert word in text_of(again) and "the policy is valid" not in text_of(again)
    assert f'name="person" value="{other.user.pk}"' in again.content.decode()
    assert publishing.active_version(environment.pk) is None
    assert other.send(EDITOR, source=POLICY, _publish="1").status_code == 302
    assert publishing.active_version(environment.pk).source == POLICY


def test_faulty_fields_do_not_hide_that_it_was_somebody_else(environment, writer, other):
    again = other.send(EDITOR, source=POLICY, person=str(writer.user.pk), note="x" * 501, _publish="1")
    assert "opened by another user" in text_of(again) and "at most 500" in text_of(again)


def test_a_text_with_a_faulty_character_is_shown_again(environment, writer):
    """Nothing else has it, without scripts."""
    sent = {"environment": environment.pk, "person": writer.user.pk, "_publish": "x", "source": POLICY + "\0"}
    page = text_of(writer.client.post(EDITOR, {**sent, "csrfmiddlewaretoken": writer.token()}))
    assert "Null characters are not allowed" in page and re.sub(r"\s+", " ", POLICY) in page


def test_a_draft_is_not_discarded_by_a_page_of_somebody_else(environment, writer, other):
    other.told(environment, "draft", source=OTHER)
    answer = other.ask(environment, "discard", person=writer.user.pk)
    assert answer.status_code == 302 and PolicyDraft.objects.get().source == OTHER
    assert "Draft not discarded: this page was opened by another user" in text_of(other.get(EDITOR))
    assert re.findall(r'name="person" value="(\d+)"', other.get(EDITOR).content.decode()) == [str(other.user.pk)] * 2


# ---- turns -----------------------------------------------------------------------------------------------------------


class GivenOut:
    """A lock that those who wait get in a given order, as the system may choose any."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self._turns = {number: threading.Event() for number in numbers}
        self._order = list(numbers)
        self._give()

    def __enter__(self) -> None:
        assert self._turns[int(threading.current_thread().name)].wait(10)

    def __exit__(self, *_: object) -> None:
        self._give()

    def _give(self) -> None:
        if self._order:
            self._turns[self._order.pop(0)].set()


def outcomes(windows: str, order: tuple[int, ...]) -> list[int]:
    """Numbers of those who come one after the other, each from a window, and are let in by this order.

    Negative ones were overtaken. The first is let in at once, and the rest when all have come.
    """
    turns, done, begun, held = LatestOnly(), [], threading.Event(), threading.Event()
    turns._turn = GivenOut(order)

    def wait(number: int) -> None:
        try:
            with turns.turn(windows[number]):
                begun.set()
                held.wait(10)
                done.append(number)
        except Superseded:
            done.append(-number)

    threads = [threading.Thread(target=wait, args=(number,), name=str(number)) for number in range(len(windows))]
    for there, thread in enumerate(threads, start=1):
        thread.start()
        begun.wait(10)
        while turns._there.total() != there:
            time.sleep(0.001)
    held.set()
    for thread in threads:
        thread.join(10)
    assert not turns._there and not turns._latest
    return done


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))))
def test_of_the_texts_that_wait_the_last_one_counts(order):
    """Whoever of them is let in first: an earlier text that is let in after the last one does not count, either."""
    assert outcomes("aaaa", (0, *order)) == [0, *(number if number == 3 else -number for number in order)]


def test_windows_do_not_overtake_each_other():
    assert outcomes("abab", (0, 1, 2, 3)) == [0, -1, 2, 3]
    assert outcomes("abcd", (0, 3, 2, 1)) == [0, 3, 2, 1]


# ---- without scripts -------------------------------------------------------------------------------------------------


def test_the_page_works_without_scripts(environment, writer):
    """What only a script can do is hidden until there is one."""
    html = writer.get(EDITOR).content.decode()
    live = re.findall(r'<(?:\w+)[^>]*class="[^"]*\blive\b[^"]*"[^>]*>', html)
    assert len(live) >= 6 and all(" hidden" in each for each in live)
    assert '<textarea name="source"' in html and 'name="_publish"' in html
    version = published(environment, POLICY)[0]
    assert writer.get(page_of(version)).status_code == 200


def test_saving_shows_when(environment, writer):
    told = writer.told(environment, "draft", source=WRONG)
    assert abs(timezone.datetime.fromisoformat(told["saved_at"]) - timezone.now()) < timedelta(minutes=1)


# ---- at the same time ------------------------------------------------------------------------------------------------


def after_tests(monkeypatch, act) -> None:
    """Do something else once the tests of a text were run, before the transaction that makes it active."""
    tested = publishing._tested
    acts = [act]

    def then_act(*args, **named):
        found = tested(*args, **named)
        if acts:
            acts.pop()()
        return found

    monkeypatch.setattr(publishing, "_tested", then_act)


def test_what_is_published_while_the_tests_run_is_not_replaced_unseen(environment, writer, monkeypatch):
    published(environment, POLICY)
    mine = POLICY + "# mine\n"
    after_tests(monkeypatch, lambda: published(environment, OTHER))
    answer = writer.send(EDITOR, source=mine, _publish="1")
    assert publishing.active_version(environment.pk).source == OTHER
    assert "version 2 became active while you were editing" in text_of(answer).lower() and "Document" in text_of(answer)
    assert answer.context["source"] == mine and answer.context["seen"] == 2
    writer.send(EDITOR, source=mine, seen="2", _publish="1")
    assert publishing.active_version(environment.pk).source == mine


def test_a_first_version_is_not_replaced_unseen(environment, writer, monkeypatch):
    after_tests(monkeypatch, lambda: published(environment, OTHER))
    writer.send(EDITOR, source=POLICY, _publish="1")
    assert publishing.active_version(environment.pk).source == OTHER


def test_the_same_text_published_by_another_is_no_conflict(environment, writer, monkeypatch):
    after_tests(monkeypatch, lambda: published(environment, POLICY))
    assert writer.send(EDITOR, source=POLICY, _publish="1").status_code == 302
    assert publishing.active_version(environment.pk).number == 1


def test_activating_does_not_replace_what_became_active_while_its_tests_ran(environment, monkeypatch):
    person = Person("view", "change")
    old, _ = published(environment, POLICY, OTHER)
    after_tests(monkeypatch, lambda: published(environment, POLICY + "# a revocation\n"))
    answer = person.send(page_of(old, "activate"))
    assert publishing.active_version(environment.pk).number == 3
    assert "Not activated" in text_of(answer) and "version 3 is active now" in text_of(answer)
    assert "# a revocation" in text_of(answer)
    monkeypatch.undo()
    assert person.send(page_of(old, "activate")).status_code == 302
    assert publishing.active_version(environment.pk) == old


@pytest.mark.parametrize("seen", ["1", "", None, "x", "9" * 30])
def test_activating_what_was_compared_with_another_version_is_asked_again(environment, db, seen):
    person = Person("view", "change")
    old, _ = published(environment, POLICY, OTHER)
    assert "version 2 is active now" in text_of(person.send(page_of(old, "activate"), seen=seen))
    assert publishing.active_version(environment.pk).number == 2


def test_the_page_names_the_version_whose_text_it_shows(environment, writer, monkeypatch):
    """Another version becomes active while the page is made."""
    published(environment, POLICY)
    active_version, acts = publishing.active_version, [lambda: published(environment, OTHER)]

    def then_publish(environment_id):
        found = active_version(environment_id)
        if acts:
            acts.pop()()
        return found

    monkeypatch.setattr(publishing, "active_version", then_publish)
    page = writer.get(EDITOR)
    assert (page.context["source"], page.context["seen"]) == (POLICY, 1)
