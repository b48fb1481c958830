"""A question's shape -> a finished statement, and how to read its rows.

The shape is everything about a question but its values: equal shapes share a statement. `compiled` is the whole
way: resolution into a net, guards, rendering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from checks.engine.errors import CannotEnumerate, NestedTooDeep, NonLinear, Sprawling
from checks.engine.plan.holding import tested
from checks.engine.plan.nets import make_net
from checks.engine.plan.open_values import candidates_of
from checks.engine.plan.partial import Frame, Partial
from checks.engine.plan.plan import Branch, Condition, Exit, Net, Same, stored_first
from checks.engine.plan.unfold import Resolver
from checks.engine.plan.variants import same_columns
from checks.engine.rules.clauses import (
    Call,
    Col,
    Const,
    Given,
    Literal,
    Neg,
    Operand,
    Slot,
    Var,
    pattern_of,
    substituted,
    terms_of,
    variables_of,
)
from checks.engine.rules.rulebook import Rulebook
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.render import Renderer
from checks.engine.sql.rounds import Rounds
from checks.engine.sql.scope import Scope
from checks.engine.sql.text import Statement, Text, finished, union
from policy.rules.program import Signature

Knows = Callable[[Signature], bool]  # whether there may be stored facts of a signature

AFTER = Slot("after")
LIMIT = Slot("limit")
MOST_WEIGHT = 40_000  # tables read by a statement; SQLite refuses 65,536 references to one


@dataclass(frozen=True, slots=True)
class Root:
    """Calls that must all hold. `Var(k)` is what answer column k asks for; `givens` are variables of several values.

    `others` are what else must hold with them: comparisons, negations, facts.
    """

    calls: tuple[Call, ...]
    givens: tuple[Given, ...] = ()
    others: tuple[Literal, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """One root, or several whose answers are told apart by a first column with the root's number."""

    roots: tuple[Root, ...]
    width: int = 0  # answer columns; none: whether there is an answer
    inline: frozenset[Signature] = frozenset()  # signatures that the request brings facts of
    stored: bool = True  # whether stored facts count
    is_paged: bool = False
    has_after: bool = False
    most: int = 0  # so many rows, whichever are found first; 0: all

    def places(self, knows: Knows) -> Callable[[Signature], tuple[str, ...]]:
        """Where facts of a signature are, given of which there may be stored ones."""

        def places_of(signature: Signature) -> tuple[str, ...]:
            stored = ("stored",) if self.stored and knows(signature) else ()
            return (*stored, "inline") if signature in self.inline else stored

        return places_of


@dataclass(frozen=True, slots=True)
class Guarded:
    """An exit whose rows may stand for all values but some: read with the outcome of its guards."""

    exit: Exit
    tests: tuple[Condition, ...]


@dataclass(frozen=True)
class Plan:
    net: Net
    plain: tuple[Exit, ...]
    guarded: tuple[Guarded, ...]

    def __str__(self) -> str:
        return str(self.net)


@dataclass(frozen=True)
class Compiled:
    shape: Shape
    plans: tuple[Plan, ...]
    statement: Statement | None  # None: nothing can be true, whatever the facts
    rounds: tuple[Rounds, ...] = ()  # what is worked out first, in this order, each by statements of its own

    @property
    def is_guarded(self) -> bool:
        return any(plan.guarded for plan in self.plans)

    @property
    def columns(self) -> int:
        """How many columns a row has: outcome and exit of guards, the root's number, the answer."""
        return 2 * self.is_guarded + (len(self.plans) > 1) + max(self.shape.width, 1)


def planned(rulebook: Rulebook, shape: Shape, knows: Knows) -> tuple[Plan, ...]:
    places = shape.places(knows)
    return tuple(_plan(Resolver(rulebook, places, make_net), root, shape.width) for root in shape.roots)


def _planned_linear(rulebook: Rulebook, shape: Shape, knows: Knows, dialect: Dialect) -> tuple[Plan, ...]:
    """The plans; a component that turns out to need two of its own answers at once is set apart from then on.

    What would make too large a statement is planned again with tables of what rules share, and that in rounds.
    """
    while True:
        try:
            plans = planned(rulebook, shape, knows)
            if rulebook.may_sprawl or (rulebook.is_tabling and not dialect.expands_tables) or _is_light(plans):
                return plans
            raise Sprawling
        except NonLinear as found:
            assert found.component not in rulebook.nonlinear, "a component that is worked out in rounds is no obstacle"
            rulebook.nonlinear.add(found.component)
        except Sprawling:
            starts = [pattern_of(call) for root in shape.roots for call in _calls(root)]
            rulebook = rulebook.tabling(starts, in_rounds=rulebook.is_tabling)
        except RecursionError:
            raise NestedTooDeep from None


def _is_light(plans: tuple[Plan, ...]) -> bool:
    return max(plan.net.weight for plan in plans) <= MOST_WEIGHT


