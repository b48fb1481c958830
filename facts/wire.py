"""Facts, patterns, values and batches as JSON and in text form, and the formats of files of facts."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AnySet
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, BinaryIO, NoReturn, TextIO, TypeVar

import orjson

from facts.models import MAX_ARGUMENTS, ROW_LENGTH, NewRow, Row
from policy.core.clock import microseconds_of_text, short_text_of
from policy.errors import AuthzError, MalformedRequest
from policy.rules.program import Signature
from policy.values import (
    BOOLEAN,
    INTEGER,
    STRING,
    NotFactText,
    Value,
    WrittenArgument,
    WrittenFact,
    canonical_id,
    parsed,
    quoted,
)

# ---- Decode JSON to values, facts and patterns, for all endpoints -------------------------------------------------
# Every error is a `MalformedRequest` with the path of the invalid field.

MAX_ID_BYTES = 512
MAX_NAME_BYTES = 200  # six of them form a key of the signature table
END = "expires_at"

T = TypeVar("T")

_SHORT = MAX_ID_BYTES // 4  # characters: a text of that length cannot exceed the limit in bytes
_NAMES_REMEMBERED = 10_000

_names: set[str] = set()  # a cache of names that were found valid
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CANONICAL = frozenset((INTEGER, BOOLEAN))


@dataclass(frozen=True, slots=True)
class Fact:
    """A predicate with values, and its expiry in microseconds since 1970, which equality ignores."""

    predicate: str
    args: tuple[Value, ...]
    expires_at: int | None = field(default=None, compare=False)

    @property
    def signature(self) -> Signature:
        return Signature(self.predicate, tuple([value.type for value in self.args]))

    def __str__(self) -> str:
        return f"{self.predicate}({', '.join(map(str, self.args))})"

    @property
    def noted(self) -> str:
        """Return the fact in text form: `has_role(User:ann, "admin", Repo:acme)`; `str` returns Polar."""
        return f"{self.predicate}({', '.join([value.noted for value in self.args])})"


@dataclass(frozen=True, slots=True)
class Argument:
    """A pattern of one argument: a value, any value of a type (no id), or anything (neither)."""

    type: str | None = None
    id: str | None = None

    def __str__(self) -> str:
        if self.id is None:
            return f"{self.type}:_" if self.type else "_"
        return str(Value(self.type, self.id)) if self.type else f"_{{{quoted(self.id)}}}"


@dataclass(frozen=True, slots=True)
class FactPattern:
    predicate: str
    args: tuple[Argument, ...]

    def __str__(self) -> str:
        return f"{self.predicate}({', '.join(map(str, self.args))})"

    def matches(self, fact: Fact) -> bool:
        return (self.predicate, len(self.args)) == (fact.predicate, len(fact.args)) and all(
            arg.type in (None, value.type) and arg.id in (None, value.id) for arg, value in zip(self.args, fact.args)
        )


def exact_pattern(fact: Fact) -> FactPattern:
    """Return the pattern that matches only this fact."""
    return FactPattern(fact.predicate, tuple([Argument(value.type, value.id) for value in fact.args]))


# ---- whole bodies -------------------------------------------------------------------------------------


def patterns_from_json(raw: object, path: str) -> tuple[FactPattern, ...]:
    return _each(raw, path, pattern_from_json)


def values_from_json(raw: object, path: str) -> tuple[Value, ...]:
    return _each(raw, path, value_from_json)


def list_from_json(raw: object, path: str) -> list[object]:
    if not isinstance(raw, list):
        _refuse(path, "must be an array", raw)
    return raw


def _each(raw: object, path: str, decode: Callable[[object, str], T]) -> tuple[T, ...]:
    return tuple([decode(item, f"{path}[{index}]") for index, item in enumerate(list_from_json(raw, path))])


# ---- facts --------------------------------------------------------------------------------------------


def fact_from_json(raw: object, path: str) -> Fact:
    predicate, args, place, end = _parts_of(raw, path)
    values = tuple([value_from_json(arg, f"{place}[{index}]") for index, arg in enumerate(args)])
    return Fact(predicate, values) if end is None else Fact(predicate, values, end_from_json(end, end_path(path)))


def plain_fact(raw: Any, known: Mapping[tuple[str, tuple[str, ...]], T]) -> tuple[T, tuple[str, ...]] | None:
    """Decode a fact on the fast path: return what is `known` of its predicate and types, and its ids.

    Return None if it needs a closer look: then `fact_from_json` decodes or rejects it. Nearly all facts are plain, and
    this function takes most of the time of a load.
    """
    try:
        args = raw["args"]
        if END in raw:
            return None
        if len(args) == 3:  # most have three: unrolled, it takes half the time
            one, two, three = args
            ids, types = (one["id"], two["id"], three["id"]), (one["type"], two["type"], three["type"])
        else:
            ids, types = tuple([arg["id"] for arg in args]), tuple([arg["type"] for arg in args])
        text = "".join(ids)
        found = known[raw["predicate"], types]
    except (KeyError, TypeError):
        return None
    return (found, ids) if is_plain(text, ids) else None


def is_plain(text: str, ids: Sequence[str]) -> bool:
    """Return whether these ids, joined to `text`, are all valid: short, ASCII, and none of them empty or `*`."""
    return len(text) <= _SHORT and text.isascii() and "\0" not in text and "" not in ids and "*" not in ids


def is_plain_type(name: str) -> bool:
    """Return whether the name of a type was found valid before, and ids of that type have one spelling only."""
    return name in _names and name not in _CANONICAL


def end_from_json(raw: object, path: str) -> int:
    """Decode the expiry of a fact, to microseconds since 1970."""
    try:
        return microseconds_of_text(_text(raw, path))
    except ValueError:
        raise MalformedRequest(
            path, "must be an RFC 3339 time with an offset, such as `2026-12-01T00:00:00Z`"
        ) from None


def end_path(path: str) -> str:
    return f"{path}.{END}" if path else END


def value_from_json(raw: object, path: str) -> Value:
    if not isinstance(raw, dict):
        _refuse(path, 'must be an object with "type" and "id"', raw)
    type_name = name_from_json(raw.get("type"), f"{path}.type")
    return Value(type_name, id_from_json(type_name, raw.get("id"), f"{path}.id"))


def name_from_json(raw: object, path: str) -> str:
    """Decode the name of a predicate or type."""
    if type(raw) is str and raw in _names:
        return raw
    text = new_name_from_json(raw, path)
    if len(_names) < _NAMES_REMEMBERED:
        _names.add(text)
    return text


def new_name_from_json(raw: object, path: str) -> str:
    """Decode a name that is unlikely to be sent again: like `name_from_json`, but without its cache."""
    text = _text(raw, path)
    if not text:
        raise MalformedRequest(path, "must not be empty")
    if len(text) * 4 > MAX_NAME_BYTES and len(text.encode()) > MAX_NAME_BYTES:
        raise MalformedRequest(path, f"must be at most {MAX_NAME_BYTES} bytes of UTF-8")
    if _CONTROL.search(text):
        raise MalformedRequest(path, "must not contain control characters")
    return text


def id_from_json(type_name: str, raw: object, path: str) -> str:
    """Decode an id, and return it in its type's canonical spelling."""
    text = _text(raw, path)
    if not text:
        raise MalformedRequest(path, "must not be empty")
    if text == "*":
        raise MalformedRequest(path, "must not be `*`, which stands for every id in results")
    if len(text) > _SHORT and len(text.encode()) > MAX_ID_BYTES:
        raise MalformedRequest(path, f"must be at most {MAX_ID_BYTES} bytes of UTF-8")
    return _canonical(type_name, text, path)


