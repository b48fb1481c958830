"""Keys have scopes, of which those of before have all; they say who made them, and which key took their place."""

import django.db.models.deletion
from django.db import migrations, models


def scope(what: str) -> models.BooleanField:
    return models.BooleanField(db_default=True, default=True, verbose_name=what)


class Migration(migrations.Migration):
    dependencies = [("authz_project", "0002_login_attempts")]

    operations = [
        migrations.AddField("apikey", "may_read", scope("read")),
        migrations.AddField("apikey", "may_change_facts", scope("change facts")),
        migrations.AddField("apikey", "may_change_policy", scope("publish policies")),
        migrations.AddField("apikey", "created_by", models.TextField(blank=True, db_default="", default="")),
        migrations.AddField(
            "apikey",
            "successor",
            models.ForeignKey(
                blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+",
                to="authz_project.apikey",
            ),
        ),
        migrations.AlterField(
            "apikey", "last_used_at", models.DateTimeField(blank=True, null=True, verbose_name="last used")
        ),
    ]  # fmt: skip
