"""Folded plans -> the SQL that is handed out: a row, rows, or a condition on the caller's column.

What is certain is said plainly: TRUE, FALSE, a list of constants. A condition is one expression that can stand
beside AND, and after NOT.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from checks.engine.clauses import Col, Const, Var
from checks.engine.plan import Branch, Exit, Net
from localsql.dialects import NATIVE, Typed
from localsql.errors import CannotSay, UnboundedVariable
from localsql.families import Family, is_possible
from localsql.planning import LocalPlan
from localsql.relations import Domain
from localsql.render import Renderer, union
from localsql.residual import Known

TRUE, FALSE = "TRUE", "FALSE"
EVERY = "*"


@dataclass(frozen=True)
class FoldedWay:
    """A way with what stored facts decide worked out; `withheld` likewise, None where it cannot be listed."""

    exit: Exit
    withheld: tuple[Net, ...] | None

    @property
    def is_certain(self) -> bool:
        return not self.exit.branch.sources and not self.exit.branch.conditions

    @property
    def open_columns(self) -> list[int]:
        return [index for index, out in enumerate(self.exit.outs) if isinstance(out, Var)]


@dataclass(frozen=True)
class Folded:
    plan: LocalPlan
    names: tuple[str, ...]  # of the answer columns, as the caller calls them
    net: Net
    ways: tuple[FoldedWay, ...]

    def nets(self) -> list[Net]:
        """What is to be rendered, the ways' exits among it."""
        whole = replace(self.net, exits=tuple(way.exit for way in self.ways))
        return [whole, *(net for way in self.ways for net in way.withheld or ())]


# ---- whether there is an answer --------------------------------------------------------------------------------


def verdict(renderer: Renderer, folded: Folded, column: str) -> str:
    """A SELECT of one row with one truth value."""
    return _as_column(renderer, _verdict(renderer, folded), column)


def _as_column(renderer: Renderer, truth: str, column: str) -> str:
    return f"{truth} AS {column}" if truth.startswith("WITH ") else f"SELECT {truth} AS {column}"


def _verdict(renderer: Renderer, folded: Folded) -> str:
    if any(way.is_certain for way in folded.ways):
        return TRUE
    scope = renderer.entered(folded.net)
    arms = renderer.arms([way.exit for way in folded.ways], (), scope)
    if not arms:
        return FALSE
    exists = f"SELECT EXISTS ({union(arms, distinct=False)})"
    found = renderer.head(exists)
    return found if found.startswith("WITH ") else found.removeprefix("SELECT ")


# ---- rows of answers ----------------------------------------------------------------------------------------------


def rows(renderer: Renderer, folded: Folded, columns: Sequence[str], every: str | None = None) -> str:
    """A SELECT of the distinct answers; `columns` are the names of its columns.

    An answer that stands for every value is the text `every`, or else refused.
    """
    ends = [_shown(folded, way, every) for way in folded.ways]
    families = [renderer.layouts.family(name) for name in folded.plan.types]
    named = [renderer.dialect.quoted(column) for column in columns]
    scope = renderer.entered(folded.net)
    arms = renderer.arms(ends, families, scope)
    if not arms:
        nothing = (f"{renderer.dialect.null(family)} AS {name}" for family, name in zip(families, named))
        return f"SELECT {', '.join(nothing)}{renderer.dialect.dual} WHERE FALSE"
    fields = ", ".join(f"o{index}" for index in range(len(columns)))
    answers = f"__answers({fields}) AS ({union(arms, distinct=True)})"
    shown = (
        f"{renderer.dialect.shown(f'o{index}', family)} AS {name}"
        for index, (family, name) in enumerate(zip(families, named))
    )
    return renderer.head(f"SELECT {', '.join(shown)} FROM __answers", answers)


def _shown(folded: Folded, way: FoldedWay, every: str | None) -> Exit:
    opened = way.open_columns
    if not opened:
        return way.exit
    if every is None:
        raise UnboundedVariable(folded.names[opened[0]], folded.plan.types[opened[0]])
    if way.withheld != ():
        raise _all_but_some(folded, opened[0])
    outs = tuple(Const(every) if isinstance(out, Var) else out for out in way.exit.outs)
    return Exit(way.exit.branch, outs)


def _all_but_some(folded: Folded, index: int) -> CannotSay:
    name, type_name = folded.names[index], folded.plan.types[index]
    return CannotSay(
        f"the answer for `{name}` is every {type_name} but some, which depends on facts in the database;"
        f" give the query of all ids of {type_name} under `domains` in the data bindings"
    )


