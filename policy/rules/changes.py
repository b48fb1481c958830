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

from policy.rules.flatten import atoms_of, key_of
from policy.rules.program import Atom, Literal, Member, Not, Now, Program, Rule, Signature, Term, Types, Var, types_of
from policy.values import INTEGER, Value

MOST_ATOM_SETS = 200  # of one predicate; beyond that they are widened to a single set that covers them all
MOST_ORIGINS = 50  # of one argument; beyond that it may be any value


class AtomSet(NamedTuple):
    """A set of atoms of a predicate: for each argument the possible types, and its only value or None."""

    predicate: str
    types: tuple[Types, ...]
    values: tuple[Value | None, ...]

    @classmethod
    def of(cls, signature: Signature) -> AtomSet:
        """Return all atoms of a signature."""
        types = tuple([frozenset((name,)) for name in signature.types])
        return cls(signature.predicate, types, (None,) * len(types))

    def covers(self, other: AtomSet) -> bool:
        return (
            self.predicate == other.predicate
            and len(self.types) == len(other.types)
            and all(mine >= theirs for mine, theirs in zip(self.types, other.types))
            and all(mine in (None, theirs) for mine, theirs in zip(self.values, other.values))
        )


@dataclass(frozen=True, slots=True)
class Changed:
    """A rule that only one program has, or has with other types; `head` is what may differ because of it.

    Without a rule: facts that only one of the programs accepts.
    """

    is_new: bool
    head: AtomSet
    rule: Rule | None = None


# ---- rules that differ ---------------------------------------------------------------------------------------


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
            found.append(Changed(is_new, AtomSet.of(each)))
    return found


def _apart(mine: dict[str, Rule], theirs: dict[str, Rule]) -> list[Rule]:
    return [rule for typing, rule in mine.items() if typing not in theirs]


def _retyped(old: Rule, new: Rule) -> Iterator[Changed]:
    """Yield the parts of the head that may differ, one for each variable of the rule whose types have changed."""
    for variable, before in old.types.items():
        after = new.types[variable]
        if before == after:
            continue
        either = {name: types | new.types[name] for name, types in old.types.items()}
        if variable in old.head.args:
            either[variable] = before ^ after
        head = _atom_set(old.head, either, {})
        yield from (Changed(False, head, old), Changed(True, head, new))


def head_of(rule: Rule) -> AtomSet:
    return _atom_set(rule.head, rule.types, {})


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
    return "; ".join(f"{variable}: {' '.join(sorted(types))}" for variable, types in sorted_by_name(rule))


def sorted_by_name(rule: Rule) -> list[tuple[Var, Types]]:
    return sorted(rule.types.items(), key=lambda item: item[0].name)


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
    waiting = [Reached(start, _own_origins(index, start)) for index, start in enumerate(starts)]
    while waiting:
        each = waiting.pop()
        key = (each.atoms.predicate, len(each.atoms.types))
        merged = _merged(found[key], each)
        if merged is not None:
            derived = (_derived(rule, atom, merged) for rule, atom in callers.get(key, ()))
            waiting += (more for more in derived if more is not None)
    return [Reached(*item) for sets in found.values() for item in sets.items()]


def _own_origins(index: int, start: AtomSet) -> tuple[Origins, ...]:
    return tuple(frozenset({(index, place)}) for place in range(len(start.types)))


def _merged(known: dict[AtomSet, tuple[Origins, ...]], each: Reached) -> Reached | None:
    """Add `each` to the known sets of its predicate, merged with those it covers; None if that adds nothing."""
    atoms, origins = each
    wider = next((other for other in known if other.covers(atoms)), None)
    if wider is None:
        wider = atoms if len(known) < MOST_ATOM_SETS else _union([*known, atoms])
    if wider in known and united(origins, known[wider]) == known[wider]:
        return None
    for other in [other for other in known if wider.covers(other)]:
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
    narrowed = _narrowed(rule, atom, called.atoms)
    if narrowed is None:
        return None
    origins = {term: known for term, known in zip(atom.args, called.origins) if isinstance(term, Var)}
    kept = tuple(origins.get(term) if isinstance(term, Var) else None for term in rule.head.args)
    return Reached(_atom_set(rule.head, *narrowed), kept)


def _narrowed(rule: Rule, atom: Atom, atoms: AtomSet) -> tuple[dict[Var, Types], dict[Var, Value]] | None:
    """Return the types and values of the rule's variables if the atom is in the set; None if it cannot be."""
    types = dict(rule.types)
    values: dict[Var, Value] = {}
    for term, allowed, value in zip(atom.args, atoms.types, atoms.values):
        if isinstance(term, Var):
            types[term] = types[term] & allowed
            known = values.setdefault(term, value) if value is not None else values.get(term)
            if not types[term] or (value is not None and known != value):
                return None
        elif not _is_of(term, allowed, value):
            return None
    for literal in rule.body:
        if isinstance(literal, Member) and values.get(literal.variable, literal.values[0]) not in literal.values:
            return None
    return types, values


def _is_of(term: Value | Now, allowed: Types, value: Value | None) -> bool:
    if isinstance(term, Now):
        return INTEGER in allowed
    return term.type in allowed and value in (None, term)


def _atom_set(head: Atom, types: Mapping[Var, Types], values: Mapping[Var, Value]) -> AtomSet:
    known = tuple([values.get(term) if isinstance(term, Var) else _constant(term) for term in head.args])
    return AtomSet(head.predicate, tuple([types_of(term, types) for term in head.args]), known)


def _constant(term: Term) -> Value | None:
    return term if isinstance(term, Value) else None


def _union(sets: list[AtomSet]) -> AtomSet:
    types = tuple(frozenset().union(*each) for each in zip(*(atoms.types for atoms in sets)))
    return AtomSet(sets[0].predicate, types, (None,) * len(types))
