"""What a preview's page shows, as far as the template cannot work it out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from checks.workbench.differences import Compared
from checks.workbench.links import page_lines
from checks.workbench.preview import Flip, Preview
from policy.pages.excerpts import excerpts_of_failures

_MOST_FLIPS = 300  # answers that differ
_FIRST_FLIPS = 20  # of them that are to be seen at once, each way
_MOST_FAILURES = 50  # of tests

_Explained = tuple[Flip, list]  # an answer that differs, with what either policy says of it


@dataclass(frozen=True, slots=True)
class FlipGroup:
    """What would be allowed, or what would be denied: the first to be seen at once, and the rest."""

    title: str
    count: str
    shown: Sequence[_Explained]
    rest: Sequence[_Explained]


def previewed(found: Preview, slug: str, most: int = _MOST_FLIPS) -> dict[str, object]:
    flips = found.flips[:most]
    explained = [(flip, [(side, page_lines(side, slug)) for side in flip.sides]) for flip in flips]
    kinds = [(each.tally.flips, (each.kind, _numbers(each), each.extent)) for each in found.asked.kinds]
    failures = excerpts_of_failures(found.draft.program.source, found.draft.report)
    return {
        "flips": explained,
        "groups": [group for group in _groups(found, explained) if group.shown],
        "differ": f"{found.differ:,}",
        "hidden": f"{found.differ - len(flips):,}" if found.differ > len(flips) else "",
        "failing": sum(bool(test.failures) for test in found.draft.report.tests),
        "failures": failures[:_MOST_FAILURES],
        "hidden_failures": len(failures[_MOST_FAILURES:]),
        "kinds": [shown for differs, shown in kinds if differs],
        "same_kinds": [shown for differs, shown in kinds if not differs],
    }


def _groups(found: Preview, explained: Sequence[_Explained]) -> Iterator[FlipGroup]:
    gained = sum(each.tally.gained for each in found.asked.kinds)
    lost = sum(each.tally.lost for each in found.asked.kinds)
    for is_allowed, title, total in ((True, "Would be allowed", gained), (False, "Would be denied", lost)):
        flips = [each for each in explained if each[0].is_allowed == is_allowed]
        count = f"{len(flips):,} of {total:,} are shown" if total > len(flips) else f"{len(flips):,}"
        yield FlipGroup(title, count, flips[:_FIRST_FLIPS], flips[_FIRST_FLIPS:])


def _numbers(compared: Compared) -> list[str]:
    tally = compared.tally
    return [f"{number:,}" for number in (tally.answers, tally.gained, tally.lost)]
