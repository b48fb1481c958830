from django.apps import AppConfig


class ChecksConfig(AppConfig):
    name = "checks"
    label = "authz_checks"
    verbose_name = "Checks"
