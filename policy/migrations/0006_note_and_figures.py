"""Versions keep who published them, with which note, and what their tests came to. Of those before, who is looked up."""

from datetime import timedelta

from django.db import migrations, models

from policy.core.clock import time_of

_TOGETHER = timedelta(minutes=1)  # the clocks of a server and of its database hardly differ by more


def look_up_authors(apps, schema_editor) -> None:
    """Who published a version is who made its first revision, unless that one only made it active again."""
    revisions = apps.get_model("authz_policy", "Revision").objects.filter(kind="policy").order_by("number")
    first: dict[int, tuple[int, str]] = {}
    for version, at, author in revisions.values_list("policy_version_id", "at", "author").iterator():
        first.setdefault(version, (at, author))
    versions = apps.get_model("authz_policy", "PolicyVersion").objects
    for pk, published in versions.values_list("pk", "created_at"):
        at, author = first.get(pk, (0, ""))
        if author and abs(time_of(at) - published) < _TOGETHER:
            versions.filter(pk=pk).update(author=author)


class Migration(migrations.Migration):
    dependencies = [("authz_policy", "0005_draft")]

    operations = [
        migrations.AddField("policyversion", "author", models.TextField(blank=True, db_default="", default="")),
        migrations.AddField("policyversion", "note", models.TextField(blank=True, db_default="", default="")),
        migrations.AddField("policyversion", "tests", models.PositiveIntegerField(null=True)),
        migrations.AddField("policyversion", "failed_tests", models.PositiveIntegerField(null=True)),
        migrations.AddField("policyversion", "rules", models.PositiveIntegerField(null=True)),
        migrations.AddField("policyversion", "exercised_rules", models.PositiveIntegerField(null=True)),
        migrations.RunPython(look_up_authors, migrations.RunPython.noop),
    ]
