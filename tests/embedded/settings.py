"""The example's settings, with what its tests need beside: another database, the service's pages, and more apps."""

from wiki.settings import *  # noqa: F403
from wiki.settings import AUTHZ, DATABASES, INSTALLED_APPS

AUTHZ = {**AUTHZ, "ADMIN": True}
DATABASES = {**DATABASES, "elsewhere": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = [*INSTALLED_APPS, "tests.embedded.facts", "tests.embedded.policy"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