# ---- patterns -----------------------------------------------------------------------------------------


def pattern_from_json(raw: object, path: str) -> FactPattern:
    predicate, args, place, end = _parts_of(raw, path)
    decoded = [argument_from_json(arg, f"{place}[{index}]") for index, arg in enumerate(args)]
    if end is not None:
        raise MalformedRequest(
            end_path(path), "is only allowed for facts to insert; a pattern matches facts with any expiry"
        )
    return FactPattern(predicate, tuple(decoded))


def asked_pattern_from_json(raw: object, path: str) -> FactPattern:
    """Decode a pattern of a question. Its ids must be ids, as in all questions: rules can hold for those of no fact."""
    pattern = pattern_from_json(raw, path)
    for index, arg in enumerate(pattern.args):
        if arg.type is not None and arg.id is not None:
            id_from_json(arg.type, arg.id, f"{path}.args[{index}].id")
    return pattern


def argument_from_json(raw: object, path: str) -> Argument:
    """Decode an argument of a pattern. Missing and null are equivalent; an id that no fact can have matches none."""
    if raw is None:
        return Argument()
    if not isinstance(raw, dict):
        _refuse(path, 'must be null or an object with "type" and "id"', raw)
    type_name, id_text = raw.get("type"), raw.get("id")
    if "id" not in raw and (others := raw.keys() - {"type"}):  # such as `ID`: a delete would match every id
        raise MalformedRequest(path, f"must have no `{min(others)}`, but `type` and `id`, or neither")
    if type_name is not None:
        type_name = _text(type_name, f"{path}.type")
    if id_text is None:
        return Argument(type_name)
    if type_name is None:
        raise MalformedRequest(f"{path}.type", "is required if `id` is given")
    return Argument(type_name, _canonical(type_name, _text(id_text, f"{path}.id"), f"{path}.id"))


