"""The plan: what is read, joined and tested, independent of SQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property

from checks.engine.rules.clauses import (
    NOW,
    Call,
    Cmp,
    Col,
    Given,
    GoalKey,
    Literal,
    Member,
    Neg,
    Operand,
    Other,
    Slot,
    Term,
    Var,
    hashed_once,
    mapped,
    terms_of,
    value,
)
from policy.rules.components import reachable
from policy.rules.program import Signature

# ---- foreign ------------------------------------------------------------------------------------------------------
# Base classes for foreign sources and conditions: those of renderers for other databases.


@dataclass(frozen=True, slots=True)
class ForeignSource:
    number: int


class ForeignCondition:
    __slots__ = ()


# ---- states -------------------------------------------------------------------------------------------------------
# Recursive calls as states: columns become keys, so that calls that differ only in columns share a state.
#
# (y) of p(s1.a0, x) and q(x, y)   ->   the state (y) of p(c0, x) and q(x, y), entered with (s1.a0)

FAR = -1_000_000  # component of a non-recursive state, created because it is far from the entry

Active = tuple[tuple[int, int], ...]


@hashed_once
@value
class State:
    """A recursive call and what is resolved after it. `GoalKey`s stand for values of the branch that enters it.

    `active` are the components that the recursion is in, outermost first, each with the number of literals that were
    pending when it was entered. A later call of that component becomes a state if no more than that are pending.
    """

    call: Call
    rest: tuple[Literal, ...]
    outs: tuple[Term, ...]
    active: Active
    _hash: int = field(init=False, repr=False, compare=False)

    @property
    def keys(self) -> list[GoalKey]:
        terms = [term for literal in (self.call, *self.rest) for term in terms_of(literal)]
        found = {term.index: term for term in (*terms, *self.outs) if isinstance(term, GoalKey)}
        return [found[index] for index in range(len(found))]

    @property
    def key_count(self) -> int:
        return len(self.keys)

    @property
    def width(self) -> int:
        return len(self.outs)

    def __str__(self) -> str:
        asked = f"({', '.join(map(str, self.outs))}) of " if self.outs else ""
        return asked + " and ".join(map(str, (self.call, *self.rest)))


def state_of(
    call: Call,
    rest: tuple[Literal, ...],
    outs: tuple[Term, ...],
    active: Active,
    fixed: frozenset[Operand],
    with_values: bool = False,
) -> tuple[State, tuple[Operand, ...]]:
    """Return the state that the branch enters, and the operands for its keys.

    Columns except those in `fixed` become keys, and variables are renumbered. With `with_values`, the question's values
    in the call become keys, too, so that the state does not depend on them.
    """
    keys: dict[Operand, GoalKey] = {}
    names: dict[Var, Var] = {}
    typed = zip(call.args, call.types) if with_values else ()
    given = {arg: kind for arg, kind in typed if isinstance(arg, Slot) and arg != NOW}

    def general(term: Term) -> Term:
        if isinstance(term, Var):
            return names.setdefault(term, term.numbered(len(names)))
        if isinstance(term, Col) and term not in fixed:
            return keys.setdefault(term, GoalKey(len(keys), term.type))
        if isinstance(term, Slot) and term in given:
            return keys.setdefault(term, GoalKey(len(keys), given[term]))
        return term

    asked = tuple(map(general, outs))
    state = State(mapped(call, general), tuple(mapped(each, general) for each in rest), asked, active)
    return state, tuple(keys)


def before(active: Active, component: int) -> Active:
    """Return the active components that were entered before this one, without `FAR`."""
    entered = tuple(each for each in active if each[0] != FAR)
    numbers = [number for number, _ in entered]
    return entered[: numbers.index(component)] if component in numbers else entered


def innermost(active: Active) -> int:
    """Return the component that was entered last, without `FAR`."""
    return next(number for number, _ in reversed(active) if number != FAR)


# ---- The plan: what is read, joined and tested, independent of SQL ------------------------------------------------
# A `Branch` has sources to join and conditions to test; either may contain plans. A `Plan` has all branches of a
# question or subquery: those of its entry and, with recursion, those of the states that the recursion moves between.
# Plans print as text; equal plans are equal values.

# ---- sources: what a branch reads ---------------------------------------------------------------------------


@value
class FactScan:
    """The facts of a signature in one store; columns a0 … a4."""

    number: int
    signature: Signature
    store: str

    @property
    def is_row(self) -> bool:
        """Return whether its facts are rows of the tables of facts; if not, the store is a table of its own."""
        return self.store in ("stored", "inline")

    def __str__(self) -> str:
        return f"s{self.number} <- {self.store} {self.signature}"


@value
class Ids:
    """The values of a slot with several values; column `v`."""

    number: int
    slot: str
    are_many: bool = False

    def __str__(self) -> str:
        return f"s{self.number} <- {'many ' if self.are_many else ''}:{self.slot}"


@value
class Goals:
    """The goals that the plan reaches; columns `tag`, c0 …."""

    number: int

    def __str__(self) -> str:
        return f"s{self.number} <- goals"


@value
class Answers:
    """The answers that the plan has for its goals; columns `tag`, c0 …, o0 …."""

    number: int

    def __str__(self) -> str:
        return f"s{self.number} <- answers"


@value
class DerivedTable:
    """The answers of another plan for one variant; columns o0 … (or c0, see `Plan.column`)."""

    number: int
    plan: Plan
    variant: Variant

    @property
    def is_inside(self) -> bool:
        """Whether it mentions a row of the select that reads it, and so is a subquery there; all others are named."""
        return self.plan.form is not Form.ROUNDS and bool(self.plan.outer_columns)

    def __str__(self) -> str:
        return f"s{self.number} <- plan {self.plan.name}"


@dataclass(frozen=True, slots=True)
class Candidates:
    """The ids that facts have at these positions, `ids`, and the empty id, for any other one; column `v`."""

    number: int
    positions: tuple[ArgumentPosition, ...]
    ids: tuple[str, ...]

    def __str__(self) -> str:
        return f"s{self.number} <- ids at {', '.join(map(str, self.positions))}"


@dataclass(frozen=True, slots=True)
class Domain:
    """The ids of a type that the question's facts, rules and values mention, and placeholders for others; column `v`.

    `values` are those of the question: a `Given` has several. Of Integers, `near` ones on either side of each are read,
    too.
    """

    number: int
    type: str
    positions: tuple[ArgumentPosition, ...]
    ids: tuple[str, ...]
    values: tuple[Slot | Other | Given, ...]
    near: int = 0

    def __str__(self) -> str:
        return f"s{self.number} <- every {self.type}"


@dataclass(frozen=True, slots=True)
class ArgumentPosition:
    """A position among the arguments of a signature."""

    signature: Signature
    index: int

    def __str__(self) -> str:
        return f"{self.signature}.{self.index}"


PlanSource = FactScan | Ids | Goals | Answers | DerivedTable | Candidates | Domain | ForeignSource


# ---- conditions ---------------------------------------------------------------------------------------------


@value
class Same:
    left: Operand
    right: Operand

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"


@value
class Tagged:
    """The row has this tag: of goals, a state; of answers, a state with a variant."""

    source: int
    tag: int

    def __str__(self) -> str:
        return f"s{self.source}.tag in [{self.tag}]"


@value
class Holds:
    """The plan has an answer (if negated: none)."""

    plan: Plan
    negated: bool = False

    def __str__(self) -> str:
        return f"{'no ' if self.negated else ''}answer of plan {self.plan.name}"


Condition = Same | Member[Operand] | Cmp[Operand] | Tagged | Holds | ForeignCondition


# ---- branches and plans ------------------------------------------------------------------------------------------


@hashed_once
@value
class Branch:
    sources: tuple[PlanSource, ...] = ()
    conditions: tuple[Condition, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)

    def __str__(self) -> str:
        return "; ".join(map(str, (*self.sources, *self.conditions))) or "always"


@value
class Variant:
    """The answer columns that stand for every value (by position), and the negations that exclude some values.

    In `guards`, `Var(k)` is answer column k.
    """

    wild: frozenset[int] = frozenset()
    guards: tuple[Neg, ...] = ()
    same: tuple[tuple[int, int], ...] = ()  # wild columns that stand for the same value


@value
class Exit:
    """The end of a branch: its answer columns, with `Var(k)` if column k stands for every value."""

    branch: Branch
    outs: tuple[Term, ...]
    guards: tuple[Neg, ...] = ()

    def __str__(self) -> str:
        guards = "".join(f" unless {guard.call}" for guard in self.guards)
        return f"({', '.join(map(str, self.outs))}){guards} <- {self.branch}"


@value
class Jump:
    """A branch that continues in a state: its answers are the state's answers, column for column."""

    branch: Branch
    state: State
    keys: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"-> {self.state} with ({', '.join(map(str, self.keys))}) <- {self.branch}"


