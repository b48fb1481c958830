"""Consistent paging: later pages are answered as of the moment of the first page.

A token says which moment that is. For ten minutes, if its history is kept that long, the following pages are asked as
of that moment; after that, about now, from the same id on. Either way no id is sent twice. An older token must not show
what was granted then, since some of it may be revoked by now.
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
_CLOCKS_APART = 1_000_000  # microseconds by which the clocks of a primary and a replica may differ

Ask = Callable[[Moment | None], Answered]


def as_of_first_page(asker: Asker, first: Moment | None, ask: Ask) -> tuple[Answered, Moment | None]:
    """Ask for a page, and return with it the moment that it is of: that of the first page, or None for now."""
    if first is None or not _is_recent(first):
        return ask(None), None
    if confirmed(asker).offset == first.revision:  # likely nothing has changed, and asking about now is quicker
        found = ask(None)
        if found.revision == first.revision and found.is_timeless:
            return found, first
    with suppress(NoSuchMoment):
        return ask(first), first
    return ask(None), None


def _is_recent(first: Moment) -> bool:
    """Say whether a list may still be of the moment. A moment to come is one from before the clock was set back."""
    return -_CLOCKS_APART <= clock.now() - first.at <= LONGEST


def moment_to_token(found: Answered, first: Moment | None) -> list[int]:
    """Return the numbers by which a token names the moment; without a policy, only the revision, for replicas."""
    if first is None and found.version_id is None:
        return [found.revision] if settings.REPLICAS else []
    # The database's clock, right after the statement. Facts that had not expired by then count on all pages.
    at = first or Moment(found.revision, clock.now(), found.version_id)
    return [at.revision, at.at, at.version or 0]


def not_cached(found: Answered) -> Answered:
    """Return the answer as one that the answer cache does not keep.

    A token for the next page says when the first one was answered. In a cached answer its ten minutes would have begun
    before.
    """
    return found._replace(valid_while=None)


def moment_from_token(numbers: Sequence[int]) -> Moment | None:
    return Moment(*numbers[:3]) if len(numbers) > 2 else None
