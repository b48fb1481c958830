"""What can be wrong with a fact."""

from policy.errors import AuthzError


class FactRejected(AuthzError):
    """Well formed, but not a fact that the active policy can use."""

    def __init__(self, path: str, reason: str, hint: str = ""):
        self.path = path
        advice = f" ({hint})" if hint else ""
        super().__init__(f"{path}: {reason}{advice}" if path else f"{reason}{advice}")
