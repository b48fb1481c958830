"""Rows out of CSV files. An empty field is None, as NULL is in a table.

If a file is written while it is read, only a part of it may be seen. A change of its size or its time shows this. A
last line without an end shows nothing, as many programs write it so; but a row that was cut off has too few columns.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from typing import IO

from localsql.sync.config import CsvFile, PatternRefused, SourceFailed, SyncPattern
from localsql.sync.sources.row import SourceRow


def rows(pattern: SyncPattern, in_order: bool) -> Iterator[SourceRow]:
    asked, name = pattern.asked, pattern.database.name
    assert isinstance(asked, CsvFile), "a CSV file is asked for"
    try:
        with asked.path.open(encoding="utf-8-sig", newline="") as file:
            begun = _state(file)
            lines = csv.reader(file, strict=True)
            header = next(lines, None) if asked.has_header else None
            if header is None and asked.has_header:
                raise PatternRefused(f"the file `{asked.path.name}` has no line with the names of its columns")
            places = _places(pattern, asked, header)
            width = len(header) if header is not None else 0
            for line in lines:
                if not line:
                    continue  # an empty line is no row
                width = width or len(line)
                if len(line) != width:
                    than = "names of columns" if header is not None else "in the first row"
                    raise PatternRefused(
                        f"line {lines.line_num} of `{asked.path.name}` has {len(line)} columns, and not {width},"
                        f" as there are {than}"
                    )
                if len(line) <= max(places):
                    needed = f"{max(places) + 1} columns are needed"
                    raise PatternRefused(f"line {lines.line_num} of `{asked.path.name}` has {len(line)}: {needed}")
                yield tuple([line[place] or None for place in places])
            if _state(file) != begun:
                raise SourceFailed(name, f"the file `{asked.path.name}` was written while it was read")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SourceFailed(name, f"the file `{asked.path.name}` cannot be read: {reason}") from None


def _state(file: IO[str]) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


def _places(pattern: SyncPattern, asked: CsvFile, header: list[str] | None) -> list[int]:
    """Return which columns are read: by name, or by number from 1 if there are no names; else all, in order."""
    wanted = max(len(pattern.key.columns), 1)
    if not asked.fields:
        if header is not None and len(header) != wanted:
            needed = f"the pattern needs {wanted}; say which under `fields`"
            raise PatternRefused(f"`{asked.path.name}` has {len(header)} columns, and {needed}")
        return list(range(wanted))
    return [_place(asked, field.name, header) for field in asked.fields]


def _place(asked: CsvFile, name: str, header: list[str] | None) -> int:
    if header is not None:
        if header.count(name) != 1:
            raise PatternRefused(f"`{asked.path.name}` has not one column `{name}`; it has {', '.join(header)}")
        return header.index(name)
    if not (name.isascii() and name.isdecimal() and int(name) > 0):
        raise PatternRefused(f"without a header, a column is named by its number from 1, and not `{name}`")
    return int(name) - 1
