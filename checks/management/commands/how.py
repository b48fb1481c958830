"""Print the smallest changes of facts with which the policy would allow something."""

from typing import Any

from checks.analysis.questions import MOST_WAYS, check_words, stated, stored_around, ways
from checks.analysis.report import MORE, POLICY, SAME, UNDECIDED, AnalysisCommand, policy_named, way_lines
from checks.analysis.search import Solver
from checks.asking.run import in_memory
from checks.asking.snapshot import trial
from policy.management.command import ACTIVE, environment_named, number
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
            "--with-stored", action="store_true", help="Count stored facts that are connected with the goal's values."
        )
        parser.add_argument(
            "--show", type=number, default=MOST_WAYS, metavar="N", help="Ways to print (default: %(default)s)."
        )

    def analyse(
        self, *, environment: str, goal: str, policy: str, with_stored: bool, seconds: float, show: int, **options: Any
    ) -> int:  # fmt: skip
        _, program = policy_named(environment, policy)
        check_words(program, goal)
        statement = stated(program, goal)
        stored: list[Atom] = []
        is_whole = True
        if with_stored:
            with trial(environment_named(environment).pk, program, ()) as session:
                stored, is_whole = stored_around(session, statement)
        with in_memory(), self.progress("searching"), Solver(seconds) as solver:
            found = ways(statement, stored, solver, show)
        self.say(way_lines(found))
        if not is_whole:
            self.stderr.write(f"warning: only {len(stored):,} stored facts around the goal were considered")
        if found.ways or found.holds:
            return SAME
        return MORE if found.is_complete else UNDECIDED
