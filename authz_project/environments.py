"""Environments by name, made where they are missing and may be."""

from django.core.exceptions import ValidationError

from authz_project.keys import TEST_SLUG
from policy.errors import AuthzError
from policy.models import DEFAULT_SLUG, SLUG, Environment, default_environment


class NotAName(AuthzError):
    """A word that cannot be an environment's short name."""


def environment_made(slug: str) -> Environment:
    """Return the environment of that name, which is made if there is none."""
    if slug == DEFAULT_SLUG:
        return default_environment()
    found = Environment.objects.filter(slug=slug).first()
    return found or _made(slug)


def _made(slug: str) -> Environment:
    if TEST_SLUG.fullmatch(slug):
        raise NotAName(f"`{slug}` is a name for test environments, whose keys are good with `serve --dev` only")
    try:
        SLUG(slug)
    except ValidationError as reason:
        raise NotAName(f"`{slug}` names no environment: {reason.message}") from None
    return Environment.objects.create(slug=slug, name=slug)
