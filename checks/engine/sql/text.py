"""SQL text that keeps its parameters in their places until a statement is finished.

A `Text` is a tuple of parts: SQL that this package wrote, values, tables that the statement defines, and two kinds of
tests by which arms of a union are merged. A `Choice` is a column and the constants it may equal: arms that differ in
one of these become one. A `Numbered` says which number a fact's signature has: many arms that differ only in these may
read the numbers from a table.

    SELECT 1 FROM fact f0 WHERE f0.sig = 3 AND … UNION ALL SELECT 1 FROM fact f0 WHERE f0.sig = 4 AND … UNION ALL …
    ->  SELECT 1 FROM (VALUES (3), (4), …) n CROSS JOIN fact f0 WHERE f0.sig = n.column1 AND …
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

from checks.engine.rules.clauses import Const, Other, Slot, Term
from checks.engine.rules.limits import tick
from checks.engine.values import value

MOST_ARMS = 400  # of one union: SQLite takes 500
MANY = 8  # arms that differ in numbers only: fewer are quicker as they are


@value
class Choice:
    column: str
    ids: frozenset[str]
    is_table: bool = False  # the constants as rows, to join with
    is_inside: bool = False  # in a nested select: arms that differ in it are not merged


@value
class Numbered:
    """The test that the column is this number."""

    column: str
    number: int

    def __str__(self) -> str:
        return f"{self.column} = {self.number}"


@value
class Marked:
    """The test that the column is the arm's number at this mark; without a column, that number (see `alike`)."""

    column: str
    mark: int


@dataclass(frozen=True, slots=True)
class Reads:
    """The FROM of an arm, and a table to read before all others."""

    first: str = ""

    def __str__(self) -> str:
        return f" FROM {self.first} CROSS JOIN " if self.first else " FROM "


READS = Reads()


@value
class Table:
    """A table that the statement defines. As a part of its own, it is found without parsing the SQL."""

    name: str

    def __str__(self) -> str:
        return self.name


@value
class Unnamed:
    """The table that a source reads, to be decided later (see `read_from`)."""

    source: int


Part = str | Const | Other | Slot | Choice | Numbered | Marked | Reads | Table | Unnamed
Text = tuple[Part, ...]


@value
class Shown:
    """A column of a SELECT that is not rendered yet: the term that it shows."""

    term: Term


@value
class Formed(Shown):
    """A column that is not rendered yet, and the form that the term's text is put in."""

    form: Callable[[Text], Text]


@value
class Written:
    """A column that is rendered already, and the numbers of the sources that it mentions."""

    text: Text
    sources: frozenset[int]


Column = Text | Shown | Written


def joined(separator: str, texts: Iterable[Text]) -> Text:
    parts: list[Part] = []
    for index, text in enumerate(texts):
        if index:
            parts.append(separator)
        parts += text
    return tuple(parts)


def fused(text: Iterable[Part]) -> Text:
    """Return the text with adjacent SQL as one part: each text that it is put into goes through all parts again.

    ("SELECT ", "1", " FROM ", "fact f0", " WHERE ", "f0.a0 = ", :doc)
    ->  ("SELECT 1 FROM fact f0 WHERE f0.a0 = ", :doc)
    """
    found: list[Part] = []
    words: list[str] = []
    for part in text:
        if isinstance(part, str):
            words.append(part)
        else:
            if words:
                found.append("".join(words))
                words = []
            found.append(part)
    if words:
        found.append("".join(words))
    return tuple(found)


def read_from(text: Text, tables: Mapping[int, str]) -> Text:
    """Return the text with the names of tables for the sources that are still unnamed."""
    return tuple([Table(tables[part.source]) if isinstance(part, Unnamed) else part for part in text])


def tables_in(text: Text) -> list[str]:
    """Return the names of the tables that the text mentions."""
    return [part.name for part in text if isinstance(part, Table)]


def merged(arms: Iterable[Text]) -> list[Text]:
    """Return a union's arms without duplicates; as one, those that differ in one `Choice`, or many in numbers only.

    … a1 = 'reader'; … a1 = 'writer'  ->  … a1 IN ('reader', 'writer')
    """
    found = list(dict.fromkeys(arms))
    while len(found) > 1:
        fewer = _merged_once(found)
        if len(fewer) == len(found):
            break
        found = fewer
    return found if len(found) < MANY else _by_numbers(found)


def _by_numbers(arms: list[Text]) -> list[Text]:
    """Merge many arms that differ only in their own numbers into one, in the place of the first."""
    groups: dict[Text, list[Text]] = {}
    keys = [_unnumbered(arm) for arm in arms]
    for key, arm in zip(keys, arms):
        groups.setdefault(key, []).append(arm)
    drawn = {key: _drawn(alike) for key, alike in groups.items() if len(alike) >= MANY and READS in key}
    return list(dict.fromkeys(drawn.get(key, arm) for key, arm in zip(keys, arms)))


def _unnumbered(arm: Text) -> Text:
    tick()
    return tuple([Numbered(part.column, 0) if isinstance(part, Numbered) else part for part in arm])


