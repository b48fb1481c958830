"""The columns of tables that a statement makes itself.

A column of goals or answers means one thing in one state and another in the next: a user here, a folder there. So that
numbers stay numbers on their way through a recursion, each family has columns of its own (`ci0` for integers, `ct0` for
texts): a column holds the same family in every row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from checks.engine.plan.plan import Answers, Branch, Goals, Plan, Tagged
from checks.engine.rules.clauses import Term, type_of
from checks.engine.sql.text import Column, Shown
from localsql.bindings import Bindings
from localsql.dialects import NATIVE, Dialect
from localsql.families import Family
from localsql.relations import FoldedDerivedTable
from policy.values import INTEGER

FamilyColumn = tuple[str, Family]  # a column, and its family
FamilyColumns = dict[str, FamilyColumn]  # by the plan's names of columns


@dataclass(frozen=True)
class Carried(Shown):
    """A term as a column of a table that the statement makes itself, with an alias where it has a name."""

    family: Family
    name: str = ""
    in_recursion: bool = False  # in a recursion, a column must have the same type in every row


@dataclass(frozen=True)
class ByFamily:
    """A table of goals or answers; `by_tag` says, for each tag, in which columns its values are."""

    dialect: Dialect
    by_tag: Sequence[FamilyColumns]

    @cached_property
    def columns(self) -> dict[str, Family]:
        return dict(
            sorted({column for columns in self.by_tag for column in columns.values()}, key=lambda each: each[0])
        )

    @property
    def names(self) -> Sequence[str]:
        return list(self.columns)

    def cells(self, tag: int, terms: Mapping[str, Term]) -> list[Column]:
        held = {column: terms[name] for name, (column, _) in self.by_tag[tag].items() if name in terms}
        return [self._cell(held.get(column), column, family) for column, family in self.columns.items()]

    def _cell(self, term: Term | None, column: str, family: Family) -> Column:
        if term is None:
            return (f"{self.dialect.null(family)} AS {column}",)
        return Carried(term, family, column, in_recursion=True)


@dataclass(frozen=True)
class Layouts:
    bindings: Bindings

    def of(self, plan: Plan, kind: type[Goals] | type[Answers]) -> ByFamily:
        tags, columns_of = (plan.states, self._goals) if kind is Goals else (plan.tags, self._answers)
        return ByFamily(self.bindings.dialect, [columns_of(plan, tag) for tag in range(len(tags))])

    def read(self, source: Goals | Answers, branch: Branch, plan: Plan) -> FamilyColumns:
        """Return the columns of the goals or answers that a branch reads."""
        tests = (each for each in branch.conditions if isinstance(each, Tagged) and each.source == source.number)
        tag = next(tests).tag
        return self._goals(plan, tag) if isinstance(source, Goals) else self._answers(plan, tag)

    def _goals(self, plan: Plan, index: int) -> FamilyColumns:
        """Return the columns in which the goals of a state have its keys."""
        return _placed("c", (self.family(key.type) for key in plan.states[index].keys))

    def _answers(self, plan: Plan, tag: int) -> FamilyColumns:
        """Return the columns in which the answers with a tag have the keys of their goal, and their own values."""
        index, _ = plan.tags[tag]
        keys = self._goals(plan, index) if any(arm.keys for arm in plan.answers) else {}
        return keys | _placed("o", (self.family(type_of(out)) for out in plan.states[index].outs))

    def derived_table(self, source: FoldedDerivedTable) -> list[Family]:
        return [self.family(name) for name in source.types]

    def family(self, type_name: str) -> Family:
        """Return the family of ids of the type in such tables; text if no other one is known."""
        if not type_name:
            return Family.TEXT
        found = self.bindings.carried_family(type_name)
        if type_name == INTEGER and found == Family.UNKNOWN:
            return Family.INTEGER
        return found if found in NATIVE else Family.TEXT


def _placed(letter: str, families: Iterable[Family]) -> FamilyColumns:
    """Place values in columns by family: integer, text, text -> ci0, ct0, ct1"""
    counts: dict[Family, int] = {}
    found = {}
    for index, family in enumerate(families):
        number = counts[family] = counts.get(family, -1) + 1
        found[f"{letter}{index}"] = (f"{letter}{family.value[0]}{number}", family)
    return found
