"""Which role and relation names a policy knows: those that a block declares, and those that a rule names.

    "read" if "writer";                                          knows the role `writer`
    has_permission(u, "read", r) if has_role(u, "guest", r);     knows `guest`
    has_permission(u, a, r) if has_role(u, role, r) and grants(role, a);    knows every role: it asks facts which
    has_role(u, role, r) if has_relation(r, "org", o) and has_role(u, role, o);    knows, of `o`, the roles that `r` has

Facts are accepted by their types. A fact with a role that the policy does not know is accepted too, but no rule uses
it: most likely the name is a typing error.
"""

from __future__ import annotations

from collections.abc import Iterator

from policy.rules.flat import terms_of
from policy.rules.program import Atom, Member, Not, Program, Rule, Signature, Types, Var, types_of
from policy.values import STRING, Value

ROLE, RELATION = "has_role", "has_relation"
PLACE = 1  # of the name among the arguments

_Pattern = tuple[Types, ...]


def has_name(signature: Signature) -> bool:
    """Say whether facts of the signature contain the name of a role or a relation."""
    types = signature.types
    arities = {ROLE: (2, 3), RELATION: (3,)}.get(signature.predicate, ())
    return len(types) in arities and types[PLACE] == STRING


def known_names(program: Program, signature: Signature) -> frozenset[str] | None:
    """Return the names that facts of a signature may have to count for something; None if that may be any name."""
    if not has_name(signature):
        return None
    names = _Names(program, signature.predicate)
    types = [frozenset((name,)) for name in signature.types]
    return frozenset(names.found) if names.look(tuple(types)) else None


class _Names:
    """Collects the names of one predicate, from pattern to pattern of types."""

    def __init__(self, program: Program, predicate: str):
        self.program = program
        self.predicate = predicate
        self.found: set[str] = set()
        self.seen: set[_Pattern] = set()

    def look(self, pattern: _Pattern) -> bool:
        """Add the names that are known of such facts, and say whether these are all."""
        if pattern in self.seen:
            return True
        self.seen.add(pattern)
        self.found.update(self._declared(pattern))
        return all(self._taken(rule, atom, pattern) for rule, atom in self._uses(pattern))

    def _declared(self, pattern: _Pattern) -> Iterator[str]:
        if len(pattern) == 2:
            yield from self.program.global_roles
            return
        for name in pattern[0 if self.predicate == RELATION else 2]:
            known = self.program.types.get(name)
            if known is not None:
                yield from known.relations if self.predicate == RELATION else known.roles

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
        """Add the names that an atom of a rule has in the place; False if it may have any."""
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
        """Say whether the rule only passes the name on, from this atom to its head, which is of the same predicate."""
        head = rule.head
        if head.predicate != self.predicate or head.args[PLACE : PLACE + 1] != (name,):
            return False
        others = [each for each in rule.body if each is not atom and not (isinstance(each, Not) and each.atom is atom)]
        terms = [term for each in others for term in terms_of(each)]
        own = [
            term for place, term in enumerate((*head.args, *atom.args)) if place not in (PLACE, len(head.args) + PLACE)
        ]
        return name not in terms and name not in own
