"""Read the files of an import with the place of each value, and parse texts by grammars."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import yaml

from authz_project.importers import ir
from policy.errors import AuthzError
from policy.language.source import Source
from policy.yaml_text import YamlReader, YamlRejected

# ---- YAML, JSON and CSV with the place of each value --------------------------------------------------------------

_WORDS = ("yes", "no", "on", "off")


class YamlBlock(NamedTuple):
    """The lines of a text below its key, at the same places as in the file; YAML may join them."""

    text: str
    place: ir.Place


class LocatedList(list[Any]):
    """A list in YAML with the place of each element."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[ir.Place] = []


class Located(dict[str, Any]):
    """A mapping with its place, and if it is YAML, with the places of its keys and values."""

    def __init__(self, place: ir.Place, values: Iterable[tuple[str, Any]] = ()):
        super().__init__(values)
        self.place = place
        self.places: dict[str, tuple[ir.Place, ir.Place]] = {}
        self.blocks: dict[str, YamlBlock] = {}

    def place_of(self, key: str) -> ir.Place:
        """Return the place of a value."""
        return self.places[key][1] if key in self.places else self.place

    def place_of_key(self, key: str) -> ir.Place:
        return self.places[key][0] if key in self.places else self.place

    def check_keys(self, known: Iterable[str]) -> None:
        """Reject unknown keys: one that is silently ignored could be what restricts access, or a test."""
        advice = f"; use one of {', '.join(sorted(known))}" if known else ""
        unknown = [key for key in self if key not in known]
        ir.refuse(ir.Fault(self.place_of_key(key), f"`{key}` is not supported{advice}") for key in unknown)

    def text(self, key: str) -> str:
        return self._value(key, str, "a string") or ""

    def source_of(self, key: str) -> Source:
        """Return a text, with places of the file if it is a block whose lines are not joined."""
        text, block = self.text(key), self.blocks.get(key)
        if block and _lines(block.text) == _lines(text):
            return Source(block.text, self.place.file)
        return Source(text, f"{self.place.file} ({key})")

    def listed(self, key: str) -> list[Any]:
        return self._value(key, list, "a list") or []

    def placed(self, key: str) -> list[tuple[Any, ir.Place]]:
        """Return the elements of a list in YAML, each with its place."""
        found = self.listed(key)
        return [*zip(found, found.places)] if isinstance(found, LocatedList) else []

    def mapping(self, key: str) -> Located:
        found: Located | None = self._value(key, Located, "a mapping")
        return Located(self.place) if found is None else found

    def required(self, key: str, what: str) -> str:
        """Return the string that each mapping of this kind has."""
        value = self.get(key)
        if not isinstance(value, str) or not value:
            raise ir.wrong(self.place, f"{what} requires `{key}`, a string")
        return value

    def _value(self, key: str, kind: type, what: str) -> Any:
        found = self.get(key)
        if found is not None and not isinstance(found, kind):
            raise ir.wrong(self.place_of(key), f"`{key}` must be {what}")
        return found


def mapping_of(raw: Any, place: ir.Place, what: str, known: Sequence[str]) -> Located:
    """Return the value, which must be a mapping with known keys."""
    if not isinstance(raw, Located):
        raise ir.wrong(place, f"expected {what}: a mapping")
    raw.check_keys(known)
    return raw


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.strip()]


