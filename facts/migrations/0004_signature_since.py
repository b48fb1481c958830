"""Signatures know at which revision they came: what is asked of an earlier one is planned with those that there were.

Of signatures that are there, the oldest fact says so, as far as there is history. One that no fact is known of may have
been there always.
"""

from django.db import migrations, models

FILLED = """
UPDATE signature SET since = COALESCE((
    SELECT MIN(known.since) FROM (
        SELECT (SELECT MIN(f.since) FROM fact f WHERE f.sig = signature.id) AS since
        UNION ALL SELECT (SELECT MIN(p.since) FROM past_fact p WHERE p.sig = signature.id)
    ) known
), 0)
"""


class Migration(migrations.Migration):
    dependencies = [("authz_facts", "0003_time"), ("authz_policy", "0006_note_and_figures")]

    operations = [
        migrations.AddField(
            model_name="signature",
            name="since",
            field=models.BigIntegerField(db_default=0, default=0, editable=False),
        ),
        migrations.AddIndex(
            model_name="signature",
            index=models.Index(fields=["environment", "since"], name="signature_since"),
        ),
        migrations.RunSQL(FILLED, migrations.RunSQL.noop),
    ]
