"""A small disk that a test may fill."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL = "ballast"


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[bool]:
    """Mount one of so many megabytes on the folder, where this user may; whether it is one."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "tmpfs", folder]
    is_mounted = os.getuid() == 0 and not subprocess.run(command, capture_output=True, check=False).returncode
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path, but: int = 0) -> None:
    """Take all the room that there is, but for so many bytes."""
    with (folder / FULL).open("ab", buffering=0) as ballast:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    ballast.write(b"x" * size)
            except OSError:
                continue
        if but:
            ballast.truncate(max(0, ballast.tell() - but))


def make_room(folder: Path) -> None:
    (folder / FULL).unlink()
