"""Program -> for any pattern of call, the clauses that can make it true.

`Rulebook.alternatives` is what resolution unfolds: clauses with concrete types, without those that can never
hold, with chains of renaming rules (`"read" if "reader"; "reader" if "writer"`) walked to their ends, and with
alternatives that differ in one constant drawn together. Everything is remembered: a rulebook lives as long as
its program.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import RLock

from checks.engine.errors import TooComplex
from checks.engine.rules.calls import Calls, calls_made
from checks.engine.rules.clauses import (
    Call,
    Clause,
    Const,
    Literal,
    Neg,
    Pattern,
    Scan,
    Term,
    Var,
    canonical,
    is_bound,
    pattern_of,
    substituted,
)
from checks.engine.rules.limits import PATIENCE, Refusals, bounded, tick
from checks.engine.rules.linearise import BASE, based, is_transitive
from checks.engine.rules.merge import merged
from checks.engine.rules.separate import CORE, REACH, Hops, factored, factors_of, hop_of, leads, reach_clauses
from checks.engine.rules.specialise import concrete_clauses, head_typing, may_be
from checks.engine.rules.unify import applied
from policy.rules.components import Components
from policy.rules.program import Program, Rule, Signature
from policy.values import Value

TABLED = 0  # stands for a component: its members need not recurse


@dataclass
class Rulebook:
    program: Program
    _rules: dict[tuple[str, tuple[str, ...]], list[Rule]] = field(default_factory=dict)
    _rules_by_last: dict[tuple[str | int, ...], list[Rule]] = field(default_factory=dict)
    _raw: dict[Pattern, tuple[Clause, ...]] = field(default_factory=dict)
    _empty: set[Pattern] = field(default_factory=set)
    _closed: dict[Pattern, tuple[Clause, ...]] = field(default_factory=dict)
    _renamed: dict[Pattern, frozenset[Call]] = field(default_factory=dict)
    _reaches: dict[str, Hops] = field(default_factory=dict)
    _ways: dict[Pattern, int] = field(default_factory=dict)
    _made: dict[tuple[Pattern, bool], tuple[Clause, ...]] = field(default_factory=dict)
    tabled: set[Pattern] = field(default_factory=set)  # whose answers are tabled, lest their rules be multiplied out
    is_tabling: bool = False
    nonlinear: set[int] = field(default_factory=set)  # components that are known to need rounds
    may_sprawl: bool = False  # nothing more can be tabled
    patience: float = PATIENCE  # seconds of processor time for one plan
    lock: RLock = field(default_factory=RLock)  # for whoever plans: what is remembered must not be half written

    refused: Refusals = field(default_factory=Refusals)

    @contextmanager
    def planning(self, asked: Hashable) -> Iterator[None]:
        """Only one at a time plans with a rulebook, not for long, and not again what was refused a moment ago."""
        self.refused.again(asked)
        with self.lock, bounded(self.patience):
            self.refused.again(asked)
            try:
                yield
            except TooComplex as refused:
                self.refused.remember(asked, refused)
                raise

    # ---- what resolution asks ----------------------------------------------------------------------------

    def __post_init__(self) -> None:
        self._plain_components = Components(lambda pattern: _called(self._alternatives(pattern)), tick)
        self._components = Components(lambda pattern: _called(self.alternatives(pattern)), tick)
        self.calls = Calls(self.alternatives, self.component)

    def alternatives(self, pattern: Pattern, backward: bool = False) -> tuple[Clause, ...]:
        """The clauses of a call; `backward` where only the end of a way is known, not its start."""
        key = (pattern, backward and pattern.predicate.endswith(REACH))
        if key not in self._made:
            self._made[key] = tuple(self._make(pattern, key[1]))
        return self._made[key]

    def component(self, pattern: Pattern) -> int | None:
        """The number of the component that the pattern recurses in, if it does.

        A way that is no mere identity counts as one of its own: it is followed whole, not hop by hop in place.
        """
        if pattern in self.tabled:
            return TABLED
        number = self._components.number(pattern)
        if number is None and pattern.predicate.endswith(REACH) and any(c.body for c in self.alternatives(pattern)):
            return self._ways.setdefault(pattern, -1 - len(self._ways))
        return number

    def _make(self, pattern: Pattern, backward: bool) -> Iterable[Clause]:
        if pattern.predicate.endswith(REACH):
            hops = self._reaches[pattern.predicate]
            start, end = pattern.types
            return reach_clauses(pattern.predicate, (start, end), hops, backward)
        if pattern.predicate.endswith(CORE):
            whole = replace(pattern, predicate=pattern.predicate.removesuffix(CORE))
            component = self._plain_components.number
            return [clause for clause in self._alternatives(whole) if hop_of(clause, whole, component) is None]
        factors = factors_of(pattern, self._alternatives, self._plain_components.number)
        if factors is None:
            return self._alternatives(pattern)
        names = {index: self._reach_name(pattern.predicate, index, hops) for index, hops in factors.hops}
        return [
            clause
            for clause in factored(pattern, factors, names.__getitem__)
            if all(map(self._is_possible, calls_made((clause,))))
        ]

    def tabling(self, starts: Iterable[Pattern], in_rounds: bool) -> Rulebook:
        """A rulebook for questions about these, with answers tabled where several rules call for the same.

        Tabled answers are a relation of the statement, read by name; `in_rounds`, where that is too much for it.
        """
        times: dict[Pattern, int] = {}
        queue, seen = list(starts), set(starts)
        while queue:
            for pattern in calls_made(self.alternatives(queue.pop())):
                times[pattern] = times.get(pattern, 0) + 1
                if pattern not in seen:
                    seen.add(pattern)
                    queue.append(pattern)
        shared = (each for each, count in times.items() if count > 1 and self.component(each) is None)
        tabled = {each for each in shared if calls_made(self.alternatives(each)) and not self.calls.leans_on(each)}
        nonlinear = {TABLED} if in_rounds else set()
        return Rulebook(
            self.program,
            tabled=tabled,
            is_tabling=True,
            nonlinear=nonlinear,
            may_sprawl=in_rounds,
            patience=self.patience,
        )

    def _reach_name(self, predicate: str, index: int, hops: Hops) -> str:
        """The way's name: the same for the same hops, whatever predicate they are of."""
        for name, known in self._reaches.items():
            if all(known.get(kind, ways) == ways for kind, ways in hops.items()):
                known.update(hops)
                return name
        name = f"{predicate}.{index}.{len(self._reaches)}{REACH}"
        self._reaches[name] = dict(hops)
        return name

    def _is_possible(self, pattern: Pattern) -> bool:
        """Whether a core has clauses, or hops lead from one type to the other."""
        if not pattern.predicate.endswith(REACH):
            return bool(self.alternatives(pattern))
        return leads(self._reaches[pattern.predicate], *pattern.types)

    def is_stored(self, pattern: Pattern) -> bool:
        """Whether only facts can make the call true."""
        clauses = self._explored(pattern)
        return len(clauses) == 1 and len(clauses[0].body) == 1 and isinstance(clauses[0].body[0], Scan)

    # ---- clauses as the rules say, less what can never hold ------------------------------------------------

    def _explored(self, pattern: Pattern) -> tuple[Clause, ...]:
        if pattern not in self._raw:
            self._explore(pattern)
        return self._raw[pattern]

    def _explore(self, start: Pattern) -> None:
        found: dict[Pattern, list[Clause]] = {}
        queue = [start]
        while queue:
            tick()
            pattern = queue.pop()
            if pattern in found or pattern in self._raw:
                continue
            found[pattern] = self._rules_of(pattern)
            queue += [pattern_of(call) for clause in found[pattern] for call in _calls(clause)]
        self._empty |= self._never_true(found)
        for pattern, clauses in found.items():
            self._raw[pattern] = tuple(self._without_empty(clause) for clause in clauses if self._can_hold(clause))

    def _rules_of(self, pattern: Pattern) -> list[Clause]:
        if pattern.predicate.endswith(BASE):
            whole = replace(pattern, predicate=pattern.predicate.removesuffix(BASE))
            return [clause for clause in self._concrete(whole) if not is_transitive(clause, whole)]
        return self._with_bases(self._concrete(pattern), pattern)

    def _concrete(self, pattern: Pattern) -> list[Clause]:
        """The pattern's facts and rules as they are."""
        params = _params(pattern)
        clauses = []
        if self.program.accepts(pattern.predicate, pattern.types):
            clauses.append(Clause(params, (Scan(Signature(pattern.predicate, pattern.types), params),)))
        for rule in self._rules_for(pattern.predicate, pattern.types):
            if not _may_match(rule, pattern):
                continue
            for clause in concrete_clauses(self.program, rule, pattern.types):
                tick()
                made = applied(clause, params)
                if made is not None:
                    clauses.append(canonical(made))
        return list(dict.fromkeys(clauses))

    def _rules_for(self, predicate: str, types: tuple[str, ...]) -> list[Rule]:
        """The rules whose heads can have these types."""
        key = (predicate, types)
        if key not in self._rules:
            rules = self._rules_with_last(predicate, types)
            self._rules[key] = [rule for rule in rules if head_typing(rule, types) is not None]
        return self._rules[key]

    def _rules_with_last(self, predicate: str, types: tuple[str, ...]) -> list[Rule]:
        """Those whose last argument can have its type: of a large policy's many rules for a predicate, most cannot."""
        key: tuple[str | int, ...] = (predicate, len(types), *types[-1:])
        if key not in self._rules_by_last:
            rules = self.program.rules_by_predicate.get((predicate, len(types)), ())
            fitting = (rule for rule in rules if not types or may_be(rule, rule.head.args[-1], types[-1]))
            self._rules_by_last[key] = list(fitting)
        return self._rules_by_last[key]

    def _with_bases(self, clauses: list[Clause], pattern: Pattern) -> list[Clause]:
        """Transitive rules `p(x, z) if p(x, y) and p(y, z)` as `p(x, y) and base(y, z)`, where that says the same."""
        transitive = [clause for clause in clauses if is_transitive(clause, pattern)]
        others = [clause for clause in clauses if clause not in transitive]
        if any(call.predicate == pattern.predicate for clause in others for call in _calls(clause)):
            return clauses
        return others + [based(clause, pattern) for clause in transitive]

    def _never_true(self, found: dict[Pattern, list[Clause]]) -> set[Pattern]:
        """The patterns that no fact can make true: the least fixpoint of "some clause has only true calls"."""
        empty = set(found)
        while True:
            alive = {
                pattern
                for pattern in empty
                if any(
                    all(
                        pattern_of(call) not in empty and pattern_of(call) not in self._empty
                        for call in clause.body
                        if isinstance(call, Call)
                    )
                    for clause in found[pattern]
                )
            }
            if not alive:
                return empty
            empty -= alive

    def _can_hold(self, clause: Clause) -> bool:
        return not any(isinstance(call, Call) and pattern_of(call) in self._empty for call in clause.body)

    def _without_empty(self, clause: Clause) -> Clause:
        kept = (each for each in clause.body if not (isinstance(each, Neg) and pattern_of(each.call) in self._empty))
        return Clause(clause.params, tuple(kept))

    # ---- renaming rules walked to their ends ------------------------------------------------------------------

    def _alternatives(self, pattern: Pattern) -> tuple[Clause, ...]:
        if pattern not in self._closed:
            clauses, renamed = self._walk(pattern)
            self._renamed[pattern] = renamed
            clauses = [self._with_scans(clause) for clause in clauses]
            self._closed[pattern] = merged(self._undominated(list(dict.fromkeys(map(canonical, clauses)))))
        return self._closed[pattern]

    def _walk(self, pattern: Pattern) -> tuple[list[Clause], frozenset[Call]]:
        """Every clause at the end of a chain of renaming rules, and the calls that the chains go through."""
        params = _params(pattern)
        start = Call(pattern.predicate, pattern.types, params)
        seen, queue = {start}, [start]
        clauses: list[Clause] = []
        while queue:
            call = queue.pop(0)
            for clause in self._explored(pattern_of(call)):
                tick()
                made = applied(clause, call.args, params)
                if made is None:
                    continue
                renamed = _renamed(made) if made.params == params else None
                if renamed is None or self._hops_apart(pattern, renamed):
                    clauses.append(made)
                elif renamed not in seen:
                    seen.add(renamed)
                    queue.append(renamed)
        return clauses, frozenset(seen)

    def _hops_apart(self, pattern: Pattern, call: Call) -> bool:
        """Whether the call is of another predicate that hops: its recursion is factored where it is, not from here."""
        other = pattern_of(call)
        if call.predicate == pattern.predicate:
            return False
        return any(hop_of(clause, other, lambda _: None) for clause in self._explored(other))

    def _with_scans(self, clause: Clause) -> Clause:
        """Calls that only facts can make true, as scans of those facts."""
        return Clause(clause.params, tuple(self._as_scan(literal) for literal in clause.body))

    def _as_scan(self, literal: Literal) -> Literal:
        if isinstance(literal, Call) and self.is_stored(pattern_of(literal)):
            return Scan(Signature(literal.predicate.removesuffix(BASE), literal.types), literal.args)
        return literal

    def _undominated(self, clauses: list[Clause]) -> list[Clause]:
        """Without clauses whose one call is to a part of what another, otherwise equal clause calls."""
        groups: dict[tuple[tuple[Term, ...], tuple[Literal, ...]], list[tuple[int, Call]]] = {}
        for index, clause in enumerate(clauses):
            for place, literal in enumerate(clause.body):
                if isinstance(literal, Call):
                    rest = clause.body[:place] + clause.body[place + 1 :]
                    groups.setdefault((clause.params, rest), []).append((index, literal))
        dropped: set[int] = set()
        for group in groups.values():
            for index, call in group:
                tick()
                rivals = (other for rank, other in group if rank != index and rank not in dropped)
                if index not in dropped and any(call in self._parts(other) for other in rivals):
                    dropped.add(index)
        return [clause for index, clause in enumerate(clauses) if index not in dropped]

    def _parts(self, call: Call) -> set[Call]:
        """Calls that imply this one by renaming rules alone."""
        pattern = pattern_of(call)
        if pattern not in self._renamed:
            self._renamed[pattern] = self._walk(pattern)[1]
        terms = {param: arg for param, arg in zip(_params(pattern), call.args) if isinstance(param, Var)}
        return {substituted(each, terms) for each in self._renamed[pattern]}


def _may_match(rule: Rule, pattern: Pattern) -> bool:
    """Whether the constants of the rule's head are not others than the pattern's."""
    return all(
        const is None or not isinstance(term, Value) or const == Const(term.id)
        for term, const in zip(rule.head.args, pattern.consts)
    )


def _called(clauses: Iterable[Clause]) -> list[Pattern]:
    return list(dict.fromkeys(calls_made(clauses)))


def _params(pattern: Pattern) -> tuple[Term, ...]:
    return tuple(const or Var(i, type=name) for i, (const, name) in enumerate(zip(pattern.consts, pattern.types)))


def _calls(clause: Clause) -> list[Call]:
    return [each.call if isinstance(each, Neg) else each for each in clause.body if isinstance(each, (Call, Neg))]


def _renamed(clause: Clause) -> Call | None:
    """The body, where it is one call, whose arguments are the head's or constants."""
    match clause.body:
        case (Call() as call,) if all(is_bound(arg) or arg in clause.params for arg in call.args):
            return call
    return None
