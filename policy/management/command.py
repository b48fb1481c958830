"""Shared code of commands: their options, progress, watched files, and annotations for GitHub."""

from __future__ import annotations

import math
import os
import shutil
import sys
import threading
from argparse import Action, ArgumentParser, ArgumentTypeError, _ActionsContainer
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep, strftime
from typing import Any, TypeVar

from django.core.management.base import BaseCommand, CommandError, CommandParser, OutputWrapper, SystemCheckError

from policy import publishing
from policy.core import spaces
from policy.core.threads import start_thread
from policy.errors import AuthzError, NotFound, Unavailable
from policy.files import STANDARD_INPUT, STANDARD_INPUT_SHOWN, Bundle, bundle_of_files
from policy.language.source import PolicyRejected, Problem, spelled_out
from policy.models import DEFAULT_SLUG, Environment, default_environment
from policy.moments import Moment, as_of_from_text, moment_of
from policy.rules import compile_text
from policy.rules.program import Program
from policy.values import MAX_VERSION, whole_number

# ---- github -------------------------------------------------------------------------------------------------------
# Problems in files as GitHub workflow commands: lines that make GitHub show them next to the code.
#
# ::error file=main.polar,line=3,col=7,endLine=3,endColumn=12,title=Policy::unknown type `Rep`

_KEPT = "\t\r\n"  # line ends are escaped; GitHub displays them
_IN_TEXT = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_PROPERTY = {**_IN_TEXT, ":": "%3A", ",": "%2C"}
TEXT, PROPERTY = str.maketrans(_IN_TEXT), str.maketrans(_IN_PROPERTY)


def problem_line(problem: Problem, bundle: Bundle) -> str:
    part, span = bundle.located(problem.span)
    line, column = part.position(span.start)
    end_line, end_column = part.position(max(span.start, span.end - 1))
    advice = f" ({problem.hint})" if problem.hint else ""
    columns = {"col": column, "endColumn": end_column} if end_line == line else {}
    lines = {"line": line, "endLine": end_line}
    return annotation(problem.severity, f"{problem.message}{advice}", "Policy", part.filename, **lines, **columns)


def annotation(severity: str, message: str, title: str, file: str = "", **place: int) -> str:
    """Return a workflow command; `severity` is error, warning or notice. Standard input is not named as a file."""
    named: dict[str, object] = {"file": file, **place} if file not in ("", STANDARD_INPUT_SHOWN) else {}
    properties = {**named, "title": title}
    told = ",".join(
        f"{name}={spelled_out(str(value), _KEPT).translate(PROPERTY)}" for name, value in properties.items()
    )
    return f"::{severity} {told}::{spelled_out(message, _KEPT).translate(TEXT)}"


# ---- progress -----------------------------------------------------------------------------------------------------
# The progress of a command, on one line of the terminal, once the command takes longer than `PATIENCE`.
#
# A separate thread draws the line, so that the clock advances even while a single SQL statement takes a minute. The
# working code only calls `tell`, as often as it likes. If the output is not a terminal, nothing is drawn.

T = TypeVar("T")

PATIENCE = 2.0  # seconds before anything is displayed
EVERY = 0.2  # seconds between redraws
BAR = 24  # characters
_ERASED_TO_THE_END = "\033[K"


