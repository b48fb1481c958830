"""Completions at a position in the text of a policy, for an editor or a language server.

The text need not parse, and seldom does while somebody types. The context is read from the words around the position
(`cursor_context`), and the names to choose from are read from the whole text (`outline`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from policy.language.cursor_context import CursorContext, context_of
from policy.language.outline import (
    ABSTRACT,
    LISTS,
    PRIMITIVES,
    Outline,
    OutlineBlock,
    Word,
    outline_of,
    words_of,
)

MOST = 500  # options; nobody looks through more
_AHEAD = 2_000  # characters that are read after the position
_KNOWN = {
    "allow": ("actor", "action", "resource"),
    "has_permission": ("actor", "permission", "resource"),
    "has_role": ("actor", "role", "resource"),
    "has_relation": ("subject", "relation", "object"),
}  # built-in predicate -> what its arguments are
# Predicate -> the list that declares the names in its second argument, and the index of the argument whose type has it.
_NAMINGS = {"allow": ("permissions", 2), "has_permission": ("permissions", 2), "has_role": ("roles", 2),
            "has_relation": ("relations", 0)}  # fmt: skip
_SINGULAR = {"roles": "role", "permissions": "permission", "relations": "relation"}
_JOINING = ("IF", "AND", "OR", "NOT", "LPAREN")
_TOP = ("actor", "resource", "global", "declare", "test")


@dataclass(frozen=True, slots=True)
class Completion:
    """A text to insert; `kind` is one of type, role, permission, relation, predicate, variable, keyword."""

    text: str
    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Completions:
    """Options to replace the text from `start` to `end`, likeliest first, not filtered by what is typed there yet."""

    start: int
    end: int
    options: tuple[Completion, ...] = ()


def completions(text: str, place: int, known: Outline | None = None) -> Completions:
    """Return the options at `place`, an offset in the text, but at most MOST.

    `known` replaces the outline of `text`, for example if `text` is only a part of a policy.
    """
    words = words_of(text)
    before = [word for word in words if word.start < place]
    if _is_in_comment(text, before, place):
        return Completions(place, place)
    typed = before.pop() if before and _is_typed(before[-1], place) else None
    start, end = _replaced(text, typed, place)
    ahead = words_of(text[end : end + _AHEAD].removeprefix('"'))
    outline = known or outline_of([word for word in words if word is not typed])
    context = context_of(before, ahead, outline, typed is not None and typed.kind == "STRING")
    return Completions(start, end, tuple(dict.fromkeys(_options(context)))[:MOST])


def _is_in_comment(text: str, before: Sequence[Word], place: int) -> bool:
    if before and before[-1].end >= place:
        return False
    return "#" in text[before[-1].end if before else 0 : place].rpartition("\n")[2]


def _is_typed(word: Word, place: int) -> bool:
    """Say whether the word is still being typed: the position is in it, or at the end of a name or an open string."""
    if word.kind == "STRING":
        return word.start < place < word.end or (word.is_open_string and place <= word.end)
    return place <= word.end and word.text[0].isidentifier()


def _replaced(text: str, typed: Word | None, place: int) -> tuple[int, int]:
    if typed is None:
        return place, place
    if typed.kind != "STRING":
        return typed.start, typed.end
    if not typed.is_open_string:
        return typed.start + 1, typed.end - 1
    end = place
    while end < typed.end and (text[end].isalnum() or text[end] in "_-.:"):
        end += 1
    return typed.start + 1, end


# ---- options by context ------------------------------------------------------------------------------------------


def _options(context: CursorContext) -> Iterable[Completion]:
    if context.in_string:
        return _names(context)
    match context.last:
        case "MATCHES" | "MATCHES_EXACTLY":
            return _types(context, ABSTRACT, PRIMITIVES)
        case "COLON":
            return _types(context, ABSTRACT, () if context.kind in ("actor", "resource") else PRIMITIVES)
        case "EXTENDS":
            return _types(context, ABSTRACT)
        case "ACTOR" | "RESOURCE" | "DECLARE" if len(context.statement) == 1 and not context.kind:
            return ()  # the name is new, so there is nothing to choose from
    if context.call:
        return _in_call(context)
    match context.kind:
        case "actor" | "resource" | "global":
            return _in_block(context)
        case "test" | "fixture":
            return _in_test(context)
    return _at_top(context)


def _names(context: CursorContext) -> Iterable[Completion]:
    """Return the names that can stand in the string at the position."""
    call = context.call
    if call:
        return _named_in_call(context, *call)
    if context.kind not in ("actor", "resource", "global"):
        return _every(context, "permissions") if context.last in ("LBRACKET", "COMMA") else ()
    if context.list_of:
        return _names_elsewhere(context, context.list_of)
    if context.last == "ON":
        return _of_block(context.block, ("relations",))
    if context.last == "GLOBAL":
        return _of_block(context.outline.everything, LISTS)
    if not context.statement:
        return _of_block(context.block, LISTS)
    following = context.rest[:2]
    if [word.kind for word in following] == ["ON", "STRING"]:
        return _through(context, context.block, following[1].name)
    return chain(_of_block(context.block, (*LISTS, "relations")), _through_any(context))


def _named_in_call(context: CursorContext, predicate: str, here: int, whole: list[list[Word]]) -> Iterable[Completion]:
    kind, owner = _NAMINGS.get(predicate, ("", 0))
    if not kind or here != 1:
        return () if kind else chain.from_iterable(_every(context, each) for each in LISTS)
    if len(whole) == 2 and not context.ahead[:1] and kind != "relations":
        return chain(_every(context, kind), _of_block(context.outline.everything, (kind,)))
    type_name = _type_of(context, whole[owner]) if owner < len(whole) else ""
    found = list(_of_block(context.outline.of(type_name), (kind,))) if type_name else []
    return found or chain(
        _every(context, kind), _of_block(context.outline.everything, (kind,) if kind in LISTS else ())
    )


def _type_of(context: CursorContext, argument: Sequence[Word]) -> str:
    """Return the type of an argument: `User{"ann"}`, `user: User`, or a variable that gets a type in the statement.

    Return an empty string if the type is not known.
    """
    match [word.kind for word in argument]:
        case ["NAME", "LBRACE", *_]:
            return argument[0].name
        case [_, "COLON", "NAME", *_]:
            return argument[2].name
        case [_]:
            words = [*context.statement, *context.rest]
            for name, sign, type_word in zip(words, words[1:], words[2:]):
                if name.text == argument[0].text and sign.kind in ("COLON", "MATCHES", "MATCHES_EXACTLY"):
                    return type_word.name
    return ""


def _in_block(context: CursorContext) -> Iterable[Completion]:
    if context.list_of:
        names = () if context.list_of == "relations" else _names_elsewhere(context, context.list_of)
        return _quoted(names) if context.last in ("LBRACKET", "COMMA") else ()
    if not context.statement:
        declared = (*LISTS, "relations") if context.kind != "global" else LISTS
        return chain(_quoted(_of_block(context.block, LISTS)), _keywords(*declared))
    match context.last:
        case "ON":
            return _quoted(_of_block(context.block, ("relations",)))
        case "GLOBAL":
            return _quoted(_of_block(context.outline.everything, LISTS))
        case "STRING" if not context.has_if:
            return _keywords("if")
        case "STRING":
            return _keywords("on", "and", "or")
        case kind if kind in _JOINING:
            names = chain(_of_block(context.block, (*LISTS, "relations")), _through_any(context))
            return chain(_quoted(names), _predicates(context), _keywords("not", "global"))
    return _after(context)


def _in_test(context: CursorContext) -> Iterable[Completion]:
    in_facts = context.is_setup or context.kind == "fixture"
    match context.last:
        case "" if in_facts:
            return chain(_predicates(context), _keywords("fixture"))
        case "":
            return _keywords("assert", "assert_not", "setup")
        case "FIXTURE":
            return [Completion(name, "variable", "fixture") for name in context.outline.fixtures]
        case "ASSERT" | "ASSERT_NOT":
            return _predicates(context)
        case "RPAREN" if not in_facts:
            return _keywords("iff")
        case "IFF" | "AND" | "OR":
            return _variables(context)
        case "IN" | "LBRACKET":
            return _types(context)
    return _keywords("in") if context.last == "NAME" and context.statement[0].kind in ("ASSERT", "ASSERT_NOT") else ()


def _at_top(context: CursorContext) -> Iterable[Completion]:
    if not context.statement:
        return chain(_keywords(*_TOP), _predicates(context))
    match context.last:
        case "TEST":
            return _keywords("fixture")
        case "NAME" if context.statement[0].kind in ("ACTOR", "RESOURCE") and len(context.statement) == 2:
            return _keywords("extends")
        case "COMMA" if context.statement[0].kind in ("ACTOR", "RESOURCE"):
            return _types(context, ABSTRACT)
        case kind if kind in _JOINING:
            return chain(_variables(context), _predicates(context), _keywords("not"))
        case "EQ" | "COMPARE":
            return chain(_variables(context), _types(context), _keywords("@current_unix_time", "true", "false"))
    return _after(context)


def _in_call(context: CursorContext) -> Iterable[Completion]:
    """Return the options for an argument: names in quotes, variables, and types of values."""
    if context.last not in ("LPAREN", "COMMA"):
        return ()
    if context.statement[0].kind == "DECLARE":
        return _types(context, ABSTRACT, PRIMITIVES)
    call = context.call
    is_name = call is not None and call[1] == 1 and call[0] in _NAMINGS
    names = _quoted(_names(context)) if is_name else ()
    variables = () if context.kind in ("test", "fixture") else _variables(context)
    return chain(names, variables, _types(context), () if variables else _keywords("actor", "resource"))


def _after(context: CursorContext) -> Iterable[Completion]:
    """Return the keywords that can follow a condition or the head of a rule."""
    if context.last == "RPAREN":
        return _keywords("and", "or") if context.has_if else _keywords("if")
    if context.last in ("STRING", "INTEGER", "RBRACE", "RBRACKET", "NOW", "TRUE", "FALSE") and context.has_if:
        return _keywords("and", "or")
    if context.last in ("NAME", "ACTOR", "RESOURCE") and context.has_if:
        return _keywords("matches", "in", "and", "or", "not")
    return ()


# ---- names -------------------------------------------------------------------------------------------------------


def _of_block(block: OutlineBlock, lists: Iterable[str], suffix: str = "") -> Iterator[Completion]:
    owner = block.name or "everything"
    for each in lists:
        for name in getattr(block, each):
            type_name = f" → {block.relations[name]}" if each == "relations" else ""
            yield Completion(name, _SINGULAR[each], f"{_SINGULAR[each]} of {owner}{type_name}{suffix}")


def _through(context: CursorContext, block: OutlineBlock, relation: str) -> Iterator[Completion]:
    """Return the names that can stand before `on "relation"`: those of the relation's type."""
    target = block.relations.get(relation, "")
    return _of_block(context.outline.of(target), (*LISTS, "relations"), f', through "{relation}"')


