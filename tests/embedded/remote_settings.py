"""The example's settings with a server instead of the engine: `AUTHZ` is all that differs."""

import os

from tests.embedded.settings import *  # noqa: F403

AUTHZ = {"URL": os.environ["AUTHZ_URL"], "KEY": os.environ["AUTHZ_KEY"]}
