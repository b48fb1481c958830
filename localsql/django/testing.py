"""Test a project's policy and views: facts in one line, and assertions that say why (with pytest, `pytest_plugin`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import localsql.django as authz


class Authorized:
    """A mixin for Django's `TestCase`.

    self.fact("has_role", self.ann, "viewer", self.folder)
    self.assert_allowed(self.ann, "read", self.document)
    """

    addCleanup: Callable[[Callable[[], object]], object]

    def policy(self, text: str) -> None:
        self.addCleanup(authz.publish_policy(text))

    def fact(self, predicate: str, *args: Any) -> None:
        authz.facts.insert((predicate, *args))

    def assert_allowed(self, user: object, action: str, resource: object) -> None:
        if not authz.authorize(user, action, resource):
            raise AssertionError(f"should be allowed:\n{authz.explain(user, action, resource)}")

    def assert_denied(self, user: object, action: str, resource: object) -> None:
        if authz.authorize(user, action, resource):
            raise AssertionError(f"should be denied:\n{authz.explain(user, action, resource)}")
