"""Compile a question's shape to a finished statement, and describe its rows.

The shape is everything about a question except its values: questions of equal shape share a statement. `compiled` is
the entry point: it plans, adds the guards, and renders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Protocol

from checks.engine.answers import GROUNDED, UNGUARDED
from checks.engine.plan.draft import IsNarrow, nowhere, same_columns
from checks.engine.plan.plan import Branch, Condition, Exit, Plan, Same, stored_first
from checks.engine.plan.planner import Planner, are_names
from checks.engine.rules.clauses import (
    Call,
    Col,
    Const,
    Given,
    Literal,
    Neg,
    Var,
    calls_made,
    pattern_of,
    steps_taken,
    substituted,
    tick,
    variables_of,
    within,
)
from checks.engine.rules.ruleset import RuleSet
from checks.engine.rules.specialise import are_missing
from checks.engine.sql.bound import NO_TABLES, BoundRenderer, BoundTables
from checks.engine.sql.render import SelectScope, Window, seen_through
from checks.engine.sql.rounds import Rounds, statements_of
from checks.engine.sql.stored import AsOfRenderer, StoredRenderer, TabledAsOfRenderer
from checks.engine.sql.text import Column, Dialect, IdKind, Statement, Text, finished, union
from checks.errors import (
    BoundHaveNoHistory,
    CannotEnumerate,
    InliningTooLarge,
    NestedTooDeep,
    TooManyInliningSteps,
    UnboundVariable,
)
from policy.rules.components import reachable
from policy.rules.program import Signature

StoresOf = Callable[[Signature], tuple[str, ...]]  # where a signature has facts: "stored", "inline"
Knows = Callable[[Signature], bool]  # whether a signature may have stored facts


class KnownFacts(Protocol):
    """What is known of stored facts (see `facts.numbering.Numbering`)."""

    def of(self, signature: Signature) -> int:
        """Return the signature's number."""

    def knows(self, signature: Signature) -> bool:
        """Return whether facts of the signature may be stored."""

    def may_end(self, signature: Signature) -> bool:
        """Return whether stored facts of the signature may have expiries."""

    def is_narrow(self, signature: Signature, index: int) -> bool:
        """Return whether each value of the argument is in few facts of the signature."""


EXISTS = "SELECT EXISTS ("  # start of the SQL for a question without answer columns
QUESTION = ""  # predicate of the question itself, if it is planned as one call
FEW_STEPS = 1_500  # of planning, about 20 ms; after that, rules whose facts are missing are dropped
# No large realistic policy in the tests leads to more than 136 clauses. Of 3,245 questions over random policies, none
# that fitted with rules inlined led to more than 300; a quarter of those that needed rounds did.
MANY_CLAUSES = 300
MOST_WEIGHT = 40_000  # tables read by a statement; SQLite rejects 65,536 references to one


