"""Search for facts that make one goal true and another false, with more and more ids, until time is over."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from importlib.util import find_spec
from itertools import count, islice, pairwise
from pathlib import Path
from threading import Lock
from typing import Any

from checks.analysis.proofs import Bound, Slice, SlicedRule, bound_of, is_contained, isolation
from checks.asking import run
from checks.asking.question import Asked, question_about
from checks.asking.snapshot import FactsAlone, fact_of_atom
from policy.errors import AuthzError
from policy.rules.changes import ArgumentSet, AtomSet
from policy.rules.flatten import PredicateKey, key_of, terms_of
from policy.rules.program import Atom, Compare, Not, Now, Program, Term, Types
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
_UNLIKELY = {"allow": 4, "has_permission": 4}  # costs of facts that policies accept, but that rules usually derive

Derived = Mapping[PredicateKey, Types]  # the types of their last arguments

# ---- the universe -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Universe:
    """`values` in order; `isolated` has those of no fact, `free` the ids that differ in nothing but their names."""

    values: tuple[Value, ...]
    free: Sequence[Sequence[Value]]  # by type, without Integers and Booleans
    isolated: frozenset[Value]
    now: int

    @cached_property
    def numbers(self) -> Mapping[Value, int]:
        return {value: number for number, value in enumerate(self.values)}

    @classmethod
    def of(cls, slices: Sequence[Slice], ids: Mapping[str, int], now: int, constants: Iterable[Value] = ()) -> Universe:
        """Return the universe with so many free ids of each type; a type that is not named has none."""
        known = {value for part in slices for value in part.values} | set(constants)
        is_timed = any(part.reads_time for part in slices)
        if is_timed:
            known.add(Value(INTEGER, str(now)))
        counts = isolation(slices)
        chosen, isolated, free = set(known), set[Value](), []
        for name in {value.type for value in known}.union(*(part.types for part in slices)):
            taken = {value.id for value in known if value.type == name}
            if name == BOOLEAN:
                names, others = ["false", "true"], list[str]()
            elif name == INTEGER:
                numbers = sorted(map(int, taken))
                names, others = _numbers(numbers, ids.get(name, 0), counts[name], TIME_STEP if is_timed else STEP)
            else:
                names, others = _names(name, taken, ids.get(name, 0), counts[name])
                free.append([Value(name, each) for each in names])
            chosen.update(Value(name, each) for each in names)
            isolated.update(Value(name, each) for each in others)
        return cls(tuple(sorted(chosen | isolated, key=_order)), free, frozenset(isolated), now)

    def within(self, slot: ArgumentSet) -> list[int]:
        """Return the numbers of the slot's values."""
        if slot.values is not None:
            return sorted(self.numbers[value] for value in slot.values)
        return [number for value, number in self.numbers.items() if value.type in slot.types]


def _order(value: Value) -> tuple[object, ...]:
    return (0, int(value.id)) if value.type == INTEGER else (1, value)


def _names(type_name: str, taken: set[str], count_of_free: int, isolated: int) -> tuple[list[str], list[str]]:
    """Return free and isolated ids: user1, user2, …; for Strings other1, other2, …"""
    stem = "other" if type_name == STRING else type_name.rpartition("::")[2].lower()
    names = (name for number in count(1) if (name := f"{stem}{number}") not in taken)
    return list(islice(names, count_of_free)), [f"{name} (in no fact)" for name in islice(names, isolated)]


