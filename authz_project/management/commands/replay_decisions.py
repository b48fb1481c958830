"""The decision log, asked again."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from django.core.management.base import CommandError
from django.utils.module_loading import import_string

import checks.urls
from checks.decisions.lines import BadLine, Line, lines_of
from checks.decisions.log import shown
from checks.decisions.policies import Change, Difference, OtherPolicy
from checks.decisions.replay import Endpoints, NotAsked, Replayed, explained, given_by, replayed
from checks.explain.explain import ExplainedGoal, Explanation
from checks.explain.output import explanation_to_text
from policy import rules
from policy.errors import AuthzError, Unavailable
from policy.ground.files import Bundle, bundle_of_files
from policy.language.source import PolicyRejected
from policy.management.command import FILES, ServiceCommand, number, rejection

SHOWN = 20  # lines, of each rule that makes a difference
EXPLAINED = 5  # answers of a line


class Command(ServiceCommand):
    help = (
        "Ask again what a decision log has: each line as of its revision, which must be answered the same."
        " Exits with 1 if an answer differs."
    )

    def add_arguments(self, parser):
        parser.add_argument("file", metavar="FILE", help="a decision log; - is the standard input")
        parser.add_argument("--explain", action="store_true", dest="explains", help="say why each answer differs")
        parser.add_argument("--policy", nargs="+", metavar="FILE", help=f"answer by another policy: {FILES}")
        parser.add_argument("--now", action="store_true", dest="is_now", help="by the facts and the policy of now")
        parser.add_argument(
            "--show", type=number, default=SHOWN, metavar="N",
            help="with --policy, lines of each rule that makes a difference (default: %(default)s)",
        )  # fmt: skip

    def handle(
        self, *, file: str, explains: bool, policy: list[str] | None, is_now: bool, show: int, **options: Any
    ) -> None:
        self.is_coloured = self.stdout.isatty() and not options["no_color"]
        self.shown = self.progress("asking again")
        with ExitStack() as stack:
            source = _opened(file, stack)
            lines = lines_of(stack.enter_context(self.shown).counted(source))
            try:
                if policy:
                    differ = self.compare(lines, bundle_of_files(policy, sys.stdin), is_now, explains, show)
                else:
                    differ = self.replay(lines, is_now, explains)
            except (AuthzError, Unavailable) as reason:
                raise CommandError(reason.message) from None
        if differ:
            sys.exit(1)

    # ---- as they were asked ------------------------------------------------------------------------------------

    def replay(self, lines: Iterable[Line | BadLine], is_now: bool, explains: bool) -> bool:
        counts: Counter[str] = Counter()
        for line in self._good(lines, counts):
            try:
                found = replayed(line, _endpoints_for(line), is_now)
            except NotAsked as reason:
                self._say_not_asked(line, reason, counts)
                continue
            counts["asked"] += 1
            if found.differs:
                counts["differ"] += 1
                self._write([_line_that_differs(found)])
                if explains:
                    self._write(self._explained(found, is_now))
        self._write([f"{counts['differ']:,} of {counts['asked']:,} answers differ{_others(counts)}"])
        return bool(counts["differ"] or counts["bad"])

    def _explained(self, found: Replayed, is_now: bool) -> Iterator[str]:
        try:
            for explanation in islice(explained(found, is_now), EXPLAINED):
                yield from (f"  {text}" for text in explanation_to_text(explanation, "", self.is_coloured))
        except AuthzError as reason:
            yield f"  not explained: {reason.message}"

    # ---- by another policy ---------------------------------------------------------------------------------------

    def compare(self, lines: Iterable[Line | BadLine], bundle: Bundle, is_now: bool, explains: bool, show: int) -> bool:
        try:
            other = OtherPolicy(rules.compile_text(bundle.text, bundle.filename))
        except PolicyRejected as reason:
            raise rejection(reason, bundle, self.stderr) from None
        counts: Counter[str] = Counter()
        groups: dict[Change, _Group] = {}
        for line in self._good(lines, counts):
            try:
                found = other.differences(line, is_now)
            except NotAsked as reason:
                self._say_not_asked(line, reason, counts)
                continue
            counts["asked"] += 1
            counts["differ"] += bool(found)
            for each in found:
                groups.setdefault(each.change, _Group()).add(each, show)
        self._write([f"{counts['differ']:,} of {counts['asked']:,} answers would differ{_others(counts)}"])
        for change, group in sorted(groups.items(), key=lambda item: -item[1].count):
            self._write(self._group(change, group, bundle, explains))
        return bool(counts["differ"] or counts["bad"])

    def _group(self, change: Change, group: _Group, bundle: Bundle, explains: bool) -> Iterator[str]:
        yield f"{_named(change, bundle)}: {group.count:,} (+{group.gained:,} -{group.count - group.gained:,})"
        for each in group.shown:
            yield f"  {'+ allowed' if each.flip.is_allowed else '- denied '}  {each.flip.text}  {each.line}"
            if explains:
                for title, goal in (("then", each.flip.before), ("by the other policy", each.flip.after)):
                    yield from (f"      {text}" for text in _explanation(title, goal, self.is_coloured))
        if group.count > len(group.shown):
            yield f"  and {group.count - len(group.shown):,} more; --show N shows so many"

    # ---- parts ---------------------------------------------------------------------------------------------------

    def _good(self, lines: Iterable[Line | BadLine], counts: Counter[str]) -> Iterator[Line]:
        for line in lines:
            if isinstance(line, BadLine):
                counts["bad"] += 1
                with self.shown.aside():
                    self.stderr.write(line.message)
            else:
                yield line

    def _say_not_asked(self, line: Line, reason: NotAsked, counts: Counter[str]) -> None:
        counts["not asked"] += 1
        with self.shown.aside():
            self.stderr.write(f"line {line.number}: not asked: {reason}")

    def _write(self, texts: Iterable[str]) -> None:
        for text in texts:  # which may take long to find
            with self.shown.aside():
                self.stdout.write(text)


class _Group:
    """Answers that differ because of one rule; some of them to show."""

    def __init__(self) -> None:
        self.count = self.gained = 0
        self.shown: list[Difference] = []

    def add(self, each: Difference, most: int) -> None:
        self.count += 1
        self.gained += each.flip.is_allowed
        if len(self.shown) < most:
            self.shown.append(each)


def _endpoints_for(line: Line) -> Endpoints:
    """Return those among which the line's is. What reads bindings is imported where somebody asked with them."""
    if line.endpoint in checks.urls.endpoints:
        return checks.urls.endpoints
    if line.endpoint.startswith("/"):
        whole: Endpoints = import_string("checks.authzen.urls.endpoints")
        return {f"/{path}": endpoint for path, endpoint in whole.items()}
    found: Endpoints = import_string("localsql.urls.endpoints")
    return found


