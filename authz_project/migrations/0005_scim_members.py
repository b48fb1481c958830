import json

from django.db import migrations, models


def fill(apps, schema_editor):
    resources = apps.get_model("authz_project", "ScimResource").objects
    users = dict(resources.filter(kind="Users").values_list("uid", "pk"))
    for row in resources.iterator():
        found = json.loads(row.resource)
        row.title = found["userName" if row.kind == "Users" else "displayName"]
        row.save(update_fields=["title"])
        if row.kind == "Groups":
            row.members.set(users[each["value"]] for each in found.get("members") or () if each["value"] in users)


class Migration(migrations.Migration):
    dependencies = [("authz_project", "0004_scim")]

    operations = [
        migrations.AddField("scimresource", "title", models.CharField(default="", max_length=512)),
        migrations.AddField(
            "scimresource",
            "members",
            models.ManyToManyField(db_table="scim_member", related_name="groups", to="authz_project.scimresource"),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
