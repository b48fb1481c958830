"""History pages: an environment's revisions, what one of them changed, and the history of facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.core import signing
from django.http import HttpRequest
from django.urls import reverse

from facts import history
from facts.history import Entry, FactChange, HistoryCursor, latest_periods, minute, since_text, until_text
from facts.models import COLUMNS, Row, Signature
from facts.numbering import types_of_text
from facts.pages.addresses import address_of
from facts.read import fact_of_row
from facts.wire import Argument
from policy.ground.clock import microseconds_of, now
from policy.ground.journal import Kind
from policy.models import Environment, PolicyVersion, Revision
from policy.rules import program
from policy.values import Value

REVISIONS, FACTS = 50, 100  # per page
_DONE: dict[str, str] = {
    Kind.FACTS: "Facts",
    Kind.LOAD: "Facts loaded",
    Kind.CLEAR: "All facts deleted",
    Kind.COPY: "Facts copied from another environment",
    Kind.EXPIRY: "Facts expired",
    Kind.POLICY: "Policy",
    Kind.ENVIRONMENT: "Environment renamed",
    Kind.UPGRADE: "Facts from before history began",
}
MINUTE = 60_000_000  # microseconds
_LONGEST_NUMBER = 18  # digits


@dataclass(frozen=True)
class Step:
    """A revision as a line of a timeline. If it changed the policy: the version, and the diff from the previous one."""

    revision: Revision
    when: str
    what: str
    facts_url: str  # its changes of facts, if there are any
    version_url: str = ""
    difference_url: str = ""


@dataclass(frozen=True)
class FactLine:
    """A fact on a page: whether it was inserted, its expiry, and the URL of its own history."""

    changed: FactChange
    is_inserted: bool
    until: str
    url: str


@dataclass(frozen=True)
class Happened:
    """What a revision did to the facts that a page is about."""

    step: Step
    facts: tuple[FactLine, ...]


# ---- an environment ----------------------------------------------------------------------------------------------


def timeline(request: HttpRequest, environment: Environment, may_view_policies: bool) -> dict[str, object]:
    """Return a page of the revisions, newest first."""
    found = Revision.objects.filter(environment=environment).order_by("-number")
    before = _number(request.GET.get("before", ""))
    if before is not None:
        found = found.filter(number__lt=before)
    shown = list(found.select_related("policy_version").defer("policy_version__source")[: REVISIONS + 1])
    steps = [step_of(each, earlier, may_view_policies) for each, earlier in zip(shown, [*shown[1:], None])][:REVISIONS]
    return {
        "environment": environment,
        "steps": steps,
        "next": f"?{urlencode({'environment': environment.pk, 'before': steps[-1].revision.number})}"
        if len(shown) > REVISIONS
        else "",
        "first": timeline_url(environment.pk) if before is not None else "",
    }


def step_of(revision: Revision, earlier: Revision | None, may_view_policies: bool) -> Step:
    """Return the line of a revision. The preceding revision is only needed for its policy."""
    when, version = minute(revision.at), revision.policy_version
    facts_url = revision_url(revision)
    what = _DONE.get(revision.kind, revision.kind)
    if revision.kind != Kind.POLICY or version is None:
        return Step(revision, when, what, facts_url)
    what = f"Policy version {version.number} activated"
    if not may_view_policies:
        return Step(revision, when, what, facts_url)
    url = reverse("admin:policy_policyversion_change", args=[version.pk])
    old = earlier.policy_version if earlier else None
    if old is None or old.pk == version.pk:
        return Step(revision, when, what, facts_url, url)
    difference = reverse("admin:policy_policyversion_difference", args=[version.pk])
    return Step(revision, when, what, facts_url, url, f"{difference}?from={old.number}")


def activated_url(version: PolicyVersion) -> str:
    """Return the URL of the revision that first activated a version; of the timeline, if it is pruned or not found."""
    at = microseconds_of(version.created_at)
    about_then = Revision.objects.filter(environment=version.environment_id, at__range=(at - MINUTE, at + MINUTE))
    found = about_then.filter(kind=Kind.POLICY, policy_version=version).order_by("at", "number").first()
    return revision_url(found) if found else timeline_url(version.environment_id)


def earlier_than(revision: Revision) -> Revision | None:
    return Revision.objects.filter(environment=revision.environment_id, number=revision.number - 1).first()


# ---- a revision ----------------------------------------------------------------------------------------------------


def revision_page(request: HttpRequest, revision: Revision, may_view_policies: bool) -> dict[str, object]:
    """Return a revision's author and time, and a page of its changes."""
    after = _cursor_asked(request)
    found = history.of_revision(revision.environment_id, revision.number, FACTS, after)
    facts = fact_lines(found.entries[0]) if found.entries else ()
    here = revision_url(revision)
    numbers = Revision.objects.filter(environment=revision.environment_id).values_list("number", flat=True)
    following = numbers.filter(number__gt=revision.number).order_by("number").first()
    previous = numbers.filter(number__lt=revision.number).order_by("-number").first()
    return {
        "environment": revision.environment,
        "revision": revision,
        "step": step_of(revision, earlier_than(revision), may_view_policies),
        "facts": facts,
        "is_known": revision.number > found.horizon,
        "horizon": found.horizon,
        "next": f"?{urlencode({'after': _token(found.more)})}" if found.more else "",
        "first": here if after else "",
        "previous_url": _revision_url(revision.environment_id, previous) if previous else "",
        "following_url": _revision_url(revision.environment_id, following) if following else "",
    }


