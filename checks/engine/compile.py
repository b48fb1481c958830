"""Compile a question's shape to a finished statement, and describe its rows.

The shape is everything about a question except its values: questions of equal shape share a statement. `compiled` is
the entry point: it plans, adds the guards, and renders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

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
    is_stand_in,
    pattern_of,
    steps_taken,
    substituted,
    tick,
    variables_of,
    within,
)
from checks.engine.rules.ruleset import RuleSet
from checks.engine.rules.specialise import are_missing
from checks.engine.sql.bound import NO_TABLES, BoundRenderer, BoundTables, tested_by_row
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
    # A value is a column of this kind, of the enclosing statement (see `bound.OUTER`); with an answer column, that is
    # what is tested (see `bound.tested_by_row`).
    outer: IdKind | None = None

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
    def names(self) -> list[str]:
        """Return the names of a row's columns: exit and outcome of guards, number of the root, answer."""
        guards = ["exit", "granted"] if self.is_guarded else []
        root = ["root"] if len(self.roots) > 1 else []
        return [*guards, *root, *(f"o{index}" for index in range(max(self.shape.width, 1)))]

    @property
    def columns(self) -> int:
        return len(self.names)


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
        return Planner(
            rules, self.stores, self.is_narrow, sprawling=sprawling, is_grounded=self.is_grounded,
            prefers_sets=self.dialect.joins_apart,
        )  # fmt: skip

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
            if made is not None:
                size = made.plan.weight if self.dialect.expands_tables else made.plan.whole_length
                return made if size <= self.most else None
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
    return Compiled(shape, found.plans, finished(text, dialect), tuple(found.renderer.rounds.values()))


def rendered(rules: RuleSet, shape: Shape, dialect: Dialect, known: KnownFacts) -> Rendered:
    """Plan the shape and render its SQL."""
    with rules.planning((shape, dialect)):
        try:
            return _rendered(rules, shape, dialect, known)
        except RecursionError:
            raise NestedTooDeep from None


def _rendered(rules: RuleSet, shape: Shape, dialect: Dialect, known: KnownFacts) -> Rendered:
    asked: list[bool] = []

    def noting(signature: Signature) -> bool:
        asked.append(known.knows(signature))
        return asked[-1]

    few = steps_taken() + FEW_STEPS
    most = MOST_WEIGHT // (2 if shape.is_past else 1)  # as of a revision, each fact is looked up in two tables
    fitting = _Fitting(rules, shape.width, shape.stores(noting), dialect, most, few, known.is_narrow)
    plans = _planned_together(fitting, shape.roots)
    if shape.outer is not None and shape.width:
        plans, shape = (_by_row(*plans),), replace(shape, width=0)
    if all(asked) and not any(each.plan.exits for each in plans):
        return Rendered(plans)
    renderer = _renderer(shape, dialect, known)
    tables, rows = _question(renderer, shape, plans)
    if shape.is_past and not _fits_parser(renderer, tables, rows):
        renderer = _tabled_as_of(dialect, shape, known)
        tables, rows = _question(renderer, shape, plans)
    return Rendered(plans, renderer, tuple(tables), rows)


def _by_row(root: PlannedRoot) -> PlannedRoot:
    """Turn the plan of a list into one for a single row of the enclosing statement."""
    plan = None if root.guarded or root.grounded else tested_by_row(root.plan)
    if plan is None:
        raise CannotEnumerate("all values except some")
    return PlannedRoot(plan, plan.exits, ())


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
    whole = finished((*renderer.head(tables), *rows), renderer.dialect)
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
    unguarded: list[Column] = [(f"'{UNGUARDED}' AS exit",), ("1 AS granted",)] if is_guarded else []
    arms: list[Text] = []
    exit_count = 0
    for index, (root, (scope, _)) in enumerate(zip(roots, entered)):
        first: list[Text] = [(f"'{index}' AS root",)] if len(roots) > 1 else []
        for end in stored_first(root.plain):
            arms.append(renderer.arm(end, [*unguarded, *first, *renderer.shown_outs(end)], scope))
        for end in stored_first(root.grounded):
            arms.append(
                renderer.arm(end, [(f"'{GROUNDED}' AS exit",), ("1 AS granted",), *first, *renderer.outs(end)], scope)
            )
        for each in root.guarded:
            exit_count += 1
            verdict = renderer.verdict(each.exit, each.tests, scope)
            columns_of_exit = [(f"'{exit_count}' AS exit",), verdict, *first, *renderer.outs(each.exit)]
            arms.append(renderer.arm(each.exit, columns_of_exit, scope))
    if not arms:
        names = Compiled(shape, roots, None).names
        arms = [("SELECT ", ", ".join(f"NULL AS {name}" for name in names), " WHERE 1 = 0")]
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


