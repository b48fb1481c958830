"""SQL text that keeps its parameters in their places until a statement is finished.

A `Text` is a tuple of pieces. Most are SQL that this package wrote, or values: `Const`, `Other`, `Slot`. A `Table` is
one that the statement defines, an `Unnamed` one whose name comes later. The other pieces let arms of a union become
one:

    ConstantSet   a column and the constants it may equal: arms that differ in one of these are merged
    Numbered      the test that a column is a number, such as that of a fact's signature
    NumberHole    a hole for such a number in an arm for many, which reads it from a table
    Reads         the FROM of an arm, where that table of numbers is read first


    SELECT 1 FROM fact f0 WHERE f0.sig = 3 AND … UNION ALL SELECT 1 FROM fact f0 WHERE f0.sig = 4 AND … UNION ALL …
    ->  SELECT 1 FROM (VALUES (3), (4), …) n CROSS JOIN fact f0 WHERE f0.sig = n.column1 AND …
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

from checks.engine.rules.clauses import Const, Other, Slot, Term, tick, value

MOST_ARMS = 400  # of one union: SQLite takes 500
MANY = 8  # arms that differ in numbers only: fewer are quicker as they are


@value
class ConstantSet:
    column: str
    ids: frozenset[str]
    is_table: bool = False  # the constants as rows, to join with
    is_inside: bool = False  # in a nested select: arms that differ in it are not merged


@value
class NumberTest:
    """The test that the column is this number."""

    column: str
    number: int

    def __str__(self) -> str:
        return f"{self.column} = {self.number}"


@value
class NumberHole:
    """A hole for one of an arm's numbers: the test that the column is that number, or just the number (see `alike`)."""

    column: str
    hole: int


@dataclass(frozen=True, slots=True)
class Reads:
    """The FROM of an arm, and a table to read before all others."""

    first: str = ""

    def __str__(self) -> str:
        return f" FROM {self.first} CROSS JOIN " if self.first else " FROM "


READS = Reads()


@value
class Table:
    """A table that the statement defines. As a piece of its own, it is found without parsing the SQL."""

    name: str

    def __str__(self) -> str:
        return self.name


@value
class Unnamed:
    """The table that a source reads, to be decided later (see `read_from`)."""

    source: int


Piece = str | Const | Other | Slot | ConstantSet | NumberTest | NumberHole | Reads | Table | Unnamed
Text = tuple[Piece, ...]


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
    pieces: list[Piece] = []
    for index, text in enumerate(texts):
        if index:
            pieces.append(separator)
        pieces += text
    return tuple(pieces)


def fused(text: Iterable[Piece]) -> Text:
    """Return the text with adjacent SQL as one piece: each text that it is put into goes through all pieces again.

    ("SELECT ", "1", " FROM ", "fact f0", " WHERE ", "f0.a0 = ", :doc)
    ->  ("SELECT 1 FROM fact f0 WHERE f0.a0 = ", :doc)
    """
    found: list[Piece] = []
    words: list[str] = []
    for piece in text:
        if isinstance(piece, str):
            words.append(piece)
        else:
            if words:
                found.append("".join(words))
                words = []
            found.append(piece)
    if words:
        found.append("".join(words))
    return tuple(found)


def read_from(text: Text, tables: Mapping[int, str]) -> Text:
    """Return the text with the names of tables for the sources that are still unnamed."""
    return tuple([Table(tables[piece.source]) if isinstance(piece, Unnamed) else piece for piece in text])


def tables_in(text: Text) -> list[str]:
    """Return the names of the tables that the text mentions."""
    return [piece.name for piece in text if isinstance(piece, Table)]


