"""Convert what was read from another engine, run its tests, and load it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from authz_project.importers import ir
from authz_project.importers.conditions import report_unsupported
from authz_project.importers.facts import ScenarioWriter, WrittenTests, check_duplicates
from authz_project.importers.layout import PolicyLayout, layout_of, without_circles
from authz_project.importers.policy import policy_text
from checks.testing import run
from facts import loading, table
from facts.numbering import signature_numbers
from facts.wire import Fact
from policy.active import forget_program
from policy.core.journal import By, changing
from policy.errors import AuthzError
from policy.models import Environment
from policy.publishing import NotApproved, Published, active_version, publish
from policy.rules import compile_text
from policy.rules.program import Program

# ---- running the converted tests on the converted policy ----------------------------------------------------------


def without_failures(program: Program, tests: WrittenTests, report: ir.ImportReport) -> WrittenTests:
    """Return the tests without the assertions on which the policy and the original disagree.

    An assertion where the policy grants less is reported as lost, which --partial accepts. One where it grants more
    makes the import fail, even with --partial.
    """
    kept = []
    failed = 0
    for (test, place), outcome in zip(tests.tests, run(program).tests):
        for each in outcome.assertions:
            if not each.passed:
                failed += 1
                kind = ir.ModelKind.NEEDED if each.too_much else ir.ModelKind.LOST
                report.add(kind, place, f"test `{test.name.text}`: {' '.join(each.text.split())}: {each.message}")
        passed = tuple(each for each, said in zip(test.assertions, outcome.assertions) if said.passed)
        if passed:
            kept.append((replace(test, assertions=passed), place))
    return replace(tests, tests=tuple(kept), assertions=max(tests.assertions - failed, 0)) if failed else tests


# ---- from what was read to a policy with tests, and facts ---------------------------------------------------------


@dataclass(frozen=True)
class Carried:
    policy: str
    layout: PolicyLayout
    tests: WrittenTests

    @property
    def facts(self) -> tuple[Fact, ...]:
        return self.tests.facts


def carried(
    imported: ir.Imported, report: ir.ImportReport, clock: frozenset[str] = frozenset(), usersets: bool = False
) -> Carried:
    """Convert everything; what has no equivalent is reported and grants nothing. Raise ImportRejected on conflicts.

    `clock` are parameters to fill from the server's clock. With `usersets`, checks for usersets are supported.
    """
    check_duplicates(imported)
    model = without_circles(imported.model, report)
    layout = layout_of(model, report, clock)
    report_unsupported(model, report)
    tests = ScenarioWriter(replace(imported, model=model), layout, report).written()
    has_usersets = usersets or tests.mentions(layout.userset_type)
    policy = policy_text(layout, tests, has_usersets)
    if tests.tests and (kept := without_failures(compile_text(policy), tests, report)) != tests:
        policy, tests = policy_text(layout, kept, has_usersets), kept
    return Carried(policy, layout, tests)


# ---- loading ------------------------------------------------------------------------------------------------------
# Load an import into an environment without facts: both policy and facts are stored, or neither.


class HasFacts(AuthzError):
    """The environment has facts, which may grant what the imported policy denies."""


def load(
    environment: Environment, policy: str, filename: str, facts: Sequence[Fact], by: By, note: str
) -> tuple[Published, loading.Loaded]:
    """Publish the policy and store the facts in one transaction. Raise `HasFacts` if there are facts already.

    If the environment needs approval, raise `NotApproved`: the policy of now may grant more by these facts.
    """
    stored: list[loading.Loaded] = []

    @contextmanager
    def with_facts() -> Iterator[None]:
        """Open a transaction that ends with storing the facts, because the new policy determines which ones it uses."""
        number = None
        try:
            with changing():
                mine = Environment.objects.filter(pk=environment.pk)
                mine.select_for_update().first()  # locks out other writers
                _check_empty(environment)
                yield
                _check_active(environment, policy)
                number = mine.values_list("policy_version_id", flat=True).get()
                stored.append(loading.load(environment.pk, enumerate(facts, 1), by=by))
        except BaseException:
            if number is not None:
                forget_program(number)  # another version may get the same number later
            raise

    published = publish(environment.pk, policy, filename, within=with_facts, by=by, note=note)
    if not stored:  # the policy was active already
        with with_facts():
            pass
    return published, stored[0]


def _check_active(environment: Environment, policy: str) -> None:
    active = active_version(environment.pk)
    if active is None or active.source != policy:
        raise NotApproved(
            f"Environment `{environment.slug}` needs approval for policies, and facts would be stored without it."
            " Nothing was loaded. Write files with --output, publish with load_policy, and use load_facts once the"
            " policy is active."
        )


def _check_empty(environment: Environment) -> None:
    if table.count_up_to(1, signature_numbers(environment.pk).values()):
        raise HasFacts(
            f"Environment `{environment.slug}` already has facts, which may grant what the imported policy denies."
            " Nothing was loaded. Load into a new environment with `--load --environment NAME`, or write files with"
            " --output and load them with load_policy and load_facts after reviewing the existing facts."
        )
