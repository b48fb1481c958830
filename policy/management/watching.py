"""Run something again whenever a file has changed, for people who have the file open in an editor."""

from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from time import sleep, strftime

from django.core.management.base import CommandError, OutputWrapper

from policy.ground.files import STANDARD_INPUT

INTERVAL = 0.3  # seconds between two looks at the files
_State = tuple[int, int, int] | None  # None where there is no file


def add_watch(parser: ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="do it again whenever a file changes, until ctrl-C")


def until_interrupted(files: Sequence[str], act: Callable[[], None], output: OutputWrapper) -> None:
    """Run `act` now and after each change of a file, until ctrl-C. A `CommandError` is printed and ends nothing."""
    if STANDARD_INPUT in files:
        raise CommandError("the standard input cannot be watched; name files")
    try:
        while True:
            before = _states(files)  # read before `act`, so that a change during it counts
            try:
                act()
            except CommandError as reason:
                output.write(str(reason))
            output.write(f"-- {strftime('%H:%M:%S')}, watching; ctrl-C ends --")
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
