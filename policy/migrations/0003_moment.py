import policy.models
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("authz_policy", "0002_signature_mark"),
    ]

    operations = [
        migrations.AddField(
            model_name="environment",
            name="moment",
            field=models.BigIntegerField(default=policy.models.new_moment, editable=False),
        ),
    ]
