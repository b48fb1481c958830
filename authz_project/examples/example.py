"""What a world is, how it is loaded, and how its questions are put into words."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, TypeVar
from zlib import crc32

from facts import loading, notation, read
from facts.notation import write_csv
from facts.numbering import signature_numbers
from facts.wire import Fact
from policy.errors import AuthzError
from policy.ground import clock
from policy.ground.journal import By, changing
from policy.models import Environment
from policy.publishing import active_version, publish
from policy.values import BOOLEAN, INTEGER, STRING, Value

# ---- What a world is: a policy, facts, and questions whose answers teach something --------------------------------

FOLDER = Path(__file__).with_name("worlds")
ExampleKind = Literal["authorize", "actions", "list", "who"]
ExampleAnswer = bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExampleQuestion:
    """One worth trying. An actor or a resource is a value, as `User:ann`; of the kind `who` the actor is a type, as
    `User`, and of the kind `list` the resource."""

    kind: ExampleKind
    actor: str
    action: str  # empty, where the question is which
    resource: str
    answer: ExampleAnswer  # whether, or which ids or actions: all of them, in order
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
    questions: tuple[ExampleQuestion, ...]
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


# ---- An example put into an environment that has nothing yet ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadedExample:
    """What is there now. `is_unchanged` where it was all there before."""

    policy_version: int
    facts: int
    is_unchanged: bool = False


class NotEmpty(AuthzError):
    """The environment has something of its own, which an example would get in the way of."""


def load(environment_id: int, example: Example, by: By) -> LoadedExample:
    """Give the environment the example's policy and facts; `NotEmpty` if it has others.

    An environment that has exactly these stays as it is. The policy is stored first: if storing the facts then
    fails, the same call can be repeated.
    """
    number = _number_of_policy(environment_id, example)
    if number is not None and _has_facts(environment_id):
        _check_facts(environment_id, example)
        return LoadedExample(number, len(example.stored_facts), is_unchanged=True)
    within = partial(_changing_what_is_empty, environment_id, example)
    version = publish(environment_id, example.policy, example.filename, within=within, by=by).version
    lines = notation.read_csv(io.BytesIO(example.facts.encode()))
    stored = loading.load(environment_id, lines, by=by)
    return LoadedExample(version.number, stored.read)


@contextmanager
def _changing_what_is_empty(environment_id: int, example: Example) -> Iterator[None]:
    with changing():
        Environment.objects.select_for_update().filter(pk=environment_id).first()  # nobody else publishes meanwhile
        _number_of_policy(environment_id, example)
        yield


def _number_of_policy(environment_id: int, example: Example) -> int | None:
    """Return the number of the active version if it is the example's; None if there is neither a policy nor a fact."""
    active = active_version(environment_id)
    if active is not None and active.source == example.policy:
        return active.number
    if active is not None:
        raise NotEmpty(_refusal(environment_id, f"a policy, version {active.number}"))
    if _has_facts(environment_id):
        raise NotEmpty(_refusal(environment_id, "facts"))
    return None


def _check_facts(environment_id: int, example: Example) -> None:
    if set(read.every(environment_id)) != set(example.stored_facts):
        raise NotEmpty(_refusal(environment_id, "this example's policy, and other facts than its own"))


def _has_facts(environment_id: int) -> bool:
    return bool(read.count_up_to(1, signature_numbers(environment_id).values()))


def _refusal(environment_id: int, what: str) -> str:
    slug = Environment.objects.values_list("slug", flat=True).get(pk=environment_id)
    return (
        f"environment `{slug}` has {what}; load an example into an empty one:"
        " `load_example NAME --environment SLUG` makes the environment"
    )


# ---- wording ------------------------------------------------------------------------------------------------------
# How worlds are written down: short words for facts, and choices that are the same in every run.

T = TypeVar("T")

# People who are in no story, so that a world is as full as a real one.
PEOPLE = tuple(
    """
    aaron abel ada adele agnes aida aidan alba alma alvin amara amos anders anita anya arlo asta astrid august aurora
    bela bernard bianca birgit boris bruno caleb carla casper cecil celia chloe clara conrad cora cyrus dalia damian
    daphne dario delia dmitri dora edgar edith elias elina eloise elsa emil enzo erik esme esther ewan fabian farah
    felix fiona flora frank freya gavin george gilda gloria greta gustav hanna harold hazel hector helga hugo ida
    ilya imran ines iris isaac ivan ivy jana jasper joan jonas jude julia kaspar kira klaus lara leon lily linus
    lorenzo lucia lukas mabel magnus malik marcel margot marta matilda maxim mila milo mona nadia naomi nils nina
    noel nora odette olaf oleg oliver olivia orla oskar otto paloma pascal paula percy petra philip piotr quentin
    ramona raul regina rene rita robin rosa rufus ruth sabine samir selma silas simone sofia stefan sven tara tessa
    theo thora tobias ursula valentin vera victor viola walter wanda wilma xavier yara yusuf yvonne zelda zoe
    """.split()  # noqa: SIM905  a name a line would be longer than all else here
)


def fact(predicate: str, *args: str | int | bool, until: str | None = None) -> Fact:
    """Return a fact of values, `User:ann`, words, numbers and truths, which may end."""
    end = None if until is None else clock.microseconds_of_text(until)
    return Fact(predicate, tuple(map(_value, args)), end)


def _value(written: str | int | bool) -> Value:
    if isinstance(written, bool):
        return Value(BOOLEAN, str(written).lower())
    if isinstance(written, int):
        return Value(INTEGER, str(written))
    type_name, colon, text = written.partition(":")
    return Value(type_name, text) if colon else Value(STRING, written)


def unix(day: str) -> int:
    """Return when a day begins, `2031-04-01`, in seconds since 1970."""
    return int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp())


def pick(items: Sequence[T], *about: object) -> T:
    """Return one of them, always the same for the same words."""
    return items[_number(about) % len(items)]


def some(items: Sequence[T], least: int, most: int, *about: object) -> list[T]:
    """Return so many of them, in their order, always the same for the same words."""
    count = least + _number((*about, "how many")) % (most - least + 1)
    chosen = sorted(range(len(items)), key=lambda at: _number((*about, at)))[:count]
    return [items[at] for at in sorted(chosen)]


def chance(percent: int, *about: object) -> bool:
    return _number((*about, "chance")) % 100 < percent


def _number(about: Sequence[object]) -> int:
    return crc32("/".join(map(str, about)).encode())
