"""What the languages of both engines have in common: nodes of their syntax trees with the same names, and comments."""

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from authz_project.importers import ir
from authz_project.importers.cel import test_of
from authz_project.importers.files import NotParsed, SyntaxTree, place_in
from policy.language.source import Source

FILE = -1  # the key of comments on a whole file


class LanguageReader:
    """Builds parts of a model from a syntax tree. The key of a node's comments is where it begins."""

    def __init__(self, source: Source):
        self.source = source
        self.comments: dict[int, tuple[str, ...]] = {}

    def place_comments(self, tree: SyntaxTree, found: Iterable[tuple[int, list[str]]], of_file: Iterable[int]) -> None:
        """Assign each comment to the node that it is in, or after on the same line; otherwise to the next one.

        Comments directly before the places in `of_file`, and those at the end, describe the whole file.
        """
        text, places = self.source.text, sorted([*self._anchors(tree), *((at, at, FILE) for at in of_file)])
        for at, lines in found:
            number = bisect(places, (at,))
            if not number or "\n" in text[places[number - 1][1] : at]:
                number += 1
            key = places[number - 1][2] if number <= len(places) else FILE
            self.comments[key] = (*self.comment(key), *lines)

    def _anchors(self, tree: SyntaxTree) -> Iterator[tuple[int, int, int]]:
        """Yield where something begins and ends, with the key of its comments; of types, only the first and last."""
        for each in tree.iter_subtrees():
            meta = each.meta
            if each.data in ("relation", "permission", "condition"):
                yield meta.start_pos, meta.end_pos, meta.start_pos
            elif each.data in ("type", "partial"):
                yield meta.start_pos, each.children[0].meta.end_pos, meta.start_pos
                if self.source.text[meta.end_pos - 1] == "}":
                    yield meta.end_pos - 1, meta.end_pos, meta.start_pos

    def comment(self, key: int) -> tuple[str, ...]:
        return self.comments.get(key, ())

    def place(self, node: SyntaxTree) -> ir.Place:
        return place_in(self.source, (node.meta if hasattr(node, "meta") else node).start_pos)

    def subject(self, tree: SyntaxTree, condition: str | None = None, expires: bool = False) -> ir.Subject:
        path, kind, *_ = tree.children
        relation = str(kind.children[0]) if kind and kind.children else None
        is_everybody = bool(kind) and kind.data == "everybody"
        return ir.Subject(path_of(path), relation, is_everybody, condition, expires, self.place(tree))

    def expression(self, tree: SyntaxTree) -> ir.Expression:
        place = self.place(tree)
        match tree.data, tree.children:
            case "computed", [name]:
                return ir.Computed(str(name), place)
            case "arrow", [tupleset, name]:
                return ir.Arrow(str(tupleset), str(name), place=place)
            case "union", parts:
                return self._joined(ir.Union, parts)
            case "intersection", parts:
                return self._joined(ir.Intersection, parts)
            case "exclusion", [base, *subtracted]:  # `a - b - c` is `a - (b + c)`
                return ir.Exclusion(self.expression(base), self._joined(ir.Union, subtracted))
        return ir.Direct(place)

    def _joined(self, kind: type[ir.Union | ir.Intersection], trees: list[SyntaxTree]) -> ir.Expression:
        """Return the union or intersection, flattened: `(a + b) + c` has three parts."""
        parts = [each for tree in trees for each in _parts(self.expression(tree), kind)]
        return parts[0] if len(parts) == 1 else kind(tuple(parts))

    def condition(self, tree: SyntaxTree) -> ir.ModelCondition:
        path, *parameters, body = tree.children
        start, end = body.children[1].start_pos, body.children[-2].end_pos
        read = tuple(ir.ModelParameter(str(name), _type(kind), self.place(name))
                     for name, kind in (each.children for each in parameters))  # fmt: skip
        comment = self.comment(tree.meta.start_pos)
        found = ir.ModelCondition(path_of(path), read, ir.Always(False), self.source.text[start:end], comment)
        return parsed(found, lambda offset: place_in(self.source, start + offset))


def parsed(condition: ir.ModelCondition, place_of: Callable[[int], ir.Place]) -> ir.ModelCondition:
    """Return the condition with its test, whose text is at these places."""
    try:
        return replace(condition, test=test_of(condition.text, condition.parameters, place_of))
    except NotParsed as reason:
        message = f"the condition of `{condition.name}`: {reason.message}"
        raise ir.wrong(place_of(reason.at), message) from None


def path_of(tree: SyntaxTree) -> str:
    return "/".join(tree.children)


def _type(tree: SyntaxTree) -> str:
    name, *inner = tree.children
    return f"{name}<{', '.join(map(_type, inner))}>" if inner else str(name)


def _parts(expression: ir.Expression, kind: type[ir.Union | ir.Intersection]) -> Iterator[ir.Expression]:
    yield from expression.parts if isinstance(expression, kind) else (expression,)
