"""Which values to ask about: those that the difference between two policies is about, as far as that can be known.

Where an answer that may differ has an argument out of what a rule that differs says (`Reached.origins`), those are
all that need be asked about. Elsewhere values are drawn: first those that the difference is about, or that facts lead
to from there, then others at random. The order is the same for the same seed, as long as the facts are the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, product
from random import Random

from checks.asking import run
from checks.asking.question import Asked, Question
from checks.asking.snapshot import Snapshot
from checks.errors import QueryTooSlow
from checks.explain.bindings import ANY
from checks.workbench.kinds import Kind
from facts.drawing import Ids, facts_about, ids_of
from policy.errors import AuthzError
from policy.rules.changes import Changed
from policy.rules.program import Atom, Compare, Literal, Member, Not, Program, Rule, Term, Var
from policy.values import PRIMITIVES, Value

QUOTA = 1_000  # values that are drawn for one kind of question, where any may matter
_NEAR, _STEPS, _OF_EACH = 200, 4, 10  # values, steps, and facts of each place, on the way to what is near
_SECONDS = 0.5  # that looking for what one rule says may take
_MOST_SAID, _SOME_SAID = 50_000, 500  # rows of that; some where all would take too long
_MOST_TYPINGS = 20  # of variables that nothing binds
_ANY = Ids((), or_more=True)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Values of a type in the order in which to ask about them, out of how many that could differ."""

    type: str
    texts: tuple[str, ...]
    among: Ids
    is_traced: bool = False  # the others that there are do not differ

    @property
    def is_all(self) -> bool:
        return not self.among.or_more and len(self.texts) >= len(self.among.texts)

    def __str__(self) -> str:
        what = f" {self.type}s that the difference is about" if self.is_traced else f" {self.type}s"
        return f"{len(self.texts):,} of {'the ' if self.is_traced else ''}{self.among}{what}"


