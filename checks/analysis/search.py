"""Search for facts that make one goal true and another false, with more and more ids, until time is over.

The solver runs in a process of its own, with limits of time and memory: a policy can make its program very large.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from checks.analysis.proofs import Bound, bound_of, is_contained
from checks.analysis.slices import GoalPattern, Slice, sliced
from checks.analysis.translate import ProgramWriter, Universe, atom, isolation
from policy.errors import AuthzError
from policy.rules.program import Atom, Program
from policy.values import INTEGER, Value

SECONDS = 10.0  # time limit of a search
MEMORY = 2**30  # bytes of the solver's process
MOST_IDS = 12  # of a type, if there is no bound
ENOUGH = 2  # ids of each type that a search must reach to count
IMPROVING = 1.0  # seconds in which smaller facts are searched, once some are found
_GRACE = 0.3  # seconds that an answer may be late: the solver looks at the clock only after it has read the program
_SOLVER = Path(__file__).with_name("solver.py")
_UNLIKELY = {"allow": 4, "has_permission": 4}  # costs of facts that policies accept, but that rules usually derive


class AnalysisMissing(AuthzError):
    """The solver is not installed."""

    def __init__(self) -> None:
        super().__init__('clingo is not installed. Run `pip install "authz-project[analysis]"`.')


class AnalysisBusy(AuthzError):
    """Another thread of this process is searching: there is one search per process at a time."""

    def __init__(self) -> None:
        super().__init__("another analysis is running. Try again in a few seconds")


_turn = Lock()


def is_available() -> bool:
    return find_spec("clingo") is not None


# ---- the solver's process ------------------------------------------------------------------------------------------


class OutOfLimits(Exception):
    """The solver's process took too much time or memory, and was killed."""


