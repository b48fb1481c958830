"""Who changes something in the admin."""

from django.http import HttpRequest

from policy.revisions import By


def by_admin(request: HttpRequest) -> By:
    """Whoever is logged in."""
    return By(f"admin {request.user.get_username()}", getattr(request, "request_id", ""))
