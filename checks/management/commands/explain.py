"""Why a question is answered as it is, as a tree."""

from typing import Any

from django.core.management.base import CommandParser

from checks.asking.askers import Trusted
from checks.asking.question import allow
from checks.explain.explain import explain, explanation_to_text
from checks.management.commands.ask import asked_action, asked_value
from facts.notation import fact_from_text
from policy.management.command import PolicyCommand, add_as_of, moment_asked, number
from policy.models import Environment, PolicyVersion


class Command(PolicyCommand):
    help = "Show why an actor may do an action on a resource, or what stands in the way. Values are like `User:alice`."

    def add_arguments(self, parser: CommandParser) -> None:
        kinds = parser.add_subparsers(dest="kind", required=True, metavar="authorize")
        asked = kinds.add_parser("authorize")
        super().add_arguments(asked)
        for name in ("actor", "action", "resource"):
            asked.add_argument(name, metavar=name.upper())
        add_as_of(asked)
        asked.add_argument("--policy-version", type=number, metavar="NUMBER", help="ask by this one, not the active")
        asked.add_argument("--context", action="append", default=[], metavar="FACT", help="a fact for this one")

    def act(
        self,
        environment: Environment,
        *,
        actor: str,
        action: str,
        resource: str,
        context: list[str],
        as_of: str | None,
        policy_version: int | None,
        **options: Any,
    ) -> None:
        facts = tuple(fact_from_text(text) for text in context)
        question = allow(asked_value(actor), asked_action(action), asked_value(resource), (), facts)
        moment = moment_asked(environment, as_of, policy_version=policy_version)
        explanation = explain(Trusted(environment.pk), question, moment)
        versions = PolicyVersion.objects.filter(environment=environment)
        version = None if explanation.version is None else versions.filter(number=explanation.version).first()
        is_coloured = self.stdout.isatty() and not options["no_color"]
        for line in explanation_to_text(explanation, (version and version.filename) or "", is_coloured):
            self.stdout.write(line)
