"""Validate data bindings, and report what the policy doesn't use."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management.base import CommandError

from localsql.asking import pattern_of, stored_besides
from localsql.bindings import Bindings, bindings_from_text, unused_entries
from localsql.errors import BindingRejected
from policy.active import active_program
from policy.files import shown_name
from policy.management.command import PolicyCommand, text_of_file
from policy.models import Environment
from policy.rules.program import Program


class Command(PolicyCommand):
    help = "Check data bindings against the active policy."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("file", metavar="FILE", help="YAML file; - for standard input.")
        parser.add_argument("--strict", action="store_true", help="Fail on entries that the policy doesn't use.")

    def act(self, environment: Environment, *, file: str, strict: bool, **options: Any) -> None:
        with naming(file):
            bindings = bindings_from_text(text_of_file(file))
        program = active_program(environment.pk)
        unused = [] if program is None else list(unused_entries(program, bindings))
        besides = _stored_besides(environment, bindings)
        for advice in (*unused, *besides, *_missing(bindings), *_unknown(bindings, program)):
            self.stderr.write(f"advice: {advice}")
        not_used = f"{len(unused)} {'entry is' if len(unused) == 1 else 'entries are'} not used in policy"
        if unused and strict:
            raise CommandError(not_used)
        facts = len(bindings.facts)
        counted = f"{facts} {'binding' if facts == 1 else 'bindings'}"
        self.stdout.write(f"no problems: {counted}; {not_used}" if unused else f"no problems: {counted}")


@contextmanager
def naming(file: str | None) -> Iterator[None]:
    """Name the file in errors, where responses name the member of the request."""
    try:
        yield
    except BindingRejected as error:
        raise CommandError(f"{shown_name(file or '')}: {error.message.removeprefix('data_bindings: ')}") from None


def _stored_besides(environment: Environment, bindings: Bindings) -> list[str]:
    return [
        f"`{signature}` is bound, and {stored} such {'fact is' if str(stored) == '1' else 'facts are'} also stored, "
        "perhaps by `sync_facts`: local SQL uses both. If the rows suffice, delete the stored facts: "
        f"`authz delete_facts '{pattern_of(signature)}'`"
        for signature, stored in stored_besides(environment.pk, bindings).items()
    ]


def _missing(bindings: Bindings) -> list[str]:
    named = {n for each in bindings.facts for n, f in zip(each.signature.types, each.families) if f is not None}
    missing = sorted(named - set(bindings.sql_types) - {"String", "Integer", "Boolean"})
    return [
        f"`sql_types` has no entry for {name}: its ids are compared as text, which may prevent use of an index"
        for name in missing
    ]


def _unknown(bindings: Bindings, program: Program | None) -> list[str]:
    if program is None:
        return []
    unknown = (name for name in bindings.sql_types if not program.knows(name))
    return [f"`sql_types` has an entry for {name}, which the policy doesn't define" for name in unknown]
