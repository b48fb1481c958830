"""What was published since somebody began to write: by whom, when, and what it changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from policy import publishing
from policy.clock import time_of
from policy.models import Environment, PolicyVersion, Revision
from policy.pages.differing_lines import Row, difference
from policy.revisions import Kind

_MOST = 5  # publications that are listed; earlier ones are only counted


@dataclass(frozen=True, slots=True)
class Publication:
    """A version that became active."""

    number: int
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """The publications after the version that was seen, the latest last, and the difference to the active version."""

    seen: int | None
    active: PolicyVersion | None
    publications: tuple[Publication, ...]
    more: int
    rows: tuple[Row, ...]  # from the version that was seen to the active one

    @property
    def added(self) -> int:
        return sum(row.kind == "added" for row in self.rows)

    @property
    def removed(self) -> int:
        return sum(row.kind == "removed" for row in self.rows)


def published_meanwhile(environment: Environment, seen: int | None) -> Meanwhile | None:
    """Return what was published since version `seen`; None if that is still the active one."""
    active = publishing.active_version(environment.pk)
    if (active.number if active else None) == seen:
        return None
    before = PolicyVersion.objects.filter(environment=environment, number=seen).first() if seen else None
    came = _publications(environment, before)
    rows = difference(before.source if before else "", active.source if active else "")
    return Meanwhile(seen, active, tuple(came[-_MOST:]), len(came[:-_MOST]), tuple(rows))


def _publications(environment: Environment, before: PolicyVersion | None) -> list[Publication]:
    kept = Revision.objects.filter(environment=environment, kind=Kind.POLICY)
    if before is not None:
        last = kept.filter(policy_version=before).order_by("-number").first()
        kept = kept.filter(number__gt=last.number) if last else kept.filter(policy_version__number__gt=before.number)
    found = kept.order_by("number").values_list("policy_version__number", "author", "at")
    return [Publication(number, author, time_of(at)) for number, author, at in found if number is not None]