# ---- a condition on a column ---------------------------------------------------------------------------------------


def condition(renderer: Renderer, folded: Folded, column: str) -> str:
    """A truth value for each row that the caller's column is of."""
    side = Typed(column, renderer.tables.bindings.family(folded.plan.types[0]))
    pieces: list[str] = []
    bound = [way for way in folded.ways if not way.open_columns]
    if any(_is_everything(way) for way in folded.ways):
        return TRUE
    for way in folded.ways:
        if way.open_columns:
            piece = _gated(renderer, folded, way, side)
            if piece == TRUE:
                return TRUE
            pieces += [piece] if piece != FALSE else []
    listed = _listed(renderer, folded.net, [way.exit for way in bound], side)
    pieces += [listed] if listed else []
    pieces = list(dict.fromkeys(pieces))
    if len(pieces) < 2:
        return pieces[0] if pieces else FALSE
    return f"({' OR '.join(pieces)})"


def _is_everything(way: FoldedWay) -> bool:
    """Every id of the type, whatever the bindings list."""
    branch = way.exit.branch
    if way.open_columns:
        return way.is_certain and way.withheld == ()
    return not branch.conditions and len(branch.sources) == 1 and isinstance(branch.sources[0], Domain)


def _gated(renderer: Renderer, folded: Folded, way: FoldedWay, side: Typed) -> str:
    """Every value, as far as a test of its own holds, but those that are withheld."""
    if way.withheld is None:
        raise _all_but_some(folded, 0)
    tests = [] if way.is_certain else [_exists(renderer, folded.net, [way.exit])]
    for net in way.withheld:
        tests.append(_not_withheld(renderer, net, side))
    if FALSE in tests:
        return FALSE
    tests = [test for test in dict.fromkeys(tests) if test != TRUE]
    if len(tests) < 2:
        return tests[0] if tests else TRUE
    return f"({' AND '.join(tests)})"


def _not_withheld(renderer: Renderer, net: Net, side: Typed) -> str:
    bound = [end for end in net.exits if not isinstance(end.outs[0], Var)]
    whole = [end for end in net.exits if isinstance(end.outs[0], Var)]
    if any(not end.branch.sources and not end.branch.conditions for end in whole):
        return FALSE
    if any(end.guards for end in net.exits):
        raise CannotSay(
            "the answer is every value but some, which other negations hold back again; ask about given values"
        )
    renderer.check_whole(net)
    tests = []
    if whole:
        tests.append(f"NOT {_exists(renderer, net, whole)}")
    listed = _listed(renderer, net, bound, side)
    if listed:
        tests.append(f"NOT ({listed})" if not listed.startswith("(") else f"NOT {listed}")
    return " AND ".join(test for test in tests if test != "NOT FALSE") or TRUE


def _exists(renderer: Renderer, net: Net, ends: Iterable[Exit]) -> str:
    own = renderer.anew()
    scope = own.entered(net)
    arms = own.arms([Exit(end.branch, ()) for end in ends], (), scope)
    return f"EXISTS ({own.head(union(arms, distinct=False))})" if arms else FALSE


def _listed(renderer: Renderer, net: Net, ends: list[Exit], side: Typed) -> str | None:
    """The column is among the answers of the exits; None where there are none."""
    own = renderer.anew()
    family = side.family if side.family in NATIVE else Family.TEXT
    constants = sorted({text for end in ends for text in constants_of(end) or ()})
    scope = own.entered(net)
    others = [end for end in ends if constants_of(end) is None]
    arms = own.list_arms(others, side, scope)
    if not arms:
        return own.dialect.listed(side, constants)
    possible = [own.dialect.constant(each, family) for each in constants if is_possible(each, family)]
    if possible:
        arms.append(own.constants(possible))
    return f"{own.dialect.list_side(side)} IN ({_one_select(own, arms)})"


def _one_select(renderer: Renderer, arms: list[str]) -> str:
    rows = union(arms, distinct=False)
    if len(arms) < 2 or renderer.dialect.plans_unions:
        return renderer.head(rows)
    return renderer.head("SELECT o0 FROM __answers", f"__answers(o0) AS ({rows})")


def constants_of(end: Exit) -> list[str] | None:
    """The answers of an exit of one column, where they are constants."""
    match end:
        case Exit(Branch((), ()), (Const(text),)):
            return [text]
        case Exit(Branch((Known(number, known, (_,)),), ()), (Col(source, _),)) if source == number:
            return [row[0] for row in known]
    return None