# ---- pieces -------------------------------------------------------------------------------------------


def _parts_of(raw: object, path: str) -> tuple[str, list, str, object]:
    """Return the name, the arguments, the path of the arguments, and the undecoded expiry, None if there is none."""
    if not isinstance(raw, dict):
        _refuse(path, 'must be an object with "predicate" and "args"', raw)
    prefix = f"{path}." if path else ""
    predicate, args = raw.get("predicate"), raw.get("args")
    if type(predicate) is not str or predicate not in _names:
        predicate = name_from_json(predicate, f"{prefix}predicate")
    if not isinstance(args, list):
        _refuse(f"{prefix}args", "must be an array", args)
    if not 1 <= len(args) <= MAX_ARGUMENTS:
        raise MalformedRequest(f"{prefix}args", f"must have 1 to {MAX_ARGUMENTS} elements")
    return predicate, args, f"{prefix}args", raw.get(END)


def _text(raw: object, path: str) -> str:
    if not isinstance(raw, str):
        _refuse(path, "must be a string", raw)
    if "\0" in raw:
        raise MalformedRequest(path, "must not contain NUL characters")
    if not raw.isascii():
        try:
            raw.encode()
        except UnicodeEncodeError:
            raise MalformedRequest(path, "must be well-formed Unicode, without lone surrogates") from None
    return raw


def _canonical(type_name: str, text: str, path: str) -> str:
    if type_name not in _CANONICAL:
        return text
    try:
        return canonical_id(type_name, text)
    except ValueError as reason:
        raise MalformedRequest(path, str(reason)) from None


_JSON_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null or missing"}


def _refuse(path: str, wanted: str, got: object) -> NoReturn:
    raise MalformedRequest(path, f"{wanted}, not {_JSON_NAMES.get(type(got), 'a number')}")


# ---- encoding -----------------------------------------------------------------------------------------


def fact_to_json(fact: Fact, with_end: bool = True) -> dict[str, object]:
    json: dict[str, object] = {
        "predicate": fact.predicate,
        "args": [{"type": value.type, "id": value.id} for value in fact.args],
    }
    if with_end and fact.expires_at is not None:
        json[END] = short_text_of(fact.expires_at)
    return json


