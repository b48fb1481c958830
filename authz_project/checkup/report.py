"""All that is looked at, in the order in which one thing needs the one before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from authz_project.checkup.check_finding import FAIL, CheckFinding
from authz_project.checkup.of_database import database_findings
from authz_project.checkup.of_files import file_findings
from authz_project.checkup.of_settings import settings_findings


def findings(workers: int, threads: int) -> Iterator[CheckFinding]:
    """Look at everything that a server of so many processes and threads needs."""
    return chain(settings_findings(), database_findings(workers, threads), file_findings())


def report(found: Iterable[CheckFinding], say: Callable[[str], object]) -> str:
    """Say each finding as soon as it is found; return what is wrong in all, or nothing."""
    failed = total = 0
    for each in found:
        say(str(each))
        total, failed = total + 1, failed + (each.state == FAIL)
    return f"{failed} of {total} checks failed" if failed else ""
