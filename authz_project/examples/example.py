"""What a world is: a policy, facts, and questions whose answers teach something."""

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from facts.notation import write_csv
from facts.wire import Fact

FOLDER = Path(__file__).with_name("worlds")
Kind = Literal["authorize", "actions", "list", "who"]
Answer = bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One worth trying. An actor or a resource is a value, as `User:ann`; of the kind `who` the actor is a type, as
    `User`, and of the kind `list` the resource."""

    kind: Kind
    actor: str
    action: str  # empty, where the question is which
    resource: str
    answer: Answer  # whether, or which ids or actions: all of them, in order
    why: str  # what it shows: a sentence

    @property
    def parameters(self) -> dict[str, str]:
        """Return the parameters for the address of the page that asks it."""
        asked = {"kind": self.kind, "actor": self.actor, "action": self.action, "resource": self.resource}
        return {name: text for name, text in asked.items() if text}

    def __str__(self) -> str:
        return " ".join(self.parameters.values())

    @property
    def answer_text(self) -> str:
        """Return the answer in words."""
        if isinstance(self.answer, bool):
            return "allowed" if self.answer else "denied"
        return ", ".join(self.answer) or "none"


@dataclass(frozen=True)
class Example:
    """A world that can be loaded into an environment."""

    name: str
    title: str
    about: str  # paragraphs, parted by empty lines
    patterns: tuple[str, ...]  # of modelling, that it shows
    questions: tuple[Question, ...]
    write_facts: Callable[[], Iterable[Fact]]

    @property
    def filename(self) -> str:
        return f"{self.name}.polar"

    @cached_property
    def policy(self) -> str:
        return (FOLDER / self.filename).read_text(encoding="utf-8")

    @cached_property
    def stored_facts(self) -> tuple[Fact, ...]:
        """Return each once, in the order in which they are told."""
        return tuple(dict.fromkeys(self.write_facts()))

    @cached_property
    def facts(self) -> str:
        """Return the facts as a file of CSV, which `load_facts` reads."""
        text = io.StringIO()
        write_csv(text, iter(self.stored_facts))
        return text.getvalue()
