from django.apps import AppConfig
from django.core import checks
from django.db.backends.signals import connection_created
from django.utils.module_loading import import_string

from policy.core.clock import meet_connection


class AuthzProjectConfig(AppConfig):
    name = "authz_project"
    verbose_name = "Access"

    def ready(self) -> None:
        connection_created.connect(meet_connection)
        checks.register(check_service, "service")
        checks.register(check_deployment, "service", deploy=True)


def check_service(app_configs: object, **options: object) -> list[checks.CheckMessage]:
    """Check settings and files. The module is imported here so that other commands start faster."""
    found: list[checks.CheckMessage] = import_string("authz_project.system_checks.quick")()
    return found


def check_deployment(app_configs: object, **options: object) -> list[checks.CheckMessage]:
    """Check the settings recommended for production, and the database."""
    found: list[checks.CheckMessage] = import_string("authz_project.system_checks.deployment")()
    return found
