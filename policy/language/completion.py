"""Complete names at a position in the text of a policy, for editors."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, takewhile
from typing import NamedTuple

from policy.language.parser import CLOSING, NAMES, OPENING, Word, words_in
from policy.values import ABSTRACT, PRIMITIVES

# ---- What a text declares, for editor tools such as completion. The text need not parse ---------------------------
# The outline is read from tokens alone, so an error in one place hides nothing in another. The head of a block or test
# (`resource Repo {`, `test "owners read" {`) cannot occur inside another one, so it always begins a new block or test,
# even if an earlier brace is still open.

LISTS = ("roles", "permissions")
HEADS = ("ACTOR", "RESOURCE", "GLOBAL", "TEST")
_KEYS = frozenset({"STRING", "INTEGER", "TRUE", "FALSE"})  # kinds of words that can be the id of an entity


@dataclass(slots=True)
class OutlineBlock:
    """An `actor`, `resource` or `global` block, possibly incomplete."""

    kind: str
    name: str  # empty for `global`
    extends: list[str] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    permissions: list[str] = field(default_factory=list)
    relations: dict[str, str] = field(default_factory=dict)  # name -> type


@dataclass(frozen=True, slots=True)
class TextOutline:
    types: Mapping[str, OutlineBlock]
    everything: OutlineBlock  # union of all `global` blocks
    predicates: Mapping[str, tuple[str, ...]]  # name -> arguments, as first written
    fixtures: tuple[str, ...]

    def of(self, type_name: str) -> OutlineBlock:
        """Return the block of a type, including what it inherits; an empty block for a type without one."""
        found = OutlineBlock("", type_name)
        waiting, seen = [type_name], set()
        while waiting:
            name = waiting.pop(0)
            block = self.types.get(name)
            if block is None or name in seen:
                continue
            seen.add(name)
            found.roles += block.roles
            found.permissions += block.permissions
            found.relations = block.relations | found.relations
            waiting += block.extends
        return found


def words_of(text: str) -> list[Word]:
    """Return all words and symbols, without comments; other characters are skipped."""
    return [word for word in words_in(text) if word.kind != "COMMENT"]


# ---- starts of blocks and tests ----------------------------------------------------------------------------------


def head_length(words: Sequence[Word], at: int) -> int:
    """Return the length in words of the head of a block or test that begins at `at`, or 0 if none begins there.

    The opening brace counts: the head `resource Repo {` has 3 words.
    """
    if words[at].kind not in HEADS:
        return 0
    kinds = [word.kind for word in words[at : at + 4]]
    if kinds[:2] == ["GLOBAL", "LBRACE"]:
        is_entity = _KEYS.issuperset(kinds[2:3]) and kinds[3:] == ["RBRACE"]  # `global{"a"}`, of a type `global`
        return 0 if is_entity else 2
    if kinds[0] == "TEST":
        if kinds[1:3] == ["STRING", "LBRACE"]:
            return 3
        return 4 if kinds[1:2] == ["FIXTURE"] and NAMES.issuperset(kinds[2:3]) and kinds[3:] == ["LBRACE"] else 0
    if kinds[0] == "GLOBAL" or not NAMES.issuperset(kinds[1:2]):
        return 0
    if kinds[2:3] == ["LBRACE"]:
        return 3
    return _length_with_extends(words, at) if kinds[2:3] == ["EXTENDS"] else 0


def _length_with_extends(words: Sequence[Word], at: int) -> int:
    for place in range(at + 3, len(words)):
        if words[place].kind == "LBRACE":
            return place + 1 - at
        is_first = words[place - 1].kind in ("EXTENDS", "COMMA")
        if words[place].kind not in (NAMES if is_first else ("COMMA",)):
            break
    return 0


class TextSegment(NamedTuple):
    """The head of a block or test, `setup {`, a statement, which may be incomplete, or the `}` of one of the former."""

    kind: str  # head, setup, statement or end
    words: Sequence[Word]


def segments_in(words: Sequence[Word]) -> Iterator[TextSegment]:
    at = 0
    while at < len(words):
        start = at
        if length := _opening_length(words, at):
            at += length
            yield TextSegment("setup" if words[start].kind == "SETUP" else "head", words[start:at])
        elif words[at].kind in ("SEMI", "LBRACE"):
            at += 1
        elif words[at].kind == "RBRACE":
            at += 1
            yield TextSegment("end", words[start:at])
        else:
            at = _end_of_statement(words, at)
            yield TextSegment("statement", words[start:at])


def _opening_length(words: Sequence[Word], at: int) -> int:
    """Return the same as `head_length`, also for `setup {`."""
    if words[at].kind == "SETUP":
        return 2 if [word.kind for word in words[at + 1 : at + 2]] == ["LBRACE"] else 0
    return head_length(words, at)


def _end_of_statement(words: Sequence[Word], at: int) -> int:
    """Return the index after the statement: after its semicolon, or before a word that cannot belong to it."""
    depth = 0
    for place in range(at, len(words)):
        kind = words[place].kind
        if kind == "SEMI":
            return place + 1
        if kind == "LBRACE":
            depth += 1
        elif kind == "RBRACE":
            depth -= 1
            if depth < 0:
                return place
        elif kind in NAMES and place > at and (is_declaration(words, place) or _opening_length(words, place)):
            return place
    return len(words)


def is_declaration(words: Sequence[Word], at: int = 0) -> bool:
    """Return whether `roles = [`, `relations = {` or the like begins at the index."""
    return at + 2 < len(words) and words[at + 1].kind == "EQ" and words[at + 2].kind in ("LBRACKET", "LBRACE")


def outline_of(words: Sequence[Word]) -> TextOutline:
    types: dict[str, OutlineBlock] = {}
    everything = OutlineBlock("global", "")
    block: OutlineBlock | None = None
    fixtures: list[str] = []
    for kind, some in segments_in(words):
        match kind:
            case "head":
                block = _block_of(some, types, everything)
                if some[1].kind == "FIXTURE":
                    fixtures.append(some[2].name)
            case "statement" if block is not None and is_declaration(some):
                _read_declaration(some, block)
            case "end":
                block = None
    return TextOutline(types, everything, dict(_declared_predicates(words)), tuple(dict.fromkeys(fixtures)))


def _block_of(head: Sequence[Word], types: dict[str, OutlineBlock], everything: OutlineBlock) -> OutlineBlock | None:
    match head[0].kind:
        case "GLOBAL":
            return everything
        case "TEST":
            return None
    name = head[1].name
    block = types.setdefault(name, OutlineBlock(head[0].text, name))
    block.extends += [word.name for word in head[3:] if word.kind == "NAME"]
    return block


def _read_declaration(words: Sequence[Word], block: OutlineBlock) -> None:
    """Read `roles = [...]`, `permissions = [...]` or `relations = {...}` into the block; it may be incomplete."""
    inside = list(takewhile(lambda word: word.kind not in ("RBRACKET", "RBRACE"), words[3:]))
    if words[0].text in LISTS:
        names: list[str] = getattr(block, words[0].text)
        names += [word.name for word in inside if word.kind == "STRING" and word.name]
    elif words[0].text == "relations":
        for name, colon, type_word in zip(inside, inside[1:], inside[2:]):
            if colon.kind == "COLON" and type_word.kind == "NAME":
                block.relations[name.name] = type_word.name


# ---- predicates --------------------------------------------------------------------------------------------------


def _declared_predicates(words: Sequence[Word]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every called name and its arguments, from the last call to the first.

    `dict` keeps the last of several pairs with the same name, and so the first call of each name.
    """
    called = [at for at, word in enumerate(words[:-1]) if is_called(word, words[at + 1])]
    for at in reversed(called):
        yield words[at].text, tuple(_arguments(words, at + 2))


