"""Search for facts that make one goal true and another false, with more and more ids, until time is over.

The solver runs in a process of its own, with limits of time and memory: a policy can make its program very large.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from checks.analysis.proofs import (
    Bound,
    GoalPattern,
    GoalSlot,
    Slice,
    SlicedRule,
    bound_of,
    is_contained,
    sliced,
)
from policy.errors import AuthzError
from policy.rules.flatten import PredicateKey, terms_of
from policy.rules.program import Atom, Compare, Not, Now, Program, Term, Var
from policy.values import BOOLEAN, INTEGER, STRING, Value

# ---- Slices of policies as an answer set program over a finite universe of values -----------------------------------
#     has_role(actor, "reader", resource) if has_role(actor, "writer", resource);
#     p0(V0,7,V1) :- p0(V0,8,V1), d1(V0), d2(V1).
#
# Each value of the universe is a number; those of Integers come first and in their order, so that `<` compares them.
# `d1` has the values of a variable's types, `p0` stands for a predicate, `f0` for its facts. Facts are fixed, or chosen
# freely among those that the policy accepts.
#
# The universe has the constants of the rules, `k` ids of each type that facts may have, and *isolated* values, which no
# fact has: they stand for all the others. There are as many as one rule can tell apart, so each rule derives the same
# as over all values: what it derives from some isolated values, it derives from any others.

LEAST, GREATEST = -(2**63), 2**63 - 1
STEP = 10  # between free numbers, unless they may be times
TIME_STEP = 100_000_000  # seconds, about three years: a test with the numbers passes for a while


# ---- the universe -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Universe:
    """`values` in order; `isolated` has those of no fact, `free` those that are neither isolated nor a constant."""

    values: tuple[Value, ...]
    free: Mapping[str, tuple[Value, ...]]
    isolated: frozenset[Value]
    now: int
    numbers: Mapping[Value, int] = field(default_factory=dict)

    @classmethod
    def of(cls, slices: Sequence[Slice], ids: Mapping[str, int], now: int, constants: Iterable[Value] = ()) -> Universe:
        """Return the universe with so many free ids of each type; a type that is not named has none."""
        known = {value for part in slices for value in part.values} | set(constants)
        types = frozenset().union(*(part.types for part in slices))
        step = STEP
        if any(part.reads_time for part in slices):
            known.add(Value(INTEGER, str(now)))
            step = TIME_STEP
        free: dict[str, tuple[Value, ...]] = {}
        isolated = isolation(slices)
        others: set[Value] = set()
        for name in sorted(types | {value.type for value in known}):
            mine = {value.id for value in known if value.type == name}
            if name == INTEGER:
                numbers, lonely = _numbers(sorted(map(int, mine)), ids.get(name, 0), isolated[name], step)
                free[name] = tuple(Value(name, str(number)) for number in numbers)
                others |= {Value(name, str(number)) for number in lonely}
            elif name == BOOLEAN:
                free[name] = tuple(Value(name, text) for text in ("false", "true") if text not in mine)
            else:
                names = _names(name, mine)
                free[name] = tuple(Value(name, next(names)) for _ in range(ids.get(name, 0)))
                others |= {Value(name, f"{next(names)} (in no fact)") for _ in range(isolated[name])}
        whole = known | others | {value for values in free.values() for value in values}
        values = tuple(sorted(whole, key=lambda value: (value.type != INTEGER, _order(value))))
        numbers_of = {value: number for number, value in enumerate(values)}
        return cls(values, free, frozenset(others), now, numbers_of)

    def within(self, slot: GoalSlot) -> list[int]:
        """Return the numbers of the slot's values."""
        if slot.values is not None:
            return sorted(self.numbers[value] for value in slot.values if value.type in slot.types)
        return [number for value, number in self.numbers.items() if value.type in slot.types]


def _order(value: Value) -> tuple[object, ...]:
    return (int(value.id),) if value.type == INTEGER else (value.type, value.id)


def _names(type_name: str, taken: set[str]) -> Iterator[str]:
    """Yield ids that are not taken: user1, user2, …; for Strings other1, other2, …"""
    stem = "other" if type_name == STRING else type_name.rpartition("::")[2].lower()
    number = 0
    while True:
        number += 1
        if (name := f"{stem}{number}") not in taken:
            yield name


