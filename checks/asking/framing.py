"""Shapes -> statements of the stored facts, compiled once and framed by what must be confirmed.

The frame makes a question's statement carry the check of the caller's key, of the policy version that it was
compiled for, and of the signatures whose facts it reads, in the same snapshot as the facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from django.conf import settings

from checks.asking.open_policy import open_program
from checks.engine.compile import Compiled, Shape, compiled
from checks.engine.rules.clauses import Slot
from checks.engine.rules.ruleset import RuleSet
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.rounds import Rounds
from checks.engine.sql.text import Statement, Text
from facts.numbering import Numbering
from policy.active import GATE, program_of_version
from policy.rules.program import Program, Signature

IS_ANSWER, NEW_SIGNATURE = -1, -2  # in place of a policy version


class Setting(NamedTuple):
    """What a question is compiled for: an environment's policy version, asked with a key or from inside."""

    environment_id: int
    version: int | None
    needs_key: bool = True
    generation: int = 0  # how often statements turned out to be older than the signatures that they read

    def program(self, types: frozenset[str]) -> Program:
        return program_of_version(self.version) or open_program(types)

    def own(self, types: frozenset[str]) -> frozenset[str]:
        """What tells programs without a policy apart: the types that questions mention."""
        return types if self.version is None else frozenset()


class Ready(NamedTuple):
    """A compiled statement and how to read its rows. No statement: nothing can be true, whatever the facts."""

    statement: Statement | None
    rounds: tuple[Rounds, ...]
    width: int
    is_guarded: bool
    places: tuple[int, ...]  # of its questions, among those that it was asked for
    numbers: Mapping[Signature, int]  # of the facts that a request brings
    mark: int  # of the signatures that it was compiled for


UNANSWERED = Ready(None, (), 0, False, (), {}, 0)


# ---- compiled for a shape -------------------------------------------------------------------------------------


def ready_of(
    setting: Setting, types: frozenset[str], shape: Shape, places: tuple[int, ...], dialect: Dialect
) -> Ready:
    numbering = Numbering(setting.environment_id)
    made = compiled_here(setting, types, shape, dialect, numbering)
    assert shape.width or not made.is_guarded, "a question that nothing is asked of leaves no guard open"
    numbers = {signature: numbering.of(signature) for signature in shape.inline}
    return Ready(made.statement, made.rounds, shape.width, made.is_guarded, places, numbers, numbering.mark)


def compiled_here(
    setting: Setting, types: frozenset[str], shape: Shape, dialect: Dialect, numbering: Numbering
) -> Compiled:
    rulebook = rulebook_of(setting.version, types)

    def frame(rows: Text, columns: int) -> Text:
        gate, version = _gate(setting), _version(numbering, dialect)
        mine = dialect.same_number(("e.policy_version_id",), (Slot("version"),))
        if not shape.width:
            return _with_version(gate, version, mine, rows)
        return _beside_version(gate, version, mine, rows, columns)

    return compiled(rulebook, shape, dialect, numbering.of, frame, numbering.knows)


@lru_cache(maxsize=64)
def rulebook_of(version: int | None, types: frozenset[str]) -> RuleSet:
    """The rulebook of a version; without one, of what holds for questions that mention these types."""
    return RuleSet(program_of_version(version) or open_program(types), patience=settings.PLANNING_TIMEOUT)


# ---- frames ----------------------------------------------------------------------------------------------------


def _version(numbering: Numbering, dialect: Dialect) -> Text:
    """The active policy version, if the environment's signatures are what they were."""
    if not numbering.missing:
        return ("e.policy_version_id",)
    moved = ("e.signature_mark <> ", *dialect.number((Slot("mark"),)))
    return ("CASE WHEN ", *moved, f" THEN {NEW_SIGNATURE} ELSE e.policy_version_id END")


def _with_version(gate: Text, version: Text, mine: Text, truth: Text) -> Text:
    """One row while the key is good: the active policy version, and whether something is true under mine."""
    return ("SELECT ", *version, ", CASE WHEN ", *mine, " THEN (", *truth, ") END FROM ", *gate)


def _beside_version(gate: Text, version: Text, mine: Text, rows: Text, columns: int) -> Text:
    """The active policy version in a row of its own while the key is good, and the rows if it is mine."""
    first: Text = ("SELECT ", *version, f"{', NULL' * columns} FROM ", *gate)
    here: Text = ("EXISTS (SELECT 1 FROM ", *gate, " AND ", *mine, ")")
    return (*first, f" UNION ALL SELECT {IS_ANSWER}, x.* FROM (", *rows, ") x WHERE ", *here)


def _gate(setting: Setting) -> Text:
    # The environment is part of the check: the statement reads the facts of this one, whatever the key opens now.
    here = f"e.id = {int(setting.environment_id)}"
    if not setting.needs_key:
        return (f"environment e WHERE {here}",)
    before, after = GATE.split("%s")
    return (before, Slot("key"), f"{after} AND {here}")
