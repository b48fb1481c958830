"""Reading what changed, and a plain model of what it should be: facts as a set after each revision."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlencode

Plain = tuple[str, tuple[tuple[str, str], ...]]  # a predicate, and types with ids
Ask = Callable[[str], dict]  # the answer to a path


def plain(fact: dict) -> Plain:
    return fact["predicate"], tuple((arg["type"], arg["id"]) for arg in fact["args"])


@dataclass
class Told:
    """A revision, put together of its parts."""

    revision: int
    kind: str
    policy_version: int | None
    inserted: list[Plain] = field(default_factory=list)
    deleted: list[Plain] = field(default_factory=list)

    @property
    def both(self) -> tuple[set[Plain], set[Plain]]:
        """What it inserted and deleted; each once."""
        assert len(self.inserted) == len(set(self.inserted)) and len(self.deleted) == len(set(self.deleted))
        return set(self.inserted), set(self.deleted)


def path_of(after: int | str, limit: int | None = None, predicates: Iterable[str] = (), wait: float = 0) -> str:
    given = [("after", after), *([("limit", limit)] if limit else []), *(("predicate", each) for each in predicates)]
    return f"/changes?{urlencode([*given, *([('wait', wait)] if wait else [])])}"


def answers(ask: Ask, after: int | str, limit: int | None = None, predicates: Iterable[str] = ()) -> Iterator[dict]:
    """One after the other, until there is no more."""
    while True:
        answer = ask(path_of(after, limit, predicates))
        yield answer
        if not answer["more"]:
            return
        assert answer["next"] != after, "it goes on"
        after = answer["next"]


def together(found: Iterable[dict], limit: int | None = None) -> list[Told]:
    """The revisions of some answers. None is larger than it may be, and parts come in order."""
    told: list[Told] = []
    part, parts = 0, 0
    for answer in found:
        facts = sum(len(each["inserted"]) + len(each["deleted"]) for each in answer["changes"])
        assert facts <= (limit or 1000)
        for change in answer["changes"]:
            if part == 0:
                told.append(Told(change["revision"], change["kind"], change["policy_version"]))
            mine = told[-1]
            assert (mine.revision, mine.kind) == (change["revision"], change["kind"])
            mine.inserted += map(plain, change["inserted"])
            mine.deleted += map(plain, change["deleted"])
            if "part" not in change:
                assert part == 0
                continue
            assert change["part"] == part + 1 and parts in (0, change["parts"])
            part, parts = (0, 0) if change["part"] == change["parts"] else (change["part"], change["parts"])
        assert isinstance(answer["next"], str) == (part > 0)
    assert part == 0
    numbers = [each.revision for each in told]
    assert numbers == sorted(set(numbers))
    return told


def replayed(told: Iterable[Told]) -> set[Plain]:
    """What is stored in the end. Nothing is deleted that is not there."""
    stored: set[Plain] = set()
    for each in told:
        inserted, deleted = each.both
        assert deleted <= stored and not inserted & deleted
        stored = (stored - deleted) | inserted
    return stored
