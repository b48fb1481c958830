"""YAML and JSON read with the places where things stand."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import yaml

from authz_project.importers.model import Place
from authz_project.importers.report import Fault, ImportRejected

_MOST_DEEP = 50


class Marked(dict[str, Any]):
    """A mapping that knows where it begins, and where its values do."""

    def __init__(self, place: Place):
        super().__init__()
        self.place = place
        self.places: dict[str, Place] = {}

    def place_of(self, key: str) -> Place:
        return self.places.get(key, self.place)


class _Loader(yaml.SafeLoader):
    """Times stay texts."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(text: str, file: str) -> Any:
    """The document in a text: mappings are `Marked`; ImportRejected where it is none."""
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            return None if node is None else _made(node, loader, file, 0)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as reason:
        mark = reason.problem_mark or reason.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        raise ImportRejected([Fault(place, f"not YAML: {reason.problem or reason.context}")]) from None
    except (yaml.YAMLError, ValueError) as reason:
        raise ImportRejected([Fault(Place(file), f"not YAML: {reason}")]) from None


def _made(node: yaml.Node, loader: _Loader, file: str, depth: int) -> Any:
    place = _place(node, file)
    if depth > _MOST_DEEP:
        raise ImportRejected([Fault(place, "this nests too deep")])
    if isinstance(node, yaml.MappingNode):
        found = Marked(place)
        loader.flatten_mapping(node)
        for key_node, value_node in node.value:
            key = str(loader.construct_object(key_node)) if isinstance(key_node, yaml.ScalarNode) else ""
            found[key] = _made(value_node, loader, file, depth + 1)
            found.places[key] = _place(value_node, file)
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_made(each, loader, file, depth + 1) for each in node.value]
    return loader.construct_object(node)


def _place(node: yaml.Node, file: str) -> Place:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return Place(file, line + 1, _indentation(node) + 1)  # its text begins on the line below
    return Place(file, line, node.start_mark.column + 1)


def _indentation(node: yaml.ScalarNode) -> int:
    """How far in a block of text stands, which is not in its value."""
    mark = node.start_mark
    text = mark.buffer[mark.pointer : node.end_mark.pointer] if mark.buffer else ""
    lines = [line for line in text.split("\n")[1:] if line.strip()]
    return min((len(line) - len(line.lstrip(" ")) for line in lines), default=0)


def items_of_json(text: str, file: str) -> Iterator[tuple[Place, Any]]:
    """The elements of a list, or the values of a text that has one a line, each with its place."""
    decoder, at, line, counted = json.JSONDecoder(), 0, 1, 0
    is_list = text.lstrip("\ufeff \t\r\n").startswith("[")
    at = text.index("[") + 1 if is_list else len(text) - len(text.lstrip("\ufeff"))
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at >= len(text) or (is_list and text[at] == "]"):
            return
        line += text.count("\n", counted, at)
        counted = at
        place = Place(file, line, at - text.rfind("\n", 0, at))
        try:
            value, at = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as reason:
            message = reason.msg if isinstance(reason, json.JSONDecodeError) else "this nests too deep"
            raise ImportRejected([Fault(place, f"not JSON: {message}")]) from None
        yield place, value


def rows_of_csv(text: str, file: str) -> Iterator[tuple[Place, dict[str, str]]]:
    """The rows below the first, which names the columns."""
    rows = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    names: list[str] | None = None
    while True:
        line = rows.line_num + 1
        try:
            cells = next(rows)
        except StopIteration:
            return
        except csv.Error as reason:
            raise ImportRejected([Fault(Place(file, line), f"not CSV: {reason}")]) from None
        if names is None:
            names = [cell.strip() for cell in cells]
        elif cells:
            if len(cells) > len(names):
                raise ImportRejected([Fault(Place(file, line), f"{len(cells)} cells, but {len(names)} columns")])
            yield Place(file, line), dict(zip(names, cells))
