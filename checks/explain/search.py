"""Find proofs: for each goal a fact, or a rule with bindings of its variables."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from checks.asking.question import Values
from checks.asking.snapshot import GIVEN_UP, Snapshot
from checks.engine.compile import Root
from checks.engine.rules.clauses import Call, Const, Term, substituted
from checks.engine.rules.clauses import Var as EngineVar
from checks.errors import CannotEnumerate, UnboundVariable
from checks.explain.cases import ANY, Case, Goal, RuleBindings, RuleCondition, value_in
from facts.wire import Fact
from policy.rules.program import Atom, Compare, Var
from policy.values import Value

# ---- Bindings of variables for which conditions of a rule hold together -------------------------------------------
#     has_relation(doc, "folder", up) and has_role(user, "reader", up)      with doc = Doc:d and user = User:ann
#     ->  up = Folder:f

_FREE = 500  # first number of variables that are not asked for
_FEW = 8  # bindings from facts, up to this many, are followed one by one

Conditions = Sequence[RuleCondition]


def bindings_for(
    session: Snapshot, case: Case, known: RuleBindings, most: int, is_certain: bool = False
) -> list[RuleBindings] | None:
    """Return at most `most` bindings, including the known ones, for which the case holds; None if unknown.

    If the engine cannot list a variable's values, a value that nothing mentions is tried. `is_certain` means that the
    case is known to hold: if only one possibility is left, without unbound variables, it is returned unchecked.
    """
    questions = _Questions(session, case)
    starts, conditions = questions.starts(known, case.conditions)
    is_left = is_certain and len(starts) == 1
    found = [questions.extended(start, conditions, most, is_left) for start in starts]
    held = [each for some in found if some for each in some]
    return None if not held and None in found else held[:most]


def first_bindings(
    session: Snapshot, case: Case, known: RuleBindings, conditions: Conditions, are_listed: bool = True
) -> RuleBindings | None:
    """Return bindings for which these conditions hold; None if there are none.

    Variables stay unbound if the engine cannot list their values, or if `are_listed` is false.
    """
    questions = _Questions(session, case)
    starts, others = questions.starts(known, conditions)
    for start in starts:
        try:
            found = questions.answers(start, others, _unbound(others, start) if are_listed else (), 1)
        except CannotEnumerate:
            found = questions.answers(start, others, (), 1)
        if found:
            return found[0]
    return None


@dataclass(frozen=True, slots=True)
class _Questions:
    """Checks conditions of one case."""

    session: Snapshot
    case: Case

    def starts(self, known: RuleBindings, conditions: Conditions) -> tuple[list[RuleBindings], Conditions]:
        """Return bindings to start from, and the conditions left to check for each of them.

        Conditions that only facts can meet are checked first. If they leave few bindings, each is followed separately,
        so that derived conditions are only checked for given values. If they leave many, all conditions are checked at
        once.
        """
        facts = [each for each in conditions if self._is_met_by_facts_alone(each, known)]
        others = [each for each in conditions if each not in facts]
        if facts and any(isinstance(each.literal, Atom) for each in others):
            starts = self.answers(known, facts, _unbound(facts, known), _FEW + 1)
            if len(starts) <= _FEW:
                return starts, others
        return [known], conditions

    def extended(
        self, known: RuleBindings, conditions: Conditions, most: int, is_certain: bool
    ) -> list[RuleBindings] | None:
        """Return the known bindings extended by the conditions' other variables; None if these are unknown."""
        if _is_undecidable(conditions, known):
            return None
        wanted = _unbound(conditions, known)
        if is_certain and not wanted:
            return [known]
        try:
            if self._fails_at_once(known, conditions):
                return []
            return self.answers(known, conditions, wanted, most)
        except (CannotEnumerate, UnboundVariable):
            return self._with_any_value(known, conditions, wanted)

    def answers(
        self, known: RuleBindings, conditions: Conditions, wanted: Sequence[Var], most: int
    ) -> list[RuleBindings]:
        """Return the known bindings with values of the wanted variables for which the conditions hold."""
        if _is_undecidable(conditions, known):
            return []
        slots = self.session.slots()
        terms = self._terms(known, wanted, slots)
        literals = [substituted(each, terms) for condition in conditions for each in condition.asked]
        if not literals:
            return [known]
        calls = tuple([each for each in literals if isinstance(each, Call)])
        root = Root(calls, (), tuple([each for each in literals if not isinstance(each, Call)]))
        rows = self.session.rows(root, len(wanted), slots, most)
        types = self.case.types
        return [
            known | {variable: Value(types[variable], text or ANY) for variable, text in zip(wanted, row)}
            for row in dict.fromkeys(rows)
        ]

    def _is_met_by_facts_alone(self, condition: RuleCondition, known: RuleBindings) -> bool:
        cases = self.session.cases
        return isinstance(condition.literal, Atom) and not cases.of(cases.pattern_of_condition(condition, known))

    def _fails_at_once(self, known: RuleBindings, conditions: Conditions) -> bool:
        """Return whether the first of several atoms fails, regardless of the others.

        Checking it alone is cheap, and often repeated for the next goal of a recursion.
        """
        atoms = [each for each in conditions if isinstance(each.literal, Atom)]
        return len(atoms) > 1 and not self.answers(known, atoms[:1], (), 1)

    def _with_any_value(
        self, known: RuleBindings, conditions: Conditions, wanted: Sequence[Var]
    ) -> list[RuleBindings] | None:
        """Try values that nothing mentions; None if the conditions fail for them, since they may hold for others."""
        bindings = known | {variable: Value(self.case.types[variable], ANY) for variable in wanted}
        try:
            return self.answers(bindings, conditions, (), 1) or None
        except (CannotEnumerate, UnboundVariable):
            return None

    def _terms(self, known: RuleBindings, wanted: Sequence[Var], slots: dict[str, object]) -> dict[EngineVar, Term]:
        """Return the engine's term for each variable: its value, or a variable; wanted ones have the first numbers."""
        values = Values(self.session.program.names, slots)
        terms: dict[EngineVar, Term] = {}
        for variable, engine_variable in self.case.numbers.items():
            if variable in known:
                value = known[variable]
                terms[engine_variable] = Const(ANY) if value.id == ANY else values.one(value.type, value.id)
            elif variable in wanted:
                terms[engine_variable] = EngineVar(wanted.index(variable), variable.name)
            else:
                terms[engine_variable] = EngineVar(_FREE + engine_variable.number, variable.name)
        return terms


