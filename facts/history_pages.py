"""History pages: an environment's revisions, what one of them changed, and the history of facts."""

from collections.abc import Sequence
from functools import partial
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse

from facts import history
from facts.history import History, HistoryKey, latest_periods, revisions_of, since_text, until_text
from facts.models import COLUMNS, Row, Signature
from facts.pages.browse import browse_url, fact_url, timeline_url, value_url
from facts.read import fact_of_row, read_snapshot
from facts.wire import Argument
from policy.core.clock import microseconds_of, now
from policy.core.journal import Kind
from policy.core.pagination import Cursor, Listing, Pager, key_of
from policy.models import Environment, PolicyVersion, Revision
from policy.values import LAST_REVISION, Value, whole_number

REVISIONS, FACTS = 50, 100  # per page
_REVISIONS, _FACTS = "revisions", "changes of facts"  # what cursors are of
DONE: dict[str, str] = {
    Kind.FACTS: "Facts",
    Kind.LOAD: "Facts loaded",
    Kind.CLEAR: "All facts deleted",
    Kind.COPY: "Facts copied from another environment",
    Kind.EXPIRY: "Facts expired",
    Kind.POLICY: "Policy",
    Kind.ENVIRONMENT: "Environment renamed",
    Kind.UPGRADE: "Facts from before history began",
}
_IN_ONE_SNAPSHOT = read_snapshot(has_time_limit=True)
MINUTE = 60_000_000  # microseconds


# ---- an environment ----------------------------------------------------------------------------------------------


@_IN_ONE_SNAPSHOT
def timeline(request: HttpRequest, environment: Environment) -> dict[str, object]:
    """Return a page of the revisions, newest first."""
    found = revisions_of(environment.pk)
    listing = Listing(
        lambda key, most: [*(found if key is None else found.filter(number__lt=key)).order_by("-number")[:most]],
        lambda key, most: [*found.filter(number__gt=key).order_by("number")[:most]][::-1],
    )
    page = listing.page(REVISIONS, *(key_of(request.GET.get(name), _REVISIONS) for name in ("after", "before")))
    earlier = [*page.rows[1:], earlier_than(page.rows[-1])] if page.rows else []
    return {
        "environment": environment,
        "happened": [(revision, before, None) for revision, before in zip(page.rows, earlier)],
        "pager": page.pager(_REVISIONS, lambda each: each.number, partial(timeline_url, environment.pk)),
    }


def activated_url(version: PolicyVersion) -> str:
    """Return the URL of the revision that first activated a version; of the timeline, if it is pruned or not found."""
    at = microseconds_of(version.created_at)
    about_then = Revision.objects.filter(environment=version.environment_id, at__range=(at - MINUTE, at + MINUTE))
    found = about_then.filter(kind=Kind.POLICY, policy_version=version).order_by("at", "number").first()
    return revision_url(found) if found else timeline_url(version.environment_id)


def earlier_than(revision: Revision) -> Revision | None:
    return revisions_of(revision.environment_id).filter(number=revision.number - 1).first()


# ---- a revision ----------------------------------------------------------------------------------------------------


@_IN_ONE_SNAPSHOT
def revision_page(request: HttpRequest, revision: Revision) -> dict[str, object]:
    """Return a revision's author and time, and a page of its changes."""
    after = _after(request)
    found = history.of_revision(revision.environment_id, revision.number, FACTS, after)
    numbers = Revision.objects.filter(environment=revision.environment_id).values_list("number", flat=True)
    following = numbers.filter(number__gt=revision.number).order_by("number").first()
    previous = numbers.filter(number__lt=revision.number).order_by("-number").first()
    return {
        "environment": revision.environment,
        "revision": revision,
        "before": earlier_than(revision),
        "entry": found.entries[0] if found.entries else None,
        "is_known": revision.number > found.horizon,
        "horizon": found.horizon,
        "pager": _pager(f"{revision_url(revision)}?", after, found),
        "previous_url": _revision_url(revision.environment_id, previous),
        "following_url": _revision_url(revision.environment_id, following),
    }


# ---- facts ---------------------------------------------------------------------------------------------------------


