"""Replay the requests of a decision log, and compare the results."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from django.utils.module_loading import import_string

import checks.urls
from checks.decisions.log import BadLogLine, LogLine, lines_of, shown
from checks.decisions.replay import Endpoints, NotAsked, Replayed, explained, given_by, replayed
from checks.explain.explain import explanation_to_text
from policy.errors import AuthzError
from policy.files import opened
from policy.management.command import ServiceCommand

EXPLAINED = 5  # differing results to explain per line


class Command(ServiceCommand):
    help = (
        "Repeat the requests of a decision log as of their revisions, and compare the answers. Exits with 1 if an"
        " answer differs."
    )

    def add_arguments(self, parser):
        parser.add_argument("file", metavar="FILE", help="Decision log; - for standard input.")
        parser.add_argument("--explain", action="store_true", dest="explains", help="Print why each answer differs.")
        parser.add_argument("--now", action="store_true", dest="is_now", help="Use the current facts and policy.")

    def handle(self, *, file: str, explains: bool, is_now: bool, **options: Any) -> None:
        counts: Counter[str] = Counter()
        with opened(file) as source, self.progress("replaying requests") as shown:
            lines = lines_of(shown.counted(source))
            for is_error, text in _told(lines, is_now, explains, self.is_coloured, counts):  # may take long
                with shown.aside():
                    (self.stderr if is_error else self.stdout).write(text)
        others = ", ".join(f"{counts[name]:,} {name}" for name in ("not asked", "unreadable") if counts[name])
        last = f"{counts['differ']:,} of {counts['asked']:,} answers differ"
        self.stdout.write(f"{last}; {others}" if others else last)
        if counts["differ"] or counts["unreadable"]:
            sys.exit(1)


def _told(
    lines: Iterable[LogLine | BadLogLine], is_now: bool, explains: bool, is_coloured: bool, counts: Counter[str]
) -> Iterator[tuple[bool, str]]:
    """Replay the lines. Yield the output about them, each with whether it is an error."""
    for line in lines:
        if isinstance(line, BadLogLine):
            counts["unreadable"] += 1
            yield True, line.message
            continue
        if line.is_event:
            continue
        try:
            found = replayed(line, _endpoints_for(line), is_now)
        except NotAsked as reason:
            counts["not asked"] += 1
            yield True, f"line {line.number}: not asked: {reason}"
            continue
        counts["asked"] += 1
        if found.differs:
            counts["differ"] += 1
            now = f"refused: {found.refusal}" if found.answer is None else shown(found.answer)
            yield False, f"{line}, but now {now}: {_question(line)}"
            if explains:
                yield from ((False, f"  {text}") for text in _explained(found, is_now, is_coloured))


def _explained(found: Replayed, is_now: bool, is_coloured: bool) -> Iterator[str]:
    try:
        for explanation in islice(explained(found, is_now), EXPLAINED):
            yield from explanation_to_text(explanation, "", is_coloured)
    except AuthzError as reason:
        yield f"not explained: {reason.message}"


def _question(line: LogLine) -> str:
    try:
        return str(given_by(line))
    except AuthzError:
        return line.endpoint


def _endpoints_for(line: LogLine) -> Endpoints:
    """Return the table that has the line's endpoint. Modules that read bindings are imported only if needed."""
    if line.endpoint in checks.urls.endpoints:
        return checks.urls.endpoints
    if line.endpoint.startswith("/"):
        whole: Endpoints = import_string("checks.authzen.views.endpoints")
        return {f"/{path}": endpoint for path, endpoint in whole.items()}
    found: Endpoints = import_string("localsql.views.endpoints")
    return found
