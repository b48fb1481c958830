"""Convert another authorization engine's model to a policy with tests, and to facts."""

from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from django.core.management.base import CommandError
from django.utils.module_loading import import_string

from authz_project.environments import environment_made
from authz_project.importers.convert import Carried, carried, load
from authz_project.importers.ir import Imported, ImportRejected, ImportReport, ModelKind, check_parameters, relations_of
from checks.asking.run import in_memory
from facts.accept import check_facts
from facts.wire import WRITERS, format_of
from policy.core.journal import by_command
from policy.files import Bundle, Unwritable, make_folder, shown_name, write_new
from policy.language.source import PolicyRejected, Source, without_collections
from policy.management.command import ServiceCommand, counted, note, rejection
from policy.models import DEFAULT_SLUG
from policy.publishing import PolicyTestsFailed
from policy.rules import compile_text


class Engine(NamedTuple):
    name: str
    reader: str  # imported when this engine is used
    model: str
    model_help: str
    others: str
    others_help: str


ENGINES = {
    "openfga": Engine(
        "OpenFGA", "authz_project.importers.openfga.read_files",
        "MODEL", "Model in the modelling language, as JSON, as a module list (fga.mod), or a store file.",
        "TUPLES", "Files with tuples (.json, .jsonl, .yaml, .csv), or store files with tuples and tests.",
    ),
    "spicedb": Engine(
        "SpiceDB", "authz_project.importers.spicedb.imported",
        "SCHEMA", "Schema (.zed), or a validation file (.yaml) that contains one.",
        "RELATIONSHIPS", "Files with one relationship per line, or validation files with relationships and assertions.",
    ),
}  # fmt: skip
POLICY, FACTS = "policy.polar", "facts.txt"  # in the output folder


