"""Makes this console Django's admin site."""

from django.contrib.admin.apps import SimpleAdminConfig


class ConsoleConfig(SimpleAdminConfig):
    default_site = "authz_project.console.site.Console"
