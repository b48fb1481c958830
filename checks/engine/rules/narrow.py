"""The types that arguments of calls can have -> only those that the stored facts can lead to.

    linked(x, y) if near(x, y);                             near: (Item, Page), where only such facts are stored
    linked(y, x) if linked(x, y);                       ->  linked: (Item, Page) by the first rule,
    linked(x, z) if linked(x, y) and linked(y, z);                  ({Item, Page}, {Item, Page}) by the others

Without this, each variable may have any type that its rule allows, and untyped rules combine in all of them. The result
has one set of types for each argument of a rule's head. It may have too many types; what it leaves out, nothing makes
true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod

from checks.engine.rules.limits import tick
from checks.engine.rules.typings import AreFacts, ArgumentTypes, TypesByPredicate
from policy.rules import program as p
from policy.rules.components import reachable
from policy.rules.flatten import Key, atoms_of, key_of

MOST_SIGNATURES = 1_000  # of one accepted pattern; with more, each is taken to have facts
MOST_LOOKS = 20_000  # at argument types; where rules take more, nothing is narrowed


def are_missing(program: p.Program, asked: Iterable[Key], are_facts: AreFacts) -> bool:
    """Say whether the predicates depend on some signature that has no facts."""

    def called(key: Key) -> list[Key]:
        return [key_of(atom) for rule in program.rules_by_predicate.get(key, ()) for atom in atoms_of(rule.body)]

    patterns = ((key[0], each) for key in reachable(asked, called) for each in program.accepted.get(key, ()))
    return any(not are_facts(each) for name, pattern in patterns for each in _signatures(name, pattern))


def narrowed(program: p.Program, are_facts: AreFacts) -> TypesByPredicate:
    """Return the least fixpoint of "a head has the types that its body allows", starting from the facts.

    Where that takes too many looks, return all that the program allows.
    """
    work = _Work(program, are_facts)
    return work.found() if work.is_finished() else program.types_by_predicate


class _Work:
    """The argument types found so far: those of stored facts, and for each rule some that grow until the fixpoint."""

    def __init__(self, program: p.Program, are_facts: AreFacts):
        self._program = program
        self._stored = {
            key: tuple(argument_types for pattern in patterns for argument_types in _stored(key[0], pattern, are_facts))
            for key, patterns in program.accepted.items()
        }
        self._heads: dict[Key, dict[int, ArgumentTypes]] = {}  # by the rule's place
        self._callers: dict[Key, list[int]] = {}
        self._looks = 0
        for place, rule in enumerate(program.rules):
            for key in {key_of(each) for each in rule.body if isinstance(each, p.Atom)}:
                self._callers.setdefault(key, []).append(place)

    def found(self) -> TypesByPredicate:
        return {key: self._of(key) for key in self._stored.keys() | self._heads.keys()}

    def is_finished(self) -> bool:
        """Work until nothing changes; return False, with the work unfinished, if that takes too many looks."""
        waiting = dict.fromkeys(range(len(self._program.rules)))
        while waiting:
            tick()
            place = next(iter(waiting))
            del waiting[place]
            head = self._head(self._program.rules[place])
            if self._looks > MOST_LOOKS:
                return False
            key = key_of(self._program.rules[place].head)
            known = self._heads.setdefault(key, {})
            if head is not None and known.get(place) != head:
                known[place] = head
                waiting |= dict.fromkeys(self._callers.get(key, ()))
        return True

    def _of(self, key: Key) -> tuple[ArgumentTypes, ...]:
        return (*self._stored.get(key, ()), *dict.fromkeys(self._heads.get(key, {}).values()))

    def _head(self, rule: p.Rule) -> ArgumentTypes | None:
        """Return the types that the rule's head can have so far; None while nothing makes the body true."""
        types = dict(rule.types)
        for literal in rule.body:
            match literal:
                case p.Atom(args=args):
                    met = self._met(key_of(literal), tuple(p.types_of(term, types) for term in args))
                    if met is None:
                        return None
                    for term, names in zip(args, met):
                        if isinstance(term, p.Var):
                            types[term] &= names
                case p.Member(variable, values):
                    types[variable] &= {value.type for value in values}
        return tuple(p.types_of(term, types) for term in rule.head.args)

    def _met(self, key: Key, types: ArgumentTypes) -> ArgumentTypes | None:
        """Return the types of each argument that facts and heads of the predicate allow; None where none fits."""
        met: list[p.Types] | None = None
        every = self._of(key)
        self._looks += len(every)
        for argument_types in every:
            both = [own & allowed for own, allowed in zip(types, argument_types)]
            if all(both):
                met = both if met is None else [one | other for one, other in zip(met, both)]
        return None if met is None else tuple(met)


def _stored(predicate: str, pattern: ArgumentTypes, are_facts: AreFacts) -> list[ArgumentTypes]:
    """Return the argument types of the facts that there are: for each signature, or just the pattern if all have facts.

    A pattern with too many signatures to ask about is taken to have facts of all.
    """
    every = list(_signatures(predicate, pattern))
    there_are = [each for each in every if are_facts(each)]
    if len(there_are) == len(every):
        return [pattern]
    return [tuple(frozenset((name,)) for name in each.types) for each in there_are]


def _signatures(predicate: str, pattern: ArgumentTypes) -> Iterator[p.Signature]:
    """Yield the signatures of the pattern; none where there are more than MOST_SIGNATURES."""
    if prod(map(len, pattern)) <= MOST_SIGNATURES:
        yield from (p.Signature(predicate, names) for names in product(*map(sorted, pattern)))
