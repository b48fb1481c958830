"""Folded plans -> the final SQL: a single row, a query for rows, or a condition on the caller's column.

A result that is already certain needs no SELECT from tables: it is TRUE, FALSE, or a list of constants. A condition is
a single expression that can be combined with AND and NOT.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from checks.engine.plan.plan import Branch, Exit, Plan
from checks.engine.rules.clauses import Col, Const, Var
from checks.engine.sql.text import Text, union
from localsql.dialects import NATIVE, Family, Typed
from localsql.errors import NotExpressible, UnboundedVariable
from localsql.plan import ConstantRows, ForeignDomain
from localsql.render import TOP, LocalRenderer, check_whole

TRUE, FALSE = "TRUE", "FALSE"
EVERY = "*"


@dataclass(frozen=True)
class FoldedBranch:
    """A branch after evaluating everything that stored facts decide; `withheld` is None if it cannot be listed."""

    exit: Exit
    withheld: tuple[FoldedBranches, ...] | None

    @property
    def is_certain(self) -> bool:
        return not self.exit.branch.sources and not self.exit.branch.conditions

    @property
    def open_columns(self) -> list[int]:
        return [index for index, out in enumerate(self.exit.outs) if isinstance(out, Var)]

    @property
    def is_everything(self) -> bool:
        """Whether every id of the type is a result. All ids of a domain mean every id, whatever its query returns."""
        branch = self.exit.branch
        if self.open_columns:
            return self.is_certain and self.withheld == ()
        return not branch.conditions and len(branch.sources) == 1 and isinstance(branch.sources[0], ForeignDomain)


@dataclass(frozen=True)
class FoldedBranches:
    """The branches for some results: exits of `plan`, which contains their common recursion."""

    plan: Plan
    each: tuple[FoldedBranch, ...]

    @property
    def exits(self) -> list[Exit]:
        return [branch.exit for branch in self.each]

    @property
    def whole(self) -> Plan:
        return replace(self.plan, exits=tuple(self.exits))

    def plans(self) -> list[Plan]:
        """Return all plans to render, including those of withheld branches."""
        withheld = (inner for branch in self.each for inner in branch.withheld or ())
        return [self.whole, *(plan for inner in withheld for plan in inner.plans())]


@dataclass(frozen=True)
class Folded:
    types: tuple[str, ...]  # of the result columns
    names: tuple[str, ...]  # the caller's names of the result columns
    branches: FoldedBranches


# ---- whether there is a result ---------------------------------------------------------------------------------


def verdict(renderer: LocalRenderer, folded: Folded, column: str) -> str:
    """Return a SELECT of one row with one truth value."""
    branches = folded.branches
    if any(branch.is_certain for branch in branches.each):
        return f"SELECT {TRUE} AS {column}"
    scope, _ = renderer.entered(branches.plan, TOP)
    arms = renderer.arms(branches.exits, scope)
    if not arms:
        return f"SELECT {FALSE} AS {column}"
    return renderer.head(("SELECT EXISTS (", *union(arms, distinct=False), f") AS {column}"))


# ---- rows ---------------------------------------------------------------------------------------------------------


def rows(renderer: LocalRenderer, folded: Folded, columns: Sequence[str], every: str | None = None) -> str:
    """Return a SELECT of the distinct results, with these column names.

    A result that stands for every value is represented by the text `every`; without it, such a result is rejected.
    """
    ends = [_shown(folded, branch, every) for branch in folded.branches.each]
    families = [renderer.layouts.family(name) for name in folded.types]
    named = [renderer.dialect.quoted(column) for column in columns]
    scope, _ = renderer.entered(folded.branches.plan, TOP)
    arms = renderer.arms(ends, scope, renderer.outs(families))
    if not arms:
        nothing = (f"{renderer.dialect.null(family)} AS {name}" for family, name in zip(families, named))
        return f"SELECT {', '.join(nothing)}{renderer.dialect.dual} WHERE FALSE"
    fields = ", ".join(f"o{index}" for index in range(len(columns)))
    answers: Text = (f"__answers({fields}) AS (", *union(arms, distinct=True), ")")
    shown = (
        f"{renderer.dialect.shown(f'o{index}', family)} AS {name}"
        for index, (family, name) in enumerate(zip(families, named))
    )
    return renderer.head((f"SELECT {', '.join(shown)} FROM __answers",), answers)


def _shown(folded: Folded, branch: FoldedBranch, every: str | None) -> Exit:
    opened = branch.open_columns
    if not opened:
        return branch.exit
    if every is None:
        raise UnboundedVariable(folded.names[opened[0]], folded.types[opened[0]])
    if branch.withheld != ():
        raise _all_but_some(folded, opened[0])
    outs = tuple(Const(every) if isinstance(out, Var) else out for out in branch.exit.outs)
    return Exit(branch.exit.branch, outs)


def _all_but_some(folded: Folded, index: int) -> NotExpressible:
    name, type_name = folded.names[index], folded.types[index]
    return NotExpressible(
        f"cannot list `{name}`: it can be all {type_name} ids except some, depending on facts in your database; "
        f"give a query for all {type_name} ids under `domains` in the data bindings"
    )


# ---- conditions ----------------------------------------------------------------------------------------------------


def condition(renderer: LocalRenderer, folded: Folded, column: str) -> str:
    """Return an expression that is true for the caller's rows whose column is among the results."""
    side = Typed(column, renderer.tables.bindings.family(folded.types[0]))
    return _Condition(renderer, folded, side).among(folded.branches)