@value
class Continuation:
    """A branch that reads the answers of a state, and has more literals to resolve for each: `rest`."""

    branch: Branch
    state: State
    keys: tuple[Operand, ...]
    results: tuple[Var, ...]  # variables bound by the state's answer columns
    rest: tuple[Literal, ...]
    outs: tuple[Term, ...]

    def __str__(self) -> str:
        rest = " and ".join(map(str, self.rest))
        return f"=> {self.state} with ({', '.join(map(str, self.keys))}), then {rest} <- {self.branch}"


End = Exit | Jump | Continuation


@dataclass(frozen=True, slots=True)
class NonlinearRecursion:
    """Not an end: the recursion is nonlinear (a clause joins two of its answers), and is evaluated in rounds."""

    component: int


def _weight(branch: Branch, goals: int, answers: int) -> int:
    """Return how many tables a branch reads; goals and answers count as given."""
    found = sum(each.plan.weight for each in branch.conditions if isinstance(each, Holds))
    for source in branch.sources:
        match source:
            case Goals():
                found += goals
            case Answers():
                found += answers
            case DerivedTable(plan=plan):
                found += 1 if plan.form is Form.ROUNDS else plan.weight
            case _:
                found += 1
    return found


def stored_first(exits: tuple[Exit, ...]) -> list[Exit]:
    """Return the exits, with those that read context facts last: often an earlier one already has an answer."""
    return sorted(exits, key=lambda it: any(isinstance(s, FactScan) and s.store != "stored" for s in it.branch.sources))


