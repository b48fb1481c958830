"""The errors of synchronization."""

from __future__ import annotations

import re

from policy.errors import AuthzError, Unavailable

_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


def shown(text: str) -> str:
    """Return what somebody wrote into a row, with control characters escaped, for a terminal or a log."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class ConfigRejected(AuthzError):
    """The file is not what it should be; the message says where, and what to do."""

    def __init__(self, place: str, reason: str, line: int | None = None):
        self.place, self.reason = place, reason
        where = "" if line is None else f"line {line}: "
        super().__init__(f"{where}`{place}`: {reason}" if place else f"{where}{reason}")


class SourceFailed(Unavailable):
    """A database could not be read or written; it may be there again a moment later."""

    def __init__(self, database: str, reason: str):
        self.database = database
        super().__init__(f"`dbs.{database}`: {' '.join(reason.split())}")


class DriverMissing(AuthzError):
    """A driver that only some installations need is not installed."""

    def __init__(self, database: str, module: str, extra: str):
        install = f'`pip install "authz-project[{extra}]"` does'
        super().__init__(f"`dbs.{database}`: the driver {module} is not installed; {install}")


class PatternRefused(AuthzError):
    """The facts of one pattern are left as they are, whatever becomes of the others."""
