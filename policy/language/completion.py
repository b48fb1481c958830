"""Completions at a position in the text of a policy, for an editor or a language server.

The text need not parse, and seldom does while somebody types. The context is read from the words around the position
(`spot`), and the names to choose from are read from the whole text (`outline`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from policy.language.outline import (
    ABSTRACT,
    LISTS,
    PRIMITIVES,
    Block,
    Outline,
    Word,
    outline_of,
    words_of,
)
from policy.language.spot import Spot, spot_of

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
    spot = spot_of(before, ahead, outline, typed is not None and typed.kind == "STRING")
    return Completions(start, end, tuple(dict.fromkeys(_options(spot)))[:MOST])


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


def _options(spot: Spot) -> Iterable[Completion]:
    if spot.in_string:
        return _names(spot)
    match spot.last:
        case "MATCHES" | "MATCHES_EXACTLY":
            return _types(spot, ABSTRACT, PRIMITIVES)
        case "COLON":
            return _types(spot, ABSTRACT, () if spot.kind in ("actor", "resource") else PRIMITIVES)
        case "EXTENDS":
            return _types(spot, ABSTRACT)
        case "ACTOR" | "RESOURCE" | "DECLARE" if len(spot.statement) == 1 and not spot.kind:
            return ()  # the name is new, so there is nothing to choose from
    if spot.call:
        return _in_call(spot)
    match spot.kind:
        case "actor" | "resource" | "global":
            return _in_block(spot)
        case "test" | "fixture":
            return _in_test(spot)
    return _at_top(spot)


def _names(spot: Spot) -> Iterable[Completion]:
    """Return the names that can stand in the string at the position."""
    call = spot.call
    if call:
        return _named_in_call(spot, *call)
    if spot.kind not in ("actor", "resource", "global"):
        return _every(spot, "permissions") if spot.last in ("LBRACKET", "COMMA") else ()
    if spot.list_of:
        return _names_elsewhere(spot, spot.list_of)
    if spot.last == "ON":
        return _of_block(spot.block, ("relations",))
    if spot.last == "GLOBAL":
        return _of_block(spot.outline.everything, LISTS)
    if not spot.statement:
        return _of_block(spot.block, LISTS)
    following = spot.rest[:2]
    if [word.kind for word in following] == ["ON", "STRING"]:
        return _through(spot, spot.block, following[1].name)
    return chain(_of_block(spot.block, (*LISTS, "relations")), _through_any(spot))


def _named_in_call(spot: Spot, predicate: str, here: int, whole: list[list[Word]]) -> Iterable[Completion]:
    kind, owner = _NAMINGS.get(predicate, ("", 0))
    if not kind or here != 1:
        return () if kind else chain.from_iterable(_every(spot, each) for each in LISTS)
    if len(whole) == 2 and not spot.ahead[:1] and kind != "relations":
        return chain(_every(spot, kind), _of_block(spot.outline.everything, (kind,)))
    type_name = _type_of(spot, whole[owner]) if owner < len(whole) else ""
    found = list(_of_block(spot.outline.of(type_name), (kind,))) if type_name else []
    return found or chain(_every(spot, kind), _of_block(spot.outline.everything, (kind,) if kind in LISTS else ()))


def _type_of(spot: Spot, argument: Sequence[Word]) -> str:
    """Return the type of an argument: `User{"ann"}`, `user: User`, or a variable that gets a type in the statement.

    Return an empty string if the type is not known.
    """
    match [word.kind for word in argument]:
        case ["NAME", "LBRACE", *_]:
            return argument[0].name
        case [_, "COLON", "NAME", *_]:
            return argument[2].name
        case [_]:
            words = [*spot.statement, *spot.rest]
            for name, sign, type_word in zip(words, words[1:], words[2:]):
                if name.text == argument[0].text and sign.kind in ("COLON", "MATCHES", "MATCHES_EXACTLY"):
                    return type_word.name
    return ""


def _in_block(spot: Spot) -> Iterable[Completion]:
    if spot.list_of:
        names = () if spot.list_of == "relations" else _names_elsewhere(spot, spot.list_of)
        return _quoted(names) if spot.last in ("LBRACKET", "COMMA") else ()
    if not spot.statement:
        declared = (*LISTS, "relations") if spot.kind != "global" else LISTS
        return chain(_quoted(_of_block(spot.block, LISTS)), _keywords(*declared))
    match spot.last:
        case "ON":
            return _quoted(_of_block(spot.block, ("relations",)))
        case "GLOBAL":
            return _quoted(_of_block(spot.outline.everything, LISTS))
        case "STRING" if not spot.has_if:
            return _keywords("if")
        case "STRING":
            return _keywords("on", "and", "or")
        case kind if kind in _JOINING:
            names = chain(_of_block(spot.block, (*LISTS, "relations")), _through_any(spot))
            return chain(_quoted(names), _predicates(spot), _keywords("not", "global"))
    return _after(spot)


def _in_test(spot: Spot) -> Iterable[Completion]:
    in_facts = spot.is_setup or spot.kind == "fixture"
    match spot.last:
        case "" if in_facts:
            return chain(_predicates(spot), _keywords("fixture"))
        case "":
            return _keywords("assert", "assert_not", "setup")
        case "FIXTURE":
            return [Completion(name, "variable", "fixture") for name in spot.outline.fixtures]
        case "ASSERT" | "ASSERT_NOT":
            return _predicates(spot)
        case "RPAREN" if not in_facts:
            return _keywords("iff")
        case "IFF" | "AND" | "OR":
            return _variables(spot)
        case "IN" | "LBRACKET":
            return _types(spot)
    return _keywords("in") if spot.last == "NAME" and spot.statement[0].kind in ("ASSERT", "ASSERT_NOT") else ()


def _at_top(spot: Spot) -> Iterable[Completion]:
    if not spot.statement:
        return chain(_keywords(*_TOP), _predicates(spot))
    match spot.last:
        case "TEST":
            return _keywords("fixture")
        case "NAME" if spot.statement[0].kind in ("ACTOR", "RESOURCE") and len(spot.statement) == 2:
            return _keywords("extends")
        case "COMMA" if spot.statement[0].kind in ("ACTOR", "RESOURCE"):
            return _types(spot, ABSTRACT)
        case kind if kind in _JOINING:
            return chain(_variables(spot), _predicates(spot), _keywords("not"))
        case "EQ" | "COMPARE":
            return chain(_variables(spot), _types(spot), _keywords("@current_unix_time", "true", "false"))
    return _after(spot)


def _in_call(spot: Spot) -> Iterable[Completion]:
    """Return the options for an argument: names in quotes, variables, and types of values."""
    if spot.last not in ("LPAREN", "COMMA"):
        return ()
    if spot.statement[0].kind == "DECLARE":
        return _types(spot, ABSTRACT, PRIMITIVES)
    call = spot.call
    is_name = call is not None and call[1] == 1 and call[0] in _NAMINGS
    names = _quoted(_names(spot)) if is_name else ()
    variables = () if spot.kind in ("test", "fixture") else _variables(spot)
    return chain(names, variables, _types(spot), () if variables else _keywords("actor", "resource"))


def _after(spot: Spot) -> Iterable[Completion]:
    """Return the keywords that can follow a condition or the head of a rule."""
    if spot.last == "RPAREN":
        return _keywords("and", "or") if spot.has_if else _keywords("if")
    if spot.last in ("STRING", "INTEGER", "RBRACE", "RBRACKET", "NOW", "TRUE", "FALSE") and spot.has_if:
        return _keywords("and", "or")
    if spot.last in ("NAME", "ACTOR", "RESOURCE") and spot.has_if:
        return _keywords("matches", "in", "and", "or", "not")
    return ()


# ---- names -------------------------------------------------------------------------------------------------------


def _of_block(block: Block, lists: Iterable[str], suffix: str = "") -> Iterator[Completion]:
    owner = block.name or "everything"
    for each in lists:
        for name in getattr(block, each):
            type_name = f" → {block.relations[name]}" if each == "relations" else ""
            yield Completion(name, _SINGULAR[each], f"{_SINGULAR[each]} of {owner}{type_name}{suffix}")


def _through(spot: Spot, block: Block, relation: str) -> Iterator[Completion]:
    """Return the names that can stand before `on "relation"`: those of the relation's type."""
    target = block.relations.get(relation, "")
    return _of_block(spot.outline.of(target), (*LISTS, "relations"), f', through "{relation}"')


