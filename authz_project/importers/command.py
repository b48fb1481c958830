"""The steps that all import commands share: convert, report, run the tests, load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any

from django.core.management.base import CommandError

from authz_project.environments import environment_made
from authz_project.importers import policy
from authz_project.importers.conditions import report_unsupported, value_rules, written_condition
from authz_project.importers.facts import CarriedFacts, WrittenTests, check_duplicates, written_tests
from authz_project.importers.files import Write, check_outputs, inputs_of, write_together
from authz_project.importers.layout import PolicyLayout, layout_of, without_circles
from authz_project.importers.model import Imported, ImportRejected, ImportReport, ModelKind, check_parameters
from authz_project.importers.policy import written_blocks
from checks.testing import run
from facts import loading, read
from facts.accept import check_facts
from facts.notation import WRITERS
from facts.numbering import signature_numbers
from facts.wire import Fact
from policy.active import forget_program
from policy.errors import AuthzError, PolicyTestsFailed, Unavailable
from policy.files import Bundle
from policy.ground.journal import By, by_command, changing
from policy.language import ast
from policy.language.format import formatted
from policy.language.printer import print_item
from policy.language.source import PolicyRejected, Source, without_collections
from policy.management.command import ServiceCommand, counted, note, rejection
from policy.models import DEFAULT_SLUG, Environment
from policy.publishing import Published, publish
from policy.rules import compile_text
from policy.rules.program import Program
from policy.testing import TestOutcome

# ---- Runs the tests that were carried over, on the policy that they are in ----------------------------------------


def without_failures(program: Program, tests: WrittenTests, report: ImportReport) -> WrittenTests:
    """Return the tests, without what the policy answers otherwise than the original.

    An assertion where the policy grants less is reported as lost, which --partial accepts. One where it grants more
    makes the import fail, with --partial too.
    """
    kept, places = [], []
    failed = 0
    for test, place, outcome in zip(tests.tests, tests.places, run(program).tests):
        for each in outcome.assertions:
            if not each.passed:
                failed += 1
                tell = report.needed if each.too_much else report.lost
                tell(place, f"test `{test.name.text}`: {' '.join(each.text.split())}: {each.message}")
        if passed := _passed(test, outcome):
            kept.append(replace(test, assertions=passed))
            places.append(place)
    if not failed:
        return tests
    fixture = tests.fixture if kept else None
    return replace(
        tests, fixture=fixture, tests=tuple(kept), places=tuple(places), assertions=max(tests.assertions - failed, 0)
    )


def _passed(test: ast.Test, outcome: TestOutcome) -> tuple[ast.Assertion, ...]:
    return tuple(each for each, said in zip(test.assertions, outcome.assertions) if said.passed)


# ---- From what was read to a policy with tests, and facts ---------------------------------------------------------


@dataclass(frozen=True)
class ImportOptions:
    """`clock`: parameters that are the service's clock. `usersets`: whether questions about usersets are answered."""

    clock: frozenset[str] = frozenset()
    usersets: bool = False


@dataclass(frozen=True)
class Counts:
    types: int
    relations: int
    conditions: int
    tuples: int
    facts: int
    assertions: int  # of the original
    tests: int


@dataclass(frozen=True)
class Carried:
    policy: str
    facts: tuple[Fact, ...]
    layout: PolicyLayout
    counts: Counts


def carried(imported: Imported, report: ImportReport, options: ImportOptions = ImportOptions()) -> Carried:
    """Write it all; what has no equal here is in the report, and grants nothing. ImportRejected if tuples clash."""
    check_duplicates(imported)
    model = without_circles(imported.model, report)
    layout = layout_of(model, report, options.clock)
    report_unsupported(model, report)
    facts = tuple(CarriedFacts(layout).of_all(imported.tuples, report))
    tests = written_tests(replace(imported, model=model), layout, report)
    policy = formatted(_policy(layout, tests, options))
    if tests.tests and (kept := without_failures(compile_text(policy), tests, report)) != tests:
        policy, tests = formatted(_policy(layout, kept, options)), kept
    relations = sum(len(type_.relations) for type_ in imported.model.types)
    counts = Counts(
        len(model.types), relations, len(model.conditions), len(imported.tuples), len(facts), tests.assertions,
        len(tests.tests),
    )  # fmt: skip
    return Carried(policy, facts, layout, counts)


