"""A syntax tree as indented lines, for golden files, and as the text of a policy."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from policy.language import ast
from policy.values import Value


def tree(node) -> str:
    return "".join(f"{line}\n" for line in _lines(node, 0))


def nodes(node) -> Iterator:
    """The node and all below it."""
    if isinstance(node, tuple):
        for part in node:
            yield from nodes(part)
    elif is_dataclass(node):
        yield node
        for field in fields(node):
            yield from nodes(getattr(node, field.name))


def _lines(node, depth: int) -> Iterator[str]:
    shown = [(field.name, getattr(node, field.name)) for field in fields(node) if field.compare]
    words = [f"{name}={_word(value)}" for name, value in shown if _is_word(value) and value not in (None, False)]
    yield "  " * depth + " ".join([type(node).__name__, *words])
    for name, value in shown:
        if not _is_word(value):
            yield from _part(name, value, depth + 1)


def _part(name: str, value, depth: int) -> Iterator[str]:
    if isinstance(value, tuple):
        for item in value:
            yield from _lines(item, depth)
    else:
        yield "  " * depth + f"{name}:"
        yield from _lines(value, depth + 1)


def _is_word(value) -> bool:
    return not isinstance(value, tuple) and (not is_dataclass(value) or isinstance(value, ast.Name | Value))


def _word(value) -> str:
    if isinstance(value, ast.Name):
        return value.text
    return f"{value.type}:{value.id!r}" if isinstance(value, Value) else repr(value)


def print_policy(policy: ast.Policy) -> str:
    """Return the text of a policy, with a blank line between items except between two rules."""
    paragraphs: list[str] = []
    for index, item in enumerate(policy.items):
        if index and not (isinstance(item, ast.Rule) and isinstance(policy.items[index - 1], ast.Rule)):
            paragraphs.append("")
        paragraphs.append(ast.print_item(item))
    return "".join(f"{paragraph}\n" for paragraph in paragraphs)
