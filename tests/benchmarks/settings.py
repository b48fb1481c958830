"""The product's settings for a server that is measured: with the path of the empty view, which the product has not."""

from authz_project.settings import *  # noqa: F403

ROOT_URLCONF = "tests.benchmarks.empty_view"
