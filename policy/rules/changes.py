"""Compare two programs: which atoms may hold in one only. These are heads of differing rules, and what depends on them.

    "reader" if "viewer" on "folder";        one of the programs has this rule on Doc
    has_role(_, "reader", Doc)               its head
    has_permission(_, "read", Doc) …         what either program's rules derive from it
    allow(User, "read", Doc)

The comparison considers predicates, types and constants, never facts. So it is conservative: it may report atoms that
do not differ, but it misses none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from policy.rules.flatten import PredicateKey, atoms_of, key_of
from policy.rules.program import Atom, Literal, Member, Not, Program, Rule, Signature, Term, Types, Var
from policy.values import INTEGER, Value

MOST_ATOM_SETS = 200  # of one predicate; beyond that they are widened to a single set that covers them all
MOST_ORIGINS = 50  # of one argument; beyond that it may be any value


# ---- Sets of atoms --------------------------------------------------------------------------------------------


class ArgumentSet(NamedTuple):
    """The possible values of an argument: these, or all values of the types. Without types, nothing is possible."""

    types: Types
    values: frozenset[Value] | None = None

    @classmethod
    def of(cls, values: Iterable[Value]) -> ArgumentSet:
        found = frozenset(values)
        return cls(frozenset(value.type for value in found), found)

    @property
    def only(self) -> Value | None:
        return next(iter(self.values)) if self.values and len(self.values) == 1 else None

    def meet(self, other: ArgumentSet) -> ArgumentSet:
        """Return what is possible by both."""
        types = self.types & other.types
        lists = [each.values for each in (self, other) if each.values is not None]
        if not lists:
            return ArgumentSet(types)
        return ArgumentSet.of(value for value in frozenset.intersection(*lists) if value.type in types)

    def is_within(self, other: ArgumentSet) -> bool:
        if other.values is None:
            return self.types <= other.types
        return self.values is not None and self.values <= other.values


class AtomSet(NamedTuple):
    """A set of atoms of one predicate."""

    predicate: str
    args: tuple[ArgumentSet, ...]

    @classmethod
    def of(cls, predicate: str, args: Iterable[Value | Types]) -> AtomSet:
        """Return the atoms whose arguments are these values, or any value of some types."""
        sets = (ArgumentSet.of([arg]) if isinstance(arg, Value) else ArgumentSet(arg) for arg in args)
        return cls(predicate, tuple(sets))

    @classmethod
    def of_signature(cls, signature: Signature) -> AtomSet:
        """Return all atoms of a signature."""
        return cls.of(signature.predicate, [frozenset((name,)) for name in signature.types])

    @property
    def key(self) -> PredicateKey:
        return self.predicate, len(self.args)

    @property
    def types(self) -> tuple[Types, ...]:
        return tuple([arg.types for arg in self.args])

    @property
    def values(self) -> tuple[Value | None, ...]:
        """Return for each argument its only value, if it has one."""
        return tuple([arg.only for arg in self.args])

    def meets(self, other: AtomSet) -> bool:
        """Return whether some atom is in both sets."""
        return self.key == other.key and all(slot.types for slot in map(ArgumentSet.meet, self.args, other.args))

    def is_within(self, other: AtomSet) -> bool:
        return self.key == other.key and are_within(self.args, other.args)


def are_within(some: Iterable[ArgumentSet], others: Iterable[ArgumentSet]) -> bool:
    return all(map(ArgumentSet.is_within, some, others))


def atom_set(atom: Atom, known: Mapping[Var, ArgumentSet]) -> AtomSet:
    """Return what an atom may be, by what is known of its variables."""
    return AtomSet(atom.predicate, tuple([term_set(term, known) for term in atom.args]))


def term_set(term: Term, known: Mapping[Var, ArgumentSet]) -> ArgumentSet:
    match term:
        case Var():
            return known[term]
        case Value():
            return ArgumentSet.of([term])
    return ArgumentSet(frozenset((INTEGER,)))


def narrowed(rule: Rule, atom: Atom, atoms: AtomSet) -> dict[Var, ArgumentSet] | None:
    """Return what the rule's variables may be if an atom of the rule is in the set; None if it cannot be."""
    known = {name: ArgumentSet(types) for name, types in rule.types.items()}
    lists = [(each.variable, ArgumentSet.of(each.values)) for each in rule.body if isinstance(each, Member)]
    for term, allowed in (*zip(atom.args, atoms.args), *lists):
        met = term_set(term, known).meet(allowed)
        if not met.types:
            return None
        if isinstance(term, Var):
            known[term] = met
    return known


