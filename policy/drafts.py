"""Drafts: the policy text that somebody is writing is kept on the server meanwhile.

Each save gives the draft a new random stamp, and the next save must name the stamp that its author last saw. So a text
that was saved meanwhile in another window, or on another machine, is never overwritten unseen.
"""

from dataclasses import dataclass

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Q, QuerySet

from policy.errors import AuthzError
from policy.models import Environment, PolicyDraft, new_moment
from policy.offsets import changing
from policy.publishing import active_version

User = AbstractBaseUser | AnonymousUser


@dataclass(frozen=True, slots=True)
class DraftText:
    """A text that is being written, and the number of the version that was active when it was begun."""

    source: str
    filename: str
    seen: int | None


class SavedElsewhere(AuthzError):
    """Raised on saving: there is a newer draft, which the one who saves has not seen."""

    def __init__(self, draft: PolicyDraft):
        super().__init__("another draft was saved meanwhile, in another window or on another machine")
        self.draft = draft


def draft_of(user: User, environment: Environment) -> PolicyDraft | None:
    """Return the draft to go on with; None if there is none, or if its text is that of the active policy."""
    draft = _drafts(user, environment).first()
    return None if draft is None or is_active(environment, draft.source) else draft


def keep(user: User, environment: Environment, written: DraftText, stamp: int | None) -> PolicyDraft | None:
    """Save the text and return the draft; raise `SavedElsewhere` if the present draft has another stamp than `stamp`.

    A present draft of the same text, or of the active policy's text, may be overwritten whatever its stamp.

    A text equal to the active policy's is not kept: the draft is deleted, and None returned.
    """
    assert user.pk is not None, "whoever has drafts is logged in"
    with changing():
        # The user's row, since two windows may save a first draft: there is no draft yet that one could wait for.
        get_user_model().objects.select_for_update(no_key=True).filter(pk=user.pk).first()
        draft = _drafts(user, environment).select_for_update().first()
        if draft is not None and not _is_known(draft, written, stamp):
            raise SavedElsewhere(draft)
        if is_active(environment, written.source):
            _drafts(user, environment).delete()
            return None
        fields = {"source": written.source, "filename": written.filename, "seen": written.seen, "stamp": new_moment()}
        return PolicyDraft.objects.update_or_create(user_id=user.pk, environment=environment, defaults=fields)[0]


def _is_known(draft: PolicyDraft, written: DraftText, stamp: int | None) -> bool:
    """Say whether the present draft may be overwritten: it was seen, has the same text, or the active policy's text."""
    if draft.stamp == stamp or draft.source == written.source:
        return True
    return is_active(draft.environment, draft.source)


def discard(user: User, environment: Environment) -> None:
    _drafts(user, environment).delete()


def discard_published(user: User, environment: Environment, source: str, stamp: int | None) -> None:
    """Delete the draft that has just been published; a draft that was saved after it stays."""
    # One statement, which looks at what the draft holds by the time that it is deleted.
    _drafts(user, environment).filter(Q(stamp=stamp) | Q(source=source)).delete()


def _drafts(user: User, environment: Environment) -> QuerySet[PolicyDraft]:
    assert user.pk is not None, "whoever has drafts is logged in"
    return PolicyDraft.objects.filter(user_id=user.pk, environment=environment)


def is_active(environment: Environment, source: str) -> bool:
    active = active_version(environment.pk)
    return source == (active.source if active else "")