def pattern_to_json(pattern: FactPattern) -> dict[str, object]:
    args = [{"type": arg.type, "id": arg.id} if arg.type else None for arg in pattern.args]
    return {"predicate": pattern.predicate, "args": args}


# ---- batches ------------------------------------------------------------------------------------------------------
# Many facts, grouped by signature for validation and storage: what depends only on the signature is done once.

FactIds = tuple[str, ...]
FactKey = tuple[str, tuple[str, ...]]  # a signature's parts, which are quick to hash


@dataclass(eq=False, slots=True)
class FactBatch(Sequence[Fact]):
    """Facts from JSON. A `Fact` is created only when it is accessed, which most of them never are.

    Facts from other sources have only `ids`: they can be checked and stored, but have no length and no positions.
    """

    raw: list[object] = field(default_factory=list)
    ids: dict[Signature, list[FactIds]] = field(default_factory=dict)  # in the order of their first facts
    some_end: bool = False

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [fact_from_json(each, "") for each in self.raw[index]]
        return fact_from_json(self.raw[index], "")

    def __iter__(self) -> Iterator[Fact]:
        return (fact_from_json(each, "") for each in self.raw)


def batch_from_json(raw: object, path: str) -> FactBatch:
    batch = FactBatch(list_from_json(raw, path))
    known: dict[FactKey, list[FactIds]] = {}
    for index, item in enumerate(batch.raw):
        plain = plain_fact(item, known)
        if plain is None:
            _add(batch, fact_from_json(item, f"{path}[{index}]"), known)
        else:
            plain[0].append(plain[1])
    return batch


def lasting_from_json(raw: object, path: str) -> FactBatch:
    """Decode context facts, which count for one query only; reject a fact that has an expiry."""
    batch = batch_from_json(raw, path)
    if batch.some_end:
        place = next(index for index, fact in enumerate(batch) if fact.expires_at is not None)
        raise MalformedRequest(
            end_path(f"{path}[{place}]"), "is only allowed for stored facts; remove it from the context fact"
        )
    return batch


def _add(batch: FactBatch, fact: Fact, known: dict[FactKey, list[FactIds]]) -> None:
    signature = fact.signature
    same = batch.ids.setdefault(signature, [])
    same.append(tuple([value.id for value in fact.args]))
    batch.some_end |= fact.expires_at is not None
    remember(known, signature, same)


def remember(known: dict[FactKey, T], signature: Signature, what: T) -> None:
    """Let `plain_fact` know the signature, unless it has Integers or Booleans: their ids may need another spelling."""
    if INTEGER not in signature.types and BOOLEAN not in signature.types:
        known[signature.predicate, signature.types] = what


def by_signature(facts: Iterable[Fact]) -> Mapping[Signature, Sequence[FactIds]]:
    """Return the facts' ids by signature, in the order in which the signatures first appear."""
    if isinstance(facts, FactBatch):
        return facts.ids
    found: dict[Signature, list[FactIds]] = {}
    for fact in facts:
        found.setdefault(fact.signature, []).append(tuple([value.id for value in fact.args]))
    return found


def without(facts: Sequence[Fact], signatures: AnySet[Signature]) -> Sequence[Fact]:
    """Return the facts of all other signatures."""
    if not isinstance(facts, FactBatch):
        return tuple([fact for fact in facts if fact.signature not in signatures])
    kept = {signature: ids for signature, ids in facts.ids.items() if signature not in signatures}
    return FactBatch([item for item in facts.raw if _signature_of(item) in kept], kept)


def _signature_of(item: Any) -> Signature:
    """Return the signature of JSON that is known to be a valid fact."""
    return Signature(item["predicate"], tuple([arg["type"] for arg in item["args"]]))


def place_of_first(facts: Iterable[Fact], signature: Signature) -> int:
    return next(index for index, fact in enumerate(facts) if fact.signature == signature)


