from django.apps import AppConfig


class LocalSqlConfig(AppConfig):
    name = "localsql"
    verbose_name = "Local SQL"
