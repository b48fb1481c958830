"""Put the same questions to two policies, and find where their answers differ."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import nsmallest
from itertools import islice, product
from random import Random
from typing import Any

from checks.asking import run
from checks.asking.by_rows import questions_of
from checks.asking.question import Asked, Question, by_ids, is_known, question_about
from checks.asking.snapshot import Snapshot
from checks.compare.kinds import QuestionKind, missing
from checks.engine.compile import AnswerRow
from checks.errors import CannotEnumerate, QueryTooSlow, UnboundVariable
from checks.explain.cases import ANY, Goal
from checks.explain.explain import goals_of, question_of_goal
from checks.explain.tree import shown_atom
from facts.keyset_pages import SomeIds, ids_of
from facts.read import facts_about
from facts.table import count_up_to
from facts.wire import Fact, FactPattern
from policy.errors import AuthzError
from policy.rules.changes import AtomSet, Changed
from policy.rules.program import Atom, Program, Rule, Var
from policy.values import PRIMITIVES, Value

# ---- samples ------------------------------------------------------------------------------------------------------
# Which values to ask about: those affected by the difference between two policies, as far as that can be known.
#
# If an argument of an answer that may differ comes from the head of a changed rule (`Reached.origins`), only the values
# that this rule concludes there need to be checked. Otherwise values are sampled: first those affected by the
# difference, or reached from there through facts, then others at random. The same seed over the same facts gives the
# same order.

QUOTA = 1_000  # sample size for one kind of question, if any value may matter
_NEAR, _SAMPLE_STEPS, _OF_EACH = 200, 4, 10  # values, steps, and facts of each place, when facts are followed
_SECONDS = 0.5  # time limit for finding what one rule concludes
_MOST_ROWS, _SOME_ROWS = 50_000, 500  # rows to find there; the fewer if all would take too long
_MOST_TYPINGS = 20  # combinations of types, for variables that nothing binds
_ANY = SomeIds((), or_more=True)


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of a type in the order in which to ask about them; `among` are all that could matter."""

    type: str
    texts: tuple[str, ...]
    among: SomeIds
    is_traced: bool = False  # to changed rules: answers about other values cannot differ

    @property
    def is_all(self) -> bool:
        return not self.among.or_more and len(self.texts) >= len(self.among.texts)

    def __str__(self) -> str:
        what = f" affected {self.type} ids" if self.is_traced else f" {self.type} ids"
        return f"{len(self.texts):,} of {'the ' if self.is_traced else ''}{self.among}{what}"


