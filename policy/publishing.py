"""Publish a policy: compile it, run its tests, store it as a version and make it active, or do none of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from secrets import randbits
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import DEFAULT_DB_ALIAS, connection, transaction
from django.db.models import Max, Q, QuerySet
from django.utils import timezone
from django.utils.module_loading import import_string

from policy import rules
from policy.active import program_of_version, remember_program, versions
from policy.core.clock import new_moment
from policy.core.journal import NOBODY, By, Done, Kind, advance, changing, record, refuse_copy, stay
from policy.errors import AuthzError, IsCopy, MalformedRequest, Moved, NotFound
from policy.language.source import Problem, Source, Span
from policy.models import Environment, PolicyDraft, PolicyVersion, PublishRequest
from policy.rules.program import Program

# ---- The results of a policy's tests, for the test runner, publishing and commands --------------------------------

User = AbstractBaseUser | AnonymousUser
NamedPolicy = tuple[str, Program]  # with how to name it
LineName = Callable[[int], str]  # from a line's number to how it is written: `line 3`, or `main.polar:3`


def line_named(line: int) -> str:
    return f"line {line}"


@dataclass(frozen=True, slots=True)
class AssertionOutcome:
    """The result of an assertion; `message` says what was found instead, and is empty if the assertion passed.

    `extent` says how far a passed `assert_never` was checked. `too_much`: the assertion failed because something holds
    that should not. `explanation` returns the lines of a proof of that, or of what is missing; none if the assertion
    passed, or if that is not known.
    """

    text: str  # as written
    line: int
    passed: bool
    message: str = ""
    extent: str = ""
    too_much: bool = False
    explanation: Callable[[LineName], Sequence[str]] = field(default=lambda place: (), compare=False)


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """The result of a test. `total` counts all its assertions, including those skipped by `fail_fast`."""

    __test__ = False  # pytest collects classes named Test…; this is not one

    name: str
    total: int
    assertions: tuple[AssertionOutcome, ...]

    @property
    def passed(self) -> int:
        return sum(assertion.passed for assertion in self.assertions)

    @property
    def failures(self) -> tuple[str, ...]:
        failed = (assertion for assertion in self.assertions if not assertion.passed)
        return tuple(f"test `{self.name}`, line {one.line}: {one.message}" for one in failed)


@dataclass(frozen=True, slots=True)
class TestReport:
    """The results of all tests that were run, in text order."""

    __test__ = False

    tests: tuple[TestOutcome, ...] = ()

    @property
    def success(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> tuple[str, ...]:
        """Return a sentence for each failed assertion."""
        return tuple(failure for test in self.tests for failure in test.failures)

    @property
    def explained_errors(self) -> tuple[str, ...]:
        """Return a sentence for each failed assertion, followed by its explanation in indented lines."""
        failed = [(test, one) for test in self.tests for one in test.assertions if not one.passed]
        return tuple(
            "\n  ".join([f"test `{test.name}`, line {one.line}: {one.message}", *one.explanation(line_named)])
            for test, one in failed
        )


class PolicyTestsFailed(AuthzError):
    """The policy is valid, but some of its own tests fail."""

    def __init__(self, report: TestReport):
        self.report = report
        failed = sum(bool(test.failures) for test in report.tests)
        verb = "fails" if failed == 1 else "fail"
        super().__init__("\n".join([f"{failed} of the policy's tests {verb}:", *report.explained_errors]))

    @property
    def body(self) -> dict[str, object]:
        results = {
            "success": False,
            "errors": [{"error_type": "AssertionFailed", "message": text} for text in self.report.errors],
            "tests": [{"name": t.name, "passed": t.passed, "total": t.total} for t in self.report.tests],
        }
        return {"error_type": "TestsFailed", "message": self.message, "test_results": results}


# ---- figures ------------------------------------------------------------------------------------------------------
# What is stored with a policy version besides its text: test results, coverage, and the publisher's note.

MAX_NOTE = 500  # of one line


def note_fault(note: str) -> str:
    """Return what is wrong with a note, or "". Lists and terminals show notes, so a note is one printable line."""
    if len(note) > MAX_NOTE:
        return f"must not be longer than {MAX_NOTE} characters"
    return "" if note.isprintable() else "must not contain control characters"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many rules a policy has, and the positions of those that none of its tests exercises."""

    rules: int
    missing: tuple[Span, ...] = ()

    @property
    def exercised(self) -> int:
        return self.rules - len(self.missing)

    @property
    def percent(self) -> float:
        return 100 * self.exercised / self.rules if self.rules else 100.0

    @property
    def sentence(self) -> str:
        rules = "rule is" if self.rules == 1 else "rules are"
        return f"{self.exercised:,} of {self.rules:,} {rules} exercised by a test"