def some_end(facts: Iterable[Fact]) -> bool:
    if isinstance(facts, FactBatch):
        return facts.some_end
    return any(fact.expires_at is not None for fact in facts)


def rows_of(facts: Iterable[Fact], number_of: Callable[[Signature], int], since: int) -> list[NewRow]:
    """Return the facts' rows without duplicates; of facts that differ only in their expiry, the last one counts."""
    same = by_signature(facts)
    if some_end(facts):
        numbers = {signature: number_of(signature) for signature in same}
        return last_of_each(_row_of(fact, numbers[fact.signature], since) for fact in facts)
    rows: list[NewRow] = []
    for signature, ids in same.items():
        number, rest = number_of(signature), rest_of_row(signature, since)
        rows += [(number, *(each + rest)) for each in ids]
    return list(dict.fromkeys(rows))


def _row_of(fact: Fact, number: int, since: int) -> NewRow:
    *padding, _ = rest_of_row(fact.signature, since)
    return (number, *[value.id for value in fact.args], *padding, fact.expires_at)


def last_of_each(rows: Iterable[NewRow]) -> list[NewRow]:
    """Return one row per fact: the last one, whose expiry counts."""
    found: dict[Row, NewRow] = {row[:ROW_LENGTH]: row for row in rows}
    return list(found.values())


def rest_of_row(signature: Signature, since: int) -> tuple[Any, ...]:
    """Return the columns after the ids in a row of a fact without expiry."""
    return (*("",) * (MAX_ARGUMENTS - len(signature.types)), since, None)


# ---- Facts, patterns and values in text form: `has_role(User:ann, "admin", Repo:_)` -------------------------------
# Without a type, a quoted or bare word is a String, digits are an Integer, `true` and `false` are Booleans; `Type:_` is
# any value of the type and `_` is anything.

_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_AFTER = re.compile(r"(;\s*(#.*)?)?")  # an expiry or a second fact behind the semicolon is not ignored


def fact_from_text(text: str) -> Fact:
    written = _parsed(text)
    if any(arg.id is None for arg in written.args):
        raise MalformedRequest("", "wildcards are not allowed in a fact; write every argument as `Type:id`")
    return fact_from_json(_as_json(written), "")


def pattern_from_text(text: str) -> FactPattern:
    return pattern_from_json(_as_json(_parsed(text)), "")


def value_from_text(text: str, suggest: Callable[[str], Sequence[str]] = lambda text: ()) -> Value:
    """Parse an actor or a resource, such as `User:ann`, as the API would accept it.

    `suggest` returns what may have been meant by a text without a type: `8` -> `User:8`.
    """
    match pattern_from_text(f"value({text})").args if text else ():
        case (Argument(str() as type_name, str() as written),) if type_name != STRING:
            return Value(type_name, id_from_json(type_name, written, f"the id of `{type_name}`"))
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
        if not _AFTER.fullmatch(written.rest):
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
# OWASP's list, with the full-width signs; and the mark of a file's encoding, which readers remove from its start.
_FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20\ufeff]")
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
        if text.strip():
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
        end = _end_after(text)
        if end is None:
            return fact_from_text(text)
        fact = fact_from_text(text[: end.start()])
        return replace(fact, expires_at=end_from_json(end[1], END))
    except AuthzError as error:
        return BadLine(number, error.message)


def _end_after(text: str) -> re.Match[str] | None:
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
        return BadLine(number, f"invalid JSON at column {error.colno}: {error.msg}" if is_text else NOT_UTF8)


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


FORMATS_HELP = (
    'File format; notation is `has_role(User:ann, "admin", Repo:acme)` (default: csv for *.csv, notation for *.txt, '
    "else json)."
)
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


def format_of(file: str) -> str:
    """Return the format that the name of a file stands for."""
    return {"csv": "csv", "txt": "notation"}.get(file.rpartition(".")[2], "json")
