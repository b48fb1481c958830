#!/usr/bin/env python
"""The command line: `manage.py serve` runs the service, `manage.py help` lists the rest."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import OperationalError, ProgrammingError

UNDEFINED_TABLE = "42P01"  # PostgreSQL's code


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "authz_project.settings")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as reason:
        sys.exit(f"error: {reason}")
    except (OperationalError, ProgrammingError) as reason:
        if not lacks_tables(reason):
            raise
        sys.exit("error: the database is not prepared: `manage.py serve` does so as it starts, or `manage.py migrate`")


def lacks_tables(error: Exception) -> bool:
    return str(error).startswith("no such table") or getattr(error.__cause__, "sqlstate", "") == UNDEFINED_TABLE


if __name__ == "__main__":
    main()
