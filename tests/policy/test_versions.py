"""What is kept of a version beside its text: who published it, why, and what its tests came to."""

import io
import re
from html import unescape

import pytest
from django.core.management import CommandError, call_command

from authz_project.environments import create_test_environment
from facts.history import prune
from policy import publishing
from policy.core.journal import By
from policy.errors import MalformedRequest
from policy.models import PolicyVersion, Revision
from policy.publishing import (
    MAX_NOTE,
    AssertionOutcome,
    Coverage,
    PolicyTestsFailed,
    RecordedResults,
    TestOutcome,
    TestReport,
    activate,
    active_version,
    publish,
)
from tests.policy.test_admin import VERSIONS, Person, page_of, text_of
from tests.policy.test_publishing import OTHER, POLICY, TEST, TESTED, runner, tests_fail, tests_pass  # noqa: F401

pytestmark = pytest.mark.one_database

HOSTILE = "<script>alert(1)</script> \"'&{{ 7 }}"
BROKEN = TESTED.replace('assert allow(User{"ann"}', 'assert_not allow(User{"ann"}')


@pytest.fixture
def person(db):
    return Person("view", "add", "change")


def told(version: PolicyVersion) -> tuple:
    version.refresh_from_db()
    return version.tests, version.failed_tests, version.rules, version.exercised_rules


def run(command: str, *args: str) -> str:
    out = io.StringIO()
    call_command(command, *args, stdout=out, stderr=out)
    return out.getvalue()


# ---- publishing ------------------------------------------------------------------------------------------------


def test_a_version_keeps_its_publisher_note_and_figures(environment):
    by = By("admin ada", "request-1")
    version = publish(environment.pk, TESTED, "a.polar", by=by, note="Viewers may view, as agreed").version
    version.refresh_from_db()
    assert (version.author, version.note) == ("admin ada", "Viewers may view, as agreed")
    assert told(version) == (1, 0, 2, 1)
    assert told(publish(environment.pk, OTHER, None).version) == (0, 0, 0, 0)
    untested = publish(environment.pk, POLICY, None).version
    assert (untested.author, untested.note) == ("", "") and told(untested) == (0, 0, 2, 0)


def test_figures_are_those_of_the_time_of_publishing(environment, tests_fail):  # noqa: F811
    version = publish(environment.pk, TESTED, None, force=True).version
    assert told(version)[:2] == (1, 1)
    runner.passes = True
    activate(environment.pk, 1)
    assert told(version)[:2] == (1, 1)


def test_tests_that_do_not_end_have_no_result(environment, tests_pass, monkeypatch):  # noqa: F811
    def refuse(self, program, fail_fast):
        raise MalformedRequest("", "the tests took too long")

    monkeypatch.setattr(type(runner), "__call__", refuse)
    assert told(publish(environment.pk, TESTED, None, force=True).version) == (1, None, None, None)


def test_coverage_that_takes_long_is_left_out_and_never_keeps_a_policy_out(environment, monkeypatch):
    monkeypatch.setattr(publishing, "COVERAGE_SECONDS", 1e-9)
    assert told(publish(environment.pk, TESTED, None).version) == (1, 0, None, None)
    assert active_version(environment.pk).source == TESTED


def test_an_unchanged_text_keeps_its_first_note(environment):
    publish(environment.pk, POLICY, None, by=By("admin ada"), note="first")
    again = publish(environment.pk, POLICY, None, by=By("admin ben"), note="second")
    assert again.is_unchanged
    assert (again.version.author, again.version.note) == ("admin ada", "first")


def test_who_published_a_version_is_known_after_its_revision_is_gone(environment):
    version = publish(environment.pk, POLICY, None, by=By("admin ada")).version
    publish(environment.pk, OTHER, None, by=By("admin ben"))
    Revision.objects.update(at=1)
    prune(1)
    assert not Revision.objects.filter(policy_version=version).exists()
    version.refresh_from_db()
    assert version.author == "admin ada"


@pytest.mark.parametrize("note", ["x" * (MAX_NOTE + 1), "two\nlines", "\x1b[31m", "nul\0", "\u202eturned", "\ud800"])
def test_what_is_no_note_is_refused(environment, note):
    with pytest.raises(MalformedRequest) as refused:
        publish(environment.pk, POLICY, None, note=note)
    assert refused.value.path == "note"
    assert active_version(environment.pk) is None