def _numbers(constants: list[int], count: int, isolated: int, most: int) -> tuple[list[int], list[int]]:
    """Return free and isolated numbers below, between and above the constants."""
    free: list[int] = []
    lonely: list[int] = []
    edges = [LEAST - 1, *constants, GREATEST + 1]
    wanted = count + isolated * (count + 1)
    for low, high in itertools.pairwise(edges):
        room = high - low - 1
        if room <= wanted:
            free += range(low + 1, high)
            continue
        places = _spread(low, high, wanted, bool(constants), most)
        is_free = [(index + 1) % (isolated + 1) == 0 for index in range(wanted)] if isolated else [True] * wanted
        free += [place for place, taken in zip(places, is_free) if taken]
        lonely += [place for place, taken in zip(places, is_free) if not taken]
    return free, lonely


def _spread(low: int, high: int, wanted: int, has_constants: bool, most: int) -> list[int]:
    step = min(most, (high - low) // (wanted + 1))
    if not has_constants:
        return [step * (index + 1) for index in range(wanted)]
    if low < LEAST:
        return [high - step * (wanted - index) for index in range(wanted)]
    return [low + step * (index + 1) for index in range(wanted)]


def isolation(slices: Sequence[Slice]) -> Counter[str]:
    """Return for each type how many values that no fact has one rule can tell apart.

    A variable can have such a value unless something binds it: a fact, a list, or a call whose rules all bind it.
    """
    found: Counter[str] = Counter()
    for part in slices:
        rules = part.all_rules
        open_places: set[tuple[PredicateKey, int]] = set()
        size = -1
        while size != len(open_places):
            size = len(open_places)
            for rule in rules:
                is_open = open_variables(rule, open_places)
                key = (rule.head.predicate, len(rule.head.args))
                open_places |= {(key, place) for place, term in enumerate(rule.head.args) if term in is_open}
        for rule in rules:
            counted: Counter[str] = Counter()
            for name in open_variables(rule, open_places):
                counted.update(rule.slots[name].types)
            found |= counted
    return found


def open_variables(rule: SlicedRule, open_places: set[tuple[PredicateKey, int]]) -> set[Var]:
    found = {name for name, slot in rule.slots.items() if slot.values is None}
    for literal in rule.body:
        atom = literal if isinstance(literal, Atom) else literal.atom if isinstance(literal, Not) else None
        if atom is None:
            continue
        key = (atom.predicate, len(atom.args))
        for place, term in enumerate(atom.args):
            is_bound = isinstance(literal, Atom) or term in rule.inner
            if isinstance(term, Var) and is_bound and (key, place) not in open_places:
                found.discard(term)
    return found


# ---- the program --------------------------------------------------------------------------------------------------


@dataclass
class ProgramWriter:
    """Collects the text of a program. Predicates of several policies differ in their prefix; facts are shared."""

    universe: Universe
    lines: dict[str, None] = field(default_factory=dict)
    predicates: dict[PredicateKey, int] = field(default_factory=dict)
    domains: dict[tuple[int, ...], int] = field(default_factory=dict)
    denials: int = 0

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def add(self, line: str) -> None:
        self.lines[line] = None

    def number(self, key: PredicateKey) -> int:
        return self.predicates.setdefault(key, len(self.predicates))

    def fact_name(self, key: PredicateKey) -> str:
        return f"f{self.number(key)}"

    def name(self, prefix: str, key: PredicateKey) -> str:
        return f"{prefix}{self.number(key)}"

    # ---- rules ------------------------------------------------------------------------------------------

    def rules(self, part: Slice, prefix: str) -> None:
        """Add the rules of the slice, and that accepted facts hold."""
        for rule in part.all_rules:
            self._rule(rule, prefix)
        for goal in part.rules:
            for slots in goal.meet(part.program.accepted.get(goal.key, ())):
                terms = [f"X{place}" for place in range(len(slots))]
                atoms = [atom(self.fact_name(goal.key), terms), *self._within(slots, terms)]
                self.add(f"{atom(self.name(prefix, goal.key), terms)} :- {', '.join(atoms)}.")

    def _rule(self, rule: SlicedRule, prefix: str) -> None:
        names = {name: f"V{index}" for index, name in enumerate(rule.slots)}
        body = [self._literal(lit, rule, names, prefix) for lit in rule.body]
        body += [f"{self.domain(slot)}({names[name]})" for name, slot in rule.slots.items() if name not in rule.inner]
        if any(isinstance(term, Now) for lit in rule.body for term in terms_of(lit)):
            body.append("now(T)")
        head = self._atom(rule.head, names, prefix)
        self.add(f"{head} :- {', '.join(body)}." if body else f"{head}.")

    def _literal(self, literal: object, rule: SlicedRule, names: Mapping[Var, str], prefix: str) -> str:
        match literal:
            case Atom():
                return self._atom(literal, names, prefix)
            case Compare(operator, left, right):
                return f"{self._term(left, names)} {operator} {self._term(right, names)}"
            case Not(called):
                inner = [term for term in dict.fromkeys(called.args) if isinstance(term, Var) and term in rule.inner]
                if not inner:
                    return f"not {self._atom(called, names, prefix)}"
                return f"not {self._projected(called, inner, rule, names, prefix)}"
        raise AssertionError(literal)

    def _projected(
        self, called: Atom, inner: Sequence[Var], rule: SlicedRule, names: Mapping[Var, str], prefix: str
    ) -> str:
        """Add a predicate that holds if some values of the inner variables make the atom true, and return its atom."""
        shared = [names[t] for t in dict.fromkeys(called.args) if isinstance(t, Var) and t not in inner]
        head = atom(f"some{self.denials}", shared)
        self.denials += 1
        whole = [self._atom(called, names, prefix)]
        whole += [f"{self.domain(rule.slots[name])}({names[name]})" for name in inner]
        if Now() in called.args:
            whole.append("now(T)")
        self.add(f"{head} :- {', '.join(whole)}.")
        return head

    def _atom(self, called: Atom, names: Mapping[Var, str], prefix: str) -> str:
        key = (called.predicate, len(called.args))
        return atom(self.name(prefix, key), [self._term(term, names) for term in called.args])

    def _term(self, term: Term, names: Mapping[Var, str]) -> str:
        match term:
            case Value():
                return str(self.universe.numbers[term])
            case Now():
                return "T"
        return names[term]

    def domain(self, slot: GoalSlot, only_free: bool = False) -> str:
        """Return the predicate that has the slot's values; `only_free` without those that are isolated."""
        isolated = {self.universe.numbers[value] for value in self.universe.isolated} if only_free else set()
        numbers = tuple(number for number in self.universe.within(slot) if number not in isolated)
        if numbers not in self.domains:
            self.domains[numbers] = len(self.domains)
            values = ";".join(map(str, numbers)) or "-1"  # no value has this number
            self.add(f"d{self.domains[numbers]}({values}).")
        return f"d{self.domains[numbers]}"

    def _within(self, slots: Iterable[GoalSlot], terms: Iterable[str], only_free: bool = False) -> list[str]:
        return [f"{self.domain(slot, only_free)}({term})" for slot, term in zip(slots, terms)]

    # ---- facts and the current time -----------------------------------------------------------------------

    def fact(self, predicate: str, row: Sequence[Value]) -> None:
        name = self.fact_name((predicate, len(row)))
        self.add(f"{atom(name, [str(self.universe.numbers[value]) for value in row])}.")

    def chosen_facts(
        self, part: Slice, costs: Mapping[str, int], never: frozenset[str] = frozenset(), letter: str = "f"
    ) -> None:
        """Let facts be chosen: all that the slice's policy accepts, and that can matter to its goals."""
        for goal in part.rules:
            if goal.predicate in never:
                continue
            for slots in goal.meet(part.program.accepted.get(goal.key, ())):
                terms = [f"X{place}" for place in range(len(slots))]
                chosen = atom(self.name(letter, goal.key), terms)
                self.add(f"{{ {chosen} }} :- {', '.join(self._within(slots, terms, only_free=True))}.")
            self.minimized(goal.key, costs.get(goal.predicate, 1), letter)

    def minimized(self, key: PredicateKey, cost: int, letter: str) -> None:
        """Prefer as few of these chosen facts as possible, and let models show them."""
        name, terms = self.name(letter, key), [f"X{place}" for place in range(key[1])]
        if not terms or f"#show {name}/{key[1]}." in self.lines:
            return
        self.add(f"#show {name}/{key[1]}.")
        self.add(f"#minimize {{ {cost}@1,{letter},{self.number(key)},{','.join(terms)} : {atom(name, terms)} }}.")
        self.add(f"#heuristic {atom(name, terms)} : {atom(name, terms)}. [1,false]")
        for term in terms:
            self.add(f"used({term}) :- {atom(name, terms)}.")

    def moment(self, later: bool) -> None:
        """Set the current time; with `later`, it may also be any later one."""
        now = Value(INTEGER, str(self.universe.now))
        if now not in self.universe.numbers:
            return
        number = self.universe.numbers[now]
        if later:
            moments = [n for v, n in self.universe.numbers.items() if v.type == INTEGER and n >= number]
            self.add(f"1 {{ now({';'.join(map(str, moments))}) }} 1.")
            self.add(f"#minimize {{ 20@1,later : not now({number}); 5@1,now : used({number}) }}.")
            self.add("#show now/1.")
        else:
            self.add(f"now({number}).")

    def symmetry(self) -> None:
        """Use the free ids of a type in their order: a solution with others is the same but for their names."""
        for name, values in self.universe.free.items():
            if name in (INTEGER, BOOLEAN):
                continue
            numbers = [self.universe.numbers[value] for value in values]
            for first, second in itertools.pairwise(numbers):
                self.add(f":- used({second}), not used({first}).")

    # ---- goals ---------------------------------------------------------------------------------------------

    def chosen_goal(self, goal: GoalPattern, without: Mapping[int, frozenset[Value]] | None = None) -> str:
        """Let one atom of the goal be chosen, up to the names of free ids, and return it in terms of variables."""
        terms = [f"X{place}" for place in range(len(goal.slots))]
        parts = []
        for place in range(len(goal.slots)):
            numbers = self._candidates(goal, place)
            excluded = {self.universe.numbers.get(value) for value in (without or {}).get(place, ())}
            domain = f"goal{place}"
            parts.append(f"{domain}(X{place})")
            for number in numbers:
                if number not in excluded:
                    self.add(f"{domain}({number}).")
            self.add(f"used(X{place}) :- {atom('goal', terms)}.")
        self.add(f"1 {{ {atom('goal', terms)} : {', '.join(parts)} }} 1." if parts else "goal.")
        self.add(f"#show goal/{len(terms)}.")
        return atom("goal", terms)

    def _candidates(self, goal: GoalPattern, place: int) -> list[int]:
        """Return the constants, and as many free ids of each type as earlier places may have used, and one more."""
        slot = goal.slots[place]
        if slot.values is not None:
            return self.universe.within(slot)
        found = []
        for name in slot.types:
            earlier = sum(name in other.types for other in goal.slots[:place] if other.values is None)
            free = self.universe.free.get(name, ())
            kept = free if name in (INTEGER, BOOLEAN) else free[: earlier + 1]
            constants = [v for v in self.universe.values if v.type == name and v not in self.universe.isolated]
            constants = [value for value in constants if value not in set(free)]
            found += [self.universe.numbers[value] for value in (*constants, *kept)]
        return sorted(found)


def atom(name: str, terms: Sequence[str]) -> str:
    return f"{name}({','.join(terms)})" if terms else name


SECONDS = 10.0  # time limit of a search
MEMORY = 2**30  # bytes of the solver's process
REQUEST_SECONDS, REQUEST_MEMORY = 4.0, 2**27  # while a request of the server waits
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


def request_solver() -> Solver:
    return Solver(REQUEST_SECONDS, REQUEST_MEMORY)


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
    found = atoms_in_model(model, writer)
    moments = [int(atom.args[0].id) for atom in found["now"] if isinstance(atom.args[0], Value)]
    goal = Atom(claim.holds.goal.predicate, found["goal"][0].args)
    then = next(iter(moments), now)
    moment = Value(INTEGER, str(then))
    is_timed = then != now or any(moment in each.args for each in (*found["f"], goal))
    return Witness(found["f"], goal, then, is_timed and bool(moments))


def atoms_in_model(model: Iterable[tuple[str, list[int]]], writer: ProgramWriter) -> dict[str, tuple[Atom, ...]]:
    """Return the atoms of a model by the letter of their predicate, such as `f` for facts; also `goal` and `now`."""
    predicates = {str(number): key[0] for key, number in writer.predicates.items()}
    found: dict[str, list[Atom]] = defaultdict(list)
    for name, numbers in model:
        letter = name.rstrip("0123456789")
        values = tuple(writer.universe.values[number] for number in numbers)
        found[letter].append(Atom(predicates.get(name.removeprefix(letter), name), values))
    return defaultdict(tuple, {letter: tuple(sorted(atoms, key=str)) for letter, atoms in found.items()})
