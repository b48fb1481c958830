"""Clocks that somebody sets while programs run: each of its own for a server and for a database."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("clock.c")
COMPILER = "cc"


class Clock:
    """A clock, and the variables for the programs that are to have it."""

    def __init__(self, library: Path, folder: Path):
        self.file = folder / "ahead"
        self.variables = {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(self.file)}
        self.file.write_bytes(struct.pack("=q", 0))
        self.file.chmod(0o644)

    def set(self, hours: float) -> None:
        """Set it so many hours ahead of the real time; for all that have it at once."""
        with self.file.open("r+b") as opened:
            opened.write(struct.pack("=q", round(hours * 3600)))

    @contextmanager
    def of_all(self) -> Iterator[None]:
        """Have it in all programs that are started meanwhile."""
        before = {name: os.environ.get(name) for name in self.variables}
        os.environ.update(self.variables)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def clocks(number: int) -> Iterator[list[Clock]]:
    """So many clocks, in a folder that every user may read."""
    compiler = shutil.which(COMPILER)
    if compiler is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no C compiler here")
    with tempfile.TemporaryDirectory(prefix="authz-clocks-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        library = folder / "clock.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        found = []
        for place in range(number):
            own = folder / str(place)
            own.mkdir(mode=0o755)
            found.append(Clock(library, own))
        yield found