def _drawn(arms: list[Text]) -> Text:
    """Return one arm for all: each arm's numbers become a row of a table."""
    numbers = {place: tuple([_number(arm[place]) for arm in arms]) for place, _ in _numbered(arms[0])}
    differing = dict.fromkeys(each for each in numbers.values() if len(set(each)) > 1)
    names = {each: f"n.column{index}" for index, each in enumerate(differing, 1)}
    rows = ", ".join(f"({', '.join(map(str, row))})" for row in zip(*differing))
    tests = {
        place: f"{part.column} = {names[numbers[place]]}"
        for place, part in _numbered(arms[0])
        if numbers[place] in names
    }
    reads = Reads(f"(VALUES {rows}) n")
    return tuple([reads if isinstance(part, Reads) else tests.get(place, part) for place, part in enumerate(arms[0])])


def _numbered(arm: Text) -> list[tuple[int, Numbered]]:
    return [(place, part) for place, part in enumerate(arm) if isinstance(part, Numbered)]


def _number(part: Part) -> int:
    assert isinstance(part, Numbered), "arms that are drawn together have their numbers in the same places"
    return part.number


def settled(arm: Text) -> Text:
    """Return the arm as it stands inside another one, whose merging must not depend on what is in here.

    `NOT EXISTS (… a1 = 'x')` or `NOT EXISTS (… a1 = 'y')` is not `NOT EXISTS (… a1 IN ('x', 'y'))`.
    """
    return tuple([part if isinstance(part, str) else _settled(part) for part in arm])


def _settled(part: Part) -> Part:
    match part:
        case Numbered() | Reads():
            return str(part)
        case Choice():
            return replace(part, is_inside=True)
    return part


def _merged_once(arms: list[Text]) -> list[Text]:
    """Merge each group of arms that differ in one `Choice`, unless an arm of it is merged with others already."""
    groups: dict[tuple[int, str, Text], list[tuple[int, Choice]]] = {}
    for index, arm in enumerate(arms):
        tick()
        for place, part in enumerate(arm):
            if isinstance(part, Choice) and not part.is_inside:
                key = (place, part.column, (*arm[:place], *arm[place + 1 :]))
                groups.setdefault(key, []).append((index, part))
    whole: dict[int, Text] = {}
    taken: set[int] = set()
    for (place, _, rest), members in groups.items():
        if len(members) > 1 and taken.isdisjoint(index for index, _ in members):
            taken.update(index for index, _ in members)
            at, first = members[0]
            ids = first.ids.union(*(choice.ids for _, choice in members))
            whole[at] = (*rest[:place], replace(first, ids=ids), *rest[place:])
    return [whole.get(index, arm) for index, arm in enumerate(arms) if index in whole or index not in taken]


def union(arms: Iterable[Text], distinct: bool) -> Text:
    """Return the rows of all arms; without duplicates, if `distinct`."""
    found = [settled(each) for each in merged(arms)]
    if distinct and len(found) == 1:
        first = found[0][0]
        assert isinstance(first, str) and first.startswith("SELECT"), "an arm is a SELECT"
        return (f"SELECT DISTINCT{first.removeprefix('SELECT')}", *found[0][1:])
    word = " UNION " if distinct else " UNION ALL "
    if len(found) > MOST_ARMS:
        chunks = [found[start : start + MOST_ARMS] for start in range(0, len(found), MOST_ARMS)]
        found = [("SELECT * FROM (", *joined(word, chunk), ") x") for chunk in chunks]
    return joined(word, found)


@dataclass(frozen=True)
class Statement:
    """Finished SQL: its text and, in order, what each parameter is."""

    sql: str
    parameters: tuple[Const | Other | Slot, ...]

    def values(self, slots: dict[str, object]) -> Sequence[object]:
        return self._chosen(slots | self._constants)

    @cached_property
    def _constants(self) -> dict[int, str]:
        """The constants by their places among the parameters. A place is a number, and no slot is named by one."""
        return {place: each.id for place, each in enumerate(self.parameters) if isinstance(each, Const)}

    @cached_property
    def _chosen(self) -> Callable[[Mapping[Any, object]], Sequence[object]]:
        """Return the function that takes the parameters' values out of slots and constants."""
        keys = [place if isinstance(each, Const) else _slot(each) for place, each in enumerate(self.parameters)]
        return itemgetter(*keys) if len(keys) > 1 else lambda known: [known[key] for key in keys]


def _slot(part: Other | Slot) -> str:
    return part.slot if isinstance(part, Other) else part.name


def finished(text: Text, placeholder: Callable[[int], str]) -> Statement:
    """Return the finished statement; equal values are one parameter, wherever they stand."""
    numbers: dict[Const | Other | Slot, int] = {}

    def mark(part: Const | Other | Slot) -> str:
        return placeholder(numbers.setdefault(part, len(numbers) + 1))

    pieces = []
    for part in text:
        if isinstance(part, str):
            pieces.append(part)
        elif isinstance(part, Choice):
            pieces.append(_chosen(part, [mark(Const(each)) for each in sorted(part.ids)]))
        elif isinstance(part, (Numbered, Reads, Table)):
            pieces.append(str(part))
        else:
            assert not isinstance(part, (Unnamed, Marked)), "a statement is finished once all of it is said"
            pieces.append(mark(part))
    return Statement("".join(pieces), tuple(numbers))


def _chosen(choice: Choice, marks: list[str]) -> str:
    if choice.is_table:
        rows = ", ".join(f'(CAST({each} AS text) COLLATE "C")' for each in marks)
        return f"(VALUES {rows}) {choice.column}(v)"
    wanted = f"= {marks[0]}" if len(marks) == 1 else f"IN ({', '.join(marks)})"
    return f"{choice.column} {wanted}"
