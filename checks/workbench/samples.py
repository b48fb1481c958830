"""Which values to ask about: those that the difference between two policies is about, as far as that can be known.

If an argument of an answer that may differ comes from the head of a rule that differs (`Reached.origins`), only the
values that this rule concludes there need be asked about. Otherwise values are drawn: first those that the difference
is about, or that facts lead to from there, then others at random. The same seed over the same facts draws them in the
same order.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, product
from random import Random

from checks.asking import run
from checks.asking.query import question_about
from checks.asking.question import Asked, Question
from checks.asking.snapshot import Snapshot
from checks.errors import QueryTooSlow
from checks.explain.cases import ANY
from checks.workbench.kinds import QuestionKind
from facts.mentioned_ids import SomeIds, ids_of
from facts.read import facts_about
from policy.errors import AuthzError
from policy.rules.changes import Changed
from policy.rules.flatten import terms_of
from policy.rules.program import Atom, Literal, Member, Program, Rule, Term, Var
from policy.values import PRIMITIVES, Value

QUOTA = 1_000  # values that are drawn for one kind of question, where any may matter
_NEAR, _STEPS, _OF_EACH = 200, 4, 10  # values, steps, and facts of each place, when facts are followed
_SECONDS = 0.5  # that looking for what one rule concludes may take
_MOST_ROWS, _SOME_ROWS = 50_000, 500  # values of that; only some if all would take too long
_MOST_TYPINGS = 20  # combinations of types, for variables that nothing binds
_ANY = SomeIds((), or_more=True)


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of a type in the order in which to ask about them; `among` are all that could matter."""

    type: str
    texts: tuple[str, ...]
    among: SomeIds
    is_traced: bool = False  # to rules that differ: answers about other values cannot differ

    @property
    def is_all(self) -> bool:
        return not self.among.or_more and len(self.texts) >= len(self.among.texts)

    def __str__(self) -> str:
        what = f" {self.type}s that the difference is about" if self.is_traced else f" {self.type}s"
        return f"{len(self.texts):,} of {'the ' if self.is_traced else ''}{self.among}{what}"


