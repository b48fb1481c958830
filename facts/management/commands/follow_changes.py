"""Changes, as they come."""

import select
import signal
import sys
from typing import Any

import orjson

from facts.feed import Asked
from facts.following import every
from facts.places import Place
from facts.wire import name_from_json
from policy.management.command import PolicyCommand, number
from policy.models import Environment

LOOK_EVERY = 5.0  # seconds, for somebody who still reads


class Stopped(BaseException):
    """By a signal."""


class Command(PolicyCommand):
    help = "Print each change as a line of JSON, until stopped; without --after, first all facts."

    def add_arguments(self, parser):
        super().add_arguments(parser)
        parser.add_argument("--after", type=number, default=0, help="go on after this revision")
        parser.add_argument("--predicate", action="append", default=[], help="only facts of it; may be repeated")

    def act(self, environment: Environment, *, after: int, predicate: list[str], **options: Any) -> None:
        names = frozenset(name_from_json(each, "--predicate") for each in predicate)
        usual = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            for found in every(environment.pk, Asked(Place(after), predicates=names), LOOK_EVERY):
                for change in found.changes:
                    self.stdout.write(orjson.dumps(change).decode())
                self.stdout.flush()
                if is_unread():
                    raise BrokenPipeError
        except Stopped:
            pass
        finally:
            for each, handler in usual.items():
                signal.signal(each, handler)


def is_unread() -> bool:
    """Whether the output is a pipe that nobody reads from any more."""
    try:
        outlet = select.poll()
        outlet.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in outlet.poll(0))
    except (OSError, ValueError):  # it is no file at all
        return False


def stop(number: int, frame: object) -> None:
    raise Stopped