def _plan(resolver: Resolver, root: Root, width: int) -> Plan:
    literals = (*root.givens, *root.calls, *root.others)
    named = {variable.number: variable for variable in variables_of(literals)}
    outs = tuple(named.get(k, Var(k)) for k in range(width))
    fixed = frozenset(term for each in literals for term in terms_of(each) if isinstance(term, Slot))
    net = make_net(resolver, Partial(literals, outs), fixed)
    if any(same_columns(end) for end in net.exits):
        raise CannotEnumerate("every value with itself")
    plain = tuple(end for end in net.exits if not end.guards)
    return Plan(net, plain, tuple(_guarded(resolver, end, fixed) for end in net.exits if end.guards))


def _calls(root: Root) -> list[Call]:
    return [*root.calls, *(each.call for each in root.others if isinstance(each, Neg))]


def _guarded(resolver: Resolver, end: Exit, fixed: frozenset[Operand]) -> Guarded:
    """The exit with its guarded columns read from the ids that the guards can tell apart."""
    outs, sources, guards = list(end.outs), list(end.branch.sources), end.guards
    for index, out in enumerate(end.outs):
        if isinstance(out, Var) and any(out in guard.call.args for guard in guards):
            found = candidates_of(resolver.rulebook, guards, out)
            if not found.is_complete:
                raise CannotEnumerate("all but some")
            source = resolver.candidates(found)
            sources.append(source)
            outs[index] = Col(source.number, "v", out.type)
            guards = tuple(substituted(guard, {out: outs[index]}) for guard in guards)
    tests = tuple(_tests(resolver, guards, Frame(fixed)))
    branch = Branch(tuple(sources), end.branch.conditions)
    return Guarded(replace(end, branch=branch, outs=tuple(outs), guards=()), tests)


def _tests(resolver: Resolver, guards: Iterable[Neg], frame: Frame) -> Iterable[Condition]:
    for guard in guards:
        verdict = tested(resolver, guard, frame)
        if verdict is False:
            verdict = Same(Const("0"), Const("1"))
        if verdict is not True:
            yield verdict


def compiled(
    rulebook: Rulebook,
    shape: Shape,
    dialect: Dialect,
    number_of: Callable[[Signature], int],
    frame: Callable[[Text, int], Text] = lambda rows, columns: rows,
    knows: Knows = lambda signature: True,
) -> Compiled:
    """The statement for a shape; `frame` may put the answer's rows, of so many columns, into a larger SELECT.

    Facts of signatures that nobody `knows` are left out: there are none.
    """
    asked: list[bool] = []

    def noting(signature: Signature) -> bool:
        asked.append(knows(signature))
        return asked[-1]

    with rulebook.planning((shape, dialect)):
        plans = _planned_linear(rulebook, shape, noting, dialect)
        nothing = Compiled(shape, plans, None)
        if all(asked) and not any(plan.net.exits for plan in plans):
            return nothing
        renderer = Renderer(dialect, number_of, shape.places(knows), shape.inline)
        tables, rows = _question(renderer, shape, plans, nothing.columns)
        text = (*renderer.head(tables), *frame(rows, nothing.columns))
        rounds = tuple(renderer.rounds.values())
        return Compiled(shape, plans, finished(text, dialect.placeholder), rounds)


def _question(renderer: Renderer, shape: Shape, plans: tuple[Plan, ...], columns: int) -> tuple[list[Text], Text]:
    scopes = [Scope(prefix=f"q{index}" if index else "").inside() for index in range(len(plans))]
    tables = [table for plan, scope in zip(plans, scopes) for table in renderer.tables(plan.net, scope)]
    is_guarded = any(plan.guarded for plan in plans)
    arms: list[Text] = []
    exit_count = 0
    for index, (plan, scope) in enumerate(zip(plans, scopes)):
        first: list[Text] = [(f"'{index}' AS root",)] if len(plans) > 1 else []
        for end in stored_first(plan.plain):
            arms.append(renderer.row(end, [*((("0",), ("1",)) if is_guarded else ()), *first], scope))
        for each in plan.guarded:
            exit_count += 1
            verdict = renderer.verdict(each.exit, each.tests, scope)
            arms.append(renderer.row(each.exit, [(str(exit_count),), verdict, *first], scope))
    if not arms:
        arms = [("SELECT ", ", ".join(["NULL AS o0"] * columns), " WHERE 1 = 0")]
    in_pages = shape.is_paged and not is_guarded
    rows = union(arms, distinct=shape.width > 0 and not shape.most and not in_pages)
    if shape.width == 0:
        rows = ("SELECT EXISTS (", *rows, ") AS o0")
    elif shape.most and not is_guarded:
        rows = ("SELECT q.* FROM (", *rows, f") q LIMIT {int(shape.most)}")
    elif in_pages:
        rows = _paged(renderer.dialect, shape, rows)
    return tables, rows


def _paged(dialect: Dialect, shape: Shape, rows: Text) -> Text:
    """A page of the rows, each once: what sorts them tells equal ones, too."""
    column = dialect.bytewise(("q.o0",))
    keyset: Text = (" WHERE ", *column, " > ", AFTER) if shape.has_after else ()
    order: Text = (" GROUP BY q.o0 ORDER BY ", *column, " NULLS FIRST LIMIT ", LIMIT)
    return ("SELECT q.o0 FROM (", *rows, ") q", *keyset, *order)
