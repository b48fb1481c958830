"""Django's command, with fewer system checks, so that it starts faster, and for databases of all earlier versions."""

from contextlib import nullcontext
from typing import Any

from django.core.checks import Tags
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

from authz_project.database import state_of_database
from authz_project.secret_key import prepare_folder
from authz_project.spaces import prepare
from policy.core.spaces import current, everywhere
from policy.errors import Unavailable

# Labels that apps had before, `policy` in place of `authz_policy`, and their last migrations.
OLD_LABELS = {"policy": "0007_table_prefix", "facts": "0007_delete_fact", "localsql": "0002_table_prefix"}


class Command(migrate.Command):
    def check(self, *args: Any, **options: Any) -> None:
        """Check models and database only: the other checks import every page, and are what `check` is for."""
        super().check(*args, **options | {"tags": [Tags.models, Tags.database]})

    def handle(self, *args: Any, **options: Any) -> None:
        alias, is_dry = options["database"], options["plan"] or options["check_unapplied"]
        if not is_dry:
            new = prepare_folder()
            if new and options["verbosity"]:
                self.stdout.write(f"Created {', '.join(new)}")
        with transaction.atomic(alias) if is_dry else nullcontext():
            replace_labels(connections[alias])
            super().handle(*args, **options)
            if is_dry:
                transaction.set_rollback(True, alias)
        if is_dry:
            return
        forget_labels(connections[alias])
        # An earlier state of the schema may have no table of spaces.
        has_spaces = "authz_space" in connections[alias].introspection.table_names()
        try:
            for space in everywhere() if has_spaces and alias == DEFAULT_DB_ALIAS and not current() else ():
                if space and not state_of_database().is_current:
                    super().handle(*args, **options)
                    prepare(space)
        except Unavailable as reason:
            raise CommandError(reason.message) from None


def replace_labels(connection: BaseDatabaseWrapper) -> None:
    """Give migrations and content types, on which permissions depend, the apps' present labels.

    Migrations of the last version with the old labels keep them, too: servers of that version, and those that are
    started meanwhile, find that the schema is theirs.
    """
    applied, tables = _applied(connection), {*connection.introspection.table_names()}
    is_ours = "authz_environment" in tables or {"environment", "policy_version"} <= tables  # not another app `policy`
    if not is_ours or "policy" not in applied or "authz_policy" in applied:
        return
    labels = ", ".join(f"'{label}'" for label in OLD_LABELS)
    of_last = all(name in applied.get(label, ()) for label, name in OLD_LABELS.items())
    with transaction.atomic(connection.alias), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied)"
            f" SELECT 'authz_' || app, name, applied FROM django_migrations WHERE app IN ({labels}) ORDER BY id"
        )
        if not of_last:
            cursor.execute(f"DELETE FROM django_migrations WHERE app IN ({labels})")
        if "django_content_type" in tables:
            cursor.execute(
                f"UPDATE django_content_type SET app_label = 'authz_' || app_label WHERE app_label IN ({labels})"
            )


def forget_labels(connection: BaseDatabaseWrapper) -> None:
    """Remove the old labels' migrations once there are later ones, so that servers of that version are not ready."""
    applied = _applied(connection)
    for label, last in OLD_LABELS.items():
        if last in applied.get(label, ()) and max(applied[f"authz_{label}"]) > last:
            with connection.cursor() as cursor:
                cursor.execute("DELETE FROM django_migrations WHERE app = %s", [label])


def _applied(connection: BaseDatabaseWrapper) -> dict[str, set[str]]:
    """Return the names of applied migrations by label."""
    found: dict[str, set[str]] = {}
    for label, name in MigrationRecorder(connection).applied_migrations():
        found.setdefault(label, set()).add(name)
    return found
