"""Format messages as sentences on pages."""

import re

from django import template

register = template.Library()
_WORD = re.compile(r"[a-z]+(?=[\s,;]|$)")


@register.filter
def sentence(text: object) -> str:
    """Capitalize a plain word at the start of the text; names such as `has_role` and `main.polar` are not changed."""
    written = str(text)
    return written[:1].upper() + written[1:] if _WORD.match(written) else written