@dataclass
class Drawer:
    """Knows what differs between the programs of two snapshots; what it finds it finds before the deadline, or not."""

    sides: tuple[Snapshot, Snapshot]
    changed: list[Changed]
    seed: int
    deadline: float
    _ids: dict[str, Ids] = field(default_factory=dict)
    _said: dict[tuple[int, int, str], Ids] = field(default_factory=dict)

    @property
    def programs(self) -> tuple[Program, Program]:
        return self.sides[0].program, self.sides[1].program

    def anchor(self, kind: Kind) -> tuple[int, Drawn]:
        """The argument by whose values the questions of the kind are told apart, and those values."""
        traced = [(place, texts) for place in kind.anchors if (texts := self._traced(kind, place)) is not None]
        if traced:
            place, texts = min(traced, key=lambda each: len(each[1]))
            return place, Drawn(kind.types[place], self._shuffled(kind, texts), Ids(tuple(sorted(texts))), True)
        about = (place for place in kind.anchors if self.about.get(kind.types[place]))
        place = next(about, kind.anchors[0])
        return place, self.drawn(kind, place, QUOTA)

    def drawn(self, kind: Kind, place: int, most: int) -> Drawn:
        """What is near the difference, what the rules name and what nobody mentions, and others at random."""
        type_name = kind.types[place]
        among = self._ids_of(type_name)
        near = islice(self.about.get(type_name) or self._reached(type_name), most // 2)
        named = islice((ANY, *self._named(type_name)), most // 4)
        texts = dict.fromkeys((*near, *named, *self._shuffled(kind, among.texts)))
        return Drawn(type_name, tuple(islice(texts, most)), among)

    def _shuffled(self, kind: Kind, texts: Iterable[str]) -> tuple[str, ...]:
        found = sorted(texts)
        Random(f"{self.seed} {kind}").shuffle(found)  # noqa: S311  nothing secret is drawn
        return tuple(found)

    # ---- what there is ----------------------------------------------------------------------------------------

    def _ids_of(self, type_name: str) -> Ids:
        """All ids that there are: in facts, in rules, and one for all that nobody mentions."""
        if type_name not in self._ids:
            found = ids_of(self.sides[0].numbers, type_name)
            texts = {ANY, *found.texts, *self._named(type_name)}
            self._ids[type_name] = Ids(tuple(sorted(texts)), found.or_more)
        return self._ids[type_name]

    def _named(self, type_name: str) -> list[str]:
        """What the rules of either program mention of the type."""
        return sorted(value.id for value in self._constants if value.type == type_name)

    @cached_property
    def _constants(self) -> set[Value]:
        literals = (each for program in self.programs for rule in program.rules for each in (rule.head, *rule.body))
        return {term for literal in literals for term in _terms(literal) if isinstance(term, Value)}

    # ---- what the difference is about ----------------------------------------------------------------------------

    def _traced(self, kind: Kind, place: int) -> frozenset[str] | None:
        """The values that an answer of the kind can have there, if it differs; None where that may be any."""
        origins = kind.origins[place]
        if origins is None:
            return None
        said = [self._said_at(start, its_place, kind.types[place]) for start, its_place in origins]
        if any(each.or_more for each in said):
            return None
        return frozenset().union(*(each.texts for each in said))

    @cached_property
    def about(self) -> dict[str, dict[str, None]]:
        """Values that differing rules say something of, by type, in the order of the rules."""
        found: dict[str, dict[str, None]] = {}
        for start, changed in enumerate(self.changed):
            for place, types in enumerate(changed.head.types):
                for type_name in sorted(types - set(PRIMITIVES)):
                    said = self._said_at(start, place, type_name) if time.monotonic() < self.deadline else _ANY
                    found.setdefault(type_name, {}).update(dict.fromkeys(said.texts))
        return found

    def _reached(self, type_name: str) -> dict[str, None]:
        """Ids of the type that facts lead to from what the difference is about, by the fewest steps."""
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

    def _said_at(self, start: int, place: int, type_name: str) -> Ids:
        """The values in one argument of what a differing rule, or facts, say; or more, where not all are known."""
        key = (start, place, type_name)
        if key not in self._said:
            self._said[key] = self._found_at(*key)
        return self._said[key]

    def _found_at(self, start: int, place: int, type_name: str) -> Ids:
        changed = self.changed[start]
        if changed.rule is None:
            signature = next(each for each in self.sides[0].numbers if changed.head.is_of(each))
            return ids_of({signature: self.sides[0].numbers[signature]}, type_name)
        match changed.rule.head.args[place]:
            case Value(type=name, id=text):
                return Ids((text,) if name == type_name else ())
            case Var() as variable if type_name in changed.rule.types[variable]:
                return self._probed(start, variable, type_name)
            case Var():
                return Ids(())
        return _ANY

    def _probed(self, start: int, variable: Var, type_name: str) -> Ids:
        """Values of the variable for which the body of a rule that differs holds, in the program that has the rule."""
        rule = self.changed[start].rule
        assert rule is not None, "what only the one program has is a rule here"
        others = _unbound(rule, variable)
        typings = list(islice(product(*(sorted(rule.types[each]) for each in others)), _MOST_TYPINGS + 1))
        if len(typings) > _MOST_TYPINGS:
            return _ANY
        names = tuple(f"argument{index}" for index in range(len(others) + 1))
        found: set[str] = set()
        for typing in typings:
            asked = dict(zip(names, map(Asked, (type_name, *typing))))
            said = self._said_by(start, Question(((probe_name(start, variable), names),), asked, names[:1]))
            found.update(said.texts)
            if said.or_more:
                return Ids(tuple(sorted(found)), or_more=True)
        return Ids(tuple(sorted(found)))

    def _said_by(self, start: int, question: Question) -> Ids:
        """All answers, or some of them where all would take too long."""
        for most in (_MOST_SAID, _SOME_SAID):
            try:
                with run.limited(_SECONDS):
                    rows = self._probes[self.changed[start].is_new].first_answers(question, most)
            except QueryTooSlow:
                continue
            except AuthzError:
                break
            texts = {text for (text,) in rows if text}
            return Ids(tuple(sorted(texts)), len(rows) >= most or any(not text for (text,) in rows))
        return _ANY

    @cached_property
    def _probes(self) -> tuple[Snapshot, Snapshot]:
        """The programs with a predicate for each variable in the head of each rule that differs."""
        old, new = self.sides
        return old.of(_probing(old.program, self.changed, False)), new.of(_probing(new.program, self.changed, True))


def _probing(program: Program, changed: list[Changed], is_new: int) -> Program:
    probes = tuple(
        replace(each.rule, head=Atom(probe_name(start, variable), (variable, *_unbound(each.rule, variable))))
        for start, each in enumerate(changed)
        if each.rule is not None and each.is_new == bool(is_new)
        for variable in _variables(each.rule)
    )
    return replace(program, rules=program.rules + probes)


def probe_name(start: int, variable: Var) -> str:
    return f"rule {start} {variable.name}"  # no name of a policy has a space


def _variables(rule: Rule) -> list[Var]:
    return list(dict.fromkeys(arg for arg in rule.head.args if isinstance(arg, Var)))


def _unbound(rule: Rule, variable: Var) -> list[Var]:
    """Other variables of the head that no fact binds: outside of the head, they would not stand for every value."""
    bound = {term for literal in rule.body if isinstance(literal, Atom) for term in literal.args}
    return [each for each in _variables(rule) if each not in bound and each != variable]


def _terms(literal: Literal) -> tuple[Term, ...]:
    match literal:
        case Atom(_, args) | Not(Atom(_, args)):
            return args
        case Member(_, values):
            return values
        case Compare(_, left, right):
            return (left, right)
    raise AssertionError("a literal is one of these")
