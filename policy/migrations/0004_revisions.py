"""Every committed change is a revision from here on. What was stored before is known since the upgrade."""

import django.db.models.deletion
from django.db import migrations, models

from policy.core.clock import now_in


def begin(apps, schema_editor) -> None:
    """Give each environment its first revision, which is its horizon: how things are now."""
    schema_editor.execute(
        "INSERT INTO revision (environment_id, number, at, author, request_id, policy_version_id, kind, inserted, deleted)"
        f" SELECT id, \"offset\", {now_in(schema_editor.connection.vendor)}, '', '', policy_version_id, 'upgrade', 0, 0"
        " FROM environment"
    )
    schema_editor.execute('UPDATE environment SET horizon = "offset"')


class Migration(migrations.Migration):
    dependencies = [("authz_policy", "0003_moment")]

    operations = [
        migrations.AddField(
            model_name="environment",
            name="ends_mark",
            field=models.BigIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.AddField(
            model_name="environment",
            name="horizon",
            field=models.BigIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.CreateModel(
            name="Revision",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "environment", "number", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("number", models.BigIntegerField()),
                ("at", models.BigIntegerField()),
                ("author", models.TextField(blank=True)),
                ("request_id", models.TextField(blank=True)),
                ("kind", models.TextField()),
                ("inserted", models.BigIntegerField()),
                ("deleted", models.BigIntegerField()),
                (
                    "environment",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="revisions",
                        to="authz_policy.environment",
                    ),
                ),
                (
                    "policy_version",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="authz_policy.policyversion",
                    ),
                ),
            ],
            options={
                "db_table": "revision",
                "indexes": [models.Index(fields=["environment", "at"], name="revision_at")],
            },
        ),
        migrations.RunPython(begin, migrations.RunPython.noop),
    ]