def is_called(word: Word, following: Word) -> bool:
    """Return whether the two words are `name (`. In `not (` and `actor (`, the first word is a keyword."""
    return following.kind == "LPAREN" and word.kind == "NAME"


def _arguments(words: Sequence[Word], at: int) -> Iterator[str]:
    """Yield the first word of each argument: `user` for `user: User`, and `User` for `User{"ann"}`."""
    for argument in split_arguments(words, at):
        if argument:
            yield argument[0].text


def split_arguments(words: Sequence[Word], at: int = 0) -> list[list[Word]]:
    """Return the words of each argument, from `at`, the index after the opening parenthesis, up to the closing one."""
    found: list[list[Word]] = [[]]
    depth = 0
    for place in range(at, len(words)):
        word = words[place]
        if word.kind == "SEMI" or (word.kind in CLOSING and depth == 0):
            break
        if word.kind == "COMMA" and depth == 0:
            found.append([])
            continue
        depth += (word.kind in OPENING) - (word.kind in CLOSING)
        found[-1].append(word)
    return found


# ---- cursor context -----------------------------------------------------------------------------------------------
# The context of a position in a text: the block or test around it, the statement and the call.
#
# The words before the position determine the context. The words after it complete the statement.


@dataclass(frozen=True, slots=True)
class CursorContext:
    """The context of a position: the block or test around it, the statement there, and what can be named."""

    head: Sequence[Word]  # of the block or test, up to its `{`; empty if none is open
    is_setup: bool
    statement: Sequence[Word]  # the words of the statement before the position
    ahead: Sequence[Word]  # the words after the position; may extend beyond the statement
    outline: TextOutline
    in_string: bool
    opened: tuple[int, ...]  # indexes in `statement` of unclosed brackets

    @property
    def kind(self) -> str:
        """Return actor, resource, global, test or fixture; an empty string if no block or test is open."""
        if not self.head:
            return ""
        return "fixture" if self.head[1].kind == "FIXTURE" else self.head[0].text

    @property
    def block(self) -> OutlineBlock:
        """Return what the block around the position declares or inherits."""
        return self.outline.everything if self.kind == "global" else self.outline.of(self.head[1].name)

    @property
    def last(self) -> str:
        return self.statement[-1].kind if self.statement else ""

    @property
    def has_if(self) -> bool:
        return any(word.kind == "IF" for word in self.statement)

    @property
    def rest(self) -> list[Word]:
        """Return the words after the position, up to the `;` of the statement."""
        found: list[Word] = []
        for word in self.ahead:
            if word.kind == "SEMI":
                break
            found.append(word)
        return found

    @property
    def call(self) -> tuple[str, int, list[list[Word]]] | None:
        """Return the innermost call around the position; None if there is none.

        The result is the predicate, the index of the argument being typed, and the words of all arguments, with `_` at
        the position. With `|` for the position: has_role(user, |, repo) -> "has_role", 1, [[user], [_], [repo]].
        """
        for at in reversed(self.opened):
            if self.statement[at].kind == "LPAREN" and at and is_called(self.statement[at - 1], self.statement[at]):
                inside = self.statement[at + 1 :]
                here = len(split_arguments(inside)) - 1
                whole = split_arguments([*inside, Word("NAME", "_", 0, 0), *self.rest])
                return self.statement[at - 1].text, here, whole
        return None

    @property
    def list_of(self) -> str:
        """Return the keyword of the list declaration around the position; an empty string outside of such lists.

        The keyword is roles, permissions or relations, unless the text has another word there.
        """
        is_list = len(self.statement) > 2 and self.statement[1].kind == "EQ" and bool(self.opened)
        return self.statement[0].text if is_list else ""


