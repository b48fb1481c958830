"""Infer the types of variables and calls."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AnySet
from dataclasses import dataclass

from policy.language.nodes import shown
from policy.rules.declarations import Mask, Problems, Vocabulary, bits_of
from policy.rules.flatten import FlatRule, PredicateKey, atoms_of, flat_variables_of, is_made_here, key_of, terms_of
from policy.rules.program import Atom, Literal, Member, Not, Rule, Term, Types, Var
from policy.values import INTEGER, Value

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
    found = []
    for literal in rule.body:
        match literal:
            case Atom(_, args) if positions := _open_positions(literal, rule):
                found.append(_Site(key_of(literal), args, positions, _open_variables(literal, rule)))
            case Not(Atom(_, args) as atom) if positions := _open_positions(atom, rule):
                local = tuple((i, term) for i, term in _open_variables(atom, rule) if _is_local(term, rule))
                found.append(_Site(key_of(atom), args, positions, local))
    return tuple(found)


def _open_positions(atom: Atom, rule: FlatRule) -> tuple[int, ...]:
    return tuple([i for i, _ in _open_variables(atom, rule)])


def _open_variables(atom: Atom, rule: FlatRule) -> tuple[tuple[int, Var], ...]:
    return tuple([(i, arg) for i, arg in enumerate(atom.args) if isinstance(arg, Var) and arg not in rule.bounds])


def _is_local(variable: Var, rule: FlatRule) -> bool:
    """Return whether the variable occurs in only one literal of the body, and not in the head."""
    uses = Counter(term for literal in rule.body for term in set(terms_of(literal)))
    return uses[variable] == 1 and variable not in rule.head.args


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
