"""Format messages and numbers on pages."""

import re

from django import template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

register = template.Library()
_WORD = re.compile(r"[a-z]+(?=[\s,;]|$)")
CODE, MARK = re.compile(r"`([^`]+)`"), r"<code>\1</code>"


@register.filter
def sentence(text: object) -> str:
    """Capitalize a plain word at the start of the text; names such as `has_role` and `main.polar` are not changed."""
    written = str(text)
    return written[:1].upper() + written[1:] if _WORD.match(written) else written


@register.filter
def with_code(text: str) -> SafeString:
    """Escape the text, and show what is between backticks as code."""
    return mark_safe(CODE.sub(MARK, escape(text)))  # noqa: S308  escaped


@register.filter
def thousands(number: int) -> str:
    """Separate the thousands: `19,033`."""
    return f"{number:,}"
