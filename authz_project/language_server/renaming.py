"""Another name for something, everywhere in the text at once; or why that cannot be."""

import re

from authz_project.language_server.document import Document
from policy.language import parse
from policy.language.lexer import LEGACY, RESERVED
from policy.language.lexer import NAME as WORD
from policy.language.names import NAME, PREDICATE, TEST, TYPE, VARIABLE, NameKey, Occurrence
from policy.language.outline import ABSTRACT, PRIMITIVES
from policy.language.rejection import PolicyRejected
from policy.language.source import Source, Span

BUILT_IN = {
    TYPE: {*PRIMITIVES, *ABSTRACT},
    PREDICATE: {"allow", "has_permission", "has_role", "has_relation"},
}
_IN_QUOTES = (NAME, TEST)
_UNFIT = re.compile(r'["\\\n\r\0]')


class CannotRename(Exception):
    """Why not, in a sentence."""


def renamable(document: Document, place: int) -> Occurrence:
    occurrence = document.names.at(place)
    if occurrence is None:
        raise CannotRename("there is no name here")
    key = occurrence.key
    if key.name in BUILT_IN.get(key.kind, ()):
        raise CannotRename(f"`{key.name}` is part of the language")
    if key.kind == NAME and not document.names.definitions(key):
        raise CannotRename(f'"{key.name}" is a value: no block declares a role, permission or relation of that name')
    return occurrence


def renamed(document: Document, place: int, new: str) -> list[Span]:
    """Return where the new name goes."""
    key = renamable(document, place).key
    spans = [each.span for each in document.names.of(key)]
    if new == key.name:
        return []
    _refuse_unfit(document, key, spans, new)
    if document.names.is_known(NameKey(key.kind, new, key.statement)):
        raise CannotRename(f"there is a {_called(key)} `{new}` already")
    if not _is_sound(document, spans, new):
        raise CannotRename(f"with the name `{new}`, the text would not be understood")
    return spans


def _refuse_unfit(document: Document, key: NameKey, spans: list[Span], new: str) -> None:
    quoted = key.kind in _IN_QUOTES and all(document.text[span.start - 1] == '"' for span in spans)
    if quoted and new and new != "*" and not _UNFIT.search(new):
        return
    if re.fullmatch(WORD, new) and new not in RESERVED and new not in LEGACY and new != "_":
        return
    raise CannotRename(f"`{new}` is not a name")


def _is_sound(document: Document, spans: list[Span], new: str) -> bool:
    """Say whether the text is understood with the new name, if it was before."""
    return _problems(with_name(document.text, spans, new)) == 0 or _problems(document.text) > 0


def _problems(text: str) -> int:
    try:
        parse(Source(text))
    except PolicyRejected as reason:
        return len(reason.problems)
    return 0


def with_name(text: str, spans: list[Span], new: str) -> str:
    parts, end = [], 0
    for span in spans:
        parts += [text[end : span.start], new]
        end = span.end
    return "".join([*parts, text[end:]])


def _called(key: NameKey) -> str:
    return "variable" if key.kind == VARIABLE else key.kind