class _Types(yaml.SafeLoader):
    """Types of YAML 1.2: `yes`, `12:30` and dates are texts, which older versions take for other values."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        tag: str = super().resolve(kind, value, implicit)
        is_text = tag.endswith(":timestamp") or ":" in value or value.lower() in _WORDS
        return self.DEFAULT_SCALAR_TAG if is_text else tag


class _PlacedReader(YamlReader):
    """Reads mappings as `Located`, and lists as `LocatedList`. Keys are as written: `no` is not a boolean."""

    deepest, most_nodes = 50, sys.maxsize

    def __init__(self, text: str, file: str):
        super().__init__(text, _Types(""))
        self.file, self.lines = file, re.split(r"\r\n|[\n\r\x85\u2028\u2029]", text)

    def read_list(self, start: yaml.Event, depth: int) -> LocatedList:
        found = LocatedList()
        for event in self.until(yaml.SequenceEndEvent):
            found.places.append(self.place(event))
            found.append(self.value(event, depth + 1))
        return found

    def read_map(self, start: yaml.Event, depth: int) -> Located:  # type: ignore[override]
        plain: Any = super().read_map(start, depth)
        found = Located(self.place(start), plain.items())
        for name, (key, value) in plain.events.items():
            found.places[name] = self.place(key), self.place(value)
            if isinstance(value, yaml.ScalarEvent) and value.style in ("|", ">"):
                found.blocks[name] = block = self._block(key, value)
                found.places[name] = self.place(key), block.place
        return found

    def _block(self, key: Any, value: Any) -> YamlBlock:
        """Return the block, whose lines are further indented than its key."""
        first, least = value.start_mark.line + 1, key.start_mark.column + 1
        lines = [line if line[:least].isspace() else "" for line in self.lines[first : value.end_mark.line + 1]]
        column = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
        text = "\n".join([*[""] * first, *lines])
        return YamlBlock(text, ir.Place(self.file, first + 1, column + 1))

    def place(self, event: Any) -> ir.Place:
        return ir.Place(self.file, event.start_mark.line + 1, event.start_mark.column + 1)


def read_yaml(text: str, file: str) -> Any:
    """Return the parsed document, with mappings as `Located`. Raise ImportRejected if it is invalid."""
    try:
        return _PlacedReader(text, file).read()
    except YamlRejected as reason:
        problem = f"duplicate `{reason.key}`" if reason.key else reason.problem.removeprefix("invalid YAML: ")
        raise ir.wrong(ir.Place(file, *(reason.place or ())), f"invalid YAML: {problem}") from None


def items_of_json(text: str, file: str) -> Iterator[tuple[ir.Place, Any]]:
    """Yield the elements of a list, or the values of a JSON Lines text, each with its place."""
    line, counted = 1, 0
    is_list = text.lstrip("\ufeff \t\r\n").startswith("[")
    at = text.index("[") + 1 if is_list else len(text) - len(text.lstrip("\ufeff"))
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        line += text.count("\n", counted, at)
        counted = at
        place = ir.Place(file, line, at - text.rfind("\n", 0, at))
        if is_list and at >= len(text):
            raise ir.wrong(place, "invalid JSON: the list is not closed")
        if is_list and text[at] == "]":
            if text[at + 1 :].strip():
                raise ir.wrong(place, "invalid JSON: unexpected text after the list")
            return
        if at >= len(text):
            return
        try:
            value, at = _decoder(place).raw_decode(text, at)
        except (ValueError, RecursionError) as reason:
            raise ir.wrong(place, f"invalid JSON: {_why(reason)}") from None
        yield place, value


def value_of_json(text: str) -> Any:
    """Parse JSON. Raise ValueError if it is invalid, or has duplicate keys."""
    try:
        return _decoder().decode(text)
    except RecursionError as reason:
        raise ValueError(_why(reason)) from None


def _decoder(place: ir.Place = ir.NOWHERE) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=partial(_once, place), parse_constant=_no_number)


def _once(place: ir.Place, pairs: list[tuple[str, Any]]) -> Located:
    found = Located(place, pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate `{next(name for name in names if names.count(name) > 1)}`")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"`{text}` is not a number")


def _why(reason: Exception) -> str:
    if isinstance(reason, RecursionError):
        return "nested too deeply"
    return reason.msg if isinstance(reason, json.JSONDecodeError) else str(reason)


def rows_of_csv(
    text: str, file: str, needed: Sequence[str], others: Sequence[str]
) -> Iterator[tuple[ir.Place, dict[str, str]]]:
    """Yield the rows below the header, which must name all `needed` columns, and may name `others`."""
    rows = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), restkey="", strict=True)
    try:
        rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
        if fault := _fault_of_names(rows.fieldnames, needed, others):
            raise ir.wrong(ir.Place(file, rows.line_num), fault)
        for row in rows:
            if "" in row or None in row.values():
                raise ir.wrong(ir.Place(file, rows.line_num), f"a row must have {len(rows.fieldnames)} cells")
            yield ir.Place(file, rows.line_num), row
    except csv.Error as reason:
        raise ir.wrong(ir.Place(file, rows.line_num), f"invalid CSV: {reason}") from None


def _fault_of_names(names: list[str], needed: Sequence[str], others: Sequence[str]) -> str:
    """Return what is wrong with the column names. Unknown columns are rejected: one could be a condition."""
    if missing := [name for name in needed if name not in names]:
        return f"no {' and no '.join(missing)}; a first line names the columns {', '.join(needed)}"
    if unknown := [name for name in names if name not in (*needed, *others)]:
        return f"no column is called `{unknown[0]}`; use one of {', '.join((*needed, *others))}"
    twice = next((name for name in names if names.count(name) > 1), "")
    return f"duplicate column `{twice}`" if twice else ""


# ---- parsing by grammars ------------------------------------------------------------------------------------------

SyntaxTree: TypeAlias = Any  # a tree of lark, which is imported only when something is parsed
_DEEPEST_TREE = 100


class NotParsed(ValueError):
    """A syntax error: message and offset; `found` is the unexpected terminal."""

    def __init__(self, message: str, at: int, found: str = ""):
        super().__init__(message)
        self.message, self.at, self.found = message, at, found


class LarkMissing(AuthzError):
    """The parser's package is an extra that is not installed."""


