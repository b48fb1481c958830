from django.db import migrations, models


class Migration(migrations.Migration):
    operations = [
        migrations.CreateModel("Signature", [("id", models.BigAutoField(primary_key=True)), ("text", models.TextField())])
    ]
