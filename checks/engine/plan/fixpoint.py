"""Plans with a table of answers: of recursions whose rules go on from an answer.

`"read" if "read" on "parent"`, listed, goes on from each folder that can be read to its children. The answers to all
goals are in one table, and a branch that goes on from a state's answers joins it. A tag of the answers stands for a
state and a variant. A branch has a variant for each one that it reads, so a fixpoint finds the variants of all states.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from checks.engine.plan.draft import Draft, Enclosing, bind
from checks.engine.plan.explore import Explored
from checks.engine.plan.plan import (
    AnswerArm,
    Answers,
    Branch,
    Continuation,
    End,
    Exit,
    Form,
    Jump,
    NonlinearRecursion,
    Plan,
    Same,
    Tagged,
    Variant,
)
from checks.engine.plan.states import Active, State
from checks.engine.plan.unfold import Unfolder
from checks.engine.plan.variants import guards_for, variant_of
from checks.engine.rules.clauses import Col, Operand, Term, Var, type_of
from checks.engine.values import value


def answering_plan(
    unfolder: Unfolder, name: str, width: int, explored: Explored, enclosing: Enclosing
) -> Plan | NonlinearRecursion:
    """Return the plan; or `NonlinearRecursion`, where a recursion must be evaluated in rounds first."""
    has_keys = enclosing.rounds is not None or any(state.key_count for state in explored.arms)
    work = _Work(unfolder, explored, enclosing, has_keys)
    for state in tuple(explored.arms):
        work.take(state)
    work.finish()
    if explored.nonlinear is not None:
        return explored.nonlinear
    exits = [end for end in explored.entry if isinstance(end, Exit)]
    seeds = tuple(end for end in explored.entry if isinstance(end, Jump))
    for jump in seeds:
        exits += [work.through(jump, jump.state, variant) for variant in work.variants.get(jump.state, ())]
    return Plan(
        name,
        width,
        tuple(exits),
        seeds if has_keys else (),
        tuple(work.moves) if has_keys else (),
        tuple(explored.arms),
        tuple(work.arms),
        tuple((explored.goal_tags[state], variant) for state, variant in work.tags),
        enclosing.fixed,
        Form.ANSWERS if enclosing.rounds is None else Form.ROUNDS,
    )


@value
class _Waiting:
    """A branch of the state `owner` that goes on from the answers of another state, or the same one."""

    owner: State
    keys: tuple[Operand, ...]
    end: Jump | Continuation


@dataclass
class _Work:
    """The work on the fixpoint: the tags found so far, and which branches wait for the answers of which state."""

    unfolder: Unfolder
    explored: Explored
    enclosing: Enclosing
    has_keys: bool
    tags: dict[tuple[State, Variant], int] = field(default_factory=dict)
    arms: dict[AnswerArm, None] = field(default_factory=dict)
    moves: dict[Jump, None] = field(default_factory=dict)
    waiting: dict[State, list[_Waiting]] = field(default_factory=dict)  # by the state whose answers are awaited
    variants: dict[State, list[Variant]] = field(default_factory=dict)
    todo: list[tuple[_Waiting, State, Variant]] = field(default_factory=list)
    inside: dict[Active, Enclosing] = field(default_factory=dict)  # what drafts that go on from an answer are inside of

    def take(self, state: State) -> None:
        """Note the state's branches: as answers if they end, as waiting if they go on."""
        number, keys = self.explored.goals[state], state.keys if self.has_keys else ()
        columns = tuple([Col(number, f"c{key.index}", key.type) for key in keys])
        for end in self.explored.arms[state]:
            branch = self.explored.from_goal(state, end.branch) if self.has_keys else end.branch
            self._note(state, columns, replace(end, branch=branch))

    def finish(self) -> None:
        """Go on with each waiting branch from each variant of the state that it waits for, until nothing is new."""
        while self.todo and not self.explored.nonlinear:
            waiting, called, variant = self.todo.pop()
            for end in self.explored.collected(self._gone_on(waiting, called, variant)):
                self._note(waiting.owner, waiting.keys, end)

    def _note(self, owner: State, keys: tuple[Operand, ...], end: End) -> None:
        self.unfolder.count()
        if isinstance(end, Exit):
            self._add(owner, keys, end)
            return
        self.moves[end if isinstance(end, Jump) else Jump(end.branch, end.state, end.keys)] = None
        waiting = _Waiting(owner, keys, end)
        self.waiting.setdefault(end.state, []).append(waiting)
        for state in self.explored.add(self.unfolder, end.state, self.enclosing):
            self.take(state)
        self.todo += [(waiting, end.state, variant) for variant in self.variants.get(end.state, ())]

    def _add(self, state: State, keys: tuple[Operand, ...], end: Exit) -> None:
        key = (state, variant_of(end, self.enclosing.fixed))
        if key not in self.tags:
            self.tags[key] = len(self.tags)
            self.variants.setdefault(state, []).append(key[1])
            self.todo += [(waiting, *key) for waiting in self.waiting.get(state, ())]
        self.arms[AnswerArm(self.tags[key], keys, end)] = None

    def _gone_on(self, waiting: _Waiting, called: State, variant: Variant) -> Iterator[End | NonlinearRecursion]:
        if isinstance(waiting.end, Jump):
            return iter((self.through(waiting.end, called, variant),))
        return self._continued(waiting.owner, waiting.end, called, variant)

    def _joined(self, end: Jump | Continuation, called: State, variant: Variant) -> tuple[int, Branch]:
        """Return the branch joined with the called state's answers of that variant, and the number of that source."""
        number = self.unfolder.numbers.source()
        keys = end.keys if self.has_keys else ()
        same = tuple(Same(Col(number, f"c{index}", type_of(key)), key) for index, key in enumerate(keys))
        conditions = (*end.branch.conditions, Tagged(number, self.tags[called, variant]), *same)
        return number, Branch((*end.branch.sources, Answers(number)), conditions)

    def through(self, jump: Jump, called: State, variant: Variant) -> Exit:
        """Return the exit that passes on the called state's answers of that variant as they are."""
        number, branch = self._joined(jump, called, variant)
        types = list(map(type_of, called.outs))
        names = tuple(Var(k, type=name) for k, name in enumerate(types))
        firsts = {second: first for first, second in variant.same}
        outs: tuple[Term, ...] = tuple(
            names[firsts.get(k, k)] if k in variant.wild else Col(number, f"o{k}", name) for k, name in enumerate(types)
        )
        known = {name: out for name, out in zip(names, outs) if not isinstance(out, Var)}
        return Exit(branch, outs, tuple(guards_for(variant, names, known)))

    def _continued(
        self, owner: State, end: Continuation, called: State, variant: Variant
    ) -> Iterator[End | NonlinearRecursion]:
        """Return the ends of what is left of the branch, from the called state's answers of that variant on."""
        number, branch = self._joined(end, called, variant)
        known: dict[Var, Term] = {
            var: Col(number, f"o{k}", var.type) for k, var in enumerate(end.results) if k not in variant.wild
        }
        known |= {end.results[second]: end.results[first] for first, second in variant.same}
        pending = (*end.rest, *guards_for(variant, end.results, known))
        inside = self.inside.get(owner.active)
        if inside is None:
            inside = replace(self.enclosing, active=owner.active, may_jump=self.enclosing.rounds is not None)
            self.inside[owner.active] = inside
        draft = Draft(pending, end.outs, branch.sources, branch.conditions, inside)
        return self.unfolder.ends([bind(draft, known)])
