"""What an editor asks about an open text, answered in the types of the protocol."""

from collections.abc import Iterable

from lsprotocol import types

from authz_project.language_server.document import Document
from authz_project.language_server.hover import hover_text
from authz_project.language_server.renaming import renamable, renamed
from policy.language.completion import completions
from policy.language.format import formatted_tokens
from policy.language.names import NAME, Occurrence, Symbol
from policy.language.rejection import PolicyRejected, Problem

RUN_TESTS = "authz.runTests"
_COMPLETED = {
    "type": types.CompletionItemKind.Class,
    "role": types.CompletionItemKind.EnumMember,
    "permission": types.CompletionItemKind.EnumMember,
    "relation": types.CompletionItemKind.Field,
    "predicate": types.CompletionItemKind.Function,
    "variable": types.CompletionItemKind.Variable,
    "keyword": types.CompletionItemKind.Keyword,
}
_SYMBOLS = {
    "actor": types.SymbolKind.Class,
    "resource": types.SymbolKind.Class,
    "global": types.SymbolKind.Namespace,
    "rule": types.SymbolKind.Function,
    "declare": types.SymbolKind.Interface,
    "fixture": types.SymbolKind.Object,
    "test": types.SymbolKind.Event,
}
_SEVERITIES = {"error": types.DiagnosticSeverity.Error, "warning": types.DiagnosticSeverity.Warning}


def diagnostics(document: Document, problems: Iterable[Problem]) -> list[types.Diagnostic]:
    return [
        types.Diagnostic(
            document.positions.range(problem.span),
            f"{problem.message} ({problem.hint})" if problem.hint else problem.message,
            severity=_SEVERITIES[problem.severity],
            source="authz",
        )
        for problem in problems
    ]


def completed(document: Document, position: types.Position) -> types.CompletionList:
    text, place = document.around(document.positions.offset(position))
    shift = document.positions.offset(position) - place
    found = completions(text, place, document.last_outline)
    start = document.positions.position(found.start + shift)
    end = document.positions.position(found.end + shift)
    items = [
        types.CompletionItem(
            label=option.text,
            kind=_COMPLETED.get(option.kind, types.CompletionItemKind.Text),
            detail=option.detail or option.kind,
            text_edit=types.TextEdit(types.Range(start, end), option.text),
            sort_text=f"{order:04}",
        )
        for order, option in enumerate(found.options)
    ]
    return types.CompletionList(is_incomplete=False, items=items)


def hovered(document: Document, position: types.Position) -> types.Hover | None:
    occurrence = _at(document, position)
    text = hover_text(document, occurrence) if occurrence else ""
    if not occurrence or not text:
        return None
    content = types.MarkupContent(types.MarkupKind.Markdown, text)
    return types.Hover(content, document.positions.range(occurrence.span))


def definitions(document: Document, position: types.Position) -> list[types.Location]:
    """Return where the name is made: of several, those in the block around, if it has one."""
    occurrence = _at(document, position)
    if occurrence is None:
        return []
    found = document.names.definitions(occurrence.key)
    if occurrence.key.kind == NAME:
        block = _block_around(document, occurrence)
        found = [each for each in found if each.block == block] or found
    return [document.positions.location(document.uri, each.span) for each in found]


def references(document: Document, position: types.Position, with_definition: bool) -> list[types.Location]:
    occurrence = _at(document, position)
    found = document.names.of(occurrence.key) if occurrence else ()
    return [
        document.positions.location(document.uri, each.span)
        for each in found
        if with_definition or not each.is_definition
    ]


def highlights(document: Document, position: types.Position) -> list[types.DocumentHighlight]:
    occurrence = _at(document, position)
    found = document.names.of(occurrence.key) if occurrence else ()
    return [types.DocumentHighlight(document.positions.range(each.span)) for each in found]


def prepared(document: Document, position: types.Position) -> types.PrepareRenamePlaceholder:
    occurrence = renamable(document, document.positions.offset(position))
    return types.PrepareRenamePlaceholder(document.positions.range(occurrence.span), occurrence.key.name)


def rename(document: Document, position: types.Position, new: str) -> types.WorkspaceEdit:
    spans = renamed(document, document.positions.offset(position), new)
    edits = [types.TextEdit(document.positions.range(span), new) for span in spans]
    return types.WorkspaceEdit(changes={document.uri: edits})


def symbols(document: Document) -> list[types.DocumentSymbol]:
    return [_symbol(document, symbol) for symbol in document.names.symbols]


def layout(document: Document) -> list[types.TextEdit]:
    """Return one edit of the whole; none for a text that is no policy, or is laid out already."""
    try:
        after = formatted_tokens(document.text, document.tokens)
    except PolicyRejected:
        return []
    return [types.TextEdit(document.positions.whole(), after)] if after != document.text else []


def lenses(document: Document) -> list[types.CodeLens]:
    """Run this test, above each; run them all, above the first."""
    tests = [symbol for symbol in document.names.symbols if symbol.kind == "test"]
    found = [_lens(document, symbol, "Run test", [document.uri, symbol.name]) for symbol in tests]
    if len(tests) > 1:
        found.insert(0, _lens(document, tests[0], f"Run all {len(tests)} tests", [document.uri, ""]))
    return found


def _lens(document: Document, symbol: Symbol, title: str, arguments: list[str]) -> types.CodeLens:
    command = types.Command(title, RUN_TESTS, arguments=arguments)
    return types.CodeLens(document.positions.range(symbol.name_span), command)


def _symbol(document: Document, symbol: Symbol) -> types.DocumentSymbol:
    return types.DocumentSymbol(
        name=symbol.name or symbol.kind,
        kind=_SYMBOLS.get(symbol.kind, types.SymbolKind.Property),
        range=document.positions.range(symbol.span),
        selection_range=document.positions.range(symbol.name_span),
        detail=symbol.kind,
        children=[_symbol(document, inner) for inner in symbol.inside],
    )


def _at(document: Document, position: types.Position) -> Occurrence | None:
    return document.names.at(document.positions.offset(position))


def _block_around(document: Document, occurrence: Occurrence) -> str:
    for symbol in document.names.symbols:
        if symbol.span.start <= occurrence.span.start < symbol.span.end:
            return symbol.name
    return ""
