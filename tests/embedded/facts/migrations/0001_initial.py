from django.db import migrations, models

ID = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


class Migration(migrations.Migration):
    operations = [migrations.CreateModel("Signature", [("id", ID), ("text", models.TextField())])]
