"""Publish a policy: compile it, run its tests, store it as a version and make it active, or do none of these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from secrets import randbits

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import connection, transaction
from django.db.models import Max, Q, QuerySet
from django.utils.module_loading import import_string

from policy import rules
from policy.active import program_of_version, remember_program, versions
from policy.core.clock import new_moment
from policy.core.journal import NOBODY, By, Done, Kind, advance, changing, record
from policy.errors import AuthzError, MalformedRequest, NotFound, PolicyTestsFailed
from policy.language.source import Problem, Source, Span
from policy.models import Environment, PolicyDraft, PolicyVersion
from policy.rules.program import Program
from policy.testing import TestReport

# ---- figures ------------------------------------------------------------------------------------------------------
# What is stored with a policy version besides its text: test results, coverage, and the publisher's note.

# Hooks of the apps above. They are named here and imported when needed.
TEST_RUNNER = "checks.testing.run"
COVERAGE = "checks.testing.measured"
COMPARISON = "checks.analysis.report.compared_policies"
DEEP_CHECK = "checks.analysis.deep.deep_notices"
FACT_AUDIT = "facts.accept.ignored_facts"

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
        return f"{self.exercised_rules:,} of {self.rules:,} rules" if self.rules else "no rules"

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

    @property
    def message(self) -> str:
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
) -> Published:
    """Make the text the environment's active policy. `within` opens the transaction for it.

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
    figures = _figures(drafted)
    is_nested = connection.in_atomic_block
    with within():
        turn = advance(environment_id)
        if unchanged := _unchanged(environment_id, digest):
            _record(environment_id, turn.offset, unchanged.version, by)
            return unchanged
        _check_replaced(environment_id, replaces)
        version = PolicyVersion.objects.create(
            pk=2**30 + randbits(30) if is_nested else None,  # a number that no rollback gives to another text
            environment_id=environment_id,
            number=_next_number(environment_id),
            source=text,
            filename=filename,
            digest=digest,
            author=by.author,
            note=note,
            **asdict(figures),
        )
        _point(environment_id, version)
        _record(environment_id, turn.offset, version, by)
        transaction.on_commit(lambda: remember_program(version.pk, drafted.program))
        transaction.on_commit(lambda: versions.note(environment_id, version.pk))
    return Published(version, turn.offset, drafted, ignored_facts(environment_id, drafted.program))


def draft(text: str, filename: str | None, *, force: bool = False, fail_fast: bool = False) -> CheckedDraft:
    """Compile the text and run its tests; raise `PolicyRejected` or, without `force`, `PolicyTestsFailed`."""
    return _tested(rules.compile_source(Source(text, filename or "")), force=force, fail_fast=fail_fast)


def run_tests(program: Program, *, fail_fast: bool) -> TestReport:
    """Run the program's tests. The app that answers queries does so."""
    report: TestReport = import_string(TEST_RUNNER)(program, fail_fast=fail_fast)
    return report


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
) -> Published:
    """Activate a previously published version. Its tests are run again: a newer engine may return different results.

    `force` activates it despite failing tests. If the version is already active, no tests are run. `replaces` is as in
    `publish`.
    """
    chosen = version_numbered(environment_id, number)
    program = program_of_version(chosen.pk)
    active = Environment.objects.get(pk=environment_id)
    if active.policy_version_id == chosen.pk:
        return Published(chosen, active.offset, None, ignored_facts(environment_id, program), is_unchanged=True)
    _check_replaced(environment_id, replaces)
    drafted = _tested(program, force=force)
    with within():
        turn = advance(environment_id)
        if turn.policy_version_id != chosen.pk:
            _check_replaced(environment_id, replaces)
        _point(environment_id, chosen)
        _record(environment_id, turn.offset, chosen, by)
    is_unchanged = turn.policy_version_id == chosen.pk
    return Published(chosen, turn.offset, drafted, ignored_facts(environment_id, program), is_unchanged)


def tried(program: Program) -> CheckedDraft:
    """Run the policy's tests and return the results, whether the tests pass or not."""
    return _tested(program, force=True)


