"""Signatures know which arguments lead to few facts, as counted from time to time: plans read those facts first."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("authz_facts", "0004_signature_since")]

    operations = [
        migrations.AddField(
            model_name="signature",
            name="narrow",
            field=models.IntegerField(db_default=0, default=0, editable=False),
        ),
    ]