def _through_any(context: CursorContext) -> Iterator[Completion]:
    for relation in context.block.relations:
        yield from _through(context, context.block, relation)


def _every(context: CursorContext, kind: str) -> Iterator[Completion]:
    for name in context.outline.types:
        yield from _of_block(context.outline.of(name), (kind,))


def _names_elsewhere(context: CursorContext, kind: str) -> Iterator[Completion]:
    """Yield the names that other types have and this block lacks: the same thing is best called the same everywhere."""
    if kind not in LISTS:
        return
    own = getattr(context.block, kind)
    for each in _every(context, kind):
        if each.text not in own:
            yield Completion(each.text, each.kind, "as other types have it")


def _quoted(names: Iterable[Completion]) -> Iterator[Completion]:
    for each in names:
        yield Completion(f'"{each.text}"', each.kind, each.detail)


def _types(context: CursorContext, *others: Iterable[str]) -> Iterator[Completion]:
    for name, block in context.outline.types.items():
        yield Completion(name, "type", block.kind)
    for name in chain.from_iterable(others):
        yield Completion(name, "type", "any " + name.lower() if name in ABSTRACT else "values")


def _predicates(context: CursorContext) -> Iterator[Completion]:
    for name, arguments in {
        **_KNOWN,
        **{k: v for k, v in context.outline.predicates.items() if k not in _KNOWN},
    }.items():
        yield Completion(name, "predicate", f"({', '.join(arguments)})")


def _variables(context: CursorContext) -> Iterator[Completion]:
    words = [*context.statement, *context.rest, Word("SEMI", ";", 0, 0)]
    for word, following in pairwise(words):
        is_value = following.kind in ("LPAREN", "LBRACE") or word.text in context.outline.types
        if word.kind == "NAME" and not is_value and word.text not in (*PRIMITIVES, *ABSTRACT) and word.text != "_":
            yield Completion(word.text, "variable", "of this rule")


def _keywords(*names: str) -> Iterator[Completion]:
    return (Completion(name, "keyword") for name in names)
