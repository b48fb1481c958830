"""One narrowing of the open variables of all rules, as `infer` describes it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AnySet
from dataclasses import dataclass

from policy.rules.declarations import Mask, Vocabulary, bits_of
from policy.rules.flat import FlatRule, Key, atoms_of, is_made_here, key_of, terms_of, variables_of
from policy.rules.program import Atom, Not, Term, Var
from policy.values import INTEGER, Value

MAX_ROUNDS = 200
Pattern = tuple[Mask, ...]
Typing = dict[Var, Mask]
Patterns = Mapping[Key, AnySet[Pattern]]


@dataclass(frozen=True, slots=True)
class _Site:
    """A call with open variables: where they stand, and where they are narrowed."""

    key: Key
    args: tuple[Term, ...]
    open: tuple[int, ...]
    narrowed: tuple[tuple[int, Var], ...]


class Narrowing:
    """One run of the narrowing. Rounds change only `typings`, and `patterns` and the caches that follow from them."""

    def __init__(
        self, rules: list[FlatRule], stated: Patterns, standing: Patterns, own: Patterns, vocabulary: Vocabulary
    ):
        self.rules, self.stated, self.own, self.vocabulary = rules, stated, own, vocabulary
        self.standing = standing  # accepted whatever the rules say
        self.typings = [_declared(rule, vocabulary) for rule in rules]
        self.sites = [_sites(rule) for rule in rules]
        self.askers: dict[Key, set[int]] = defaultdict(set)  # the rules with an open call of a predicate
        self.heads: dict[Key, list[int]] = defaultdict(list)
        self.parts: dict[int, list[int]] = defaultdict(list)  # the helper rules of a rule
        self.handed: dict[str, list[Var]] = {}  # what a helper predicate is called with
        self._index()
        self.declared_calls = self._declared_calls()
        self.patterns = {key: self._patterns(key) for key in self.askers}
        self.fits: dict[Key, dict[Pattern, Pattern | None]] = defaultdict(dict)
        self.by_first: dict[Key, dict[Mask, list[Pattern]]] = {}

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

    def _declared_calls(self) -> dict[Key, set[Pattern]]:
        """Return the calls whose arguments are all declared, and those that an earlier run found to fit no pattern."""
        found = defaultdict(set, {key: set(patterns) for key, patterns in self.own.items()})
        for rule, typing in zip(self.rules, self.typings, strict=True) if self.askers else ():
            for atom in atoms_of(rule.body):
                if key_of(atom) in self.askers and not _open_positions(atom, rule):
                    found[key_of(atom)].add(pattern_of(atom.args, typing, self.vocabulary))
        return found

    def _patterns(self, key: Key) -> set[Pattern]:
        found = set(self.stated.get(key, ()))
        for index in self.heads.get(key, ()):
            found.add(pattern_of(self.rules[index].head.args, self.typings[index], self.vocabulary))
        if found and not is_made_here(key[0]):
            found |= self.declared_calls.get(key, set())
        return {pattern for pattern in found if all(pattern)}

    def _fit(self, key: Key, call: Pattern) -> Pattern | None:
        """Return, for each position, the types of the patterns that fit the call; None if none fits."""
        known = self.fits[key]
        if call not in known:
            fit = _fitting_union(self._candidates(key, call[0]) if call else (), call)
            known[call] = fit and _fitting_union((fit, *self.standing.get(key, ())), call)
        return known[call]

    def _candidates(self, key: Key, first: Mask) -> Iterable[Pattern]:
        """Return the patterns that may fit a call: by an index, if the call's first argument has only one type."""
        if first.bit_count() != 1:
            return self.patterns[key]
        if key not in self.by_first:
            found: dict[Mask, list[Pattern]] = defaultdict(list)
            for pattern in self.patterns[key]:
                for bit in bits_of(pattern[0]):
                    found[bit].append(pattern)
            self.by_first[key] = found
        return self.by_first[key].get(first, ())

    # ---- rounds ----

    def _narrower(self, index: int) -> Typing | None:
        """Return the rule's typing after this round, None if nothing changes."""
        before = self.typings[index]
        found: Typing = {}
        for variable, mask in (*self._bindings(index, before), *self._given(index)):
            known = found.get(variable, before[variable])
            if known & mask != known:
                found[variable] = known & mask
        return before | found if found else None

    def _bindings(self, index: int, typing: Typing) -> Iterator[tuple[Var, Mask]]:
        """Yield what the rule's calls leave of its open variables."""
        for site in self.sites[index]:
            if site.narrowed and (fit := self._fit(site.key, pattern_of(site.args, typing, self.vocabulary))):
                for position, variable in site.narrowed:
                    yield variable, fit[position]

    def _given(self, index: int) -> Iterator[tuple[Var, Mask]]:
        """Yield what the caller of a helper rule knows about the variables that it hands over."""
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

    # ---- the outcome ----

    def unfit_calls(self) -> Iterator[tuple[Key, Pattern]]:
        """Yield the calls that fit no pattern of their predicate, with all types in place of their open variables."""
        for sites, typing in zip(self.sites, self.typings, strict=True):
            for site in sites:
                call = pattern_of(site.args, typing, self.vocabulary)
                is_unfit = self.patterns[site.key] and not self._fit(site.key, call)
                if is_unfit and all(call) and not is_made_here(site.key[0]):
                    yield site.key, self._opened(site, typing)

    def _opened(self, site: _Site, typing: Typing) -> Pattern:
        call = pattern_of(site.args, typing, self.vocabulary)
        return tuple([self.vocabulary.everything if i in site.open else mask for i, mask in enumerate(call)])

    def signatures(self) -> Patterns:
        """Return the patterns that calls ask for. An open call that fits other patterns adds none of its own."""
        found: dict[Key, set[Pattern]] = defaultdict(set)
        for rule, sites, typing in zip(self.rules, self.sites, self.typings, strict=True):
            for atom in atoms_of(rule.body):
                if not _open_positions(atom, rule):
                    found[key_of(atom)].add(pattern_of(atom.args, typing, self.vocabulary))
            for site in sites:
                if not self.patterns[site.key] or self._opened(site, typing) in self.own.get(site.key, ()):
                    found[site.key].add(pattern_of(site.args, typing, self.vocabulary))
        return found


