"""Tables get a prefix. Indexes keep their names: SQLite could only build them anew."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("authz_facts", "0005_signature_narrow"), ("authz_policy", "0007_table_prefix")]

    operations = [
        migrations.AlterModelTable(name="signature", table="authz_signature"),
        migrations.AlterModelTable(name="fact", table="authz_fact"),  # is not managed: this changes the state only
        *[
            migrations.RunSQL(f"ALTER TABLE {name} RENAME TO authz_{name}", f"ALTER TABLE authz_{name} RENAME TO {name}")
            for name in ("fact", "past_fact")
        ],
    ]
