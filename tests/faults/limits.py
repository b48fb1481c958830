"""Less of something for a running server than it is used to."""

import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.service import Service

SHELL = '#!/bin/sh\n{limit}\nexec "{python}" "$@"\n'


def limited_python(folder: Path, python: str, limit: str) -> str:
    """A program that is the interpreter under a limit of the shell's `ulimit`."""
    program = folder / "limited-python"
    program.write_text(SHELL.format(limit=limit, python=python))
    program.chmod(0o755)
    return str(program)


def workers_of(service: Service) -> list[psutil.Process]:
    """Those of its processes that answer: the largest."""
    children = psutil.Process(service.process.pid).children(recursive=True)
    return [each for each in children if _size(each) > 40_000_000]


def _size(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.NoSuchProcess:  # it has ended since
        return 0


def workers_that_listen(service: Service, number: int, within: float) -> list[psutil.Process]:
    """Its workers, when there are so many and each has begun to do something of its own at SIGTERM."""
    until = time.monotonic() + within
    while len(found := [each for each in workers_of(service) if _listens(each)]) < number:
        assert time.monotonic() < until, f"{len(found)} of {number} workers are there"
        time.sleep(0.1)
    return found


def _listens(process: psutil.Process) -> bool:
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:  # it has ended
        return False
    caught = next((line.split()[1] for line in lines if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@contextmanager
def lowered(process: psutil.Process, what: int, most: int) -> Iterator[None]:
    """A limit of the process, for a while; what it has already it keeps."""
    before = resource.prlimit(process.pid, what)
    resource.prlimit(process.pid, what, (most, before[1]))
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            resource.prlimit(process.pid, what, before)
