"""Tables get a prefix, so that they can be in the database of any project.

Migrations of other apps that name tables in SQL come first: they know the names before.
"""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("authz_policy", "0006_note_and_figures"),
        ("authz_facts", "0005_signature_narrow"),
        ("authz_localsql", "0001_initial"),
    ]

    operations = [
        migrations.AlterModelTable(name=name, table=f"authz_{table}")
        for name, table in (
            ("environment", "environment"),
            ("policyversion", "policy_version"),
            ("revision", "revision"),
            ("policydraft", "policy_draft"),
        )
    ]