@dataclass
class Sampler:
    """Draws values to ask about, by what differs between the programs of two sessions.

    After the deadline, `about` looks up nothing more.
    """

    sides: tuple[Snapshot, Snapshot]
    changed: list[Changed]
    seed: int
    deadline: float
    _ids: dict[str, SomeIds] = field(default_factory=dict)
    _concluded: dict[tuple[int, int, str], SomeIds] = field(default_factory=dict)

    @property
    def programs(self) -> tuple[Program, Program]:
        return self.sides[0].program, self.sides[1].program

    def anchor(self, kind: QuestionKind) -> tuple[int, Sample]:
        """Return the argument by whose values the questions of the kind are asked, and those values."""
        traced = [(place, texts) for place in kind.anchors if (texts := self._traced(kind, place)) is not None]
        if traced:
            place, texts = min(traced, key=lambda each: len(each[1]))
            return place, Sample(kind.types[place], self._shuffled(kind, texts), SomeIds(tuple(sorted(texts))), True)
        about = (place for place in kind.anchors if self.about.get(kind.types[place]))
        place = next(about, kind.anchors[0])
        return place, self.sample(kind, place, QUOTA)

    def sample(self, kind: QuestionKind, place: int, most: int) -> Sample:
        """Return values near the difference, one that nothing mentions, those that rules name, and others at random."""
        type_name = kind.types[place]
        among = self._ids_of(type_name)
        near = islice(self.about.get(type_name) or self._reached(type_name), most // 2)
        named = islice((ANY, *self._named(type_name)), most // 4)
        texts = dict.fromkeys((*near, *named, *self._shuffled(kind, among.texts)))
        return Sample(type_name, tuple(islice(texts, most)), among)

    def _shuffled(self, kind: QuestionKind, texts: Iterable[str]) -> tuple[str, ...]:
        found = sorted(texts)
        Random(f"{self.seed} {kind}").shuffle(found)  # noqa: S311  nothing secret is drawn
        return tuple(found)

    # ---- what there is ----------------------------------------------------------------------------------------

    def _ids_of(self, type_name: str) -> SomeIds:
        """Return all ids that there are: in facts, in rules, and one for all that nobody mentions."""
        if type_name not in self._ids:
            found = ids_of(self.sides[0].numbers, type_name)
            texts = {ANY, *found.texts, *self._named(type_name)}
            self._ids[type_name] = SomeIds(tuple(sorted(texts)), found.or_more)
        return self._ids[type_name]

    def _named(self, type_name: str) -> list[str]:
        """Return what the rules of either program mention of the type."""
        return sorted(value.id for value in self._constants if value.type == type_name)

    @cached_property
    def _constants(self) -> set[Value]:
        literals = (each for program in self.programs for rule in program.rules for each in (rule.head, *rule.body))
        return {term for literal in literals for term in _terms_and_values(literal) if isinstance(term, Value)}

    # ---- what the difference is about ----------------------------------------------------------------------------

    def _traced(self, kind: QuestionKind, place: int) -> frozenset[str] | None:
        """Return the values that an answer of the kind can have there if it differs; None if it may be any value."""
        origins = kind.origins[place]
        if origins is None:
            return None
        found = [self._concluded_at(start, its_place, kind.types[place]) for start, its_place in origins]
        if any(each.or_more for each in found):
            return None
        return frozenset().union(*(each.texts for each in found))

    @cached_property
    def about(self) -> dict[str, dict[str, None]]:
        """Return the values that differing rules conclude something about, by type, in the order of the rules."""
        found: dict[str, dict[str, None]] = {}
        for start, changed in enumerate(self.changed):
            for place, types in enumerate(changed.head.types):
                for type_name in sorted(types - set(PRIMITIVES)):
                    ids = self._concluded_at(start, place, type_name) if time.monotonic() < self.deadline else _ANY
                    found.setdefault(type_name, {}).update(dict.fromkeys(ids.texts))
        return found

    def _reached(self, type_name: str) -> dict[str, None]:
        """Return ids of the type that facts lead to, in the fewest steps, from what the difference is about."""
        edge = [Value(name, text) for name, texts in self.about.items() for text in islice(texts, _NEAR)]
        seen = set(edge)
        for _ in range(_STEPS):
            beyond = dict.fromkeys(self._beside(edge))
            edge = [value for value in beyond if value not in seen][:_NEAR]
            seen.update(edge)
            found = dict.fromkeys(value.id for value in edge if value.type == type_name)
            if found:
                return found
        return {}

    def _beside(self, values: Iterable[Value]) -> Iterator[Value]:
        for value in values:
            for fact in facts_about(self.sides[0].numbers, value, _OF_EACH):
                yield from (arg for arg in fact.args if arg.type not in PRIMITIVES)

    def _concluded_at(self, start: int, place: int, type_name: str) -> SomeIds:
        """Return the values in one argument of what a differing rule concludes, or of differing facts."""
        key = (start, place, type_name)
        if key not in self._concluded:
            self._concluded[key] = self._found_at(*key)
        return self._concluded[key]

    def _found_at(self, start: int, place: int, type_name: str) -> SomeIds:
        changed = self.changed[start]
        if changed.rule is None:
            signature = next(each for each in self.sides[0].numbers if changed.head.is_of(each))
            return ids_of({signature: self.sides[0].numbers[signature]}, type_name)
        match changed.rule.head.args[place]:
            case Value(type=name, id=text):
                return SomeIds((text,) if name == type_name else ())
            case Var() as variable if type_name in changed.rule.types[variable]:
                return self._values_of(start, changed.rule, variable, type_name)
            case Var():
                return SomeIds(())
        return _ANY

    def _values_of(self, start: int, rule: Rule, variable: Var, type_name: str) -> SomeIds:
        """Return values of the variable for which the rule's body holds, in the program that has the rule."""
        others = _unbound(rule, variable)
        typings = list(islice(product(*(sorted(rule.types[each]) for each in others)), _MOST_TYPINGS + 1))
        if len(typings) > _MOST_TYPINGS:
            return _ANY
        found: set[str] = set()
        for typing in typings:
            asked = [Asked(name) for name in (type_name, *typing)]
            ids = self._ids_in(start, question_about(_probe_name(start, variable), asked, (0,)))
            found.update(ids.texts)
            if ids.or_more:
                return SomeIds(tuple(sorted(found)), or_more=True)
        return SomeIds(tuple(sorted(found)))

    def _ids_in(self, start: int, question: Question) -> SomeIds:
        """Return all answers, or some of them if all would take too long."""
        for most in (_MOST_ROWS, _SOME_ROWS):
            try:
                with run.limited(_SECONDS):
                    rows = self._probes[self.changed[start].is_new].first_answers(question, most)
            except QueryTooSlow:
                continue
            except AuthzError:
                break
            texts = {text for (text,) in rows if text}
            return SomeIds(tuple(sorted(texts)), len(rows) >= most or any(not text for (text,) in rows))
        return _ANY

    @cached_property
    def _probes(self) -> tuple[Snapshot, Snapshot]:
        """Return sessions of the programs, each with a predicate for each variable in the head of a rule that differs.

        has_role(u, "reader", d) if owns(u, d)   ->   `rule 0 u`(u) if owns(u, d) and `rule 0 d`(d) if owns(u, d)
        """
        old, new = self.sides
        return old.of(_probing(old.program, self.changed, False)), new.of(_probing(new.program, self.changed, True))


def _probing(program: Program, changed: list[Changed], is_new: bool) -> Program:
    probes = tuple(
        replace(each.rule, head=Atom(_probe_name(start, variable), (variable, *_unbound(each.rule, variable))))
        for start, each in enumerate(changed)
        if each.rule is not None and each.is_new == is_new
        for variable in _variables(each.rule)
    )
    return replace(program, rules=program.rules + probes)


def _probe_name(start: int, variable: Var) -> str:
    return f"rule {start} {variable.name}"  # no name of a policy has a space


def _variables(rule: Rule) -> list[Var]:
    return list(dict.fromkeys(arg for arg in rule.head.args if isinstance(arg, Var)))


def _unbound(rule: Rule, variable: Var) -> list[Var]:
    """Return the head's other variables that no fact binds: to stand for any value, they must stay in the head."""
    bound = {term for literal in rule.body if isinstance(literal, Atom) for term in literal.args}
    return [each for each in _variables(rule) if each not in bound and each != variable]


def _terms_and_values(literal: Literal) -> tuple[Term, ...]:
    return literal.values if isinstance(literal, Member) else terms_of(literal)
