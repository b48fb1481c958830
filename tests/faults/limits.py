"""Less of something for a running server than it is used to."""

import os
import re
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.service import Service

# Where groups are made: by the first version of control groups, and by the second; with the name of the limit.
GROUPS = (
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)
SHELL = '#!/bin/sh\n{limit}\nexec "{python}" "$@"\n'


def limited_python(folder: Path, python: str, limit: str) -> str:
    """A program that is the interpreter under a limit of the shell's `ulimit`."""
    program = folder / "limited-python"
    program.write_text(SHELL.format(limit=limit, python=python))
    program.chmod(0o755)
    return str(program)


@contextmanager
def memory_group(megabytes: int) -> Iterator[str]:
    """A control group with so much memory, and the shell's command by which a program enters it; 0 makes none.

    It is removed once all its processes have ended.
    """
    if not megabytes:
        yield ""
        return
    parent, limit = GROUPS[0] if GROUPS[0][0].is_dir() else GROUPS[1]
    group = parent / f"ceilings-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(megabytes * 1_000_000))
        yield f"echo $$ > {group / 'cgroup.procs'}"
    finally:
        until = time.monotonic() + 10
        while group.exists() and time.monotonic() < until:  # it is in use until the last process is gone
            with suppress(OSError):
                group.rmdir()
            time.sleep(0.1)


def workers_of(service: Service) -> list[psutil.Process]:
    """Those of its processes that answer, by their names: `authz-1` and so on."""
    return [each for each in psutil.Process(service.process.pid).children(recursive=True) if _is_worker(each)]


def _is_worker(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):  # it has ended since
        return re.fullmatch(r"authz-[1-9]\d*", process.name()) is not None
    return False


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
