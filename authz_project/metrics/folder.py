"""Where the processes of one server keep their metrics: a private folder, from the server's start until its end.

Each worker holds a lock on a file named by its process id, as long as it lives. So the parent process knows, on any
system, which workers have ended.
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
_OLD = 60.0  # seconds after which a folder that nobody locks counts as left behind
OF_CLIENT = "PROMETHEUS_MULTIPROC_DIR"  # where the official client looks for the folder


@contextmanager
def made() -> Iterator[Path]:
    """Make the folder, for as long as what is inside runs. Environment variables tell workers where it is."""
    drop_old(Path(tempfile.gettempdir()))
    path = Path(tempfile.mkdtemp(prefix=_NAME))  # for its owner alone
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
    """Remove folders that killed servers left behind: old ones of this user whose lock nobody holds."""
    for path in beside.glob(f"{_NAME}*"):
        with suppress(OSError):
            about = path.lstat()
            if about.st_uid == os.getuid() and time.time() - about.st_mtime > _OLD and is_free(path / _LOCK):
                shutil.rmtree(path)


def claim(number: int) -> int:
    """Lock the file of this worker until the process ends, and return its file descriptor."""
    path = Path(settings.METRICS_FOLDER)
    os.environ[OF_CLIENT] = str(path)
    draft = path / f"{number}.draft"
    lock = _held(draft)
    draft.rename(path / f"{number}.alive")  # only now, so that nobody finds it unlocked
    return lock


def workers(path: Path) -> list[int]:
    """Return the process ids of all workers that have claimed a lock, also of those that have ended."""
    return [int(each.stem) for each in path.glob("*.alive") if each.stem.isdecimal()]


def has_ended(path: Path, number: int) -> bool:
    return is_free(path / f"{number}.alive")


def is_free(path: Path) -> bool:
    """Say whether nobody holds the lock on the file, or the file is gone."""
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
