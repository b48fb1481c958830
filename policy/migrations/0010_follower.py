"""An environment can be a copy of one of another service, which it follows."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("authz_policy", "0009_approval")]

    operations = [
        migrations.AddField("environment", "follows", models.TextField(default="", db_default="", editable=False))
    ]
