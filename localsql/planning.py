"""A question -> its plan over the caller's tables and the stored facts: the engine's net, and how to read its exits.

An answer that stands for every value is said by a condition alone (`FALSE OR gate`), or by all ids of the type, where
the bindings give them. What negations hold back from it is listed by a net of its own, where they mention nothing
but that value and what is given.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from checks import deadline
from checks.engine.clauses import Col, Inner, Neg, Slot, Var, substituted
from checks.engine.errors import NonLinear
from checks.engine.holding import tested
from checks.engine.nets import make_net
from checks.engine.partial import Frame, Partial
from checks.engine.plan import Branch, Condition, Exit, Net
from checks.engine.question import Root
from checks.engine.resolve import Resolver
from checks.engine.rulebook import Rulebook
from localsql.relations import CallerTables, Domain


@dataclass(frozen=True)
class Way:
    """An exit of the plan: its answer columns, `Var(k)` where column k stands for every value.

    `withheld` are nets whose answers are not among those values; None where they cannot be listed.
    """

    exit: Exit
    withheld: tuple[Net, ...] | None = ()

    @property
    def open_columns(self) -> list[int]:
        return [index for index, out in enumerate(self.exit.outs) if isinstance(out, Var)]


@dataclass(frozen=True)
class LocalPlan:
    net: Net
    ways: tuple[Way, ...]
    types: tuple[str, ...]  # of the answer columns

    def nets(self) -> list[Net]:
        return [self.net, *(net for way in self.ways for net in way.withheld or ())]


def planned(rulebook: Rulebook, tables: CallerTables, root: Root, types: tuple[str, ...]) -> LocalPlan:
    """The plan; a component that turns out to need two of its own answers at once is set apart from then on."""
    with deadline.holding(rulebook.lock):
        while True:
            deadline.check()
            try:
                return _planned(rulebook, tables, root, types)
            except NonLinear as found:
                assert found.component not in rulebook.nonlinear, "a component worked out in rounds is no obstacle"
                rulebook.nonlinear.add(found.component)


def _planned(rulebook: Rulebook, tables: CallerTables, root: Root, types: tuple[str, ...]) -> LocalPlan:
    resolver = Resolver(rulebook, tables.places, make_net)
    outs = tuple(Var(k) for k in range(len(types)))
    fixed = frozenset(arg for call in root.calls for arg in call.args if isinstance(arg, Slot))
    net = make_net(resolver, Partial((*root.givens, *root.calls), outs), fixed)
    frame = Frame(fixed)
    ways = tuple(_way(resolver, frame, _enumerated(resolver, tables, end, types)) for end in net.exits)
    return LocalPlan(net, tuple(way for way in ways if way is not None), types)


def _enumerated(resolver: Resolver, tables: CallerTables, end: Exit, types: tuple[str, ...]) -> Exit:
    """The exit with columns that stand for every value read from all ids of their types, where those are known."""
    sources, columns = list(end.branch.sources), {}
    for out, type_name in zip(end.outs, types):
        # Two columns may stand for one and the same value.
        if isinstance(out, Var) and out not in columns and type_name in tables.bindings.domains:
            source = Domain(next(resolver.numbers), type_name)
            sources.append(source)
            columns[out] = Col(source.number, "v")
    outs = tuple(columns.get(out, out) for out in end.outs)
    guards = tuple(substituted(guard, columns) for guard in end.guards)
    return replace(end, branch=Branch(tuple(sources), end.branch.conditions), outs=outs, guards=guards)


def _way(resolver: Resolver, frame: Frame, end: Exit) -> Way | None:
    conditions: list[Condition] = []
    withheld: list[Net] | None = []
    for guard in end.guards:
        if any(isinstance(arg, Var) for arg in guard.call.args):
            net = _withheld(resolver, guard, end)
            withheld = None if withheld is None or net is None else [*withheld, net]
            continue
        verdict = tested(resolver, guard, frame)
        if verdict is False:
            return None
        conditions += [] if verdict is True else [verdict]
    branch = Branch(end.branch.sources, (*end.branch.conditions, *conditions))
    return Way(replace(end, branch=branch, guards=()), None if withheld is None else tuple(withheld))


def _withheld(resolver: Resolver, guard: Neg, end: Exit) -> Net | None:
    """What the guard holds back, as answers; None where that depends on the row, or on several columns."""
    args = guard.call.args
    if len(end.outs) != 1 or any(isinstance(arg, Col) for arg in args):
        return None
    outward = tuple(Var(-1 - arg.number) if isinstance(arg, Inner) else arg for arg in args)
    fixed = frozenset(arg for arg in args if isinstance(arg, Slot))
    return make_net(resolver, Partial((replace(guard.call, args=outward),), (Var(0),)), fixed)
