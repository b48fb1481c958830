"""Print the smallest changes of facts with which the policy would allow something."""

from typing import Any

from checks.analysis import questions
from checks.analysis.questions import MORE, POLICY, SAME, UNDECIDED, AnalysisCommand
from checks.asking.snapshot import trial
from policy.management.command import ACTIVE, at_least_one, environment_named, policy_named
from policy.rules.program import Atom


class Command(AnalysisCommand):
    help = (
        "Print the smallest sets of facts to insert and to delete that make a goal true. Exits with 1 if there are "
        'none. Needs `pip install "authz-project[analysis]"`.'
    )

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("goal", metavar="GOAL", help='For example `allow(User{"ann"}, "read", Document{"plan"})`.')
        parser.add_argument("--policy", default=ACTIVE, help=f"The policy: {POLICY} (default: active).")
        parser.add_argument(
            "--with-stored", action="store_true",
            help="Start from the stored facts that are connected with the goal's values (default: no facts).",
        )  # fmt: skip
        parser.add_argument(
            "--show", type=at_least_one, default=questions.MOST_WAYS, metavar="N",
            help="Ways to print (default: %(default)s).",
        )  # fmt: skip

    def act(
        self, environment: str, *, goal: str, policy: str, with_stored: bool, seconds: float, show: int, **options: Any
    ) -> None:  # fmt: skip
        _, program = policy_named(environment, policy)
        questions.check_words(program, goal)
        claim = questions.stated(program, goal)
        stored, limits = list[Atom](), list[str]()
        if with_stored:
            with trial(environment_named(environment).pk, program, ()) as session:
                stored, limits = questions.stored_around(session, claim)
        with self.progress("searching"), questions.analysis(seconds) as solver:
            found = questions.ways(claim, stored, solver, show)
        self.stdout.write("\n".join([*map(str, found.ways), *found.notes]))
        for limit in limits:
            self.stderr.write(f"warning: {limit}")
        self.status = SAME if found.ways or found.holds else MORE if claim.is_enough else UNDECIDED