@dataclass(frozen=True, slots=True)
class RecordedResults:
    """The results that were recorded when a version was published; None: unknown."""

    tests: int | None = None
    failed_tests: int | None = None
    rules: int | None = None
    exercised_rules: int | None = None

    @classmethod
    def of_version(cls, version: PolicyVersion) -> RecordedResults:
        return cls(version.tests, version.failed_tests, version.rules, version.exercised_rules)

    @classmethod
    def of_run(cls, tests: int, report: TestReport | None, coverage: Coverage | None) -> RecordedResults:
        """Return the figures of this many tests. `report` is None if the tests did not complete."""
        failed = sum(bool(test.failures) for test in report.tests) if report is not None else None
        if coverage is None:
            return cls(tests, failed)
        return cls(tests, failed, coverage.rules, coverage.exercised)

    @property
    def tests_text(self) -> str:
        """Return `12 passed`, `1 of 12 failed` or the like; "" if unknown."""
        if self.tests is None:
            return ""
        if not self.tests:
            return "none"
        if self.failed_tests is None:
            return f"{self.tests:,} not completed"
        return f"{self.failed_tests:,} of {self.tests:,} failed" if self.failed_tests else f"{self.tests:,} passed"

    @property
    def tests_mood(self) -> str:
        """Return the CSS class of the tests' result, `good` or `bad`; "" if there are no tests, or none known."""
        if not self.tests:
            return ""
        return "good" if self.failed_tests == 0 else "bad"

    @property
    def coverage_text(self) -> str:
        """Return `9 of 10 rules`; "" if unknown."""
        if self.rules is None or self.exercised_rules is None:
            return ""
        kind = "rule" if self.rules == 1 else "rules"
        return f"{self.exercised_rules:,} of {self.rules:,} {kind}" if self.rules else "no rules"

    @property
    def percent(self) -> int | None:
        """Return the percentage of rules that tests exercise, rounded down so that 100 means all; None if unknown."""
        if not self.rules or self.exercised_rules is None:
            return None
        return 100 * self.exercised_rules // self.rules


# ---- publishing ---------------------------------------------------------------------------------------------------
# Slow steps (compiling, running tests) precede the transaction, so that no writer waits for them. The transaction first
# takes the environment's turn, so concurrent publishers are serialized, and the last one's text is active, whole.

COVERAGE_SECONDS = 2.0  # time limit of publishing for measuring the tests' coverage
Transaction = Callable[[], AbstractContextManager]


@dataclass(frozen=True, slots=True)
class CheckedDraft:
    """A text that may be published: it compiles, and its tests were run."""

    program: Program
    report: TestReport
    untested: str = ""  # why the tests did not complete; the text is published nevertheless


@dataclass(frozen=True, slots=True)
class Ignored:
    """How many stored facts a policy doesn't use; `or_more` if counting stopped at a limit."""

    count: int = 0
    or_more: bool = False

    def __str__(self) -> str:
        return f"{self.count:,} or more" if self.or_more else f"{self.count:,}"


@dataclass(frozen=True, slots=True)
class Published:
    """The version that is active now, and what its publisher should know."""

    version: PolicyVersion
    offset: int
    draft: CheckedDraft | None = None  # None if the policy was already active, and its tests were not run again
    ignored: Ignored = Ignored()
    is_unchanged: bool = False
    is_requested: bool = False  # the version is not active: another person is to approve it

    @property
    def message(self) -> str:
        if self.is_requested:
            requested = f"policy version {self.version.number} is not active until another publisher approves it"
            return "; ".join([requested, *remarks_on(self.draft, self.ignored)])
        if self.is_unchanged:
            return f"policy version {self.version.number} is already active; nothing changed"
        remarks = remarks_on(self.draft, self.ignored)
        return "; ".join([f"policy version {self.version.number} is active", *remarks])


class ActiveVersionChanged(AuthzError):
    """Raised on publishing and activating: the version to be replaced is no longer active."""

    def __init__(self, number: int | None):
        is_active = "no version is active now" if number is None else f"version {number} is active now"
        super().__init__(f"the active policy has changed: {is_active}")
        self.number = number


