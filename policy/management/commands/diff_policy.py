"""What differs between two policies."""

import sys
from typing import Any

from django.core.management.base import CommandError

from policy.errors import AuthzError
from policy.files import bundle_of_files
from policy.management.command import MOST, PolicyCommand
from policy.models import Environment
from policy.pages.highlight import unified
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

    def handle(self, *, policies: list[str], **options: Any) -> None:  # type: ignore[override]
        if len(policies) == 2 and all(map(is_file, policies)):  # which needs no database
            try:
                self._show(policies, [text_of_file(policy) for policy in policies])
            except AuthzError as reason:
                raise CommandError(reason.message) from None
        else:
            super().handle(policies=policies, **options)

    def act(self, environment: Environment, *, policies: list[str], **options: Any) -> None:
        if len(policies) > 2:
            raise CommandError(f"{len(policies)} policies are named; name one or two")
        names = policies if len(policies) == 2 else [ACTIVE, *policies]
        self._show(names, [text_of(environment, policy) for policy in names])

    def _show(self, names: list[str], texts: list[str]) -> None:
        if lines := list(unified(*texts, *names)):
            self.stdout.write("\n".join(lines))


def is_file(policy: str) -> bool:
    return policy != ACTIVE and not (policy.isascii() and policy.isdecimal())


def text_of_file(path: str) -> str:
    return bundle_of_files([path], sys.stdin).text


def text_of(environment: Environment, policy: str) -> str:
    if policy == ACTIVE:
        active = active_version(environment.pk)
        return active.source if active else ""
    if not is_file(policy):
        number = whole_number(policy, MOST)
        if number is None:
            raise CommandError(f"there is no policy version {policy[:_SHOWN]}; versions have numbers up to {MOST}")
        return version_numbered(environment.pk, number).source
    return text_of_file(policy)