def coverage(program: Program, seconds: float) -> Coverage | None:
    """Measure which rules the tests exercise; return None if that takes longer than `seconds`.

    The app that answers queries does so.
    """
    return import_string(COVERAGE)(program, seconds)


def ignored_facts(environment_id: int, program: Program) -> Ignored:
    """Count the stored facts that the program doesn't use. The app that stores facts does so."""
    return import_string(FACT_AUDIT)(environment_id, program)


def compared_policies(
    old: tuple[str, Program], new: tuple[str, Program], seconds: float, allowed: Sequence[str]
) -> tuple[list[str], int]:
    """Compare what two policies can allow over all facts; return a report, and 0, 1 (more) or 2 (unknown).

    Each policy has a name for the report. `allowed` are permissions that may be granted more, as `read on Document`.
    """
    found: tuple[list[str], int] = import_string(COMPARISON)(old, new, seconds, allowed)
    return found


def deep_notices(program: Program, seconds: float) -> tuple[list[Problem], bool]:
    """Return what has no effect in the program whatever the facts, and whether there was time to check all of it."""
    found: tuple[list[Problem], bool] = import_string(DEEP_CHECK)(program, seconds)
    return found


# ---- versions ------------------------------------------------------------------------------------------------


def version_numbered(environment_id: int, number: int) -> PolicyVersion:
    versions = PolicyVersion.objects.filter(environment_id=environment_id)
    found = versions.filter(number=number).first()
    if found is None:
        latest = versions.order_by("-number").values_list("number", flat=True).first()
        hint = f"the latest is {latest}" if latest else "publish a policy first"
        raise NotFound(f"policy version {number} does not exist; {hint}")
    return found


def active_version(environment_id: int) -> PolicyVersion | None:
    return PolicyVersion.objects.filter(pk__in=_active_ids(environment_id)).first()


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
    active = active_version(environment_id)
    number = active.number if active else None
    if (number or 0) != replaces:
        raise ActiveVersionChanged(number)


def _next_number(environment_id: int) -> int:
    latest = PolicyVersion.objects.filter(environment_id=environment_id).aggregate(latest=Max("number"))["latest"]
    return (latest or 0) + 1


def _record(environment_id: int, offset: int, version: PolicyVersion, by: By) -> None:
    record(environment_id, [Done(offset, Kind.POLICY, by, version.pk)])


def _point(environment_id: int, version: PolicyVersion) -> None:
    Environment.objects.filter(pk=environment_id).update(policy_version=version)


def _active_ids(environment_id: int) -> QuerySet:
    return Environment.objects.filter(pk=environment_id).values("policy_version_id")


# ---- Drafts: unpublished policy texts, saved on the server while they are edited ----------------------------------
# Each save gives the draft a new random stamp, and must name the stamp that its author last saw. This is optimistic
# locking: a text saved meanwhile in another window, or on another machine, is never overwritten unseen.

User = AbstractBaseUser | AnonymousUser


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
    with _changing_drafts(user):
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
    with _changing_drafts(user):
        draft = _drafts(user, environment).first()
        if draft is not None and draft.stamp != stamp:
            raise NewerDraftExists(draft)
        _drafts(user, environment).delete()


def discard_published(user: User, environment: Environment, source: str, stamp: int | None) -> None:
    """Delete the draft that has just been published, unless it was saved again since.

    A save of the same text that is still in progress either finds the text active, or is waited for here.
    """
    with _changing_drafts(user):
        _drafts(user, environment).filter(Q(stamp=stamp) | Q(source=source)).delete()


@contextmanager
def _changing_drafts(user: User) -> Iterator[None]:
    """Open a transaction that serializes changes of the user's drafts.

    It locks the user's row, since a first draft that is being saved cannot be seen or locked yet.
    """
    assert user.pk is not None, "whoever has drafts is logged in"
    with changing():
        get_user_model().objects.select_for_update(no_key=True).filter(pk=user.pk).first()
        yield


def _drafts(user: User, environment: Environment) -> QuerySet[PolicyDraft]:
    assert user.pk is not None, "whoever has drafts is logged in"
    return PolicyDraft.objects.filter(user_id=user.pk, environment=environment)


def is_active(environment: Environment, source: str) -> bool:
    active = active_version(environment.pk)
    return source == (active.source if active else "")
