"""Django for programs that are started by themselves, and not by pytest."""

import os

import django


def set_up(database_url: str = "sqlite:///unused") -> None:
    """Make the project's settings those of this process, and import its apps."""
    made_up = {"SECRET_KEY": "x" * 50, "DATABASE_URL": database_url}
    os.environ |= {"DJANGO_SETTINGS_MODULE": "authz_project.settings", **made_up}
    django.setup()
