"""Kinds of access that there may be, or that may have changed: allow(User:_, "read", Doc:_)

They are derived from types, names and the facts that changed, without asking a question. There may be too many of
them, never too few: what is not among them cannot hold, or cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from checks.asking.query import allow
from checks.asking.question import Asked, Question
from checks.engine.answers import Row
from checks.explain.cases import ANY
from checks.explain.tree import shown_atom
from checks.workbench.kinds import DECISION
from facts.mentioned_as_of import ChangedFacts
from policy.rules.changes import AtomSet, Origins, Reached, changed_facts, changed_rules, head_of, reached, united
from policy.rules.flatten import terms_of
from policy.rules.program import Atom, Literal, Member, Now, Program, Rule, Signature
from policy.values import STRING, Value

MOST_ACTORS = 1_000  # that a question names; if there are more, it is about any

_Ids = frozenset[str] | None  # None: any
_Key = tuple[str, str | None, str]


@dataclass(frozen=True, slots=True)
class AccessKind:
    """One action of actors of a type on resources of a type; or, if `action` is None, all actions but `others_than`.

    The actions in `others_than` have kinds of their own. Only the ids in `actors` and `resources` may be concerned;
    None: any may be.
    """

    actor: str
    action: str | None
    resource: str
    others_than: frozenset[str] = frozenset()
    actors: _Ids = None
    resources: _Ids = None

    def __str__(self) -> str:
        action = None if self.action is None else Value(STRING, self.action)
        return shown_atom(DECISION, (Value(self.actor, ANY), action, Value(self.resource, ANY)))

    def narrowed(self, actor_type: str, action: str, resource_type: str, actor: str = "") -> AccessKind | None:
        """Return the part of the kind that matches, or None; an empty text matches everything."""
        if actor_type not in ("", self.actor) or resource_type not in ("", self.resource):
            return None
        if actor:
            is_concerned = self.actors is None or actor in self.actors
            mine = replace(self, actors=frozenset((actor,))) if is_concerned else None
            return mine and mine.narrowed(actor_type, action, resource_type)
        if not action:
            return self
        if self.action is None and action not in self.others_than:
            return replace(self, action=action, others_than=frozenset())
        return self if action == self.action else None

    def question(self, ids: tuple[str, ...] | None) -> Question:
        """Return the question which actors may do what on these resources, or (None) on which resources.

        A single resource is not a column of the answer.
        """
        actors = None if self.actors is None else tuple(sorted(self.actors))
        action = Asked(STRING, None if self.action is None else (self.action,))
        is_open = ids is None or len(ids) > 1
        outs = ["actor", *(["action"] if self.action is None else []), *(["resource"] if is_open else [])]
        return allow(Asked(self.actor, actors), action, Asked(self.resource, ids), tuple(outs))

    def rows(self, row: Row, ids: tuple[str, ...]) -> list[Row]:
        """Return an answer as rows (actor, action, resource): one for each of the ids, if it names no resource."""
        actor, *others = row
        action = others.pop(0) if self.action is None else self.action
        resource = others[0] if others else None
        return [(actor, action, text) for text in (ids if resource is None else (resource,))]

    def reports(self, action: str | None) -> bool:
        """Say whether this kind reports the action, rather than a kind of the action's own."""
        return action not in self.others_than


# ---- kinds of one moment -------------------------------------------------------------------------------------------


def access_kinds(program: Program, numbers: Iterable[Signature]) -> list[AccessKind]:
    """Return the kinds that may hold, by facts of these signatures and by rules that need no facts."""
    free = [head_of(rule) for rule in program.rules if not any(isinstance(each, Atom) for each in rule.body)]
    found = reached(program, program, [*map(_atom_set_of, numbers), *free])
    return _kinds_of([each._replace(origins=(None, None, None)) for each in found if _is_decision(each)], [program], [])


def _atom_set_of(signature: Signature) -> AtomSet:
    types = tuple([frozenset((name,)) for name in signature.types])
    return AtomSet(signature.predicate, types, (None,) * len(types))


def _is_decision(found: Reached) -> bool:
    predicate, types, _ = found.atoms
    return predicate == DECISION and len(types) == 3 and STRING in types[1]


# ---- kinds that differ between two ---------------------------------------------------------------------------------


