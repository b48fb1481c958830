"""Files: room on their disks, who may read and write them, and whether the decision log can be written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.db import connection

from authz_project.checkup.check_finding import CheckFinding, judged
from authz_project.sqlite_log import LARGE, size_of_log
from checks.decisions.writer import STANDARD_OUTPUT

LITTLE, TOO_LITTLE = 1 << 30, 100 << 20  # bytes
OF_OTHERS, OF_GROUP = 0o007, 0o070
ENDS = ("", "-wal", "-shm", ".secret")  # of the files of an SQLite database


def file_findings() -> Iterator[CheckFinding]:
    database = database_file()
    log = Path(settings.DECISION_LOG) if settings.DECISION_LOG not in ("", STANDARD_OUTPUT) else None
    folders = {"database": database and database.parent, "decision log": log and log.absolute().parent}
    if there := {name: folder for name, folder in folders.items() if folder and folder.is_dir()}:
        yield disk_finding(there, size_of_log(database) if database else 0)
    if database is not None:
        yield rights_finding(database)
    if log is not None:
        yield log_finding(log)


def database_file() -> Path | None:
    """Return where SQLite keeps everything; other databases keep it elsewhere."""
    return Path(connection.settings_dict["NAME"]).absolute() if connection.vendor == "sqlite" else None


def disk_finding(folders: dict[str, Path], size: int = 0) -> CheckFinding:
    fails: list[str] = []
    warnings: list[str] = []
    fine: list[str] = []
    for name, folder in folders.items():
        free = shutil.disk_usage(folder).free
        told = f"{_size(free)} free for the {name}"
        (fails if free < TOO_LITTLE else warnings if free < LITTLE else fine).append(told)
    advice = [f"make room: {', '.join([*fails, *warnings])}"]
    others = advice if warnings and not fails else []
    if size >= LARGE:
        others = [*others, f"{_size(size)} are in the log beside the database: somebody has been reading for long"]
    return judged("disk", advice if fails else [], others, ", ".join(fine))


def rights_finding(database: Path) -> CheckFinding:
    """Check who may read: a database has hashes of passwords and of keys, and its secret signs logins."""
    fails, warnings = [], []
    for path in (database.with_name(database.name + end) for end in ENDS):
        if not path.exists():
            continue
        mode = path.stat().st_mode
        if mode & OF_OTHERS:
            fails.append(f"everybody may open {path.name}: chmod 600 {path}")
        elif mode & OF_GROUP:
            warnings.append(f"its group may open {path.name}: chmod 600 {path}, if that is not meant")
        if not os.access(path, os.R_OK | os.W_OK):
            fails.append(f"{path.name} belongs to somebody else: run as that user, or chown {path}")
    folder = database.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        fails.append(f"SQLite makes files in {folder}, and may not: chown it")
    elif folder.stat().st_mode & 0o1002 == 0o002:
        warnings.append(f"everybody may replace files in {folder}: chmod o-w {folder}")
    return judged("rights", fails, warnings, "database and secret are their owner's alone")


def log_finding(path: Path) -> CheckFinding:
    fails, warnings = [], []
    if not path.exists():
        if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
            fails.append(f"DECISION_LOG: {path} cannot be made: its folder is missing, or belongs to somebody else")
    elif not path.is_file() and not path.is_fifo() and not path.is_char_device():
        fails.append(f"DECISION_LOG: {path} is no file")
    elif not os.access(path, os.W_OK):
        fails.append(f"DECISION_LOG: {path} cannot be written: run as its owner, or chown it")
    elif path.is_file() and path.stat().st_mode & OF_OTHERS:
        warnings.append(f"everybody may read {path}, which has who may do what: chmod 600 {path}")
    return judged("decision log", fails, warnings, f"{path} can be written")


def _size(number: int) -> str:
    return f"{number / (1 << 30):.1f} GiB" if number >= LITTLE else f"{number / (1 << 20):.0f} MiB"