# ---- What the apps above do: each function is imported when it is called -------------------------------------------


def _of_app_above(name: str) -> Callable[..., Any]:
    return lambda *args, **options: import_string(name)(*args, **options)


run_tests: Callable[..., TestReport] = _of_app_above("checks.testing.run")  # of a program; `fail_fast`
# Measures which rules of a program its tests exercise; None if that takes longer than so many seconds.
coverage: Callable[[Program, float], Coverage | None] = _of_app_above("checks.testing.measured")
# Counts the stored facts of an environment that a program doesn't use.
ignored_facts: Callable[[int, Program], Ignored] = _of_app_above("facts.accept.ignored_facts")
# Compares what two policies, each with a name, can allow over all facts, within so many seconds. Returns a report, and
# 0, 1 (more) or 2 (unknown). Permissions such as `read on Document`, the last argument, may be granted more.
compared_policies: Callable[[NamedPolicy, NamedPolicy, float, Sequence[str]], tuple[list[str], int]] = _of_app_above(
    "checks.analysis.questions.compared_policies"
)
# Returns what has no effect in a program whatever the facts, and whether so many seconds were enough to check all.
deep_notices: Callable[[Program, float], tuple[list[Problem], bool]] = _of_app_above(
    "checks.analysis.questions.deep_notices"
)


# Returns who created an API key, by the key as the author of a change.
maker_of: Callable[[str], By] = _of_app_above("authz_project.keys.maker_of")


# ---- use cases -----------------------------------------------------------------------------------------------


def publish(
    environment_id: int,
    text: str,
    filename: str | None,
    *,
    force: bool = False,
    fail_fast: bool = False,
    within: Transaction = changing,
    by: By = NOBODY,
    note: str = "",
    replaces: int | None = None,
    may_publish: bool = True,
) -> Published:
    """Make the text the environment's active policy. `within` opens the transaction for it.

    If the environment needs approval, or the author may not publish, only store it as a version, with a request by the
    author.

    `force` publishes despite failing tests, but never an invalid text. If the text is already active, no version is
    stored, and the note is dropped.

    `replaces` is the number of the version that the author saw, 0 for none: if another version is active at the time of
    publishing, raise `ActiveVersionChanged`. None replaces whatever is active.
    """
    if fault := note_fault(note):
        raise MalformedRequest("note", fault)
    digest = _digest(text)
    if unchanged := _unchanged(environment_id, digest):
        return unchanged
    _check_replaced(environment_id, replaces)  # early, to avoid running the tests of what will be refused
    drafted = draft(text, filename, force=force, fail_fast=fail_fast)
    version = PolicyVersion(
        pk=2**30 + randbits(30) if connection.in_atomic_block else None,  # no rollback gives it to another text
        environment_id=environment_id, source=text, filename=filename, digest=digest, author=by.author, note=note,
        **asdict(_figures(drafted)),
    )  # fmt: skip
    with within():
        if not may_publish or needs_approval(environment_id):
            return _request(environment_id, partial(_stored, version), drafted, by, force, replaces)
        turn = advance(environment_id)
        _check_needs_no_approval(environment_id)
        if unchanged := _unchanged(environment_id, digest):
            _record(environment_id, turn.offset, unchanged.version, by)
            return unchanged
        _check_replaced(environment_id, replaces)
        _point(environment_id, _stored(version))
        _record(environment_id, turn.offset, version, by)
        transaction.on_commit(lambda: remember_program(version.pk, drafted.program))
        transaction.on_commit(lambda: versions.note(environment_id, version.pk))
    return Published(version, turn.offset, drafted, ignored_facts(environment_id, drafted.program))


def draft(text: str, filename: str | None, *, force: bool = False, fail_fast: bool = False) -> CheckedDraft:
    """Compile the text and run its tests; raise `PolicyRejected` or, without `force`, `PolicyTestsFailed`."""
    return _tested(rules.compile_source(Source(text, filename or "")), force=force, fail_fast=fail_fast)


def _tested(program: Program, *, force: bool, fail_fast: bool = False) -> CheckedDraft:
    report, untested = TestReport(), ""
    if program.tests:
        try:
            report = run_tests(program, fail_fast=fail_fast)
        except AuthzError as reason:
            if not force:
                raise
            untested = reason.message
    if not (report.success or force):
        raise PolicyTestsFailed(report)
    return CheckedDraft(program, report, untested)


