"""Infer the types of variables and calls, and so which facts a policy accepts."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AnySet
from dataclasses import dataclass

from policy.language import ast
from policy.language.source import shown
from policy.rules.changes import AtomSet, atom_set, narrowed, term_set
from policy.rules.declarations import PREDICATES, RELATION, Mask, Problems, Vocabulary, bits_of
from policy.rules.flatten import (
    FlatRule,
    PredicateKey,
    atoms_of,
    flat_variables_of,
    is_made_here,
    key_of,
    terms_of,
    uses_of,
)
from policy.rules.program import Atom, Literal, Member, Not, Program, Rule, Signature, Term, Types, Var
from policy.values import ACTOR, INTEGER, RESOURCE, STRING, Value

# ---- One narrowing of the open variables of all rules, as described below ------------------------------------------

MAX_ROUNDS = 200
MaskPattern = tuple[Mask, ...]
Typing = dict[Var, Mask]
Patterns = Mapping[PredicateKey, AnySet[MaskPattern]]


@dataclass(frozen=True, slots=True)
class _Site:
    """A call with open variables: their positions, and where they are narrowed."""

    key: PredicateKey
    args: tuple[Term, ...]
    open: tuple[int, ...]
    narrowed: tuple[tuple[int, Var], ...]


class Narrowing:
    """One run of the narrowing. Rounds change only `typings`, and `patterns` and the caches that depend on them."""

    def __init__(
        self, rules: list[FlatRule], stated: Patterns, standing: Patterns, own: Patterns, vocabulary: Vocabulary
    ):
        self.rules, self.stated, self.own, self.vocabulary = rules, stated, own, vocabulary
        self.standing = standing  # accepted whatever the rules say
        self.typings = [_declared(rule, vocabulary) for rule in rules]
        self.sites = [_sites(rule) for rule in rules]
        self.askers: dict[PredicateKey, set[int]] = defaultdict(set)  # the rules with an open call of a predicate
        self.heads: dict[PredicateKey, list[int]] = defaultdict(list)
        self.parts: dict[int, list[int]] = defaultdict(list)  # the helper rules of a rule
        self.handed: dict[str, list[Var]] = {}  # the arguments with which a helper predicate is called
        self._index()
        self.declared_calls = self._declared_calls()
        self.patterns = {key: self._patterns(key) for key in self.askers}
        self.fits: dict[PredicateKey, dict[MaskPattern, MaskPattern | None]] = defaultdict(dict)
        self.by_first: dict[PredicateKey, dict[Mask, list[MaskPattern]]] = {}

    def _index(self) -> None:
        for index, rule in enumerate(self.rules):
            self.heads[key_of(rule.head)].append(index)
            if rule.caller is not None:
                self.parts[rule.caller].append(index)
            for site in self.sites[index]:
                self.askers[site.key].add(index)
            for atom in atoms_of(rule.body):
                if is_made_here(atom.predicate):
                    self.handed[atom.predicate] = [arg for arg in atom.args if isinstance(arg, Var)]

    def run(self) -> None:
        dirty = {index for index, sites in enumerate(self.sites) if sites or self.rules[index].caller is not None}
        for _ in range(MAX_ROUNDS):
            changes = {index: typing for index in sorted(dirty) if (typing := self._narrower(index))}
            if not changes:
                break
            dirty = self._apply(changes)

    # ---- patterns ----

    def _declared_calls(self) -> dict[PredicateKey, set[MaskPattern]]:
        """Return the calls whose arguments are all declared, and those that an earlier run found to fit no pattern."""
        found = defaultdict(set, {key: set(patterns) for key, patterns in self.own.items()})
        for rule, typing in zip(self.rules, self.typings, strict=True) if self.askers else ():
            for atom in atoms_of(rule.body):
                if key_of(atom) in self.askers and not _open_positions(atom, rule):
                    found[key_of(atom)].add(pattern_of(atom.args, typing, self.vocabulary))
        return found

    def _patterns(self, key: PredicateKey) -> set[MaskPattern]:
        found = set(self.stated.get(key, ()))
        for index in self.heads.get(key, ()):
            found.add(pattern_of(self.rules[index].head.args, self.typings[index], self.vocabulary))
        if found and not is_made_here(key[0]):
            found |= self.declared_calls.get(key, set())
        return {pattern for pattern in found if all(pattern)}

    def _fit(self, key: PredicateKey, call: MaskPattern) -> MaskPattern | None:
        """Return, for each position, the types of the patterns that fit the call; None if none fits."""
        known = self.fits[key]
        if call not in known:
            fit = _fitting_union(self._candidates(key, call[0]) if call else (), call)
            known[call] = fit and _fitting_union((fit, *self.standing.get(key, ())), call)
        return known[call]

    def _candidates(self, key: PredicateKey, first: Mask) -> Iterable[MaskPattern]:
        """Return the patterns that may fit a call, by an index if the call's first argument has only one type."""
        if first.bit_count() != 1:
            return self.patterns[key]
        if key not in self.by_first:
            found: dict[Mask, list[MaskPattern]] = defaultdict(list)
            for pattern in self.patterns[key]:
                for bit in bits_of(pattern[0]):
                    found[bit].append(pattern)
            self.by_first[key] = found
        return self.by_first[key].get(first, ())

    # ---- rounds ----

    def _narrower(self, index: int) -> Typing | None:
        """Return the rule's typing after this round; None if nothing changes."""
        before = self.typings[index]
        found: Typing = {}
        for variable, mask in (*self._bindings(index, before), *self._given(index)):
            known = found.get(variable, before[variable])
            if known & mask != known:
                found[variable] = known & mask
        return before | found if found else None

    def _bindings(self, index: int, typing: Typing) -> Iterator[tuple[Var, Mask]]:
        """Yield the types that the rule's calls leave for its open variables."""
        for site in self.sites[index]:
            if site.narrowed and (fit := self._fit(site.key, pattern_of(site.args, typing, self.vocabulary))):
                for position, variable in site.narrowed:
                    yield variable, fit[position]

    def _given(self, index: int) -> Iterator[tuple[Var, Mask]]:
        """Yield the types that the caller of a helper rule has for its arguments."""
        rule = self.rules[index]
        if rule.caller is not None:
            typing = self.typings[rule.caller]
            for outer, inner in zip(self.handed[rule.head.predicate], rule.head.args, strict=True):
                if isinstance(inner, Var):
                    yield inner, typing[outer]

    def _apply(self, changes: Mapping[int, Typing]) -> set[int]:
        """Apply the changes, and return the rules that may change because of them in the next round."""
        dirty = set(changes)
        keys = set()
        for index, typing in changes.items():
            self.typings[index] = typing
            keys.add(key_of(self.rules[index].head))
            dirty.update(self.parts.get(index, ()))
        for key in keys & self.patterns.keys():
            patterns = self._patterns(key)
            if patterns != self.patterns[key]:
                self.patterns[key] = patterns
                self.fits.pop(key, None)
                self.by_first.pop(key, None)
                dirty |= self.askers[key]
        return dirty

    # ---- results ----

    def unfit_calls(self) -> Iterator[tuple[PredicateKey, MaskPattern]]:
        """Yield the calls that fit no pattern of their predicate, with all types in place of their open variables."""
        for sites, typing in zip(self.sites, self.typings, strict=True):
            for site in sites:
                call = pattern_of(site.args, typing, self.vocabulary)
                is_unfit = self.patterns[site.key] and not self._fit(site.key, call)
                if is_unfit and all(call) and not is_made_here(site.key[0]):
                    yield site.key, self._opened(site, typing)

    def _opened(self, site: _Site, typing: Typing) -> MaskPattern:
        call = pattern_of(site.args, typing, self.vocabulary)
        return tuple([self.vocabulary.everything if i in site.open else mask for i, mask in enumerate(call)])

    def signatures(self) -> Patterns:
        """Return the patterns that calls query. An open call that fits other patterns adds none of its own."""
        found: dict[PredicateKey, set[MaskPattern]] = defaultdict(set)
        for rule, sites, typing in zip(self.rules, self.sites, self.typings, strict=True):
            for atom in atoms_of(rule.body):
                if not _open_positions(atom, rule):
                    found[key_of(atom)].add(pattern_of(atom.args, typing, self.vocabulary))
            for site in sites:
                if not self.patterns[site.key] or self._opened(site, typing) in self.own.get(site.key, ()):
                    found[site.key].add(pattern_of(site.args, typing, self.vocabulary))
        return found


