"""Past facts may be deleted while they are replicated, such as when Citus moves them: they have no key to name them by."""

from django.db import migrations


def identify(apps, schema_editor) -> None:
    _execute(schema_editor, "FULL")


def forget(apps, schema_editor) -> None:
    _execute(schema_editor, "DEFAULT")


def _execute(schema_editor, by: str) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"ALTER TABLE authz_past_fact REPLICA IDENTITY {by}")


class Migration(migrations.Migration):
    dependencies = [("authz_facts", "0007_delete_fact")]
    operations = [migrations.RunPython(identify, forget)]
