from django.apps import AppConfig
from django.db.backends.signals import connection_created

PREPARED_STATEMENTS = 2000  # for each connection: one for every shape of question


class AuthzProjectConfig(AppConfig):
    name = "authz_project"
    verbose_name = "API keys"

    def ready(self) -> None:
        connection_created.connect(keep_more_statements, dispatch_uid="keep_more_statements")


def keep_more_statements(connection, **_) -> None:
    """The one setting of a connection that Django has no option for."""
    if connection.vendor == "postgresql":
        connection.connection.prepared_max = PREPARED_STATEMENTS