def fact_lines(entry: Entry) -> tuple[FactLine, ...]:
    inserted = [_fact_line(each, True) for each in entry.inserted]
    return (*inserted, *(_fact_line(each, False) for each in entry.deleted))


def _fact_line(changed: FactChange, is_inserted: bool) -> FactLine:
    until = "" if changed.expires_at is None else minute(changed.expires_at)
    return FactLine(changed, is_inserted, until, fact_url(changed.row, len(changed.fact.args)))


# ---- facts ---------------------------------------------------------------------------------------------------------


def facts_page(request: HttpRequest, kind: Signature, ids: Sequence[str], may_view_policies: bool) -> dict[str, object]:
    """Return the history of one fact, given all of its ids, or of all facts of a signature, newest first."""
    types = types_of_text(kind.types)
    signature = program.Signature(kind.predicate, types)
    after = _cursor_asked(request)
    args = [Argument(name, text) for name, text in zip(types, ids)]
    found = history.of_kinds(kind.environment_id, {signature: kind.pk}, args, FACTS, after)
    here = fact_url((kind.pk, *ids), len(ids))
    return {
        "environment": kind.environment,
        "kind": kind,
        "types": types,
        "fact": fact_of_row(signature, ids) if ids else None,
        "state": _state(kind, ids) if ids else "",
        "kind_url": fact_url((kind.pk,), 0) if ids else "",
        "browse_url": _browse_url(kind, ids),
        "happened": [
            Happened(step_of(each.revision, None, may_view_policies), fact_lines(each)) for each in found.entries
        ],
        "horizon": found.horizon,
        "next": f"{here}&{urlencode({'after': _token(found.more)})}" if found.more else "",
        "first": here if after else "",
    }


def value_page(
    request: HttpRequest, environment: Environment, value: Value, may_view_policies: bool
) -> dict[str, object]:
    """Return the history of the facts that mention a value, newest first."""
    after = _cursor_asked(request)
    found = history.of_value(environment.pk, value, FACTS, after)
    asked = urlencode({"environment": environment.slug, "type": value.type, "id": value.id})
    here = f"{reverse('admin:facts_value_history')}?{asked}"
    return {
        "environment": environment,
        "value": value,
        "value_url": f"{reverse('admin:facts_value')}?{asked}",
        "happened": [
            Happened(step_of(each.revision, None, may_view_policies), fact_lines(each)) for each in found.entries
        ],
        "horizon": found.horizon,
        "next": f"{here}&{urlencode({'after': _token(found.more)})}" if found.more else "",
        "first": here if after else "",
    }


def _state(kind: Signature, ids: Sequence[str]) -> str:
    """Return whether the fact is stored, or was."""
    row: Row = (kind.pk, *[*ids, *[""] * (len(COLUMNS) - len(ids))])
    period = latest_periods(kind.environment_id, [row]).get(row)
    if period is None:
        return "Not stored, and not in the history."
    is_over = period.until is not None or (period.expires_at is not None and period.expires_at <= now())
    return f"Not stored: {until_text(period)}." if is_over else f"Stored, {since_text(period)}."


def _browse_url(kind: Signature, ids: Sequence[str]) -> str:
    asked = {"environment": kind.environment_id, "predicate": kind.predicate}
    if ids:
        asked |= {"type": types_of_text(kind.types)[0], "id": ids[0]}
    return f"{reverse('admin:facts_signature_changelist')}?{urlencode(asked)}"


# ---- URLs ----------------------------------------------------------------------------------------------------------


def timeline_url(environment_id: int) -> str:
    return f"{reverse('admin:facts_signature_history')}?{urlencode({'environment': environment_id})}"


def fact_url(row: Sequence[object], arity: int) -> str:
    """Return the URL of a fact's history; without arguments, that of its signature."""
    asked = [("signature", row[0]), *(("id", text) for text in row[1 : 1 + arity])]
    return f"{address_of('admin:facts_signature_history')}?{urlencode(asked)}"


def revision_url(revision: Revision) -> str:
    return _revision_url(revision.environment_id, revision.number)


def _revision_url(environment_id: int, number: int) -> str:
    return reverse("admin:facts_signature_revision", args=[environment_id, number])


def environment_asked(request: HttpRequest) -> Environment | None:
    number = _number(request.GET.get("environment", ""))
    return None if number is None else Environment.objects.filter(pk=number).first()


def revision_asked(environment_id: int, number: int) -> Revision | None:
    if max(environment_id, number) >= 10**_LONGEST_NUMBER:
        return None
    found = Revision.objects.filter(environment=environment_id, number=number)
    return found.select_related("environment", "policy_version").defer("policy_version__source").first()


def fact_asked(request: HttpRequest) -> tuple[Signature, list[str]] | None:
    """Return the signature, and the ids of one of its facts or none; None if there is no such signature."""
    number, ids = _number(request.GET.get("signature", "")), request.GET.getlist("id")
    kind = None if number is None else Signature.objects.select_related("environment").filter(pk=number).first()
    if kind is None or any("\0" in text for text in ids) or len(ids) not in (0, len(types_of_text(kind.types))):
        return None
    return kind, ids


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER else None


def _token(after: HistoryCursor) -> str:
    return signing.dumps([after.revision, list(after.row)])


def _cursor_asked(request: HttpRequest) -> HistoryCursor | None:
    """Return the cursor of the page, if its token was issued by such a page."""
    token = request.GET.get("after", "")
    if not token:
        return None
    try:
        revision, row = signing.loads(token)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    return HistoryCursor(revision, tuple(row))
