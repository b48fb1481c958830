"""A branch as steps of a nested loop: each source, with the conditions that it is looked up by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from checks.engine.plan.plan import Among, Branch, Condition, FactScan, Holds, Same, Source
from checks.engine.plan.prefixes import sources_of
from checks.engine.rules.clauses import Col, Const
from checks.engine.sql.text import Column, Formed, Written


def steps_of(branch: Branch, read: tuple[Source, ...]) -> Iterator[tuple[Source | None, list[Condition]]]:
    """Yield each source with the conditions that can be tested from it on; first None, with those on no source."""
    places = {source.number: place for place, source in enumerate(read, 1)}
    ready: list[list[Condition]] = [[] for _ in range(len(read) + 1)]
    for condition in branch.conditions:
        ready[max((places.get(number, 0) for number in sources_of(condition)), default=0)].append(condition)
    yield from zip((None, *read), ready)


def existential_in(branch: Branch, columns: Iterable[Column]) -> list[Source]:
    """Return the facts to test with EXISTS: no column shows them, and no condition joins them with others.

    There are none unless the branch also has a nested plan to test that mentions no source: testing the facts first may
    spare that test.
    """
    mentioned = [sources_of(each) for each in branch.conditions]
    if not any(isinstance(each, Holds) and not numbers for each, numbers in zip(branch.conditions, mentioned)):
        return []
    tied = {number for numbers in mentioned if len(numbers) > 1 for number in numbers}
    tied |= {number for column in columns for number in _shown_by(column)}
    return [each for each in branch.sources if isinstance(each, FactScan) and each.number not in tied]


def _shown_by(column: Column) -> Iterable[int]:
    """Return the numbers of the sources that the column shows something of."""
    match column:
        case Formed(Col(source)):
            return (source,)
        case Written(_, sources):
            return sources
    return ()


Names = tuple[Col, frozenset[str]]  # a column and the constants it may be


def names_of(source: Source | None, conditions: list[Condition]) -> dict[Condition, Names]:
    """Return the conditions that name constants, if the conditions cover all columns of a stored fact; else nothing."""
    if not isinstance(source, FactScan) or source.store != "stored":
        return {}
    columns = [_column_of(each, source.number) for each in conditions]
    if len({column for column in columns if column}) != len(source.signature.types):
        return {}
    named = ((each, _names_in(each)) for each, column in zip(conditions, columns) if column)
    return {each: names for each, names in named if names}


def _names_in(condition: Condition) -> Names | None:
    match condition:
        case Same(Col() as column, Const(text)):
            return column, frozenset((text,))
        case Among(Col() as column, ids):
            return column, frozenset(ids)
    return None


def _column_of(condition: Condition, source: int) -> str | None:
    """Return the column of the source that the condition restricts to one value or to several."""
    match condition:
        case Same(Col(number) as column, _) | Among(Col(number) as column, _) if number == source:
            return column.name
    return None
