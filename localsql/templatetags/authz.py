"""`{% load authz %}{% may user "edit" document as ok %}{% if ok %}…{% endif %}`"""

from django import template

import localsql.django

register = template.Library()


@register.simple_tag
def may(user: object, action: str, resource: object) -> bool:
    """Return whether the user may perform the action on the resource."""
    return localsql.django.authorize(user, action, resource)