def _unbound(conditions: Conditions, known: RuleBindings) -> tuple[Var, ...]:
    return tuple(dict.fromkeys([each for condition in conditions for each in condition.binds if each not in known]))


def _is_undecidable(conditions: Conditions, known: RuleBindings) -> bool:
    """Return whether a condition compares by `<` or the like, and one of its sides may be any value."""
    of_any = {variable for variable, value in known.items() if value.id == ANY}
    for condition in conditions:
        match condition.literal:
            case Compare(operator, left, right) if operator not in ("=", "!="):
                if left in of_any or right in of_any:
                    return True
    return False


# ---- search -------------------------------------------------------------------------------------------------------
# Finds proofs: for each goal a fact, or a rule with bindings of its variables, one level at a time.
#
# A goal in a recursion may follow from itself, which proves nothing. Such goals are searched breadth first, by all
# rules at once, until facts or rules outside of the recursion prove the initial goal. So its proof is as short as
# possible, and never circular. All other goals take the first rule that holds.

MAX_GOALS = 2_000  # examined for one explanation
_MOST_AT_FIRST, _MOST_LATER = 20, (1_000, 50_000)  # bindings of one rule to examine


@dataclass(frozen=True, slots=True)
class ByFact:
    """The goal is a fact; `source` is "stored", or "context" for a context fact."""

    source: str


@dataclass(frozen=True, slots=True)
class ByRule:
    """The goal follows by a rule for these values of its variables."""

    case: Case
    bindings: RuleBindings = field(hash=False)


@dataclass(frozen=True, slots=True)
class Unexplained:
    """The goal holds, but no proof of it was found, for this reason."""

    reason: str


ProofStep = ByFact | ByRule | Unexplained
Proof = dict[Goal, ProofStep]


def proof_of(session: Snapshot, goals: list[Goal]) -> Proof:
    """Return a step for each of the goals, which must hold, and for all their premises; no goal follows from itself."""
    search = _Search(session)
    waiting, seen = list(reversed(goals)), set()
    while waiting:
        goal = waiting.pop()
        if goal not in seen:
            seen.add(goal)
            waiting += reversed(search.premises(search.step(goal)))
    return search.proof


