"""The oracle of plans: what a plan means, worked out by brute force over Python sets, without a word of SQL.

A branch is every way to take one row from each of its sources so that its conditions hold. A plan's answers are what
its exits make of their branches; its goals and answers are the least tables that its seeds, moves and arms lead to,
found by going on until nothing is new. Rows are looked up, as is what a plan answered before; nothing is ordered.

    known = Known(stored, inline, slots)
    rows_of(plans, width, known)        # what the statement for these plans answers, row for row
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from checks.engine.compile import UNGUARDED, PlannedRoot
from checks.engine.plan.draft import variant_of
from checks.engine.plan.plan import (
    Answers,
    ArgumentPosition,
    Branch,
    Candidates,
    Condition,
    DerivedTable,
    Domain,
    Exit,
    FactScan,
    Goals,
    Holds,
    Ids,
    Plan,
    PlanSource,
    Same,
    Tagged,
    Variant,
)
from checks.engine.rules.clauses import Cmp, Col, Const, Given, Member, Operand, Other, Slot, Term, Var
from policy.rules.program import Signature

Facts = Mapping[Signature, Iterable[tuple[str, ...]]]
Row = tuple[str | None, ...]  # None stands for every value
Env = dict[Col, object]  # of the rows that were taken: what is in which column


@dataclass(frozen=True)
class Known:
    """Stored facts, those that the request brings, and the question's values; lists of values as JSON."""

    stored: Facts
    inline: Facts
    slots: Mapping[str, object]
    answered: dict[tuple[object, ...], set[Row]] = field(default_factory=dict, compare=False)  # by plans

    def facts(self, store: str, signature: Signature) -> Iterable[tuple[str, ...]]:
        return (self.stored if store == "stored" else self.inline).get(signature, ())


@dataclass(frozen=True)
class Tables:
    """Rows of a plan's goals (tag, keys) and answers (tag, keys, outs)."""

    goals: set[tuple[int, Row]] = field(default_factory=set)
    answers: set[tuple[int, Row, Row]] = field(default_factory=set)


# ---- plans and their parts -----------------------------------------------------------------------------------------


def rows_of(plans: tuple[PlannedRoot, ...], width: int, known: Known) -> set[tuple]:
    """The rows of the statement: exit and outcome where there are guards, the root where there are several, answers."""
    found: set[tuple] = set()
    is_guarded, exit_count = any(plan.guarded for plan in plans), 0
    for index, plan in enumerate(plans):
        root, tables = (str(index),) if len(plans) > 1 else (), tables_of(plan.plan, {}, known)
        for end in plan.plain:
            for env in taken(end.branch, {}, tables, known):
                found.add((*((UNGUARDED, 1) if is_guarded else ()), *root, *outs_of(end, env, known)))
        for each in plan.guarded:
            exit_count += 1
            for env in taken(each.exit.branch, {}, tables, known):
                outcome = all(is_met(test, env, known) for test in each.tests)
                found.add((str(exit_count), int(outcome), *root, *outs_of(each.exit, env, known)))
    return found if width else {(int(bool(found)),)}


def answers_of_plan(plan: Plan, variant: Variant | None, env: Env, known: Known) -> set[Row]:
    """The answers of one variant, or all, for what is around the plan."""
    key = (plan, variant, *(env[each] for each in plan.fixed if isinstance(each, Col)))
    if key not in known.answered:
        exits = [end for end in plan.exits if variant is None or variant_of(end, plan.fixed) == variant]
        tables = tables_of(plan, env, known)
        rows = {outs_of(end, row, known) for end in exits for row in taken(end.branch, env, tables, known)}
        known.answered[key] = rows
    return known.answered[key]


def tables_of(plan: Plan, env: Env, known: Known) -> Tables:
    """The least goals and answers that hold what seeds, moves and arms make of them."""
    tables = Tables()
    while True:
        goals = {
            (plan.states.index(jump.state), values(jump.keys, row, known))
            for jump in (*plan.seeds, *plan.moves)
            for row in taken(jump.branch, env, tables, known)
        }
        answers = {
            (arm.tag, values(arm.keys, row, known), outs_of(arm.exit, row, known))
            for arm in plan.answers
            for row in taken(arm.exit.branch, env, tables, known)
        }
        if goals <= tables.goals and answers <= tables.answers:
            return tables
        tables = Tables(tables.goals | goals, tables.answers | answers)


def outs_of(end: Exit, env: Env, known: Known) -> Row:
    return tuple(None if isinstance(out, Var) else value(out, env, known) for out in end.outs)


# ---- branches ---------------------------------------------------------------------------------------------------


def taken(branch: Branch, env: Env, tables: Tables, known: Known) -> list[Env]:
    """Every way to take a row from each source; conditions are tested once what they compare is there."""
    tests = [each for each in branch.conditions if not isinstance(each, Holds)]
    found, unread = [env], {source.number for source in branch.sources}
    for source in (None, *branch.sources):
        if source is not None:
            unread.remove(source.number)
            found = joined(found, source, tests, unread, tables, known)
        ready = [test for test in tests if not {column.source for column in compared(test)} & unread]
        tests = [test for test in tests if test not in ready]
        found = [each for each in found if all(is_met(test, each, known) for test in ready)]
    checks = [each for each in branch.conditions if isinstance(each, Holds)]
    return [each for each in found if all(is_met(check, each, known) for check in checks)]