def _opened(path: str, stack: ExitStack) -> BinaryIO:
    if path == "-":
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(path).open("rb"))
    except OSError as reason:
        raise CommandError(f"{path}: {reason.strerror}") from None


def _line_that_differs(found: Replayed) -> str:
    now = f"refused: {found.refusal}" if found.answer is None else shown(found.answer)
    return f"{found.line}, but now {now}: {_question(found.line)}"


def _question(line: Line) -> str:
    try:
        return str(given_by(line))
    except AuthzError:
        return line.endpoint


def _others(counts: Counter[str]) -> str:
    told = [f"{counts[name]:,} {text}" for name, text in (("not asked", "not asked"), ("bad", "unreadable"))
            if counts[name]]  # fmt: skip
    return f"; {', '.join(told)}" if told else ""


def _named(change: Change, bundle: Bundle) -> str:
    if change.rule is None:
        return "no single rule"
    if change.rule.line is None:
        return f"the rule that is there by default, {change.rule.text}"
    if change.is_new:
        return f"the new rule at {bundle.place_of_line(change.rule.line)}, {change.rule.text}"
    return f"the rule that would go, line {change.rule.line}, {change.rule.text}"


def _explanation(title: str, goal: ExplainedGoal | None, is_coloured: bool) -> Iterator[str]:
    if goal is not None:
        first, *others = explanation_to_text(Explanation(None, (goal,)), "", is_coloured)
        yield f"{title}: {first.partition('  ')[0]}"
        yield from others
