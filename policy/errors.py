"""What went wrong, for the caller to read.

`AuthzError` is the caller's mistake, and `Unavailable` nobody's; anything else that is raised is ours. What is wrong
with a policy's text is in `policy.language.rejection`.
"""

from __future__ import annotations

from policy.scopes import Scope
from policy.testing import TestReport


class AuthzError(Exception):
    """The caller's mistake; `message` says what to do about it."""

    def __init__(self, message: str):
        super().__init__(message)
        self.message = message

    @property
    def body(self) -> dict[str, object]:
        """The answer's JSON; some mistakes have more to say than a message."""
        return {"message": self.message}


class Unavailable(Exception):
    """It cannot be done now, and may be tried again as it is; `message` says why."""

    def __init__(self, message: str):
        super().__init__(message)
        self.message = message


class Busy(Unavailable):
    """A change waited for others that were being made, and is not made."""

    def __init__(self, seconds: float):
        super().__init__(
            f"other changes were being made for longer than {seconds:g} seconds, the limit of WRITE_TIMEOUT;"
            " nothing is changed, try again"
        )


class Cancelled(Unavailable):
    """Somebody had the database end a statement."""

    def __init__(self) -> None:
        super().__init__("the database cancelled a statement before it was done; try again")


class NoPrimary(Unavailable):
    """The server takes no changes, or not any more."""

    def __init__(self) -> None:
        super().__init__("the database takes no changes now, and nothing is changed; try again")


class PolicyTestsFailed(AuthzError):
    """The text is a policy, but not one that does what its own tests say."""

    def __init__(self, report: TestReport):
        self.report = report
        failed = sum(bool(test.failures) for test in report.tests)
        verb = "fails" if failed == 1 else "fail"
        super().__init__("\n".join([f"{failed} of the policy's tests {verb}:", *report.errors]))

    @property
    def body(self) -> dict[str, object]:
        results = {
            "success": False,
            "errors": [{"error_type": "AssertionFailed", "message": text} for text in self.report.errors],
            "tests": [{"name": t.name, "passed": t.passed, "total": t.total} for t in self.report.tests],
        }
        return {"error_type": "TestsFailed", "message": self.message, "test_results": results}


class MalformedRequest(AuthzError):
    """The request does not have the shape that it should; `path` says where, as `[0].inserts[3].args[1].id`."""

    def __init__(self, path: str, reason: str):
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}" if path else reason)


class KeyRefused(AuthzError):
    """No key, or one that is unknown, revoked or expired: which of them is not said."""

    def __init__(self, message: str = "the API key is missing, unknown, expired or revoked"):
        super().__init__(message)


class ScopeMissing(KeyRefused):
    """The key is good, but not for this."""

    def __init__(self, scope: Scope):
        self.scope = scope
        super().__init__(
            f"the API key lacks the scope `{scope}`; whoever runs the service gives it to the key in the admin,"
            f" or makes one that has it: create_api_key --scope {scope}"
        )


class NotFound(AuthzError):
    """What was asked for by name does not exist."""


class TooLarge(AuthzError):
    """The request passes a limit, which `message` names."""
