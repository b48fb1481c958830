"""How PostgreSQL's own programs dump and restore a database: the call, word for word, without a password."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Of the connection's options, those that say where the database is and how to reach it. The password of a key's file is
# none of them: whoever lists the processes would see it.
_OF_LIBPQ = re.compile(
    r"ssl(?!password$)\w*|channel_binding|gss\w*|krbsrvname|require_auth|requirepeer|service|passfile|hostaddr|"
    r"target_session_attrs|load_balance_hosts"
)

_PARTS = {"host": "HOST", "port": "PORT", "user": "USER", "dbname": "NAME"}


def conninfo(config: Mapping[str, Any]) -> str:
    """Return where the database of Django's settings is, as libpq reads it; without the password."""
    named = {libpq: config.get(django) for libpq, django in _PARTS.items()}
    options = {name: value for name, value in (config.get("OPTIONS") or {}).items() if _OF_LIBPQ.fullmatch(name)}
    return " ".join(f"{name}={_quoted(str(value))}" for name, value in {**named, **options}.items() if value)


def _quoted(value: str) -> str:
    if re.fullmatch(r"[^\s'\\]+", value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def dump_call(config: Mapping[str, Any], file: Path) -> str:
    """Return what to type into a shell. The dump is its owner's alone, and has its name once all of it is there."""
    how, part = ("--format=custom", "--no-owner", "--no-privileges"), file.with_name(f"{file.name}.part")
    call = shlex.join(["pg_dump", *how, f"--file={part}", f"--dbname={conninfo(config)}"])
    return f"(umask 077; {call} && {shlex.join(['mv', '--', str(part), str(file)])})"


def has_key_password(config: Mapping[str, Any]) -> bool:
    """Say whether the connection's own key is encrypted: libpq takes that password in no variable."""
    return bool((config.get("OPTIONS") or {}).get("sslpassword"))


def password_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the variable that gives the password to a program that is to reach the database, if there is one."""
    return {"PGPASSWORD": str(config["PASSWORD"])} if config.get("PASSWORD") else {}
