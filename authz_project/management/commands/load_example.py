"""Load an example, or list the examples."""

import shlex
import sys
from pathlib import Path
from textwrap import fill
from typing import Any

from authz_project.command_line import program_name
from authz_project.environments import environment_made
from authz_project.examples import Example, ExampleQuestion, example_named, examples, load
from policy.core.journal import by_command
from policy.files import make_folder, write_new
from policy.management.command import ServiceCommand
from policy.models import DEFAULT_SLUG

WIDTH = 100


class Command(ServiceCommand):
    help = "Load an example policy with tests and facts into an empty environment, or list the examples."

    def add_arguments(self, parser):
        name = parser.add_argument("name", nargs="?", metavar="NAME", help="Example to load (default: list all).")
        environment = parser.add_argument(
            "--environment", default=DEFAULT_SLUG, help="Environment; created if missing (default: %(default)s)."
        )
        write = parser.add_argument("--write", metavar="FOLDER", help="Write the example to FOLDER; do not load it.")
        self.only_with(environment, name)
        self.only_with(write, name)
        self.never_with(environment, write)

    def handle(self, *, name: str | None, environment: str, write: str | None, **options: Any) -> None:
        if name is None:
            self.list()
        elif write is not None:
            self.write(example_named(name), write)
        else:
            self.load(example_named(name), environment)

    def list(self) -> None:
        width = max(len(example.name) for example in examples())
        for example in examples():
            self.stdout.write(f"{example.name:<{width}}  {example.title}: {', '.join(example.patterns)}")

    def write(self, example: Example, folder: str) -> None:
        make_folder(folder)
        policy, facts = (str(Path(folder) / name) for name in (example.filename, f"{example.name}.csv"))
        write_new({policy: lambda file: file.write(example.policy), facts: lambda file: file.write(example.facts)})
        self.stdout.write(f"{policy}\n{facts}")

    def load(self, example: Example, slug: str) -> None:
        environment = environment_made(slug)
        loaded = load(environment.pk, example, by_command("load_example"))
        if loaded.is_unchanged:
            self.stdout.write(f"environment `{slug}` already contains this example; nothing was changed")
            return
        self.stdout.write(f"{example.title}: policy version {loaded.policy_version} and {loaded.facts:,} facts")
        for paragraph in example.about.split("\n\n"):
            self.stdout.write(f"\n{fill(paragraph, WIDTH)}")
        self.stdout.write("\nTry:")
        for question in example.questions:
            self.stdout.write(f"\n  {_asked(question, slug)}\n      {question.answer_text}: {question.why}")


def _asked(question: ExampleQuestion, slug: str) -> str:
    """Return the command that runs the check here."""
    options = [] if slug == DEFAULT_SLUG else ["--environment", slug]
    kind, *words = question.parameters.values()
    if kind == "who":
        actor_type, *words = words
        options += ["--actor-type", actor_type]
    return shlex.join([*program_name(sys.argv[0]).split(), "ask", kind, *options, *words])