# ---- rules and calls ---------------------------------------------------------------------------------------


def _fitting_union(patterns: Iterable[MaskPattern], call: MaskPattern) -> MaskPattern | None:
    """Return, for each position, the union of the patterns that fit the call; None if none fits."""
    union = (0,) * len(call)
    for pattern in patterns:
        if all(map(int.__and__, pattern, call)):
            union = tuple(map(int.__or__, union, pattern))
    return union if all(union) else None


def pattern_of(args: Iterable[Term], typing: Typing, vocabulary: Vocabulary) -> MaskPattern:
    return tuple([typing[arg] if isinstance(arg, Var) else _mask_of(arg, vocabulary) for arg in args])


def _mask_of(term: Term, vocabulary: Vocabulary) -> Mask:
    return vocabulary.bits.get(term.type if isinstance(term, Value) else INTEGER, 0)


def _declared(rule: FlatRule, vocabulary: Vocabulary) -> Typing:
    everything = vocabulary.everything
    typing = {variable: rule.bounds.get(variable, everything) for variable in flat_variables_of(rule)}
    for variable, (mask, _) in rule.limits.items():
        if variable in typing:
            typing[variable] &= mask
    return typing


def _sites(rule: FlatRule) -> tuple[_Site, ...]:
    if all(variable in rule.bounds for variable in flat_variables_of(rule)):
        return ()
    uses, found = uses_of(rule), []
    for literal in rule.body:
        match literal:
            case Atom(_, args) if positions := _open_positions(literal, rule):
                found.append(_Site(key_of(literal), args, positions, _open_variables(literal, rule)))
            case Not(Atom(_, args) as atom) if positions := _open_positions(atom, rule):
                named = _open_variables(atom, rule)
                local = tuple((i, term) for i, term in named if uses[term] == 1 and term not in rule.head.args)
                found.append(_Site(key_of(atom), args, positions, local))
    return tuple(found)


