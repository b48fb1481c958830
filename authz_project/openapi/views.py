"""The document for programs, and the page for people; neither wants a key, nor anything from elsewhere."""

import json
import re
import secrets
from functools import cache

from django.template.loader import render_to_string
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from authz_project.installation import facts_text
from authz_project.openapi.document import document, statuses
from authz_project.openapi.operation import Operation
from authz_project.openapi.operations import GROUPS
from authz_project.openapi.shape_text import shape_text
from authz_project.openapi.shapes import SHAPES
from policy.endpoint import Endpoint, Request, Response
from policy.json_schema import Schema

_NAME, _LINK = re.compile(rf"\b({'|'.join(SHAPES)})\b"), r'<a href="#shape-\1">\1</a>'
_CODE, _MARK = re.compile(r"`([^`]+)`"), r"<code>\1</code>"


class Document(Endpoint):
    needs_key = False

    def get(self, request: Request) -> Response:
        return Response(document())


class Page(Endpoint):
    needs_key = False

    def get(self, request: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        shown = _contents() | {"nonce": nonce, "facts": facts_text()}
        page = render_to_string("authz_project/openapi/page.html", shown)
        policy = (
            f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; "
            "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        headers = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy}
        return Response(page.encode(), headers=headers)


@cache
def _contents() -> dict[str, object]:
    return {
        "title": document()["info"]["title"],
        "about": _marked(document()["info"]["description"]),
        "groups": [
            {
                "name": group.name,
                "description": _marked(group.description),
                "operations": [*map(_shown, group.operations)],
            }
            for group in GROUPS
        ],
        "shapes": [
            {"name": name, "text": _linked(shape_text(schema)), "description": _marked(schema.get("description", ""))}
            for name, schema in SHAPES.items()
        ],
    }


def _shown(operation: Operation) -> dict[str, object]:
    example = operation.example
    return {
        "operation": operation,
        "anchor": f"{operation.method}-{operation.path.strip('/').replace('/', '-')}".lower(),
        "summary": operation.summary,
        "description": _marked(operation.description),
        "parameters": [(each.name, _marked(each.description)) for each in operation.parameters],
        "takes": _shape(operation.body) if operation.body is not None else "",
        "answers": _shape(operation.answer),
        "statuses": {200: "Success.", **statuses(operation)},
        "query": "&".join(f"{name}={text}" for name, text in example.query.items()),
        "sent": _json(example.body) if operation.body is not None else "",
        "answered": _json(example.answer) if example.answer else "",
    }


def _shape(schema: Schema) -> SafeString:
    """Return what a name stands for, where there is nothing but the name."""
    name = str(schema.get("$ref", "")).rsplit("/", 1)[-1]
    return _linked(shape_text(SHAPES.get(name, schema)))


def _linked(text: str) -> SafeString:
    """Make links of the names of shapes, and set remarks apart."""
    lines = (escape(line).partition("  // ") for line in text.split("\n"))
    return mark_safe("\n".join(_NAME.sub(_LINK, line) + _remark(remark) for line, _, remark in lines))  # noqa: S308  escaped


def _remark(text: str) -> str:
    return f"  <i>{_CODE.sub(_MARK, text)}</i>" if text else ""


def _marked(text: str) -> SafeString:
    """Mark what stands between backticks as code."""
    return mark_safe(_CODE.sub(_MARK, escape(text)))  # noqa: S308  escaped


def _json(example: object) -> str:
    """Write JSON indented, but what is short on one line."""
    return _laid_out(example, 0)


def _laid_out(part: object, depth: int) -> str:
    line = json.dumps(part, ensure_ascii=False)
    if len(line) + 2 * depth <= 76 or not isinstance(part, dict | list):
        return line
    inner, outer = "  " * (depth + 1), "  " * depth
    if isinstance(part, dict):
        members = [f"{inner}{json.dumps(name)}: {_laid_out(member, depth + 1)}" for name, member in part.items()]
        return "{\n" + ",\n".join(members) + f"\n{outer}}}"
    return "[\n" + ",\n".join(inner + _laid_out(item, depth + 1) for item in part) + f"\n{outer}]"