@dataclass
class Sampler:
    """Samples values to ask about, by the difference between the programs of two sessions.

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
        """Return the argument by whose values to split the questions of the kind, and those values."""
        traced = [(place, texts) for place in kind.anchors if (texts := self._traced(kind, place)) is not None]
        if traced:
            place, texts = min(traced, key=lambda each: len(each[1]))
            return place, Sample(kind.types[place], self._shuffled(kind, texts), SomeIds(tuple(sorted(texts))), True)
        about = (place for place in kind.anchors if self.about.get(kind.types[place]))
        place = next(about, kind.anchors[0])
        return place, self.sample(kind, place, QUOTA)

    def sample(self, kind: QuestionKind, place: int, most: int) -> Sample:
        """Return values near the difference, one that nothing mentions, those named in rules, and others at random."""
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

    # ---- known values -----------------------------------------------------------------------------------------

    def _ids_of(self, type_name: str) -> SomeIds:
        """Return all known ids: those in facts, those in rules, and one for all that nothing mentions."""
        if type_name not in self._ids:
            found = ids_of(self.sides[0].numbers, type_name)
            texts = {ANY, *found.texts, *self._named(type_name)}
            self._ids[type_name] = SomeIds(tuple(sorted(texts)), found.or_more)
        return self._ids[type_name]

    def _named(self, type_name: str) -> list[str]:
        """Return the values of the type that either program's rules mention."""
        return sorted(set().union(*(program.values.get(type_name, ()) for program in self.programs)))

    # ---- values affected by the difference -----------------------------------------------------------------------

    def _traced(self, kind: QuestionKind, place: int) -> frozenset[str] | None:
        """Return the values there for which an answer of the kind may differ; None if it may be any value."""
        origins = kind.origins[place]
        if origins is None:
            return None
        found = [self._concluded_at(start, its_place, kind.types[place]) for start, its_place in origins]
        if any(each.or_more for each in found):
            return None
        return frozenset().union(*(each.texts for each in found))

    @cached_property
    def about(self) -> dict[str, dict[str, None]]:
        """Return the values that changed rules conclude something about, by type, in the order of the rules."""
        found: dict[str, dict[str, None]] = {}
        for start, changed in enumerate(self.changed):
            for place, types in enumerate(changed.head.types):
                for type_name in sorted(types - set(PRIMITIVES)):
                    ids = self._concluded_at(start, place, type_name) if time.monotonic() < self.deadline else _ANY
                    found.setdefault(type_name, {}).update(dict.fromkeys(ids.texts))
        return found

    def _reached(self, type_name: str) -> dict[str, None]:
        """Return ids of the type reached through facts, in the fewest steps, from the affected values."""
        edge = [Value(name, text) for name, texts in self.about.items() for text in islice(texts, _NEAR)]
        seen = set(edge)
        for _ in range(_SAMPLE_STEPS):
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
        """Return the values of one argument in the conclusions of a changed rule, or in changed facts."""
        key = (start, place, type_name)
        if key not in self._concluded:
            self._concluded[key] = self._found_at(*key)
        return self._concluded[key]

    def _found_at(self, start: int, place: int, type_name: str) -> SomeIds:
        changed = self.changed[start]
        if changed.rule is None:
            signature = next(each for each in self.sides[0].numbers if AtomSet.of_signature(each) == changed.head)
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
        """Return sessions of the programs with a probe predicate for each variable in the head of a changed rule.

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
    return f"rule {start} {variable.name}"  # names in policies have no spaces


def _variables(rule: Rule) -> list[Var]:
    return list(dict.fromkeys(arg for arg in rule.head.args if isinstance(arg, Var)))


def _unbound(rule: Rule, variable: Var) -> list[Var]:
    """Return the head's other variables that no fact binds: to stand for any value, they must stay in the head."""
    bound = {term for literal in rule.body if isinstance(literal, Atom) for term in literal.args}
    return [each for each in _variables(rule) if each not in bound and each != variable]


# ---- differences --------------------------------------------------------------------------------------------------
# Puts the same questions to two policies, kind by kind, to find where answers differ and how much was compared.
#
# If there are few facts, all questions of a kind are asked as one question with open variables. If there are many, or
# if that question is rejected, they are split by the values of one variable (`Sampler.anchor`), some values per
# statement. If even those answers cannot be listed ("all but some"), values are sampled for the other variables too.

MOST_ROWS = 300_000  # of one answer that are examined
_MOST_AT_ONCE, _OTHERS = 100, 100  # values: per statement, and sampled for each other variable
_FEW_FACTS = 20_000
_WEIGHT = 4  # of decisions when time is shared; other kinds have 1
_STEPS = 8  # a step takes more values only if the time would suffice for this many steps
_MOST_SKIPPED = 3
_SHORTEST = 0.25  # minimum time limit of a question, in seconds
_LATE = "the time limit was reached"
_SLOW = "too slow to evaluate, even for a single value"


@dataclass(slots=True)
class Tally:
    """Counts the answers of each policy and those that only one gives, and keeps some of the latter as examples."""

    most: int  # examples to keep in each direction
    answers: int = 0
    gained: int = 0
    lost: int = 0
    examples: tuple[list[AnswerRow], list[AnswerRow]] = field(default_factory=lambda: ([], []))  # lost, gained

    @property
    def flips(self) -> int:
        return self.gained + self.lost

    @property
    def kept(self) -> Iterator[tuple[AnswerRow, bool]]:
        """Yield the examples, sorted, each with whether the new policy gives it."""
        for rows, is_new in zip(self.examples, (False, True)):
            yield from ((row, is_new) for row in sorted(rows, key=by_ids))

    def count(self, old: set[AnswerRow], new: set[AnswerRow]) -> None:
        lost, gained = missing(old, new), missing(new, old)
        self.answers += len(old | new)
        self.gained += len(gained)
        self.lost += len(lost)
        for kept, rows in zip(self.examples, (lost, gained)):
            kept += nsmallest(self.most - len(kept), rows, key=by_ids)