def _open_positions(atom: Atom, rule: FlatRule) -> tuple[int, ...]:
    return tuple([i for i, _ in _open_variables(atom, rule)])


def _open_variables(atom: Atom, rule: FlatRule) -> tuple[tuple[int, Var], ...]:
    return tuple([(i, arg) for i, arg in enumerate(atom.args) if isinstance(arg, Var) and arg not in rule.bounds])


# ---- Flat rules -> the types of their variables, and of every call ------------------------------------------------
#     hello(x) if greets(x, f) and f < 3;        x is anything, f is an Integer
#     declare greets(User, Integer);             x is a User
#
# A variable is *declared* if the rule itself gives its type: by a parameter, `matches`, `in` or an order comparison, or
# if a helper rule receives it from a rule that does. Declared variables keep exactly those types: a call with them is a
# signature of its own (polymorphic facts exist because rules query them).
#
# An *open* variable starts with all types and is narrowed by the calls that bind it. As argument i of a call of p it
# can only have the types that some *pattern* of p that fits the call's other arguments has at i. The patterns of p are
#
#   - what blocks, `declare` and defaults state, and the heads of p's rules; without any, nothing is narrowed;
#   - the calls of p whose arguments are all declared; and
#   - the calls that fit no pattern. They query facts of a shape of their own, with any type in place of their open
#     variables. (Which calls these are is known only at the end; the narrowing then restarts with them.)
#
# Facts that are accepted whatever the rules say (`standing`) do not make a call fit. But a call that fits may match
# these facts too, so its open variables keep the types that these facts have there.
#
# Open calls that fit are not patterns, since they would only confirm themselves, and not signatures. So narrowing loses
# no answer: the types that it removes are in no fact that the policy accepts for p, and in no row that p's rules could
# derive. A `not` narrows only variables that occur nowhere else. For any other variable, a value outside of p's
# patterns makes the `not` true, and must stay.
#
# The narrowing computes a greatest fixpoint in rounds, so the order of the rules does not matter. It may stop after any
# round, since every round is sound.

MAX_STARTS = 4  # runs of the narrowing at most


@dataclass(frozen=True, slots=True)
class Inferred:
    typings: list[Typing]  # one for each rule
    calls: Patterns  # what the calls query, apart from heads and what is stated


def infer(
    rules: list[FlatRule], stated: Patterns, standing: Patterns, vocabulary: Vocabulary, problems: Problems
) -> Inferred:
    own: dict[PredicateKey, set[MaskPattern]] = defaultdict(set)
    for _ in range(MAX_STARTS):
        narrowing = Narrowing(rules, stated, standing, own, vocabulary)
        narrowing.run()
        unfit = [(key, pattern) for key, pattern in narrowing.unfit_calls() if pattern not in own[key]]
        if not unfit:
            break
        for key, pattern in unfit:
            own[key].add(pattern)
    _warn_of_nothing(rules, narrowing.typings, vocabulary, problems)
    return Inferred(narrowing.typings, narrowing.signatures())


