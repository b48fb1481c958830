"""A query -> the engine's plan over the caller's tables and the stored facts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from checks.engine.compile import Knows, Root
from checks.engine.plan.draft import outward
from checks.engine.plan.plan import Branch, Condition, DerivedTable, Exit, ForeignSource, Plan
from checks.engine.plan.planner import Planner
from checks.engine.rules.clauses import Col, Neg, Var, substituted, substituted_terms, type_of
from checks.engine.rules.ruleset import RuleSet
from localsql.bindings import Binding, Bindings
from policy.rules.program import Signature

# ---- relations ----------------------------------------------------------------------------------------------------
# Sources of plans over the caller's tables: these tables, known rows, and stored or inline facts.

LOCAL = "local:"


@dataclass(frozen=True, slots=True)
class ForeignDomain(ForeignSource):
    """Every id of a type, from the bindings' query for it; column `v`."""

    type: str

    def __str__(self) -> str:
        return f"s{self.number} <- all of {self.type}"


@dataclass(frozen=True, slots=True)
class ConstantRows(ForeignSource):
    """Rows of constants; columns k0 …, of these types."""

    rows: tuple[tuple[str, ...], ...]
    types: tuple[str, ...]

    def __str__(self) -> str:
        return f"s{self.number} <- {len(self.rows)} known rows"


@dataclass(frozen=True, slots=True)
class FoldedCandidates(ForeignSource):
    """The known ids, those at some positions of the caller's tables, and NULL for all others; column `v`."""

    ids: tuple[str, ...]
    positions: tuple[tuple[str, int], ...]  # a binding's store, and the index of an argument
    type: str

    def __str__(self) -> str:
        return f"s{self.number} <- ids"


@dataclass(frozen=True, slots=True)
class FoldedDerivedTable(DerivedTable):
    """The results of a folded plan; `types` are those of its columns, some of which may be constants without a type."""

    types: tuple[str, ...]


@dataclass(frozen=True)
class CallerTables:
    """The caller's bindings. Their stores in plans are `stored`, `inline`, and `local:` with a binding's index."""

    bindings: Bindings
    inline: frozenset[Signature] = frozenset()

    def local_stores(self, signature: Signature) -> tuple[str, ...]:
        return tuple(f"{LOCAL}{index}" for index in self.bindings.by_signature.get(signature, ()))

    def service_stores(self, signature: Signature, knows: Knows) -> tuple[str, ...]:
        """Return the stores of the service's facts; `knows` returns whether facts of a signature may be stored."""
        stored = ("stored",) if knows(signature) else ()
        return (*stored, "inline") if signature in self.inline else stored

    def binding(self, store: str) -> Binding:
        return self.bindings.facts[int(store.removeprefix(LOCAL))]


def is_local(store: str) -> bool:
    return store.startswith(LOCAL)


# ---- planning -----------------------------------------------------------------------------------------------------
# A query -> the engine's plan over the caller's tables and the stored facts, and how to interpret its exits.
#
# A result that stands for every value becomes a condition without the column (a gate), or is read from all ids of the
# type, if the bindings have a query for these. A negation may exclude some values from such a result. If the negation
# depends on given values only, the excluded values are planned as a separate query. Its branches may stand for every
# value, too, with exclusions of their own.


@dataclass(frozen=True)
class LocalBranch:
    """An exit of a plan: its result columns, `Var(k)` where column k stands for every value.

    `withheld` are the branches for values that are excluded from these; None if they cannot be listed.
    """

    exit: Exit
    withheld: tuple[LocalBranches, ...] | None = ()


@dataclass(frozen=True)
class LocalBranches:
    """All branches for some results: exits of one plan, with a common recursion."""

    plan: Plan
    each: tuple[LocalBranch, ...]


def planned(rules: RuleSet, tables: CallerTables, root: Root, types: tuple[str, ...], knows: Knows) -> LocalBranches:
    """Plan all branches for results with columns of these types.

    As in decisions, facts of signatures not known to be stored are not read: branches that read them have no rows.
    Unlike in decisions, rules are not tabled to make a large statement smaller, because the caller reads the SQL.
    """

    def stores(signature: Signature) -> tuple[str, ...]:
        return (*tables.local_stores(signature), *tables.service_stores(signature, knows))

    planner = Planner(rules, stores, has_other_form=False)
    outs = tuple(Var(k, type=name) for k, name in enumerate(types))
    plan = planner.plan((*root.givens, *root.calls), outs)
    return _branches(planner, plan, (_enumerated(planner, tables, end, types) for end in plan.exits))


def _branches(planner: Planner, plan: Plan, ends: Iterable[Exit]) -> LocalBranches:
    branches = (_branch(planner, end) for end in ends)
    return LocalBranches(plan, tuple(branch for branch in branches if branch is not None))


def _enumerated(planner: Planner, tables: CallerTables, end: Exit, types: tuple[str, ...]) -> Exit:
    """Return the exit; columns that stand for every value are read from all ids of the type, if available."""
    sources = list(end.branch.sources)
    columns: dict[Var, Col] = {}
    for out, type_name in zip(end.outs, types):
        # Two columns may be the same variable.
        if isinstance(out, Var) and out not in columns and type_name in tables.bindings.domains:
            source = ForeignDomain(planner.new_source(), type_name)
            sources.append(source)
            columns[out] = Col(source.number, "v", type_name)
    outs = substituted_terms(end.outs, columns)
    guards = tuple(substituted(guard, columns) for guard in end.guards)
    return replace(end, branch=Branch(tuple(sources), end.branch.conditions), outs=outs, guards=guards)


def _branch(planner: Planner, end: Exit) -> LocalBranch | None:
    conditions: list[Condition] = []
    withheld: list[LocalBranches] | None = []
    for guard in end.guards:
        if any(isinstance(arg, Var) for arg in guard.call.args):
            found = _withheld(planner, guard, end)
            withheld = None if withheld is None or found is None else [*withheld, found]
            continue
        verdict = planner.tested(guard)
        if verdict is False:
            return None
        conditions += [] if verdict is True else [verdict]
    branch = Branch(end.branch.sources, (*end.branch.conditions, *conditions))
    return LocalBranch(replace(end, branch=branch, guards=()), None if withheld is None else tuple(withheld))


def _withheld(planner: Planner, guard: Neg, end: Exit) -> LocalBranches | None:
    """Return the branches for values that the guard excludes; None if that depends on the row or several columns."""
    args = guard.call.args
    if len(end.outs) != 1 or any(isinstance(arg, Col) for arg in args):
        return None
    plan = planner.plan((outward(guard.call),), (Var(0, type=type_of(end.outs[0])),))
    return _branches(planner, plan, plan.exits)
