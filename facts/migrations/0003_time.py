"""Facts know since when they are stored and when they end; what is deleted is kept as a past fact.

A past fact held from revision `since` on, and no more from `until` on. Its indexes lead with each argument in turn, and
then with `until`: a question as of a revision reads what ended later, however much history there is before. Those by
`since` and by `until` are for reading what changed between two revisions.
"""

from django.db import migrations, models

SQLITE = """
CREATE TABLE past_fact (
    sig INTEGER NOT NULL,
    a0 TEXT NOT NULL COLLATE BINARY,
    a1 TEXT NOT NULL COLLATE BINARY,
    a2 TEXT NOT NULL COLLATE BINARY,
    a3 TEXT NOT NULL COLLATE BINARY,
    a4 TEXT NOT NULL COLLATE BINARY,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    expires_at INTEGER
)
"""
POSTGRESQL = """
CREATE TABLE past_fact (
    sig integer NOT NULL,
    a0 text COLLATE "C" NOT NULL,
    a1 text COLLATE "C" NOT NULL,
    a2 text COLLATE "C" NOT NULL,
    a3 text COLLATE "C" NOT NULL,
    a4 text COLLATE "C" NOT NULL,
    since bigint NOT NULL,
    until bigint NOT NULL,
    expires_at bigint
)
"""
COLUMNS = (
    "ALTER TABLE fact ADD COLUMN since bigint NOT NULL DEFAULT 0",
    "ALTER TABLE fact ADD COLUMN expires_at bigint",
)
INDEXES = (
    "CREATE INDEX fact_since ON fact (sig, since)",
    "CREATE INDEX fact_expires_at ON fact (expires_at) WHERE expires_at IS NOT NULL",
    "CREATE INDEX past_fact_a0 ON past_fact (sig, a0, until)",
    "CREATE INDEX past_fact_a1 ON past_fact (sig, a1, until)",
    "CREATE INDEX past_fact_a2 ON past_fact (sig, a2, until) WHERE a2 <> ''",
    "CREATE INDEX past_fact_a3 ON past_fact (sig, a3, until) WHERE a3 <> ''",
    "CREATE INDEX past_fact_a4 ON past_fact (sig, a4, until) WHERE a4 <> ''",
    "CREATE INDEX past_fact_since ON past_fact (sig, since)",
    "CREATE INDEX past_fact_until ON past_fact (sig, until)",
)
UNDONE = (
    "DROP TABLE past_fact",
    "DROP INDEX fact_since",
    "DROP INDEX fact_expires_at",
    "ALTER TABLE fact DROP COLUMN expires_at",
    "ALTER TABLE fact DROP COLUMN since",
)


def make(apps, schema_editor) -> None:
    tables = {"sqlite": SQLITE, "postgresql": POSTGRESQL}
    for statement in (*COLUMNS, tables[schema_editor.connection.vendor], *INDEXES):
        schema_editor.execute(statement)


def undo(apps, schema_editor) -> None:
    for statement in UNDONE:
        schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("authz_facts", "0002_statistics"), ("authz_policy", "0004_revisions")]

    operations = [
        migrations.AddField(
            model_name="signature",
            name="may_end",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.RunPython(make, undo),
    ]
