from django.apps import AppConfig


class AuthzProjectConfig(AppConfig):
    name = "authz_project"
    verbose_name = "Access"