class Command(ServiceCommand):
    help = (
        "Convert an OpenFGA model or a SpiceDB schema into a policy with tests, and its tuples into facts. Prints the"
        " policy unless an option names a destination. Nothing is written if something has no equivalent, unless"
        " --partial is given."
    )

    def add_arguments(self, parser):
        about = {name: f"Import from {engine.name}." for name, engine in ENGINES.items()}
        for name, added in self.subcommands(parser, "engine", about).items():
            self.add_options(added, ENGINES[name])

    def add_options(self, parser: ArgumentParser, engine: Engine) -> None:
        parser.add_argument("model", metavar=engine.model, help=engine.model_help)
        parser.add_argument("others", nargs="*", metavar=engine.others, help=engine.others_help)
        parser.add_argument(
            "--output", metavar="FOLDER", help=f"Write {POLICY} and {FACTS} to FOLDER (default: print the policy)."
        )
        parser.add_argument("--policy", metavar="FILE", help="Write the policy to FILE.")
        parser.add_argument(
            "--facts", metavar="FILE", help="Write the facts to FILE, for load_facts: .csv, .txt, or otherwise JSON."
        )
        load = parser.add_argument(
            "--load", action="store_true",
            help="Publish the policy and store the facts. Requires an environment without facts.",
        )  # fmt: skip
        environment = parser.add_argument(
            "--environment", default=DEFAULT_SLUG,
            help="Environment for --load; created if it does not exist (default: %(default)s).",
        )  # fmt: skip
        for_version = parser.add_argument(
            "--note", type=note, default="", metavar="TEXT", help="Note to keep with the policy version, for --load."
        )
        self.only_with(environment, load)
        self.only_with(for_version, load)
        parser.add_argument(
            "--partial", action="store_true",
            help="Leave out everything that has no equivalent. The result never grants more than the original.",
        )  # fmt: skip
        parser.add_argument(
            "--clock", action="append", default=[], metavar="PARAMETER",
            help="Condition parameter to fill from the server's clock instead of the request. Repeatable.",
        )  # fmt: skip
        parser.add_argument(
            "--usersets", action="store_true", help="Allow checks for usersets such as group:eng#member (default: no)."
        )

    def handle(
        self, *, engine: str, model: str, others: list[str], partial: bool, clock: list[str], usersets: bool,
        **options: Any,
    ) -> None:  # fmt: skip
        report = ImportReport()
        try:
            with without_collections(), in_memory(), self.progress("reading"):
                imported = import_string(ENGINES[engine].reader)(model, others)
                _check_clock(imported, clock)
                check_parameters(imported)
                found = carried(imported, report, frozenset(clock), usersets)
                check_facts(compile_text(found.policy), found.facts, None)
            self.tell(ENGINES[engine].name, imported, found, report)
            if needed := report.of(ModelKind.NEEDED):
                raise CommandError(
                    f"{counted(len(needed), 'element')} cannot be converted, or left out without granting more access."
                    " Nothing was written."
                )
            if (lost := report.of(ModelKind.LOST)) and not partial:
                raise CommandError(
                    f"{counted(len(lost), 'element')} cannot be converted. Nothing was written."
                    " Pass --partial to leave out everything that depends on them; this never grants more access."
                )
            self.put(found, **options)
        except ImportRejected as reason:
            for fault in reason.faults:
                self.stderr.write(str(fault))
            raise CommandError(f"{counted(len(reason.faults), 'problem')} found. Nothing was imported.") from None
        except PolicyRejected as reason:
            raise CommandError(f"The converted policy is not valid: {reason}") from None
        except RecursionError:  # such as a sum of hundreds of values
            raise CommandError("The model is nested too deeply; split what is long. Nothing was imported.") from None

    def tell(self, engine: str, imported: Imported, found: Carried, report: ImportReport) -> None:
        for kind in ModelKind:
            for remark in sorted(report.of(kind), key=lambda each: each.place):
                self.stderr.write(f"{kind.value}: {remark}")
        model = imported.model
        parts = [
            counted(len(model.types), "type"), counted(len([*relations_of(model)]), "relation"),
            counted(len(model.conditions), "condition"),
            f"{counted(len(imported.tuples), 'tuple')} as {counted(len(found.facts), 'fact')}",
            f"{counted(found.tests.assertions, 'assertion')} in {counted(len(found.tests.tests), 'test')}",
        ]  # fmt: skip
        self.stderr.write(f"converted from {engine}: {', '.join(parts)}")

    # ---- output ------------------------------------------------------------------------------------------------------

    def put(
        self, found: Carried, *, output: str | None, policy: str | None, facts: str | None, load: bool,
        environment: str, note: str, **options: Any,
    ) -> None:  # fmt: skip
        if output is not None:
            policy, facts = policy or str(Path(output) / POLICY), facts or str(Path(output) / FACTS)
        if policy is not None and facts is not None and Path(policy).resolve() == Path(facts).resolve():
            raise Unwritable(f"`{shown_name(facts)}` cannot be both the policy and the facts file; use two files")
        if output is not None:
            make_folder(output)
        files: dict[str, Callable[[TextIO], object]] = {}
        if policy is not None:
            files[policy] = lambda file: file.write(found.policy)
        if facts is not None:
            writer = WRITERS[format_of(facts)]
            files[facts] = lambda file: writer(file, iter(found.facts))
        write_new(files)
        for name in files:
            self.stdout.write(name)
        if load:
            self.load(found, environment, note)
        if policy is None and facts is None and not load:
            self.stdout.write(found.policy, ending="")

    def load(self, found: Carried, slug: str, note: str) -> None:
        by = by_command("import_model")
        bundle = Bundle((Source(found.policy, POLICY),))
        environment = environment_made(slug)
        try:
            published, loaded = load(environment, found.policy, POLICY, found.facts, by, note)
        except (PolicyRejected, PolicyTestsFailed) as reason:
            raise rejection(reason, bundle, self.stderr) from None
        self.stdout.write(published.message)
        self.stdout.write(f"{counted(loaded.read, 'fact')} stored, {loaded.inserted:,} of them new")


def _check_clock(imported: Imported, clock: list[str]) -> None:
    """Refuse a parameter that is not a timestamp in every condition that has it: others compare the request's value."""
    for name in clock:
        parameters = (each for condition in imported.model.conditions for each in condition.parameters)
        types = {each.type for each in parameters if each.name == name}
        if "timestamp" not in types:
            raise CommandError(f"--clock {name}: no condition has a timestamp parameter of this name.")
        if len(types) > 1:
            raise CommandError(f"--clock {name}: another condition has a parameter of this name that is no timestamp.")