def context_of(before: Sequence[Word], ahead: Sequence[Word], outline: TextOutline, in_string: bool) -> CursorContext:
    """Return the context of the position between the words `before` and the words `ahead`."""
    head: Sequence[Word] = ()
    statement: Sequence[Word] = ()
    is_setup = False
    for kind, words in segments_in(before):
        statement = ()
        match kind:
            case "head":
                head, is_setup = words, False
            case "statement" if words[-1].kind != "SEMI":
                statement = words
            case "setup":
                is_setup = True
            case "end":
                head, is_setup = head if is_setup else (), False
    return CursorContext(head, is_setup, statement, ahead, outline, in_string, tuple(_opened(statement)))


def _opened(statement: Sequence[Word]) -> list[int]:
    found: list[int] = []
    for at, word in enumerate(statement):
        if word.kind in OPENING:
            found.append(at)
        elif word.kind in CLOSING and found:
            found.pop()
    return found


# ---- Completions at a position in the text of a policy, for an editor or a language server ------------------------
# The text need not parse, and rarely does while it is being edited. The context is read from the words around the
# position (`context_of`), and the candidate names from the whole text (`outline_of`).

MOST = 500  # options; no one looks through more
_AHEAD = 2_000  # characters read after the position
_KNOWN = {
    "allow": ("actor", "action", "resource"),
    "has_permission": ("actor", "permission", "resource"),
    "has_role": ("actor", "role", "resource"),
    "has_relation": ("subject", "relation", "object"),
}  # built-in predicate -> its arguments
# Predicate -> the list that declares the names in its second argument, and the index of the argument of that type.
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
    """Options to replace the text from `start` to `end`, most likely first, not filtered by the text already typed."""

    start: int
    end: int
    options: tuple[Completion, ...] = ()


