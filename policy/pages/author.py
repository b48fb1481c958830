"""Who is at work in the admin."""

from django.http import HttpRequest

from policy.revisions import By


def by_admin(request: HttpRequest) -> By:
    """Whoever is logged in."""
    return By(f"admin {request.user.get_username()}", getattr(request, "request_id", ""))


def may_view_facts(request: HttpRequest) -> bool:
    """Whether they may see what is stored, and so how much of it there is."""
    return any(request.user.has_perm(f"facts.{what}_signature") for what in ("view", "change"))