def _through_any(spot: Spot) -> Iterator[Completion]:
    for relation in spot.block.relations:
        yield from _through(spot, spot.block, relation)


def _every(spot: Spot, kind: str) -> Iterator[Completion]:
    for name in spot.outline.types:
        yield from _of_block(spot.outline.of(name), (kind,))


def _names_elsewhere(spot: Spot, kind: str) -> Iterator[Completion]:
    """Yield the names that other types have and this block lacks: the same thing is best called the same everywhere."""
    if kind not in LISTS:
        return
    own = getattr(spot.block, kind)
    for each in _every(spot, kind):
        if each.text not in own:
            yield Completion(each.text, each.kind, "as other types have it")


def _quoted(names: Iterable[Completion]) -> Iterator[Completion]:
    for each in names:
        yield Completion(f'"{each.text}"', each.kind, each.detail)


def _types(spot: Spot, *others: Iterable[str]) -> Iterator[Completion]:
    for name, block in spot.outline.types.items():
        yield Completion(name, "type", block.kind)
    for name in chain.from_iterable(others):
        yield Completion(name, "type", "any " + name.lower() if name in ABSTRACT else "values")


def _predicates(spot: Spot) -> Iterator[Completion]:
    for name, arguments in {**_KNOWN, **{k: v for k, v in spot.outline.predicates.items() if k not in _KNOWN}}.items():
        yield Completion(name, "predicate", f"({', '.join(arguments)})")


def _variables(spot: Spot) -> Iterator[Completion]:
    words = [*spot.statement, *spot.rest, Word("SEMI", ";", 0, 0)]
    for word, following in pairwise(words):
        is_value = following.kind in ("LPAREN", "LBRACE") or word.text in spot.outline.types
        if word.kind == "NAME" and not is_value and word.text not in (*PRIMITIVES, *ABSTRACT) and word.text != "_":
            yield Completion(word.text, "variable", "of this rule")


def _keywords(*names: str) -> Iterator[Completion]:
    return (Completion(name, "keyword") for name in names)
