"""Read the files of an import with the place of each value, and parse texts by grammars."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from textwrap import indent
from typing import Any, TypeAlias

import yaml

from authz_project.importers import ir
from policy.errors import AuthzError
from policy.language.source import Source

# ---- YAML, JSON and CSV with the place of each value --------------------------------------------------------------

_MOST_DEEP = 50
_WORDS = ("yes", "no", "on", "off")


class Located(dict[str, Any]):
    """A mapping with its place, and if it is YAML, with the nodes of its keys and values."""

    def __init__(self, place: ir.Place, values: Iterable[tuple[str, Any]] = ()):
        super().__init__(values)
        self.place = place
        self.nodes: dict[str, tuple[yaml.Node, Any]] = {}

    def place_of(self, key: str) -> ir.Place:
        """Return the place of a value."""
        return _place(self.nodes[key][1], self.place.file) if key in self.nodes else self.place

    def place_of_key(self, key: str) -> ir.Place:
        return _place(self.nodes[key][0], self.place.file) if key in self.nodes else self.place

    def check_keys(self, known: Iterable[str]) -> None:
        """Reject unknown keys: one that is silently ignored could be what restricts access, or a test."""
        advice = f"; use one of {', '.join(sorted(known))}" if known else ""
        unknown = [key for key in self if key not in known]
        ir.refuse(ir.Fault(self.place_of_key(key), f"`{key}` is not supported{advice}") for key in unknown)

    def text(self, key: str) -> str:
        return self._value(key, str, "a string") or ""

    def source_of(self, key: str) -> Source:
        """Return a text: with lines and columns of the file if it is a block in YAML, whose lines are as written."""
        text, at = self.text(key), self.place_of(key)
        if key in self.nodes and self.nodes[key][1].style == "|":
            return Source("\n" * (at.line - 1) + indent(text, " " * (at.column - 1)), at.file)
        return Source(text, f"{at.file} ({key})")

    def listed(self, key: str) -> list[Any]:
        return self._value(key, list, "a list") or []

    def placed(self, key: str) -> list[tuple[Any, ir.Place]]:
        """Return the elements of a list in YAML, each with its place."""
        elements = self.listed(key)
        nodes = self.nodes[key][1].value if elements else []
        return [(each, _place(node, self.place.file)) for each, node in zip(elements, nodes)]

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


class _Loader(yaml.SafeLoader):
    """Reads values as YAML 1.2 does: `yes`, `12:30` and dates are texts, which older versions take for other values.

    Rejects anchors and aliases: with them, a few lines can expand beyond all memory.
    """

    depth = 0

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        tag: str = super().resolve(kind, value, implicit)
        is_text = tag.endswith(":timestamp") or (kind is yaml.ScalarNode and (":" in value or value.lower() in _WORDS))
        return self.DEFAULT_SCALAR_TAG if is_text else tag

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if getattr(event, "tag", None) is not None:
            raise _refusal("tags (`!`) are not supported; remove this one", event.start_mark)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _refusal("anchors and aliases (`&`, `*`) are not supported; write out the values", event.start_mark)
        if self.depth > _MOST_DEEP:
            raise _refusal("nested too deeply", event.start_mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


def _refusal(message: str, mark: yaml.Mark) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=message, problem_mark=mark)


def read_yaml(text: str, file: str) -> Any:
    """Return the parsed document, with mappings as `Located`. Raise ImportRejected if it is invalid."""
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            return None if node is None else _made(node, loader, file)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as reason:
        mark = reason.problem_mark or reason.context_mark
        place = ir.Place(file, mark.line + 1, mark.column + 1) if mark else ir.Place(file)
        raise ir.ImportRejected([ir.Fault(place, f"invalid YAML: {reason.problem or reason.context}")]) from None
    except (yaml.YAMLError, ValueError) as reason:
        raise ir.ImportRejected([ir.Fault(ir.Place(file), f"invalid YAML: {reason}")]) from None


def _made(node: yaml.Node, loader: _Loader, file: str) -> Any:
    """Return a value; keys of mappings are as written (`no` is not a boolean), and must be unique."""
    if isinstance(node, yaml.MappingNode):
        found = Located(_place(node, file))
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                raise _refusal("a key must be a string", key.start_mark)
            if key.value in found:
                raise _refusal(f"duplicate `{key.value}`", key.start_mark)
            found[key.value] = _made(value, loader, file)
            found.nodes[key.value] = key, value
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_made(each, loader, file) for each in node.value]
    return loader.construct_object(node)


def _place(node: yaml.Node, file: str) -> ir.Place:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return ir.Place(file, line + 1, _indentation(node) + 1)  # its text begins on the next line
    return ir.Place(file, line, node.start_mark.column + 1)


def _indentation(node: yaml.ScalarNode) -> int:
    """Return the indentation of a block scalar, which is not part of its value."""
    mark = node.start_mark
    text = mark.buffer[mark.pointer : node.end_mark.pointer] if mark.buffer else ""
    lines = [line for line in text.split("\n")[1:] if line.strip()]
    return min((len(line) - len(line.lstrip(" ")) for line in lines), default=0)


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
            raise ir.ImportRejected([ir.Fault(place, "invalid JSON: the list is not closed")])
        if is_list and text[at] == "]":
            if text[at + 1 :].strip():
                raise ir.ImportRejected([ir.Fault(place, "invalid JSON: unexpected text after the list")])
            return
        if at >= len(text):
            return
        try:
            value, at = _decoder(place).raw_decode(text, at)
        except (ValueError, RecursionError) as reason:
            raise ir.ImportRejected([ir.Fault(place, f"invalid JSON: {_why(reason)}")]) from None
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
    rows = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    names: list[str] | None = None
    while True:
        line = rows.line_num + 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as reason:
            raise ir.ImportRejected([ir.Fault(ir.Place(file, line), f"invalid CSV: {reason}")]) from None
        if not cells:
            continue
        if names is None:
            names = [cell.strip() for cell in cells]
            if fault := _fault_of_names(names, needed, others):
                raise ir.ImportRejected([ir.Fault(ir.Place(file, line), fault)])
            continue
        if len(cells) != len(names):
            raise ir.ImportRejected([ir.Fault(ir.Place(file, line), f"{len(cells)} cells, but {len(names)} columns")])
        yield ir.Place(file, line), dict(zip(names, cells))


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