def completions(text: str, place: int, known: TextOutline | None = None) -> Completions:
    """Return the options at `place`, an offset in the text: at most MOST.

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
    """Return whether the word is still being typed: the position is in it, or at the end of a name or open string."""
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
            return ()  # a new name: nothing to choose from
    if context.call:
        return _in_call(context)
    match context.kind:
        case "actor" | "resource" | "global":
            return _in_block(context)
        case "test" | "fixture":
            return _in_test(context)
    return _at_top(context)


def _names(context: CursorContext) -> Iterable[Completion]:
    """Return the candidates for the string at the position."""
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
    through = (_through(context, context.block, relation) for relation in context.block.relations)
    return chain(_of_block(context.block, (*LISTS, "relations")), *through)


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

    Return an empty string if the type is unknown.
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
    names = _quoted(_names(context))
    if context.list_of:
        return names if context.last in ("LBRACKET", "COMMA") else ()
    if not context.statement:
        declared = (*LISTS, "relations") if context.kind != "global" else LISTS
        return chain(names, _keywords(*declared))
    match context.last:
        case "ON" | "GLOBAL":
            return names
        case "STRING" if not context.has_if:
            return _keywords("if")
        case "STRING":
            return _keywords("on", "and", "or")
        case kind if kind in _JOINING:
            return chain(names, _predicates(context), _keywords("not", "global"))
    return _after(context)


def _in_test(context: CursorContext) -> Iterable[Completion]:
    in_facts = context.is_setup or context.kind == "fixture"
    match context.last:
        case "" if in_facts:
            return chain(_predicates(context), _keywords("fixture"))
        case "":
            return _keywords("assert", "assert_not", "assert_never", "setup")
        case "FIXTURE":
            return [Completion(name, "variable", "fixture") for name in context.outline.fixtures]
        case "ASSERT" | "ASSERT_NOT" | "ASSERT_NEVER":
            return _predicates(context)
        case "RPAREN" if not in_facts:
            return _keywords("if" if context.statement[0].kind == "ASSERT_NEVER" else "iff")
        case "IF" | "IFF" | "AND" | "OR":
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
    """Return the names that can precede `on "relation"`: those of the relation's type."""
    target = block.relations.get(relation, "")
    return _of_block(context.outline.of(target), (*LISTS, "relations"), f', through "{relation}"')


def _every(context: CursorContext, kind: str) -> Iterator[Completion]:
    for name in context.outline.types:
        yield from _of_block(context.outline.of(name), (kind,))


def _names_elsewhere(context: CursorContext, kind: str) -> Iterator[Completion]:
    """Yield the names that other types have and this block lacks, since names are best used consistently."""
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
