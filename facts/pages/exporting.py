"""The facts that a page shows, as a file: all of them, of one moment.

The file is complete before its first byte is sent. So a failure is an error and not a truncated file, a slow reader
keeps no transaction open, and the file is not held in memory.
"""

from __future__ import annotations

import atexit
import io
import os
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress

from facts.formats import WRITERS
from facts.pages.file_on_disk import FileOnDisk
from facts.read import read_snapshot
from facts.walk import SearchColumn, every

KEPT = 60.0  # seconds until the name of a file is removed; the server must have opened the file by then
_ENDINGS = {"json": "jsonl", "csv": "csv", "notation": "txt"}
_TYPES = {"json": "application/jsonl", "csv": "text/csv; charset=utf-8", "notation": "text/plain; charset=utf-8"}
FORMATS = tuple(WRITERS)


def exported(walk: Sequence[SearchColumn], form: str, name: str) -> FileOnDisk:
    """Return a response that downloads the facts of a walk as a file."""
    path = _written(walk, form)
    answer = FileOnDisk(
        open(path, "rb"),  # noqa: PTH123, SIM115  the answer closes it
        path,
        as_attachment=True,
        filename=f"{name}.{_ENDINGS[form]}",
        content_type=_TYPES[form],
    )
    _forget_later(path)
    answer["Cache-Control"] = "no-store"
    return answer


def _written(walk: Sequence[SearchColumn], form: str) -> str:
    number, path = tempfile.mkstemp(prefix="facts-")  # for the eyes of this user only
    _left.add(path)
    try:
        with os.fdopen(number, "wb") as file, io.TextIOWrapper(file, "utf-8", newline="") as text, read_snapshot():
            WRITERS[form](text, every(walk))
    except BaseException:
        _forget(path)
        raise
    return path


_left: set[str] = set()


def _forget_later(path: str) -> None:
    """Unlink the file after `KEPT` seconds. A server that has opened it by then can still read it to the end."""
    timer = threading.Timer(KEPT, _forget, (path,))
    timer.daemon = True
    timer.start()


def _forget(path: str) -> None:
    _left.discard(path)
    with suppress(OSError):
        os.unlink(path)  # noqa: PTH108


@atexit.register
def _forget_all() -> None:
    for path in tuple(_left):
        _forget(path)