def joined(
    found: list[Env], source: PlanSource, tests: list[Condition], unread: set[int], tables: Tables, known: Known
) -> list[Env]:
    """Each of these with each row of the source; of rows that are the same for all, only those that join."""
    if isinstance(source, DerivedTable) and any(isinstance(each, Col) for each in source.plan.fixed):
        return [each | row for each in found for row in columns_of(source, each, tables, known)]
    pairs = list(joins_of(source, tests, unread))
    tagged = [test for test in tests if isinstance(test, Tagged) and test.source == source.number]
    rows: dict[Row, list[Env]] = {}
    for row in columns_of(source, {}, tables, known) if found else ():
        if all(is_met(test, row, known) for test in tagged):  # rows of other tags have other columns
            rows.setdefault(values([own for own, _ in pairs], row, known), []).append(row)
    return [each | row for each in found for row in rows.get(values([other for _, other in pairs], each, known), ())]


def joins_of(source: PlanSource, tests: list[Condition], unread: set[int]) -> Iterator[tuple[Col, Operand]]:
    """Columns of the source that are to be the same as what is known before it."""
    later = unread | {source.number}
    for test in tests:
        if isinstance(test, Same):
            for own, other in ((test.left, test.right), (test.right, test.left)):
                is_known = not (isinstance(other, Col) and other.source in later)
                if isinstance(own, Col) and own.source == source.number and is_known:
                    yield own, other


def columns_of(source: PlanSource, env: Env, tables: Tables, known: Known) -> Iterator[dict[Col, object]]:
    """Each row of the source, by its columns."""
    for row in rows_in(source, env, tables, known):
        yield {Col(source.number, name): value for name, value in row.items()}


def rows_in(source: PlanSource, env: Env, tables: Tables, known: Known) -> Iterator[dict[str, object]]:
    match source:
        case FactScan(_, signature, store):
            yield from (named("a", row) for row in known.facts(store, signature))
        case Ids(_, slot):
            yield from ({"v": text} for text in json.loads(str(known.slots[slot])))
        case Candidates(_, positions, ids):
            yield from ({"v": text} for text in {"", *ids, *at(positions, known)})
        case Domain(_, _, positions, ids, given, near):
            found = {*ids, *at(positions, known)}
            for each in given:
                found |= (
                    {*json.loads(str(known.slots[each.slot]))} if isinstance(each, Given) else {value(each, {}, known)}
                )
            numbers = (int(text) + way for text in found for way in range(-near, near + 1)) if near else ()
            yield from ({"v": text} for text in found.union(map(str, numbers)))
        case Goals():
            yield from ({"tag": tag, **named("c", keys)} for tag, keys in tables.goals)
        case Answers():
            yield from ({"tag": tag, **named("c", keys), **named("o", outs)} for tag, keys, outs in tables.answers)
        case DerivedTable(_, plan, variant):
            for row in answers_of_plan(plan, variant, env, known):
                yield {plan.column(index): text for index, text in enumerate(row)}


def at(positions: Iterable[ArgumentPosition], known: Known) -> Iterator[str]:
    """The ids that facts have there."""
    for signature, index in ((each.signature, each.index) for each in positions):
        for row in (*known.facts("stored", signature), *known.facts("inline", signature)):
            yield row[index]


def named(letter: str, row: Row) -> dict[str, object]:
    return {f"{letter}{index}": text for index, text in enumerate(row)}


# ---- conditions -------------------------------------------------------------------------------------------------


def is_met(condition: Condition, env: Env, known: Known) -> bool:
    match condition:
        case Same(left, right):
            return value(left, env, known) == value(right, env, known)
        case Member(operand, ids):
            return value(operand, env, known) in ids
        case Cmp("!=", left, right):
            return value(left, env, known) != value(right, env, known)
        case Cmp(operator, left, right):
            a, b = int(value(left, env, known)), int(value(right, env, known))
            return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]
        case Tagged(source, tag):
            return env[Col(source, "tag")] == tag
        case Holds(plan, negated):
            return bool(answers_of_plan(plan, None, env, known)) != negated


def compared(condition: Condition) -> set[Col]:
    match condition:
        case Same(left, right) | Cmp(_, left, right):
            terms: tuple[Term, ...] = (left, right)
        case Member(operand):
            terms = (operand,)
        case Tagged(source):
            terms = (Col(source, "tag"),)
    return {term for term in terms if isinstance(term, Col)}


def values(operands: Iterable[Operand], env: Env, known: Known) -> Row:
    return tuple(value(operand, env, known) for operand in operands)


def value(operand: Term, env: Env, known: Known) -> str:
    match operand:
        case Const(text):
            return text
        case Slot(name) | Other(name):
            return str(known.slots[name])
        case Col():
            return str(env[operand])
    raise AssertionError(f"{operand} has no value where a statement runs")
