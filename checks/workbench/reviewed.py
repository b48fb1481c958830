"""What a review says, in words."""

from __future__ import annotations

from collections.abc import Mapping

from checks.explain.cases import ANY
from checks.explain.tree import shown_value
from checks.workbench.review import State
from policy.clock import text_of
from policy.models import PolicyVersion
from policy.moments import Moment
from policy.values import Value, quoted


def shown(value: Value) -> str:
    """Return `User:ann`; `User:*` is every User that no other line is about."""
    return f"{value.type}:*" if value.id == ANY else shown_value(value)


def shown_action(action: Value) -> str:
    """Return it without quotes, unless it could be taken for something else."""
    if action.id == ANY:
        return "*"
    return action.id if action.id.replace("_", "").isalnum() else quoted(action.id)


def described(moments: tuple[Moment, ...]) -> str:
    """Say of which moments it is."""
    whens = [_when(moment) for moment in moments]
    return f"Who had what at {whens[0]}" if len(whens) == 1 else f"What changed from {whens[0]} to {whens[1]}"


def _when(moment: Moment) -> str:
    number = PolicyVersion.objects.values_list("number", flat=True).get(pk=moment.version or 0)
    return f"revision {moment.revision} ({text_of(moment.at)}, policy version {number})"


def counted(counts: Mapping[str, int], moments: int) -> str:
    if moments == 1:
        return f"{counts.get(State.HAS, 0):,} in all"
    return f"{counts.get(State.GAINED, 0):,} gained, {counts.get(State.LOST, 0):,} lost"
