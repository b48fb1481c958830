"""Examples: their definition, loading, and helpers for writing them."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, TypeVar
from zlib import crc32

from facts import loading, read, table, wire
from facts.numbering import signature_numbers
from facts.wire import Fact, write_csv
from policy.core import clock
from policy.core.journal import By, changing
from policy.errors import AuthzError
from policy.models import Environment
from policy.publishing import active_version, publish
from policy.values import BOOLEAN, INTEGER, STRING, Value

# ---- an example: a policy, facts, and instructive checks ----------------------------------------------------------

FOLDER = Path(__file__).with_name("worlds")
ExampleKind = Literal["authorize", "actions", "list", "who"]
ExampleAnswer = bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExampleQuestion:
    """A check to try. Actors and resources are values such as `User:ann`, but the actor of the kind `who` and the
    resource of the kind `list` are types such as `User`."""

    kind: ExampleKind
    actor: str
    action: str  # empty if the question is which actions
    resource: str
    answer: ExampleAnswer  # the decision, or all resulting ids or actions, in order
    why: str  # what it demonstrates, as a sentence

    @property
    def parameters(self) -> dict[str, str]:
        """Return the query parameters for the Check page."""
        asked = {"kind": self.kind, "actor": self.actor, "action": self.action, "resource": self.resource}
        return {name: text for name, text in asked.items() if text}

    def __str__(self) -> str:
        return " ".join(self.parameters.values())

    @property
    def answer_text(self) -> str:
        """Return the answer as text."""
        if isinstance(self.answer, bool):
            return "allowed" if self.answer else "denied"
        return ", ".join(self.answer) or "none"


@dataclass(frozen=True)
class Example:
    """An example that can be loaded into an environment."""

    name: str
    title: str
    about: str  # paragraphs separated by blank lines
    patterns: tuple[str, ...]  # modelling patterns that it demonstrates
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
        """Return the facts without duplicates, in the order of writing."""
        return tuple(dict.fromkeys(self.write_facts()))

    @cached_property
    def facts(self) -> str:
        """Return the facts as a CSV file for `load_facts`."""
        text = io.StringIO()
        write_csv(text, iter(self.stored_facts))
        return text.getvalue()


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
        _check_facts(environment_id, example)
        return LoadedExample(number, len(example.stored_facts), is_unchanged=True)
    within = partial(_changing_what_is_empty, environment_id, example)
    version = publish(environment_id, example.policy, example.filename, within=within, by=by).version
    lines = wire.read_csv(io.BytesIO(example.facts.encode()))
    stored = loading.load(environment_id, lines, by=by)
    return LoadedExample(version.number, stored.read)


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


def _check_facts(environment_id: int, example: Example) -> None:
    if set(read.every(environment_id)) != set(example.stored_facts):
        raise NotEmpty(_refusal(environment_id, "this example's policy, and other facts than its own"))


def _has_facts(environment_id: int) -> bool:
    return bool(table.count_up_to(1, signature_numbers(environment_id).values()))


def _refusal(environment_id: int, what: str) -> str:
    slug = Environment.objects.values_list("slug", flat=True).get(pk=environment_id)
    return (
        f"Environment `{slug}` is not empty: it has {what}. Load the example into another environment"
        " with `load_example NAME --environment SLUG`, which creates it."
    )


# ---- helpers for writing facts ------------------------------------------------------------------------------------
# Short notations for facts, and pseudo-random choices that are the same in every run.

T = TypeVar("T")

# People without a role in the story, for realistic amounts of data.
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
    """.split()  # noqa: SIM905  one name per line would be longer than the rest of the file
)


def fact(predicate: str, *args: str | int | bool, until: str | None = None) -> Fact:
    """Return a fact; arguments are values such as `User:ann`, strings, integers and booleans. It may expire."""
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
    """Return the start of a day such as `2031-04-01`, as a Unix time."""
    return int(datetime.fromisoformat(f"{day}T00:00:00+00:00").timestamp())


def pick(items: Sequence[T], *about: object) -> T:
    """Return one of the items, always the same one for the same words."""
    return items[_number(about) % len(items)]


def some(items: Sequence[T], least: int, most: int, *about: object) -> list[T]:
    """Return between `least` and `most` items in order, always the same ones for the same words."""
    count = least + _number((*about, "how many")) % (most - least + 1)
    chosen = sorted(range(len(items)), key=lambda at: _number((*about, at)))[:count]
    return [items[at] for at in sorted(chosen)]


def chance(percent: int, *about: object) -> bool:
    return _number((*about, "chance")) % 100 < percent


def _number(about: Sequence[object]) -> int:
    return crc32("/".join(map(str, about)).encode())