@dataclass(frozen=True)
class _Condition:
    renderer: LocalRenderer
    folded: Folded
    side: Typed  # the caller's column

    def among(self, branches: FoldedBranches) -> str:
        """Return the test that the column is among the values of the branches."""
        if any(branch.is_everything for branch in branches.each):
            return TRUE
        gates = [self._gate(branches, branch) for branch in branches.each if branch.open_columns]
        listed = _listed(self.renderer, branches.plan, [w.exit for w in branches.each if not w.open_columns], self.side)
        if TRUE in gates:
            return TRUE
        pieces = [each for each in dict.fromkeys((*gates, listed or FALSE)) if each != FALSE]
        if len(pieces) < 2:
            return pieces[0] if pieces else FALSE
        return f"({' OR '.join(pieces)})"

    def _gate(self, branches: FoldedBranches, branch: FoldedBranch) -> str:
        """Return the test of a branch for every value: its own conditions, and that the column is not withheld."""
        if branch.withheld is None:
            raise _all_but_some(self.folded, 0)
        tests = [] if branch.is_certain else [_exists(self.renderer, branches.plan, [branch.exit])]
        tests += map(self._not_among, branch.withheld)
        if FALSE in tests:
            return FALSE
        tests = [each for each in dict.fromkeys(tests) if each != TRUE]
        if len(tests) < 2:
            return tests[0] if tests else TRUE
        return f"({' AND '.join(tests)})"

    def _not_among(self, withheld: FoldedBranches) -> str:
        for plan in withheld.plans():
            check_whole(self.renderer.dialect, plan)
        found = self.among(withheld)
        return TRUE if found == FALSE else f"NOT ({found})"


def _exists(renderer: LocalRenderer, plan: Plan, ends: Iterable[Exit]) -> str:
    own = renderer.anew()
    scope, _ = own.entered(plan, TOP)
    arms = own.arms([Exit(end.branch, ()) for end in ends], scope)
    return f"EXISTS ({own.head(union(arms, distinct=False))})" if arms else FALSE


def _listed(renderer: LocalRenderer, plan: Plan, ends: list[Exit], side: Typed) -> str | None:
    """Return the test that the column is among the results of the exits; None if it cannot be."""
    own = renderer.anew()
    family = side.family if side.family in NATIVE else Family.TEXT
    constants = sorted({text for end in ends for text in constants_of(end) or ()})
    scope, _ = own.entered(plan, TOP)
    others = [end for end in ends if constants_of(end) is None]
    arms = own.list_arms(others, side, scope)
    if not arms:
        return own.dialect.among(side, constants)
    possible = own.dialect.constants(constants, family)
    if possible:
        arms.append(own.constants(possible))
    column = side.sql if side.family in NATIVE else own.dialect.text(side)
    return f"{column} IN ({_one_select(own, arms)})"


def _one_select(renderer: LocalRenderer, arms: list[Text]) -> str:
    rows = union(arms, distinct=False)
    if len(arms) < 2 or renderer.dialect.plans_unions:
        return renderer.head(rows)
    return renderer.head(("SELECT o0 FROM __answers",), ("__answers(o0) AS (", *rows, ")"))


def constants_of(end: Exit) -> list[str] | None:
    """Return the results of an exit with one column, if they are constants."""
    match end:
        case Exit(Branch((), ()), (Const(text),)):
            return [text]
        case Exit(Branch((ConstantRows(number, known, (_,)),), ()), (Col(source, _),)) if source == number:
            return [row[0] for row in known]
    return None
