"""The facts that a page shows, as a file: all of them, of one moment.

The file is complete before the first of it is sent. So what goes wrong is an error and no short file, nobody's reading
slowly holds the database up, and none of it is in memory.
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
from facts.one_moment import one_moment
from facts.pages.file_on_disk import FileOnDisk
from facts.walk import Place, every

KEPT = 60.0  # seconds for which a file has its name, by which the server opens it
_ENDINGS = {"json": "jsonl", "csv": "csv", "notation": "txt"}
_TYPES = {"json": "application/jsonl", "csv": "text/csv; charset=utf-8", "notation": "text/plain; charset=utf-8"}
FORMATS = tuple(WRITERS)


def exported(walk: Sequence[Place], form: str, name: str) -> FileOnDisk:
    """Return the facts of a walk as a file to keep."""
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


def _written(walk: Sequence[Place], form: str) -> str:
    number, path = tempfile.mkstemp(prefix="facts-")  # for the eyes of this user only
    _left.add(path)
    try:
        with os.fdopen(number, "wb") as file, io.TextIOWrapper(file, "utf-8", newline="") as text, one_moment():
            WRITERS[form](text, every(walk))
    except BaseException:
        _forget(path)
        raise
    return path


_left: set[str] = set()


def _forget_later(path: str) -> None:
    """Take the file's name away once the server must have opened it, which has what is in it until it is sent."""
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
