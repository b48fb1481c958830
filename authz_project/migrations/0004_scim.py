import django.db.models.deletion
from django.db import migrations, models

from authz_project.models import new_uid


class Migration(migrations.Migration):
    dependencies = [("authz_project", "0003_key_scopes"), ("authz_policy", "0007_table_prefix")]

    operations = [
        migrations.CreateModel(
            "ScimResource",
            fields=[
                ("id", models.AutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(max_length=10)),
                ("uid", models.CharField(default=new_uid, max_length=36, unique=True)),
                ("name", models.CharField(max_length=512)),
                ("external_id", models.CharField(max_length=512, null=True)),
                ("resource", models.TextField()),
                ("facts", models.TextField(default="[]")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("changed_at", models.DateTimeField(auto_now=True)),
                (
                    "environment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="authz_policy.environment"
                    ),
                ),
            ],
            options={
                "db_table": "scim_resource",
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("environment", "kind", "name"), name="scim_resource_name"),
                    models.UniqueConstraint(
                        fields=("environment", "kind", "external_id"), name="scim_resource_external_id"
                    ),
                ],
            },
        ),
    ]
