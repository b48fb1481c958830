"""Search for facts that make one goal true and another false, with more and more ids, until time is over."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from importlib.util import find_spec
from itertools import count, islice, pairwise
from math import inf
from operator import or_
from pathlib import Path
from threading import Lock

from checks.analysis.proofs import FACT, Bound, Slice, bound_of, is_contained
from checks.asking import run
from checks.asking.question import Asked, question_about
from checks.asking.snapshot import FactsAlone
from facts.wire import Fact
from policy.errors import AuthzError
from policy.rules.changes import ArgumentSet, AtomSet, head_of
from policy.rules.flatten import PredicateKey, key_of
from policy.rules.program import Now, Term
from policy.values import BOOLEAN, INTEGER, STRING, Value, quoted

# ---- Slices of policies as an answer set program over a finite universe of values -----------------------------------
#     has_role(actor, "reader", resource) if has_role(actor, "writer", resource);
#     p0(V0,7,V1) :- d1(V0); d2(V1); p0(V0,8,V1).
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
DECISIONS = "allow", "has_permission"
_UNLIKELY = {f"{FACT}{name}": 4 for name in DECISIONS}  # costs of facts that rules usually derive
# The free ids of a type are used in their order: a solution with others is the same but for their names. Changes of
# stored facts prefer few new ids.
_ALIKE = ":- free(M,T), free(N,T), M < N, used(N), not used(M). #minimize { 1@1,fresh,N : used(N), free(N,_), stored }."


class AnswerSetProgram:
    """Collects the text of a program. Predicates of several policies differ in their prefix; facts are shared."""

    def __init__(self, slices: Sequence[Slice], ids: Callable[[str], int], now: int, constants: Iterable[Value] = ()):
        """Make the universe, with so many free ids of a type."""
        self.now = Value(INTEGER, str(now))
        self.is_timed = any(part.reads_time for part in slices)
        known = {*constants, *(value for part in slices for value in part.values), *[self.now] * self.is_timed}
        lonely = reduce(or_, (part.isolated for part in slices))
        free: list[Value] = []
        isolated: list[Value] = []
        for name in {value.type for value in known}.union(*(slot.types for part in slices for slot in part.slots)):
            taken = {value.id for value in known if value.type == name}
            found = _ids_of(name, taken, ids(name), lonely[name], TIME_STEP if self.is_timed else STEP)
            for values, more in zip((free, isolated), found):
                values += (Value(name, each) for each in more)
        self.values = sorted({*known, *free, *isolated}, key=_order)
        self.numbers = {value: number for number, value in enumerate(self.values)}
        self.isolated = set(isolated)
        self.lines: dict[str, None] = {_ALIKE: None}
        self.predicates: dict[PredicateKey, int] = {}
        self.domains: dict[tuple[int, ...], int] = {}
        for each in free:
            if each.type not in (INTEGER, BOOLEAN):
                self.add(f"free({self.numbers[each]},{quoted(each.type)}).")

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def add(self, line: str) -> None:
        self.lines[line] = None

    def atom(self, prefix: str, key: PredicateKey, terms: Iterable[object]) -> str:
        return applied(f"{prefix}{self.predicates.setdefault(key, len(self.predicates))}", terms)

    def ground(self, prefix: str, fact: Fact) -> str:
        return self.atom(prefix, fact_key(fact), [self.numbers[arg] for arg in fact.args])

    def any_of(self, slots: Sequence[ArgumentSet]) -> tuple[list[str], str]:
        """Return a variable for each argument of a fact, and a body that says what it can be."""
        terms = [f"X{place}" for place in range(len(slots))]
        return terms, ", ".join(self.domain(slot, term, in_facts=True) for slot, term in zip(slots, terms))

    def domain(self, slot: ArgumentSet, term: object, in_facts: bool = False) -> str:
        """Return the atom that the term is one of the slot's values, or of those that facts may have."""
        values = self.numbers if slot.values is None else slot.values
        met = (value for value in values if value.type in slot.types and not (in_facts and value in self.isolated))
        numbers = tuple(sorted(self.numbers[value] for value in met))
        name = f"d{self.domains.setdefault(numbers, len(self.domains))}"
        self.add(applied(name, [";".join(map(str, numbers)) or "-1"]) + ".")  # no value has the number -1
        return applied(name, [term])

    # ---- rules ------------------------------------------------------------------------------------------

    def rules(self, part: Slice, prefix: str) -> None:
        for rule in part.all_rules:
            shown: dict[Term, object] = {name: f"V{place}" for place, name in enumerate(rule.slots)}
            shown |= self.numbers.items()
            shown[Now()] = "T"
            body = [self.domain(slot, shown[name]) for name, slot in rule.slots.items()]
            body += ["now(T)"] if Now() in rule.terms else []
            body += [f"{shown[each.left]} {each.operator} {shown[each.right]}" for each in rule.compares]
            for call in rule.calls:
                kind = "f" if call.goal in part.facts else prefix
                called = self.atom(kind, call.goal.key, [shown[term] for term in call.terms])
                body.append(f"{'not ' * call.is_not}{called}")
            head = self.atom(prefix, key_of(rule.head), [shown[term] for term in rule.head.args])
            self.add(f"{head} :- {', '.join(body)}.")

    # ---- facts and the current time -----------------------------------------------------------------------

    def chosen_facts(self, goal: AtomSet) -> None:
        """Let facts of a goal be chosen. Prefer as few changes as possible of the facts that are stored."""
        terms, body = self.any_of(goal.args)
        true, stored = (self.atom(prefix, goal.key, terms) for prefix in "fs")
        self.add(f"{{ {true} : {body} }}.")
        cost = _UNLIKELY.get(goal.predicate, 1)
        self.add(f"#minimize {{ {cost}@1,{true} : {true}, not {stored}; 1@1,{stored} : {stored}, not {true} }}.")
        self.use(true, terms)

    def stored_facts(self, stored: Iterable[Fact]) -> None:
        """Let these facts be kept or deleted."""
        self.add("stored.")
        for fact in stored:
            self.add(f"{self.ground('s', fact)}. {{ {self.ground('f', fact)} }}.")

    def use(self, atom: str, terms: Sequence[str]) -> None:
        """Make the atom, with variables as arguments, part of models, and its values used ones."""
        self.add(f"#show {atom.partition('(')[0]}/{len(terms)}.")
        for term in terms:
            self.add(f"used({term}) :- {atom}.")

    def moment(self, later: bool) -> None:
        """Set the current time; with `later`, it may also be any later one."""
        if (now := self.numbers.get(self.now)) is not None:
            moments = [n for n, value in enumerate(self.values) if value.type == INTEGER and n > now] if later else []
            self.add(f"1 {{ now({';'.join(map(str, [now, *moments]))}) }} 1. #show now/1.")
            self.add(f"#minimize {{ 20@1,later : not now({now}); 5@1,now : used({now}) }}.")