@dataclass
class Solver:
    """Runs programs in a process of its own, which is started when needed. A context manager, which ends it.

    `waits`: begin when another search of this process ends, instead of raising `AnalysisBusy` at once.
    """

    seconds: float = SECONDS
    memory: int = MEMORY
    waits: bool = False
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Solver:
        if not is_available():
            raise AnalysisMissing
        if not _turn.acquire(timeout=self.seconds if self.waits else 0):
            raise AnalysisBusy
        self.end = time.monotonic() + self.seconds
        return self

    def __exit__(self, *failure: object) -> None:
        try:
            self._kill()
        finally:
            _turn.release()

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def solve(self, program: str, seconds: float) -> dict[str, Any]:
        seconds = min(seconds, self.left)
        if seconds <= 0:
            raise OutOfLimits
        task = json.dumps({"program": program, "seconds": seconds, "improving": IMPROVING})
        process = self._process or self._start()
        try:
            assert process.stdin is not None
            process.stdin.write(task.encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(self._line(process, time.monotonic() + seconds + _GRACE))
        except (OutOfLimits, OSError, ValueError):
            self._kill()
            raise OutOfLimits from None
        if "failure" in answer:
            self._kill()
            raise OutOfLimits
        found: dict[str, Any] = answer
        return found

    def _start(self) -> subprocess.Popen[bytes]:
        limits = [str(self.memory), str(int(self.seconds) + 5)]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", str(_SOLVER), *limits],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return self._process

    def _line(self, process: subprocess.Popen[bytes], end: float) -> bytes:
        assert process.stdout is not None
        found, waiting = b"", select.poll()  # `select.select` fails in a server with more than 1,024 open files
        waiting.register(process.stdout, select.POLLIN)
        while not found.endswith(b"\n"):
            ready = waiting.poll(max(end - time.monotonic(), 0) * 1000)
            read = os.read(process.stdout.fileno(), 1 << 20) if ready else b""
            if not read:
                raise OutOfLimits
            found += read
        return found

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


# ---- claims and what is found about them ---------------------------------------------------------------------------


class Verdict(Enum):
    FOUND = "found"
    PROVED = "proved"
    NONE = "none found"  # with the ids searched
    UNKNOWN = "unknown"  # nothing was searched completely


@dataclass(frozen=True)
class Witness:
    """Facts, and the goal's atom that they make true at the time `now`; `is_timed` if it may be false at others."""

    facts: tuple[Atom, ...]
    atom: Atom
    now: int
    is_timed: bool = False


@dataclass(frozen=True)
class Finding:
    """`ids` tells up to how many ids of each type the search was complete."""

    verdict: Verdict
    ids: int = 0
    witness: Witness | None = None

    @property
    def is_enough(self) -> bool:
        """Return whether the search counts as one that found nothing."""
        return self.verdict == Verdict.PROVED or (self.verdict == Verdict.NONE and self.ids >= ENOUGH)

    @property
    def extent(self) -> str:
        match self.verdict:
            case Verdict.PROVED:
                return "proved"
            case Verdict.NONE:
                return f"none with up to {self.ids} {'id' if self.ids == 1 else 'ids'} of each type"
            case Verdict.UNKNOWN:
                return "unknown: the time or memory limit was reached first"
        return "found"


@dataclass(frozen=True)
class Side:
    program: Program
    goal: GoalPattern

    @cached_property
    def slice(self) -> Slice:
        return sliced(self.program, [self.goal])


@dataclass
class Claim:
    """That no facts make one goal true and the other false. Both are about the same values, except for constants.

    `without` has values that the goal's arguments do not have, `never` predicates of which no facts are stored.
    """

    holds: Side
    fails: Side | None = None
    without: Mapping[int, frozenset[Value]] = field(default_factory=dict)
    never: frozenset[str] = frozenset()
    finding: Finding = field(default_factory=lambda: Finding(Verdict.UNKNOWN))

    @property
    def sides(self) -> list[Side]:
        return [self.holds, self.fails] if self.fails else [self.holds]

    @cached_property
    def bound(self) -> Bound | None:
        """Return how many ids of each type are enough; None if that is not known."""
        holds, fails = [(side.slice, side.goal) if side else None for side in (self.holds, self.fails)]
        return bound_of(holds, fails, self.compares_isolated)

    @cached_property
    def compares_isolated(self) -> bool:
        return isolation([side.slice for side in self.sides])[INTEGER] > 0

    @property
    def is_proved(self) -> bool:
        """Return whether the rules show it, without a search."""
        if not self.holds.slice.rules[self.holds.goal] and not self.holds.slice.accepts(self.holds.goal):
            return True
        sides = self.holds, self.fails
        return sides[1] is not None and is_contained(sides[0].slice, sides[0].goal, sides[1].slice, sides[1].goal)

    def ids(self, most: int) -> Counter[str]:
        types = frozenset().union(*(side.slice.types for side in self.sides))
        return Counter({name: most if self.bound is None else min(most, self.bound[name]) for name in types})

    def is_enough(self, most: int) -> bool:
        return self.bound is not None and most >= max(self.bound.values(), default=0)

    def program(self, most: int, now: int) -> tuple[str, ProgramWriter]:
        """Return the answer set program for at most so many ids of each type, and what reads its models."""
        universe = Universe.of([side.slice for side in self.sides], self.ids(most), now)
        writer = ProgramWriter(universe)
        goal = self.holds.goal
        chosen = writer.chosen_goal(goal, self.without)
        for prefix, side in zip("pq", self.sides):
            writer.rules(side.slice, prefix)
            writer.chosen_facts(side.slice, _UNLIKELY, self.never)
            terms = [
                f"X{place}" if slot == other or slot.values is None or len(slot.values) > 1
                else str(universe.within(slot)[0])
                for place, (slot, other) in enumerate(zip(side.goal.slots, goal.slots))
            ]  # fmt: skip
            wanted = atom(writer.name(prefix, side.goal.key), terms)
            writer.add(f":- {chosen}, {'not ' if prefix == 'p' else ''}{wanted}.")
        writer.moment(later=True)
        writer.symmetry()
        return writer.text, writer


def searched(
    claims: Sequence[Claim], solver: Solver, now: int, check: Callable[[Claim, Witness], None], most: int = MOST_IDS
) -> None:
    """Search for facts against each claim, with one more id in each round. `check` replays what is found."""
    for claim in claims:
        if claim.is_proved:
            claim.finding = Finding(Verdict.PROVED)
    waiting = [claim for claim in claims if claim.finding.verdict != Verdict.PROVED]
    for ids in range(1, most + 1):
        left = []
        for place, claim in enumerate(waiting):
            if solver.left <= 0:
                return
            text, writer = claim.program(ids, now)
            share = solver.left if ids == 1 else max(solver.left / (len(waiting) - place) * 2, 0.5)
            try:
                answer = solver.solve(text, share)
            except OutOfLimits:
                continue
            if answer["model"] is not None:
                witness = _witness(answer["model"], writer, claim, now)
                check(claim, witness)
                claim.finding = Finding(Verdict.FOUND, ids, witness)
            elif answer["is_complete"]:
                is_proved = claim.is_enough(ids)
                claim.finding = Finding(Verdict.PROVED if is_proved else Verdict.NONE, ids)
                left += [] if is_proved else [claim]
        waiting = left
        if not waiting:
            return


def _witness(model: Iterable[tuple[str, list[int]]], writer: ProgramWriter, claim: Claim, now: int) -> Witness:
    found = atoms_of(model, writer)
    moments = [int(atom.args[0].id) for atom in found["now"] if isinstance(atom.args[0], Value)]
    goal = Atom(claim.holds.goal.predicate, found["goal"][0].args)
    then = next(iter(moments), now)
    moment = Value(INTEGER, str(then))
    is_timed = then != now or any(moment in each.args for each in (*found["f"], goal))
    return Witness(found["f"], goal, then, is_timed and bool(moments))


def atoms_of(model: Iterable[tuple[str, list[int]]], writer: ProgramWriter) -> dict[str, tuple[Atom, ...]]:
    """Return the atoms of a model by the letter of their predicate, such as `f` for facts; also `goal` and `now`."""
    predicates = {str(number): key[0] for key, number in writer.predicates.items()}
    found: dict[str, list[Atom]] = defaultdict(list)
    for name, numbers in model:
        letter = name.rstrip("0123456789")
        values = tuple(writer.universe.values[number] for number in numbers)
        found[letter].append(Atom(predicates.get(name.removeprefix(letter), name), values))
    return defaultdict(tuple, {letter: tuple(sorted(atoms, key=str)) for letter, atoms in found.items()})