def test_a_copied_environment_keeps_what_is_known_of_its_policy(environment):
    publish(environment.pk, TESTED, None, by=By("admin ada"), note="As agreed")
    create_test_environment(copied=True)
    copy = PolicyVersion.objects.exclude(environment=environment).get()
    assert (copy.author, copy.note, told(copy)) == ("admin ada", "As agreed", (1, 0, 2, 1))


def test_figures_in_words():
    report = TestReport((TestOutcome("t", 1, (AssertionOutcome("p()", 1, False, "no"),)),))
    failed = RecordedResults.of_run(2, report, Coverage(201, ()))
    assert (failed.tests_text, failed.tests_mood, failed.percent) == ("1 of 2 failed", "bad", 100)
    assert RecordedResults(2, None).tests_text == "2 not completed" and RecordedResults(2, None).tests_mood == "bad"
    assert (RecordedResults().tests_text, RecordedResults().coverage_text, RecordedResults().percent) == ("", "", None)
    assert RecordedResults(0, 0, 0, 0).tests_text == "none" and RecordedResults(0, 0, 0, 0).coverage_text == "no rules"
    assert RecordedResults(1, 0, 1000, 999).percent == 99  # not all


# ---- the interface -----------------------------------------------------------------------------------------------


def test_a_note_comes_with_the_policy(api):
    for body, note in (
        ({"src": POLICY, "note": "from a build"}, "from a build"),
        ({"src": OTHER, "note": None}, ""),
        ({"src": TESTED}, ""),
    ):
        answer = api.post("/policy", body)
        assert (answer.status_code, set(answer.json())) == (200, {"message"})
        version = PolicyVersion.objects.latest("number")
        assert version.note == note and version.author.startswith("key ")
    assert api.get("/policy").json() == {"policy": {"src": TESTED, "filename": None}}


@pytest.mark.parametrize(
    ("note", "message"),
    [
        (5, "note: must be a string"),
        ("a\nb", "note: must not contain control characters"),
        ("a" * 501, "note: must not be longer than 500 characters"),
    ],
)
def test_what_is_no_note_is_a_generic_error(api, note, message):
    answer = api.post("/policy", {"src": POLICY, "note": note})
    assert (answer.status_code, answer.json()) == (400, {"error_type": "Generic", "message": message})


# ---- going back ---------------------------------------------------------------------------------------------------


def test_a_version_whose_tests_fail_becomes_active_only_if_somebody_says_so(environment, tests_fail):  # noqa: F811
    publish(environment.pk, TESTED, None, force=True)
    publish(environment.pk, OTHER, None)
    runner.asked.clear()
    with pytest.raises(PolicyTestsFailed):
        activate(environment.pk, 1)
    assert active_version(environment.pk).number == 2
    assert activate(environment.pk, 1, force=True).message == "policy version 1 is active; 1 of 1 test failed"
    assert len(runner.asked) == 2
    assert activate(environment.pk, 1).is_unchanged  # it answers already, whatever its tests say
    assert len(runner.asked) == 2


def test_tests_that_pass_are_told_when_going_back(environment, tests_pass):  # noqa: F811
    publish(environment.pk, TESTED, None)
    publish(environment.pk, OTHER, None)
    assert run("load_policy", "--version", "1") == "policy version 1 is active; 1 test passed\n"


def test_the_command_goes_back_by_force_alone(environment):
    publish(environment.pk, BROKEN, None, force=True)
    publish(environment.pk, OTHER, None)
    with pytest.raises(CommandError) as refused:
        run("load_policy", "--version", "1")
    assert "1 of 1 test failed. Nothing was published. Pass --force" in str(refused.value)
    assert active_version(environment.pk).number == 2
    forced = run("load_policy", "--version", "1", "--force")
    assert "test `viewers view`, line 11: expected false, got true" in forced
    assert forced.endswith("policy version 1 is active; 1 of 1 test failed\n")


# ---- commands ------------------------------------------------------------------------------------------------------


def test_commands_keep_and_show_notes(environment, tmp_path):
    file = tmp_path / "main.polar"
    file.write_text(TESTED)
    run("load_policy", str(file), "--note", "Viewers view")
    shown = run("show_policy", "--history").splitlines()
    assert shown[1:] == [
        "         command load_policy; tests: 1 passed, 1 of 2 rules exercised",
        "         Viewers view",
    ]
    about = run("show_policy", "--about").splitlines()
    assert about[0] == "version:   1" and about[2:4] == ["by:        command load_policy", "note:      Viewers view"]
    assert "tests:     1 passed" in about and "coverage:  1 of 2 rules" in about
    assert run("show_policy") == TESTED
    for note in ("a\nb", "x" * 501):
        with pytest.raises(CommandError, match="a note must not"):
            run("load_policy", str(file), "--note", note)