# ---- boxes --------------------------------------------------------------------------------------------------------
# Boxes of answers: in each column one id, or all ids with exceptions. Can several boxes together cover another one?
#
# (bob, every id)   is covered by   (every id, read)  and  (bob, every id but read)   together, and by neither alone


class AllBut(frozenset[str]):
    """All ids except these."""


AnswerCell = str | AllBut
AnswerBox = tuple[AnswerCell, ...]


class Boxes:
    """A set of boxes, indexed by id."""

    def __init__(self, boxes: Iterable[AnswerBox]):
        self._boxes = list(boxes)
        self._columns: dict[int, tuple[dict[str, list[AnswerBox]], list[AnswerBox]]] = {}

    def hold(self, box: AnswerBox) -> bool:
        """Return whether the boxes together cover all of `box`.

        If no single one does, `box` is split along a column in which they differ: into a box for each id that they name
        or exclude, and one for all other ids.
        """
        near = Boxes(each for each in self._about(box) if all(map(_has_common, box, each)))
        if any(all(map(_is_within, box, each)) for each in near._boxes):
            return True
        for index, cell in enumerate(box):
            if isinstance(cell, AllBut):
                by_id, wide = near._column(index)
                ids = (by_id.keys() | frozenset().union(*(each[index] for each in wide))) - cell
                if ids:
                    before, after = box[:index], box[index + 1 :]
                    others = (*before, AllBut(cell | ids), *after)
                    return near.hold(others) and all(near.hold((*before, text, *after)) for text in sorted(ids))
        return False

    def _about(self, box: AnswerBox) -> list[AnswerBox]:
        """Return the boxes that may overlap with `box`: few, if it names an id."""
        found = self._boxes
        for index, cell in enumerate(box):
            if isinstance(cell, str):
                by_id, wide = self._column(index)
                found = min(found, [*by_id.get(cell, ()), *wide], key=len)
        return found

    def _column(self, index: int) -> tuple[dict[str, list[AnswerBox]], list[AnswerBox]]:
        """Return the boxes with one id in the column, by that id, and those with many."""
        if index not in self._columns:
            by_id: dict[str, list[AnswerBox]] = {}
            wide = []
            for each in self._boxes:
                cell = each[index]
                if isinstance(cell, str):
                    by_id.setdefault(cell, []).append(each)
                else:
                    wide.append(each)
            self._columns[index] = by_id, wide
        return self._columns[index]


def _is_within(cell: AnswerCell, other: AnswerCell) -> bool:
    if isinstance(other, AllBut):
        return cell >= other if isinstance(cell, AllBut) else cell not in other
    return cell == other


def _has_common(cell: AnswerCell, other: AnswerCell) -> bool:
    if isinstance(cell, AllBut):
        return isinstance(other, AllBut) or other not in cell
    return _is_within(cell, other)


# ---- answers ------------------------------------------------------------------------------------------------------
# Rows of a statement -> answers. "Every value but some" is rejected, since a list cannot express it.
#
# A row is a tuple of ids; None stands for every value of the column's type. An exit is guarded if negations withhold
# some values from an answer that stands for every value. Its rows come with the result of the guards: one row for each
# id that the guards can tell apart, and one with '' for all other ids.
#
#     of one exit: ('',) granted                       ->  [(None,)]
#     of one exit: ('',) granted, ('bob',) withheld    ->  CannotEnumerate, unless other rows grant bob
#
# What a row withholds may be many answers. Other rows must grant each of them, not just some:
#
#     of one exit: ('', None) granted, ('bob', None) withheld; of another: (None, '') granted, (None, 'reader') withheld
#     ->  CannotEnumerate: no row grants ('bob', 'reader')

AnswerRow = tuple[str | None, ...]
UNGUARDED = "0"  # in place of an exit's number, in rows without guards
GROUNDED = "-"  # in place of the number of an exit whose rows may contain placeholder ids (see `Grounding`)
_ALL = AllBut()


