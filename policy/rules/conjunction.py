"""The state of flattening a conjunction: its literals so far, and what the text says about its variables' types."""

from __future__ import annotations

from dataclasses import dataclass, field

from policy.language import ast
from policy.language.notes import shown
from policy.language.source import Span
from policy.rules.declarations import Mask, Vocabulary
from policy.rules.equalities import NOW
from policy.rules.flat import FlatRule
from policy.rules.formulas import ANONYMOUS, Memo
from policy.rules.problems import Problems
from policy.rules.program import TYPED, Literal, Now, Term, Var
from policy.values import INTEGER, Value


@dataclass(slots=True)
class Flattening:
    """The flattening of a whole policy: the flat rules so far."""

    vocabulary: Vocabulary
    problems: Problems
    rules: list[FlatRule] = field(default_factory=list)
    made: int = 0  # predicates so far
    memo: Memo = field(default_factory=dict)  # of the rule at hand
    variables: dict[str, Var] = field(default_factory=dict)  # of the rule at hand; `_` ones are numbered

    def variable(self, name: str) -> Var:
        if name == ANONYMOUS:
            name = f"_#{len(self.variables) + 1}"
        return self.variables.get(name) or self.variables.setdefault(name, Var(name))


@dataclass(slots=True)
class Conjunction:
    """`env` is what equalities substitute; for `bounds` and `limits` see `FlatRule`."""

    state: Flattening
    env: dict[Var, Term]
    bounds: dict[Var, Mask]
    limits: dict[Var, tuple[Mask, Span]] = field(default_factory=dict)
    literals: list[tuple[Literal, Span]] = field(default_factory=list)
    is_false: bool = False

    def term(self, written: ast.Term) -> Term:
        match written:
            case ast.Variable(name):
                variable = self.state.variable(name)
                return self.env.get(variable, variable) if self.env else variable
            case ast.Literal():
                return self.value(written)
        return NOW

    def value(self, written: ast.Literal) -> Value:
        self.state.vocabulary.check_literal(written, self.state.problems)
        return written.value

    def add(self, literal: Literal, span: Span) -> None:
        self.literals.append((literal, span))

    def fail(self, span: Span, message: str) -> None:
        """Mark the conjunction as one that can never hold, and warn: it will be left out."""
        self.is_false = True
        self.state.problems.warn(span, message, "the rule, or this part of it, has no effect")

    def bound(self, term: Term, mask: Mask | None, span: Span, operator: str = "") -> bool:
        """Restrict the term to these types; if it cannot have any of them, report a problem and return False."""
        if mask is None:
            return True
        known = self.bounds.get(term) if isinstance(term, Var) else self.types_of(term)
        if not known and not isinstance(term, Var):
            return False  # a value of an unknown type, which `value` has reported
        if known and mask and not known & mask:
            self._refuse_conflict(term, known, mask, span, operator)
            return False
        if isinstance(term, Var):
            self.bounds[term] = mask if known is None else known & mask
        return True

    def types_of(self, constant: Value | Now) -> Mask:
        return self.state.vocabulary.bits.get(INTEGER if isinstance(constant, Now) else constant.type, 0)

    def _refuse_conflict(self, term: Term, known: Mask, mask: Mask, span: Span, operator: str) -> None:
        describe, problems = self.state.vocabulary.describe, self.state.problems
        if operator:
            hint = "use `=` or `!=`, which compare values of any type"
            compares = f"`{operator}` compares {TYPED[operator].type}s"
            problems.error(span, f"{compares}, and {shown(str(term))} is {describe(known)}", hint)
        else:
            hint = "no value has both types; use another variable"
            problems.error(span, f"{shown(str(term))} cannot be {describe(mask)}: it is {describe(known)}", hint)
