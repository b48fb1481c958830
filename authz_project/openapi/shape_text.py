"""Schema -> text for people, in a notation that needs no explanation: `{ type: Name, id: Id }`."""

import json

from policy.json_schema import Schema

_INDENT = "  "
_SHORT = 80


def shape_text(schema: Schema, depth: int = 0) -> str:
    match schema:
        case {"$ref": target}:
            return str(target).rsplit("/", 1)[-1]
        case {"anyOf": options} | {"oneOf": options}:
            return _options(options, depth)
        case {"const": constant}:
            return json.dumps(constant)
        case {"enum": constants}:
            return " | ".join(map(json.dumps, constants))
        case {"type": "array"}:
            return _array(schema, depth)
        case {"type": "object"}:
            return _object(schema, depth)
        case {"type": list() as names}:
            return " | ".join(names)
        case {"type": name}:
            return str(name)
    return "anything"


def _options(options: list[Schema], depth: int) -> str:
    texts = [shape_text(option, depth) for option in options]
    return " | ".join(dict.fromkeys(texts))


def _array(schema: Schema, depth: int) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(shape_text(item, depth) for item in schema['prefixItems'])}]"
    item = shape_text(schema["items"], depth)
    return f"({item})[]" if " | " in item and "\n" not in item else f"{item}[]"


def _object(schema: Schema, depth: int) -> str:
    members = [_member(name, member, schema, depth + 1) for name, member in schema.get("properties", {}).items()]
    if schema.get("additionalProperties"):
        members.append((f"[any name]: {shape_text(schema['additionalProperties'], depth + 1)}", ""))
    if not members:
        return "object"
    line = f"{{ {', '.join(text for text, _ in members)} }}"
    if len(line) <= _SHORT and "\n" not in line and not any(remark for _, remark in members):
        return line
    lines = [f"{_INDENT * (depth + 1)}{text}{f'  // {remark}' if remark else ''}" for text, remark in members]
    return "\n".join(["{", *lines, f"{_INDENT * depth}}}"])


def _member(name: str, member: Schema, schema: Schema, depth: int) -> tuple[str, str]:
    """Return what stands for it, and the remark behind it."""
    optional = "" if name in schema.get("required", ()) else "?"
    return f"{name}{optional}: {shape_text(member, depth)}", str(member.get("description", ""))