def _is_start(end: Exit) -> bool:
    """Return whether the exit always makes the start of a path an answer."""
    return end.branch == Branch() and not end.guards and not isinstance(end.outs[0], Var)


def _is_goal(end: Exit) -> bool:
    match end:
        case Exit(Branch((Goals(number),), (Tagged(),)), (Col(source, "c0"),), ()):
            return number == source
    return False


@value
class AnswerArm:
    """A branch that produces answers with a tag; `keys` are the columns of the goal that they answer."""

    tag: int
    keys: tuple[Operand, ...]
    exit: Exit

    @property
    def is_recursive(self) -> bool:
        return any(isinstance(source, Answers) for source in self.exit.branch.sources)

    def __str__(self) -> str:
        return f"answer {self.tag} ({', '.join(map(str, self.keys))}): {self.exit}"


class Form(Enum):
    """How a plan recurses, if it does, and so how its answers are evaluated."""

    EXITS = auto()  # no recursion
    SET = auto()  # no recursion; each exit looks columns up in the set of all answers of another plan
    GOALS = auto()  # a recursion that reaches goals, each tested at the exits
    PATH = auto()  # GOALS for all that one path leads to (see `Separated`)
    ANSWERS = auto()  # a rule continues from its own answers (`"read" if "read" on "parent"` listed downwards)
    ROUNDS = auto()  # a clause joins two of its own answers, which recursive SQL cannot: several statements per round