def _order(value: Value) -> tuple[object, ...]:
    return (0, int(value.id)) if value.type == INTEGER else (1, value)


def _ids_of(
    type_name: str, taken: set[str], free: int, isolated: int, step: int
) -> tuple[Iterable[str], Iterable[str]]:
    """Return free and isolated ids: user1, user2, …; for Strings other1, other2, …; numbers, and both Booleans."""
    if type_name == BOOLEAN:
        return ("false", "true"), ()
    if type_name == INTEGER:
        return _numbers(sorted(map(int, taken)), free, isolated, step)
    stem = "other" if type_name == STRING else type_name.rpartition("::")[2].lower()
    names = (name for number in count(1) if (name := f"{stem}{number}") not in taken)
    return list(islice(names, free)), list(islice(names, isolated))


def _numbers(constants: list[int], free: int, isolated: int, most: int) -> tuple[Iterable[str], Iterable[str]]:
    """Return free and isolated numbers below, between and above the constants.

    Free ones are at most so far from each other. If there are isolated ones, rules may tell how many numbers lie
    between two of facts: then free ones follow each other, on both sides of each constant, and isolated ones them.
    """
    if isolated and not constants:
        constants = [0]
    found, lonely, length = [*constants], list[int](), free * (isolated + 1)
    for low, high in pairwise([LEAST - 1, *constants, GREATEST + 1]):
        if high - low - 1 <= 2 * length + isolated:
            found += range(low + 1, high)
            continue
        step = 1 if isolated else min(most, (high - low) // (length + 1))
        ends = [(low, step)] * (low >= LEAST) + [(high, -step)] * (high <= GREATEST) or [(0, step)]
        for end, way in ends if isolated else ends[:1]:
            beside = [end + way * place for place in range(1, length + isolated + 1)]
            found += beside[:length]
            lonely += beside[length:]
    return map(str, found), map(str, lonely)


def fact_key(fact: Fact) -> PredicateKey:
    return f"{FACT}{fact.predicate}", len(fact.args)


def applied(name: str, terms: Iterable[object]) -> str:
    arguments = ",".join(map(str, terms))
    return f"{name}({arguments})" if arguments else name


# ---- the solver's process ------------------------------------------------------------------------------------------

SECONDS = 10.0  # time limit of a search
MEMORY = 2**30  # bytes of the solver's process
REQUEST_SECONDS, REQUEST_MEMORY = 4.0, 2**27  # while a request of the server waits
MOST_IDS = 12  # of a type, if there is no bound
ENOUGH = 2  # ids of each type that a search must reach to count
_SOLVER = Path(__file__).with_name("solver.py")
_turn = Lock()
AnswerSet = list[tuple[str, list[int]]]  # predicates and their arguments


class AnalysisUnavailable(AuthzError):
    """The solver is not installed, or another thread is searching: there is one search per process at a time."""


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

    def solve(self, program: str, seconds: float) -> tuple[AnswerSet | None, bool]:
        """Return the best model found within some of the time that is left, and whether the search was complete.

        A process that takes too much time or memory ends.
        """
        seconds = min(seconds, self.left)
        if seconds <= 0:
            return None, False
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-P", str(_SOLVER), str(self.memory), str(int(self.seconds) + 5)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([program, seconds]).encode() + b"\n")
            self._process.stdin.flush()
            model, is_complete = json.loads(self._process.stdout.readline())
            return model, is_complete
        except (OSError, ValueError):
            self._kill()
            return None, False

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def request_solver() -> Solver:
    return Solver(REQUEST_SECONDS, REQUEST_MEMORY)


# ---- claims and what is found about them ---------------------------------------------------------------------------

FOUND, PROVED = "found", "proved"
UNKNOWN = "unknown: the time or memory limit was reached first"  # nothing was searched completely


@dataclass(frozen=True)
class Witness:
    """Facts, and the goal's atom that they make true at the time `now`; `is_timed`: it may be false at others."""

    facts: tuple[Fact, ...]
    atom: Fact
    now: int
    is_timed: bool = False


@dataclass
class Claim:
    """That no facts make one slice's goal true and the other's false. Both are about the same values, except constants.

    `by_rules`: facts do not count that bypass rules, those of `allow` and `has_permission` for types of resources for
    which rules derive these. The goal is shown with the predicate `shown`. There is no `witness` against the claim with
    up to so many `ids` of each type; infinitely many: it is proved.
    """

    holds: Slice
    fails: Slice | None = None
    by_rules: bool = False
    shown: str = ""
    ids: float = 0
    witness: Witness | None = None

    @property
    def is_enough(self) -> bool:
        """Return whether the search counts as one that found nothing."""
        return self.ids >= ENOUGH

    @property
    def extent(self) -> str:
        if self.ids in (0, inf):
            return PROVED if self.ids else FOUND if self.witness else UNKNOWN
        return f"none with up to {self.ids} {'id' if self.ids == 1 else 'ids'} of each type"

    @property
    def slices(self) -> list[Slice]:
        return [self.holds, self.fails] if self.fails else [self.holds]

    @cached_property
    def bound(self) -> Bound | None:
        """Return how many ids of each type are enough; None if that is not known."""
        return bound_of(*self.slices)

    @property
    def few(self) -> int:
        """Return up to how many ids of each type a short search goes: as many as are enough, if that is known."""
        return max(ENOUGH, *self.bound.values()) if self.bound else ENOUGH

    @property
    def is_evident(self) -> bool:
        """Return whether the rules prove it, without a search."""
        return not self.holds.rules[self.holds.goal] or (self.fails is not None and is_contained(*self.slices))

    def program(self, most: int, now: int, stored: Sequence[Fact] | None = None) -> AnswerSetProgram:
        """Return the answer set program for at most so many ids of each type.

        With `stored` facts, it is about changes of these, now.
        """
        found = AnswerSetProgram(
            self.slices, lambda name: most if self.bound is None else min(most, self.bound[name]), now,
            [value for fact in stored or () for value in fact.args],
        )  # fmt: skip
        terms, body = found.any_of(self.holds.goal.args)
        goal = applied("goal", terms)
        found.add(f"1 {{ {goal} : {body} }} 1.")
        found.use(goal, terms)
        for prefix, operator, part in zip("pq", ("not ", ""), self.slices):
            found.rules(part, prefix)
            for fact in part.facts:
                found.chosen_facts(self._counted(fact))
            own = [found.numbers[value] if value else term for term, value in zip(terms, part.goal.values)]
            found.add(f":- {goal}, {operator}{found.atom(prefix, part.goal.key, own)}.")
        if stored is not None:
            found.stored_facts(stored)
        found.moment(later=stored is None)
        return found

    def _counted(self, facts: AtomSet) -> AtomSet:
        """Return the facts that count: those of decisions only for types of resources for which no rule derives any."""
        name = facts.predicate.removeprefix(FACT)
        if not self.by_rules or name not in DECISIONS:
            return facts
        rules = (part.program.rules_by_predicate.get((name, len(facts.args)), ()) for part in self.slices)
        derived = frozenset().union(*(head_of(rule).types[-1] for each in rules for rule in each))
        *others, last = facts.args
        return facts._replace(args=(*others, last.meet(ArgumentSet(last.types - derived))))

    def search(self, program: AnswerSetProgram, ids: int, solver: Solver, seconds: float) -> Witness | None:
        """Search for facts against the claim by its program for so many ids, and note what is found or how far."""
        model, is_complete = solver.solve(program.text, seconds)
        if model is not None:
            self.witness, self.ids = self.confirmed(model, program), 0
            return self.witness
        if is_complete:
            self.ids = inf if self.bound is not None and ids >= max(self.bound.values(), default=0) else ids
        return None

    def confirmed(self, model: AnswerSet, program: AnswerSetProgram) -> Witness:
        """Return what a model says, after the engine has confirmed it; raise `EngineDisagrees` if it does not."""
        names = {f"f{number}": predicate.removeprefix(FACT) for (predicate, _), number in program.predicates.items()}
        found = [(name, tuple(program.values[number] for number in numbers)) for name, numbers in model]
        facts = sorted((Fact(names[name], args) for name, args in found if name in names), key=str)
        others = dict(found)
        (moment,) = others.get("now", (program.now,))
        atom = Fact(self.shown or self.holds.goal.predicate, others["goal"])
        witness = Witness(tuple(facts), atom, int(moment.id), program.is_timed)
        for part, is_true in zip(self.slices, (True, False)):
            if holds(part, witness.facts, witness) != is_true:
                raise EngineDisagrees(
                    f"internal error: the solver finds that {part.goal.predicate} is {str(is_true).lower()} for "
                    f"{witness.atom} with the facts {{ {' '.join(f'{fact};' for fact in facts)} }}, but the engine "
                    "does not. Please report this with the policy"
                )
        return witness


class EngineDisagrees(AuthzError):
    """The engine answers otherwise than the solver: one of them is wrong."""


def holds(part: Slice, facts: Iterable[Fact], witness: Witness) -> bool:
    """Ask the engine whether the goal's atom about the witness's values, except constants, holds over these facts."""
    accepted = [fact for fact in facts if part.program.accepts(fact.predicate, fact.signature.types)]
    session = FactsAlone.of_signatures(part.program, frozenset(fact.signature for fact in accepted))
    args = [only or arg for only, arg in zip(part.goal.values, witness.atom.args)]
    question = question_about(part.goal.predicate, [Asked(arg.type, (arg.id,)) for arg in args])
    return replace(session, context=accepted, now=witness.now).holds(question)


def searched(claims: Sequence[Claim], solver: Solver, most: int = MOST_IDS) -> None:
    """Search for facts against each claim, with one more id in each round."""
    now, half = run.current_time(), solver.left / 2
    for claim in claims:
        if solver.left > half and claim.is_evident:  # the other half is for the search
            claim.ids = inf
    waiting = [claim for claim in claims if not claim.ids]
    for ids in range(1, most + 1):
        for place, claim in enumerate(waiting):
            if solver.left <= 0:
                return
            share = solver.left if ids == 1 else max(solver.left / (len(waiting) - place) * 2, 0.5)
            claim.search(claim.program(ids, now), ids, solver, share)
        waiting = [claim for claim in waiting if claim.ids == ids]