@dataclass(frozen=True, eq=False)
class Grammar:
    """A grammar in lark's notation; its first rule is called `start`.

    `words` are the names of terminals in error messages, for those that are not fixed texts; an empty name hides one.
    `in_names` matches characters that make a keyword part of a longer name. The terminal OTHER matches everything else.
    """

    rules: str
    words: Mapping[str, str]
    in_names: str = r"\w"

    def parse(self, text: str) -> SyntaxTree:
        """Return the syntax tree of a text, with offsets. Raise NotParsed on syntax errors."""
        lark, parser = _lark(), _parser(self)
        try:
            tree = parser.parse(text)
        except lark.UnexpectedToken as reason:
            if reason.token.type == "OTHER":
                raise NotParsed(f"`{reason.token[0]}` is not allowed here", reason.token.start_pos) from None
            is_end = reason.token.type == "$END"
            wanted = self._wanted(parser, reason.accepts or reason.expected)
            found = "the end" if is_end else f"`{str(reason.token)[:40]}`"
            at = len(text.rstrip()) if is_end else reason.token.start_pos
            raise NotParsed(f"expected {wanted}, found {found}", at, reason.token.type) from None
        except lark.UnexpectedCharacters as reason:
            at = reason.pos_in_stream
            is_quote = text[at] in "\"'"
            unknown = "unterminated string; close it" if is_quote else f"`{text[at]}` is not allowed here"
            raise NotParsed(unknown, at) from None
        _check_depth(tree)
        return tree

    def _wanted(self, parser: Any, terminals: Iterable[str]) -> str:
        """Return the expected terminals for an error message: keywords first, then the rest, in the grammar's order."""
        found: dict[str, tuple[bool, int]] = {}
        for name in terminals:
            if name == "$END" or self.words.get(name) == "":
                continue
            pattern = parser.get_terminal(name).pattern
            fixed = (pattern.raw or pattern.value).strip('"')
            place = not fixed.isidentifier(), self.rules.find(name if name in self.words else f'"{fixed}"')
            shown = self.words.get(name) or f"`{fixed}`"
            found[shown] = min(place, found.get(shown, place))  # several terminals may have the same word
        *others, last = sorted(found, key=found.__getitem__) or ["the end"]
        return f"{', '.join(others)} or {last}" if others else last


def _lark() -> Any:
    try:
        return import_module("lark")
    except ModuleNotFoundError as missing:
        if missing.name != "lark":
            raise
        raise LarkMissing('lark is not installed. Run `pip install "authz-project[import]"`.') from None


@cache
def _parser(grammar: Grammar) -> Any:
    lark = _lark()

    def end_word(terminal: Any) -> None:
        """Prevent a keyword from matching the start of a longer name."""
        if isinstance(terminal.pattern, lark.lexer.PatternStr) and terminal.pattern.value.isidentifier():
            word = terminal.pattern.value
            terminal.pattern = lark.lexer.PatternRE(f"{word}(?!{grammar.in_names})", raw=f'"{word}"')

    return lark.Lark(grammar.rules, parser="lalr", propagate_positions=True, edit_terminals=end_word)


def _check_depth(tree: SyntaxTree) -> None:
    pending = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > _DEEPEST_TREE:
            raise NotParsed("nested too deeply; split it", node.meta.start_pos)
        pending += [(child, depth + 1) for child in node.children if hasattr(child, "children")]


def place_in(source: Source, offset: int) -> ir.Place:
    return ir.Place(source.filename, *source.position(offset))


# ---- files named in other files -----------------------------------------------------------------------------------
# Only files below the folder of the file that names them are read (no path traversal).


def neighbour_file(file: str | Path, named: str) -> Path | None:
    """Return the path of the named file; None if it is outside of the folder, even through a symbolic link."""
    folder = Path(file).parent
    path = folder / named
    try:
        whole = path.resolve()
        inside = whole.is_relative_to(folder.resolve()) and whole != folder.resolve()
    except (OSError, RuntimeError, ValueError):  # cyclic links, or an invalid name
        return None
    return path if inside else None
