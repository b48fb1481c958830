"""The types of the client's answers, as the description of the interface has them.

python -m tests.client_types > authz_project/client_types.py
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import django
from django.utils.module_loading import import_string

ROOTS = (
    "AccessReview", "Actions", "ActivePolicy", "ChangeMade", "Changes", "Decision", "Decisions", "EvaluatedMany",
    "ExplainedCheck", "Fact", "FactPattern", "History", "Listing", "Message", "Metadata", "NewFact", "PolicyPreview",
    "Solutions", "StoredFact", "Value",
)  # fmt: skip
HEAD = '''"""Types of answers and facts, generated from the OpenAPI document by `python -m tests.client_types`."""

# ruff: noqa: E501, RUF036  generated
# fmt: off

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict
'''
SUFFIX = "Json"  # classes without it are those of the service
SIMPLE = {"string": "str", "integer": "int", "boolean": "bool", "null": "None", "object": "dict[str, Any]"}


class Types:
    """Writes types, those of the schemas that they name, and those of objects within, named by where they are."""

    def __init__(self, schemas: Mapping[str, dict]):
        self.schemas = schemas
        self.written: dict[str, dict[str, str] | None] = {}

    def named(self, name: str) -> str:
        schema = self.schemas[name]
        if "properties" not in schema:
            return self.of(schema, name)
        if name not in self.written:
            self.written[name] = None
            self.written[name] = dict(self._members(schema, name))
        return f"{name}{SUFFIX}"

    def _members(self, schema: dict, name: str) -> Iterator[tuple[str, str]]:
        for member, inner in schema["properties"].items():
            found = self.of(inner, name + "".join(word.title() for word in member.removesuffix("s").split("_")))
            yield member, found if member in schema["required"] else f"NotRequired[{found}]"

    def of(self, schema: dict, place: str) -> str:
        match schema:
            case {"$ref": target}:
                return self.named(target.rsplit("/", 1)[-1])
            case {"anyOf": options} | {"oneOf": options}:
                return " | ".join(dict.fromkeys(self.of(each, place) for each in options))
            case {"const": value}:
                return f"Literal[{value!r}]"
            case {"enum": values}:
                return f"Literal[{', '.join(map(repr, values))}]"
            case {"type": "array", "items": items}:
                return f"list[{self.of(items, place)}]"
            case {"properties": _}:
                return self._inner(schema, place)
            case {"type": "object", "additionalProperties": dict(values)}:
                return f"dict[str, {self.of(values, place)}]"
            case {"type": list(names)}:
                return " | ".join(SIMPLE[name] for name in names)
            case {"type": name}:
                return SIMPLE[name]
        return "Any"

    def _inner(self, schema: dict, place: str) -> str:
        """Write an object without a name, unless one like it is written."""
        members = dict(self._members(schema, place))
        same = next((name for name, other in self.written.items() if other == members), place)
        self.written.setdefault(same, members)
        return f"{same}{SUFFIX}"


def text(schemas: Mapping[str, dict[str, Any]]) -> str:
    types = Types(schemas)
    types.named("Value")
    for name in ROOTS:
        types.named(name)
    blocks = [HEAD]
    for name, members in sorted(types.written.items()):
        lines = "".join(f"    {member}: {written}\n" for member, written in members.items())
        blocks.append(f"\nclass {name}{SUFFIX}(TypedDict):\n{lines}")
    return "\n".join(blocks)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    print(text(import_string("authz_project.openapi.schemas.SHAPES")), end="")