def activate(
    environment_id: int,
    number: int,
    *,
    force: bool = False,
    within: Transaction = changing,
    by: By = NOBODY,
    replaces: int | None = None,
    approval: Callable[[], None] | None = None,
) -> Published:
    """Activate a previously published version. Its tests are run again: a newer engine may return different results.

    If the environment needs approval, only request it, as `publish` does; `approval` records one in the transaction.

    `force` activates it despite failing tests. If the version is already active, no tests are run. `replaces` is as in
    `publish`.
    """
    chosen = version_numbered(environment_id, number)
    program = program_of_version(chosen.pk)
    active = Environment.objects.get(pk=environment_id)
    if active.policy_version_id == chosen.pk and approval is None:
        return Published(chosen, active.offset, None, ignored_facts(environment_id, program), is_unchanged=True)
    _check_replaced(environment_id, replaces)
    drafted = _tested(program, force=force)
    with within():
        if approval is None and needs_approval(environment_id):
            return _request(environment_id, lambda: chosen, drafted, by, force, replaces)
        turn = advance(environment_id)
        if approval is None:
            _check_needs_no_approval(environment_id)
        if turn.policy_version_id != chosen.pk:
            _check_replaced(environment_id, replaces)
        if approval is not None:
            approval()
        _point(environment_id, chosen)
        _record(environment_id, turn.offset, chosen, by)
    is_unchanged = turn.policy_version_id == chosen.pk
    return Published(chosen, turn.offset, drafted, ignored_facts(environment_id, program), is_unchanged)


def tried(program: Program) -> CheckedDraft:
    """Run the policy's tests and return the results, whether the tests pass or not."""
    return _tested(program, force=True)


# ---- approval by a second person ------------------------------------------------------------------------------
# `publish` and `activate` are the only ways to an active policy, so that whoever calls them, with a key, a command or
# the editor, only makes a request if the environment needs approval.


class NotApproved(AuthzError):
    """The request is not open, is out of date, or may not be approved by this person."""


def needs_approval(environment_id: int) -> bool:
    return Environment.objects.filter(pk=environment_id, needs_approval=True).exists()


def _check_needs_no_approval(environment_id: int) -> None:
    if needs_approval(environment_id):  # by a change that was committed while this one waited for its turn
        raise NotApproved("the environment has just been changed: publishing needs approval now; try again")


def _request(
    environment_id: int, version_of: Callable[[], PolicyVersion], drafted: CheckedDraft, by: By, force: bool,
    seen: int | None,
) -> Published:  # fmt: skip
    """Store the request in the transaction that is open. It takes no turn: nothing changes for callers."""
    environment = Environment.objects.select_for_update().get(pk=environment_id)
    refuse_copy(environment_id)
    _check_replaced(environment_id, seen)
    replaces, digest = active_number(environment_id) or 0, _digest(drafted.program.source.text)
    same = open_requests(environment_id).filter(replaces=replaces, author=by.author, version__digest=digest)
    request = same.first() or PublishRequest.objects.create(
        version=version_of(), replaces=replaces, force=force, author=by.author, user_id=by.user_id
    )  # fmt: skip
    ignored = ignored_facts(environment_id, drafted.program)
    return Published(request.version, environment.offset, drafted, ignored, is_requested=True)


def open_requests(environment_id: int) -> QuerySet[PublishRequest]:
    return PublishRequest.objects.filter(version__environment_id=environment_id, outcome="").select_related("version")


def outdated_because(request: PublishRequest) -> str:
    """Return why the request can no longer be approved; empty if it can."""
    environment = request.version.environment_id
    if (active_number(environment) or 0) != request.replaces:
        return "the active policy has changed since the request"
    drafts = PolicyDraft.objects.filter(user_id=request.user_id or 0, environment_id=environment)
    if drafts.exclude(source=request.version.source).exists():
        return "its author has changed the draft since the request"
    return ""


def is_own(request: PublishRequest, by: By) -> bool:
    """Return whether this person made the request, or the key that made it.

    Names change, so they count only if it is not known which user it was.
    """
    made = By(request.author, user_id=request.user_id)
    maker = maker_of(made.author) if made.author.startswith("key ") else made
    return maker.author == by.author if maker.user_id is None else maker.user_id == by.user_id