class Progress:
    """A context manager that displays a progress line, and erases it at the end."""

    def __init__(self, what: str, stream: OutputWrapper, patience: float = PATIENCE, every: float = EVERY):
        self.what = what
        self.stream = stream
        self.patience, self.every = patience, every
        self.count: int | None = None  # of completed items
        self.share: float | None = None  # completed share of the total, if known
        self.note = ""
        self._is_seen = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = ""
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._began = monotonic()

    def __enter__(self) -> Progress:
        self._began = monotonic()
        if self._is_seen:
            start_thread("progress", self._draw_until_over)
        return self

    def __exit__(self, *failure: object) -> None:
        self._is_over.set()
        with self.aside():
            pass

    def tell(self, count: int | None = None, share: float | None = None, note: str = "") -> None:
        """Set what the line displays; omitted values are no longer displayed."""
        self.count, self.share, self.note = count, share, note

    def counted(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, and count them as they pass."""
        for self.count, item in enumerate(items, 1):
            yield item

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Erase the line, and draw none while other output is written."""
        with self._lock:
            if self._drawn:
                self._write(f"\r{_ERASED_TO_THE_END}")
                self._drawn = ""
            yield

    def line(self, seconds: float, width: int) -> str:
        """Return the line as it is after `seconds`, cut to a terminal of `width` columns."""
        parts = [self.what]
        if self.share is not None:
            share = min(max(self.share, 0.0), 1.0)
            done = int(BAR * share)
            parts.append(f"[{'#' * done}{'.' * (BAR - done)}] {share:4.0%}")
        if self.count is not None:
            parts.append(f"{self.count:,}")
        if self.note:
            parts.append(self.note)
        parts.append(_clock(seconds))
        if self.share is not None and 0.02 < self.share < 1:
            parts.append(f"about {_clock(seconds / self.share - seconds)} left")
        return "  ".join(parts)[: max(width - 1, 1)]

    def _draw_until_over(self) -> None:
        wait = self.patience
        while not self._is_over.wait(wait):
            wait = self.every
            line = self.line(monotonic() - self._began, shutil.get_terminal_size().columns)
            with self._lock:
                if line != self._drawn and not self._is_over.is_set():
                    # Overwrite the old line, then erase its rest: erasing it first would flicker.
                    self._write(f"\r{line}{_ERASED_TO_THE_END}")
                    self._drawn = line

    def _write(self, text: str) -> None:
        self.stream.write(text, ending="")
        self.stream.flush()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# ---- watching -----------------------------------------------------------------------------------------------------
# Repeat an action whenever a file has changed, for people who edit it.

INTERVAL = 0.3  # seconds between checks of the files
_State = tuple[int, int, int] | None  # None if there is no file


def add_watch(parser: ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="Repeat whenever a file changes, until Ctrl-C.")


def until_interrupted(files: Sequence[str], act: Callable[[], None], output: OutputWrapper) -> None:
    """Run `act` now and after each change of a file, until Ctrl-C. A `CommandError` is printed, and does not end it."""
    if STANDARD_INPUT in files:
        raise CommandError("Cannot watch standard input. Specify files.")
    try:
        while True:
            before = _states(files)  # before `act`, so that a change during it counts
            try:
                act()
            except CommandError as reason:
                output.write(str(reason))
            output.write(f"-- {strftime('%H:%M:%S')}, watching; Ctrl-C to stop --")
            output.flush()
            while _states(files) == before:
                sleep(INTERVAL)
    except KeyboardInterrupt:
        return


def _states(files: Sequence[str]) -> list[_State]:
    return [_state(Path(file)) for file in files]


def _state(path: Path) -> _State:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


# ---- command ------------------------------------------------------------------------------------------------------
# Base classes of commands: system checks, the environment, and how errors are reported.

PATTERN = "Fact pattern, e.g. `has_role(User:ann, _, Repo:_)`; _ matches anything."
FILES = "Files of the policy; - for standard input."


DENIED, UNKNOWN = 1, 2  # exit statuses of a check; an invalid request is UNKNOWN, too


class ServiceCommand(BaseCommand):
    """A command of the service. It runs no system checks: Django's own import every page."""

    requires_system_checks = ()
    status = 0  # the exit status, unless it fails
    failure_status = 1  # the exit status if it fails; another one where 1 is an answer
    is_coloured = False  # whether the output is a terminal that takes colors

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._only_with: list[tuple[Action, tuple[Action, ...]]] = []
        self._never_with: list[tuple[Action, tuple[Action, ...]]] = []

    def run_from_argv(self, argv: list[str]) -> None:
        super().run_from_argv(argv)
        if self.status:
            sys.exit(self.status)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return Django's parser, but let our options override those of Django with the same name, as `--version`."""
        return super().create_parser(prog_name, subcommand, conflict_handler="resolve", **kwargs)

    def subcommands(self, parser: ArgumentParser, dest: str, about: dict[str, str]) -> dict[str, ArgumentParser]:
        """Add a subcommand for each name, with its description, and return their parsers."""
        added = parser.add_subparsers(dest=dest, required=True, metavar="|".join(about))
        return {name: added.add_parser(name, help=text, description=text) for name, text in about.items()}

    def only_with(self, option: Action, *others: Action) -> None:
        """Refuse an option that has no effect unless one of the others is given."""
        self._only_with.append((option, others))

    def never_with(self, option: Action, *others: Action) -> None:
        """Refuse an option that has no effect if one of the others is given."""
        self._never_with.append((option, others))

    def _check_options(self, options: dict[str, Any]) -> None:
        def is_given(action: Action) -> bool:
            return options.get(action.dest, action.default) not in (action.default, [])

        for option, others in self._only_with:
            if is_given(option) and not any(map(is_given, others)):
                raise CommandError(f"{_named(option)} needs {' or '.join(map(_named, others))}.")
        for option, others in self._never_with:
            for other in filter(is_given, others if is_given(option) else ()):
                raise CommandError(f"{_named(option)} cannot be combined with {_named(other)}.")

    def progress(self, what: str) -> Progress:
        """Return a context manager that displays the progress of a long task."""
        return Progress(what, self.stderr)

    def execute(self, *args: Any, **options: Any) -> str | None:
        space = spaces.current()
        self.is_coloured = options["force_color"] or (self.stdout.isatty() and not options["no_color"])
        try:
            self._check_options(options)
            if self.stdout._out is None:  # before something is done that nobody would be told about
                raise CommandError("Standard output is closed.")
            return super().execute(*args, **options)
        except (CommandError, AuthzError, Unavailable) as reason:
            error = reason if isinstance(reason, CommandError) else CommandError(reason.message)
            if error.returncode == 1:
                error.returncode = self.failure_status
            is_typed = getattr(self, "_called_from_command_line", False)  # and not called by a program
            if not is_typed or options["traceback"] or isinstance(error, SystemCheckError):
                raise error from None
            self.stderr.write(f"error: {error}")
            sys.exit(error.returncode)
        finally:
            spaces.enter(space)


def _named(action: Action) -> str:
    return action.option_strings[0] if action.option_strings else str(action.metavar)


class PolicyCommand(ServiceCommand):
    """Calls `act` with an environment."""

    def add_arguments(self, parser):
        parser.add_argument("--environment", default=DEFAULT_SLUG, help="Environment (default: %(default)s).")

    def handle(self, *, environment: str, **options: Any) -> None:
        self.act(self.environment_named(environment), **options)

    def environment_named(self, slug: str) -> Any:
        """Return what `act` is called with."""
        return environment_named(slug)

    def act(self, environment: Any, *args: Any, **options: Any) -> None:
        raise NotImplementedError


def environment_named(slug: str) -> Environment:
    """Return the environment; from now on, the command works in its space."""
    if slug == DEFAULT_SLUG:
        return default_environment()
    spaces.enter(spaces.space_of(slug))
    found = Environment.objects.filter(slug=slug).first()
    if found is None:
        advice = f"Create it with `api_keys create --environment {slug} --create-environment`."
        raise NotFound(f"Environment `{slug}` does not exist. {advice}")
    return found


def enter_space_of(environment: Environment) -> None:
    """Work in the space where the environment is now: it may have been moved since the command began."""
    spaces.enter(spaces.space_of(environment.slug))


# ---- moments on the command line ---------------------------------------------------------------------------


def add_as_of(parser: _ActionsContainer) -> Action:
    return parser.add_argument(
        "--as-of", metavar="WHEN", help="State at a revision or a time, e.g. 2026-11-03T14:02:11Z."
    )


def add_version(parser: _ActionsContainer, help: str) -> Action:
    return parser.add_argument("--version", dest="version_number", type=number, metavar="N", help=help)


def moment_asked(
    environment: Environment, as_of: str | None, needs_policy: bool = True, policy_version: int | None = None
) -> Moment | None:
    """Return the moment of `--as-of`, with the policy of then or the given version; None for now and the active one."""
    when = None if as_of is None else as_of_from_text(as_of, "--as-of")
    return moment_of(environment.pk, when, policy_version, needs_policy, "--as-of")


# ---- policies on the command line: a version number, `active`, or a file --------------------------------------------

ACTIVE = "active"
_SHOWN = 40  # digits of a number that is too large, in its error message


def is_file(policy: str) -> bool:
    return policy != ACTIVE and not (policy.isascii() and policy.isdecimal())


def text_of_file(path: str) -> str:
    return bundle_of_files([path]).text


def text_of(environment: Environment, policy: str) -> str:
    if policy == ACTIVE:
        active = publishing.active_version(environment.pk)
        return active.source if active else ""
    if not is_file(policy):
        number = whole_number(policy, MAX_VERSION)
        if number is None:
            raise CommandError(
                f"Policy version {policy[:_SHOWN]} does not exist. Version numbers go up to {MAX_VERSION:,}."
            )
        return publishing.version_numbered(environment.pk, number).source
    return text_of_file(policy)


def add_allow(parser: ArgumentParser) -> tuple[Action, Action]:
    allow = parser.add_argument(
        "--allow", action="append", default=[], metavar="PERMISSION",
        help="A permission that may be granted more, such as `read on Document`. Repeatable.",
    )  # fmt: skip
    return allow, add_seconds(parser, "comparison")


def add_seconds(parser: ArgumentParser, what: str) -> Action:
    told = f"Time limit of the {what} (default: %(default)g)."
    return parser.add_argument("--seconds", type=above_zero, default=10.0, help=told)


def policy_named(environment: str, policy: str) -> publishing.NamedPolicy:
    """Return how to name a policy, and the policy. Files need no database."""
    if is_file(policy):
        return policy, compile_text(text_of_file(policy), policy)
    shown = "the active policy" if policy == ACTIVE else f"version {policy}"
    return shown, compile_text(text_of(environment_named(environment), policy))


def refuse_more(
    policy: str, environment: str, new: Program, allow: Sequence[str], seconds: float, output: OutputWrapper
) -> None:
    """Print how a new policy differs from an old one over all facts; raise `CommandError` if it may grant more."""
    old = policy_named(environment, policy)
    lines, status = publishing.compared_policies(old, ("the new policy", new), seconds, allow)
    for line in lines:
        output.write(line)
    if status:
        told = "grants more than" if status == 1 else "may grant more than"
        more = "" if status == 1 else ": the time or memory limit was reached first"
        raise CommandError(f"The new policy {told} {old[0]}{more}.", returncode=status)


# ---- notes and numbers on the command line ---------------------------------------------------------------------------


def note(text: str) -> str:
    """Check that the text is a valid note of a version, which is one line; an argparse type."""
    if fault := publishing.note_fault(text):
        raise ArgumentTypeError(f"a note {fault}")
    return text


def number(text: str) -> int:
    """Parse a whole number from 0 to `MAX_VERSION`; an argparse type."""
    found = whole_number(text, MAX_VERSION)
    if found is None:
        raise ArgumentTypeError(f"must be a whole number from 0 to {MAX_VERSION:,}, not `{text}`")
    return found


def at_least_one(text: str, most: int = MAX_VERSION) -> int:
    """Parse a whole number from 1 to `most`; an argparse type."""
    found = whole_number(text, most)
    if not found:
        raise ArgumentTypeError(f"must be a whole number from 1 to {most:,}, not `{text}`")
    return found


def port_number(text: str) -> int:
    port = whole_number(text, 65535)
    if not port:
        raise ArgumentTypeError(f"Port must be between 1 and 65535, not {text!r}")
    return port


def above_zero(text: str, most: float = 1e9) -> float:
    """Parse a number above 0 and at most `most`; an argparse type."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (0 < found <= most):
        raise ArgumentTypeError(f"must be a number above 0 and up to {most:,.0f}, not `{text}`")
    return found


# ---- policies in files ---------------------------------------------------------------------------------------


def program_of_files(names: list[str], errors: OutputWrapper) -> Program:
    bundle = bundle_of_files(names)
    try:
        return compile_text(bundle.text, bundle.filename)
    except PolicyRejected as reason:
        raise rejection(reason, bundle, errors) from None


def rejection(
    reason: PolicyRejected | publishing.PolicyTestsFailed, bundle: Bundle, errors: OutputWrapper
) -> CommandError:
    """Write every problem with its position in its own file, and return the error to raise."""
    match reason:
        case PolicyRejected():
            lines = [bundle.describe(problem) for problem in reason.problems]
            found = f"{counted(len(lines), 'problem')} found"
        case publishing.PolicyTestsFailed():
            lines = failures(reason.report, bundle)
            found = f"{counted(len(lines), 'assertion')} failed"
    for line in lines:
        errors.write(line)
    return CommandError(f"{found}. The policy was not accepted.")


def counted(count: int, kind: str) -> str:
    return f"{count:,} {kind}{'' if count == 1 else 's'}"


def warnings(program: Program, bundle: Bundle) -> list[str]:
    return [f"warning: {bundle.describe(warning)}" for warning in program.warnings]


def failures(report: publishing.TestReport, bundle: Bundle) -> list[str]:
    return [
        "\n  ".join(
            [
                f"{bundle.place_of_line(one.line)}: test `{test.name}`: {one.message}",
                one.text,
                *map(spelled_out, one.explanation(bundle.place_of_line)),
            ]
        )
        for test in report.tests
        for one in test.assertions
        if not one.passed
    ]
