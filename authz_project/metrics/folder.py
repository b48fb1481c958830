"""Where the processes of one server keep their metrics: a private folder, made when it starts, gone when it ends.

Each worker holds a lock on a file with its number as long as it lives: so its parent knows, on any system, whose files
are of the past.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.conf import settings

_NAME = "authz-metrics-"
_LOCK = "server.alive"
_OLD = 60.0  # seconds, after which a folder without its lock was left behind
OF_CLIENT = "PROMETHEUS_MULTIPROC_DIR"  # where the official client looks for the folder


@contextmanager
def made() -> Iterator[Path]:
    """Make it, and tell the workers that are started meanwhile."""
    drop_old(Path(tempfile.gettempdir()))
    path = Path(tempfile.mkdtemp(prefix=_NAME))  # its owner's alone
    lock = _held(path / _LOCK)
    os.environ[settings.METRICS_FOLDER_VARIABLE] = os.environ[OF_CLIENT] = str(path)
    try:
        yield path
    finally:
        for name in (settings.METRICS_FOLDER_VARIABLE, OF_CLIENT):
            os.environ.pop(name, None)
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def drop_old(beside: Path) -> None:
    """Remove what servers left behind that were killed: folders of ours whose lock nobody holds."""
    for path in beside.glob(f"{_NAME}*"):
        with suppress(OSError):
            about = path.lstat()
            if about.st_uid == os.getuid() and time.time() - about.st_mtime > _OLD and is_free(path / _LOCK):
                shutil.rmtree(path)


def claim(number: int) -> int:
    """Hold the lock of a worker, until the process ends."""
    path = Path(settings.METRICS_FOLDER)
    os.environ[OF_CLIENT] = str(path)
    draft = path / f"{number}.draft"
    lock = _held(draft)
    draft.rename(path / f"{number}.alive")  # whoever finds it finds it locked
    return lock


def workers(path: Path) -> list[int]:
    """Those that have claimed a lock, living and ended."""
    return [int(each.stem) for each in path.glob("*.alive") if each.stem.isdecimal()]


def has_ended(path: Path, number: int) -> bool:
    return is_free(path / f"{number}.alive")


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock; so it is where it is gone."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(file)


def _held(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(file, fcntl.LOCK_EX)
    return file
