"""Print the smallest changes of facts with which the policy would allow something."""

from typing import Any

from checks.analysis.questions import MORE, MOST_WAYS, SAME, UNDECIDED, AnalysisCommand, analysis, stored_around, ways
from checks.asking.snapshot import trial
from facts.wire import Fact
from policy.management.command import at_least_one, environment_named


class Command(AnalysisCommand):
    help = (
        "Print the smallest sets of facts to insert and to delete that make a goal true. Exits with 1 if there are "
        'none. Needs `pip install "authz-project[analysis]"`.'
    )

    def add_arguments(self, parser):
        super().add_arguments(parser)
        self.add_goal(parser, 'allow(User{"ann"}, "read", Document{"plan"})')
        parser.add_argument(
            "--with-stored", action="store_true",
            help="Start from the stored facts that are connected with the goal's values (default: no facts).",
        )  # fmt: skip
        parser.add_argument(
            "--show", type=at_least_one, default=MOST_WAYS, metavar="N", help="Ways to print (default: %(default)s)."
        )

    def act(
        self, environment: str, *, goal: str, policy: str, with_stored: bool, seconds: float, show: int, **options: Any
    ) -> None:  # fmt: skip
        claim = self.claim(environment, policy, goal)
        stored, limits = list[Fact](), list[str]()
        if with_stored:
            with trial(environment_named(environment).pk, claim.holds.program, ()) as session:
                stored, limits = stored_around(session, claim.holds)
        with self.progress("searching"), analysis(seconds) as solver:
            found = ways(claim, stored, solver, show)
        self.stdout.write("\n".join([*map(str, found.ways), *found.notes]))
        for limit in limits:
            self.stderr.write(f"warning: {limit}")
        self.status = SAME if found.ways or found.holds else MORE if claim.is_enough else UNDECIDED
