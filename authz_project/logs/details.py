"""Removes values of rows from errors: PostgreSQL adds them, in `DETAIL` and in the `CONTEXT` of a COPY."""

from __future__ import annotations

import re

_NEXT = r"(?=\n\n(?:The above exception|During handling of)|\Z)"  # the next error that a traceback chains, or the end
_DETAILS = re.compile(rf"\n[^\W\d_]+:  .*?{_NEXT}", re.DOTALL)  # with any label: the server may speak any language


def without_details(text: str) -> str:
    """Return an error's text, or a traceback, in which each error ends before its first label, such as `DETAIL:`."""
    return _DETAILS.sub("", text)
