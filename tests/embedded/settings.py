"""The example's settings, with what its tests need beside: another database, and the service's pages."""

from wiki.settings import *  # noqa: F403
from wiki.settings import AUTHZ, DATABASES

AUTHZ = {**AUTHZ, "ADMIN": True}
DATABASES = {**DATABASES, "elsewhere": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
