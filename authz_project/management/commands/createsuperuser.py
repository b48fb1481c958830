"""Django's command, without system checks, so that it starts faster."""

from django.contrib.auth.management.commands import createsuperuser


class Command(createsuperuser.Command):
    requires_system_checks = ()  # as for the service's own commands
    requires_migrations_checks = False  # `serve` and `/readyz` report migrations; this needs only the table of users
