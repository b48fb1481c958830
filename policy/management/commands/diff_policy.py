"""What differs between two policies."""

import sys
from typing import Any

from django.core.management.base import CommandError

from policy.files import bundle_of_files
from policy.management.command import MOST, PolicyCommand
from policy.models import Environment
from policy.pages.differing_lines import unified
from policy.publishing import active_version, version_numbered
from policy.values import whole_number

ACTIVE = "active"
_SHOWN = 40  # digits of a number that is too large
WHICH = "a version's number, `active`, or a file (- is the standard input)"


class Command(PolicyCommand):
    help = "Show what differs from policy A to policy B; with one of them, from the active policy to that one."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("policies", nargs="+", metavar="POLICY", help=f"one or two of: {WHICH}")

    def act(self, environment: Environment, *, policies: list[str], **options: Any) -> None:
        if len(policies) > 2:
            raise CommandError(f"{len(policies)} policies are named; name one or two")
        old, new = policies if len(policies) == 2 else [ACTIVE, *policies]
        lines = list(unified(text_of(environment, old), text_of(environment, new), old, new))
        if lines:
            self.stdout.write("\n".join(lines))


def text_of(environment: Environment, policy: str) -> str:
    if policy == ACTIVE:
        active = active_version(environment.pk)
        return active.source if active else ""
    if policy.isascii() and policy.isdecimal():
        number = whole_number(policy, MOST)
        if number is None:
            raise CommandError(f"there is no policy version {policy[:_SHOWN]}; versions have numbers up to {MOST}")
        return version_numbered(environment.pk, number).source
    return bundle_of_files([policy], sys.stdin).text
