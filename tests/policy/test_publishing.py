"""What it takes for a text to become the policy, and what happens then."""

import threading
from contextlib import closing
from dataclasses import dataclass, field

import pytest
from django.db import connection

from facts import accept, store
from facts.accept import FactRejected
from facts.store import Deletes, Inserts
from facts.wire import Argument, Fact, FactPattern
from policy import active, publishing
from policy.active import active_program
from policy.core.memory import Recent
from policy.errors import AuthzError, NotFound
from policy.language.source import PolicyRejected
from policy.models import Environment, PolicyVersion
from policy.publishing import AssertionOutcome, Ignored, PolicyTestsFailed, TestOutcome, TestReport, activate, publish
from policy.values import Value

POLICY = """actor User {}
resource Folder {
  roles = ["viewer", "owner"];
  permissions = ["view"];
  "viewer" if "owner";
  "view" if "viewer";
}
"""
OTHER = 'actor User {}\nresource Document { roles = ["reader"]; }\n'
TEST = """
test "viewers view" {
  setup { has_role(User{"ann"}, "viewer", Folder{"f"}); }
  assert allow(User{"ann"}, "view", Folder{"f"});
}
"""
TESTED = POLICY + TEST


@dataclass
class Runner:
    """Stands in for the app above, which runs tests: passes or fails them all, and says how it was asked."""

    passes: bool = True
    asked: list[bool] = field(default_factory=list)

    def __call__(self, program, fail_fast=False):
        self.asked.append(fail_fast)
        outcomes = (AssertionOutcome("assert p()", 9, self.passes, "" if self.passes else "expected a result"),)
        return TestReport(tuple(TestOutcome(test.name, len(test.assertions), outcomes) for test in program.tests))


runner = Runner()


@pytest.fixture
def tests_pass(monkeypatch):
    monkeypatch.setattr("policy.publishing.run_tests", runner)
    runner.passes = True
    runner.asked.clear()


@pytest.fixture
def tests_fail(tests_pass):
    runner.passes = False


def role(user: str, name: str, kind: str, thing: str) -> Fact:
    return Fact("has_role", (Value("User", user), Value("String", name), Value(kind, thing)))


def active_text(environment: Environment) -> str | None:
    version = publishing.active_version(environment.id)
    return version and version.source


# ---- publishing ------------------------------------------------------------------------------------------


def test_a_policy_is_stored_and_active(environment):
    assert publishing.active_version(environment.id) is None
    published = publish(environment.id, POLICY, "main.polar")
    assert (published.version.number, published.is_unchanged, published.ignored) == (1, False, Ignored())
    version = publishing.active_version(environment.id)
    assert (version.source, version.filename, version.number) == (POLICY, "main.polar", 1)
    assert active_program(environment.id) is published.draft.program
    assert published.message == "policy version 1 is active"


def test_versions_are_numbered_in_each_environment(new_api):
    one, other = new_api("one").environment, new_api("other").environment
    assert [publish(one.id, text, None).version.number for text in (POLICY, OTHER, POLICY)] == [1, 2, 3]
    assert publish(other.id, POLICY, None).version.number == 1
    assert active_text(one) == active_text(other) == POLICY


def test_an_unchanged_policy_is_not_stored_again(environment):
    first = publish(environment.id, POLICY, "a.polar")
    again = publish(environment.id, POLICY, "b.polar")
    assert again.is_unchanged and again.version == first.version and again.offset == first.offset
    assert PolicyVersion.objects.filter(environment=environment).count() == 1
    assert "already active" in again.message


def test_every_byte_counts(environment):
    publish(environment.id, POLICY, None)
    assert publish(environment.id, POLICY + "\n", None).version.number == 2
    assert publish(environment.id, POLICY.replace("\n", "\r\n"), None).version.number == 3
    assert active_text(environment) == POLICY.replace("\n", "\r\n")


def test_offsets_grow(environment):
    offsets = [publish(environment.id, text, None).offset for text in (POLICY, OTHER)]
    offsets.append(store.apply(environment.id, []).offset)
    offsets.append(activate(environment.id, 1).offset)
    assert offsets == sorted(set(offsets))