@dataclass(frozen=True, slots=True)
class Compared:
    """The result for a kind of question: the number of answers of each policy, and of those that only one gives.

    `samples` are the values that were asked about, if not all were; `problem` is why nothing was asked.
    """

    kind: QuestionKind
    tally: Tally
    samples: tuple[Sample, ...] = ()
    problem: str = ""
    is_refused: bool = False  # only by the new policy, which would answer no question of the kind

    @property
    def examples(self) -> Iterator[tuple[Goal, bool]]:
        """Return some answers that differ, each with whether the new policy gives it."""
        return ((self.kind.goal(row), is_new) for row, is_new in self.tally.kept)

    @property
    def is_all(self) -> bool:
        """Return whether no other answer of the kind can differ."""
        return not (self.samples or self.problem)

    @property
    def extent(self) -> str:
        """Return in words which questions of the kind were asked."""
        if self.problem:
            return f"not evaluated: {self.problem}"
        return f"sample of {' and '.join(map(str, self.samples))}" if self.samples else "all compared"


class _Refused(AuthzError):
    """A policy rejects all questions of a kind."""

    def __init__(self, reason: AuthzError, is_new: bool):
        self.is_new = is_new
        super().__init__(f"{'the new' if is_new else 'the active'} policy cannot answer this query: {reason.message}")


@dataclass
class PolicyComparison:
    sides: tuple[Snapshot, Snapshot]
    sampler: Sampler
    deadline: float
    most: int  # differing answers to keep, of each kind

    def compared(self, kinds: list[QuestionKind]) -> list[Compared]:
        """Compare each kind within its share of the time, as one question or by values.

        The remaining time is shared again by the kinds with values that were not asked about yet.
        """
        found: dict[QuestionKind, Compared] = {}
        partial: dict[QuestionKind, _ByValues] = {}
        for index, kind in enumerate(kinds):
            until = self._share(kinds[index:])
            whole = self._whole(kind, until) if self._is_small or not kind.places else None
            if whole is not None:
                found[kind] = whole
            elif kind.places and time.monotonic() < self.deadline:
                partial[kind] = _ByValues(self, kind, *self.sampler.anchor(kind))
                partial[kind].go_on(until)
        self._go_on(list(partial.values()))
        found |= {kind: each.compared() for kind, each in partial.items()}
        return [found.get(kind) or Compared(kind, Tally(0), problem=_LATE) for kind in kinds]

    def _share(self, kinds: list[QuestionKind]) -> float:
        """Return when the first kind's share of the time ends; decisions get more than other kinds."""
        weights = [_WEIGHT if kind.is_decision else 1 for kind in kinds]
        now = time.monotonic()
        return now + max(0.0, self.deadline - now) * weights[0] / sum(weights)

    def _go_on(self, partial: list[_ByValues]) -> None:
        while (partial := [each for each in partial if each.has_more]) and time.monotonic() < self.deadline:
            for index, each in enumerate(partial):
                each.go_on(self._share([other.kind for other in partial[index:]]))

    @cached_property
    def _is_small(self) -> bool:
        """Return whether there are few enough facts to ask all questions of a kind at once."""
        return count_up_to(_FEW_FACTS + 1, self.sides[0].numbers.values()) <= _FEW_FACTS

    def _whole(self, kind: QuestionKind, until: float) -> Compared | None:
        """Compare all questions of the kind as one; None if that is rejected, but smaller ones may not be."""
        tally, ask = Tally(self.most), self.both if kind.places else self.one_by_one
        try:
            tally.count(*ask(kind, {}, (until - time.monotonic()) / 2))
        except AuthzError as problem:
            if kind.places:
                return None
            reason = _LATE if isinstance(problem, QueryTooSlow) else problem.message
            return Compared(kind, tally, problem=reason, is_refused=isinstance(problem, _Refused) and problem.is_new)
        return Compared(kind, tally)

    def both(
        self, kind: QuestionKind, ids: Mapping[int, tuple[str, ...]], seconds: float
    ) -> tuple[set[AnswerRow], set[AnswerRow]]:
        """Return both policies' answers, for given ids at some of the positions."""
        old, new = (self._rows(session, kind, ids, seconds) for session in self.sides)
        return old, new

    def one_by_one(
        self, kind: QuestionKind, ids: Mapping[int, tuple[str, ...]], seconds: float
    ) -> tuple[set[AnswerRow], set[AnswerRow]]:
        """Like `both`, for given ids at all positions, with a question for each row: lists may be rejected."""
        until = time.monotonic() + max(seconds, _SHORTEST)
        found: tuple[set[AnswerRow], set[AnswerRow]] = (set(), set())
        for row in product(*(ids[place] for place in kind.places)):
            for is_new, rows in zip((False, True), found):
                if self._holds(is_new, kind, row, until):
                    rows.add(row)
        return found

    def _holds(self, is_new: bool, kind: QuestionKind, row: tuple[str, ...], until: float) -> bool:
        session = self.sides[is_new]
        left = until - time.monotonic()
        if left <= 0:
            raise QueryTooSlow(0)
        if not is_known(session.program, kind.predicate):
            return False
        ids = {place: (text,) for place, text in zip(kind.places, row)}
        try:
            with run.limited(left):
                return session.holds(kind.question(ids)._replace(outs=()))
        except (CannotEnumerate, UnboundVariable) as reason:
            raise _Refused(reason, is_new) from None

    def _rows(
        self, session: Snapshot, kind: QuestionKind, ids: Mapping[int, tuple[str, ...]], seconds: float
    ) -> set[AnswerRow]:
        if not is_known(session.program, kind.predicate):
            return set()
        return set(session.answers_within(kind.question(ids), MOST_ROWS, max(seconds, _SHORTEST)))


