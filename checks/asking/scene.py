"""A program and the facts of one moment: where many small questions about one answer are asked.

Everything is read in one snapshot, so that what an explanation says holds together. Statements that are compiled for
a version are remembered; nothing is ever written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import count

from django.conf import settings

from checks.asking import run
from checks.asking.framing import rulebook_of
from checks.asking.open_policy import open_program
from checks.asking.prepared import Question, Values, by_ids, check_predicate, inline_rows, root_of
from checks.engine.answers import Row, answers_of
from checks.engine.compile import Compiled, Root, Shape, compiled
from checks.engine.rules.clauses import Slot
from checks.engine.rules.ruleset import RuleSet
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.text import Statement, finished, joined
from checks.explain.cases import Cases
from facts.accept import Unused, brought
from facts.batches import by_signature
from facts.numbering import numbers_as_of
from facts.wire import Fact
from policy.active import program_of_version
from policy.models import PolicyVersion
from policy.rules.program import Program, Signature
from policy.values import INTEGER, Value

TIME_LIMIT = 10.0  # seconds at most, after which nothing more is looked into
_MOST = 0.8
_MOST_STATEMENTS = 4096


@dataclass
class AskedCases(Cases):
    """Cases, and the statements that were compiled to ask them."""

    statements: dict[tuple, Compiled] = field(default_factory=dict)
    _stand_ins: dict[Signature, int] = field(default_factory=dict)
    _unused: Iterator[int] = field(default_factory=lambda: count(-1, -1))

    def stand_in(self, signature: Signature) -> int:
        """Return a number below zero, always the same, for a signature that has none: no signature has such a one."""
        return self._stand_ins.get(signature) or self._stand_ins.setdefault(signature, next(self._unused))

    def remember(self, key: tuple, made: Compiled) -> None:
        if len(self.statements) >= _MOST_STATEMENTS:
            self.statements.clear()
        self.statements[key] = made


@contextmanager
def scene(
    environment_id: int, version: int | None, context: Sequence[Fact], types: frozenset[str]
) -> Iterator[Scene]:
    """Over what a version (None: no policy) makes of an environment's facts and the context, as of now."""
    cases = cases_of(environment_id, version, types)
    with _opened(environment_id, cases, context, None if version is None else cases.program) as found:
        yield found


@contextmanager
def trial(environment_id: int, program: Program, context: Sequence[Fact]) -> Iterator[Scene]:
    """Over what a program that is not published makes of the same facts."""
    with _opened(environment_id, _trial_cases(program), context, program) as found:
        yield found


def _trial_cases(program: Program) -> AskedCases:
    return AskedCases(program, RuleSet(program, patience=settings.PLANNING_TIMEOUT))


@contextmanager
def _opened(
    environment_id: int, cases: AskedCases, context: Sequence[Fact], program: Program | None
) -> Iterator[Scene]:
    useful = brought(program, context, "context_facts")
    with run.question_time(), run.snapshot():
        mark, numbers = numbers_as_of(environment_id)
        yield Scene(environment_id, cases, useful.facts, numbers, mark, useful.unused)


@lru_cache(maxsize=64)
def cases_of(environment_id: int, version: int | None, types: frozenset[str]) -> AskedCases:
    """One for each environment: numbers of signatures are in its statements."""
    if version is None:
        return AskedCases(open_program(types), rulebook_of(version, types))
    number = PolicyVersion.objects.values_list("number", flat=True).get(pk=version)
    return AskedCases(program_of_version(version), rulebook_of(version, types), number)


def _patience() -> float:
    """Most of a question's time, so that what was found in it is told in the rest."""
    limit = settings.STATEMENT_TIMEOUT
    return min(TIME_LIMIT, limit * _MOST) if limit > 0 else TIME_LIMIT


