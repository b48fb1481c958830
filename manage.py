#!/usr/bin/env python
"""The command line: `manage.py serve` runs the service, `manage.py help` lists the rest."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "authz_project.settings")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as reason:
        sys.exit(f"error: {reason}")


if __name__ == "__main__":
    main()
