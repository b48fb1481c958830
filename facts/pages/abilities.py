"""What the page of a value says of questions about it. They cost: only the one that is chosen is asked."""

from __future__ import annotations

from dataclasses import dataclass

Named = tuple[str, str, str]  # a type, an id, and the address of that value's page


@dataclass(frozen=True)
class Answer:
    """A question that was chosen: what came of it, and where to ask it again and be told why."""

    ask_url: str
    told: str = ""
    first: tuple[Named, ...] = ()
    is_cut: bool = False
    trouble: str = ""


@dataclass(frozen=True)
class Choice:
    name: str
    url: str
    is_chosen: bool = False


@dataclass(frozen=True)
class Ability:
    """Questions that differ in their action: about resources of a type, or about this one."""

    what: str
    choices: tuple[Choice, ...]
    answer: Answer | None = None


@dataclass(frozen=True)
class Section:
    title: str
    name: str  # of its place on the page
    abilities: tuple[Ability, ...]
