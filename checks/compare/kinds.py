"""Kinds of questions to compare by, and operations on sets of answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import NamedTuple

from checks.asking.question import Asked, Question, allow, question_about
from checks.engine.compile import AnswerRow
from checks.explain.cases import ANY, Goal
from checks.explain.tree import shown_atom
from facts.keyset_pages import ChangedFacts
from policy.language.source import NOWHERE
from policy.rules.changes import AtomSet, Origins, Reached, changed_facts, changed_rules, head_of, reached, united
from policy.rules.flatten import terms_of
from policy.rules.program import Atom, Now, Program, Rule, Signature
from policy.values import PRIMITIVES, STRING, Value

# ---- Sets of answers in which None stands for every value ---------------------------------------------------------
# old  (ann, d)        new  (None, d)        gained (None, d), except what already existed: (ann, d)


def missing(rows: Set[AnswerRow], other: Set[AnswerRow]) -> list[AnswerRow]:
    """Return the rows of the first set that no row of the second covers: (None, "b") covers ("a", "b")."""
    opened = _open_places(other)
    if not opened:
        return list(rows - other)
    return [row for row in rows - other if not any(_opened(row, places) in other for places in opened)]


def without_covered(rows: Set[AnswerRow]) -> set[AnswerRow]:
    """Return the rows without those that another row covers, which are redundant."""
    opened = _open_places(rows)
    if not opened:
        return set(rows)
    return {row for row in rows if not any(_opened(row, each) in rows and _opened(row, each) != row for each in opened)}


def exceptions(gained: Iterable[AnswerRow], other: Set[AnswerRow]) -> set[AnswerRow]:
    """Return the overlap of the gained rows that contain None with the other rows.

    gained (None, d), other (ann, d) and (ben, e)   ->   (ann, d)
    """
    wild = [row for row in gained if None in row]
    by_last: dict[str | None, list[AnswerRow]] = defaultdict(list)
    for row in other if wild else ():
        by_last[row[-1]].append(row)
    pairs = ((row, last) for row in wild for last in (by_last if row[-1] is None else (row[-1], None)))
    found = (met(row, each) for row, last in pairs for each in by_last.get(last, ()))
    return {each for each in found if each is not None}


def met(row: AnswerRow, other: AnswerRow) -> AnswerRow | None:
    """Return the intersection of two rows, or None: (None, "b") and ("a", None) both cover ("a", "b")."""
    if any(mine != theirs and mine is not None and theirs is not None for mine, theirs in zip(row, other)):
        return None
    return tuple(theirs if mine is None else mine for mine, theirs in zip(row, other))


def _open_places(rows: Iterable[AnswerRow]) -> set[tuple[int, ...]]:
    """Return the sets of columns in which rows are None: few different ones, even for many rows."""
    wild = [row for row in rows if None in row]
    return {tuple([place for place, text in enumerate(row) if text is None]) for row in wild}


def _opened(row: AnswerRow, places: tuple[int, ...]) -> AnswerRow:
    return tuple(None if place in places else text for place, text in enumerate(row))


# ---- Kinds of questions: a predicate with types of arguments ------------------------------------------------------
# allow(User:_, "read", Doc:_)      all questions of this kind may be asked at once, or some of them

DECISION = "allow"
MOST_KINDS = 2_000  # to examine; a preview reports if it leaves some out


class QuestionKind(NamedTuple):
    """A predicate with a type for each argument, and its value if only one is asked about."""

    predicate: str
    types: tuple[str, ...]
    values: tuple[Value | None, ...]
    origins: tuple[Origins, ...]  # of the arguments of answers that may differ

    def __str__(self) -> str:
        args = zip(self.types, self.values)
        return shown_atom(self.predicate, tuple(value or Value(name, ANY) for name, value in args))

    @property
    def is_decision(self) -> bool:
        return self.predicate == DECISION

    @property
    def places(self) -> tuple[int, ...]:
        """Return the positions of the open arguments."""
        return tuple(place for place, value in enumerate(self.values) if value is None)

    @property
    def anchors(self) -> tuple[int, ...]:
        """Return the open arguments by whose values the kind may be split: those with an identity, if there are any."""
        return tuple(place for place in self.places if self.types[place] not in PRIMITIVES) or self.places

    def question(self, ids: Mapping[int, tuple[str, ...]]) -> Question:
        """Return all questions of the kind as one, or those about given ids at some of the positions."""
        asked = [
            Asked(type_name, ids.get(place) if value is None else (value.id,))
            for place, (type_name, value) in enumerate(zip(self.types, self.values))
        ]
        return question_about(self.predicate, asked, self.places)

    def goal(self, row: AnswerRow) -> Goal:
        """Return the goal that a row of the answer stands for; None in it is any value."""
        ids = iter(row)
        args = (value or Value(name, next(ids) or ANY) for name, value in zip(self.types, self.values))
        return Goal(self.predicate, tuple(args))


def kinds_of(found: Iterable[Reached], programs: tuple[Program, Program]) -> tuple[list[QuestionKind], bool]:
    """Return the kinds of questions that may differ, decisions first; and whether these are all.

    No kind is part of another: `allow(User:_, _, Doc:_)` replaces `allow(User:_, "read", Doc:_)`.
    """
    hidden = {("has_permission", arity) for arity in (2, 3) if all(_is_default(each, arity) for each in programs)}
    kinds: dict[tuple, QuestionKind] = {}
    for each in found:
        predicate, types = each.atoms.predicate, each.atoms.types
        is_named = any(predicate in program.predicates for program in programs)
        if is_named and (predicate, len(types)) not in hidden:
            for kind in _question_kinds_of(each):
                kinds[kind[:3]] = _with_origins(kind, kinds.get(kind[:3]))
    for kind in list(kinds.values()):
        wider = [kinds[key] for key in _wider(kind) if key in kinds]
        if wider:
            del kinds[kind[:3]]
            kinds |= {each[:3]: _with_origins(each, kind) for each in wider}
    ordered = sorted(kinds.values(), key=lambda kind: (not kind.is_decision, str(kind)))
    return ordered[:MOST_KINDS], len(ordered) <= MOST_KINDS


def _with_origins(kind: QuestionKind, other: QuestionKind | None) -> QuestionKind:
    return kind if other is None else kind._replace(origins=united(kind.origins, other.origins))


def _is_default(program: Program, arity: int) -> bool:
    """Return whether `allow` has only its default rule, so that comparing permissions as well would be redundant."""
    return [rule.origin for rule in program.rules_by_predicate.get((DECISION, arity), ())] == [NOWHERE]


def _question_kinds_of(found: Reached) -> Iterator[QuestionKind]:
    predicate, types, values = found.atoms.predicate, list(found.atoms.types), found.atoms.values
    if predicate == DECISION:  # an action is asked for by name
        types[1:2] = [each & {STRING} for each in types[1:2]]
    for concrete in islice(product(*map(sorted, types)), MOST_KINDS + 1):
        yield QuestionKind(predicate, concrete, values, found.origins)


def _wider(kind: QuestionKind) -> Iterator[tuple]:
    """Yield the keys of the kinds that contain this one: each leaves some of its values open."""
    choices = [((value, None) if value else (None,)) for value in kind.values]
    for values in product(*choices):
        if values != kind.values:
            yield kind.predicate, kind.types, values


# ---- Kinds of access that may exist, or that may have changed: allow(User:_, "read", Doc:_) -----------------------
# They are derived from types, names and changed facts, without asking a question. There may be too many of them, never
# too few: what is not among them cannot hold, or cannot differ.

MOST_ACTORS = 1_000  # named in a question; with more, it is about any actor

_Ids = frozenset[str] | None  # None: any
_Key = tuple[str, str | None, str]


@dataclass(frozen=True, slots=True)
class AccessKind:
    """One action of actors of a type on resources of a type; if `action` is None, all except `others_than`.

    The actions in `others_than` have kinds of their own. Only the ids in `actors` and `resources` may be affected;
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
        """Return the part of the kind that matches, or None; an empty string matches everything."""
        if actor_type not in ("", self.actor) or resource_type not in ("", self.resource):
            return None
        if actor:
            if self.actors is not None and actor not in self.actors:
                return None
            return replace(self, actors=frozenset((actor,))).narrowed(actor_type, action, resource_type)
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

    def rows(self, row: AnswerRow, ids: tuple[str, ...]) -> list[AnswerRow]:
        """Return an answer as rows (actor, action, resource): one for each of the ids, if it names no resource."""
        actor, *others = row
        action = others.pop(0) if self.action is None else self.action
        resource = others[0] if others else None
        return [(actor, action, text) for text in (ids if resource is None else (resource,))]

    def reports(self, action: str | None) -> bool:
        """Return whether this kind reports the action, rather than a kind of the action's own."""
        return action not in self.others_than


