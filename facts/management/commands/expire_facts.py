"""Run the sweep of facts whose end has come by hand."""

from typing import Any

from facts.ends import sweep
from policy.management.command import PolicyCommand
from policy.models import Environment


class Command(PolicyCommand):
    help = "Turn facts whose end has come into past facts, as the server does every minute."

    def act(self, environment: Environment, **options: Any) -> None:
        with self.progress("ending facts") as shown:
            swept = sweep(environment.pk, shown.tell)
        self.stdout.write(f"{swept} facts have ended")
