"""Complete examples to explore and to start from: policies with tests, facts, and checks to try.

An example has three files in `worlds/`: its policy (`.polar`), its facts (`.csv`, as for `load_facts`), and its
description with the checks (`.toml`).
"""

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Literal

from facts import loading, read, table, wire
from facts.numbering import signature_numbers
from facts.wire import Fact, fact_from_json
from policy.core.journal import By, changing
from policy.errors import AuthzError, NotFound
from policy.models import Environment
from policy.publishing import NotApproved, active_version, publish

FOLDER = Path(__file__).with_name("worlds")
NAMES = ("code", "documents", "saas", "company", "clinic")  # in the recommended order


@dataclass(frozen=True, slots=True)
class ExampleQuestion:
    """A check to try. Actors and resources are values such as `User:ann`, but the actor of the kind `who` and the
    resource of the kind `list` are types such as `User`."""

    kind: Literal["authorize", "actions", "list", "who"]
    actor: str
    resource: str
    answer: bool | list[str]  # the decision, or all resulting ids or actions, in order
    why: str  # what it demonstrates, as a sentence
    action: str = ""  # empty if the question is which actions

    @property
    def parameters(self) -> dict[str, str]:
        """Return the query parameters for the Check page."""
        asked = {"kind": self.kind, "actor": self.actor, "action": self.action, "resource": self.resource}
        return {name: text for name, text in asked.items() if text}

    def __str__(self) -> str:
        return " ".join(self.parameters.values())

    @property
    def answer_text(self) -> str:
        if isinstance(self.answer, bool):
            return "allowed" if self.answer else "denied"
        return ", ".join(self.answer) or "none"


@dataclass(frozen=True)
class Example:
    name: str
    title: str
    about: str  # paragraphs separated by blank lines
    patterns: list[str]  # modelling patterns that it demonstrates
    questions: tuple[ExampleQuestion, ...]

    @property
    def filename(self) -> str:
        return f"{self.name}.polar"

    @cached_property
    def policy(self) -> str:
        return (FOLDER / self.filename).read_text(encoding="utf-8")

    @cached_property
    def facts(self) -> str:
        """Return the facts as a CSV file for `load_facts`."""
        return (FOLDER / f"{self.name}.csv").read_text(encoding="utf-8")

    @cached_property
    def stored_facts(self) -> tuple[Fact, ...]:
        with (FOLDER / f"{self.name}.csv").open("rb") as file:
            return tuple(fact_from_json(raw, "") for _, raw in wire.read_csv(file))


@cache
def examples() -> tuple[Example, ...]:
    return tuple(map(_described, NAMES))


def _described(name: str) -> Example:
    told = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    questions = tuple(ExampleQuestion(**each) for each in told.pop("questions"))
    return Example(name, questions=questions, **told)


def example_named(name: str) -> Example:
    found = next((each for each in examples() if each.name == name), None)
    if found is None:
        raise NotFound(f"Example `{name}` does not exist. Use one of {', '.join(NAMES)}.")
    return found


# ---- loading an example into an empty environment -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadedExample:
    """The result of loading an example. `is_unchanged` if everything already existed."""

    policy_version: int
    facts: int
    is_unchanged: bool = False


class NotEmpty(AuthzError):
    """The environment already has a policy or facts of its own."""


def load(environment_id: int, example: Example, by: By) -> LoadedExample:
    """Load the example's policy and facts into the environment. Raise `NotEmpty` if it has others.

    An environment with exactly these is left unchanged. The policy is stored first: if storing the facts then fails,
    the call can be repeated.
    """
    number = _number_of_policy(environment_id, example)
    if number is not None and _has_facts(environment_id):
        if set(read.every(environment_id)) != set(example.stored_facts):
            raise NotEmpty(_refusal(environment_id, "this example's policy, and other facts than its own"))
        return LoadedExample(number, len(example.stored_facts), is_unchanged=True)
    within = partial(_changing_what_is_empty, environment_id, example)
    published = publish(environment_id, example.policy, example.filename, within=within, by=by)
    if published.is_requested:
        raise NotApproved(f"{published.message}. Load the example again then")
    stored = loading.load(environment_id, enumerate(example.stored_facts, 1), by=by)
    return LoadedExample(published.version.number, stored.read)


@contextmanager
def _changing_what_is_empty(environment_id: int, example: Example) -> Iterator[None]:
    with changing():
        Environment.objects.select_for_update().filter(pk=environment_id).first()  # locks out other publishers
        _number_of_policy(environment_id, example)
        yield


def _number_of_policy(environment_id: int, example: Example) -> int | None:
    """Return the number of the active version if it is the example's; None if there is no policy and no fact."""
    active = active_version(environment_id)
    if active is not None and active.source == example.policy:
        return active.number
    if active is not None:
        raise NotEmpty(_refusal(environment_id, f"a policy, version {active.number}"))
    if _has_facts(environment_id):
        raise NotEmpty(_refusal(environment_id, "facts"))
    return None


def _has_facts(environment_id: int) -> bool:
    return bool(table.count_up_to(1, signature_numbers(environment_id).values()))


def _refusal(environment_id: int, what: str) -> str:
    slug = Environment.objects.values_list("slug", flat=True).get(pk=environment_id)
    return (
        f"Environment `{slug}` is not empty: it has {what}. Load the example into another environment"
        " with `load_example NAME --environment ENVIRONMENT`, which creates it."
    )
