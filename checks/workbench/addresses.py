"""Addresses by which pages lead to each other: short, and readable.

/admin/policy/policyversion/3/ask/?kind=authorize&actor=User:ann&action=read&resource=Repo:acme/anvil
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from django.urls import reverse

from checks.explain.cases import ANY
from checks.explain.tree import is_plain
from policy.values import BOOLEAN, INTEGER, STRING, Value

_AS_THEY_ARE = ":/*@,()"  # characters without a meaning in a query string, which are not escaped


def query_of(fields: Mapping[str, str]) -> str:
    """Return what follows the question mark: the fields that are filled, as they stand."""
    filled = {name: text for name, text in fields.items() if text}
    return urlencode(filled, quote_via=quote, safe=_AS_THEY_ARE)


def page_url(name: str, version: int | None, fields: Mapping[str, str] | None = None) -> str:
    """Return the address of a page of a policy version."""
    path = reverse(f"admin:policy_policyversion_{name}", args=[version])
    query = query_of(fields or {})
    return f"{path}?{query}" if query else path


def line_url(version: int, line: int) -> str:
    return f"{page_url('change', version)}#L{line}"


def revision_url(environment_id: int, number: int) -> str:
    return reverse("admin:facts_signature_revision", args=[environment_id, number])


def value_url(slug: str, value: Value) -> str:
    """Return the address of a value's page; an empty text if the value has no identity."""
    if value.id == ANY or value.type in (STRING, INTEGER, BOOLEAN):
        return ""
    query = query_of({"environment": slug, "type": value.type, "id": value.id})
    return f"{reverse('admin:index')}facts/value/?{query}"


# ---- values in fields ----------------------------------------------------------------------------------------------


def written(value: Value) -> str:
    """Return the value as fields and commands take it: `User:ann`, `User:"ann b."`; `User:*` is any."""
    if value.id == ANY:
        return f"{value.type}:*"
    return f"{value.type}:{value.id if is_plain(value.id) else json_text(value.id)}"


def json_text(value: object) -> str:
    """Return JSON with invisible characters escaped, so that nothing hides in what is copied to a terminal."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)
