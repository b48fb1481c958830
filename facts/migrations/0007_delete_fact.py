from django.db import migrations


class Migration(migrations.Migration):
    """Forget the model of the fact table, which it never managed: the table stays as it is."""

    dependencies = [("authz_facts", "0006_table_prefix")]

    operations = [migrations.DeleteModel(name="Fact")]
