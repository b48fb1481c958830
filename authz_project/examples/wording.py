"""How worlds are written down: short words for facts, and choices that are the same in every run."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar
from zlib import crc32

from facts.wire import Fact
from policy.ground import clock
from policy.values import BOOLEAN, INTEGER, STRING, Value

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
