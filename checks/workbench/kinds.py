"""Kinds of questions: what is asked about a predicate, for values of certain types.

allow(User:_, "read", Doc:_)      all questions of this kind may be asked at once, or some of them
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, product
from typing import NamedTuple

from checks.asking.query import question_about
from checks.asking.question import BUILT_IN, Asked, Question
from checks.engine.answers import Row
from checks.explain.cases import ANY, Goal
from checks.explain.tree import shown_atom
from policy.language.source import NOWHERE
from policy.rules.changes import Origins, Reached, united
from policy.rules.program import Program
from policy.values import PRIMITIVES, STRING, Value

DECISION = "allow"
MOST_KINDS = 2_000  # that are looked into; a preview says when it leaves some out


class QuestionKind(NamedTuple):
    """A predicate with a type for each argument, and its value where only one is asked about."""

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
        """Return the places of the arguments that are open."""
        return tuple(place for place, value in enumerate(self.values) if value is None)

    @property
    def anchors(self) -> tuple[int, ...]:
        """Return the open arguments by whose values the kind may be split: those with an identity, if there are any."""
        return tuple(place for place in self.places if self.types[place] not in PRIMITIVES) or self.places

    def question(self, ids: Mapping[int, tuple[str, ...]]) -> Question:
        """Return all questions of the kind as one, or those about given ids in some of the places."""
        asked = [
            Asked(type_name, ids.get(place) if value is None else (value.id,))
            for place, (type_name, value) in enumerate(zip(self.types, self.values))
        ]
        return question_about(self.predicate, asked, self.places)

    def goal(self, row: Row) -> Goal:
        """Return what a row of the answer says holds; None in it is any value."""
        ids = iter(row)
        args = (value or Value(name, next(ids) or ANY) for name, value in zip(self.types, self.values))
        return Goal(self.predicate, tuple(args))

    def is_known_to(self, program: Program) -> bool:
        """Say whether the program can be asked; a predicate that it does not have holds for nothing."""
        return self.predicate in program.predicates or self.predicate in BUILT_IN


def kinds_of(found: Iterable[Reached], programs: tuple[Program, Program]) -> tuple[list[QuestionKind], bool]:
    """Return the kinds of questions about what may differ, decisions first; and whether these are all.

    No kind is part of another: `allow(User:_, _, Doc:_)` takes the place of `allow(User:_, "read", Doc:_)`.
    """
    hidden = {("has_permission", arity) for arity in (2, 3) if all(_is_default(each, arity) for each in programs)}
    kinds: dict[tuple, QuestionKind] = {}
    for each in found:
        predicate, types, _ = each.atoms
        is_named = any(predicate in program.predicates for program in programs)
        if is_named and (predicate, len(types)) not in hidden:
            for kind in _kinds_of(each):
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
    """Say whether `allow` has only its default rule, so that asking about permissions too would ask the same twice."""
    return [rule.origin for rule in program.rules_by_predicate.get((DECISION, arity), ())] == [NOWHERE]


def _kinds_of(found: Reached) -> Iterator[QuestionKind]:
    predicate, types, values = found.atoms
    for concrete in islice(product(*map(sorted, types)), MOST_KINDS + 1):
        if predicate != DECISION or concrete[1:2] == (STRING,):  # an action is asked for by its name
            yield QuestionKind(predicate, concrete, values, found.origins)


def _wider(kind: QuestionKind) -> Iterator[tuple]:
    """Yield the keys of the kinds that the kind is part of: each leaves some of its values open."""
    choices = [((value, None) if value else (None,)) for value in kind.values]
    for values in product(*choices):
        if values != kind.values:
            yield kind.predicate, kind.types, values
