"""URLs of the pages of facts and values, and how a fact is shown."""

from django import template

from facts.pages import browse
from policy.values import PRIMITIVES, Value

register = template.Library()
register.simple_tag(browse.browse_url)
register.simple_tag(browse.fact_url)
register.simple_tag(browse.value_url)
register.filter(browse.end_of)


@register.filter
def is_name(value: Value) -> bool:
    """Return whether the value is of a primitive type, such as the role that relates the other arguments."""
    return value.type in PRIMITIVES
