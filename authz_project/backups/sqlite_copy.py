"""A copy of an SQLite file that others write to: whole, as of one moment, and there only once it is on the disk.

The copy is made under another name beside its place, readable by its owner only. One transaction reads all of it, so
that writers neither wait for it nor make it begin again; the file's log grows meanwhile.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

PAGES_AT_ONCE = 4096
Progress = Callable[[float], None]  # is told which share is done
_OF_SQLITE = ("-journal", "-wal", "-shm")


class CannotCopy(Exception):
    """Why no copy was made; nothing is left of it."""


def secret_of(database: Path) -> Path:
    """Return where the secret of a database's logins is kept, if it is kept in a file."""
    return database.with_name(f"{database.name}.secret")


def copy(source: Path, target: Path, overwrite: bool, progress: Progress = lambda share: None) -> None:
    """Copy the database, and the secret beside it; `CannotCopy` says why not."""
    _refuse_place(source, target, overwrite)
    try:
        with _draft_of(target) as database, _draft_of(secret_of(target)) as secret:
            _copy_pages(source, database, progress)
            kept = secret_of(source)
            if kept.exists():
                shutil.copyfile(kept, secret)
            for each in (database, secret):  # before anything is replaced: the disk may have no room for all of it
                _flush(each)
            if kept.exists():
                _put(secret, secret_of(target), overwrite)
            _put(database, target, overwrite)  # last: where it is, all of it is
            if overwrite and not kept.exists():  # the one beside it was of the copy that was there
                secret_of(target).unlink(missing_ok=True)
            with suppress(OSError):  # not every kind of disk can flush folders
                _flush(target.parent)
    except (OSError, sqlite3.Error) as reason:
        raise CannotCopy(f"no copy is made: {_reason_text(reason)}") from None


def _refuse_place(source: Path, target: Path, overwrite: bool) -> None:
    if not target.parent.is_dir():
        raise CannotCopy(f"there is no folder `{target.parent}`")
    if target.is_dir():
        raise CannotCopy(f"`{target}` is a folder: name the file to make")
    if target.exists() and target.samefile(source):
        raise CannotCopy(f"`{target}` is the database itself")
    there = [path for path in (target, secret_of(target)) if path.exists()]
    if there and not overwrite:
        raise CannotCopy(f"`{there[0]}` is there already; --overwrite replaces it")
    if beside := [path for end in _OF_SQLITE if (path := Path(f"{target}{end}")).exists()]:
        raise CannotCopy(f"`{beside[0]}` belongs to a database that is in use at that place; choose another")


@contextmanager
def _draft_of(path: Path) -> Iterator[Path]:
    """Yield an empty file beside the place, which is gone in the end if it was not put there."""
    file, name = tempfile.mkstemp(".part", f".{path.name}.", path.parent)  # its owner's alone
    os.close(file)
    draft = Path(name)
    try:
        yield draft
    finally:
        for end in ("", *_OF_SQLITE):
            Path(f"{draft}{end}").unlink(missing_ok=True)


def _copy_pages(source: Path, draft: Path, progress: Progress) -> None:
    def tell(_: int, remaining: int, total: int) -> None:
        progress(1 - remaining / total if total else 1.0)

    with closing(sqlite3.connect(f"{source.as_uri()}?mode=rw", uri=True, isolation_level=None)) as database:
        database.execute("BEGIN")
        database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()  # from here on it is one moment
        with closing(sqlite3.connect(draft, isolation_level=None)) as copied:
            copied.execute("PRAGMA synchronous = OFF")  # it is flushed once, in the end
            database.backup(copied, pages=PAGES_AT_ONCE, progress=tell, sleep=0.05)
        database.execute("ROLLBACK")


def _put(draft: Path, place: Path, overwrite: bool) -> None:
    if overwrite:
        draft.replace(place)
        return
    try:
        os.link(draft, place)  # fails where somebody else was faster
    except FileExistsError:
        raise CannotCopy(f"`{place}` is there already; --overwrite replaces it") from None
    except OSError:  # no links on this kind of disk
        draft.replace(place)


def _flush(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _reason_text(reason: Exception) -> str:
    if isinstance(reason, OSError):
        return f"{reason.strerror or reason}{f' (`{reason.filename}`)' if reason.filename else ''}"
    return str(reason)
