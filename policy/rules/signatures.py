"""Which facts a policy accepts: the patterns that it states, and those that its rules ask for.

    resource Repo { roles = ["reader"]; }              has_role(Actor, String, Repo)
    declare is_public(Repo);                           is_public(Repo)
    p(x: User) if friends(x, y) and y matches Dog;     friends(User, Dog), p(User)
    actor User {} actor Team {}                        has_group(Actor, Actor)

Facts are accepted by type, not by value: a role that no block declares may be stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from policy.language import ast
from policy.language.notes import shown
from policy.rules.declarations import PREDICATES, RELATION, Mask, Vocabulary, bits_of
from policy.rules.flat import FlatRule, Key, is_made_here, key_of
from policy.rules.infer import Inferred
from policy.rules.narrowing import Pattern, Patterns, pattern_of
from policy.rules.problems import Problems
from policy.rules.program import Types
from policy.values import ACTOR, RESOURCE, STRING

MAX_ARGUMENTS = 5  # of a fact


def stated_patterns(policy: ast.Policy, vocabulary: Vocabulary, problems: Problems) -> Patterns:
    """Return what blocks, `declare` and the default `allow` rules state, apart from any rule of the text."""
    found: dict[Key, set[Pattern]] = defaultdict(set)
    for predicate, types in _stated_by_blocks(vocabulary):
        found[predicate, len(types)].add(types)
    for item in policy.items:
        if isinstance(item, ast.Declare):
            types = _declared(item, vocabulary, problems)
            found[item.predicate.text, len(types)].add(types)
    for arity in missing_allows(policy):
        types = tuple(vocabulary.masks[name] for name in (ACTOR, STRING, RESOURCE)[:arity])
        found["has_permission", arity].add(types)
    return {key: frozenset(p for p in patterns if all(p)) for key, patterns in found.items()}


def standing_patterns(vocabulary: Vocabulary) -> Patterns:
    """Return what is accepted whatever the policy does with it at the moment: who belongs to which group is kept up."""
    if sum(known.kind == "actor" for known in vocabulary.types.values()) < 2:
        return {}
    actor = vocabulary.masks[ACTOR]
    return {("has_group", 2): {(actor, actor)}}


def missing_allows(policy: ast.Policy) -> tuple[int, ...]:
    """Return the arities for which the text has no `allow` rule, so that a default stands in."""
    heads = (item.head for item in policy.items if isinstance(item, ast.Rule))
    written = {len(head.params) for head in heads if head.predicate.text == "allow"}
    return tuple(arity for arity in (2, 3) if arity not in written)


def default_allows(policy: ast.Policy) -> list[ast.Rule]:
    """Return `allow(actor, action, resource) if has_permission(actor, action, resource);`, and one without resource."""
    names = tuple(ast.Variable(name) for name in ("actor", "action", "resource"))
    return [
        ast.Rule(ast.Head(ast.Name("allow"), names[:arity]), ast.Call(ast.Name("has_permission"), names[:arity]))
        for arity in missing_allows(policy)
    ]


def _stated_by_blocks(vocabulary: Vocabulary) -> Iterable[tuple[str, Pattern]]:
    masks = vocabulary.masks
    actor, text = masks[ACTOR], masks[STRING]
    for name, known in vocabulary.types.items():
        for kind, words in (("role", known.roles), ("permission", known.permissions)):
            if words:
                yield PREDICATES[kind], (actor, text, masks[name])
        for target in known.relations.values():
            yield PREDICATES[RELATION], (masks[name], text, masks.get(target, 0))
    if vocabulary.global_roles:
        yield "has_role", (actor, text)
    if vocabulary.global_permissions:
        yield "has_permission", (actor, text)


def _declared(item: ast.Declare, vocabulary: Vocabulary, problems: Problems) -> Pattern:
    if not 1 <= len(item.types) <= MAX_ARGUMENTS:
        message = f"a fact has 1 to {MAX_ARGUMENTS} arguments, and {shown(item.predicate.text)} has {len(item.types)}"
        problems.error(item.span, message, "name at least its subject" if not item.types else "split it into two facts")
    return tuple(vocabulary.mask_of(name, problems) or 0 for name in item.types)


def accepted_patterns(
    rules: list[FlatRule], inferred: Inferred, stated: Patterns, standing: Patterns, vocabulary: Vocabulary
) -> Mapping[Key, tuple[tuple[Types, ...], ...]]:
    """Return every pattern of a fact that the policy could use, none of them inside another."""
    found: dict[Key, set[Pattern]] = defaultdict(set)
    for key, patterns in (*stated.items(), *standing.items(), *inferred.calls.items()):
        found[key] |= patterns
    for rule, typing in zip(rules, inferred.typings, strict=True):
        found[key_of(rule.head)].add(pattern_of(rule.head.args, typing, vocabulary))
    usable = {key: {p for p in patterns if all(p)} for key, patterns in sorted(found.items()) if _is_storable(key)}
    return {key: _named(patterns, vocabulary) for key, patterns in usable.items() if patterns}


def _is_storable(key: Key) -> bool:
    return not is_made_here(key[0]) and 1 <= key[1] <= MAX_ARGUMENTS


def _named(patterns: set[Pattern], vocabulary: Vocabulary) -> tuple[tuple[Types, ...], ...]:
    merged = _without_dominated(_merged(patterns))
    return tuple(tuple(map(vocabulary.types_of, pattern)) for pattern in sorted(merged))


def _merged(patterns: Iterable[Pattern]) -> set[Pattern]:
    """Make one of patterns that differ in one place: (User, A) and (User, B) become (User, A or B)."""
    merged = set(patterns)
    for position in range(len(next(iter(merged)))):
        groups: dict[Pattern, Mask] = defaultdict(int)
        for pattern in merged:
            groups[(*pattern[:position], 0, *pattern[position + 1 :])] |= pattern[position]
        merged = {(*rest[:position], mask, *rest[position + 1 :]) for rest, mask in groups.items()}
    return merged


def _without_dominated(patterns: set[Pattern]) -> set[Pattern]:
    if len(patterns) == 1:
        return patterns
    ordered = sorted(patterns, key=lambda pattern: -sum(mask.bit_count() for mask in pattern))
    by_first: dict[Mask, list[Pattern]] = defaultdict(list)  # the kept ones, by each bit of their first place
    kept: set[Pattern] = set()
    for pattern in ordered:
        lowest = pattern[0] & -pattern[0]
        if not any(all(map(_covers, other, pattern)) for other in by_first[lowest]):
            kept.add(pattern)
            for bit in bits_of(pattern[0]):
                by_first[bit].append(pattern)
    return kept


def _covers(large: Mask, small: Mask) -> bool:
    return large & small == small
