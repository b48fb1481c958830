"""Facts, patterns and values in text form, and the file formats for facts."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import BinaryIO, TextIO

import orjson

from facts import wire
from facts.wire import END, Argument, Fact, FactPattern, end_from_json, fact_to_json
from policy.core.clock import short_text_of
from policy.errors import AuthzError, MalformedRequest
from policy.fact_text import NotFactText, WrittenArgument, WrittenFact, parsed
from policy.rules.program import Signature
from policy.values import BOOLEAN, INTEGER, STRING, Value

# ---- Facts, patterns and values in text form: `has_role(User:ann, "admin", Repo:_)` -------------------------------
# Without a type, a quoted or bare word is a String, digits are an Integer, `true` and `false` are Booleans; `Type:_` is
# any value of the type and `_` is anything.

_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)


def fact_from_text(text: str) -> Fact:
    written = _parsed(text)
    if any(arg.id is None for arg in written.args):
        raise MalformedRequest("", "wildcards are not allowed in a fact; write every argument as `Type:id`")
    return wire.fact_from_json(_as_json(written), "")


def pattern_from_text(text: str) -> FactPattern:
    return wire.pattern_from_json(_as_json(_parsed(text)), "")


def value_from_text(text: str, suggest: Callable[[str], Sequence[str]] = lambda text: ()) -> Value:
    """Parse an actor or a resource, such as `User:ann`, as the API would accept it.

    `suggest` returns what may have been meant by a text without a type: `8` -> `User:8`.
    """
    match pattern_from_text(f"value({text})").args if text else ():
        case (Argument(str() as type_name, str() as written),) if type_name != STRING:
            return Value(type_name, wire.id_from_json(type_name, written, f"the id of `{type_name}`"))
    meant = [f"`{each}`" for each in suggest(text)[:3]] if text and ":" not in text else []
    hint = f"did you mean {' or '.join(meant)}?" if meant else "write it as `User:alice`"
    raise MalformedRequest("", f"`{text}` is not a valid value; {hint}")


def action_from_text(text: str) -> str:
    if not text:
        raise MalformedRequest("", "the action is empty; enter one, such as `read`")
    return text


def _parsed(text: str) -> WrittenFact:
    try:
        written = parsed(text)
        if written.rest and not written.rest.startswith(";"):
            raise NotFactText(f"unexpected text `{written.rest[:20]}` after the fact")
    except NotFactText as reason:
        example = 'write a fact as `has_role(User:ann, "admin", Repo:acme)`'
        raise MalformedRequest("", f"{reason}; {example}") from None
    return written


def _as_json(written: WrittenFact) -> dict[str, object]:
    return {
        "predicate": written.predicate,
        "args": [{"type": arg.type or _type_of(arg), "id": arg.id} for arg in written.args],
    }


def _type_of(arg: WrittenArgument) -> str | None:
    """Return the type of an argument that is written without one."""
    if arg.id is None:
        return None
    if arg.is_quoted:
        return STRING
    if arg.id in ("true", "false"):
        return BOOLEAN
    return INTEGER if _NUMBER.fullmatch(arg.id) else STRING


# ---- formats ------------------------------------------------------------------------------------------------------
# File formats with one fact per line: JSON, CSV, or the notation of policies' tests.
#
#     {"predicate": "member", "args": [{"type": "User", "id": "ann"}, {"type": "Team", "id": "ops"}]}
#     member,User,ann,Team,ops
#     member(User:ann, Team:ops)
#
# A CSV cell that a spreadsheet would interpret as a formula, `=1+1` or `-5`, is written with a `'` before it, which is
# removed when it is read; so is a cell that already begins with such quotes, so that all cells survive a round trip.
#
# A fact's expiry is a member of a JSON line, `expires_at`, the last cell of a CSV line,
# `expires_at=2026-12-01T00:00:00Z`, and follows the fact in the notation: `until 2026-12-01T00:00:00Z`.

_END_CELL = f"{END}="
_UNTIL = re.compile(r"until\s+(\S+?)\s*;?")
_FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")  # OWASP's list, with the full-width signs
_QUOTED = re.compile(f"'+{_FORMULA.pattern}")
_BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile("[\ud800-\udfff]")
NOT_UTF8 = "not valid UTF-8; save the file as UTF-8"


@dataclass(frozen=True, slots=True)
class BadLine:
    number: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.reason}"


# ---- JSON ------------------------------------------------------------------------------------------------------


def read_json(file: BinaryIO) -> Iterator[tuple[int, object]]:
    """Yield each line's number and its JSON, or a `BadLine`; skip empty lines."""
    for number, line in enumerate(file, 1):
        text = line.removeprefix(_BOM) if number == 1 else line
        if not text.isspace():
            yield number, _json_of(number, text)


def write_json(file: TextIO, facts: Iterator[Fact]) -> int:
    """Write one line for each fact; return the number of lines."""
    return sum(1 for fact in facts if file.write(orjson.dumps(fact_to_json(fact)).decode() + "\n"))


# ---- CSV -------------------------------------------------------------------------------------------------------


