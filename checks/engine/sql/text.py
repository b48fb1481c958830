"""SQL text with its parameters in place: they never part until a statement is finished.

A `Text` is a tuple of parts: SQL that this package wrote, values, and `Choice`s, which are a column and the
constants it may equal; arms of a union that differ in one choice are drawn together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from checks.engine.rules.clauses import Const, Other, Slot, Term
from checks.engine.rules.limits import tick

MOST_ARMS = 400  # of one union: SQLite takes 500


@dataclass(frozen=True, slots=True)
class Choice:
    column: str
    ids: frozenset[str]
    is_table: bool = False  # the constants as rows, to join with


Part = str | Const | Other | Slot | Choice
Text = tuple[Part, ...]


@dataclass(frozen=True)
class Shown:
    """A column of a SELECT that is still to be written: what it shows."""

    term: Term


@dataclass(frozen=True)
class Formed(Shown):
    """Such a column, and the form to put the term in."""

    form: Callable[[Text], Text]


Column = Text | Shown


def joined(separator: str, texts: Iterable[Text]) -> Text:
    parts: list[Part] = []
    for index, text in enumerate(texts):
        if index:
            parts.append(separator)
        parts += text
    return tuple(parts)


def merged(arms: Iterable[Text]) -> list[Text]:
    """The arms of a union without repeats, those that differ in one choice of constants as one."""
    found = list(dict.fromkeys(arms))
    while len(found) > 1:
        fewer = _merged_once(found)
        if len(fewer) == len(found):
            break
        found = fewer
    return found


def _merged_once(arms: list[Text]) -> list[Text]:
    """Every group of arms that differ in one choice, as one arm, as far as no group has an arm of another."""
    groups: dict[tuple[int, str, Text], list[tuple[int, Choice]]] = {}
    for index, arm in enumerate(arms):
        tick()
        for place, part in enumerate(arm):
            if isinstance(part, Choice):
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
    """The rows of all arms, each once if `distinct`."""
    found = merged(arms)
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

    def values(self, slots: dict[str, object]) -> list[object]:
        return list(map((slots | self._constants).__getitem__, self._places))

    @cached_property
    def _constants(self) -> dict[int, str]:
        """By their places among the parameters, which no slot is called by."""
        return {place: each.id for place, each in enumerate(self.parameters) if isinstance(each, Const)}

    @cached_property
    def _places(self) -> tuple[int | str, ...]:
        return tuple([place if isinstance(each, Const) else _slot(each) for place, each in enumerate(self.parameters)])


def _slot(part: Other | Slot) -> str:
    return part.slot if isinstance(part, Other) else part.name


def finished(text: Text, placeholder: Callable[[int], str]) -> Statement:
    """The statement; the same value is the same parameter wherever it stands."""
    numbers: dict[Const | Other | Slot, int] = {}

    def mark(part: Const | Other | Slot) -> str:
        return placeholder(numbers.setdefault(part, len(numbers) + 1))

    pieces = []
    for part in text:
        if isinstance(part, str):
            pieces.append(part)
        elif isinstance(part, Choice):
            pieces.append(_chosen(part, [mark(Const(each)) for each in sorted(part.ids)]))
        else:
            pieces.append(mark(part))
    return Statement("".join(pieces), tuple(numbers))


def _chosen(choice: Choice, marks: list[str]) -> str:
    if choice.is_table:
        rows = ", ".join(f'(CAST({each} AS text) COLLATE "C")' for each in marks)
        return f"(VALUES {rows}) {choice.column}(v)"
    wanted = f"= {marks[0]}" if len(marks) == 1 else f"IN ({', '.join(marks)})"
    return f"{choice.column} {wanted}"
