"""Tables get a prefix."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("authz_localsql", "0001_initial"), ("authz_policy", "0007_table_prefix")]

    operations = [
        migrations.AlterModelTable(name="outboxstate", table="authz_outbox_state"),
        migrations.AlterModelTable(name="outboxrow", table="authz_outbox_row"),
    ]