# ---- pages -----------------------------------------------------------------------------------------------------------


def test_versions_are_listed_with_all_that_is_known(environment, person):
    publish(environment.pk, BROKEN, "main.polar", force=True, by=By("admin ada"), note="As agreed")
    PolicyVersion.objects.create(environment=environment, number=2, source=POLICY, digest="")  # of long ago
    shown = text_of(person.get(VERSIONS))
    assert "Version 1" in shown and "As agreed" in shown and "by admin ada" in shown
    assert "1 of 1 failed" in shown and "50 %" in shown
    assert "unknown" in text_of(person.get(page_of(PolicyVersion.objects.get(number=2))))


def test_the_editor_sends_a_note(environment, person):
    person.send(f"{VERSIONS}add/", source=POLICY, note="Why it changes", _publish="1")
    version = active_version(environment.pk)
    assert (version.note, version.author) == ("Why it changes", "admin view-add-change")
    page = text_of(person.get(page_of(version)))
    assert "Why it changes" in page and "by admin view-add-change" in page
    refused = person.send(f"{VERSIONS}add/", source=OTHER, note="x" * 501, _publish="1")
    assert "not published. correct the errors below" in text_of(refused).lower()


def test_notes_names_and_authors_are_text(environment, person):
    text = BROKEN.replace("viewers view", HOSTILE.replace('"', ""))
    version = publish(environment.pk, text, "m", force=True, by=By(HOSTILE), note=HOSTILE).version
    publish(environment.pk, OTHER, None)
    for path in (VERSIONS, page_of(version), f"{page_of(version)}?run=tests", page_of(version, "activate")):
        page = person.get(path).content.decode()
        assert "<script>alert" not in page
        assert HOSTILE in unescape(page)


def test_tests_are_run_again_where_somebody_asks(environment, person):
    version = publish(environment.pk, BROKEN, None, force=True).version
    before = person.get(page_of(version))
    assert "Run tests" in text_of(before) and "expected false" not in text_of(before)
    page = person.get(f"{page_of(version)}?run=tests")
    assert "Test results" in text_of(page)
    assert "test viewers view: expected false, got true" in text_of(page) and "fact of the test" in text_of(page)
    assert "1 rule not covered by tests" in text_of(page)
    assert '<a href="#L5">line 5</a>' in page.content.decode()
    assert told(version) == (1, 1, 2, 1)


def test_what_changed_since_the_version_before_is_on_its_page(environment, person):
    first, second = (publish(environment.pk, text, None).version for text in (POLICY, POLICY + "# more\n"))
    assert "Changes since" not in text_of(person.get(page_of(first)))
    page = text_of(person.get(page_of(second)))
    assert "Changes since version 1 +1" in page and "# more" in page


def test_going_back_shows_the_tests_and_asks_for_a_tick_where_they_fail(environment, person):
    broken = publish(environment.pk, BROKEN, None, force=True).version
    good = publish(environment.pk, TESTED, None).version
    publish(environment.pk, OTHER, None)
    assert "1 test passed." in text_of(person.get(page_of(good, "activate")))
    question = person.get(page_of(broken, "activate"))
    assert "expected false, got true" in text_of(question)
    assert "Activate even though its tests fail" in text_of(question)
    assert f'href="{page_of(broken)}#L11"' in question.content.decode()
    token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', question.content.decode())[1]
    seen = re.search(r'name="seen" value="(\w+)"', question.content.decode())[1]
    form = {"csrfmiddlewaretoken": token, "seen": seen}
    refused = person.client.post(page_of(broken, "activate"), form)
    assert refused.status_code == 200 and "Not activated: its tests fail" in text_of(refused)
    assert active_version(environment.pk).number == 3
    done = person.client.post(page_of(broken, "activate"), form | {"force": "on"}, follow=True)
    assert "Policy version 1 is active; 1 of 1 test failed." in text_of(done)
    assert active_version(environment.pk) == broken


def test_who_may_only_look_may_run_the_tests_and_no_more(environment, db):
    version = publish(environment.pk, TESTED, None).version
    publish(environment.pk, OTHER, None)
    reader = Person("view")
    assert "Test results" in text_of(reader.get(f"{page_of(version)}?run=tests"))
    assert reader.client.post(page_of(version, "activate"), {"force": "on"}).status_code == 403
    assert active_version(environment.pk).source == OTHER
    assert Person().get(f"{page_of(version)}?run=tests").status_code == 403
