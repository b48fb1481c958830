"""Why something does not hold: for each rule that could have granted it, how far it gets and what is missing.

A rule's conditions are tried from the first on; the obstacle is the first one that does not hold together with those
before it. What is missing is looked into in the same way, a few levels deep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from checks.asking.snapshot import Snapshot
from checks.engine.rules.clauses import Pattern
from checks.explain.bindings import met_by
from checks.explain.cases import Case, Condition, Env, value_in
from checks.explain.proof import Goal, proof_of
from checks.explain.proof_tree import tree_of
from checks.explain.tree import Node, bindings, shown_atom, shown_literal, written
from policy.rules.program import Atom, Not, Program, Rule
from policy.values import Value

MAX_LEVELS = 4  # of conditions that are missing because others are
MAX_OBSTACLES = 60  # rules that are tried
Args = tuple[Value | None, ...]  # None is unknown: no value of it does

@dataclass(frozen=True)
class _Attempt:
    """How far a case gets: its conditions that hold together, and values for which they do."""

    case: Case
    met: int
    env: Env


def obstacles_to(scene: Snapshot, goal: Goal) -> tuple[Node, ...]:
    """Why the goal does not hold; nothing where no rule is about it."""
    kind = scene.book.kind(goal.predicate, goal.args)
    return _Walk(scene).obstacles(kind, goal.args, MAX_LEVELS)


@dataclass
class _Walk:
    scene: Snapshot
    tried: int = 0
    seen: set[tuple[Pattern, Args]] = field(default_factory=set)

    @property
    def program(self) -> Program:
        return self.scene.program

    def obstacles(self, kind: Pattern, args: Args, levels: int) -> tuple[Node, ...]:
        self.seen.add((kind, args))
        best: dict[Rule, _Attempt] = {}
        is_cut = False
        for case in self.scene.book.cases(kind):
            env = case.bound(args)
            if env is None:
                continue
            if self.tried >= MAX_OBSTACLES or self.scene.is_late:
                is_cut = True
                break
            self.tried += 1
            attempt = self._attempt(case, env)
            if attempt is not None and (case.rule not in best or attempt.met > best[case.rule].met):
                best[case.rule] = attempt
        found = sorted(best.values(), key=lambda each: each.case.rule.origin.start)
        told = [self._obstacle(each, levels) for each in found]
        return (*told, self._more()) if is_cut else tuple(told)

    def _more(self) -> Node:
        note = f"it would take more than {MAX_OBSTACLES} rules, or {self.scene.patience:g} seconds"
        return Node("unexplained", "other rules", note=note)

    def _attempt(self, case: Case, env: Env) -> _Attempt | None:
        """None where the rule holds after all, which happens to parts of what does not."""
        found = env
        for met in range(1, len(case.conditions) + 1):
            more = met_by(self.scene, case, env, case.conditions[:met])
            if more is None:
                return _Attempt(case, met - 1, found)
            found = more
        return None

    def _obstacle(self, attempt: _Attempt, levels: int) -> Node:
        case, env = attempt.case, attempt.env
        met, failing = case.conditions[: attempt.met], case.conditions[attempt.met]
        return Node(
            "obstacle",
            written(self.program, case.rule).text,
            rule=written(self.program, case.rule),
            bindings=bindings(case, env),
            met=tuple([self._shown(each, env) for each in met]),
            because=(self._missing(case, failing, env, levels),),
        )

    def _missing(self, case: Case, failing: Condition, env: Env, levels: int) -> Node:
        match failing.literal:
            case Atom() as atom:
                return self._missing_atom(atom, failing, env, levels)
            case Not() as negation:
                below = self._presence(negation, env) if failing.asked else ()
                return Node("present", self._shown(failing, env), because=below)
        return Node("false", self._shown(failing, env))

    def _missing_atom(self, atom: Atom, failing: Condition, env: Env, levels: int) -> Node:
        args = tuple([value_in(env, arg, self.scene.moment) for arg in atom.args])
        kind = self.scene.book.kind_of_condition(failing, env)
        text = self._shown_atom(atom, args, kind.types, env)
        note, below = self._absence(kind, args, levels)
        known = tuple([arg for arg in args if arg is not None])
        is_whole = len(known) == len(args) and atom.predicate not in self.program.helpers
        return Node("missing", text, (atom.predicate, known) if is_whole else None, note=note, because=below)

    def _absence(self, kind: Pattern, args: Args, levels: int) -> tuple[str, tuple[Node, ...]]:
        """What is told of something missing, and why none of the rules about it grants it."""
        if kind.predicate in self.program.helpers:
            note = "does not hold"
        elif self.scene.book.cases(kind):
            note = "no such fact, nor does it follow"
        elif (kind.predicate, len(kind.types)) in self.program.rules_by_predicate:
            return "no such fact, and no rule grants it", ()
        else:
            return "no such fact", ()
        if (kind, args) in self.seen:
            return f"{note}, as above", ()
        if levels == 1:
            return f"{note}; not looked into further", ()
        return note, self.obstacles(kind, args, levels - 1)

    def _shown_atom(self, atom: Atom, args: Args, types: Sequence[str], env: Env) -> str:
        if atom.predicate in self.program.helpers:
            return shown_literal(self.program, atom, env, self.scene.now)
        return shown_atom(atom.predicate, tuple([arg or Value(kind, "") for arg, kind in zip(args, types)]))

    def _presence(self, negation: Not, env: Env) -> tuple[Node, ...]:
        """Why what must not hold does, where all of it is known."""
        atom = negation.atom
        args = [value_in(env, arg, self.scene.moment) for arg in atom.args]
        known = tuple([arg for arg in args if arg is not None])
        if len(known) < len(args):
            return ()
        goal = Goal(atom.predicate, known)
        return (tree_of(self.program, proof_of(self.scene, [goal]), goal, self.scene.now),)

    def _shown(self, condition: Condition, env: Env) -> str:
        return shown_literal(self.program, condition.literal, env, self.scene.now)