def _policy(layout: PolicyLayout, tests: WrittenTests, options: ImportOptions) -> str:
    has_usersets = options.usersets or tests.asks_usersets
    written = written_blocks(layout, has_usersets)
    parts = ["\n".join(policy.comment_lines(layout.model.comment)) + "\n"] if layout.model.comment else []
    if has_usersets:
        parts.append(policy.USERSETS.format(name=layout.userset_type).lstrip())
    for block in written.blocks:
        parts.append(policy.block_text(block))
        parts.append(policy.declares_text(block))
    conditions = layout.model.conditions
    for each in conditions:
        name = layout.conditions[each.name]
        parts.append(policy.condition_text(written_condition(each, name, each.name in written.failing, layout.clock)))
    if conditions:
        parts.append(policy.VALUES + policy.rules_text(value_rules()))
    if any(block.roles for block in written.blocks):
        leads = any(set(layout.targets(*key)) & layout.actors for key in layout.apart.leading)
        parts.append(policy.ALLOW.lstrip() + (policy.ALLOW_RELATIONS.lstrip() if leads else ""))
    items: list[ast.Item] = [*([tests.fixture] if tests.fixture else []), *tests.tests]
    parts += [f"{print_item(item)}\n" for item in items]
    return "\n".join(part for part in parts if part)


# ---- loading ------------------------------------------------------------------------------------------------------
# An import put into an environment that has no facts: policy and facts become so together, or neither does.


class HasFacts(AuthzError):
    """Facts of an earlier model may grant what the imported one denies."""


@dataclass(frozen=True, slots=True)
class Import:
    environment: Environment
    policy: str
    filename: str
    facts: Sequence[Fact]
    by: By
    note: str


@dataclass(slots=True)
class _StoredImport:
    loaded: list[loading.Loaded] = field(default_factory=list)


def load(what: Import) -> tuple[Published, loading.Loaded]:
    """Publish the policy and store the facts in one transaction; `HasFacts` if there are any already."""
    stored = _StoredImport()
    within = partial(_with_facts, what, stored)
    published = publish(what.environment.pk, what.policy, what.filename, within=within, by=what.by, note=what.note)
    if not stored.loaded:  # the policy was active already
        with within():
            pass
    return published, stored.loaded[0]


@contextmanager
def _with_facts(what: Import, stored: _StoredImport) -> Iterator[None]:
    """Open a transaction that ends with storing the facts, since the new policy says which of them are of use."""
    number = None
    try:
        with changing():
            mine = Environment.objects.filter(pk=what.environment.pk)
            mine.select_for_update().first()  # nobody else stores meanwhile
            _check_empty(what.environment)
            yield
            number = mine.values_list("policy_version_id", flat=True).get()
            stored.loaded.append(loading.load(what.environment.pk, enumerate(what.facts, 1), by=what.by))
    except BaseException:
        if number is not None:
            forget_program(number)  # its number may be another version's one day
        raise


def _check_empty(environment: Environment) -> None:
    if read.count_up_to(1, signature_numbers(environment.pk).values()):
        raise HasFacts(
            f"environment `{environment.slug}` has facts already, which may grant what the imported policy denies;"
            " nothing is loaded. Load into another one (`--load --environment NAME` makes it), or write files with"
            " --policy and --facts, and use load_policy and load_facts once the facts that are there are looked through"
        )


# ---- What the commands that import from other engines share -------------------------------------------------------

POLICY, FACTS = "policy.polar", "facts.txt"  # in the folder that is written to
_HEADINGS = {
    ModelKind.NEEDED: "cannot be left out",
    ModelKind.LOST: "not carried over",
    ModelKind.SKIPPED: "left out",
    ModelKind.CHANGED: "said otherwise",
}


