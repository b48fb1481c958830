"""What is wrong with a file of data bindings, and what an environment's policy has no use for in it."""

import sys

from localsql.asking import check_bindings
from localsql.bindings import Bindings, bindings_from_text
from policy.active import active_program
from policy.files import decoded, text_of_file
from policy.management.command import PolicyCommand
from policy.models import Environment
from policy.rules.program import Program


class Command(PolicyCommand):
    help = "Check a file of data bindings against the active policy."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("file", metavar="FILE", help="a YAML document; - is the standard input")

    def act(self, environment: Environment, *, file: str, **options) -> None:
        bindings = bindings_of_file(file)
        program = active_program(environment.pk)
        if program is not None:
            check_bindings(program, bindings)
        for advice in (*_missing(bindings), *_unknown(bindings, program)):
            self.stderr.write(f"advice: {advice}")
        facts = len(bindings.facts)
        self.stdout.write(f"no problems: {facts} {'binding' if facts == 1 else 'bindings'}")


def bindings_of_file(name: str) -> Bindings:
    return bindings_from_text(text_named(name))


def text_named(name: str) -> str:
    """Of a file, or of the standard input."""
    return decoded(sys.stdin.buffer.read(), "<stdin>") if name == "-" else text_of_file(name)


def _missing(bindings: Bindings) -> list[str]:
    named = {n for each in bindings.facts for n, f in zip(each.signature.types, each.families) if f is not None}
    missing = sorted(named - set(bindings.sql_types) - {"String", "Integer", "Boolean"})
    return [
        f"`sql_types` say nothing of {name}: its ids are compared as text, which may cost an index" for name in missing
    ]


def _unknown(bindings: Bindings, program: Program | None) -> list[str]:
    if program is None:
        return []
    unknown = (name for name in bindings.sql_types if not program.knows(name))
    return [f"`sql_types` name {name}, which is no type of the policy's" for name in unknown]
