"""The service's settings, for machines that have much else to do: what is asked in a test may take its time.

Tests of the limits set them as they need them; servers that tests start inherit these.
"""

import os

os.environ.setdefault("STATEMENT_TIMEOUT", "60")
os.environ.setdefault("PLANNING_TIMEOUT", "20")

from authz_project.settings import *  # noqa: F403