def test_an_empty_policy_is_a_policy(environment):
    published = publish(environment.id, "", None)
    assert not published.is_unchanged
    assert active_text(environment) == ""


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(
    "text",
    ["resource {", "resource Folder extends Nothing {}", "p(\0);", "x" * 2_000_000, "\ud800"],
    ids=["syntax", "meaning", "nul", "long", "surrogate"],
)
def test_a_text_that_is_no_policy_changes_nothing(environment, text, force):
    before = publish(environment.id, POLICY, None)
    with pytest.raises(PolicyRejected):
        publish(environment.id, text, None, force=force)
    assert active_text(environment) == POLICY
    assert PolicyVersion.objects.filter(environment=environment).count() == 1
    assert store.apply(environment.id, []).offset == before.offset + 1


# ---- tests of the policy ---------------------------------------------------------------------------------


def test_passing_tests_let_a_policy_in(environment, tests_pass):
    published = publish(environment.id, TESTED, None)
    assert published.message == "policy version 1 is active; 1 test passed"
    assert runner.asked == [False]


def test_failing_tests_keep_a_policy_out(environment, tests_fail):
    publish(environment.id, POLICY, None)
    with pytest.raises(PolicyTestsFailed) as refused:
        publish(environment.id, TESTED, None, fail_fast=True)
    assert runner.asked == [True]
    assert active_text(environment) == POLICY
    assert refused.value.message == "1 of the policy's tests fails:\ntest `viewers view`, line 9: expected a result"


def test_force_overrides_failing_tests(environment, tests_fail):
    published = publish(environment.id, TESTED, None, force=True)
    assert active_text(environment) == TESTED
    assert published.message == "policy version 1 is active; 1 of 1 test failed"


def test_force_overrides_tests_that_cannot_be_run_to_their_end(environment, tests_pass, monkeypatch):
    def refuse(self, program, fail_fast):
        raise AuthzError("the tests took too long")

    monkeypatch.setattr(Runner, "__call__", refuse)
    with pytest.raises(AuthzError, match="the tests took too long"):
        publish(environment.id, TESTED, None)
    assert active_text(environment) is None
    published = publish(environment.id, TESTED, None, force=True)
    assert published.message == "policy version 1 is active; the tests took too long"


def test_a_policy_without_tests_runs_none(environment, tests_fail):
    publish(environment.id, POLICY, None)
    assert runner.asked == []


# ---- facts -----------------------------------------------------------------------------------------------


def test_facts_that_no_longer_fit_are_kept_and_counted(environment):
    publish(environment.id, POLICY, None)
    store.apply(environment.id, [Inserts([role(str(n), "viewer", "Folder", "f") for n in range(3)])])
    published = publish(environment.id, OTHER, None)
    assert published.ignored == Ignored(3)
    assert "3 stored facts are not used in policy, kept and ignored" in published.message
    assert activate(environment.id, 1).ignored == Ignored()
    assert activate(environment.id, 2).ignored == Ignored(3)


def test_only_the_facts_of_the_environment_are_counted(new_api):
    one, other = new_api("one").environment, new_api("other").environment
    store.apply(one.id, [Inserts([role("ann", "viewer", "Folder", "f")])])
    assert publish(other.id, OTHER, None).ignored == Ignored()


def test_counting_stops_where_it_is_enough(environment, monkeypatch):
    store.apply(environment.id, [Inserts([role(str(n), "viewer", "Folder", "f") for n in range(8)])])
    store.apply(environment.id, [Inserts([role(str(n), "viewer", "Shelf", "s") for n in range(8)])])
    monkeypatch.setattr(accept, "COUNTED", 10)
    published = publish(environment.id, OTHER, None)
    assert published.ignored == Ignored(10, or_more=True)
    assert "10 or more stored facts are not used in policy" in published.message
    monkeypatch.setattr(accept, "COUNTED", 16)
    assert activate(environment.id, 1).ignored == Ignored(16)