@dataclass(frozen=True)
class Plan:
    """All branches to the answers of some literals.

    `exits` are the branches that end. With recursion, some exits read the goals, or the answers to goals. `seeds`
    create the first goals, `moves` create goals from goals, and `answers` create the answers.
    """

    name: str = field(compare=False)
    width: int  # how many answer columns
    exits: tuple[Exit, ...]
    seeds: tuple[Jump, ...] = ()
    moves: tuple[Jump, ...] = ()
    states: tuple[State, ...] = ()
    answers: tuple[AnswerArm, ...] = ()
    tags: tuple[tuple[int, Variant], ...] = ()  # of answers: the tag of a state's goals, and the variant
    fixed: frozenset[Operand] = frozenset()
    form: Form = Form.EXITS

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """The hash, computed once: plans are keys of caches, and contain other plans."""
        return hash((self.width, self.exits, self.seeds, self.moves, self.answers, self.fixed))

    @cached_property
    def weight(self) -> int:
        """How many tables are read if each reference to a named table counts as all the tables that it reads.

        SQLite expands a statement like that when it prepares it, and limits the result.
        """
        goals = sum(_weight(jump.branch, 1, 1) for jump in (*self.seeds, *self.moves))
        answers = sum(_weight(arm.exit.branch, goals, 1) for arm in self.answers)
        return sum(_weight(end.branch, goals, answers) for end in self.exits)

    @cached_property
    def length(self) -> int:
        """How many tables its SELECTs mention: tests of other plans are written out, and named tables are not."""
        found = 0
        for branch in self.branches():
            inside = [each.plan.length for each in branch.conditions if isinstance(each, Holds)]
            inside += [each.plan.length for each in branch.sources if isinstance(each, DerivedTable) and each.is_inside]
            found += len(branch.sources) + sum(inside)
        return found

    @property
    def whole_length(self) -> int:
        """The length along with that of the named tables, each of which is written once."""
        return sum(each.length for each in reachable((self,), Plan.nested))

    @cached_property
    def has_rounds(self) -> bool:
        """Whether this plan, or one that it reads, is evaluated in rounds."""
        return self.form == Form.ROUNDS or any(plan.has_rounds for plan in self.nested())

    @property
    def is_plain_path(self) -> bool:
        """Whether the goals are the answers, possibly along with the start of the path.

        If no exit reads the goals, they are not answers: their type is not the one asked for.
        """
        return (
            self.form is Form.PATH
            and self.width == 1
            and len(self.states) == self.key_count == 1
            and any(map(_is_goal, self.exits))
            and all(_is_start(end) or _is_goal(end) for end in self.exits)
        )

    def column(self, index: int) -> str:
        """Return the name of an answer column for plans that read it."""
        return f"c{index}" if self.is_plain_path else f"o{index}"

    @cached_property
    def tag_of(self) -> dict[State, int]:
        """The tags of the goals of each state."""
        return {state: tag for tag, state in enumerate(self.states)}

    @cached_property
    def outer_columns(self) -> tuple[Col, ...]:
        """The columns of enclosing selects that this plan mentions, in order."""
        return tuple(sorted((each for each in self.fixed if isinstance(each, Col)), key=str))

    @cached_property
    def key_count(self) -> int:
        return max((state.key_count for state in self.states), default=0)

    @cached_property
    def answer_width(self) -> int:
        return max((state.width for state in self.states), default=0)

    def lines(self, indent: str = "") -> Iterator[str]:
        yield f"{indent}plan {self.name}"
        yield from (f"{indent}  {each}" for each in (*self.exits, *self.seeds))
        yield from (f"{indent}  state {index}: {state}" for index, state in enumerate(self.states))
        yield from (f"{indent}  {each}" for each in (*self.moves, *self.answers))
        for plan in self.nested():
            yield from plan.lines(indent + "  ")

    def branches(self) -> list[Branch]:
        ends: list[Exit | Jump] = [*self.exits, *self.seeds, *self.moves]
        return [*(each.branch for each in ends), *(arm.exit.branch for arm in self.answers)]

    def nested(self) -> list[Plan]:
        found: dict[str, Plan] = {}
        for branch in self.branches():
            for each in (*branch.sources, *branch.conditions):
                if isinstance(each, (Holds, DerivedTable)):
                    found.setdefault(each.plan.name, each.plan)
        return list(found.values())

    def __str__(self) -> str:
        return "\n".join(self.lines())
