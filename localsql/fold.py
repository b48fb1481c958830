"""Fold a split plan: plan -> plan, with all that stored facts and given values decide evaluated (partial evaluation).

Stored facts that a branch reads become constants. A column with a single value is replaced by that value. If only one
column of a part is needed, and only for equality with a column of the caller, that one is tested against a list of the
values. Everything else becomes rows of constants (`ConstantRows`). Branches that cannot hold are dropped, and so are
conditions that are true. The result reads only the caller's tables.

    s0 local repo_org(r, o); s1 stored has_role(:actor, n, o2); o = o2
        ->   s0 local repo_org(r, o); o in ['acme', 'wow']
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import cast, overload

from checks.asking import limits
from checks.engine.plan.draft import comparison
from checks.engine.plan.plan import (
    AnswerArm,
    Answers,
    Branch,
    Candidates,
    Condition,
    DerivedTable,
    Exit,
    FactScan,
    Form,
    Goals,
    Holds,
    Plan,
    PlanSource,
    Same,
    Tagged,
    Variant,
)
from checks.engine.rules import clauses
from checks.engine.rules.clauses import FRESH, Cmp, Col, Const, Member, Operand, Other, Slot, Term, type_of
from localsql.errors import NotExpressible, TooManyConstants
from localsql.plan import (
    MOST_VALUES,
    ConstantRows,
    Each,
    FoldedCandidates,
    FoldedDerivedTable,
    PlanRow,
    Split,
    SplitPlan,
    Splitter,
    StoredStatement,
    is_local,
    remade,
    row_of,
)
from policy.rules.components import reachable

Rows = list[tuple[str, ...]]
ColumnSubstitution = dict[Col, Operand]


@dataclass
class Residual:
    splitter: Splitter
    slots: Mapping[str, object]
    run: Callable[[StoredStatement], Rows]
    rule_of: Callable[[Plan], str]  # for messages: returns the rule that makes a recursion nonlinear
    numbers: Iterator[int] = field(default_factory=lambda: count(-1, -1))
    ran: dict[StoredStatement, Rows] = field(default_factory=dict)
    made: dict[Hashable, Plan] = field(default_factory=dict)
    held: int = 0  # number of values from stored facts so far

    # ---- plans --------------------------------------------------------------------------------------------------

    def plan(self, plan: Plan, variant: Variant | None, substitution: ColumnSubstitution) -> Plan:
        """Return the folded plan with the exits of a variant; without a variant, with all."""
        split = self.splitter.of(plan)
        outside = tuple((column, substitution.get(column, column)) for column in plan.outer_columns)
        key = (plan, variant, outside)
        if key not in self.made:
            exits = split.exits if variant is None else split.by_variant.get(variant, ())
            self.made[key] = self.folded(split, exits, dict(outside))
        return self.made[key]

    def folded(self, split: SplitPlan, exits: Each[Exit], substitution: ColumnSubstitution) -> Plan:
        plan = split.plan
        if plan.form is Form.ROUNDS:
            raise NotExpressible(
                f"{self.rule_of(plan)} uses its own recursion twice, which SQL cannot express for facts in your "
                "database; store the facts that it recurses over in this service, or rewrite the rule"
            )
        left = replace(
            plan,
            exits=self._each(exits, substitution),
            seeds=self._each(split.seeds, substitution),
            moves=self._each(split.moves, substitution),
            answers=self._each(split.answers, substitution),
            fixed=frozenset(substitution.values()),
        )
        return pruned(left)

    def _each(self, rows: Each[PlanRow], substitution: ColumnSubstitution) -> tuple[PlanRow, ...]:
        return tuple(filter(None, (self.row(row, split, substitution) for row, split in rows)))

    # ---- branches ------------------------------------------------------------------------------------------------

    def row(self, row: PlanRow, split: Split, substitution: ColumnSubstitution) -> PlanRow | None:
        """Return the row with its folded branch and terms; None if it is never one."""
        limits.check()
        clauses.check()
        whole, terms = row_of(row)
        inner = dict(substitution)
        branch = self._branch(whole, split, inner)
        if branch is None:
            return None
        values = tuple(self._value(term, inner) for term in terms)
        return cast(PlanRow, remade(row, branch, values))

    def _branch(self, branch: Branch, split: Split, inner: ColumnSubstitution) -> Branch | None:
        """Return the folded branch, and add to `inner` what its columns became; None if it has no rows."""
        for source in split.left.sources:
            inner.update(self._constants(source))
        known: list[tuple[int, ConstantRows]] = []
        lists: list[Condition] = []
        for stored in split.statements:
            rows = self._rows(stored)
            if not rows or not self._narrowed(stored, rows, split.left, inner, lists):
                return None
            constants = self._constant_rows(stored, rows, inner)
            if constants is not None:
                known.append((stored.place, constants))
        sources = self._sources(branch, split.left, known, inner)
        conditions = self._conditions(split.left, inner, lists) if sources is not None else None
        if sources is None or conditions is None:
            return None
        return Branch(tuple(sources), tuple(conditions))

    def _rows(self, stored: StoredStatement) -> Rows:
        if stored not in self.ran:
            rows = self.ran[stored] = self.run(stored)
            self.held += len(rows) * len(stored.columns)
            if len(rows) > MOST_VALUES or self.held > MOST_VALUES:
                raise TooManyConstants(MOST_VALUES, stored.what)
        return self.ran[stored]

    def _narrowed(
        self, stored: StoredStatement, rows: Rows, left: Branch, inner: ColumnSubstitution, lists: list[Condition]
    ) -> bool:
        """Test a column against the values of a part, if nothing else is needed of it. Return whether that can hold.

        The part must have one column, and the branch a condition that another operand equals it.
        """
        if len(stored.columns) != 1:
            return True
        (column,) = stored.columns
        other = next((found for each in left.conditions if (found := _equal_to(each, column)) is not None), None)
        if other is None:
            return True
        value, ids = self._value(other, inner), tuple(sorted(row[0] for row in rows))
        inner[column] = value
        if isinstance(value, Const):
            return value.id in ids
        lists.append(Member(value, ids))
        return True

    def _constant_rows(self, stored: StoredStatement, rows: Rows, inner: ColumnSubstitution) -> ConstantRows | None:
        """Return the rows as a source; None if none is needed. Columns with only one value become constants."""
        if any(column in inner for column in stored.columns):
            return None  # `_narrowed` has replaced it by a list
        varied = []
        for index, column in enumerate(stored.columns):
            if len({row[index] for row in rows}) == 1:
                inner[column] = Const(rows[0][index])
            else:
                varied.append(index)
        if not varied:
            return None
        number = next(self.numbers)
        for place, index in enumerate(varied):
            inner[stored.columns[index]] = Col(number, f"k{place}", stored.columns[index].type)
        kept = sorted({tuple(row[index] for index in varied) for row in rows})
        return ConstantRows(number, tuple(kept), tuple(stored.columns[index].type for index in varied))

    def _constants(self, source: PlanSource) -> ColumnSubstitution:
        """Return the constants of the binding's key, by the columns that its query does not select."""
        if not isinstance(source, FactScan) or not is_local(source.store):
            return {}
        constants = self.splitter.tables.binding(source.store).key.constants
        return {Col(source.number, f"a{i}"): Const(text) for i, text in enumerate(constants) if text is not None}

    def _sources(
        self, whole: Branch, left: Branch, known: list[tuple[int, ConstantRows]], inner: ColumnSubstitution
    ) -> list[PlanSource] | None:
        """Return the remaining sources, in the order of the plan; None if one of them has no rows."""
        places = {source.number: index for index, source in enumerate(whole.sources)}
        placed: list[tuple[int, PlanSource]] = list(known)
        for source in left.sources:
            made = self._source(source, inner)
            if made is None:
                return None
            placed.append((places[source.number], made))
        return [source for _, source in sorted(placed, key=lambda each: each[0])]

    def _source(self, source: PlanSource, inner: ColumnSubstitution) -> PlanSource | None:
        match source:
            case DerivedTable(number, plan, variant):
                made = self.plan(plan, variant, inner)
                return FoldedDerivedTable(number, made, variant, _types_of(plan)) if made.exits else None
            case Candidates(number):
                return self._folded_candidates(source)
        return source

    def _folded_candidates(self, source: Candidates) -> FoldedCandidates:
        tables = self.splitter.tables
        stored = self.splitter.candidates(source)
        ids = {row[0] for row in self._rows(stored)} - {FRESH.id}
        positions = [
            (store, position.index)
            for position in source.positions
            for store in tables.local_stores(position.signature)
        ]
        for store, index in positions:
            constant = tables.binding(store).key.constants[index]
            ids |= {constant} if constant is not None else set()
        selected = tuple(each for each in positions if tables.binding(each[0]).key.constants[each[1]] is None)
        return FoldedCandidates(source.number, tuple(sorted(ids)), selected, stored.columns[0].type)

    # ---- conditions -------------------------------------------------------------------------------------------------

    def _conditions(self, left: Branch, inner: ColumnSubstitution, lists: list[Condition]) -> list[Condition] | None:
        """Return the remaining conditions; None if one is false."""
        found: dict[Condition, None] = dict.fromkeys(lists)
        for condition in left.conditions:
            verdict = self.condition(condition, inner)
            if verdict is False:
                return None
            if verdict is not True:
                found[verdict] = None
        return list(found)

    def condition(self, condition: Condition, inner: ColumnSubstitution) -> Condition | bool:
        match condition:
            case Same(left, right):
                return _compared("=", self._value(left, inner), self._value(right, inner))
            case Member(operand, ids):
                value = self._value(operand, inner)
                return value.id in ids if isinstance(value, Const) else Member(value, ids)
            case Cmp(operator, left, right):
                return _compared(operator, self._value(left, inner), self._value(right, inner))
            case Holds(plan, negated):
                verdict = self._held(plan, inner)
                if isinstance(verdict, bool):
                    return verdict != negated
                return Holds(verdict, negated)
        return condition

    def _held(self, plan: Plan, inner: ColumnSubstitution) -> Plan | bool:
        made = self.plan(plan, None, inner)
        if any(not end.branch.sources and not end.branch.conditions for end in made.exits):
            return True
        return made if made.exits else False

    @overload
    def _value(self, term: Operand, inner: ColumnSubstitution) -> Operand: ...
    @overload
    def _value(self, term: Term, inner: ColumnSubstitution) -> Term: ...
    def _value(self, term: Term, inner: ColumnSubstitution) -> Term:
        match term:
            case Slot(name) | Other(name):
                return Const(str(self.slots[name]))
            case Col():
                return inner.get(term, term)
        return term


