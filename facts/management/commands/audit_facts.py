"""List the stored facts that the policy doesn't use."""

import sys
from typing import Any

from facts.accept import sentences, stored_names, unused_signatures
from policy.active import active_program
from policy.errors import NotFound
from policy.management.command import PolicyCommand, program_of_files
from policy.models import Environment


class Command(PolicyCommand):
    help = (
        "List the patterns of stored facts that the policy doesn't use, with counts, and roles and relations that it"
        " doesn't define."
    )

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument(
            "--policy", nargs="+", metavar="FILE", help="Policy files to audit against (default: the active policy)."
        )
        parser.add_argument("--strict", action="store_true", help="Exit with 1 if there are unused facts.")

    def act(self, environment: Environment, *, policy: list[str] | None, strict: bool, **options: Any) -> None:
        program = program_of_files(policy, self.stderr) if policy else active_program(environment.pk)
        if program is None:
            raise NotFound("No policy is loaded. Publish one with `load_policy`, or pass --policy.")
        with self.progress("counting unused facts"):
            found = unused_signatures(environment.pk, program)
        for unused in found:
            self.stdout.write(f"{unused.facts!s:>15}  {unused.signature}")
        for sentence in sentences(stored_names(environment.pk, program)):
            self.stdout.write(f"warning: {sentence}")
        if not found:
            self.stdout.write("the policy accepts every stored fact")
        elif strict:
            sys.exit(1)
