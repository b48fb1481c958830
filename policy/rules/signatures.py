"""Which facts a policy accepts, and which names of roles and relations it knows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from policy.language import ast
from policy.language.nodes import shown
from policy.rules.declarations import PREDICATES, RELATION, Mask, Problems, Vocabulary, bits_of
from policy.rules.flatten import FlatRule, PredicateKey, is_made_here, key_of, terms_of
from policy.rules.program import Atom, Member, Not, Program, Rule, Signature, Types, Var, types_of
from policy.rules.types import Inferred, MaskPattern, Patterns, pattern_of
from policy.values import ACTOR, RESOURCE, STRING, Value

# ---- known names --------------------------------------------------------------------------------------------------
# Which role and relation names a policy knows: those that a block declares, and those that a rule mentions.
#
#     "read" if "writer";                                          knows the role `writer`
#     has_permission(u, "read", r) if has_role(u, "guest", r);     knows `guest`
#     has_permission(u, a, r) if has_role(u, role, r) and grants(role, a);    every role, since facts decide which
#     has_role(u, role, r) if has_relation(r, "org", o) and has_role(u, role, o);   on `o`, the roles known on `r`
#
# Facts are accepted by their types. A fact with a role that the policy does not know is accepted too, but no rule uses
# it: most likely the name is misspelt.

_HAS_ROLE, _HAS_RELATION = "has_role", "has_relation"
PLACE = 1  # index of the name among the arguments

_Pattern = tuple[Types, ...]


def has_name(signature: Signature) -> bool:
    """Return whether facts of the signature contain the name of a role or a relation."""
    types = signature.types
    arities = {_HAS_ROLE: (2, 3), _HAS_RELATION: (3,)}.get(signature.predicate, ())
    return len(types) in arities and types[PLACE] == STRING


def known_names(program: Program, signature: Signature) -> frozenset[str] | None:
    """Return the names with which facts of a signature can matter to the policy; None if any name can."""
    if not has_name(signature):
        return None
    names = _PredicateNames(program, signature.predicate)
    types = [frozenset((name,)) for name in signature.types]
    return frozenset(names.found) if names.look(tuple(types)) else None


class _PredicateNames:
    """Collects the names of one predicate, following type patterns from rule to rule."""

    def __init__(self, program: Program, predicate: str):
        self.program = program
        self.predicate = predicate
        self.found: set[str] = set()
        self.seen: set[_Pattern] = set()

    def look(self, pattern: _Pattern) -> bool:
        """Add the names that are known for such facts; return False if any name may matter."""
        if pattern in self.seen:
            return True
        self.seen.add(pattern)
        self.found.update(self._declared(pattern))
        return all(self._taken(rule, atom, pattern) for rule, atom in self._uses(pattern))

    def _declared(self, pattern: _Pattern) -> Iterator[str]:
        if len(pattern) == 2:
            yield from self.program.global_roles
            return
        for name in pattern[0 if self.predicate == _HAS_RELATION else 2]:
            known = self.program.types.get(name)
            if known is not None:
                yield from known.relations if self.predicate == _HAS_RELATION else known.roles

    def _uses(self, pattern: _Pattern) -> Iterator[tuple[Rule, Atom]]:
        for rule in self.program.rules:
            for literal in (rule.head, *rule.body):
                atom = literal.atom if isinstance(literal, Not) else literal
                if isinstance(atom, Atom) and self._meets(rule, atom, pattern):
                    yield rule, atom

    def _meets(self, rule: Rule, atom: Atom, pattern: _Pattern) -> bool:
        if atom.predicate != self.predicate or len(atom.args) != len(pattern):
            return False
        return all(not types.isdisjoint(types_of(term, rule.types)) for term, types in zip(atom.args, pattern))

    def _taken(self, rule: Rule, atom: Atom, pattern: _Pattern) -> bool:
        """Add the names that an atom of a rule has in this position; return False if it may have any."""
        match atom.args[PLACE]:
            case Value(id=name):
                self.found.add(name)
                return True
            case Var() as name:
                return atom is rule.head or self._bound(rule, atom, name, pattern)
        return False

    def _bound(self, rule: Rule, atom: Atom, name: Var, pattern: _Pattern) -> bool:
        listed = [each for each in rule.body if isinstance(each, Member) and each.variable == name]
        if listed:
            self.found.update(value.id for value in listed[0].values)
            return True
        if self._hands_on(rule, atom, name):
            met: dict[object, Types] = {term: types for term, types in zip(atom.args, pattern) if isinstance(term, Var)}
            heads = [(term, types_of(term, rule.types)) for term in rule.head.args]
            return self.look(tuple(types & met.get(term, types) for term, types in heads))
        return False

    def _hands_on(self, rule: Rule, atom: Atom, name: Var) -> bool:
        """Return whether the rule only passes the name on from this atom to its head, which has the same predicate."""
        head = rule.head
        if head.predicate != self.predicate or head.args[PLACE : PLACE + 1] != (name,):
            return False
        others = [each for each in rule.body if each is not atom and not (isinstance(each, Not) and each.atom is atom)]
        terms = [term for each in others for term in terms_of(each)]
        own = [
            term for place, term in enumerate((*head.args, *atom.args)) if place not in (PLACE, len(head.args) + PLACE)
        ]
        return name not in terms and name not in own


# ---- signatures ---------------------------------------------------------------------------------------------------
# Which facts a policy accepts: the patterns that it states, and those that its rules query.

MAX_ARGUMENTS = 5  # of a fact


def stated_patterns(policy: ast.Policy, vocabulary: Vocabulary, problems: Problems) -> Patterns:
    """Return what blocks, `declare` and the default `allow` rules state, apart from any rule of the text."""
    found: dict[PredicateKey, set[MaskPattern]] = defaultdict(set)
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
    """Return what is accepted even if no rule uses it at present, so that group membership can be kept up to date."""
    if sum(known.kind == "actor" for known in vocabulary.types.values()) < 2:
        return {}
    actor = vocabulary.masks[ACTOR]
    return {("has_group", 2): {(actor, actor)}}


def missing_allows(policy: ast.Policy) -> tuple[int, ...]:
    """Return the arities for which the text has no `allow` rule, so that the default applies."""
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


def _stated_by_blocks(vocabulary: Vocabulary) -> Iterable[tuple[str, MaskPattern]]:
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


def _declared(item: ast.Declare, vocabulary: Vocabulary, problems: Problems) -> MaskPattern:
    if not 1 <= len(item.types) <= MAX_ARGUMENTS:
        message = f"{shown(item.predicate.text)} has {len(item.types)} arguments; a fact must have 1 to {MAX_ARGUMENTS}"
        problems.error(item.span, message, "add at least one type" if not item.types else "split it into several facts")
    return tuple(vocabulary.mask_of(name, problems) or 0 for name in item.types)


def accepted_patterns(
    rules: list[FlatRule], inferred: Inferred, stated: Patterns, standing: Patterns, vocabulary: Vocabulary
) -> Mapping[PredicateKey, tuple[tuple[Types, ...], ...]]:
    """Return every fact pattern that the policy could use, none of them contained in another."""
    found: dict[PredicateKey, set[MaskPattern]] = defaultdict(set)
    for key, patterns in (*stated.items(), *standing.items(), *inferred.calls.items()):
        found[key] |= patterns
    for rule, typing in zip(rules, inferred.typings, strict=True):
        found[key_of(rule.head)].add(pattern_of(rule.head.args, typing, vocabulary))
    usable = {key: {p for p in patterns if all(p)} for key, patterns in sorted(found.items()) if _is_storable(key)}
    return {key: _named(patterns, vocabulary) for key, patterns in usable.items() if patterns}


def _is_storable(key: PredicateKey) -> bool:
    return not is_made_here(key[0]) and 1 <= key[1] <= MAX_ARGUMENTS


def _named(patterns: set[MaskPattern], vocabulary: Vocabulary) -> tuple[tuple[Types, ...], ...]:
    merged = _without_dominated(_merged(patterns))
    return tuple(tuple(map(vocabulary.types_of, pattern)) for pattern in sorted(merged))


def _merged(patterns: Iterable[MaskPattern]) -> set[MaskPattern]:
    """Merge patterns that differ in one position: (User, A) and (User, B) become (User, A or B)."""
    merged = set(patterns)
    for position in range(len(next(iter(merged)))):
        groups: dict[MaskPattern, Mask] = defaultdict(int)
        for pattern in merged:
            groups[(*pattern[:position], 0, *pattern[position + 1 :])] |= pattern[position]
        merged = {(*rest[:position], mask, *rest[position + 1 :]) for rest, mask in groups.items()}
    return merged


def _without_dominated(patterns: set[MaskPattern]) -> set[MaskPattern]:
    if len(patterns) == 1:
        return patterns
    ordered = sorted(patterns, key=lambda pattern: -sum(mask.bit_count() for mask in pattern))
    by_first: dict[Mask, list[MaskPattern]] = defaultdict(list)  # kept patterns, by each bit of their first position
    kept: set[MaskPattern] = set()
    for pattern in ordered:
        lowest = pattern[0] & -pattern[0]
        if not any(all(map(_covers, other, pattern)) for other in by_first[lowest]):
            kept.add(pattern)
            for bit in bits_of(pattern[0]):
                by_first[bit].append(pattern)
    return kept


def _covers(large: Mask, small: Mask) -> bool:
    return large & small == small
