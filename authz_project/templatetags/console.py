"""Template tags for the header of the console's pages."""

from typing import Any

from django import template
from django.template import Context

from authz_project import console

register = template.Library()


@register.inclusion_tag("admin/console/navigation.html", takes_context=True)
def console_navigation(context: Context) -> dict[str, Any]:
    """Show the navigation and the environments."""
    request = context["request"]
    environments = console.environment_links(request, context)
    return {
        "links": console.links(request),
        "environments": environments,
        "environment": next((each.title for each in environments if each.is_here), "environment"),
        "request": request,
        "perms": context["perms"],
    }
