from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("authz_policy", "0007_table_prefix")]

    operations = [migrations.AlterModelOptions("policydraft", {"default_permissions": ("edit",)})]