@dataclass
class Scene:
    """`numbers` are those that the environment's signatures have, as long as it bears the `mark`.

    Of the context it has what the program has a use for; `unused` is the rest.
    """

    environment_id: int
    cases: AskedCases
    context: Sequence[Fact]
    numbers: Mapping[Signature, int]
    mark: int
    unused: Unused
    now: int = field(default_factory=lambda: int(time.time()))
    patience: float = field(default_factory=_patience)  # seconds, after which nothing more is looked into
    started: float = field(default_factory=time.monotonic)
    answered: dict[tuple, list[tuple]] = field(default_factory=dict)
    dialect: Dialect = field(default_factory=run.dialect)

    @property
    def program(self) -> Program:
        return self.cases.program

    def of(self, program: Program) -> Scene:
        """The scene of another program over the same facts, as of the same moment."""
        return replace(self, cases=_trial_cases(program), answered={})

    @property
    def is_late(self) -> bool:
        return time.monotonic() > self.started + self.patience

    def number_of(self, signature: Signature) -> int:
        """Nothing is stored under a signature that has no number yet; a number of its own stands in for it."""
        return self.numbers.get(signature) or self.cases.stand_in(signature)

    @cached_property
    def brought(self) -> frozenset[Fact]:
        """The facts of the context, made once: one out of JSON is made again each time that it is looked at."""
        return frozenset(self.context)

    @cached_property
    def inline(self) -> frozenset[Signature]:
        return frozenset(by_signature(self.context))

    @property
    def moment(self) -> Value:
        """The current time of its questions."""
        return Value(INTEGER, str(self.now))

    def slots(self) -> dict[str, object]:
        """What every statement may read, to which its own values are added."""
        return {"now": self.now} | ({"facts": self._facts} if self.context else {})

    @cached_property
    def _facts(self) -> str:
        return inline_rows(self.context, self.number_of)

    # ---- asking ------------------------------------------------------------------------------------------

    def rows(self, root: Root, width: int, slots: dict[str, object], most: int = 0) -> list[Row]:
        """What makes the root true; None or the empty id stands for any value. At most so many rows."""
        made = self._compiled(Shape((root,), width, self.inline, True, most=most))
        found = self._run(made, slots)
        if made.statement is None:
            return []
        if not width:
            return [()] if found[0][0] else []
        if made.is_guarded:
            return [row[2:] for row in found if row[1]][: most or None]
        return found

    def holds(self, question: Question) -> bool:
        return bool(self.answers(question))

    def answers(self, question: Question) -> Sequence[Row]:
        """The rows of a question, in order. None stands for every value."""
        return sorted(self._answers(question), key=by_ids)

    def first_answers(self, question: Question, most: int) -> Sequence[Row]:
        """So many at most, in no order, some more than once; not remembered, as they may be many."""
        return self._answers(question, most)

    def _answers(self, question: Question, most: int = 0) -> Sequence[Row]:
        for predicate, _ in question.calls:
            check_predicate(self.program, predicate)
        if not all(map(self.program.knows, question.types)):
            return []
        slots = self.slots()
        root = root_of(question, Values(self.program.names, slots))
        made = self._compiled(Shape((root,), len(question.outs), self.inline, True, most=most))
        if made.statement is None:
            return []
        found = run.answer(made.statement, made.rounds, slots) if most else self._run(made, slots)
        if not question.outs:
            return [()] if found[0][0] else []
        return answers_of(found) if made.is_guarded else found

    def place_of(self, fact: Fact) -> str | None:
        """Where a fact is found: in the context, stored, or nowhere."""
        if fact in self.brought:
            return "context"
        number = self.numbers.get(fact.signature)
        if number is None or not self.program.accepts(fact.predicate, fact.signature.types):
            return None
        key = (number, *[arg.id for arg in fact.args])
        if key not in self.answered:
            slots: dict[str, object] = {f"a{index}": arg.id for index, arg in enumerate(fact.args)}
            self.answered[key] = run.execute(_lookup(number, len(fact.args), self.dialect), slots)
        return "stored" if self.answered[key] else None

    # ---- statements ----------------------------------------------------------------------------------------

    def _run(self, made: Compiled, slots: dict[str, object]) -> list[tuple]:
        """In one snapshot, what was asked before is answered as before."""
        if made.statement is None:
            return []
        if made.rounds:
            return run.answer(made.statement, made.rounds, slots)
        key = (made.statement.sql, *made.statement.values(slots))
        if key not in self.answered:
            self.answered[key] = run.execute(made.statement, slots)
        return self.answered[key]

    def _compiled(self, shape: Shape) -> Compiled:
        key = (self.mark, self.dialect, shape)
        made = self.cases.statements.get(key)
        if made is None:
            knows = self.numbers.__contains__
            made = compiled(self.cases.rulebook, shape, self.dialect, self.number_of, knows=knows)
            self.cases.remember(key, made)
        return made


@lru_cache(maxsize=4096)
def _lookup(number: int, arity: int, dialect: Dialect) -> Statement:
    """Whether there is a fact of the signature with this number, by all of its ids."""
    known = joined(" AND ", ((f"a{index} = ", Slot(f"a{index}")) for index in range(arity)))
    return finished((f"SELECT 1 FROM fact WHERE sig = {int(number)} AND ", *known), dialect.placeholder)