def answers_of(rows: Iterable[tuple[Any, ...]]) -> list[AnswerRow]:
    """Return the distinct answers in rows of the form (exit, outcome, answer columns…).

    Rows of a grounded exit are left out if another answer stands for them: their ids are tried one by one, and may
    be ids of other types or names in rules.
    """
    plain: set[AnswerRow] = set()
    grounded: set[AnswerRow] = set()
    stand_ins: set[AnswerRow] = set()
    exits: dict[str, _Exit] = {}
    for index, outcome, *columns in rows:
        row = tuple(columns)
        if index == GROUNDED and any(map(is_stand_in, row)):
            stand_ins.add(row)
        elif index == GROUNDED:
            grounded.add(row)
        elif index == UNGUARDED:
            plain.add(row)
        else:
            found = exits.setdefault(index, _Exit())
            (found.granted if outcome else found.withheld).add(row)
    grounded -= plain
    plain |= grounded
    for row in stand_ins:
        if tuple([None if is_stand_in(text) else text for text in row]) not in plain:
            raise CannotEnumerate("all values except some")
    for found in exits.values():
        found.withheld -= found.granted  # a fact that grants a row is enough, even if others withhold it
    _check_that_nothing_is_kept_back(plain, list(exits.values()))
    answers = plain.union(*(found.answers() for found in exits.values()))
    return list(answers - set(_stood_for(grounded, answers)) if grounded else answers)


def _stood_for(rows: Iterable[AnswerRow], answers: Iterable[AnswerRow]) -> Iterator[AnswerRow]:
    """Yield the rows that are equal to another answer, but for columns in which that one stands for every value."""
    wide = {row for row in answers if None in row}
    places = {tuple([text is None for text in row]) for row in wide}  # few, even if there are many rows
    for row in rows:
        widened = (tuple([None if is_wide else text for text, is_wide in zip(row, each)]) for each in places)
        if any(each in wide and each != row for each in widened):
            yield row


def _check_that_nothing_is_kept_back(plain: set[AnswerRow], exits: list[_Exit]) -> None:
    """Raise `CannotEnumerate` if a row withholds an answer that no other row grants."""
    kept_back = [each for found in exits for each in found.kept_back()]
    if not kept_back:
        return
    # Without guards, '' only occurs if the question was about an id that nothing mentions.
    boxes = list(_boxes(plain, plain.union(*(found.rows for found in exits))))
    granted = Boxes([*boxes, *(box for found in exits for box in _boxes(found.granted, found.rows))])
    for box, example in kept_back:
        if not granted.hold(box):
            raise CannotEnumerate(f"all values except some, such as `{example}`")


def _boxes(rows: Iterable[AnswerRow], among: Iterable[AnswerRow]) -> Iterator[AnswerBox]:
    """Yield the answers that rows stand for: '' is all ids except those in the same column of `among`."""
    others = [AllBut(filter(None, column)) for column in zip(*among)]
    for row in rows:
        yield tuple([text or (_ALL if text is None else others[index]) for index, text in enumerate(row)])


@dataclass
class _Exit:
    """What the guards of one exit grant, and what they withhold."""

    granted: set[AnswerRow] = field(default_factory=set)
    withheld: set[AnswerRow] = field(default_factory=set)

    @property
    def rows(self) -> set[AnswerRow]:
        return self.granted | self.withheld

    def answers(self) -> set[AnswerRow]:
        """Return the granted rows from which nothing is withheld."""
        open_rows = _OpenRows(self.granted)
        closed = {row for row in self.granted if open_rows.above(row) is None}
        return closed | {tuple([text or None for text in row]) for row in open_rows.rows}

    def kept_back(self) -> Iterator[tuple[AnswerBox, str]]:
        """Yield what is withheld from an open row, with an example of a withheld id."""
        open_rows = _OpenRows(self.granted)
        kept = [(row, above) for row in self.withheld if (above := open_rows.above(row)) is not None]
        for (row, above), box in zip(kept, _boxes((row for row, _ in kept), self.rows)):
            yield box, next(text for text, opened in zip(row, above) if opened == "" and text)


class _OpenRows:
    """Rows that an exit grants with '' in some columns."""

    def __init__(self, granted: Iterable[AnswerRow]):
        self.rows = {row for row in granted if "" in row}
        self._places = {tuple([text == "" for text in row]) for row in self.rows}  # few, even if there are many rows

    def above(self, row: AnswerRow) -> AnswerRow | None:
        """Return an open row that equals `row` except for '' in some columns."""
        opened = (tuple(["" if is_open else text for text, is_open in zip(row, places)]) for places in self._places)
        return next((each for each in opened if each in self.rows), None)
