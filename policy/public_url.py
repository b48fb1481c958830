"""The address at which callers reach the service."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.http.request import split_domain_port, validate_host

_HOST = re.compile(r"[A-Za-z0-9.\-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")


def public_url_of(headers: Mapping[str, Any]) -> str:
    """Return `PUBLIC_URL`; without it, the address that the request was sent to, as a trusted proxy gives it.

    A host name that ALLOWED_HOSTS does not allow is replaced by the server's own name.
    """
    if settings.PUBLIC_URL:
        return str(settings.PUBLIC_URL)
    scheme, host = headers.get("wsgi.url_scheme", "http"), headers.get("HTTP_HOST", "")
    if settings.TRUST_PROXY:
        scheme = _last_forwarded(headers.get("HTTP_X_FORWARDED_PROTO", "")) or scheme
        host = _last_forwarded(headers.get("HTTP_X_FORWARDED_HOST", "")) or host
    if not _HOST.fullmatch(host) or not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        host = f"{headers.get('SERVER_NAME', 'localhost')}:{headers.get('SERVER_PORT', '80')}"
    return f"{'https' if scheme == 'https' else 'http'}://{host}"


def _last_forwarded(text: str) -> str:
    """Return the last element of a forwarded header: the trusted proxy wrote it; those before it anybody may have."""
    return text.rpartition(",")[2].strip().lower()
