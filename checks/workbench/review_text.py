"""Texts for what a review found: values, moments, counts, and how far it was read."""

from __future__ import annotations

from collections.abc import Mapping

from checks.explain.cases import ANY
from checks.explain.tree import shown_value
from checks.workbench.review import AccessState
from checks.workbench.review_cursor import ReviewCursor
from checks.workbench.stretches import Stretch
from policy.clock import text_of
from policy.models import PolicyVersion
from policy.moments import Moment
from policy.values import Value, quoted


def shown(value: Value) -> str:
    """Return `User:ann`; `User:*` is every User that no other line is about."""
    return f"{value.type}:*" if value.id == ANY else shown_value(value)


def shown_action(action: Value) -> str:
    """Return the action without quotes, unless it could be taken for something else then."""
    if action.id == ANY:
        return "*"
    return action.id if action.id.replace("_", "").isalnum() else quoted(action.id)


def described(moments: tuple[Moment, ...]) -> str:
    """Return the title of a review of these moments."""
    whens = [_when(moment) for moment in moments]
    return f"Who had what at {whens[0]}" if len(whens) == 1 else f"What changed from {whens[0]} to {whens[1]}"


def _when(moment: Moment) -> str:
    number = PolicyVersion.objects.values_list("number", flat=True).get(pk=moment.version or 0)
    return f"revision {moment.revision} ({text_of(moment.at)}, policy version {number})"


def headline(found: Stretch, moments: int) -> str:
    """Return how many lines there are, or at least how many if the review was not read to its end."""
    if not any(found.counts.values()):
        nothing = "Nothing" if moments == 1 else "Nothing changed"
        return nothing if found.is_whole else "Nothing so far"
    if found.is_whole:
        return counted(found.counts, moments)
    if moments == 1:
        return f"At least {found.counts.get(AccessState.HAS, 0):,}"
    return f"At least {counted(found.counts, moments)}"


def lines_of(found: Stretch, moments: int) -> str:
    """Return which lines are on the page, such as `101 to 200 of 250`; an empty text if these are all."""
    if not found.counted or (found.is_first and found.next is None):
        return ""
    total = sum(count for state, count in found.counts.items() if state != AccessState.KEPT)
    of_all = f" of {total:,}" if found.is_whole else ""
    return f"{found.start:,} to {found.start + found.counted - 1:,}{of_all}"


def looked_text(cursor: ReviewCursor) -> str:
    """Return how far the review was read: all that comes before the cursor."""
    action = "any action" if cursor.action is None else f"“{cursor.action}”"
    kind = f"{action} on {cursor.resource_type} by {cursor.actor_type}"
    if cursor.leading is None:
        return f"all that comes before {kind}"
    if cursor.leading == ANY:
        return f"{kind}, of resources that no fact names"
    can_be_shown = bool(cursor.leading.strip()) and cursor.leading.isprintable()
    return f"{kind}, up to {cursor.leading}" if can_be_shown else f"a part of {kind}"


def counted(counts: Mapping[str, int], moments: int) -> str:
    if moments == 1:
        return f"{counts.get(AccessState.HAS, 0):,} in all"
    return f"{counts.get(AccessState.GAINED, 0):,} gained, {counts.get(AccessState.LOST, 0):,} lost"
