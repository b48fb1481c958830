"""Errors whose message is meant for the caller.

`AuthzError` is a mistake of the caller. `Unavailable` is temporary, and the request can be retried. Any other exception
is a fault of the service. Errors in a policy's text are in `policy.language.source`.
"""

LONGEST_LINE = 500  # characters


def one_line(error: object) -> str:
    """Return an error's message, or any text, as one line of limited length."""
    return " ".join(str(error).split())[:LONGEST_LINE]


class AuthzError(Exception):
    """A mistake of the caller; `message` says what happened and what to do."""

    def __init__(self, message: str):
        super().__init__(message)
        self.message = message

    @property
    def body(self) -> dict[str, object]:
        """Return the response's JSON; some errors have more members than a message."""
        return {"message": self.message}


class Unavailable(Exception):
    """The request cannot be served now; the same request can be retried. `message` says why."""

    def __init__(self, message: str):
        super().__init__(message)
        self.message = message


class Busy(Unavailable):
    """A change timed out waiting for other changes, and was not made."""

    def __init__(self, seconds: float):
        super().__init__(
            f"timed out after {seconds:g} seconds waiting for other changes (WRITE_TIMEOUT); nothing changed; try again"
        )


class Cancelled(Unavailable):
    """The database cancelled a statement, at its timeout or on request."""

    def __init__(self) -> None:
        super().__init__("the database cancelled the query; try again")


class NoPrimary(Unavailable):
    """The database server is read-only: it is a standby, or has become one."""

    def __init__(self) -> None:
        super().__init__("the database is read-only; nothing changed; try again later")


class MalformedRequest(AuthzError):
    """The request has the wrong structure; `path` says where, such as `[0].inserts[3].args[1].id`."""

    def __init__(self, path: str, reason: str):
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}" if path else reason)


class KeyRefused(AuthzError):
    """The key is missing, unknown, revoked or expired; the caller is not told which."""

    def __init__(self, message: str = "API key missing, unknown, expired or revoked; send `Authorization: Bearer KEY`"):
        super().__init__(message)


class ScopeMissing(KeyRefused):
    """The key is valid, but lacks the scope."""

    def __init__(self, scope: str):
        self.scope = scope
        super().__init__(
            f"the API key lacks the scope `{scope}`; add the scope in the admin,"
            f" or create another key with `api_keys create --scope {scope}`"
        )


class NotFound(AuthzError):
    """What the request names does not exist."""


class IsCopy(AuthzError):
    """A change was to be made in the database of a follower."""

    def __init__(self) -> None:
        super().__init__("this database is the copy of a follower; make the change at the main service")


class Moved(KeyRefused):
    """The environment lives in another space now, where the key opens it."""

    def __init__(self) -> None:
        super().__init__("the environment was moved to another space; try again")


class TooLarge(AuthzError):
    """The request exceeds a limit, which `message` names."""