# ---- rules that differ ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Changed:
    """A rule that only one program has, or has with other types; `head` is what may differ because of it.

    Without a rule: facts that only one of the programs accepts.
    """

    is_new: bool
    head: AtomSet
    rule: Rule | None = None


def changed_rules(old: Program, new: Program) -> list[Changed]:
    """Return the rules that only one program has, or has with other types. Their positions and order do not matter."""
    sides = [_Written(program).rules for program in (old, new)]
    found: list[Changed] = []
    for text in dict.fromkeys((*sides[0], *sides[1])):
        here, there = (_apart(side.get(text, {}), other.get(text, {})) for side, other in (sides, sides[::-1]))
        if len(here) == len(there) == 1:
            found += _retyped(here[0], there[0])
        else:
            found += (Changed(False, head_of(rule), rule) for rule in here)
            found += (Changed(True, head_of(rule), rule) for rule in there)
    return found


def changed_facts(old: Program, new: Program, stored: Iterable[Signature]) -> list[Changed]:
    """Return the signatures whose facts only one of the programs accepts."""
    found = []
    for each in stored:
        is_old, is_new = (program.accepts(each.predicate, each.types) for program in (old, new))
        if is_old != is_new:
            found.append(Changed(is_new, AtomSet.of_signature(each)))
    return found


def _apart(mine: dict[str, Rule], theirs: dict[str, Rule]) -> list[Rule]:
    return [rule for typing, rule in mine.items() if typing not in theirs]


def _retyped(old: Rule, new: Rule) -> Iterator[Changed]:
    """Yield the parts of the head that may differ, one for each variable of the rule whose types have changed."""
    for variable, before in old.types.items():
        after = new.types[variable]
        if before == after:
            continue
        either = {name: ArgumentSet(types | new.types[name]) for name, types in old.types.items()}
        if variable in old.head.args:
            either[variable] = ArgumentSet(before ^ after)
        head = atom_set(old.head, either)
        yield from (Changed(False, head, old), Changed(True, head, new))


def head_of(rule: Rule) -> AtomSet:
    return atom_set(rule.head, {name: ArgumentSet(types) for name, types in rule.types.items()})


class _Written:
    """A program's rules by their text, then by their types. Calls of helper predicates are inlined."""

    def __init__(self, program: Program):
        self.program = program
        self.parts: dict[tuple[str, int], str] = {}
        self.rules: dict[str, dict[str, Rule]] = defaultdict(dict)
        for rule in program.rules:
            if rule.head.predicate not in program.helpers:
                self.rules[self._text(rule)][_typing(rule)] = rule

    def _text(self, rule: Rule) -> str:
        return f"{rule.head} if {' and '.join(map(self._literal, rule.body))}"

    def _literal(self, literal: Literal) -> str:
        match literal:
            case Atom(predicate, args) if predicate in self.program.helpers:
                return f"({', '.join(map(str, args))}: {self._part(predicate, len(args))})"
            case Not(atom):
                return f"not {self._literal(atom)}"
        return str(literal)

    def _part(self, predicate: str, arity: int) -> str:
        key = (predicate, arity)
        if key not in self.parts:
            rules = self.program.rules_by_predicate.get(key, ())
            texts = [f"{self._text(rule).partition('(')[2]} {_typing(rule)}" for rule in rules]
            self.parts[key] = " or ".join(sorted(texts))
        return self.parts[key]


