"""Admin pages of API keys, environments, users and groups.

Environments are here because deleting one deletes its facts and keys too.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models, transaction
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.text import capfirst

from authz_project import keys
from authz_project.models import SCOPE_COLUMNS, ApiKey
from authz_project.spaces import slugs_elsewhere
from facts import store
from facts.pages.browse import timeline_url
from policy.core.journal import Done, Kind, advance, by_admin, changing, record, stay
from policy.errors import Unavailable
from policy.models import DEFAULT_SLUG, Environment

RESERVED = "This name is reserved for test environments, whose API keys are valid only with `authz serve --dev`."


class DateTimeLocalInput(forms.DateTimeInput):
    """A date and time in one field, with the browser's date picker."""

    input_type = "datetime-local"

    def __init__(self) -> None:
        super().__init__({"step": 1}, "%Y-%m-%dT%H:%M:%S")


class TitledAdmin(admin.ModelAdmin):
    """Shows the plural name of its objects as the title of their list."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        title = capfirst(str(self.opts.verbose_name_plural))
        return super().changelist_view(request, {"title": title} | (extra_context or {}))


class ChangingAdmin(TitledAdmin):
    """Runs each POST in a `changing` transaction; shows a message if the write lock cannot be acquired in time."""

    def changeform_view(self, request: HttpRequest, *place: Any, **options: Any) -> HttpResponse:
        return self._changing(request, partial(super().changeform_view, request, *place, **options))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return self._changing(request, partial(super().changelist_view, request, extra_context))

    def delete_view(self, request: HttpRequest, *place: Any, **options: Any) -> HttpResponse:
        return self._changing(request, partial(super().delete_view, request, *place, **options))

    def _changing(self, request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
        if request.method != "POST":
            return view()
        try:
            with changing():
                return view()
        except Unavailable as reason:
            self.message_user(request, reason.message, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())


class ApiKeyForm(ModelForm):
    class Meta:
        help_texts: ClassVar = {
            "label": "What uses the key.",
            "may_read": "Check access, and read facts, policies and history.",
            "may_change_facts": "Insert and delete facts.",
            "may_change_policy": "Preview and publish policies.",
            "may_follow": "Copy the whole environment, for a follower.",
            "expires_at": "In UTC. Leave empty for no expiry.",
        }

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not any(cleaned.get(column) for column in SCOPE_COLUMNS.values()):
            raise forms.ValidationError("Select at least one scope. To disable a key, revoke it.")
        return cleaned


@admin.register(ApiKey)
class ApiKeyAdmin(ChangingAdmin):
    form = ApiKeyForm
    list_display = [
        "prefix", "state", "good_for", "label", "environment", "created_at", "created_by", "last_used", "expires_at",
    ]  # fmt: skip
    list_filter = ["environment"]
    list_select_related = ["environment"]
    search_fields = ["prefix", "label"]
    fields = ["environment", "label", *SCOPE_COLUMNS.values(), "expires_at"]
    actions = ["rotate", "revoke"]
    _lifecycle = ("created_at", "created_by", "last_used", "revoked_at", "successor")
    formfield_overrides = {models.DateTimeField: {"form_class": forms.DateTimeField, "widget": DateTimeLocalInput}}

    def get_readonly_fields(self, request: HttpRequest, key: ApiKey | None = None) -> list[str]:
        # The environment of a key never changes: processes cache it.
        return ["environment", "prefix", *self._lifecycle] if key else []

    def get_fields(self, request: HttpRequest, key: ApiKey | None = None) -> list[Any]:
        return ["prefix", *self.fields, *self._lifecycle] if key else [*self.fields]

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Select the environment if there is only one."""
        found = Environment.objects.values_list("pk", flat=True)[:2]
        only = {"environment": found[0]} if len(found) == 1 else {}
        return only | super().get_changeform_initial_data(request)

    def has_delete_permission(self, request: HttpRequest, key: ApiKey | None = None) -> bool:
        return False  # revoked keys are kept for reference

    def has_rotate_permission(self, request: HttpRequest) -> bool:
        return self.has_add_permission(request) and self.has_change_permission(request)

    @admin.display(description="state")
    def state(self, key: ApiKey) -> str:
        return keys.state_of(key, timezone.now()).partition(" ")[0]

    @admin.display(description="scopes")
    def good_for(self, key: ApiKey) -> str:
        return keys.scopes_text(key)

    @admin.display(ordering="last_used_at")
    def last_used(self, key: ApiKey) -> str:
        return f"{key.last_used_at:%Y-%m-%d}" if key.last_used_at else "-"

    def save_model(self, request: HttpRequest, key: ApiKey, form: ModelForm, change: bool) -> None:
        if change:
            stay(key.environment_id)
            key.save(update_fields=["label", "expires_at", *SCOPE_COLUMNS.values()])
            return
        made, key.token = keys.create_key(key.environment, key.label, key.expires_at, key.scopes, by_admin(request))
        key.pk, key.prefix = made.pk, made.prefix

    def response_add(self, request: HttpRequest, key: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """Return the only page that ever shows the whole key, which is not stored anywhere."""
        return self._shown_once(request, "New API key", {"token": key.token})

    def _shown_once(self, request: HttpRequest, title: str, shown: dict[str, Any]) -> HttpResponse:
        context = self.admin_site.each_context(request) | {"title": title, "opts": self.opts} | shown
        answer = TemplateResponse(request, "admin/authz_project/apikey/shown_once.html", context)
        answer["Cache-Control"] = "no-store"
        return answer

    @admin.action(description="Rotate the selected keys", permissions=["rotate"])
    def rotate(self, request: HttpRequest, chosen: models.QuerySet[ApiKey]) -> HttpResponse | None:
        """Create a successor of each key, all or none, and show them. The old keys stay valid for a day."""
        rotated: list[keys.Rotated] = []
        try:
            with transaction.atomic():
                for key in chosen:
                    rotated.append(keys.rotate_key(key, by_admin(request)))
                    self.log_change(request, key, f"Rotated; replaced by {rotated[-1].new.prefix}.")
        except keys.CannotRotate as reason:
            self.message_user(request, f"No key was rotated: {reason.message}", messages.ERROR)
            return None
        return self._shown_once(request, "Rotated API keys", {"rotated": rotated})

    @admin.action(description="Revoke the selected keys", permissions=["change"])
    def revoke(self, request: HttpRequest, chosen: models.QuerySet[ApiKey]) -> None:
        for key in chosen.filter(revoked_at=None):
            keys.revoke_key(key)
            self.log_change(request, key, "Revoked.")
        self.message_user(
            request, f"{len(chosen)} key{'s are' if len(chosen) != 1 else ' is'} revoked.", messages.SUCCESS
        )


def _refuse_what_is_elsewhere(slug: str) -> None:
    """Refuse the name of an environment in another space: keys are looked up in one place by it."""
    if slug in slugs_elsewhere():
        raise ValidationError("An environment with this name exists in another space.")


@admin.register(Environment)
class EnvironmentAdmin(ChangingAdmin):
    list_display = ["slug", "name", "created_at", "policy_version", "revision", "history"]
    list_select_related = ["policy_version__environment"]
    search_fields = ["slug", "name"]
    _lifecycle = ("created_at", "policy_version", "revision")
    actions = None

    def get_readonly_fields(self, request: HttpRequest, environment: Environment | None = None) -> list[str]:
        return ["slug", *self._lifecycle] if environment else []

    def get_fields(self, request: HttpRequest, environment: Environment | None = None) -> list[Any]:
        return ["slug", "name", "needs_approval", *(self._lifecycle if environment else ())]

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        may_view = any(request.user.has_perm(f"authz_facts.{what}_signature") for what in ("view", "change"))
        return [name for name in self.list_display if may_view or name != "history"]

    @admin.display(ordering="offset")
    def revision(self, environment: Environment) -> str:
        return f"{environment.offset:,}"

    @admin.display(description="history")
    def history(self, environment: Environment) -> str:
        return format_html('<a href="{}">history</a>', timeline_url(environment.pk))

    def formfield_for_dbfield(self, db_field: models.Field, request: HttpRequest, **options: Any) -> forms.Field | None:
        shown = super().formfield_for_dbfield(db_field, request, **options)
        if shown is not None and db_field.name == "slug":
            shown.help_text = "1 to 40 letters and digits. It cannot be changed later."
            shown.validators.append(RegexValidator(keys.TEST_SLUG.pattern + r"\Z", RESERVED, inverse_match=True))
            shown.validators.append(_refuse_what_is_elsewhere)
        return shown

    def save_model(self, request: HttpRequest, environment: Environment, form: ModelForm, change: bool) -> None:
        """Save only the fields changed in the form: others, such as `offset`, may have been updated meanwhile."""
        if change:
            turn = advance(environment.pk)
            record(environment.pk, [Done(turn.offset, Kind.ENVIRONMENT, by_admin(request), turn.policy_version_id)])
        environment.save(update_fields=form.changed_data if change else None)

    def has_delete_permission(self, request: HttpRequest, environment: Environment | None = None) -> bool:
        protected = environment is not None and environment.slug == DEFAULT_SLUG
        return not protected and super().has_delete_permission(request, environment)

    def get_deleted_objects(
        self, environments: Sequence[Any] | models.QuerySet[Any], request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[Any]]:
        """Require no further permissions: an environment's keys and policies are deleted with it."""
        shown, counts, _, protected = super().get_deleted_objects(environments, request)
        return shown, counts, set(), protected

    def delete_model(self, request: HttpRequest, environment: Environment) -> None:
        store.remove(environment.id)
        environment.delete()


# ---- users and groups ------------------------------------------------------------------------------------------------

admin.site.unregister([User, Group])


def permissions_of(holder: User | Group) -> models.QuerySet[Permission]:
    """Return the permissions of a user, including those of the user's groups; or those of a group."""
    if isinstance(holder, Group):
        return holder.permissions.all()
    return Permission.objects.filter(models.Q(user=holder) | models.Q(group__user=holder))


def may_manage(person: User, holder: User | Group) -> bool:
    """Return whether the person has all permissions of the holder: whoever sets a password can log in with it."""
    if person.is_superuser:
        return True
    if isinstance(holder, User) and holder.is_superuser:
        return False
    return not permissions_of(holder).exclude(pk__in=permissions_of(person).values("pk")).exists()


class WithinOwnPermissions(TitledAdmin):
    """Prevents everyone but superusers from granting, or taking over, permissions that they do not have themselves.

    Pages, password changes, actions and bulk deletion all check these methods.
    """

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and (obj is None or may_manage(_person(request), obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or may_manage(_person(request), obj))

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """Offer only the permissions that the person has, and the groups without any others."""
        person = _person(request)
        if not person.is_superuser:
            own = permissions_of(person).values("pk")
            others = Group.objects.filter(permissions__in=Permission.objects.exclude(pk__in=own)).values("pk")
            offered = {Permission: Permission.objects.filter(pk__in=own), Group: Group.objects.exclude(pk__in=others)}
            options["queryset"] = offered[db_field.remote_field.model]
        return super().formfield_for_manytomany(db_field, request, **options)


def _person(request: HttpRequest) -> User:
    assert isinstance(request.user, User), "only who is logged in comes so far"
    return request.user


@admin.register(User)
class ServiceUserAdmin(WithinOwnPermissions, UserAdmin):
    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        return () if _person(request).is_superuser else ("is_superuser",)


@admin.register(Group)
class ServiceGroupAdmin(WithinOwnPermissions, GroupAdmin):
    pass
