"""A question -> its plan over the caller's tables and the stored facts: the engine's net, and how to read its exits.

An answer that stands for every value is said by a condition alone (`FALSE OR gate`), or by all ids of the type, where
the bindings give them. What negations hold back from it has ways of its own, where they mention nothing but that value
and what is given; those may stand for every value again, and have something held back from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from checks.asking import deadline
from checks.engine.compile import Root
from checks.engine.errors import NestedTooDeep, NonLinear
from checks.engine.plan.holding import tested
from checks.engine.plan.nets import make_net
from checks.engine.plan.partial import Frame, Partial
from checks.engine.plan.plan import Branch, Condition, Exit, Net
from checks.engine.plan.unfold import Resolver
from checks.engine.rules.clauses import Col, Inner, Neg, Operand, Slot, Var, substituted, substituted_terms, type_of
from checks.engine.rules.rulebook import Rulebook
from localsql.relations import CallerTables, Domain


@dataclass(frozen=True)
class Way:
    """An exit of a net: its answer columns, `Var(k)` where column k stands for every value.

    `withheld` are ways to what is not among those values; None where that cannot be listed.
    """

    exit: Exit
    withheld: tuple[Ways, ...] | None = ()


@dataclass(frozen=True)
class Ways:
    """All ways to some answers. They are of one net, whose recursion they share."""

    net: Net
    each: tuple[Way, ...]

    def all(self) -> Iterator[Ways]:
        """These, and those to what is held back."""
        yield self
        for way in self.each:
            for withheld in way.withheld or ():
                yield from withheld.all()


@dataclass(frozen=True)
class LocalPlan:
    ways: Ways
    types: tuple[str, ...]  # of the answer columns


def planned(rulebook: Rulebook, tables: CallerTables, root: Root, types: tuple[str, ...]) -> LocalPlan:
    """The plan; a component that turns out to need two of its own answers at once is set apart from then on."""
    with rulebook.planning((tables, root, types)):
        while True:
            deadline.check()
            try:
                return _planned(rulebook, tables, root, types)
            except NonLinear as found:
                assert found.component not in rulebook.nonlinear, "a component worked out in rounds is no obstacle"
                rulebook.nonlinear.add(found.component)
            except RecursionError:
                raise NestedTooDeep from None


def _planned(rulebook: Rulebook, tables: CallerTables, root: Root, types: tuple[str, ...]) -> LocalPlan:
    resolver = Resolver(rulebook, tables.places, make_net)
    outs = tuple(Var(k, type=name) for k, name in enumerate(types))
    fixed: frozenset[Operand] = frozenset(arg for call in root.calls for arg in call.args if isinstance(arg, Slot))
    net = make_net(resolver, Partial((*root.givens, *root.calls), outs), fixed)
    ends = (_enumerated(resolver, tables, end, types) for end in net.exits)
    return LocalPlan(_ways(resolver, net, ends, fixed), types)


def _ways(resolver: Resolver, net: Net, ends: Iterable[Exit], fixed: frozenset[Operand]) -> Ways:
    ways = (_way(resolver, Frame(fixed), end) for end in ends)
    return Ways(net, tuple(way for way in ways if way is not None))


def _enumerated(resolver: Resolver, tables: CallerTables, end: Exit, types: tuple[str, ...]) -> Exit:
    """The exit with columns that stand for every value read from all ids of their types, where those are known."""
    sources = list(end.branch.sources)
    columns: dict[Var, Col] = {}
    for out, type_name in zip(end.outs, types):
        # Two columns may stand for one and the same value.
        if isinstance(out, Var) and out not in columns and type_name in tables.bindings.domains:
            source = Domain(next(resolver.numbers), type_name)
            sources.append(source)
            columns[out] = Col(source.number, "v", type_name)
    outs = substituted_terms(end.outs, columns)
    guards = tuple(substituted(guard, columns) for guard in end.guards)
    return replace(end, branch=Branch(tuple(sources), end.branch.conditions), outs=outs, guards=guards)


def _way(resolver: Resolver, frame: Frame, end: Exit) -> Way | None:
    conditions: list[Condition] = []
    withheld: list[Ways] | None = []
    for guard in end.guards:
        if any(isinstance(arg, Var) for arg in guard.call.args):
            found = _withheld(resolver, guard, end)
            withheld = None if withheld is None or found is None else [*withheld, found]
            continue
        verdict = tested(resolver, guard, frame)
        if verdict is False:
            return None
        conditions += [] if verdict is True else [verdict]
    branch = Branch(end.branch.sources, (*end.branch.conditions, *conditions))
    return Way(replace(end, branch=branch, guards=()), None if withheld is None else tuple(withheld))


def _withheld(resolver: Resolver, guard: Neg, end: Exit) -> Ways | None:
    """The ways to what the guard holds back; None where that depends on the row, or on several columns."""
    args = guard.call.args
    if len(end.outs) != 1 or any(isinstance(arg, Col) for arg in args):
        return None
    outward = tuple(
        Var(-1 - arg.number, type=name) if isinstance(arg, Inner) else arg for arg, name in zip(args, guard.call.types)
    )
    fixed: frozenset[Operand] = frozenset(arg for arg in args if isinstance(arg, Slot))
    net = make_net(resolver, Partial((replace(guard.call, args=outward),), (Var(0, type=type_of(end.outs[0])),)), fixed)
    return _ways(resolver, net, net.exits, fixed)
