"""URLs of the pages of facts, values and revisions, and how these are shown."""

from django import template

from facts import history, history_pages
from facts.pages import browse
from policy.values import PRIMITIVES, Value

register = template.Library()
register.simple_tag(browse.browse_url)
register.simple_tag(browse.fact_url)
register.simple_tag(browse.value_url)
register.simple_tag(history_pages.revision_url)
register.filter(browse.end_of)
register.filter(history.minute)


@register.filter
def is_name(value: Value) -> bool:
    """Return whether the value is of a primitive type, such as the role that relates the other arguments."""
    return value.type in PRIMITIVES


@register.filter
def done(kind: str) -> str:
    """Return what a revision of this kind did."""
    return history_pages.DONE.get(kind, kind)
