"""Check access in views, with Django's permission system, and in the admin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partialmethod, wraps
from inspect import iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.utils.decorators import method_decorator

import localsql.django as authz  # imports the engine when it is used, not as Django starts
from policy.core.config import settings


def requires(action: str, model: type[Model], key: str = "pk") -> Callable[[Any], Any]:
    """Let a view run only if the user may perform the action on the object that the URL names.

        @requires("read", Document, "pk")
        def document(request, pk): …

    It decorates functions and class-based views. Without such an object, the response is 404. Anonymous users are sent
    to the login page if they may not; others get 403.
    """

    def decorated(view: Any) -> Any:
        if isinstance(view, type):
            return method_decorator(requires(action, model, key), name="dispatch")(view)
        if iscoroutinefunction(view):
            raise TypeError("`requires` decorates synchronous views; in an async one, await sync_to_async(require)(…)")

        @wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            resource = get_object_or_404(model, pk=kwargs[key])
            if not request.user.is_authenticated and not authz.authorize(request.user, action, resource):
                return redirect_to_login(request.get_full_path())
            authz.require(request.user, action, resource)
            return view(request, *args, **kwargs)

        return checked

    return decorated


# ---- Django's permissions -----------------------------------------------------------------------------------------


class PermissionBackend(BaseBackend):
    """Answers `user.has_perm("documents.edit_document", document)` by the policy: the action is `edit`.

    Without an object, it says nothing: other backends do. `AUTHZ["PERMISSIONS"]` maps Django's words to actions, such
    as `{"view": "read", "change": "edit"}`.
    """

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        label, _, codename = perm.partition(".")
        is_its = isinstance(obj, Model) and label == obj._meta.app_label
        is_asked = is_its and (user_obj.is_active or user_obj.is_anonymous)
        word = codename.removesuffix(f"_{obj._meta.model_name}") if is_asked else ""
        return word != "" and authz.authorize(user_obj, settings.PERMISSIONS.get(word, word), obj)

    ahas_perm = sync_to_async(has_perm)  # type: ignore[arg-type]


# ---- the admin ----------------------------------------------------------------------------------------------------


class PermittedAdmin:
    """A mixin for `ModelAdmin`: staff see, change and delete what the policy lets them.

    `permitted_actions` maps Django's words to actions. What concerns no object, such as adding, stays with Django's own
    permissions.
    """

    permitted_actions: Mapping[str, str] = {"view": "read", "change": "edit", "delete": "delete"}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if hasattr(cls, "fk_name"):  # Django asks an inline about the object of the page
            raise TypeError(f"{cls.__name__}: an inline cannot check its rows; use PermittedAdmin with ModelAdmin only")

    def get_queryset(self, request: HttpRequest) -> Any:
        found = super().get_queryset(request)  # type: ignore[misc]
        return found.filter(authz.permitted(request.user, self.permitted_actions["view"], found.model))

    def _may(self, word: str, request: HttpRequest, obj: Model | None = None) -> bool:
        if not (request.user.is_active and request.user.is_staff):
            return False
        return obj is None or authz.authorize(request.user, self.permitted_actions[word], obj)

    has_view_permission = partialmethod(_may, "view")
    has_change_permission = partialmethod(_may, "change")
    has_delete_permission = partialmethod(_may, "delete")

    def save_form(self, request: HttpRequest, form: Any, change: bool) -> Any:
        """Refuse to change what may only be seen: Django asks only once for all that `list_editable` changes.

        The form has changed its object already, and maybe the id; the stored one is asked about.
        """
        changed = form.instance
        stored = type(changed)._base_manager.filter(pk=changed.pk).first()
        if change and not self.has_change_permission(request, changed if stored is None else stored):
            raise PermissionDenied
        return super().save_form(request, form, change)  # type: ignore[misc]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Let an action of the list, such as deletion, run only if its permissions are for each of its objects."""
        found = super().get_actions(request)  # type: ignore[misc]
        return {name: (self._checked(function), *more) for name, (function, *more) in found.items()}

    def _checked(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def checked(modeladmin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
            for word in self.permitted_actions.keys() & {*getattr(function, "allowed_permissions", ())}:
                if not all(self._may(word, request, each) for each in queryset):
                    raise PermissionDenied
            return function(modeladmin, request, queryset)

        return checked
