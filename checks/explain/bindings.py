"""What makes some conditions of a rule true together: values of their variables, found by one statement."""

from __future__ import annotations

from collections.abc import Sequence

from checks.asking.question import Values
from checks.asking.snapshot import Snapshot
from checks.engine.compile import Root
from checks.engine.errors import CannotEnumerate, UnboundVariable
from checks.engine.rules.clauses import Call, Const, Operand, Term, substituted
from checks.engine.rules.clauses import Var as EngineVar
from checks.explain.cases import Case, Condition, Env
from policy.rules.program import Atom, Compare, Var
from policy.values import INTEGER, Value

ANY = ""  # the id of a value that nothing mentions: what holds for it holds for every such value
_FREE = 500  # numbers of variables that are not asked for
_FEW = 8


def witnesses(
    scene: Snapshot, case: Case, env: Env, conditions: Sequence[Condition], most: int, is_certain: bool = False
) -> list[Env] | None:
    """At most so many ways to give the conditions' variables values, `env` included; None where that cannot be told.

    Where the engine cannot list the values of what a rule leaves open, a value that nothing mentions is tried.
    `is_certain` says that there is a way: where only one is left, it is not asked again whether it is one.
    """

    def listed(env: Env, conditions: Sequence[Condition]) -> list[Env] | None:
        if any(_is_ordered(condition, env) for condition in conditions):
            return None
        wanted = _open_variables(conditions, env)
        if is_certain and not wanted and len(starts) == 1:
            return [env]
        try:
            if _fails_at_once(scene, case, env, conditions):
                return []
            return _found(scene, case, env, conditions, wanted, most)
        except (CannotEnumerate, UnboundVariable):
            return _stood_in_for(scene, case, env, conditions, wanted)

    starts, others = _starts(scene, case, env, conditions)
    found = [listed(start, others) for start in starts]
    told = [each for some in found if some for each in some]
    return None if not told and None in found else told[:most]


def met_by(scene: Snapshot, case: Case, env: Env, conditions: Sequence[Condition]) -> Env | None:
    """Values for which the conditions hold, without those that cannot be told; None where they do not hold."""

    starts, others = _starts(scene, case, env, conditions)
    for start in starts:
        try:
            found = _found(scene, case, start, others, _open_variables(others, start), 1)
        except CannotEnumerate:
            found = _found(scene, case, start, others, [], 1)
        if found:
            return found[0]
    return None


def _fails_at_once(scene: Snapshot, case: Case, env: Env, conditions: Sequence[Condition]) -> bool:
    """Whether the first of several things that have to follow does not follow, whatever the others do.

    Asked alone it is cheap, and often the same again for the next goal of a recursion.
    """
    atoms = [each for each in conditions if isinstance(each.literal, Atom)]
    return len(atoms) > 1 and not _found(scene, case, env, atoms[:1], [], 1)


def _starts(
    scene: Snapshot, case: Case, env: Env, conditions: Sequence[Condition]
) -> tuple[list[Env], Sequence[Condition]]:
    """Where to start from, and the conditions that are left.

    Facts that are few lead on, one by one, to what is derived from them: that asks about given values alone. Where they
    are many, all is asked at once.
    """
    facts = [each for each in conditions if _is_fact(scene, each, env)]
    others = [each for each in conditions if each not in facts]
    if facts and any(isinstance(each.literal, Atom) for each in others):
        starts = _found(scene, case, env, facts, _open_variables(facts, env), _FEW + 1)
        if len(starts) <= _FEW:
            return starts, others
    return [env], conditions


def _is_fact(scene: Snapshot, condition: Condition, env: Env) -> bool:
    """Whether only facts can make the condition true."""
    is_atom = isinstance(condition.literal, Atom)
    return is_atom and not scene.book.cases(scene.book.kind_of_condition(condition, env))


def _stood_in_for(
    scene: Snapshot, case: Case, env: Env, conditions: Sequence[Condition], wanted: Sequence[Var]
) -> list[Env] | None:
    stand_in = env | {variable: Value(case.types[variable], ANY) for variable in wanted}
    try:
        return _found(scene, case, stand_in, conditions, [], 1) or None
    except (CannotEnumerate, UnboundVariable):
        return None


def _open_variables(conditions: Sequence[Condition], env: Env) -> list[Var]:
    return list(dict.fromkeys([v for condition in conditions for v in condition.binds if v not in env]))


def _found(
    scene: Snapshot, case: Case, env: Env, conditions: Sequence[Condition], wanted: list[Var], most: int
) -> list[Env]:
    if not conditions:
        return [env]
    if any(_is_ordered(condition, env) for condition in conditions):
        return []
    slots = scene.slots()
    terms = _terms(scene, case, env, wanted, slots)
    literals = [substituted(each, terms) for condition in conditions for each in condition.asked]
    if not literals:
        return [env]
    calls = tuple([each for each in literals if isinstance(each, Call)])
    root = Root(calls, (), tuple([each for each in literals if not isinstance(each, Call)]))
    rows = scene.rows(root, len(wanted), slots, most)
    return [
        env | {variable: Value(case.types[variable], text or ANY) for variable, text in zip(wanted, row)}
        for row in dict.fromkeys(rows)
    ]


def _is_ordered(condition: Condition, env: Env) -> bool:
    """Whether an Integer that may be any is compared by size: nothing can be said of it."""
    match condition.literal:
        case Compare(operator, left, right) if operator not in ("=", "!="):
            return any(isinstance(term, Var) and env.get(term) == Value(INTEGER, ANY) for term in (left, right))
    return False


def _terms(scene: Snapshot, case: Case, env: Env, wanted: list[Var], slots: dict) -> dict[EngineVar, Term]:
    values = Values(scene.program.names, slots)
    terms: dict[EngineVar, Term] = {}
    for variable, engine_variable in case.numbers.items():
        if variable in env:
            terms[engine_variable] = _operand(values, env[variable])
        elif variable in wanted:
            terms[engine_variable] = EngineVar(wanted.index(variable), variable.name)
        else:
            terms[engine_variable] = EngineVar(_FREE + engine_variable.number, variable.name)
    return terms


def _operand(values: Values, value: Value) -> Operand:
    return Const(ANY) if value.id == ANY else values.one(value.type, value.id)