def kinds_that_differ(
    old: Program, new: Program, changes: Sequence[ChangedFacts], numbers: Iterable[Signature], clock: bool
) -> list[AccessKind]:
    """Return the kinds that may differ, because of facts or of the policy, or (`clock`) because of the time."""
    starts: list[tuple[AtomSet, ChangedFacts | None]] = [(_atom_set_of(each.signature), each) for each in changes]
    starts += [(each.head, None) for each in changed_rules(old, new)]
    starts += [(each.head, None) for each in changed_facts(old, new, numbers)]
    if clock:
        rules = (rule for program in (old, new) for rule in program.rules if _reads_clock(rule))
        starts += [(head, None) for head in dict.fromkeys(map(head_of, rules))]
    if not starts:
        return []
    found = reached(old, new, [atoms for atoms, _ in starts])
    return _kinds_of([each for each in found if _is_decision(each)], [old, new], [change for _, change in starts])


def _reads_clock(rule: Rule) -> bool:
    return any(isinstance(term, Now) for literal in (rule.head, *rule.body) for term in terms_of(literal))


# ---- out of what is reached ----------------------------------------------------------------------------------------


def _kinds_of(
    found: Iterable[Reached], programs: Sequence[Program], changes: Sequence[ChangedFacts | None]
) -> list[AccessKind]:
    origins: dict[_Key, tuple[Origins, ...]] = {}
    for key, each in _keyed(found):
        origins[key] = united(origins[key], each) if key in origins else each
    names = _names(origins, programs)
    kinds = []
    for actor, action, resource in _every(origins, names):
        # What may hold for any action may hold for each.
        mine = [origins[key] for key in ((actor, action, resource), (actor, None, resource)) if key in origins]
        whole = mine[0] if len(mine) == 1 else united(mine[0], mine[-1])
        actors, _, resources = (_ids_of(each, changes) for each in whole)
        if actors is not None and len(actors) > MOST_ACTORS:
            actors = None
        others = frozenset(names[actor, resource]) if action is None else frozenset()
        kinds.append(AccessKind(actor, action, resource, others, actors, resources))
    return sorted(kinds, key=lambda kind: (kind.resource, kind.action is None, kind.action or "", kind.actor))


def _keyed(found: Iterable[Reached]) -> Iterator[tuple[_Key, tuple[Origins, ...]]]:
    for (_, types, values), origins in found:
        for actor, resource in product(types[0], types[2]):
            yield (actor, values[1].id if values[1] else None, resource), origins


def _names(origins: Iterable[_Key], programs: Sequence[Program]) -> dict[tuple[str, str], set[str]]:
    """Return the actions with kinds of their own, by the types of actor and resource.

    These are the actions that the keys name, and, where a key leaves the action open, all that the type declares.
    """
    names: dict[tuple[str, str], set[str]] = {}
    for actor, action, resource in origins:
        found = names.setdefault((actor, resource), set())
        if action is not None:
            found.add(action)
            continue
        for program in programs:
            found.update(program.types[resource].permissions if resource in program.types else ())
    return names


def _every(origins: Mapping[_Key, object], names: Mapping[tuple[str, str], set[str]]) -> Iterator[_Key]:
    for (actor, resource), actions in names.items():
        yield from ((actor, action, resource) for action in sorted(actions))
        if (actor, None, resource) in origins:
            yield actor, None, resource


def _ids_of(origins: Origins, changes: Sequence[ChangedFacts | None]) -> _Ids:
    """Return the ids that changed facts have in the places that the origins name; None if others are possible."""
    if origins is None:
        return None
    found: set[str] = set()
    for start, place in origins:
        change = changes[start]
        ids = None if change is None else change.ids(place)
        if ids is None:
            return None
        found |= ids
    return frozenset(found)


def values_in_rules(programs: Iterable[Program], type_name: str) -> frozenset[str]:
    """Return the ids of the type that rules name."""
    literals = (each for program in programs for rule in program.rules for each in (rule.head, *rule.body))
    terms = (term for literal in literals for term in _terms_and_values(literal))
    return frozenset(term.id for term in terms if isinstance(term, Value) and term.type == type_name)


def _terms_and_values(literal: Literal) -> tuple:
    return literal.values if isinstance(literal, Member) else terms_of(literal)
