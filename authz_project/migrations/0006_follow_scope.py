"""Following has a scope of its own, which those keys get that have all others."""

from django.db import migrations, models


def fill(apps, schema_editor):
    keys = apps.get_model("authz_project", "ApiKey").objects
    keys.filter(may_read=True, may_change_facts=True, may_change_policy=True).update(may_follow=True)


class Migration(migrations.Migration):
    dependencies = [("authz_project", "0005_scim_members")]

    operations = [
        migrations.AddField(
            "apikey", "may_follow", models.BooleanField(db_default=False, default=True, verbose_name="follow")
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
