"""Files of facts: JSON lines as in the interface, or CSV with `predicate,type,id,type,id …`."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, TextIO

import orjson

from facts import wire
from facts.wire import Fact


@dataclass(frozen=True, slots=True)
class BadLine:
    number: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.reason}"


def read_json(file: BinaryIO) -> Iterator[tuple[int, object]]:
    """Each line's number and the JSON in it, or why it is bad; empty lines say nothing."""
    for number, line in enumerate(file, 1):
        text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not text.isspace():
            try:
                yield number, orjson.loads(text)
            except orjson.JSONDecodeError as error:
                yield number, BadLine(number, f"not JSON: {error}")


def read_csv(file: BinaryIO) -> Iterator[tuple[int, object]]:
    """The same of CSV; a first line that begins with `predicate` names the columns."""
    # Bytes that are no text become lone surrogates, which are refused where they stand.
    rows = csv.reader(io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline=""), strict=True)
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield rows.line_num, BadLine(rows.line_num, f"not CSV: {error}")
            continue
        if cells and not (rows.line_num == 1 and cells[0] == "predicate"):
            yield rows.line_num, _json_of_cells(rows.line_num, cells)


def _json_of_cells(number: int, cells: list[str]) -> object:
    predicate, pairs = cells[0], cells[1:]
    while len(pairs) > 2 and not pairs[-1] and not pairs[-2]:
        pairs = pairs[:-2]  # columns that shorter facts leave empty
    if len(pairs) % 2:
        return BadLine(number, "a type without an id")
    args = [{"type": pairs[at], "id": pairs[at + 1]} for at in range(0, len(pairs), 2)]
    return {"predicate": predicate, "args": args}


def write_json(file: TextIO, facts: Iterator[Fact]) -> int:
    """One line each; how many there were."""
    return sum(1 for fact in facts if file.write(orjson.dumps(wire.fact_to_json(fact)).decode() + "\n"))


def write_csv(file: TextIO, facts: Iterator[Fact]) -> int:
    rows = csv.writer(file)
    cells = ([fact.predicate, *(part for value in fact.args for part in (value.type, value.id))] for fact in facts)
    return sum(1 for row in cells if rows.writerow(row))


READERS = {"json": read_json, "csv": read_csv}
WRITERS = {"json": write_json, "csv": write_csv}
