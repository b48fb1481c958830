"""Finds bindings of variables for which conditions of a rule hold together.

has_relation(doc, "folder", up) and has_role(user, "reader", up)      with doc = Doc:d and user = User:ann
->  up = Folder:f
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from checks.asking.question import Values
from checks.asking.snapshot import Snapshot
from checks.engine.compile import Root
from checks.engine.errors import CannotEnumerate, UnboundVariable
from checks.engine.rules.clauses import Call, Const, Operand, Term, substituted
from checks.engine.rules.clauses import Var as EngineVar
from checks.explain.cases import ANY, Case, RuleBindings, RuleCondition
from policy.rules.program import Atom, Compare, Var
from policy.values import Value

_FREE = 500  # numbers of variables that are not asked for begin here
_FEW = 8  # up to so many bindings that facts give are followed one by one

Conditions = Sequence[RuleCondition]


def bindings_for(
    session: Snapshot, case: Case, known: RuleBindings, most: int, is_certain: bool = False
) -> list[RuleBindings] | None:
    """Return at most `most` bindings, the known ones included, for which the whole case holds; None if not known.

    Where the engine cannot list the values of a variable, a value that nothing mentions is tried. `is_certain` says
    that the case is known to hold: if one possibility is left then, with no variable open, it is returned without
    asking.
    """
    questions = _Questions(session, case)
    starts, conditions = questions.starts(known, case.conditions)
    is_left = is_certain and len(starts) == 1
    found = [questions.extended(start, conditions, most, is_left) for start in starts]
    held = [each for some in found if some for each in some]
    return None if not held and None in found else held[:most]


def first_bindings(
    session: Snapshot, case: Case, known: RuleBindings, conditions: Conditions, are_listed: bool = True
) -> RuleBindings | None:
    """Return bindings for which these conditions hold; None if there are none.

    Variables stay unbound where the engine cannot list their values, or where these are not to be listed.
    """
    questions = _Questions(session, case)
    starts, others = questions.starts(known, conditions)
    for start in starts:
        try:
            found = questions.answers(start, others, _unbound(others, start) if are_listed else (), 1)
        except CannotEnumerate:
            found = questions.answers(start, others, (), 1)
        if found:
            return found[0]
    return None


@dataclass(frozen=True, slots=True)
class _Questions:
    """Asks about conditions of one case."""

    session: Snapshot
    case: Case

    def starts(self, known: RuleBindings, conditions: Conditions) -> tuple[list[RuleBindings], Conditions]:
        """Return bindings to start from, and the conditions that are still to be asked for each of them.

        The conditions that only facts can meet are asked first. If they give few bindings, each is followed alone, so
        that derived conditions are asked about given values only. If they give many, all conditions are asked at once.
        """
        facts = [each for each in conditions if self._is_met_by_facts_alone(each, known)]
        others = [each for each in conditions if each not in facts]
        if facts and any(isinstance(each.literal, Atom) for each in others):
            starts = self.answers(known, facts, _unbound(facts, known), _FEW + 1)
            if len(starts) <= _FEW:
                return starts, others
        return [known], conditions

    def extended(
        self, known: RuleBindings, conditions: Conditions, most: int, is_certain: bool
    ) -> list[RuleBindings] | None:
        """Return the known bindings with those of the conditions' other variables; None if these are not known."""
        if _is_undecidable(conditions, known):
            return None
        wanted = _unbound(conditions, known)
        if is_certain and not wanted:
            return [known]
        try:
            if self._fails_at_once(known, conditions):
                return []
            return self.answers(known, conditions, wanted, most)
        except (CannotEnumerate, UnboundVariable):
            return self._with_any_value(known, conditions, wanted)

    def answers(
        self, known: RuleBindings, conditions: Conditions, wanted: Sequence[Var], most: int
    ) -> list[RuleBindings]:
        """Return the known bindings with values of the wanted variables for which the conditions hold."""
        if _is_undecidable(conditions, known):
            return []
        slots = self.session.slots()
        terms = self._terms(known, wanted, slots)
        literals = [substituted(each, terms) for condition in conditions for each in condition.asked]
        if not literals:
            return [known]
        calls = tuple([each for each in literals if isinstance(each, Call)])
        root = Root(calls, (), tuple([each for each in literals if not isinstance(each, Call)]))
        rows = self.session.rows(root, len(wanted), slots, most)
        types = self.case.types
        return [
            known | {variable: Value(types[variable], text or ANY) for variable, text in zip(wanted, row)}
            for row in dict.fromkeys(rows)
        ]

    def _is_met_by_facts_alone(self, condition: RuleCondition, known: RuleBindings) -> bool:
        cases = self.session.cases
        return isinstance(condition.literal, Atom) and not cases.of(cases.pattern_of_condition(condition, known))

    def _fails_at_once(self, known: RuleBindings, conditions: Conditions) -> bool:
        """Say whether the first of several atoms fails, whatever the others do.

        Asked alone it is cheap, and often asked again for the next goal of a recursion.
        """
        atoms = [each for each in conditions if isinstance(each.literal, Atom)]
        return len(atoms) > 1 and not self.answers(known, atoms[:1], (), 1)

    def _with_any_value(
        self, known: RuleBindings, conditions: Conditions, wanted: Sequence[Var]
    ) -> list[RuleBindings] | None:
        """Try values that nothing mentions; None if the conditions fail for them, since they may hold for others."""
        bindings = known | {variable: Value(self.case.types[variable], ANY) for variable in wanted}
        try:
            return self.answers(bindings, conditions, (), 1) or None
        except (CannotEnumerate, UnboundVariable):
            return None

    def _terms(self, known: RuleBindings, wanted: Sequence[Var], slots: dict[str, object]) -> dict[EngineVar, Term]:
        """Return the engine's term for each variable: its value, or a variable; wanted ones have the first numbers."""
        values = Values(self.session.program.names, slots)
        terms: dict[EngineVar, Term] = {}
        for variable, engine_variable in self.case.numbers.items():
            if variable in known:
                terms[engine_variable] = _operand(values, known[variable])
            elif variable in wanted:
                terms[engine_variable] = EngineVar(wanted.index(variable), variable.name)
            else:
                terms[engine_variable] = EngineVar(_FREE + engine_variable.number, variable.name)
        return terms


def _operand(values: Values, value: Value) -> Operand:
    return Const(ANY) if value.id == ANY else values.one(value.type, value.id)


def _unbound(conditions: Conditions, known: RuleBindings) -> tuple[Var, ...]:
    return tuple(dict.fromkeys([each for condition in conditions for each in condition.binds if each not in known]))


def _is_undecidable(conditions: Conditions, known: RuleBindings) -> bool:
    """Say whether a condition compares by `<` or the like, and one of its sides may be any value."""
    of_any = {variable for variable, value in known.items() if value.id == ANY}
    for condition in conditions:
        match condition.literal:
            case Compare(operator, left, right) if operator not in ("=", "!="):
                if left in of_any or right in of_any:
                    return True
    return False
