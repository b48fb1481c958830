"""Report words of a question that the policy does not have, and redact questions for logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from checks.asking.question import EVERY, NAME, OpenProgram, Outline, Question, TypedId
from checks.engine.compile import Root
from checks.explain.cases import ANY
from facts.accept import printable
from facts.wire import FactPattern
from policy.rules.components import reachable
from policy.rules.declarations import instead, nearest
from policy.rules.program import Atom, Member, Program, TypeDef, types_of
from policy.values import PRIMITIVES, STRING, Value, quoted

# ---- redacted -----------------------------------------------------------------------------------------------------
# Questions without ids, for logs: types, and names that the policy has.


def redacted(outline: Outline) -> str:
    """Return a question with `_` in place of given ids, and `?` in place of ids to find."""
    shown = {}
    for name, type_name, kind, place in outline.variables:
        value = f'"{place}"' if kind == NAME else "?" if name in outline.outs else "_"
        shown[name] = f"{type_name} {value}"
    return " and ".join(
        f"{predicate}({', '.join(shown[name] for name in names)})" for predicate, names in outline.calls
    )


def redacted_root(root: Root) -> str:
    """Return a question that has no outline (such as those of explanations), with types only."""
    return " and ".join(f"{call.predicate}({', '.join(call.types)})" for call in root.calls)


# ---- advice -------------------------------------------------------------------------------------------------------
# Finds the words of a question that the policy does not have, and suggests those that may have been meant.
#
# Such a question is denied. If a person rather than a program reads the answer, it includes this reason.


_ACTOR_AND_RESOURCE = ((0, "actor"), (2, "resource"))


class Naming(NamedTuple):
    """How a predicate takes a name: which argument is the name, which one owns it, which names blocks declare."""

    noun: str
    place: int
    owner: int
    declared: Callable[[TypeDef], Iterable[str]]
    entities: tuple[tuple[int, str], ...] = _ACTOR_AND_RESOURCE  # the arguments that are no names, and their kinds


_PERMISSION = Naming("action", 1, 2, lambda known: known.permissions)
NAMINGS = {
    ("allow", 3): _PERMISSION,
    ("has_permission", 3): _PERMISSION,
    ("has_role", 3): Naming("role", 1, 2, lambda known: known.roles),
    ("has_relation", 3): Naming("relation", 1, 0, lambda known: known.relations, ()),
}


MaybeTyped = tuple[str | None, str | None]  # a type and an id; None: any

_LONGEST = 100  # characters of a word in a warning
_MOST_WARNED = 5  # unknown words in a warning; the others are only counted
_MOST_SUGGESTED = 3


class Unknown(NamedTuple):
    """A word that the policy does not have, and the words of that kind that it has."""

    noun: str  # type, action, role or relation
    word: str
    owner: str  # the type that would declare it; empty if the word is a type
    known: tuple[str, ...]  # sorted

    def __str__(self) -> str:
        return f"{self.sentence}{instead(self.word, self.known)}"

    @property
    def sentence(self) -> str:
        return f"the policy has no {self.noun} `{self.word}`{f' on {self.owner}' if self.owner else ''}"

    @property
    def meant(self) -> str | None:
        return nearest(self.word, self.known)

    @property
    def warning(self) -> str:
        """Return a short form for a header: `unknown action "raed" (did you mean "read"?)`."""
        meant = self.meant
        known = ", ".join(map(quoted, self.known[:_MOST_WARNED]))
        more = ", ..." if len(self.known) > _MOST_WARNED else ""
        hint = f"did you mean {quoted(meant)}?" if meant else f"known: {known}{more}" if known else "none are declared"
        return f"unknown {self.noun} {quoted(self.word[:_LONGEST])} ({hint})"


class Untyped(NamedTuple):
    """An actor or a resource without a type: a string or number, as 8, where the policy has values as `User:8`."""

    noun: str  # actor or resource
    word: str
    meant: None  # there is no single word to replace it by
    known: tuple[str, ...]  # the value with each type that it may have

    def __str__(self) -> str:
        meant = " or ".join(f"`{each}`" for each in self.known[:_MOST_SUGGESTED])
        return f"{self.sentence} (did you mean {meant}?)"

    @property
    def sentence(self) -> str:
        return f"the {self.noun} `{self.word[:_LONGEST]}` has no type"

    @property
    def warning(self) -> str:
        return str(self)


def warning_on(program: Program, questions: Iterable[Question]) -> str:
    """Return a line for the header `X-Authz-Warning` about unknown words in questions; empty if there are none."""
    return _warning(each for question in questions for each in unknown_in_question(program, question))


def warning_on_pattern(program: Program, pattern: FactPattern) -> str:
    """Return the same for a pattern of facts, whose arguments may have no type."""
    return _warning(unknown_words(program, pattern.predicate, [(arg.type, arg.id) for arg in pattern.args]))


def _warning(unknown: Iterable[Unknown | Untyped]) -> str:
    found = dict.fromkeys(unknown)
    told = [each.warning for each in list(found)[:_MOST_WARNED]]
    more = len(found) - len(told)
    return printable("; ".join([*told, *([f"and {more} more"] if more else [])]))


def may_be_unknown(program: Program, outline: Outline) -> bool:
    """Return whether a question of this outline may have a word that the policy does not have.

    This is found once for each statement, so that questions with known words need no further look.
    """
    if isinstance(program, OpenProgram):
        return False
    given = {name: (type_name, kind, place) for name, type_name, kind, place in outline.variables}
    return not all(map(program.knows, outline.types)) or any(
        _may_be_unknown(program, predicate, [given[name] for name in names]) for predicate, names in outline.calls
    )


def _may_be_unknown(program: Program, predicate: str, terms: list[tuple[str, str, str]]) -> bool:
    naming = NAMINGS.get((predicate, len(terms)))
    if naming is None:
        return False
    if any(terms[place][0] in PRIMITIVES for place, _ in naming.entities):
        return True
    type_name, kind, word = terms[naming.place]
    if type_name != STRING or kind == EVERY:
        return False
    known = _known_names(program, predicate, (terms[naming.owner][0],))
    return known is not None and (kind != NAME or word not in known)


def advice_on_question(program: Program, question: Question) -> list[str]:
    """Return a sentence for each word that the policy does not have."""
    return list(map(str, unknown_in_question(program, question)))


def unknown_in_question(program: Program, question: Question) -> list[Unknown | Untyped]:
    found: dict[Unknown | Untyped, None] = {}
    for predicate, names in question.calls:
        asked = [question.variables[name] for name in names]
        terms = [(each.type, each.ids[0] if each.ids else None) for each in asked]
        found |= dict.fromkeys(unknown_words(program, predicate, terms))
    return list(found)


def advice(program: Program, predicate: str, terms: list[TypedId]) -> Iterator[str]:
    yield from map(str, unknown_words(program, predicate, terms))


def unknown_words(program: Program, predicate: str, terms: Sequence[MaybeTyped]) -> Iterator[Unknown | Untyped]:
    if isinstance(program, OpenProgram):
        return
    unknown = [name for name, _ in terms if name is not None and not program.knows(name)]
    yield from (Unknown("type", name, "", tuple(sorted(program.types))) for name in dict.fromkeys(unknown))
    naming = NAMINGS.get((predicate, len(terms)))
    if naming is None or terms[naming.owner][0] in unknown:
        return
    untyped = list(_untyped(program, predicate, terms, naming))
    yield from untyped
    if not any(each.noun == "resource" for each in untyped):  # which would have the name
        yield from _unknown_name(program, predicate, terms, naming)


def _untyped(program: Program, predicate: str, terms: Sequence[MaybeTyped], naming: Naming) -> Iterator[Untyped]:
    """Yield the actor and the resource that are strings or numbers, if no rule or fact has such a value there."""
    patterns = program.types_by_predicate.get((predicate, len(terms)), ())
    for place, kind in naming.entities:
        type_name, word = terms[place]
        if type_name not in PRIMITIVES or word in (None, ANY):
            continue
        if not any(type_name in each[place] for each in patterns):
            known = typed_values(program, kind, str(word))
            if known:
                yield Untyped(kind, str(word), None, known)


def typed_values(program: Program, kind: str, text: str) -> tuple[str, ...]:
    """Return `User:8` for "8", with each type of that kind, actor or resource."""
    types = sorted(name for name, each in program.types.items() if each.kind == kind)
    return tuple(f"{name}:{text[:_LONGEST]}" for name in types)


def _unknown_name(program: Program, predicate: str, terms: Sequence[MaybeTyped], naming: Naming) -> Iterator[Unknown]:
    (type_name, word), owner = terms[naming.place], terms[naming.owner][0]
    if type_name != STRING or word is None or word == ANY:
        return
    known = _known_names(program, predicate, tuple(program.types) if owner is None else (owner,))
    if known is not None and word not in known:
        yield Unknown(naming.noun, word, owner or "", tuple(sorted(known)))


# ---- the names that a policy has on a type --------------------------------------------------------------------------
# Those that blocks declare for it, those that rules grant on it, and those that such a rule only passes on: from other
# predicates, or from other types, as in `has_role(u, r, x) if has_relation(x, "parent", y) and has_role(u, r, y)`.

OwnedNames = tuple[str, str]  # those of a predicate on a type


class Granted(NamedTuple):
    names: frozenset[str]
    passed_on: tuple[OwnedNames, ...]


def _known_names(program: Program, predicate: str, owners: tuple[str, ...]) -> frozenset[str] | None:
    """Return the names that blocks declare for the types or rules grant on them; None if a rule may grant any name."""
    key = ("names", predicate, owners)
    if key not in program.memo:
        found: dict[OwnedNames, Granted | None] = {}

        def passed_on(names: OwnedNames) -> Iterable[OwnedNames]:
            granted = found[names] = _granted_on(program, *names)
            return granted.passed_on if granted else ()

        reachable([(predicate, owner) for owner in owners], passed_on)
        some = [each.names for each in found.values() if each is not None]
        program.memo[key] = frozenset().union(*some) if len(some) == len(found) else None
    return program.memo[key]


def _granted_on(program: Program, predicate: str, owner: str) -> Granted | None:
    """Return what rules of the predicate grant on the type themselves; None if that may be any name."""
    naming = NAMINGS[predicate, 3]
    names = set(naming.declared(program.types[owner])) if owner in program.types else set()
    passed_on: dict[OwnedNames, None] = {}
    for rule in program.rules_by_predicate.get((predicate, 3), ()):
        whose, name = rule.head.args[naming.owner], rule.head.args[naming.place]
        if owner not in types_of(whose, rule.types):
            continue
        if isinstance(name, Value):
            names.add(name.id)
            continue
        for literal in rule.body:
            match literal:
                case Member(variable, values) if variable == name:
                    names |= {value.id for value in values}
                    break
                case Atom(called, args) if (other := NAMINGS.get((called, len(args)))) and args[other.place] == name:
                    owners = {owner} if args[other.owner] == whose else types_of(args[other.owner], rule.types)
                    passed_on |= dict.fromkeys((called, each) for each in sorted(owners))
                    break
        else:
            return None
    return Granted(frozenset(names), tuple(passed_on))
