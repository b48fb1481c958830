"""JSON schemas, written short."""

from typing import Any

Schema = dict[str, Any]  # JSON


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def text(description: str = "") -> Schema:
    return {"type": "string", **({"description": description} if description else {})}


def many(items: Schema, description: str = "", **limits: int) -> Schema:
    return {"type": "array", "items": items, **limits, **({"description": description} if description else {})}


def nullable(schema: Schema) -> Schema:
    """Return a schema that null meets too: `{"type": "string"}` -> `{"type": ["string", "null"]}`."""
    if schema.get("type") in ("string", "integer", "boolean") and not schema.keys() - {"type", "minimum"}:
        return schema | {"type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def taken(description: str, required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return the schema of an object in a request."""
    members = {"properties": required | (optional or {}), "required": list(required)}
    return {"type": "object", "description": description, **members}


def answered(description: str, required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return the schema of an object in a response: it has no other members."""
    return taken(description, required, optional) | {"additionalProperties": False}