def approve(request: PublishRequest, by: By, comment: str = "") -> Published:
    """Activate the version of an open request, as another person than its author."""
    if is_own(request, by):
        raise NotApproved("you made this request, or the key that made it; another publisher must approve it")

    def approval() -> None:
        _decide(request, "approved", by, comment)
        if reason := outdated_because(request):
            raise NotApproved(f"{reason}; request it again")

    version = request.version
    return activate(version.environment_id, version.number, force=request.force, by=by, approval=approval)


def reject(request: PublishRequest, by: By, comment: str) -> None:
    with changing():
        stay(request.version.environment_id)
        _decide(request, "rejected", by, comment)


def _decide(request: PublishRequest, outcome: str, by: By, comment: str) -> None:
    """Close the request, unless somebody else has: one update, which only one of them makes."""
    if fault := note_fault(comment):
        raise MalformedRequest("comment", fault)
    decided = {"outcome": outcome, "reviewer": by.author, "comment": comment, "decided_at": timezone.now()}
    if not PublishRequest.objects.filter(pk=request.pk, outcome="").update(**decided):
        raise NotApproved("the request is no longer open")


# ---- versions ------------------------------------------------------------------------------------------------


def version_numbered(environment_id: int, number: int) -> PolicyVersion:
    versions = PolicyVersion.objects.filter(environment_id=environment_id)
    found = versions.filter(number=number).first()
    if found is None:
        latest = versions.order_by("-number").values_list("number", flat=True).first()
        hint = f"the latest is {latest}" if latest else "publish a policy first"
        raise NotFound(f"policy version {number} does not exist; {hint}")
    return found


def filename_of(environment_id: int, number: int | None) -> str:
    """Return the name of the file that a version came from; empty if it is unknown."""
    versions = PolicyVersion.objects.filter(environment_id=environment_id, number=number or 0)
    return versions.values_list("filename", flat=True).first() or ""


def active_version(environment_id: int) -> PolicyVersion | None:
    active = Environment.objects.filter(pk=environment_id).values("policy_version_id")
    return PolicyVersion.objects.filter(pk__in=active).first()


def active_number(environment_id: int) -> int | None:
    active = active_version(environment_id)
    return active.number if active else None


def remarks_on(drafted: CheckedDraft | None, ignored: Ignored) -> list[str]:
    """Return phrases about a draft for a message to its publisher."""
    remarks = [results_of(drafted.report)] if drafted and drafted.report.tests else []
    if drafted and drafted.untested:
        remarks.append(drafted.untested)
    if ignored.count:
        facts = "stored fact is" if ignored == Ignored(1) else "stored facts are"
        remarks.append(f"{ignored} {facts} not used in policy, kept and ignored")
    return remarks


def results_of(report: TestReport) -> str:
    """Return `2 tests passed`, or `1 of 2 tests failed`."""
    failed = sum(bool(test.failures) for test in report.tests)
    tests = "1 test" if len(report.tests) == 1 else f"{len(report.tests):,} tests"
    return f"{failed:,} of {tests} failed" if failed else f"{tests} passed"


def _figures(drafted: CheckedDraft) -> RecordedResults:
    tests = len(drafted.program.tests)
    if drafted.untested:
        return RecordedResults.of_run(tests, None, None)
    return RecordedResults.of_run(tests, drafted.report, coverage(drafted.program, COVERAGE_SECONDS))


def _digest(text: str) -> str:
    return sha256(text.encode(errors="surrogatepass")).hexdigest()  # the compiler rejects what cannot be encoded


def _unchanged(environment_id: int, digest: str) -> Published | None:
    found = Environment.objects.select_related("policy_version").filter(pk=environment_id).first()
    if found is None or found.policy_version is None or found.policy_version.digest != digest:
        return None
    return Published(found.policy_version, found.offset, is_unchanged=True)


def _check_replaced(environment_id: int, replaces: int | None) -> None:
    """Raise `ActiveVersionChanged` if `replaces` is given, and another version is active."""
    if replaces is None:
        return
    number = active_number(environment_id)
    if (number or 0) != replaces:
        raise ActiveVersionChanged(number)


def _stored(version: PolicyVersion) -> PolicyVersion:
    """Store a new version under the next number of its environment, and return it."""
    versions_here = PolicyVersion.objects.filter(environment_id=version.environment_id)
    version.number = (versions_here.aggregate(latest=Max("number"))["latest"] or 0) + 1
    version.save(force_insert=True)
    return version


