"""Keys remember which user created them: names of users change."""

from django.db import migrations, models


def fill(apps, schema_editor):
    users = apps.get_model("auth", "User").objects.values_list("username", "pk")
    names = {f"admin {name}": number for name, number in users}
    keys = apps.get_model("authz_project", "ApiKey").objects
    for author in keys.filter(created_by__startswith="admin ").values_list("created_by", flat=True).distinct():
        keys.filter(created_by=author).update(created_by_user=names.get(author))


class Migration(migrations.Migration):
    dependencies = [("authz_project", "0008_ids_of_dropped_spaces"), ("auth", "0012_alter_user_first_name_max_length")]

    operations = [
        migrations.AddField("apikey", "created_by_user", models.IntegerField(editable=False, null=True)),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