@dataclass(frozen=True, slots=True)
class Root:
    """Calls that must all hold. `Var(k)` is answer column k; `givens` are variables with several given values.

    `others` are further literals that must hold: comparisons, negations, facts.
    """

    calls: tuple[Call, ...]
    givens: tuple[Given, ...] = ()
    others: tuple[Literal, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """One or more roots. With more than one, rows have a column with the number of their root."""

    roots: tuple[Root, ...]
    width: int = 0  # answer columns; 0: whether there is an answer
    inline: frozenset[Signature] = frozenset()  # signatures of the request's context facts
    stored: bool = True  # whether to read stored facts
    window: Window | None = None  # None: all rows, unsorted
    most: int = 0  # maximum number of rows, in any order; 0: no limit
    is_past: bool = False  # as of an earlier revision
    bound: BoundTables = NO_TABLES  # facts that are rows of an application's tables
    elements: IdKind | None = None  # the rows are a set that a column of this kind is looked up in
    outer: IdKind | None = None  # a value is a column of this kind, of the enclosing statement (see `bound.OUTER`)

    def stores(self, knows: Knows) -> StoresOf:
        """Return the function from signatures to stores; `knows` tells which ones may have stored facts."""

        def stores_of(signature: Signature) -> tuple[str, ...]:
            stored = ("stored",) if self.stored and knows(signature) else ()
            bound = self.bound.stores(signature) if self.stored else ()
            if bound and self.is_past:
                raise BoundHaveNoHistory(signature)
            inline = ("inline",) if signature in self.inline else ()
            return (*stored, *bound, *inline)

        return stores_of


@dataclass(frozen=True, slots=True)
class Guarded:
    """An exit whose rows may stand for all values but some. Each row comes with the outcome of its guards, `tests`."""

    exit: Exit
    tests: tuple[Condition, ...]


@dataclass(frozen=True)
class PlannedRoot:
    """A root's plan, and its exits: unguarded ones, guarded ones, and grounded ones.

    In rows of a `grounded` exit, an id may stand for all that nothing mentions (see `Grounding`).
    """

    plan: Plan
    plain: tuple[Exit, ...]
    guarded: tuple[Guarded, ...]
    grounded: tuple[Exit, ...] = ()

    def __str__(self) -> str:
        return str(self.plan)


@dataclass(frozen=True)
class Compiled:
    shape: Shape
    roots: tuple[PlannedRoot, ...]
    statement: Statement | None  # None: nothing can be true, whatever the facts
    rounds: tuple[Rounds, ...] = ()  # recursions to evaluate first, by statements of their own, in this order

    @property
    def is_guarded(self) -> bool:
        return any(root.guarded or root.grounded for root in self.roots)

    @property
    def columns(self) -> int:
        """Return the number of columns of a row: exit and outcome of guards, number of the root, answer."""
        return 2 * self.is_guarded + (len(self.roots) > 1) + max(self.shape.width, 1)


@dataclass(frozen=True)
class _Fitting:
    """Plans each root in the first form that fits a statement: at most `most` by `Plan.weight`.

    Missing facts are not considered before step `few` of planning. `failed` maps roots that did not fit with rules
    inlined to the plan that weighs too much, or to None if planning took too many steps.
    """

    rules: RuleSet
    width: int
    stores: StoresOf
    dialect: Dialect
    most: int
    few: int
    is_narrow: IsNarrow = nowhere
    failed: dict[Root, PlannedRoot | None] = field(default_factory=dict)
    is_grounded: bool = False

    def planned(self, root: Root) -> PlannedRoot:
        """Return a plan that fits.

        If a rule has more exceptions than a plan can hold, the root is planned again, over all values that the facts,
        the rules and the question mention. So a question whose values are all given is never rejected.
        """
        try:
            return self._first_that_fits(root)
        except (CannotEnumerate, UnboundVariable) as refusal:
            if isinstance(refusal, UnboundVariable) and not are_names(*_asked(root, self.width)):
                raise
            try:
                return replace(self, is_grounded=True, failed={})._first_that_fits(root)
            except (CannotEnumerate, UnboundVariable):
                raise refusal from None

    def _first_that_fits(self, root: Root) -> PlannedRoot:
        """Return the first plan that fits: rules inlined, shared answers tabled, or all tabled and evaluated in rounds.

        A plan may be large or need rounds only because of rules whose facts are missing. So these rules are dropped
        before another form is tried, and at once when planning reaches step `few`.
        """
        rules = self.rules
        asked = [(call.predicate, len(call.args)) for call in _calls(root)]

        @cache
        def has_gaps() -> bool:
            return are_missing(rules.program, asked, self._are_facts)

        written = None
        if steps_taken() <= self.few or not has_gaps():
            with within(self.few, has_gaps):
                written = self._written_out(rules, root)
            if written is not None and not written.plan.has_rounds:
                return written
        if has_gaps():
            rules = rules.restricted_to(self._are_facts)
            written = self._written_out(rules, root) or written
        tabled = written or self._tabled(rules, root)
        return tabled or planned_in_rounds(rules, self.stores, root, self.width, self.is_narrow, self.is_grounded)

    def _planner(self, rules: RuleSet, sprawling: int = 0) -> Planner:
        return Planner(rules, self.stores, self.is_narrow, sprawling=sprawling, is_grounded=self.is_grounded)

    def _are_facts(self, signature: Signature) -> bool:
        return bool(self.stores(signature))

    def _written_out(self, rules: RuleSet, root: Root) -> PlannedRoot | None:
        """Return the plan with rules inlined where they are called; None if it does not fit, or is unlikely to.

        The more roots took too many steps, the fewer this one may take: roots of one question use the same rules, so it
        is likely to fail as well.
        """
        self.failed.pop(root, None)
        sprawling = sum(made is None for made in self.failed.values())
        try:
            if _has_many_clauses(rules, root):
                return None
            made = planned(self._planner(rules, sprawling), root, self.width)
        except TooManyInliningSteps:
            self.failed[root] = None
        except (InliningTooLarge, RecursionError):
            pass  # another form may fit
        else:
            if made.plan.weight <= self.most:
                return made
            self.failed[root] = made
        return None

    def _tabled(self, rules: RuleSet, root: Root) -> PlannedRoot | None:
        """Return the plan with shared answers tabled; None if it does not fit, or is unlikely to.

        If no answers are shared, this equals the plan with rules inlined, which is reused.
        """
        with suppress(InliningTooLarge, RecursionError):
            if _has_many_clauses(rules, root):
                return None
            tabling = rules.tabling(map(pattern_of, _calls(root)))
            is_same = not tabling.tabled and root in self.failed
            made = self.failed[root] if is_same else planned(self._planner(tabling), root, self.width)
            if made is not None and (not self.dialect.expands_tables or made.plan.weight <= self.most):
                return made
        return None


def planned(planner: Planner, root: Root, width: int) -> PlannedRoot:
    literals, outs = _asked(root, width)
    return _with_guards(planner, planner.plan(literals, outs))


def planned_in_rounds(
    rules: RuleSet, stores: StoresOf, root: Root, width: int, is_narrow: IsNarrow = nowhere, is_grounded: bool = False
) -> PlannedRoot:
    """Plan the root as one call to a rule of its own; everything that this rule leads to is tabled.

    At first, the tables are planned independently of the question's values. If a guard mentions a value, that raises
    `CannotEnumerate`, and the values stay in place.
    """
    literals, outs = _asked(root, width)
    question = Call(QUESTION, tuple(out.type for out in outs), outs)
    asking = rules.asking(question, literals)

    def made(with_values: bool) -> PlannedRoot:
        planner = Planner(asking, stores, is_narrow, False, with_values, is_grounded=is_grounded)
        return _with_guards(planner, planner.plan((question,), outs))

    with suppress(CannotEnumerate):
        return made(with_values=True)
    return made(with_values=False)


def _asked(root: Root, width: int) -> tuple[tuple[Literal, ...], tuple[Var, ...]]:
    """Return the literals that must hold, and the variables of the answer columns."""
    literals = (*root.givens, *root.calls, *root.others)
    named = {variable.number: variable for variable in variables_of(literals)}
    return literals, tuple(named.get(k, Var(k)) for k in range(width))


def _with_guards(planner: Planner, plan: Plan) -> PlannedRoot:
    if any(same_columns(end) for end in plan.exits):
        raise CannotEnumerate("every value with itself")
    if planner.is_grounded and plan.width:
        return PlannedRoot(plan, (), (), plan.exits)
    plain = tuple(end for end in plan.exits if not end.guards)
    return PlannedRoot(plan, plain, tuple(_guarded(planner, end) for end in plan.exits if end.guards))


def _has_many_clauses(rules: RuleSet, root: Root) -> bool:
    """Return whether the root's calls lead to so many clauses that only rounds are likely to fit (see MANY_CLAUSES)."""
    patterns = reachable(map(pattern_of, _calls(root)), lambda pattern: calls_made(rules.alternatives(pattern)), tick)
    return sum(len(rules.alternatives(pattern)) for pattern in patterns) > MANY_CLAUSES


def _calls(root: Root) -> list[Call]:
    return [*root.calls, *(each.call for each in root.others if isinstance(each, Neg))]


def _guarded(planner: Planner, end: Exit) -> Guarded:
    """Return the exit with its guarded columns read from the ids that the guards can tell apart."""
    outs, sources, guards = list(end.outs), list(end.branch.sources), end.guards
    for index, out in enumerate(end.outs):
        if isinstance(out, Var) and any(out in guard.call.args for guard in guards):
            source = planner.candidates(guards, out)
            if source is None:
                raise CannotEnumerate("all values except some")
            sources.append(source)
            outs[index] = Col(source.number, "v", out.type)
            guards = tuple(substituted(guard, {out: outs[index]}) for guard in guards)
    branch = Branch(tuple(sources), end.branch.conditions)
    return Guarded(replace(end, branch=branch, outs=tuple(outs), guards=()), tuple(_tests(planner, guards)))


def _tests(planner: Planner, guards: Iterable[Neg]) -> Iterable[Condition]:
    for guard in guards:
        verdict = planner.tested(guard)
        if verdict is False:
            verdict = Same(Const("0"), Const("1"))
        if verdict is not True:
            yield verdict


@dataclass(frozen=True)
class Rendered:
    """A shape's plans in SQL: the WITH tables, and the SELECT of the rows. Without a renderer, nothing can be true."""

    plans: tuple[PlannedRoot, ...]
    renderer: StoredRenderer | None = None
    tables: tuple[Text, ...] = ()
    rows: Text = ()


def compiled(
    rules: RuleSet,
    shape: Shape,
    dialect: Dialect,
    known: KnownFacts,
    around: Callable[[Text, int], Text] = lambda rows, columns: rows,
) -> Compiled:
    """Return the statement for a shape. `around` may wrap the SELECT of its rows, given its number of columns."""
    found = rendered(rules, shape, dialect, known)
    nothing = Compiled(shape, found.plans, None)
    if found.renderer is None:
        return nothing
    text = (*found.renderer.head(found.tables), *around(found.rows, nothing.columns))
    return Compiled(shape, found.plans, finished(text, dialect.placeholder), tuple(found.renderer.rounds.values()))


def rendered(rules: RuleSet, shape: Shape, dialect: Dialect, known: KnownFacts) -> Rendered:
    """Plan the shape and render its SQL."""
    asked: list[bool] = []

    def noting(signature: Signature) -> bool:
        asked.append(known.knows(signature))
        return asked[-1]

    with rules.planning((shape, dialect)):
        try:
            few = steps_taken() + FEW_STEPS
            most = MOST_WEIGHT // (2 if shape.is_past else 1)  # as of a revision, each fact is looked up in two tables
            fitting = _Fitting(rules, shape.width, shape.stores(noting), dialect, most, few, known.is_narrow)
            plans = _planned_together(fitting, shape.roots)
        except RecursionError:
            raise NestedTooDeep from None
        if all(asked) and not any(each.plan.exits for each in plans):
            return Rendered(plans)
        renderer = _renderer(shape, dialect, known)
        tables, rows = _question(renderer, shape, plans)
        if shape.is_past and not _fits_parser(renderer, tables, rows):
            renderer = _tabled_as_of(dialect, shape, known)
            tables, rows = _question(renderer, shape, plans)
        return Rendered(plans, renderer, tuple(tables), rows)


def _renderer(shape: Shape, dialect: Dialect, known: KnownFacts) -> StoredRenderer:
    stores = shape.stores(known.knows)
    if shape.is_past:
        return AsOfRenderer(dialect, known.of, stores, shape.inline, known.may_end)
    if shape.stored and shape.bound is not NO_TABLES:
        return BoundRenderer(
            dialect, known.of, stores, shape.inline, known.may_end,
            bound=shape.bound, elements=shape.elements, outer=shape.outer,
        )  # fmt: skip
    return StoredRenderer(dialect, known.of, stores, shape.inline, known.may_end)


def _fits_parser(renderer: StoredRenderer, tables: list[Text], rows: Text) -> bool:
    """Return whether the database's parser accepts the statements, with room for what is put around the rows."""
    whole = finished((*renderer.head(tables), *rows), renderer.dialect.placeholder)
    return all(renderer.dialect.parses(each.sql) for each in (whole, *statements_of(renderer.rounds.values())))


def _tabled_as_of(dialect: Dialect, shape: Shape, known: KnownFacts) -> TabledAsOfRenderer:
    numbers: set[int] = set()

    def noted(signature: Signature) -> int:
        number = known.of(signature)
        numbers.add(number)
        return number

    return TabledAsOfRenderer(dialect, noted, shape.stores(known.knows), shape.inline, numbers=numbers)


def _planned_together(fitting: _Fitting, roots: tuple[Root, ...]) -> tuple[PlannedRoot, ...]:
    """Plan all roots. If their total weight is too large, replan those that weigh more than an equal share."""
    plans = tuple(map(fitting.planned, roots))
    if len(roots) == 1 or sum(each.plan.weight for each in plans) <= fitting.most:
        return plans
    share = replace(fitting, most=fitting.most // len(roots))
    return tuple(each if each.plan.weight <= share.most else share.planned(root) for root, each in zip(roots, plans))


def _question(renderer: StoredRenderer, shape: Shape, roots: tuple[PlannedRoot, ...]) -> tuple[list[Text], Text]:
    prefixes = ("", *(f"q{index}" for index in range(1, len(roots))))
    entered = [renderer.entered(each.plan, SelectScope(prefix=prefix)) for each, prefix in zip(roots, prefixes)]
    tables = [table for _, defined in entered for table in defined]
    is_guarded = any(root.guarded or root.grounded for root in roots)
    unguarded: list[Column] = [(f"'{UNGUARDED}'",), ("1",)] if is_guarded else []
    arms: list[Text] = []
    exit_count = 0
    for index, (root, (scope, _)) in enumerate(zip(roots, entered)):
        first: list[Text] = [(f"'{index}' AS root",)] if len(roots) > 1 else []
        for end in stored_first(root.plain):
            arms.append(renderer.arm(end, [*unguarded, *first, *renderer.shown_outs(end)], scope))
        for end in stored_first(root.grounded):
            arms.append(renderer.arm(end, [(f"'{GROUNDED}'",), ("1",), *first, *renderer.outs(end)], scope))
        for each in root.guarded:
            exit_count += 1
            verdict = renderer.verdict(each.exit, each.tests, scope)
            columns_of_exit = [(f"'{exit_count}'",), verdict, *first, *renderer.outs(each.exit)]
            arms.append(renderer.arm(each.exit, columns_of_exit, scope))
    if not arms:
        columns = Compiled(shape, roots, None).columns
        arms = [("SELECT ", ", ".join(["NULL AS o0"] * columns), " WHERE 1 = 0")]
    window = None if is_guarded else shape.window
    is_distinct = shape.width > 0 and not shape.most and window is None and shape.elements is None
    rows = union(arms, distinct=is_distinct)
    if shape.width == 0:
        rows = (EXISTS, *rows, ") AS o0")
    elif shape.most and not is_guarded:
        rows = ("SELECT q.* FROM (", *rows, f") q LIMIT {int(shape.most)}")
    elif window is not None:
        rows = seen_through(window, renderer.dialect, rows)
    return tables, rows
