"""What commands share: what is checked before, which environment they are about, and how they end."""

import math
import sys
from argparse import ArgumentTypeError, _ActionsContainer
from typing import Any

from django.core.management.base import BaseCommand, CommandError, OutputWrapper, SystemCheckError

from policy.errors import AuthzError, NotFound, PolicyTestsFailed, Unavailable
from policy.ground.files import Bundle
from policy.language.source import PolicyRejected
from policy.management.progress import Progress
from policy.models import DEFAULT_SLUG, Environment, default_environment
from policy.moments import Moment, as_of_from_text, moment_of
from policy.publishing import note_fault
from policy.rules.program import Program
from policy.testing import TestReport
from policy.values import whole_number

FILES = "policy files, which make one policy together; - is the standard input"


class ServiceCommand(BaseCommand):
    """A command of the service. It runs only the checks tagged `policy`: Django's own checks import every page."""

    requires_system_checks = ["policy"]

    def progress(self, what: str) -> Progress:
        """Return a context manager that shows how far a long task is."""
        return Progress(what, self.stderr)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except CommandError as reason:
            is_typed = getattr(self, "_called_from_command_line", False)  # and not called by a program
            if not is_typed or options["traceback"] or isinstance(reason, SystemCheckError):
                raise
            self.stderr.write(f"error: {reason}")
            sys.exit(reason.returncode)


class PolicyCommand(ServiceCommand):
    """Calls `act` with an environment. The user's mistakes end it with their message and exit code 1."""

    def add_arguments(self, parser):
        parser.add_argument("--environment", default=DEFAULT_SLUG, help="its short name (default: %(default)s)")

    def handle(self, *, environment: str, **options: Any) -> None:
        try:
            self.act(environment_named(environment), **options)
        except (AuthzError, Unavailable) as reason:
            raise CommandError(reason.message) from None

    def act(self, environment: Environment, *args: Any, **options: Any) -> None:
        raise NotImplementedError


def environment_named(slug: str) -> Environment:
    if slug == DEFAULT_SLUG:
        return default_environment()
    found = Environment.objects.filter(slug=slug).first()
    if found is None:
        raise NotFound(f"there is no environment `{slug}`; create_api_key --create-environment makes one")
    return found


# ---- moments on the command line ---------------------------------------------------------------------------


def add_as_of(parser: "_ActionsContainer") -> None:
    parser.add_argument("--as-of", metavar="WHEN", help="a revision's number, or a time such as 2026-11-03T14:02:11Z")


def moment_asked(
    environment: Environment, as_of: str | None, needs_policy: bool = True, policy_version: int | None = None
) -> Moment | None:
    """Return the moment of `--as-of`, with the policy of then or the given version; None for now and the active one."""
    when = None if as_of is None else as_of_from_text(as_of, "--as-of")
    return moment_of(environment.pk, when, policy_version, needs_policy, "--as-of")


# ---- notes and numbers on the command line ---------------------------------------------------------------------------

MOST = 2**31 - 1  # what databases number versions with


def note(text: str) -> str:
    """Return the text if it can be the note of a version, which is one line; an argparse type."""
    if fault := note_fault(text):
        raise ArgumentTypeError(f"a note {fault}")
    return text


def number(text: str) -> int:
    """Return a whole number from 0 to `MOST`; an argparse type."""
    found = whole_number(text, MOST)
    if found is None:
        raise ArgumentTypeError(f"`{text}` is not a whole number from 0 to {MOST}")
    return found


def above_zero(text: str, most: float = 1e9) -> float:
    """Return a number above 0 and at most `most`; an argparse type."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (0 < found <= most):
        raise ArgumentTypeError(f"`{text}` is not a number above 0, and at most {most:,.0f}")
    return found


# ---- what is wrong with files --------------------------------------------------------------------------------


def rejection(reason: PolicyRejected | PolicyTestsFailed, bundle: Bundle, errors: OutputWrapper) -> CommandError:
    """Write every problem with its place in its own file, and return the error to raise."""
    match reason:
        case PolicyRejected():
            lines = [bundle.describe(problem) for problem in reason.problems]
            kind = "problem"
        case PolicyTestsFailed():
            lines = failures(reason.report, bundle)
            kind = "failed assertion"
    for line in lines:
        errors.write(line)
    return CommandError(f"{counted(len(lines), kind)}; the policy is not accepted")


def counted(count: int, kind: str) -> str:
    return f"{count} {kind}{'' if count == 1 else 's'}"


def warnings(program: Program, bundle: Bundle) -> list[str]:
    return [f"warning: {bundle.describe(warning)}" for warning in program.warnings]


def failures(report: TestReport, bundle: Bundle) -> list[str]:
    return [
        f"{bundle.place_of_line(one.line)}: test `{test.name}`: {one.message}\n  {one.text}"
        for test in report.tests
        for one in test.assertions
        if not one.passed
    ]