def merged(arms: Iterable[Text]) -> list[Text]:
    """Return a union's arms, each once; those that differ in one `ConstantSet`, or many in numbers only, as one.

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
    with_holes = [_with_holes(arm) for arm in arms]
    groups: dict[Text, list[tuple[int, ...]]] = {}
    for text, numbers in with_holes:
        groups.setdefault(text, []).append(numbers)
    made = {text: merged_arm(text, rows) for text, rows in groups.items() if len(rows) >= MANY and READS in text}
    return list(dict.fromkeys(made.get(text, arm) for (text, _), arm in zip(with_holes, arms)))


def _with_holes(arm: Text) -> tuple[Text, tuple[int, ...]]:
    """Return the arm with holes for its own numbers, and these."""
    tick()
    numbers: list[int] = []
    pieces: list[Piece] = []
    for piece in arm:
        if isinstance(piece, NumberTest):
            pieces.append(NumberHole(piece.column, len(numbers)))
            numbers.append(piece.number)
        else:
            pieces.append(piece)
    return tuple(pieces), tuple(numbers)


def merged_arm(text: Text, rows: Iterable[tuple[int, ...]]) -> Text:
    """Return one arm for all rows of numbers, read from VALUES; a number that all rows share stays in place."""
    values = list(zip(*dict.fromkeys(rows)))
    differing = dict.fromkeys(each for each in values if len(set(each)) > 1)
    names = {each: f"n.column{index}" for index, each in enumerate(differing, 1)}
    listed = ", ".join([f"({', '.join(map(str, row))})" for row in zip(*differing)])
    reads = Reads(f"(VALUES {listed}) n") if names else READS
    words = [names.get(each, str(each[0])) for each in values]
    return tuple([reads if isinstance(piece, Reads) else _filled(piece, words) for piece in text])


def _filled(piece: Piece, words: list[str]) -> Piece:
    if not isinstance(piece, NumberHole):
        return piece
    word = words[piece.hole]
    return f"{piece.column} = {word}" if piece.column else word


def settled(arm: Text) -> Text:
    """Return the arm as it stands inside another one, whose merging must not depend on what is in here.

    `NOT EXISTS (… a1 = 'x')` or `NOT EXISTS (… a1 = 'y')` is not `NOT EXISTS (… a1 IN ('x', 'y'))`.
    """
    return tuple([piece if isinstance(piece, str) else _settled(piece) for piece in arm])


def _settled(piece: Piece) -> Piece:
    match piece:
        case NumberTest() | Reads():
            return str(piece)
        case ConstantSet():
            return replace(piece, is_inside=True)
    return piece


def _merged_once(arms: list[Text]) -> list[Text]:
    """Merge each group of arms that differ in one `ConstantSet`, unless an arm of it is merged with others already."""
    groups: dict[tuple[int, str, Text], list[tuple[int, ConstantSet]]] = {}
    for index, arm in enumerate(arms):
        tick()
        for place, piece in enumerate(arm):
            if isinstance(piece, ConstantSet) and not piece.is_inside:
                key = (place, piece.column, (*arm[:place], *arm[place + 1 :]))
                groups.setdefault(key, []).append((index, piece))
    whole: dict[int, Text] = {}
    taken: set[int] = set()
    for (place, _, rest), members in groups.items():
        if len(members) > 1 and taken.isdisjoint(index for index, _ in members):
            taken.update(index for index, _ in members)
            at, first = members[0]
            ids = first.ids.union(*(constants.ids for _, constants in members))
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
    return joined(word, in_chunks(found, word))


def in_chunks(arms: list[Text], word: str, others: int = 0) -> list[Text]:
    """Return the arms of a union; as few subqueries, if with so many others they are more than a union can have."""
    if len(arms) + others <= MOST_ARMS:
        return arms
    chunks = [arms[start : start + MOST_ARMS] for start in range(0, len(arms), MOST_ARMS)]
    return [("SELECT * FROM (", *joined(word, chunk), ") x") for chunk in chunks]


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


def _slot(piece: Other | Slot) -> str:
    return piece.slot if isinstance(piece, Other) else piece.name


def finished(text: Text, placeholder: Callable[[int], str]) -> Statement:
    """Return the finished statement; equal values are one parameter, wherever they stand."""
    numbers: dict[Const | Other | Slot, int] = {}

    def mark(piece: Const | Other | Slot) -> str:
        return placeholder(numbers.setdefault(piece, len(numbers) + 1))

    texts = []
    for piece in text:
        if isinstance(piece, str):
            texts.append(piece)
        elif isinstance(piece, ConstantSet):
            texts.append(_chosen(piece, [mark(Const(each)) for each in sorted(piece.ids)]))
        elif isinstance(piece, (NumberTest, Reads, Table)):
            texts.append(str(piece))
        else:
            assert not isinstance(piece, (Unnamed, NumberHole)), "a finished statement has nothing open"
            texts.append(mark(piece))
    return Statement("".join(texts), tuple(numbers))


def _chosen(constants: ConstantSet, placeholders: list[str]) -> str:
    if constants.is_table:
        rows = ", ".join(f'(CAST({each} AS text) COLLATE "C")' for each in placeholders)
        return f"(VALUES {rows}) {constants.column}(v)"
    wanted = f"= {placeholders[0]}" if len(placeholders) == 1 else f"IN ({', '.join(placeholders)})"
    return f"{constants.column} {wanted}"
