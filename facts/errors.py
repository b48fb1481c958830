"""What can be wrong with a fact."""

from facts.unused import Kind
from policy.errors import AuthzError


class FactRejected(AuthzError):
    """Well formed, but not a fact that the active policy can use."""

    def __init__(self, path: str, kind: Kind):
        self.path = path
        super().__init__(f"{path}: the fact {kind}" if path else f"the fact {kind}")