# ---- kinds of one moment -------------------------------------------------------------------------------------------


def access_kinds(program: Program, numbers: Iterable[Signature]) -> list[AccessKind]:
    """Return the kinds that may hold, by facts of these signatures and by rules that need no facts."""
    free = [head_of(rule) for rule in program.rules if not any(isinstance(each, Atom) for each in rule.body)]
    found = reached(program, program, [*map(AtomSet.of_signature, numbers), *free])
    return _kinds_of([each._replace(origins=(None, None, None)) for each in found if _is_decision(each)], [program], [])


def _is_decision(found: Reached) -> bool:
    return found.atoms.key == (DECISION, 3) and STRING in found.atoms.types[1]


# ---- kinds that differ between two ---------------------------------------------------------------------------------


def kinds_that_differ(
    old: Program, new: Program, changes: Sequence[ChangedFacts], numbers: Iterable[Signature], clock: bool
) -> list[AccessKind]:
    """Return the kinds that may differ, because of facts or the policy, or (with `clock`) because of the time."""
    starts: list[tuple[AtomSet, ChangedFacts | None]] = [
        (AtomSet.of_signature(each.signature), each) for each in changes
    ]
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


# ---- from what is reached ------------------------------------------------------------------------------------------


def _kinds_of(
    found: Iterable[Reached], programs: Sequence[Program], changes: Sequence[ChangedFacts | None]
) -> list[AccessKind]:
    origins: dict[_Key, tuple[Origins, ...]] = {}
    for atoms, each in found:
        action = atoms.values[1].id if atoms.values[1] else None
        for actor, resource in product(atoms.types[0], atoms.types[2]):
            key = (actor, action, resource)
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


def _names(origins: Iterable[_Key], programs: Sequence[Program]) -> dict[tuple[str, str], set[str]]:
    """Return the actions with kinds of their own, by the types of actor and resource.

    These are the actions that the keys name, and all that the type declares if a key leaves the action open.
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
    """Return the ids that changed facts have at the positions in the origins; None if others are possible."""
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
