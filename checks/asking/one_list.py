"""Pages of a list about now, as one list: all of them are of the moment at which the first was answered.

A token says which moment that is. For ten minutes, and as long as its history is kept, the pages that follow are asked
as of it; after that, about now, from the same id on. Either way nothing is told twice. Who keeps a token for longer
does not want to know what was granted then: what was revoked since, is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from django.conf import settings

from checks.asking.ask import Answered
from checks.asking.askers import Asker, confirmed
from policy import clock
from policy.moments import Moment, NoSuchMoment

LONGEST = 600_000_000  # microseconds that a list stays as it was

Ask = Callable[[Moment | None], Answered]


def as_of_first_page(asker: Asker, first: Moment | None, ask: Ask) -> tuple[Answered, Moment | None]:
    """Ask for a page, and say of which moment it is: of that of the first one, or (None) of now."""
    if first is None or clock.now() - first.at > LONGEST:
        return ask(None), None
    if confirmed(asker).offset == first.revision:  # most likely now is that moment still, which is asked in less time
        found = ask(None)
        if found.revision == first.revision and found.is_timeless:
            return found, first
    with suppress(NoSuchMoment):
        return ask(first), first
    return ask(None), None


def marks_of(found: Answered, first: Moment | None) -> list[int]:
    """Return what a token says of when its list was answered. Without a policy, only what replicas must have seen."""
    if first is None and found.version_id is None:
        return [found.revision] if settings.REPLICAS else []
    # By the database's clock, at once after the statement. What had not come to its end then, counts on all pages.
    at = first or Moment(found.revision, clock.now(), found.version_id)
    return [at.revision, at.at, at.version or 0]


def moment_of_marks(marks: Sequence[int]) -> Moment | None:
    return Moment(*marks[:3]) if len(marks) > 2 else None
