import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("authz_policy", "0008_roles"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            "environment",
            "needs_approval",
            models.BooleanField(
                db_default=False,
                default=False,
                help_text="Publishing and activating a policy make a request, which another publisher approves.",
                verbose_name="two persons to publish",
            ),
        ),
        migrations.CreateModel(
            "PublishRequest",
            fields=[
                ("id", models.AutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("replaces", models.PositiveIntegerField()),
                ("force", models.BooleanField()),
                ("author", models.TextField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("outcome", models.TextField(blank=True, default="")),
                ("reviewer", models.TextField(blank=True, default="")),
                ("comment", models.TextField(blank=True, default="")),
                ("decided_at", models.DateTimeField(null=True)),
                (
                    "user",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="requests", to="authz_policy.policyversion"
                    ),
                ),
            ],
            options={"db_table": "authz_publish_request", "ordering": ["-pk"], "default_permissions": ()},
        ),
    ]