def test_facts_are_checked_against_the_policy_that_is_active_when_they_are_stored(environment):
    publish(environment.id, POLICY, None)
    fact = role("ann", "viewer", "Folder", "f")
    store.apply(environment.id, [Inserts([fact])])
    publish(environment.id, OTHER, None)
    with pytest.raises(FactRejected):
        store.apply(environment.id, [Inserts([role("bob", "viewer", "Folder", "f")])])
    exact = FactPattern("has_role", tuple(Argument(value.type, value.id) for value in fact.args))
    assert store.apply(environment.id, [Deletes([exact])]).deleted == 1


# ---- versions --------------------------------------------------------------------------------------------


def test_an_older_version_is_activated(environment):
    for text in (POLICY, OTHER):
        publish(environment.id, text, None)
    back = activate(environment.id, 1)
    assert (back.version.number, back.is_unchanged) == (1, False)
    assert active_text(environment) == POLICY
    assert activate(environment.id, 1).is_unchanged
    assert publish(environment.id, POLICY, None).is_unchanged
    assert publish(environment.id, OTHER, None).version.number == 3


def test_a_version_that_does_not_exist_is_not_activated(environment, new_api):
    publish(new_api("other").environment.id, POLICY, None)
    with pytest.raises(NotFound):
        activate(environment.id, 1)
    with pytest.raises(NotFound):
        publish(environment.id + 10_000, POLICY, None)


# ---- at once ---------------------------------------------------------------------------------------------


def at_once(*acts) -> list[object]:
    """Each in a thread of its own, started together; what they return, or the exception that they raise."""
    results: list[object] = [None] * len(acts)
    barrier = threading.Barrier(len(acts))

    def run(index: int) -> None:
        with closing(connection):
            barrier.wait()
            try:
                results[index] = acts[index]()
            except Exception as error:
                results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def test_of_two_publishers_the_last_one_wins_whole(environment):
    texts = [f"{POLICY}# {index}\n" for index in range(8)]
    results = at_once(*[lambda text=text: publish(environment.id, text, None) for text in texts])
    assert sorted(one.version.number for one in results) == list(range(1, 9))
    last = max(results, key=lambda one: one.offset)
    assert last.version.number == 8
    assert publishing.active_version(environment.id) == last.version
    assert active_text(environment) == last.version.source


def test_the_same_text_sent_at_once_is_stored_once(environment):
    results = at_once(*[lambda: publish(environment.id, POLICY, None)] * 6)
    assert sorted(one.is_unchanged for one in results) == [False] + [True] * 5
    assert PolicyVersion.objects.filter(environment=environment).count() == 1


def test_facts_stored_while_the_policy_changes_fit_the_policy_of_that_moment(environment):
    publish(environment.id, POLICY, None)
    facts = [role(f"u{n}", "viewer", "Folder", "f") for n in range(20)]

    def insert_all():
        return [store.apply(environment.id, [Inserts([fact])]).offset for fact in facts]

    inserted, published = at_once(insert_all, lambda: publish(environment.id, OTHER, None))
    if isinstance(inserted, list):
        assert max(inserted) < published.offset
    else:
        assert "not used in policy" in str(inserted)


# ---- what a process remembers ----------------------------------------------------------------------------


def test_a_new_version_is_compiled_once_by_the_requests_that_meet_it(environment, monkeypatch):
    publish(environment.id, POLICY, None)
    version = PolicyVersion.objects.create(environment=environment, number=2, source=OTHER, digest="")
    compiled = []
    compile_source = active.rules.compile_source
    monkeypatch.setattr(active.rules, "compile_source", lambda source: compiled.append(1) or compile_source(source))
    programs = at_once(*[lambda: active.program_of_version(version.pk)] * 6)
    assert compiled == [1]
    assert all(program is programs[0] for program in programs)


def test_programs_that_were_not_used_for_longest_are_let_go(environment, monkeypatch):
    monkeypatch.setattr(active, "_programs", Recent(3 * active._LEAST, active._weight))
    first, _, third = (publish(environment.id, f"# {n}\n", None) for n in range(3))
    assert active._programs.get(first.version.pk) is None
    assert active._programs.get(third.version.pk) is third.draft.program
    assert active.program_of_version(first.version.pk).source.text == "# 0\n"
    assert len(active._programs) == 2
