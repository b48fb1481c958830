"""Print the change feed."""

import select
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
from django.core.management.base import CommandError

from facts.feed import FeedPage, FeedRequest, feed_position_from_text, found
from facts.wire import name_from_json
from policy.core import spaces
from policy.errors import MalformedRequest, NotFound
from policy.management.command import PolicyCommand, enter_space_of
from policy.models import Environment

LOOK_EVERY = 5.0  # seconds after which it checks, even without changes, whether the output is still being read


class Stopped(BaseException):
    """Raised in a signal handler to stop the command."""


class Command(PolicyCommand):
    help = "Print each change as a line of JSON until stopped. Without --after, begin with all facts."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument(
            "--after", default="0", metavar="REVISION", help="Start after this revision, or at the `next` of a line."
        )
        parser.add_argument(
            "--predicate", action="append", default=[], metavar="NAME", help="Print only these facts. Repeatable."
        )

    def act(self, environment: Environment, *, after: str, predicate: list[str], **options: Any) -> None:
        names = frozenset(name_from_json(each, "--predicate") for each in predicate)
        try:
            self._follow(environment, names, after)
        except MalformedRequest as reason:  # of the parameter `after`
            raise CommandError(f"--{reason.message}") from None

    def _follow(self, environment: Environment, names: frozenset[str], after: str) -> None:
        position = feed_position_from_text(after)
        usual = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            for page in _pages(environment, FeedRequest(position, predicates=names)):
                for change in page.changes:
                    # A part of a revision comes alone, so `page.after` is just after it: readers can resume there.
                    line = change | {"next": page.after.text} if "part" in change else change
                    self.stdout.write(orjson.dumps(line).decode())
                self.stdout.flush()
                if is_unread():
                    raise BrokenPipeError
        except Stopped:
            pass
        finally:
            for each, handler in usual.items():
                signal.signal(each, handler)


def _pages(environment: Environment, asked: FeedRequest) -> Iterator[FeedPage]:
    """Yield changes as they come, from wherever the environment is; and an empty page if there are none for a while."""
    while True:
        enter_space_of(environment)
        try:
            page = found(environment.pk, asked, LOOK_EVERY)
        except NotFound:  # unless it was moved meanwhile, it was deleted
            if spaces.space_of(environment.slug) == spaces.current():
                raise
            continue
        yield page
        asked = replace(asked, after=page.after)


def is_unread() -> bool:
    """Return whether the output is a pipe that its reader has closed."""
    try:
        outlet = select.poll()
        outlet.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in outlet.poll(0))
    except (OSError, ValueError):  # not a real file
        return False


def stop(number: int, frame: object) -> None:
    raise Stopped
