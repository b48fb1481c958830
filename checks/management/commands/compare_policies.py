"""Compare what two policies can allow, over all facts."""

from typing import Any

from checks.analysis.questions import POLICY, AnalysisCommand, compared_policies
from policy.management.command import policy_named


class Command(AnalysisCommand):
    help = (
        "Search for facts with which the new policy allows more than the old one, or less. Exits with 0 if it allows "
        "no more, with 1 if it does, and with 2 if that is not known. "
        'Needs `pip install "authz-project[analysis]"`.'
    )

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("old", metavar="OLD", help=f"The policy to compare with: {POLICY}.")
        parser.add_argument("new", metavar="NEW", help="The other policy, likewise.")

    def act(self, environment: str, *, old: str, new: str, seconds: float, **options: Any) -> None:
        policies = policy_named(environment, old), policy_named(environment, new)
        with self.progress("comparing policies"):
            lines, self.status = compared_policies(*policies, seconds, ())
        self.stdout.write("\n".join(lines))
