"""Check access in Django REST framework: a permission class and a filter backend, by a view's `permitted_actions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet
from rest_framework.filters import BaseFilterBackend
from rest_framework.mixins import CreateModelMixin, ListModelMixin
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

import localsql.django as authz  # imports the engine when it is used

# By the name of the view's action, else by the method. A tuple is an action on another object, which the request's
# data name: a model, and the field with its key.
Wanted = str | tuple[str, type[Model], str]
DEFAULTS: Mapping[str, Wanted] = {
    "GET": "read", "OPTIONS": "read", "PUT": "edit", "PATCH": "edit", "DELETE": "delete",
}  # fmt: skip


def wanted(view: Any, *names: str | None) -> Wanted | None:
    """Return what the view maps the first of these names to."""
    known = {**DEFAULTS, **getattr(view, "permitted_actions", {})}
    return next((known[name] for name in names if name in known), None)


def _wanted_by(request: Request, view: Any) -> Wanted | None:
    method = "GET" if request.method == "HEAD" else request.method
    return wanted(view, getattr(view, "action", None), method)


class Permitted(BasePermission):
    """Lets requests pass whose action the policy allows on the object. A request for none of the actions is denied.

    A change whose address names no object, such as creating one, needs a tuple: nobody would check its action on one.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        found = _wanted_by(request, view)
        if not isinstance(found, tuple):
            return found is not None and (_reads(request, view) or _changes_one(request, view))
        action, model, name = found
        data = request.data if isinstance(request.data, Mapping) else {}
        resource = model._default_manager.filter(pk=_key(model, data.get(name))).first()
        return resource is not None and authz.authorize(request.user, action, resource)

    def has_object_permission(self, request: Request, view: Any, obj: Any) -> bool:
        found = _wanted_by(request, view)
        return isinstance(found, str) and authz.authorize(request.user, found, obj)


class PermittedFilter(BaseFilterBackend):
    """Leaves those objects that the user may read (`permitted_actions["list"]`), so that all others are not found."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        action = wanted(view, "list", "GET")
        if not isinstance(action, str):
            return queryset.none()
        return queryset.filter(authz.permitted(request.user, action, queryset.model))


def _reads(request: Request, view: Any) -> bool:
    """Return whether the request reads. A list is filtered, or else it would show everything."""
    is_list = getattr(view, "action", "list") == "list" or getattr(view, "detail", None) is False
    is_filtered = any(issubclass(each, PermittedFilter) for each in getattr(view, "filter_backends", ()))
    if request.method in SAFE_METHODS and is_list and isinstance(view, ListModelMixin) and not is_filtered:
        raise ImproperlyConfigured(f"{type(view).__name__} lists objects; add PermittedFilter to its filter_backends")
    return request.method in SAFE_METHODS


def _changes_one(request: Request, view: Any) -> bool:
    """Return whether the address names the object to change: by the route of a viewset, or by the view's parameters."""
    action = getattr(view, "action", None)
    if action == "create" or (action is None and request.method == "POST" and isinstance(view, CreateModelMixin)):
        return False  # it may name another one, in which something is created
    if getattr(view, "detail", None) is not None:
        return bool(view.detail)
    key = getattr(view, "lookup_url_kwarg", None) or getattr(view, "lookup_field", None)
    return key in view.kwargs if key else bool(view.kwargs)


def _key(model: type[Model], raw: object) -> Any:
    """Return the key in a request; None, which no object has, if it is none."""
    try:
        return model._meta.pk.to_python(raw)
    except Exception:  # ValidationError, ValueError, TypeError: by the field
        return None
