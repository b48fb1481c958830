"""Questions about a value that its page offers. Answers are expensive: only the question that is chosen is asked."""

from __future__ import annotations

from dataclasses import dataclass

Named = tuple[str, str, str]  # a type, an id, and the address of that value's page


@dataclass(frozen=True)
class Answer:
    """The answer to the chosen question, and the address of the page that asks it again and explains it."""

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
    """Questions that differ only in their action, about resources of one type or about this value."""

    what: str
    choices: tuple[Choice, ...]
    answer: Answer | None = None


@dataclass(frozen=True)
class Section:
    title: str
    name: str  # of its place on the page
    abilities: tuple[Ability, ...]
