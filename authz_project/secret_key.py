"""The secret that signs logins: creating it beside an SQLite database, and checking its strength."""

import os
import secrets
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from authz_project.settings import secret_file

WELL_KNOWN = ("secret", "changeme", "password", "insecure", "example", "test")
SHORTEST = 32


def prepare_folder() -> list[str]:
    """Create the SQLite database's file, its secret unless SECRET_KEY is set, and a `.gitignore` that lists both.

    Existing files are not changed, except that lines may be added to a `.gitignore`. Return the names of new files.
    """
    if connection.vendor != "sqlite":
        return []
    database = Path(connection.settings_dict["NAME"]).absolute()
    secret = secret_file(database)
    missing = [path for path in (database, secret, database.parent / ".gitignore") if not path.exists()]
    if not database.exists() or not (secret_that_is_set() or secret.exists()):
        ignore_in_git(database.parent, *[f"{database.name}{end}" for end in ("", "-shm", "-wal")], secret.name)
    if not database.exists():
        database.touch(0o600)  # connections treat an empty file as an empty database
    if not secret_that_is_set():
        settings.SECRET_KEY = _made(secret)
    return [path.name for path in missing if path.exists()]


def ignore_in_git(folder: Path, *names: str) -> None:
    """Add the names to `.gitignore`. If the folder is not writable, there is no repository of ours."""
    path = folder / ".gitignore"
    with suppress(OSError, UnicodeDecodeError):
        text = path.read_text() if path.exists() else ""
        lines = text.splitlines()
        if missing := [name for name in names if not any(fnmatch(name, line.strip().lstrip("/")) for line in lines)]:
            gap = "" if not text or text.endswith("\n") else "\n"
            path.write_text(text + gap + "".join(f"/{name}\n" for name in missing))


def is_in_repository(folder: Path) -> bool:
    """Return whether git may track files of the folder: it, or a folder above it, has a `.git` or a `.gitignore`."""
    return any((each / name).exists() for each in (folder, *folder.parents) for name in (".git", ".gitignore"))


def _made(path: Path) -> str:
    """Return the secret in the file, which is created on first use and readable by its owner only."""
    if not path.exists():
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        file = os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w")
        try:
            with file:
                file.write(secrets.token_urlsafe(48))
            with suppress(FileExistsError):  # another process was first: use its secret
                os.link(draft, path)
        finally:
            draft.unlink()
    return path.read_text().strip()


def secret_that_is_set() -> str:
    try:
        return settings.SECRET_KEY
    except ImproperlyConfigured:  # raised by Django if it is empty
        return ""


def weakness_of(secret: str) -> str:
    """Return what is wrong with the secret, and what to do; empty if it is strong enough."""
    if not secret:
        return "SECRET_KEY is not set. Set it to at least 32 random characters."
    known = secret.startswith("django-insecure-") or any(word in secret.lower() for word in WELL_KNOWN)
    if len(secret) < SHORTEST or len(set(secret)) < 8 or known:
        return "SECRET_KEY can be guessed. Set it to at least 32 random characters."
    return ""
