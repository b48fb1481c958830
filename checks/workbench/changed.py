"""A page of what changed between two moments, above all for one actor: gained, lost, and what was kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from checks.asking import run
from checks.asking.snapshot import Snapshot, snapshot
from checks.workbench.chunks import Chunks
from checks.workbench.review import Review, Wanted, moments_reviewed
from checks.workbench.review_cursor import Last, PageStart
from checks.workbench.stretches import Filter, Stretch, stretch_of
from facts.mentioned_as_of import any_ends
from facts.numbering import numbers_as_of
from policy.clock import now, time_of
from policy.errors import MalformedRequest
from policy.models import Environment
from policy.moments import AsOf, Moment, moment_of

_MEANWHILE = 60_000_000  # microseconds; a page takes less


def changes_of(
    environment_id: int, moments: tuple[Moment, Moment], wanted: Wanted, text: str = "", start: PageStart | None = None
) -> Stretch:
    """Compare what the wanted actor may do, by the policy of each moment."""
    return reviewed(Review(environment_id, moments, wanted), Filter(text, is_of_actors=False), start, collapses=True)


def reviewed(review: Review, text: Filter, start: PageStart | None, collapses: bool = False) -> Stretch:
    """Return a page of a review."""
    with run.question_time(), run.snapshot(), ExitStack() as stack:
        sides = [stack.enter_context(_side(review.environment_id, each)) for each in review.moments]
        chunks = Chunks(review, sides, text, start.cursor if start else None, collapses)
        last = Last(review.moments[-1].revision, review.moments[-1].at)
        return stretch_of(chunks, start, last, text.has, lambda: sum(side.planning for side in sides))


def moments_of_page(environment_id: int, asked: Sequence[AsOf | None], start: PageStart | None) -> tuple[Moment, ...]:
    """Return the moments of a page. None is now; on a page that continues others, what was now on the first one."""
    then = _went_on(environment_id, start.last) if start is not None and None in asked else None
    return moments_reviewed(environment_id, *asked, now=then)


def asked_of_page(
    asked: Sequence[AsOf | None], moments: Sequence[Moment], start: PageStart | None
) -> Iterator[AsOf | None]:
    """Yield how links ask about each moment alone; they ask about what was now on the first page by its time."""
    for when, moment in zip(asked, moments):
        yield time_of(moment.at) if when is None and start is not None else when


def _went_on(environment_id: int, last: Last) -> Moment:
    found = moment_of(environment_id, last.revision, called="after")
    if found is None or last.at > now():
        raise MalformedRequest("after", "goes on up to a time that is still to come; begin with the first page")
    return replace(found, at=last.at)


@contextmanager
def _side(environment_id: int, moment: Moment) -> Iterator[Snapshot]:
    """Open a session as of the moment. If the same facts hold now, the session reads those, which is quicker."""
    asked = None if _is_as_now(environment_id, moment) else moment
    with snapshot(environment_id, moment.version, (), frozenset(), asked) as found:
        yield replace(found, now=moment.at // 1_000_000)


def _is_as_now(environment_id: int, moment: Moment) -> bool:
    """Say whether nothing was written since the moment, and no fact has expired or expires while a page is read."""
    if Environment.objects.values_list("offset", flat=True).get(pk=environment_id) != moment.revision:
        return False
    return not any_ends(numbers_as_of(environment_id), moment.at, now() + _MEANWHILE)
