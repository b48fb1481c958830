"""What the commands that import from other engines share."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Any

from django.core.management.base import CommandError

from authz_project.environments import environment_made
from authz_project.importers import loading
from authz_project.importers.carry import Carried, Options, carried
from authz_project.importers.model import Imported
from authz_project.importers.output_files import Write, check_outputs, inputs_of, write_together
from authz_project.importers.report import ImportRejected, Kind, Report
from authz_project.importers.unknown_parameters import check_parameters
from facts.accept import check_facts
from facts.formats import WRITERS
from policy.errors import AuthzError, PolicyTestsFailed, Unavailable
from policy.files import Bundle
from policy.language.collector import without_collections
from policy.language.rejection import PolicyRejected
from policy.language.source import Source
from policy.management.command import ServiceCommand, counted, note, rejection
from policy.models import DEFAULT_SLUG
from policy.revisions import by_command
from policy.rules import compile_text

POLICY, FACTS = "policy.polar", "facts.txt"  # in the folder that is written to
_HEADINGS = {
    Kind.NEEDED: "cannot be left out",
    Kind.LOST: "not carried over",
    Kind.SKIPPED: "left out",
    Kind.CHANGED: "said otherwise",
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
        report = Report()
        try:
            with without_collections(), self.progress("reading"):
                imported = self.read(model, others)
                _check_clock(imported, clock)
                check_parameters(imported)
                found = carried(imported, report, Options(frozenset(clock), usersets))
                check_facts(compile_text(found.policy), found.facts, None)
            self.tell(found, report)
            if needed := report.of(Kind.NEEDED):
                raise CommandError(
                    f"{counted(len(needed), 'thing')} can be neither carried over nor left out, since more would be"
                    " granted without; nothing is written"
                )
            if report.of(Kind.LOST) and not partial:
                lost = counted(len(report.of(Kind.LOST)), "thing")
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

    def tell(self, found: Carried, report: Report) -> None:
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
        what = loading.Import(environment_made(slug), found.policy, POLICY, found.facts, by, note)
        try:
            published, loaded = loading.load(what)
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