def _numbers(constants: list[int], count_of_free: int, isolated: int, most: int) -> tuple[list[str], list[str]]:
    """Return free and isolated numbers below, between and above the constants.

    Free ones are at most so far from each other. If there are isolated ones, rules may tell how many numbers lie
    between two of facts: then free ones follow each other.
    """
    free: list[int] = []
    lonely: list[int] = []
    for low, high in pairwise([LEAST - 1, *constants, GREATEST + 1]):
        length = count_of_free * (isolated + 1)
        if high - low - 1 <= 2 * length + isolated:
            free += range(low + 1, high)
        elif isolated:
            for start in _run_starts(low, high, length):
                free += range(start, start + length)
                beside = (*range(start - isolated, start), *range(start + length, start + length + isolated))
                lonely += (each for each in beside if low < each < high)
        else:
            step = min(most, (high - low) // (length + 1))
            start = min(high, step * (length + 1)) - step * (length + 1) if low < LEAST else low
            free += (start + step * place for place in range(1, length + 1))
    return list(map(str, free)), list(map(str, dict.fromkeys(lonely)))


def _run_starts(low: int, high: int, length: int) -> list[int]:
    """Return where runs of numbers begin: one next to each end that is a constant; without constants, one anywhere."""
    starts = [*([low + 1] if low >= LEAST else []), *([high - length] if high <= GREATEST else [])]
    return starts or [STEP]


# ---- the program --------------------------------------------------------------------------------------------------


@dataclass
class ProgramWriter:
    """Collects the text of a program. Predicates of several policies differ in their prefix; facts are shared."""

    universe: Universe
    lines: dict[str, None] = field(default_factory=dict)
    predicates: dict[PredicateKey, int] = field(default_factory=dict)
    domains: dict[tuple[int, ...], int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def add(self, line: str) -> None:
        self.lines[line] = None

    def atom(self, prefix: str, key: PredicateKey, terms: Iterable[object]) -> str:
        return applied(f"{prefix}{self.predicates.setdefault(key, len(self.predicates))}", terms)

    def ground(self, prefix: str, fact: Atom) -> str:
        return self.atom(prefix, key_of(fact), [self.universe.numbers[arg] for arg in values_of(fact)])

    def any_of(self, slots: Sequence[ArgumentSet], in_facts: bool = False) -> tuple[list[str], str]:
        """Return a variable for each argument, and a body that says what it can be."""
        terms = [f"X{place}" for place in range(len(slots))]
        return terms, ", ".join(self.domain(slot, term, in_facts) for slot, term in zip(slots, terms))

    def domain(self, slot: ArgumentSet, term: str, in_facts: bool = False) -> str:
        """Return the atom that the term is one of the slot's values, or of those that facts may have."""
        isolated = {self.universe.numbers[value] for value in self.universe.isolated} if in_facts else set()
        numbers = tuple(number for number in self.universe.within(slot) if number not in isolated)
        name = f"d{self.domains.setdefault(numbers, len(self.domains))}"
        self.add(applied(name, [";".join(map(str, numbers)) or "-1"]) + ".")  # no value has the number -1
        return applied(name, [term])

    # ---- rules ------------------------------------------------------------------------------------------

    def rules(self, part: Slice, prefix: str) -> None:
        """Add the rules of the slice, and that accepted facts hold."""
        for rule in part.all_rules:
            self._rule(rule, prefix)
        for goal in part.rules:
            for slots in part.accepted(goal):
                terms, body = self.any_of(slots)
                conditions = filter(None, [self.atom("f", goal.key, terms), body])
                self.add(f"{self.atom(prefix, goal.key, terms)} :- {', '.join(conditions)}.")

    def _rule(self, rule: SlicedRule, prefix: str) -> None:
        names = {name: f"V{index}" for index, name in enumerate(rule.slots)}

        def term(each: Term) -> str:
            match each:
                case Value():
                    return str(self.universe.numbers[each])
                case Now():
                    return "T"
            return names[each]

        def atom(each: Atom) -> str:
            return self.atom(prefix, key_of(each), map(term, each.args))

        body = [self.domain(slot, names[name]) for name, slot in rule.slots.items() if name not in rule.inner]
        for literal in rule.body:
            match literal:
                case Atom():
                    body.append(atom(literal))
                case Compare(operator, left, right):
                    body.append(f"{term(left)} {operator} {term(right)}")
                case Not(denied):
                    inner = [each for each in rule.slots if each in rule.inner and each in denied.args]
                    domains = [self.domain(rule.slots[each], names[each]) for each in inner]
                    counted = f"{','.join(map(term, inner))} : {', '.join([atom(denied), *domains])}"
                    body.append(f"#count {{ {counted} }} = 0" if inner else f"not {atom(denied)}")
        if any(isinstance(each, Now) for literal in rule.body for each in terms_of(literal)):
            body.append("now(T)")
        self.add(f"{atom(rule.head)} :- {', '.join(body)}." if body else f"{atom(rule.head)}.")

    # ---- facts and the current time -----------------------------------------------------------------------

    def chosen_facts(self, part: Slice, never: Derived) -> None:
        """Let facts be chosen: all that the slice's policy accepts, except some, and that can matter to its goals.

        Prefer as few changes as possible of the facts that are stored.
        """
        for goal in part.rules:
            for *others, last in part.accepted(goal):
                kept = last.meet(ArgumentSet(last.types - never.get(goal.key, frozenset())))
                if not kept.types:
                    continue
                terms, body = self.any_of([*others, kept], in_facts=True)
                self.add(f"{{ {self.atom('f', goal.key, terms)} : {body} }}.")
            terms, _ = self.any_of(goal.args)
            true, stored = (self.atom(prefix, goal.key, terms) for prefix in "fs")
            self.add(f"#minimize {{ {_UNLIKELY.get(goal.predicate, 1)}@1,{true} : {true}, not {stored} }}.")
            self.add(f"#minimize {{ 1@1,{stored} : {stored}, not {true} }}.")
            self.add(f"#heuristic {true} : {true}, not {stored}. [1,false]")
            self.add(f"#show {true.partition('(')[0]}/{len(terms)}.")
            for term in terms:
                self.add(f"used({term}) :- {true}.")

    def stored_facts(self, stored: Iterable[Atom]) -> None:
        """Let stored facts be kept or deleted, and prefer few new ids."""
        for fact in stored:
            self.add(f"{self.ground('s', fact)}.")
            self.add(f"{{ {self.ground('f', fact)} }}.")
        for number in (self.universe.numbers[value] for values in self.universe.free for value in values):
            self.add(f"#minimize {{ 1@1,fresh,{number} : used({number}) }}.")

    def moment(self, later: bool) -> None:
        """Set the current time; with `later`, it may also be any later one."""
        now = self.universe.numbers.get(Value(INTEGER, str(self.universe.now)))
        if now is not None:
            moments = self.universe.within(ArgumentSet(frozenset((INTEGER,)))) if later else [now]
            self.add(f"1 {{ now({';'.join(str(number) for number in moments if number >= now)}) }} 1.")
            self.add(f"#minimize {{ 20@1,later : not now({now}); 5@1,now : used({now}) }}.")
            self.add("#show now/1.")

    def symmetry(self) -> None:
        """Use the free ids of a type in their order: a solution with others is the same but for their names."""
        for values in self.universe.free:
            for first, second in pairwise(self.universe.numbers[value] for value in values):
                self.add(f":- used({second}), not used({first}).")

    # ---- goals ---------------------------------------------------------------------------------------------

    def chosen_goal(self, goal: AtomSet) -> str:
        """Let one atom of the goal be chosen, and return it in terms of variables."""
        terms, body = self.any_of(goal.args, in_facts=True)
        chosen = applied("goal", terms)
        self.add(f"1 {{ {chosen} : {body} }} 1.")
        self.add(f"#show goal/{len(terms)}.")
        for term in terms:
            self.add(f"used({term}) :- {chosen}.")
        return chosen

    def wanted(self, prefix: str, goal: AtomSet) -> str:
        """Return the goal's atom for the chosen one, with its own constants."""
        only = [slot.only for slot in goal.args]
        return self.atom(
            prefix, goal.key, [f"X{n}" if v is None else self.universe.numbers[v] for n, v in enumerate(only)]
        )


def applied(name: str, terms: Iterable[object]) -> str:
    arguments = ",".join(map(str, terms))
    return f"{name}({arguments})" if arguments else name


def values_of(atom: Atom) -> list[Value]:
    return [arg for arg in atom.args if isinstance(arg, Value)]


# ---- the solver's process ------------------------------------------------------------------------------------------

SECONDS = 10.0  # time limit of a search
MEMORY = 2**30  # bytes of the solver's process
REQUEST_SECONDS, REQUEST_MEMORY = 4.0, 2**27  # while a request of the server waits
MOST_IDS = 12  # of a type, if there is no bound
ENOUGH = 2  # ids of each type that a search must reach to count
_SOLVER = Path(__file__).with_name("solver.py")


_turn = Lock()


class AnalysisUnavailable(AuthzError):
    """The solver is not installed, or another thread is searching: there is one search per process at a time."""


class OutOfLimits(Exception):
    """The solver's process took too much time or memory, and has ended."""


@dataclass
class Solver:
    """Runs programs in a process of its own, which is started when needed. A context manager, which ends it.

    `waits`: begin when another search of this process ends, instead of raising `AnalysisUnavailable` at once.
    """

    seconds: float = SECONDS
    memory: int = MEMORY
    waits: bool = False
    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Solver:
        if find_spec("clingo") is None:
            raise AnalysisUnavailable('clingo is not installed. Run `pip install "authz-project[analysis]"`.')
        if not _turn.acquire(timeout=self.seconds if self.waits else 0):
            raise AnalysisUnavailable("another analysis is running. Try again in a few seconds")
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
        process = self._process or self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps({"program": program, "seconds": seconds}).encode() + b"\n")
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(process.stdout.readline())
        except (OSError, ValueError):
            self._kill()
            raise OutOfLimits from None
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        limits = [str(self.memory), str(int(self.seconds) + 5)]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", str(_SOLVER), *limits],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return self._process

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
    UNKNOWN = "unknown: the time or memory limit was reached first"  # nothing was searched completely


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
        if self.verdict == Verdict.NONE:
            return f"none with up to {self.ids} {'id' if self.ids == 1 else 'ids'} of each type"
        return self.verdict.value


@dataclass
class Claim:
    """That no facts make one slice's goal true and the other's false. Both are about the same values, except constants.

    `never` has what no facts are chosen of. The goal is shown with the predicate `shown`.
    """

    holds: Slice
    fails: Slice | None = None
    never: Derived = field(default_factory=dict)
    shown: str = ""
    finding: Finding = Finding(Verdict.UNKNOWN)

    @property
    def slices(self) -> list[Slice]:
        return [self.holds, self.fails] if self.fails else [self.holds]

    @cached_property
    def bound(self) -> Bound | None:
        """Return how many ids of each type are enough; None if that is not known."""
        return bound_of(self.holds, self.fails)

    @property
    def is_proved(self) -> bool:
        """Return whether the rules show it, without a search."""
        goal = self.holds.goal
        if not self.holds.rules[goal] and not any(self.holds.accepted(goal)):
            return True
        return self.fails is not None and is_contained(self.holds, self.fails)

    def program(self, most: int, now: int, stored: Sequence[Atom] | None = None) -> ProgramWriter:
        """Return the answer set program for at most so many ids of each type.

        With `stored` facts, it is about changes of these, now.
        """
        types = frozenset().union(*(part.types for part in self.slices))
        ids = Counter({name: most if self.bound is None else min(most, self.bound[name]) for name in types})
        constants = [value for fact in stored or () for value in values_of(fact)]
        writer = ProgramWriter(Universe.of(self.slices, ids, now, constants))
        chosen = writer.chosen_goal(self.holds.goal)
        for prefix, part in zip("pq", self.slices):
            writer.rules(part, prefix)
            writer.chosen_facts(part, self.never)
            writer.add(f":- {chosen}, {'not ' if prefix == 'p' else ''}{writer.wanted(prefix, part.goal)}.")
        if stored is not None:
            writer.stored_facts(stored)
        writer.moment(later=stored is None)
        writer.symmetry()
        return writer

    def witness(self, model: Iterable[tuple[str, list[int]]], writer: ProgramWriter) -> Witness:
        """Return what a model says, after the engine has confirmed it."""
        now = writer.universe.now
        moments, atoms, facts = [], [], []
        predicates = {f"f{number}": predicate for (predicate, _), number in writer.predicates.items()}
        for name, numbers in model:
            values = tuple(writer.universe.values[number] for number in numbers)
            match name:
                case "now":
                    moments.append(values[0])
                case "goal":
                    atoms.append(Atom(self.holds.goal.predicate, values))
                case _:
                    facts.append(Atom(predicates[name], values))
        then = int(moments[0].id) if moments else now
        used = {value for each in (*facts, *atoms) for value in values_of(each)}
        soon = range(now, now + TIME_STEP)
        is_timed = bool(moments) and (then != now or any(v.type == INTEGER and int(v.id) in soon for v in used))
        found = Witness(tuple(sorted(facts, key=str)), atoms[0], then, is_timed)
        self.replay(found)
        return replace(found, atom=replace(found.atom, predicate=self.shown or found.atom.predicate))

    def replay(self, witness: Witness) -> None:
        """Raise `EngineDisagrees` unless the engine finds the same."""
        for part, expected in zip(self.slices, (True, False)):
            if self.holds_with(witness.facts, witness, part) != expected:
                raise EngineDisagrees(replace(witness, atom=_atom_of(part, witness)), expected)

    def holds_with(self, facts: Iterable[Atom], witness: Witness, part: Slice | None = None) -> bool:
        """Return whether the engine finds the goal true with other facts; by default, the one that is to hold."""
        part = part or self.holds
        return holds(part.program, facts, _atom_of(part, witness), witness.now)


def _atom_of(part: Slice, witness: Witness) -> Atom:
    args = tuple(slot.only or arg for slot, arg in zip(part.goal.args, witness.atom.args))
    return Atom(part.goal.predicate, args)


class EngineDisagrees(AuthzError):
    """The engine answers otherwise than the solver: one of them is wrong."""

    def __init__(self, witness: Witness, expected: bool):
        facts = " ".join(f"{fact};" for fact in witness.facts)
        super().__init__(
            f"internal error: the solver finds that {witness.atom} is {'true' if expected else 'false'} with the facts "
            f"{{ {facts} }}, but the engine does not. Please report this with the policy"
        )


def holds(program: Program, facts: Iterable[Atom], asked: Atom, now: int) -> bool:
    """Ask the engine whether an atom holds over these facts alone."""
    accepted = [fact for fact in facts if program.accepts(fact.predicate, tuple(arg.type for arg in values_of(fact)))]
    signatures = frozenset(fact_of_atom(fact).signature for fact in accepted)
    session = replace(FactsAlone.of_signatures(program, signatures).over(accepted), now=now)
    return session.holds(question_about(asked.predicate, [Asked(arg.type, (arg.id,)) for arg in values_of(asked)]))


def searched(claims: Sequence[Claim], solver: Solver, most: int = MOST_IDS) -> None:
    """Search for facts against each claim, with one more id in each round."""
    now = run.current_time()
    for claim in claims:
        if claim.is_proved:
            claim.finding = Finding(Verdict.PROVED)
    waiting = [claim for claim in claims if claim.finding.verdict != Verdict.PROVED]
    for ids in range(1, most + 1):
        left = []
        for place, claim in enumerate(waiting):
            if solver.left <= 0:
                return
            writer = claim.program(ids, now)
            share = solver.left if ids == 1 else max(solver.left / (len(waiting) - place) * 2, 0.5)
            try:
                answer = solver.solve(writer.text, share)
            except OutOfLimits:
                continue
            if answer["model"] is not None:
                claim.finding = Finding(Verdict.FOUND, ids, claim.witness(answer["model"], writer))
            elif answer["is_complete"]:
                is_proved = claim.bound is not None and ids >= max(claim.bound.values(), default=0)
                claim.finding = Finding(Verdict.PROVED if is_proved else Verdict.NONE, ids)
                left += [] if is_proved else [claim]
        waiting = left