def typed_rules(rules: list[FlatRule], typings: list[Typing], vocabulary: Vocabulary) -> tuple[Rule, ...]:
    found = []
    for rule, typing in zip(rules, typings, strict=True):
        types = {variable: vocabulary.types_of(mask) for variable, mask in typing.items()}
        body = tuple([_fitting(literal, types) for literal in rule.body])
        found.append(Rule(rule.head, body, types, rule.origin))
    return tuple(found)


def _fitting(literal: Literal, types: Mapping[Var, Types]) -> Literal:
    """Drop the values of a `Member` whose types its variable cannot have; return other literals unchanged."""
    if not isinstance(literal, Member):
        return literal
    return Member(literal.variable, tuple(v for v in literal.values if v.type in types[literal.variable]))


def _warn_of_nothing(rules: list[FlatRule], typings: list[Typing], vocabulary: Vocabulary, problems: Problems) -> None:
    for rule, typing in zip(rules, typings, strict=True):
        for variable in (variable for variable, mask in typing.items() if not mask):
            bound = rule.bounds.get(variable)
            if variable in rule.limits and bound and not bound & rule.limits[variable][0]:
                message = f"{shown(variable.name)} is always {vocabulary.describe(bound)}, which a `not` excludes"
            else:
                message = f"no type fits all uses of {shown(variable.name)}"
            problems.warn(rule.origin, message, "the rule or this part of it has no effect")
            break


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


def has_name(signature: Signature) -> bool:
    """Return whether facts of the signature contain the name of a role or a relation."""
    types = signature.types
    arities = {_HAS_ROLE: (2, 3), _HAS_RELATION: (3,)}.get(signature.predicate, ())
    return len(types) in arities and types[PLACE] == STRING


def known_names(program: Program, signature: Signature) -> frozenset[str] | None:
    """Return the names with which facts of a signature can matter to the policy; None if any name can."""
    if not has_name(signature):
        return None
    calls = [
        (rule, atom)
        for rule in program.rules
        for atom in atoms_of((rule.head, *rule.body))
        if atom.predicate == signature.predicate
    ]
    found: set[str] = set()
    queue = [AtomSet.of_signature(signature)]
    for atoms in queue:  # grows during the loop
        found.update(_declared_names(program, atoms))
        for rule, atom in calls:
            known = narrowed(rule, atom, atoms) if key_of(atom) == atoms.key else None
            if known is None:
                continue
            name = term_set(atom.args[PLACE], known)
            if name.values is not None:
                found.update(value.id for value in name.values)
            elif atom is not rule.head and not _hands_on(rule, atom):
                return None
            elif atom is not rule.head and (handed := atom_set(rule.head, known)) not in queue:
                queue.append(handed)
    return frozenset(found)


def _declared_names(program: Program, atoms: AtomSet) -> Iterator[str]:
    if len(atoms.args) == 2:
        yield from program.global_roles
        return
    for name in atoms.types[0 if atoms.predicate == _HAS_RELATION else 2]:
        known = program.types.get(name)
        if known is not None:
            yield from known.relations if atoms.predicate == _HAS_RELATION else known.roles


def _hands_on(rule: Rule, atom: Atom) -> bool:
    """Return whether the rule only passes the name on from this atom to its head, which has the same predicate."""
    head, name = rule.head, atom.args[PLACE]
    if head.predicate != atom.predicate or head.args[PLACE : PLACE + 1] != (name,):
        return False
    others = [each for each in rule.body if each is not atom and not (isinstance(each, Not) and each.atom is atom)]
    terms = [term for each in others for term in terms_of(each)]
    own = [term for args in (head.args, atom.args) for term in (*args[:PLACE], *args[PLACE + 1 :])]
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
            types = _declared_types(item, vocabulary, problems)
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


def _declared_types(item: ast.Declare, vocabulary: Vocabulary, problems: Problems) -> MaskPattern:
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
    storable = (key for key in sorted(found) if not is_made_here(key[0]) and 1 <= key[1] <= MAX_ARGUMENTS)
    usable = {key: {p for p in found[key] if all(p)} for key in storable}
    return {key: _named(patterns, vocabulary) for key, patterns in usable.items() if patterns}


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
