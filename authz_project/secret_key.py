"""Whether the secret that signs logins can be guessed."""

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

WELL_KNOWN = ("secret", "changeme", "password", "insecure", "example", "test")
SHORTEST = 32


def secret_that_is_set() -> str:
    try:
        return settings.SECRET_KEY
    except ImproperlyConfigured:  # Django's way to say that it is empty
        return ""


def weakness_of(secret: str) -> str:
    """Say what is wrong with it, and what to do; nothing where it is good."""
    if not secret:
        return "SECRET_KEY is not set; with PostgreSQL, set it to at least 32 random characters"
    known = secret.startswith("django-insecure-") or any(word in secret.lower() for word in WELL_KNOWN)
    if len(secret) < SHORTEST or len(set(secret)) < 8 or known:
        return "SECRET_KEY can be guessed; set it to at least 32 random characters"
    return ""
