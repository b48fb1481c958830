"""The service's settings, for machines that have much else to do: what is asked in a test may take its time.

Tests of the limits set them as they need them; servers that tests start inherit these.
"""

import os

os.environ.setdefault("STATEMENT_TIMEOUT", "100")

from authz_project.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # those for people take a second on purpose
WHITENOISE_AUTOREFRESH = True  # each test client would read all static files first