def _types_of(plan: Plan) -> tuple[str, ...]:
    """Return the types of the plan's result columns, as far as its exits determine them."""
    return tuple(next(filter(None, (type_of(end.outs[k]) for end in plan.exits)), "") for k in range(plan.width))


# ---- conditions over constants ------------------------------------------------------------------------------------


def _compared(operator: str, left: Operand, right: Operand) -> Condition | bool:
    """Return the result if it is known, else the condition. In an equality, a constant comes last."""
    if operator == "=" and isinstance(left, Const):
        left, right = right, left
    return comparison(operator, left, right)


def _equal_to(condition: Condition, column: Col) -> Operand | None:
    match condition:
        case Same(left, right) if right == column and left != column:
            return left
        case Same(left, right) if left == column and right != column:
            return right
    return None


# ---- pruning ------------------------------------------------------------------------------------------------------
# Drops what a recursion can never use: moves from unreachable goals, and reads of answers that nothing produces.


def pruned(plan: Plan) -> Plan:
    goals = _reached(plan)
    moves = tuple(jump for jump in plan.moves if _is_fed(jump.branch, Goals, goals))
    arms = [arm for arm in plan.answers if _is_fed(arm.exit.branch, Goals, goals)]
    made = _answered(arms)
    answers = tuple(arm for arm in arms if _is_fed(arm.exit.branch, Answers, made))
    exits = tuple(end for end in plan.exits if _is_fed(end.branch, Goals, goals) and _is_fed(end.branch, Answers, made))
    return replace(plan, exits=exits, moves=moves, answers=answers)


def _reached(plan: Plan) -> set[int]:
    """Return the tags of all goals that the recursion reaches."""

    def following(tag: int) -> Iterator[int]:
        return (plan.tag_of[jump.state] for jump in plan.moves if tag in _tags(jump.branch, Goals))

    return set(reachable((plan.tag_of[jump.state] for jump in plan.seeds), following))


def _answered(arms: list[AnswerArm]) -> set[int]:
    found: set[int] = set()
    while True:
        more = {arm.tag for arm in arms if _is_fed(arm.exit.branch, Answers, found)} - found
        if not more:
            return found
        found |= more


def _is_fed(branch: Branch, kind: type[Goals] | type[Answers], tags: set[int]) -> bool:
    return _tags(branch, kind) <= tags


def _tags(branch: Branch, kind: type[Goals] | type[Answers]) -> set[int]:
    numbers = {source.number for source in branch.sources if isinstance(source, kind)}
    return {each.tag for each in branch.conditions if isinstance(each, Tagged) and each.source in numbers}