def _record(environment_id: int, offset: int, version: PolicyVersion, by: By) -> None:
    record(environment_id, [Done(offset, Kind.POLICY, by, version.pk)])


def _point(environment_id: int, version: PolicyVersion) -> None:
    Environment.objects.filter(pk=environment_id).update(policy_version=version)


# ---- Drafts: unpublished policy texts, saved on the server while they are edited ----------------------------------
# Each save gives the draft a new random stamp, and must name the stamp that its author last saw. This is optimistic
# locking: a text saved meanwhile in another window, or on another machine, is never overwritten unseen.


@dataclass(frozen=True, slots=True)
class DraftText:
    """A text that is being edited, and the number of the version that was active when editing began."""

    source: str
    filename: str
    seen: int | None


class NewerDraftExists(AuthzError):
    """Raised on saving: there is a newer draft, which the author has not seen."""

    def __init__(self, draft: PolicyDraft):
        super().__init__("a newer draft was saved in another window or on another machine")
        self.draft = draft


def draft_of(user: User, environment: Environment) -> PolicyDraft | None:
    """Return the draft to resume; None if there is none, or if its text is that of the active policy."""
    draft = _drafts(user, environment).first()
    return None if draft is None or is_active(environment, draft.source) else draft


def keep(user: User, environment: Environment, written: DraftText, stamp: int | None) -> PolicyDraft | None:
    """Save the text and return the draft; raise `NewerDraftExists` if the stored draft has another stamp than `stamp`.

    A stored draft with the same text, or with the active policy's text, may be overwritten whatever its stamp.

    A text equal to the active policy's is not stored: the draft is deleted, and None returned.
    """
    with _changing_drafts(user, environment):
        draft = _drafts(user, environment).first()
        if draft is not None and not _is_known(draft, written, stamp):
            raise NewerDraftExists(draft)
        if is_active(environment, written.source):
            _drafts(user, environment).delete()
            return None
        fields = {"source": written.source, "filename": written.filename, "seen": written.seen, "stamp": new_moment()}
        return PolicyDraft.objects.update_or_create(user_id=user.pk, environment=environment, defaults=fields)[0]


def _is_known(draft: PolicyDraft, written: DraftText, stamp: int | None) -> bool:
    """Return whether the stored draft may be overwritten: it was seen, or has the same text or the active policy's."""
    if draft.stamp == stamp or draft.source == written.source:
        return True
    return is_active(draft.environment, draft.source)


def discard(user: User, environment: Environment, stamp: int | None) -> None:
    """Delete the draft that the author saw; raise `NewerDraftExists` if the stored draft has another stamp."""
    with _changing_drafts(user, environment):
        draft = _drafts(user, environment).first()
        if draft is not None and draft.stamp != stamp:
            raise NewerDraftExists(draft)
        _drafts(user, environment).delete()


def discard_published(user: User, environment: Environment, source: str, stamp: int | None) -> None:
    """Delete the draft that has just been published, unless it was saved again since.

    A save of the same text that is still in progress either finds the text active, or is waited for here. If the
    environment is moved before, the draft stays: it is not resumed, as its text is that of the active policy.
    """
    with suppress(Moved), _changing_drafts(user, environment):
        _drafts(user, environment).filter(Q(stamp=stamp) | Q(source=source)).delete()


@contextmanager
def _changing_drafts(user: User, environment: Environment) -> Iterator[None]:
    """Open a transaction that serializes changes of the user's drafts, while the environment stays in its space.

    It locks the user's row, since a first draft that is being saved cannot be seen or locked yet. Users may be in
    another database than drafts: then the lock is held in a transaction there, until the drafts are committed.
    """
    assert user.pk is not None, "whoever has drafts is logged in"
    users = get_user_model().objects.select_for_update(no_key=True)
    is_elsewhere = users.db != DEFAULT_DB_ALIAS
    with transaction.atomic(using=users.db) if is_elsewhere else nullcontext(), changing():
        users.filter(pk=user.pk).first()
        with suppress(IsCopy):  # a follower has drafts of its own
            stay(environment.pk)
        yield


def _drafts(user: User, environment: Environment) -> QuerySet[PolicyDraft]:
    assert user.pk is not None, "whoever has drafts is logged in"
    return PolicyDraft.objects.filter(user_id=user.pk, environment=environment)


def is_active(environment: Environment, source: str) -> bool:
    active = active_version(environment.pk)
    return source == (active.source if active else "")
