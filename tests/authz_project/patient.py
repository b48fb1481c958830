"""The product's settings for a server that never refuses a request because others wait."""

import math
from importlib import import_module

from django.apps import AppConfig

from authz_project.settings import *  # noqa: F403
from authz_project.settings import INSTALLED_APPS as OF_THE_PRODUCT


class Patient(AppConfig):
    name = "tests.authz_project"
    label = "patient"

    def ready(self) -> None:
        import_module("authz_project.server.workers").BURST = math.inf


INSTALLED_APPS = [*OF_THE_PRODUCT, "tests.authz_project.patient.Patient"]
