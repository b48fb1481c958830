from django.apps import AppConfig
from django.db.backends.signals import connection_created

from policy.ground.clock import meet_connection


class AuthzProjectConfig(AppConfig):
    name = "authz_project"
    verbose_name = "Access"

    def ready(self) -> None:
        connection_created.connect(meet_connection)
