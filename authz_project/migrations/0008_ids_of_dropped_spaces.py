"""Spaces that were dropped keep their rows, so that their ids are not given again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("authz_project", "0007_spaces")]

    operations = [
        migrations.AddField("space", "ids_given", models.PositiveIntegerField(db_default=0, default=0)),
    ]
