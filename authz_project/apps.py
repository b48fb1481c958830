from django.apps import AppConfig
from django.contrib.admin.apps import SimpleAdminConfig
from django.core import checks
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate
from django.utils.module_loading import import_string

from policy.core.clock import meet_connection
from policy.core.spaces import HOME, current


class AuthzProjectConfig(AppConfig):
    default = True  # of the two in this module
    name = "authz_project"
    verbose_name = "Access"
    default_auto_field = "django.db.models.AutoField"

    def ready(self) -> None:
        connection_created.connect(meet_connection)
        post_migrate.connect(create_roles, sender=self)
        checks.register(check_service, "service")
        checks.register(check_deployment, "service", deploy=True)


class ConsoleConfig(SimpleAdminConfig):
    """Django's admin, with this service's console as its site."""

    default_site = "authz_project.console.Console"


def create_roles(**migrated: object) -> None:
    """Create the groups of the admin's roles. The module is imported here because models are not loaded before.

    Groups, like users, are in the home database only.
    """
    if current() == HOME:
        import_string("authz_project.roles.create_groups")(**migrated)


def check_service(app_configs: object, **options: object) -> list[checks.CheckMessage]:
    """Check settings and files. The module is imported here so that other commands start faster."""
    found: list[checks.CheckMessage] = import_string("authz_project.system_checks.quick")()
    return found


def check_deployment(app_configs: object, **options: object) -> list[checks.CheckMessage]:
    """Check the settings recommended for production, and the database."""
    found: list[checks.CheckMessage] = import_string("authz_project.system_checks.deployment")()
    return found