def read_csv(file: BinaryIO) -> Iterator[tuple[int, object]]:
    """Read CSV as `read_json` reads JSON; the first line may be a header."""
    # Invalid UTF-8 becomes lone surrogates, so that the other lines can be read.
    rows = csv.reader(io.TextIOWrapper(file, "utf-8-sig", "surrogateescape", newline=""), strict=True)
    while True:
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield rows.line_num, BadLine(rows.line_num, f"invalid CSV: {error}")
            continue
        text = "".join(cells)
        if not text.isascii() and _SURROGATE.search(text):
            yield rows.line_num, BadLine(rows.line_num, NOT_UTF8)
            continue
        cells = [cell[1:] if cell[:1] == "'" and _QUOTED.match(cell) else cell for cell in cells]
        if cells and not (rows.line_num == 1 and _are_names(cells)):
            yield rows.line_num, _json_of_cells(rows.line_num, cells)


def _are_names(cells: list[str]) -> bool:
    """Return whether a line is a header, not a fact: `predicate,type,id,type,id …`, possibly with `expires_at` last."""
    names = cells[1:-1] if len(cells) % 2 == 0 and cells[-1] == END else cells[1:]
    return cells[0] == "predicate" and names == ["type", "id"] * (len(names) // 2)


def _json_of_cells(number: int, cells: list[str]) -> object:
    predicate, pairs = cells[0], cells[1:]
    end = {END: pairs.pop().removeprefix(_END_CELL)} if len(pairs) % 2 and pairs[-1].startswith(_END_CELL) else {}
    while len(pairs) > 2 and not pairs[-1] and not pairs[-2]:
        pairs = pairs[:-2]  # columns that shorter facts leave empty
    if len(pairs) % 2:
        return BadLine(number, f"argument {len(pairs) // 2 + 1} has a type but no id")
    args = [{"type": pairs[at], "id": pairs[at + 1]} for at in range(0, len(pairs), 2)]
    return {"predicate": predicate, "args": args, **end}


def without_formula(cell: str) -> str:
    """Escape a CSV cell that a spreadsheet would interpret as a formula; `read_csv` removes the quote."""
    return f"'{cell}" if _FORMULA.match(cell.lstrip("'")) else cell


def write_csv(file: TextIO, facts: Iterator[Fact]) -> int:
    rows, count = csv.writer(file), 0
    for count, fact in enumerate(facts, 1):
        cells = list(map(without_formula, _cells_of(fact)))
        if count == 1 and _are_names(cells):
            rows.writerow(cells)  # a header, since this fact looks like one
        rows.writerow(cells)
    return count


def _cells_of(fact: Fact) -> list[str]:
    pairs = [part for value in fact.args for part in (value.type, value.id)]
    end = [] if fact.expires_at is None else [f"{_END_CELL}{short_text_of(fact.expires_at)}"]
    return [fact.predicate, *pairs, *end]


# ---- the notation ----------------------------------------------------------------------------------------------


def read_notation(file: BinaryIO) -> Iterator[tuple[int, object]]:
    """Read the notation like `read_json`; lines may also be JSON. Empty lines and comments are skipped."""
    for number, line in enumerate(file, 1):
        try:
            text = (line.removeprefix(_BOM) if number == 1 else line).decode().strip()
        except UnicodeDecodeError:
            yield number, BadLine(number, NOT_UTF8)
            continue
        if text.startswith("{"):
            yield number, _json_of(number, text)
        elif text and not text.startswith("#"):
            yield number, _fact_of(number, text)


def _fact_of(number: int, text: str) -> object:
    try:
        end = _end_in(text)
        if end is None:
            return fact_from_text(text)
        fact = fact_from_text(text[: end.start()])
        return replace(fact, expires_at=end_from_json(end[1], END))
    except AuthzError as error:
        return BadLine(number, error.message)


def _end_in(text: str) -> re.Match[str] | None:
    """Find the expiry after a fact's arguments, whatever these contain."""
    try:
        rest = parsed(text).rest
    except NotFactText:
        return None
    return _UNTIL.fullmatch(text, len(text) - len(rest)) if rest else None


def _json_of(number: int, text: bytes | str) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        is_text = isinstance(text, str) or text == text.decode(errors="replace").encode()
        return BadLine(number, f"invalid JSON: {error}" if is_text else NOT_UTF8)


def write_notation(file: TextIO, facts: Iterable[Fact]) -> int:
    return sum(1 for fact in facts if file.write(f"{line_of(fact)}\n"))


def line_of(fact: Fact) -> str:
    """Return the fact as a line that `read_notation` reads as the same fact: as JSON, if its names do not fit."""
    return _noted(fact) if _can_be_noted(fact.signature) else orjson.dumps(fact_to_json(fact)).decode()


@lru_cache(maxsize=10_000)
def _can_be_noted(signature: Signature) -> bool:
    """Return whether the names of the signature survive a round trip; ids always do."""
    ids = {INTEGER: "1", BOOLEAN: "true"}
    sample = Fact(signature.predicate, tuple([Value(name, ids.get(name, "x")) for name in signature.types]))
    return [fact for _, fact in read_notation(io.BytesIO(_noted(sample).encode()))] == [sample]


def _noted(fact: Fact) -> str:
    end = "" if fact.expires_at is None else f" until {short_text_of(fact.expires_at)}"
    return f"{fact.noted}{end}"


FORMATS_HELP = 'File format; notation is `has_role(User:ann, "admin", Repo:acme)` (default: by suffix, else json).'
READERS: dict[str, Callable[[BinaryIO], Iterator[tuple[int, object]]]] = {
    "json": read_json,
    "csv": read_csv,
    "notation": read_notation,
}
WRITERS: dict[str, Callable[[TextIO, Iterator[Fact]], int]] = {
    "json": write_json,
    "csv": write_csv,
    "notation": write_notation,
}