class ImportCommand(ServiceCommand):
    """Reads by `read`, which each engine has its own of; then carries over, tells, and writes or publishes."""

    engine = ""
    model_help = ""
    model_metavar = "MODEL"
    others_help = ""
    others_metavar = "FILE"

    def add_arguments(self, parser):
        parser.add_argument("model", metavar=self.model_metavar, help=self.model_help)
        parser.add_argument("others", nargs="*", metavar=self.others_metavar, help=self.others_help)
        parser.add_argument(
            "--output", metavar="FOLDER", help=f"write {POLICY} and {FACTS} there (default: print the policy)"
        )
        parser.add_argument("--policy", metavar="FILE", help="write the policy there")
        parser.add_argument(
            "--facts", metavar="FILE", help="write the facts there: as .csv, as .json, or in the notation of tests"
        )
        parser.add_argument(
            "--load", action="store_true", help="publish the policy and store the facts, where there are no facts yet"
        )
        parser.add_argument(
            "--environment", default=DEFAULT_SLUG, help="for --load; made if it is missing (default: %(default)s)"
        )
        parser.add_argument("--note", type=note, default="", metavar="TEXT", help="for --load: kept with the version")
        parser.add_argument(
            "--partial", action="store_true", help="leave out what has no equal here, so that nothing is granted by it"
        )
        parser.add_argument(
            "--clock", action="append", default=[], metavar="PARAMETER",
            help="a condition's parameter that is the service's clock, and not what a request says",
        )  # fmt: skip
        parser.add_argument(
            "--usersets", action="store_true", help="let questions be asked about usersets, such as group:eng#member"
        )

    def read(self, model: str, others: list[str]) -> Imported:
        raise NotImplementedError

    def handle(
        self, *, model: str, others: list[str], partial: bool, clock: list[str], usersets: bool, **options: Any
    ) -> None:
        report = ImportReport()
        try:
            with without_collections(), self.progress("reading"):
                imported = self.read(model, others)
                _check_clock(imported, clock)
                check_parameters(imported)
                found = carried(imported, report, ImportOptions(frozenset(clock), usersets))
                check_facts(compile_text(found.policy), found.facts, None)
            self.tell(found, report)
            if needed := report.of(ModelKind.NEEDED):
                raise CommandError(
                    f"{counted(len(needed), 'thing')} can be neither carried over nor left out, since more would be"
                    " granted without; nothing is written"
                )
            if report.of(ModelKind.LOST) and not partial:
                lost = counted(len(report.of(ModelKind.LOST)), "thing")
                raise CommandError(
                    f"{lost} cannot be carried over, and nothing is written;"
                    " --partial leaves out what depends on it, so that nothing is granted by it"
                )
            self.put(found, inputs_of(imported, [model, *others]), **options)
        except ImportRejected as reason:
            for fault in reason.faults:
                self.stderr.write(str(fault))
            raise CommandError(f"{counted(len(reason.faults), 'problem')}; nothing is carried over") from None
        except PolicyRejected as reason:
            raise CommandError(f"the policy that this became is refused: {reason}") from None
        except (AuthzError, Unavailable) as reason:
            raise CommandError(reason.message) from None

    def tell(self, found: Carried, report: ImportReport) -> None:
        for kind, heading in _HEADINGS.items():
            for remark in sorted(report.of(kind), key=lambda each: each.place):
                self.stderr.write(f"{heading}: {remark}")
        counts = found.counts
        parts = [
            counted(counts.types, "type"), counted(counts.relations, "relation"),
            counted(counts.conditions, "condition"),
            f"{counted(counts.tuples, 'tuple')} as {counted(counts.facts, 'fact')}",
            f"{counted(counts.assertions, 'question')} in {counted(counts.tests, 'test')}",
        ]  # fmt: skip
        self.stderr.write(f"carried over from {self.engine}: {', '.join(parts)}")

    # ---- where it goes -----------------------------------------------------------------------------------------------

    def put(
        self, found: Carried, inputs: set[Path], *, output: str | None, policy: str | None, facts: str | None,
        load: bool, environment: str, note: str, **options: Any,
    ) -> None:  # fmt: skip
        if output is not None:
            policy, facts = policy or str(Path(output) / POLICY), facts or str(Path(output) / FACTS)
        check_outputs([name for name in (policy, facts) if name is not None], inputs)
        if output is not None:
            _make_folder(output)
        files: dict[str, Write] = {}
        if policy is not None:
            files[policy] = lambda file: file.write(found.policy)
        if facts is not None:
            writer = WRITERS[_format(facts)]
            files[facts] = lambda file: writer(file, iter(found.facts))
        write_together(files)
        for name in files:
            self.stdout.write(name)
        if load:
            self.load(found, environment, note)
        if policy is None and facts is None and not load:
            self.stdout.write(found.policy, ending="")

    def load(self, found: Carried, slug: str, note: str) -> None:
        by = by_command(str(self.__module__).rpartition(".")[2])
        bundle = Bundle((Source(found.policy, POLICY),))
        what = Import(environment_made(slug), found.policy, POLICY, found.facts, by, note)
        try:
            published, loaded = load(what)
        except (PolicyRejected, PolicyTestsFailed) as reason:
            raise rejection(reason, bundle, self.stderr) from None
        self.stdout.write(published.message)
        self.stdout.write(f"{loaded.read} facts stored, {loaded.inserted} of them new")


def _check_clock(imported: Imported, clock: list[str]) -> None:
    known = {each.name: each.type for condition in imported.model.conditions for each in condition.parameters}
    for name in clock:
        if known.get(name) != "timestamp":
            raise CommandError(f"--clock {name}: no condition has a parameter of that name that is a timestamp")


def _format(name: str) -> str:
    suffix = PurePath(name).suffix.lower().removeprefix(".")
    return suffix if suffix in WRITERS else "notation"


def _make_folder(name: str) -> None:
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise CommandError(f"cannot make the folder `{name}`: {reason.strerror}") from None
