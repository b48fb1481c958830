"""List the stored facts that the policy has no use for."""

import sys
from typing import Any

from facts.accept import sentences, stored_names, unused_signatures
from policy import rules
from policy.active import active_program
from policy.errors import NotFound
from policy.files import bundle_of_files
from policy.language.source import PolicyRejected
from policy.management.command import PolicyCommand, rejection
from policy.models import Environment
from policy.rules.program import Program


class Command(PolicyCommand):
    help = (
        "List the kinds of stored facts that the policy does not accept, and how many there are of each;"
        " and roles and relations that it does not know."
    )

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("--policy", nargs="+", metavar="FILE", help="another policy than the active one")
        parser.add_argument("--strict", action="store_true", help="exit with code 1 if there are any")

    def act(self, environment: Environment, *, policy: list[str] | None, strict: bool, **options: Any) -> None:
        program = self.compiled(policy) if policy else active_program(environment.pk)
        if program is None:
            raise NotFound("no policy is loaded, so every fact may become useful")
        with self.progress("counting facts without use"):
            found = unused_signatures(environment.pk, program)
        for unused in found:
            self.stdout.write(f"{unused.facts!s:>15}  {unused.signature}")
        for sentence in sentences(stored_names(environment.pk, program)):
            self.stdout.write(f"warning: {sentence}")
        if not found:
            self.stdout.write("the policy accepts every stored fact")
        elif strict:
            sys.exit(1)

    def compiled(self, names: list[str]) -> Program:
        bundle = bundle_of_files(names, sys.stdin)
        try:
            return rules.compile_text(bundle.text, bundle.filename)
        except PolicyRejected as reason:
            raise rejection(reason, bundle, self.stderr) from None
