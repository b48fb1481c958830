"""Less of something for a running server than it is used to."""

import resource
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
    return [each for each in children if each.memory_info().rss > 40_000_000]


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