def _typing(rule: Rule) -> str:
    by_name = sorted(rule.types.items(), key=lambda item: item[0].name)
    return "; ".join(f"{variable}: {' '.join(sorted(types))}" for variable, types in by_name)


# ---- what depends on the differing rules ------------------------------------------------------------------------

Origins = frozenset[tuple[int, int]] | None  # (index of a start, index of its argument); None: any value


class Reached(NamedTuple):
    """Atoms that may differ. `origins` tells for each argument which arguments of which starts its value comes from."""

    atoms: AtomSet
    origins: tuple[Origins, ...]


def reached(old: Program, new: Program, starts: Sequence[AtomSet]) -> list[Reached]:
    """Return the starts, and everything that the rules of either program derive from them or their negation."""
    callers = _callers((old, new))
    found: dict[tuple[str, int], dict[AtomSet, tuple[Origins, ...]]] = defaultdict(dict)
    waiting = [
        Reached(start, tuple(frozenset({(index, place)}) for place in range(len(start.args))))
        for index, start in enumerate(starts)
    ]
    while waiting:
        each = waiting.pop()
        merged = _merged(found[each.atoms.key], each)
        if merged is not None:
            derived = (_derived(rule, atom, merged) for rule, atom in callers.get(each.atoms.key, ()))
            waiting += (more for more in derived if more is not None)
    return [Reached(*item) for sets in found.values() for item in sets.items()]


def _merged(known: dict[AtomSet, tuple[Origins, ...]], each: Reached) -> Reached | None:
    """Add `each` to the known sets of its predicate, merged with those it covers; None if that adds nothing."""
    atoms, origins = each
    wider = next((other for other in known if atoms.is_within(other)), None)
    if wider is None:
        wider = atoms if len(known) < MOST_ATOM_SETS else _union([*known, atoms])
    if wider in known and united(origins, known[wider]) == known[wider]:
        return None
    for other in [other for other in known if other.is_within(wider)]:
        origins = united(origins, known.pop(other))
    known[wider] = origins
    return Reached(wider, origins)


def united(mine: tuple[Origins, ...], theirs: tuple[Origins, ...]) -> tuple[Origins, ...]:
    """Return the union of both origins for each argument; None (any value) if either is None, or there are too many."""
    return tuple(None if a is None or b is None else _bounded(a | b) for a, b in zip(mine, theirs))


def _bounded(origins: frozenset[tuple[int, int]]) -> Origins:
    return origins if len(origins) <= MOST_ORIGINS else None


def _callers(programs: Iterable[Program]) -> dict[tuple[str, int], list[tuple[Rule, Atom]]]:
    """Return the rules that call each predicate, by predicate and arity, each with the calling atom."""
    found: dict[tuple[str, int], dict[tuple[str, Atom], tuple[Rule, Atom]]] = defaultdict(dict)
    for program in programs:
        for rule in program.rules:
            same = f"{rule} {_typing(rule)}"
            for atom in atoms_of(rule.body):
                found[key_of(atom)][same, atom] = (rule, atom)
    return {key: list(calls.values()) for key, calls in found.items()}


def _derived(rule: Rule, atom: Atom, called: Reached) -> Reached | None:
    """Return the heads that the rule may derive if the body's atom is in the set; None if it cannot be."""
    known = narrowed(rule, atom, called.atoms)
    if known is None:
        return None
    origins = {term: each for term, each in zip(atom.args, called.origins) if isinstance(term, Var)}
    kept = tuple(origins.get(term) if isinstance(term, Var) else None for term in rule.head.args)
    return Reached(atom_set(rule.head, known), kept)


def _union(sets: list[AtomSet]) -> AtomSet:
    return AtomSet.of(sets[0].predicate, [frozenset().union(*each) for each in zip(*(atoms.types for atoms in sets))])
