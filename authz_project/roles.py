"""The roles of the admin: groups that `migrate` creates, and the sign-in by OpenID Connect gives.

viewer       sees policies, facts and history, and checks access
editor       also drafts policies, and changes facts
publisher    also drafts, publishes and activates policies, but does not change facts
key keeper   sees, creates, rotates and revokes API keys, and nothing else
"""

from django.apps.registry import Apps
from django.contrib.auth import get_permission_codename
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.db import models, transaction

from authz_project.models import ApiKey
from facts.models import Signature
from policy.models import EDIT_DRAFTS, Environment, PolicyDraft, PolicyVersion

_SEEN = ((PolicyVersion, "view"), (Signature, "view"), (Environment, "view"))
_DRAFTING = (PolicyDraft, EDIT_DRAFTS)
ROLES: dict[str, tuple[tuple[type[models.Model], str], ...]] = {
    "viewer": _SEEN,
    "editor": (*_SEEN, _DRAFTING, (Signature, "add"), (Signature, "change"), (Signature, "delete")),
    "publisher": (*_SEEN, _DRAFTING, (PolicyVersion, "add"), (PolicyVersion, "change")),
    "key keeper": ((ApiKey, "view"), (ApiKey, "add"), (ApiKey, "change")),
}


def create_groups(using: str, apps: Apps, **_: object) -> None:
    """Create the groups that are missing, after a migration. Existing ones are left as they are."""
    needed: set[type[models.Model]] = {Group, ContentType, *(model for given in ROLES.values() for model, _ in given)}
    known = {model._meta.label: model for model in apps.get_models()}
    if not known.keys() >= {model._meta.label for model in needed}:  # migrated to an earlier state
        return
    if any(field.name == "name" for field in known[ContentType._meta.label]._meta.get_fields()):  # likewise
        return
    with transaction.atomic(using):
        there = set(Group.objects.using(using).filter(name__in=ROLES).values_list("name", flat=True))
        if there == ROLES.keys():
            return
        for app in {model._meta.app_config for model in needed}:
            create_permissions(app, verbosity=0, using=using)  # also of apps whose turn comes later
        for name in ROLES.keys() - there:
            group = Group.objects.using(using).create(name=name)
            group.permissions.set([_permission(using, *each) for each in ROLES[name]])


def _permission(using: str, model: type[models.Model], what: str) -> Permission:
    kind = ContentType.objects.db_manager(using).get_for_model(model)
    codename = get_permission_codename(what, model._meta)
    return Permission.objects.using(using).get(content_type=kind, codename=codename)
