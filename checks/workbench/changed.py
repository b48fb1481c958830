"""What one actor may do at one moment and not at another: gained, lost, and what was kept of it; a page of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from checks.asking import run
from checks.asking.snapshot import Snapshot, snapshot
from checks.workbench.parts import Parts
from checks.workbench.review import Review, Wanted
from checks.workbench.spots import Came
from checks.workbench.stretches import Filter, Stretch, stretch_of
from policy.models import Environment
from policy.moments import Moment


def changes_of(
    environment_id: int, moments: tuple[Moment, Moment], wanted: Wanted, text: str = "", came: Came | None = None
) -> Stretch:
    """Compare what the wanted actor may do, by the policy of each moment."""
    return reviewed(Review(environment_id, moments, wanted), Filter(text, is_of_actors=False), came, collapses=True)


def reviewed(review: Review, text: Filter, came: Came | None, collapses: bool = False) -> Stretch:
    """Return a page of a review."""
    with run.question_time(), run.snapshot(), ExitStack() as stack:
        sides = [stack.enter_context(_side(review.environment_id, each)) for each in review.moments]
        parts = Parts(review, sides, text, came.spot if came else None, collapses)
        return stretch_of(parts, came, text.has, lambda: sum(side.planning for side in sides))


@contextmanager
def _side(environment_id: int, moment: Moment) -> Iterator[Snapshot]:
    """Open a session as of the moment; where nothing was stored since then, over the facts of now, which is quicker."""
    is_latest = Environment.objects.values_list("offset", flat=True).get(pk=environment_id) == moment.revision
    with snapshot(environment_id, moment.version, (), frozenset(), None if is_latest else moment) as found:
        yield replace(found, now=moment.at // 1_000_000)