# ---- rules and calls ---------------------------------------------------------------------------------------


def _fitting_union(patterns: Iterable[Pattern], call: Pattern) -> Pattern | None:
    """Return, for each position, the union of the patterns that fit the call; None if none fits."""
    union = (0,) * len(call)
    for pattern in patterns:
        if all(map(int.__and__, pattern, call)):
            union = tuple(map(int.__or__, union, pattern))
    return union if all(union) else None


def pattern_of(args: Iterable[Term], typing: Typing, vocabulary: Vocabulary) -> Pattern:
    return tuple([typing[arg] if isinstance(arg, Var) else _mask_of(arg, vocabulary) for arg in args])


def _mask_of(term: Term, vocabulary: Vocabulary) -> Mask:
    return vocabulary.bits.get(term.type if isinstance(term, Value) else INTEGER, 0)


def _declared(rule: FlatRule, vocabulary: Vocabulary) -> Typing:
    everything = vocabulary.everything
    typing = {variable: rule.bounds.get(variable, everything) for variable in variables_of(rule)}
    for variable, (mask, _) in rule.limits.items():
        if variable in typing:
            typing[variable] &= mask
    return typing


def _sites(rule: FlatRule) -> tuple[_Site, ...]:
    if all(variable in rule.bounds for variable in variables_of(rule)):
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
    """Say whether the variable occurs in one literal of the body only, and not in the head."""
    uses = Counter(term for literal in rule.body for term in set(terms_of(literal)))
    return uses[variable] == 1 and variable not in rule.head.args
