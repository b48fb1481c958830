"""The logged-in user of the admin, and what this user may see."""

from django.http import HttpRequest

from policy.ground.journal import By


def by_admin(request: HttpRequest) -> By:
    """Return the logged-in user, as the author of a revision."""
    return By(f"admin {request.user.get_username()}", getattr(request, "request_id", ""))


def may_view_facts(request: HttpRequest) -> bool:
    """Say whether the user may see stored facts, and so their number."""
    return any(request.user.has_perm(f"facts.{what}_signature") for what in ("view", "change"))