def values_of(atom: Atom, call: Call, bindings: RuleBindings, now: Value) -> tuple[Value, ...]:
    """Return the values of the atom's arguments; an unbound variable is any value of its type."""
    terms = zip(atom.args, call.types)
    return tuple([value_in(bindings, arg, now) or Value(type_name, ANY) for arg, type_name in terms])


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules that may prove a goal that is not a fact, and the recursion that the goal is in."""

    cases: tuple[Case, ...]
    component: int | None


@dataclass
class _Search:
    session: Snapshot
    proof: Proof = field(default_factory=dict)
    looked_into: int = 0
    rules: dict[Goal, _Rules] = field(default_factory=dict)

    def step(self, goal: Goal) -> ProofStep:
        """Return the goal's step, searching for it unless another goal of its recursion has found it."""
        if goal not in self.proof:
            try:
                self._find(goal)
            except GIVEN_UP as reason:
                self.proof[goal] = Unexplained(self.session.gap_of(reason))
        return self.proof[goal]

    def _find(self, goal: Goal) -> None:
        if limit := self.limit_met():
            self.proof[goal] = limit
            return
        component = self.rules_about(goal).component
        if component is None:
            self.proof[goal] = self._first_step(goal)
        else:
            _RecursionSearch(self, component).find(goal)

    def premises(self, step: ProofStep) -> list[Goal]:
        """Return the atoms that a rule's step follows from, without its comparisons and negations."""
        if not isinstance(step, ByRule):
            return []
        now = self.session.moment
        return [
            Goal(condition.literal.predicate, values_of(condition.literal, condition.call, step.bindings, now))
            for condition in step.case.conditions
            if isinstance(condition.literal, Atom)
        ]

    def fact(self, goal: Goal) -> ByFact | None:
        """Return the step of a goal that is a fact, else None. The goal must hold."""
        self.looked_into += 1
        fact = Fact(goal.predicate, goal.args)
        if not self.rules_about(goal).cases:  # no rule applies, so it must be a fact; no query needed
            return ByFact("context" if fact in self.session.brought else "stored")
        source = self.session.place_of(fact)
        return ByFact(source) if source else None

    def steps(self, goal: Goal, most: int) -> Iterator[list[ByRule]]:
        """Yield for each case the steps by which it proves the goal, at most `most`.

        The goal holds and is not a fact. So if all other cases fail, the last one must hold, and needs no query.
        """
        matched = ((case, case.matched(goal.args)) for case in self.rules_about(goal).cases)
        heads = [(case, bindings) for case, bindings in matched if bindings is not None]
        others_fail = True
        for index, (case, bindings) in enumerate(heads, 1):
            found = bindings_for(self.session, case, bindings, most, is_certain=others_fail and index == len(heads))
            others_fail = others_fail and found == []
            yield [ByRule(case, each) for each in found or ()]

    def limit_met(self) -> Unexplained | None:
        """Return the limit that ends the search once one is reached, else None."""
        if self.looked_into >= MAX_GOALS:
            return Unexplained(f"the limit of {MAX_GOALS:,} goals was reached")
        return Unexplained(self.session.lateness) if self.session.is_late else None

    def rules_about(self, goal: Goal) -> _Rules:
        known = self.rules.get(goal)
        if known is None:
            cases = self.session.cases
            pattern = cases.pattern(goal)
            known = self.rules[goal] = _Rules(cases.of(pattern), cases.component(pattern))
        return known

    def _first_step(self, goal: Goal) -> ProofStep:
        if step := self.fact(goal):
            return step
        found = (step for steps in self.steps(goal, 1) for step in steps)
        return next(found, Unexplained("the rule has variables that nothing binds"))


@dataclass
class _PendingStep:
    """A step to a goal, and the goals of the same recursion that must be proved before it counts."""

    goal: Goal
    step: ByRule
    unproved: set[Goal]


@dataclass
class _RecursionSearch:
    """The search within one recursion. A goal is proved only by goals that were proved before it."""

    search: _Search
    component: int
    waiting: dict[Goal, list[_PendingStep]] = field(default_factory=dict)  # by the goal that is awaited
    cut: dict[Goal, None] = field(default_factory=dict)  # goals for which a rule has more steps than were examined

    def find(self, start: Goal) -> None:
        # Start with few bindings of each rule; try more only if these give no proof.
        proof = self.search.proof
        queue = deque([start])
        for most in (_MOST_AT_FIRST, *_MOST_LATER):
            seen = set(queue) | set(self.waiting)
            while queue and start not in proof:
                if limit := self.search.limit_met():
                    proof[start] = limit
                    return
                for goal in self._look_into(queue.popleft(), most):
                    if goal not in seen:
                        seen.add(goal)
                        queue.append(goal)
            if start in proof:
                return
            queue = deque(self.cut)
            self.cut.clear()
        proof[start] = Unexplained("the rules have variables that nothing binds")

    def _look_into(self, goal: Goal, most: int) -> Iterator[Goal]:
        """Prove the goal, or record the steps that await the proof of their premises; yield those premises."""
        if goal in self.search.proof:
            return
        if fact := self.search.fact(goal):
            self._prove(goal, fact)
            return
        for steps in self.search.steps(goal, most):
            if len(steps) >= most:
                self.cut[goal] = None
            for step in steps:
                self.search.session.check_time()
                unproved = {each for each in self.search.premises(step) if self._is_within(each)}
                waiting = _PendingStep(goal, step, unproved - self.search.proof.keys())
                if not waiting.unproved:
                    self._prove(goal, step)
                    return
                for premise in waiting.unproved:
                    self.waiting.setdefault(premise, []).append(waiting)
                yield from sorted(waiting.unproved, key=lambda each: each.args)

    def _is_within(self, goal: Goal) -> bool:
        return self.search.rules_about(goal).component == self.component

    def _prove(self, goal: Goal, step: ProofStep) -> None:
        """Assign the goal its step; then do the same for each goal with a step that waited for nothing else."""
        proved = [(goal, step)]
        while proved:
            goal, step = proved.pop()
            if goal in self.search.proof:
                continue
            self.search.proof[goal] = step
            for each in self.waiting.get(goal, ()):
                each.unproved.discard(goal)
                if not each.unproved:
                    proved.append((each.goal, each.step))
