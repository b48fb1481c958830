"""Messages as sentences on pages."""

import re

from django import template

register = template.Library()
_WORD = re.compile(r"[a-z]+(?=[\s,;]|$)")


@register.filter
def sentence(text: object) -> str:
    """With a capital first, where it begins with a word; a name of the policy or of a file stays as it is."""
    written = str(text)
    return written[:1].upper() + written[1:] if _WORD.match(written) else written