@dataclass
class _ByValues:
    """Compares a kind by the values of one variable, some at a time; `others` has values for other variables."""

    comparison: PolicyComparison
    kind: QuestionKind
    place: int
    values: Sample
    others: dict[int, Sample] = field(default_factory=dict)
    tally: Tally = field(init=False)
    asked: list[str] = field(default_factory=list)
    is_one_by_one: bool = False  # whether each question is asked separately
    skipped: int = 0
    size: int = 1
    reason: str = _LATE
    is_refused: bool = False

    def __post_init__(self):
        self.tally = Tally(self.comparison.most)

    @property
    def has_more(self) -> bool:
        return len(self.asked) + self.skipped < len(self.values.texts) and self.skipped < _MOST_SKIPPED

    def go_on(self, until: float) -> None:
        """Ask about values in growing batches until the time is over, but at least once."""
        while self.has_more:
            begun = time.monotonic()
            is_answered = self._ask_next(until - begun)
            if time.monotonic() > until:
                break
            if is_answered and (time.monotonic() - begun) * _STEPS < until - begun:
                self.size = min(2 * self.size, _MOST_AT_ONCE)

    def compared(self) -> Compared:
        asked = Sample(self.values.type, tuple(self.asked), self.values.among, self.values.is_traced)
        if not (self.asked or asked.is_all):
            return Compared(self.kind, self.tally, problem=self.reason, is_refused=self.is_refused)
        samples = (asked, *self.others.values())
        return Compared(self.kind, self.tally, () if all(each.is_all for each in samples) else samples)

    def _ask_next(self, seconds: float) -> bool:
        """Ask about the next values; return whether that was answered."""
        start = len(self.asked) + self.skipped
        chunk = self.values.texts[start : start + self.size]
        ids = {place: sample.texts for place, sample in self.others.items()}
        ask = self.comparison.one_by_one if self.is_one_by_one else self.comparison.both
        try:
            found = ask(self.kind, ids | {self.place: chunk}, seconds)
        except AuthzError as problem:
            self._retreat(problem)
            return False
        self.tally.count(*found)
        self.asked += chunk
        return True

    def _retreat(self, problem: AuthzError) -> None:
        """Choose how to continue after a rejection.

        If the answer cannot be listed, sample values for the other variables, then ask one by one. If it is too large,
        ask about fewer values at a time. If none of this is left to do, skip a value.
        """
        self.reason = _SLOW if isinstance(problem, QueryTooSlow) else problem.message
        self.is_refused = isinstance(problem, _Refused) and problem.is_new
        cannot_be_listed = isinstance(problem, CannotEnumerate | UnboundVariable)
        places = [place for place in self.kind.places if place not in (self.place, *self.others)]
        if cannot_be_listed and places:
            self.others = {place: self.comparison.sampler.sample(self.kind, place, _OTHERS) for place in places}
        elif cannot_be_listed and not self.is_one_by_one:
            self.is_one_by_one = True
        elif self.size > 1:
            self.size = max(1, self.size // 4)
        else:
            self.skipped += 1


# ---- Given questions, and where the answers of two policies to them differ ----------------------------------------

MOST_NAMED = 3  # questions of a batch to name


@dataclass(frozen=True)
class AskedTogether:
    """A batch of questions, or a pattern of facts from which each policy derives its own questions."""

    questions: tuple[Question, ...] = ()
    pattern: FactPattern | None = None
    context: Sequence[Fact] = ()

    @classmethod
    def of_goal(cls, goal: Goal) -> AskedTogether:
        return cls((question_of_goal(goal),))

    def of(self, session: Snapshot) -> Sequence[Question]:
        """Return the questions for the session, without those about predicates that its policy does not have.

        Such a predicate never holds.
        """
        questions = self.questions
        if self.pattern is not None and is_known(session.program, self.pattern.predicate):
            any_session: Any = session  # `questions_of` uses only its program and environment
            questions = tuple(questions_of(any_session, self.pattern, self.context))
        return [each for each in questions if all(is_known(session.program, name) for name, _ in each.calls)]

    def __str__(self) -> str:
        if self.pattern is not None:
            args = [None if arg.type is None else Value(arg.type, arg.id or ANY) for arg in self.pattern.args]
            return shown_atom(self.pattern.predicate, tuple(args))
        texts = [shown_question(question) for question in self.questions[:MOST_NAMED]]
        more = len(self.questions) - len(texts)
        return "; ".join([*texts, *([f"and {more:,} more"] if more else [])])

    @property
    def types(self) -> set[str]:
        """Return the types that the questions, the pattern and the context mention."""
        named = {arg.type for arg in self.pattern.args if arg.type} if self.pattern else set()
        facts = {arg.type for fact in self.context for arg in fact.args}
        return named.union(facts, *(question.types for question in self.questions))


def differing(sides: tuple[Snapshot, Snapshot], given: Sequence[AskedTogether], most: int) -> list[tuple[Goal, bool]]:
    """Return goals that hold on one side only, each with whether that is the new one.

    There are at most `most` of each question and direction. Each side has its own form of the question.
    """
    found: dict[tuple, tuple[Question, tuple[set[AnswerRow], set[AnswerRow]]]] = {}
    for is_new, session in enumerate(sides):
        for question in given[is_new].of(session):
            rows = found.setdefault(_key(question), (question, (set(), set())))[1]
            rows[is_new].update(session.answers(question))
    differ = []
    for question, rows in found.values():
        tally = Tally(most)
        tally.count(*rows)
        for row, is_new in tally.kept:
            goals = goals_of(question, row)
            differ += [(goal, is_new) for goal in goals if len(goals) == 1 or _differs(sides, goal)]
    return differ


def _differs(sides: tuple[Snapshot, Snapshot], goal: Goal) -> bool:
    before, after = (is_known(each.program, goal.predicate) and each.holds(question_of_goal(goal)) for each in sides)
    return before != after


def _key(question: Question) -> tuple:
    """Return the identity of a question; the context is the same for all."""
    return question.calls, tuple(question.variables.items()), question.outs


def shown_question(question: Question) -> str:
    """Return the question in Polar notation: `allow(User:ann, "read", Repo:_)`."""
    rows: AnswerRow = tuple([None] * len(question.outs))
    return " and ".join(shown_atom(goal.predicate, goal.args) for goal in goals_of(question, rows))
