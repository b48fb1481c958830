"""Which roles and permissions a condition of a rule asks for, on which types: what leads from one type to another.

A condition may ask for them itself, as `has_role(actor, "member", organization)`, or by way of other rules:
`owns(actor, repository)`, where a rule says that whoever has a role on something owns the repository.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from policy.language.source import NOWHERE, Span
from policy.rules.program import Atom, Literal, Program, Rule, Term, Types, Var
from policy.values import STRING, Value

ROLE, PERMISSION, RELATION = "has_role", "has_permission", "has_relation"
ANY_NAME = "*"  # a rule about every role, or every permission
KIND_OF = {ROLE: "role", PERMISSION: "permission"}

_Key = tuple[str, int, str | None]  # a predicate, its arity, and the name of a relation where one is given


@dataclass(frozen=True, slots=True)
class Need:
    """A role or permission on one of these types; None among them stands for a global one."""

    kind: str  # role or permission
    name: str  # or any
    types: tuple[str | None, ...]
    is_same: bool = False  # whether the name is that of what the rule grants


@dataclass(frozen=True, slots=True)
class Needed:
    """All that conditions ask for, and the places of the other rules through which they do."""

    needs: tuple[Need, ...] = ()
    through: frozenset[Span] = frozenset()


@dataclass
class Needing:
    """Finds what the conditions of a program's rules need."""

    program: Program
    known: dict[_Key, Needed] = field(default_factory=dict)

    def of(self, rule: Rule, body: Iterable[Literal], types: Mapping[Var, Types]) -> Needed:
        """Return what a rule needs in one of its alternatives (`body`); `types` has the variables of both."""
        target = rule.head.args[1]
        found = [self._of_literal(literal, types, target) for literal in body]
        needs = dict.fromkeys(need for each in found for need in each.needs)
        return Needed(tuple(needs), frozenset().union(*(each.through for each in found)))

    def _of_literal(self, literal: Literal, types: Mapping[Var, Types], target: Term | None) -> Needed:
        """Return what a condition needs; comparisons and conditions with `not` need nothing."""
        if not isinstance(literal, Atom):
            return Needed()
        if asked := _asked(literal, types, target):
            return Needed((asked,))
        key = _key(literal)
        if key not in self.known:
            self.known[key] = self._by_rules(key)
        return self.known[key]

    def _by_rules(self, key: _Key) -> Needed:
        needs: dict[Need, None] = {}
        through: set[Span] = set()
        waiting, seen = [key], {key}
        while waiting:
            for rule in self._rules(waiting.pop()):
                if rule.origin != NOWHERE and rule.head.predicate not in self.program.helpers:
                    through.add(rule.origin)
                for literal in (each for each in rule.body if isinstance(each, Atom)):
                    if asked := _asked(literal, rule.types, None):
                        needs[asked] = None
                    elif (following := _key(literal)) not in seen:
                        seen.add(following)
                        waiting.append(following)
        return Needed(tuple(needs), frozenset(through))

    def _rules(self, key: _Key) -> Iterator[Rule]:
        predicate, arity, name = key
        for rule in self.program.rules_by_predicate.get((predicate, arity), ()):
            granted = rule.head.args[1] if name is not None else None
            if not isinstance(granted, Value) or granted.id == name:
                yield rule


def _asked(atom: Atom, types: Mapping[Var, Types], target: Term | None) -> Need | None:
    """Return what the atom asks for, if it is a role or a permission."""
    kind = KIND_OF.get(atom.predicate)
    if kind is None or len(atom.args) not in (2, 3):
        return None
    name = atom.args[1]
    owners: tuple[str | None, ...] = (None,)
    if len(atom.args) == 3:
        owners = tuple(sorted(types_in(types, atom.args[2])))
    return Need(kind, label_of(name), owners, isinstance(name, Var) and name == target)


def types_in(types: Mapping[Var, Types], term: Term) -> Types:
    match term:
        case Var():
            return types.get(term, frozenset())
        case Value(type=name):
            return frozenset((name,))
    return frozenset()


def label_of(term: object) -> str:
    return term.id if isinstance(term, Value) and term.type == STRING else ANY_NAME


def _key(atom: Atom) -> _Key:
    name = atom.args[1] if atom.predicate == RELATION and len(atom.args) == 3 else None
    return atom.predicate, len(atom.args), name.id if isinstance(name, Value) else None
