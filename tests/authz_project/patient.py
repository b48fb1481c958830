"""The product's settings for a server that never refuses a request because others wait."""

import math

from authz_project.server import workers
from authz_project.settings import *  # noqa: F403

workers.BURST = math.inf
