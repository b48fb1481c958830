"""Operands and their tests in statements over stored facts: columns, parameters, ids.

For example `doc = $2`, `a1 IN ('reader', 'writer')`, or a column read as a number where its signature says that it is
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from checks.engine.plan.plan import FactScan, Source
from checks.engine.rules.clauses import NOW, Col, Const, Operand, Other, Slot, Term
from checks.engine.sql.dialects import Dialect
from checks.engine.sql.render import Renderer
from checks.engine.sql.scope import Scope
from checks.engine.sql.text import ConstantSet, Numbered, NumberHole, Text, joined
from policy.rules.program import Signature

Scoped = Scope[Source]


@dataclass
class StoredOperands(Renderer[Dialect, Source]):
    """The part of a renderer that knows nothing of plans."""

    number_of: Callable[[Signature], int]
    holes: Mapping[int, int] = field(default_factory=dict, kw_only=True)  # by source, in an arm for many (see `alike`)

    def among(self, operand: Operand, ids: tuple[str, ...], scope: Scoped) -> Text:
        if isinstance(operand, Col):
            return (ConstantSet(self._at(operand, scope), frozenset(ids)),)
        options = joined(", ", ((Const(each),) for each in ids))
        return (*self.dialect.text_value(self.operand(operand, scope)), " IN (", *options, ")")

    def equal(self, left: Operand, right: Operand, scope: Scoped) -> Text:
        """Return the test that both are equal. Of two parameters, neither has a type, so both are made text."""
        sides = [self.operand(side, scope) for side in (left, right)]
        if not isinstance(left, Col) and not isinstance(right, Col):
            sides = [self.dialect.text_value(side) for side in sides]
        return joined(" = ", sides)

    def unequal(self, left: Operand, right: Operand, scope: Scoped) -> Text:
        return (*self.operand(left, scope), " <> ", *self.operand(right, scope))

    def number(self, operand: Operand, scope: Scoped) -> Text:
        """Return the operand as a number: a fact's column if its signature matches; a parameter once, in a subquery."""
        text = self.operand(operand, scope)
        if not isinstance(operand, Col):
            return ("(SELECT ", *self.dialect.integer(text), ")")
        source = scope.seen.get(operand.source)
        if not isinstance(source, FactScan) or operand.source in scope.looked_up:
            return self.dialect.integer(text)
        return self.dialect.integer(text, self.number_test(source, scope))

    def operand(self, operand: Term, scope: Scoped) -> Text:
        match operand:
            case Col():
                return (self._at(operand, scope),)
            case Slot() if operand == NOW:
                return self.dialect.current_time(NOW)
            case Const() | Slot() | Other():
                return (operand,)
        raise AssertionError(f"{operand} has no value when the statement runs")

    def _at(self, column: Col, scope: Scoped) -> str:
        name = scope.names[column.source]
        if column.source in scope.looked_up:
            return self.dialect.of_looked_up(name, int(column.name.removeprefix("a")), column.name)
        return f"{name}.{column.name}" if name else column.name

    def number_test(self, source: FactScan, scope: Scoped) -> Text:
        name = scope.names[source.number]
        column = f"{name}.sig" if name else "sig"
        if source.number in self.holes:
            return (NumberHole(column, self.holes[source.number]),)
        test = Numbered(column, self.number_of(source.signature))
        return (test if self.dialect.joins_numbers else str(test),)
