"""Asks about a program over given facts and nothing else: no environment, no key, nothing stored is seen."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django.conf import settings

from checks.asking import run
from checks.asking.prepared import Question, Values, inline_rows, root_of
from checks.engine.answers import Row, answers_of
from checks.engine.compile import Compiled, Shape, compiled
from checks.engine.rules.ruleset import RuleSet
from checks.errors import TestsTooSlow
from facts.wire import Fact
from policy.rules.program import Atom, Program, Signature
from policy.values import Value

TIME_LIMIT = 20.0  # seconds for all that is asked on one bench


@dataclass
class Bench:
    """A program with the signatures of the facts that it may be asked over: they are part of every shape."""

    program: Program
    inline: frozenset[Signature]
    rulebook: RuleSet = field(init=False)
    numbers: dict[Signature, int] = field(default_factory=dict)
    statements: dict[Shape, Compiled] = field(default_factory=dict)
    deadline: float = field(default_factory=lambda: time.monotonic() + TIME_LIMIT)

    def __post_init__(self):
        self.rulebook = RuleSet(self.program, patience=settings.PLANNING_TIMEOUT)

    def facts(self, atoms: Iterable[Atom]) -> str:
        """The facts of ground atoms, as statements read them."""
        return inline_rows([fact_of_atom(atom) for atom in atoms], self.number_of)

    def holds(self, question: Question, facts: str) -> bool:
        return bool(self.answers(question, facts))

    def answers(self, question: Question, facts: str) -> Sequence[Row]:
        slots: dict[str, object] = {"facts": facts, "now": int(time.time())}
        shape = Shape((root_of(question, Values(self.program.names, slots)),), len(question.outs), self.inline, False)
        made = self.statements.get(shape) or self._compiled(shape)
        if made.statement is None:
            return []
        if time.monotonic() > self.deadline:
            raise TestsTooSlow(TIME_LIMIT)
        rows = run.answer(made.statement, made.rounds, slots)
        if not shape.width:
            return [()] if rows[0][0] else []
        return answers_of(rows) if made.is_guarded else rows

    def _compiled(self, shape: Shape) -> Compiled:
        made = self.statements[shape] = compiled(self.rulebook, shape, run.dialect(), self.number_of)
        return made

    def number_of(self, signature: Signature) -> int:
        return self.numbers.setdefault(signature, len(self.numbers) + 1)


def fact_of_atom(atom: Atom) -> Fact:
    args = tuple([arg for arg in atom.args if isinstance(arg, Value)])
    assert len(args) == len(atom.args), "facts of tests are ground"
    return Fact(atom.predicate, args)
