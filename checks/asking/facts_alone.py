"""A session over given facts and nothing else: no environment, no key, no stored facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from checks.asking import run
from checks.asking.prepared import StatementKey, new_statements
from checks.asking.question import Question
from checks.asking.snapshot import Snapshot, cases_of_text
from checks.engine.answers import Row
from checks.errors import TestsTooSlow
from facts.accept import ALL_USED
from facts.numbering import NUMBERLESS
from facts.wire import Fact
from policy.rules.program import Atom, Program, Signature
from policy.values import Value

TIME_LIMIT = 20.0  # seconds for all that is asked in one session


@dataclass(eq=False)
class FactsAlone(Snapshot):
    """Asks over facts of given signatures; its statements are the same whatever the facts are."""

    @classmethod
    def of_signatures(cls, program: Program, inline: frozenset[Signature]) -> FactsAlone:
        cases, statements, now = cases_of_text(program), new_statements(), run.current_time()
        return cls(None, None, cases, (), inline, ALL_USED, NUMBERLESS, statements, patience=TIME_LIMIT, now=now)

    def over(self, atoms: Iterable[Atom]) -> FactsAlone:
        """Return the session over these facts, which are ground."""
        return replace(self, context=[fact_of_atom(atom) for atom in atoms], answered={})

    def answers(self, question: Question) -> Sequence[Row]:
        if self.is_late:
            raise TestsTooSlow(TIME_LIMIT)
        return super().answers(question)

    def check(self, key: StatementKey) -> None:
        """Refuse nothing: tests of a policy may ask about anything."""


def fact_of_atom(atom: Atom) -> Fact:
    args = tuple([arg for arg in atom.args if isinstance(arg, Value)])
    assert len(args) == len(atom.args), "facts of tests are ground"
    return Fact(atom.predicate, args)
