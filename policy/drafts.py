"""Drafts: what somebody writes is kept on the server while they write it.

Each save draws a stamp, and whoever saves again says which one they know: a text that was saved elsewhere meanwhile, in
another window or on another machine, is never written over unseen.
"""

from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet

from policy.errors import AuthzError
from policy.models import Environment, PolicyDraft, new_moment
from policy.offsets import changing
from policy.publishing import active_version

User = AbstractBaseUser | AnonymousUser


@dataclass(frozen=True, slots=True)
class Written:
    """A text as it is written, and the version that was active when it was begun."""

    source: str
    filename: str
    seen: int | None


class SavedElsewhere(AuthzError):
    """There is a draft that whoever saves has not seen."""

    def __init__(self, draft: PolicyDraft):
        super().__init__("another draft was saved meanwhile, in another window or on another machine")
        self.draft = draft


def draft_of(user: User, environment: Environment) -> PolicyDraft | None:
    """What there is to go on with: a text other than the active one."""
    draft = _drafts(user, environment).first()
    return None if draft is None or is_active(environment, draft.source) else draft


def keep(user: User, environment: Environment, written: Written, stamp: int | None) -> PolicyDraft | None:
    """Save the text, for whoever knows the draft of this stamp; there is no draft of the active policy's own text."""
    with changing():
        draft = _drafts(user, environment).select_for_update().first()
        if draft is not None and not _is_known(draft, written, stamp):
            raise SavedElsewhere(draft)
        if is_active(environment, written.source):
            _drafts(user, environment).delete()
            return None
        fields = {"source": written.source, "filename": written.filename, "seen": written.seen, "stamp": new_moment()}
        return PolicyDraft.objects.update_or_create(user_id=user.pk, environment=environment, defaults=fields)[0]


def _is_known(draft: PolicyDraft, written: Written, stamp: int | None) -> bool:
    """Whether nothing is lost that whoever saves has not seen."""
    if draft.stamp == stamp or draft.source == written.source:
        return True
    return is_active(draft.environment, draft.source)


def discard(user: User, environment: Environment) -> None:
    _drafts(user, environment).delete()


def discard_published(user: User, environment: Environment, source: str, stamp: int | None) -> None:
    """Let go of the draft that has just been published; another one stays."""
    for draft in _drafts(user, environment):
        if draft.stamp == stamp or draft.source == source:
            draft.delete()


def _drafts(user: User, environment: Environment) -> QuerySet[PolicyDraft]:
    assert user.pk is not None, "whoever has drafts is logged in"
    return PolicyDraft.objects.filter(user_id=user.pk, environment=environment)


def is_active(environment: Environment, source: str) -> bool:
    active = active_version(environment.pk)
    return source == (active.source if active else "")