@_IN_ONE_SNAPSHOT
def facts_page(request: HttpRequest, kind: Signature, ids: Sequence[str]) -> dict[str, object]:
    """Return the history of one fact, given all of its ids, or of all facts of a signature, newest first."""
    types = kind.signature.types
    after = _after(request)
    args = [Argument(name, text) for name, text in zip(types, ids)]
    found = history.of_kinds(kind.environment_id, {kind.signature: kind.pk}, args, FACTS, after)
    shown = _shown(fact_url((kind.pk, *ids), len(ids)), after, found)
    first = {"type": types[0], "id": ids[0]} if ids else {}
    return shown | {
        "environment": kind.environment,
        "kind": kind,
        "types": types,
        "fact": fact_of_row(kind.signature, ids) if ids else None,
        "state": _state(kind, ids) if ids else "",
        "kind_url": fact_url((kind.pk,), 0) if ids else "",
        "browse_url": browse_url(kind.environment_id, predicate=kind.predicate, **first),
    }


@_IN_ONE_SNAPSHOT
def value_page(request: HttpRequest, environment: Environment, value: Value) -> dict[str, object]:
    """Return the history of the facts that mention a value, newest first."""
    after = _after(request)
    found = history.of_value(environment.pk, value, FACTS, after)
    here = value_url(environment.slug, value, page="admin:authz_facts_value_history")
    return _shown(here, after, found) | {
        "environment": environment,
        "value": value,
        "value_url": value_url(environment.slug, value),
    }


def _shown(here: str, after: HistoryKey | None, found: History) -> dict[str, object]:
    """Return what all pages of the history of facts show; `here` is the URL of the first page."""
    return {
        "happened": [(each.revision, None, each) for each in found.entries],
        "horizon": found.horizon,
        "pager": _pager(f"{here}&", after, found),
    }


def _after(request: HttpRequest) -> HistoryKey | None:
    return HistoryKey.of(key_of(request.GET.get("after"), _FACTS))


def _pager(start: str, after: HistoryKey | None, found: History) -> Pager:
    """Return the URLs of the first and the next page, which begin with `start`."""
    following = urlencode({"after": Cursor(_FACTS, found.more).token}) if found.more else ""
    return Pager(first=start[:-1] if after else "", next=following and f"{start}{following}")


def _state(kind: Signature, ids: Sequence[str]) -> str:
    """Return whether the fact is stored, or was."""
    row: Row = (kind.pk, *[*ids, *[""] * (len(COLUMNS) - len(ids))])
    period = latest_periods(kind.environment_id, [row]).get(row)
    if period is None:
        return "Not stored, and not in the history."
    is_over = period.until is not None or (period.expires_at is not None and period.expires_at <= now())
    return f"Not stored: {until_text(period)}." if is_over else f"Stored, {since_text(period)}."


# ---- URLs ----------------------------------------------------------------------------------------------------------


def revision_url(revision: Revision) -> str:
    return _revision_url(revision.environment_id, revision.number)


def _revision_url(environment_id: int, number: int | None) -> str:
    return reverse("admin:authz_facts_signature_revision", args=[environment_id, number]) if number else ""


def environment_asked(request: HttpRequest) -> Environment | None:
    number = whole_number(request.GET.get("environment", ""), LAST_REVISION)
    return None if number is None else Environment.objects.filter(pk=number).first()


def revision_asked(environment_id: int, number: int) -> Revision | None:
    if max(environment_id, number) > LAST_REVISION:
        return None
    return revisions_of(environment_id).select_related("environment").filter(number=number).first()


def fact_asked(request: HttpRequest) -> tuple[Signature, list[str]] | None:
    """Return the signature, and the ids of one of its facts or none; None if there is no such signature."""
    number, ids = whole_number(request.GET.get("signature", ""), LAST_REVISION), request.GET.getlist("id")
    kind = None if number is None else Signature.objects.select_related("environment").filter(pk=number).first()
    if kind is None or any("\0" in text for text in ids) or len(ids) not in (0, len(kind.signature.types)):
        return None
    return kind, ids
