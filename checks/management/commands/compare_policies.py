"""Compare what two policies can allow, over all facts."""

from typing import Any

from checks.analysis.questions import compared
from checks.analysis.report import POLICY, AnalysisCommand, comparison_lines, policy_named, status_of
from checks.analysis.search import Solver
from checks.asking.run import in_memory


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

    def analyse(self, *, environment: str, old: str, new: str, seconds: float, **options: Any) -> int:
        policies = [policy_named(environment, name) for name in (old, new)]
        with in_memory(), self.progress("comparing policies"), Solver(seconds) as solver:
            found = compared(policies[0][1], policies[1][1], solver)
        self.say(comparison_lines(found, *policies))
        return status_of(found)
