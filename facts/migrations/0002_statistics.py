"""What PostgreSQL is to think of the columns of facts, so that it always takes the index that leads to the fewest."""

from django.db import migrations

# Of a signature that is newer than the statistics, PostgreSQL thinks that it has no facts, and that all of them may as
# well be read. Without statistics it thinks the same of every signature. (The type stays; to set it drops what is known.)
# In the middle stand names mostly: roles, relations. Counted together with ids they seem rare, and an index that begins
# with the name is taken for facts whose last id is known too: it leads to all facts with that name.
SAID = (
    "ALTER TABLE fact ALTER COLUMN sig TYPE integer",
    "ALTER TABLE fact ALTER COLUMN sig SET STATISTICS 0",
    "ALTER TABLE fact ALTER COLUMN a1 SET (n_distinct = 10)",
)
UNSAID = (
    "ALTER TABLE fact ALTER COLUMN sig SET STATISTICS -1",
    "ALTER TABLE fact ALTER COLUMN a1 RESET (n_distinct)",
)


def say(apps, schema_editor) -> None:
    _execute(schema_editor, SAID)


def unsay(apps, schema_editor) -> None:
    _execute(schema_editor, UNSAID)


def _execute(schema_editor, statements: tuple[str, ...]) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for statement in statements:
            schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("authz_facts", "0001_initial")]
    operations = [migrations.RunPython(say, unsay)]
