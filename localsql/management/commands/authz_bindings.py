"""Print the bindings of a project's models as data bindings, for other programs that use local SQL."""

from typing import Any

import yaml
from django.core.management.base import BaseCommand
from django.db import DEFAULT_DB_ALIAS, connections

from checks.engine.sql.bound import BoundColumn
from checks.engine.sql.text import IdKind
from localsql.binding_keys import key_from_text
from localsql.django.bindings import registry
from localsql.django.tables import table_of

_TYPES = {IdKind.TEXT: "text", IdKind.COLLATED: "text", IdKind.INTEGER: "bigint", IdKind.BOOLEAN: "boolean"}


class Command(BaseCommand):
    help = "Print the bindings of this project's models as data bindings (YAML) for local SQL."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(yaml.safe_dump(document(), sort_keys=False, width=120), ending="")


def document() -> dict[str, object]:
    connection = connections[DEFAULT_DB_ALIAS]
    found: dict[str, object] = {}
    for binding in registry.bindings:
        table = table_of(binding, connection)
        kinds = [each.kind for each in table.args if isinstance(each, BoundColumn)]
        uuid = "uuid" if connection.vendor == "postgresql" else "text"
        entry = {"query": table.sql, "sql_types": [_TYPES.get(kind, uuid) for kind in kinds]}
        found[str(key_from_text(binding.text))] = entry
    return {"dialect": "postgres" if connection.vendor == "postgresql" else "sqlite", "facts": found}
