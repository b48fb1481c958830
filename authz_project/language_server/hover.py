"""What an editor shows of the name under the pointer, as Markdown."""

import re
from collections.abc import Iterable, Iterator

from authz_project.language_server.document import Document
from policy.language.names import FIXTURE, NAME, PREDICATE, TYPE, VARIABLE, NameKey, Occurrence
from policy.language.outline import LISTS, PRIMITIVES, OutlineBlock
from policy.language.source import Span
from policy.values import quoted

MOST = 12  # lines of one kind
_TYPED = re.compile(r"\s*(?::|matches!?)\s*([^\s,;()]+)")


def hover_text(document: Document, occurrence: Occurrence) -> str:
    """Return what there is to say; empty where that is nothing."""
    key = occurrence.key
    match key.kind:
        case kind if kind == TYPE:
            return _type(document, key.name)
        case kind if kind == NAME:
            return _name(document, key.name)
        case kind if kind == PREDICATE:
            return _predicate(document, key)
        case kind if kind == VARIABLE:
            return _variable(document, key)
        case kind if kind == FIXTURE:
            return _code(_fixture(document, key.name))
    return ""


def _code(lines: Iterable[str]) -> str:
    """Write the text as a block of code, whose fence is longer than any in it."""
    text = "\n".join(lines)
    fence = "`" * max([3, *(len(found) + 1 for found in re.findall("`{3,}", text))])
    return f"{fence}polar\n{text}\n{fence}\n" if text else ""


# ---- types --------------------------------------------------------------------------------------------------------


def _type(document: Document, name: str) -> str:
    if name in PRIMITIVES:
        return f"{_code([name])}\na type that every policy has"
    block = document.outline.types.get(name)
    if block is None:
        return f"{_code([name])}\na type without a block"
    extends = f" extends {', '.join(block.extends)}" if block.extends else ""
    return _code([f"{block.kind} {name}{extends} {{", *_lists(document.outline.of(name)), "}"])


def _lists(block: OutlineBlock) -> Iterator[str]:
    """Yield what the block declares and inherits."""
    for each in LISTS:
        if names := dict.fromkeys(getattr(block, each)):
            yield f"  {each} = [{', '.join(map(quoted, names))}];"
    if block.relations:
        inside = ", ".join(f"{name}: {type_name}" for name, type_name in block.relations.items())
        yield f"  relations = {{ {inside} }};"


# ---- roles, permissions and relations -----------------------------------------------------------------------------


def _name(document: Document, name: str) -> str:
    declared = [f"* {told}" for block in _blocks(document) for told in _declared(block, name)]
    granted = _statements(document, document.names.grants.get(name, ()))
    if not declared and not granted:
        return ""
    because = f"\ngiven by\n\n{_code(granted)}" if granted else "\nno rule gives it\n"
    return "\n".join([_code([f'"{name}"']), *_shortened(declared), because])


def _blocks(document: Document) -> Iterable[OutlineBlock]:
    return (*document.outline.types.values(), document.outline.everything)


def _declared(block: OutlineBlock, name: str) -> Iterator[str]:
    owner = f"`{block.name}`" if block.name else "everything"
    if name in block.roles:
        yield f"role of {owner}"
    if name in block.permissions:
        yield f"permission of {owner}"
    if name in block.relations:
        yield f"relation of {owner} to `{block.relations[name]}`"


# ---- predicates, variables and fixtures ---------------------------------------------------------------------------


def _predicate(document: Document, key: NameKey) -> str:
    """Return which facts it accepts, by the compiler if the text is a policy, and the rules that make it true."""
    program = document.compiled.program if document.is_compiled else None
    accepted = []
    for (predicate, _), patterns in (program.accepted if program else {}).items():
        if predicate == key.name:
            accepted += [", ".join(_types(types) for types in pattern) for pattern in patterns]
    rules = _statements(document, _rules(document, key.name))
    facts = _code(_shortened([f"{key.name}({pattern})" for pattern in accepted]))
    if not program:
        arguments = document.outline.predicates.get(key.name, ())
        return _code([f"{key.name}({', '.join(arguments)})"]) + (f"\nrules\n\n{_code(rules)}" if rules else "")
    told = f"facts that are accepted\n\n{facts}" if facts else f"`{key.name}`: no facts are accepted\n"
    return told + (f"\nrules\n\n{_code(rules)}" if rules else "")


def _types(types: frozenset[str]) -> str:
    named = sorted(types)
    return " or ".join(named if len(named) <= 4 else [*named[:3], "…"])


def _rules(document: Document, name: str) -> list[Span]:
    return [symbol.span for symbol in document.names.symbols if symbol.kind == "rule" and symbol.name == name]


def _variable(document: Document, key: NameKey) -> str:
    for each in document.names.of(key):
        if found := _TYPED.match(document.text, each.span.end):
            return _code([f"{key.name}: {found[1]}"])
    return _code([key.name])


def _fixture(document: Document, name: str) -> list[str]:
    spans = [each.span for each in document.names.symbols if each.kind == "fixture" and each.name == name]
    return _shortened([line for span in spans for line in document.text[span.start : span.end].splitlines()])


# ---- what is shown of many ----------------------------------------------------------------------------------------


def _statements(document: Document, spans: Iterable[Span]) -> list[str]:
    """Write statements of the text on a line each, with their lines."""
    lines = []
    for span in spans:
        line, _ = document.source.position(span.start)
        lines.append(f"{' '.join(document.text[span.start : span.end].split())}  # line {line}")
    return _shortened(lines)


def _shortened(lines: list[str]) -> list[str]:
    return lines if len(lines) <= MOST else [*lines[: MOST - 1], f"# and {len(lines) - MOST + 1} more"]
