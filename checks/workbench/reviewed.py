"""What a review says, in words."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from django import forms

from checks.explain.cases import ANY
from checks.explain.tree import shown_value
from checks.workbench.review import NotAnswered, OutOfTime, Review, State, Wanted, moments_reviewed
from policy.clock import text_of
from policy.models import Environment, PolicyVersion
from policy.moments import AsOf, Moment, as_of_from_text
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


# ---- on a page -------------------------------------------------------------------------------------------------------

MOST_SHOWN = 500  # lines
SECONDS = 8.0


class ReviewForm(forms.Form):
    """From a moment to another, or at one; both are written as `--as-of` of commands is."""

    start = forms.CharField(strip=True, required=False, max_length=60)
    end = forms.CharField(strip=True, required=False, max_length=60)
    at = forms.CharField(strip=True, required=False, max_length=60)
    actor_type = forms.CharField(strip=True, required=False)
    action = forms.CharField(strip=True, required=False)
    resource_type = forms.CharField(strip=True, required=False)

    def clean(self) -> dict:
        super().clean()
        sent = self.cleaned_data
        if not self.errors and bool(sent["start"]) == bool(sent["at"]):
            self.add_error(None, "name a moment to compare from, or one to list who had what then")
        elif not self.errors and sent["at"] and sent["end"]:
            self.add_error(None, "a moment to compare up to goes with one to compare from")
        return sent


@dataclass(frozen=True, slots=True)
class ReviewPage:
    """What a page shows of a review. Where it is cut, the command has all of it."""

    described: str
    moments: tuple[Moment, ...]
    counted: str
    lines: tuple[tuple[str, tuple[str, ...]], ...]  # the state, and actor, action and resource
    not_answered: tuple[str, ...]
    cut: str  # why there may be more; empty: this is all
    command: str

    @property
    def is_compared(self) -> bool:
        return len(self.moments) > 1


def review_for_page(environment: Environment, sent: Mapping[str, str]) -> ReviewPage:
    moments = moments_reviewed(environment.pk, *_moments_sent(sent))
    wanted = Wanted(sent["actor_type"], sent["action"], sent["resource_type"])
    review = Review(environment.pk, moments, wanted, time.monotonic() + SECONDS)
    lines: list[tuple[str, tuple[str, ...]]] = []
    refused: list[str] = []
    cut = ""
    try:
        for line in review.lines():
            if isinstance(line, NotAnswered):
                refused.append(str(line))
            elif len(lines) == MOST_SHOWN:
                cut = f"These are the first {MOST_SHOWN:,}; there are more."
                break
            else:
                lines.append((line.state, (shown(line.actor), shown_action(line.action), shown(line.resource))))
    except OutOfTime:
        cut = f"This is what was found in {SECONDS:g} seconds; there may be more."
    counts = Counter(state for state, _ in lines)
    said = described(moments)
    return ReviewPage(
        said,
        moments,
        counted(counts, len(moments)),
        tuple(lines),
        tuple(refused),
        cut,
        _command(environment, sent),
    )


def _moments_sent(sent: Mapping[str, str]) -> list[AsOf | None]:
    if sent["at"]:
        return [as_of_from_text(sent["at"], "at")]
    return [as_of_from_text(sent["start"], "from"), as_of_from_text(sent["end"], "to") if sent["end"] else None]


def _command(environment: Environment, sent: Mapping[str, str]) -> str:
    """Return what prints all of it in a terminal."""
    options = {"from": "start", "to": "end", "at": "at", "actor-type": "actor_type", "action": "action"}
    options["resource-type"] = "resource_type"
    given = [part for name, field in options.items() if sent[field] for part in (f"--{name}", sent[field])]
    return shlex.join(["python", "manage.py", "review_access", "--environment", environment.slug, *given])
