"""Prove what a policy never allows, or print facts with which it does."""

from typing import Any

from checks.analysis.questions import AnalysisCommand, analysis, proof_lines, status_of
from checks.analysis.search import searched


class Command(AnalysisCommand):
    help = (
        "Search for facts with which the policy allows something. Exits with 0 if there are none, with 1 if there are, "
        'and with 2 if that is not known. Needs `pip install "authz-project[analysis]"`.'
    )

    def add_arguments(self, parser):
        super().add_arguments(parser)
        self.add_goal(parser, 'allow(u: User, "read", d: Document)')
        parser.add_argument(
            "--unless", default="", metavar="CONDITION",
            help='Condition in Polar under which it is allowed, e.g. `has_role(u, "reader", d)`. Other variables match'
            " any value.",
        )  # fmt: skip

    def act(self, environment: str, *, goal: str, unless: str, policy: str, seconds: float, **options: Any) -> None:
        claim = self.claim(environment, policy, goal, unless and f"not ({unless})")
        with self.progress("searching"), analysis(seconds) as solver:
            searched([claim], solver)
        self.stdout.write("\n".join(proof_lines(claim, goal)))
        self.status = status_of([claim])
