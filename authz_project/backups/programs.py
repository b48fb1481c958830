"""Other programs: PostgreSQL's own, as they are on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Program(NamedTuple):
    """`pg_dump` or `pg_restore`."""

    path: str
    major: int
    version: str


def program(name: str) -> Program | None:
    """Return the one that a shell would find; None where there is none that says its version."""
    path = shutil.which(name)
    if path is None:
        return None
    found = re.search(r"\) (\d+)(\S*)", run([path, "--version"]).stdout)
    return Program(path, int(found[1]), f"{found[1]}{found[2]}") if found else None


def run(call: Sequence[str | Path], variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever that is; no shell reads what it is called with."""
    environment = os.environ | (variables or {})
    return subprocess.run(call, env=environment, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603


def line_of(text: str) -> str:
    """Return what a program complains of, in one line."""
    return " ".join(text.split())[:500]
