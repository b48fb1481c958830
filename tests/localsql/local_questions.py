"""Questions about moved facts: the SQL that is produced must say over the tables what the oracle says of all facts."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from policy.language import parse
from policy.language.source import Source
from policy.values import STRING, Value
from tests.localsql.collations import unsafe_mentions
from tests.localsql.databases import Database
from tests.localsql.moving import Moved, everything, fill, kept, moved, shown
from tests.properties import ask_adapter
from tests.properties.ask_adapter import Caller
from tests.properties.questions import Actions, Ask, Authorize, Evaluate, List, Refused, _expected_rows, values_in
from tests.properties.random_policies import Case
from tests.reference import Model, Row, World, model_of, unmentioned

CONDITIONS = (  # what is written around a condition, and whether it then holds where the condition does
    ("{}", True),
    ("COALESCE({}, 1 = 0)", True),
    ("(1 = 1 AND {})", True),
    ("(1 = 0 OR {})", True),
    ("CASE WHEN ({}) THEN 1 ELSE 0 END = 1", True),
    ("NOT ({})", False),
    ("NOT {}", False),
    ("(NOT ({}) AND 1 = 1)", False),
)
JOIN = "LEFT JOIN (SELECT 2 AS tag) a0 ON {} WHERE tag = 2"
MOST = 8  # questions of a case
Post = Callable[[Caller, str, dict], object]


@dataclass
class Tally:
    """What was asked, and why not all of it was answered."""

    asked: int = 0
    wrong: int = 0
    with_nulls: int = 0  # conditions that hold for a row whose column is NULL
    refused: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Filter:
    """The condition on one variable of a query."""

    query: Evaluate
    variable: str


@dataclass(frozen=True)
class Sitting:
    """One state of facts, and the caller's database with part of it."""

    made: Moved
    caller: Caller
    world: World
    model: Model
    database: Database
    post: Post = ask_adapter._post


def differences(
    case: Case,
    rng: Random,
    new_key,
    databases: Sequence[Database],
    tally: Tally,
    post: Post = ask_adapter._post,
    move: Callable[[Case, Random], Moved] = moved,
) -> Iterator[str]:
    """What the produced SQL says wrongly; one text each."""
    made = move(case, rng)
    case = made.case
    caller = Caller(new_key())
    ask_adapter.publish(caller, case.policy)
    ask_adapter.store(caller, made.stored)
    asked = list(questions_of(case, rng))
    states = [_state(made, caller, databases[0], asked, brings, post) for brings in (False, True)]
    for database in databases:
        states = [replace(state, database=database) for state in states]
        fill(database, made, states[0].world)  # which is the same one
        for ask, brings in asked:
            wrong = _difference(states[brings], ask, tally)
            if wrong:
                tally.wrong += 1
                yield _told(states[brings], ask, wrong)


def _state(made: Moved, caller: Caller, database: Database, asked: list, brings: bool, post: Post) -> Sitting:
    """With or without the context facts, whose values are mentioned in any case."""
    policy, context = parse(Source(made.case.policy)), made.case.context if brings else ()
    mentioned = [value for _, row in made.case.context for value in row]
    for ask, _ in asked:
        mentioned += values_in(ask.query if isinstance(ask, Filter) else ask)
    facts = [*made.case.facts, *context]
    world = World.of(policy, facts, mentioned, int(time.time()))
    return Sitting(made, replace(caller, context=context), world, model_of(policy, facts, world), database, post)


def questions_of(case: Case, rng: Random) -> Iterator[tuple[Ask | Filter, bool]]:
    for question in case.questions[:MOST]:
        yield question.ask, question.with_context
        match question.ask:
            case Authorize(actor, action, resource):
                yield List(actor, action, resource.type), question.with_context
            case Evaluate(_, constraints):
                free = [name for name, _, ids in constraints if ids is None]
                if free:
                    yield Filter(question.ask, rng.choice(free)), question.with_context


def _told(sitting: Sitting, ask: Ask | Filter, wrong: str) -> str:
    tables = "\n".join(f"  {table.key} in {table.name}: {table.rows}" for table in sitting.made.tables.values())
    kinds = {table.name: [kind.name for kind in table.kinds.values()] for table in sitting.made.tables.values()}
    everywhere = {name: kind.name for name, kind in sitting.made.kinds.items()}
    return (
        f"{sitting.made.case.policy}\nstored {_facts(sitting.made.stored)}\ncontext {_facts(sitting.caller.context)}\n"
        f"{tables}\ncolumns {kinds}, ids under {everywhere}\n{ask}\n{sitting.database.dialect}: {wrong}\n"
        f"{sitting.made.bindings(sitting.database.dialect)}"
    )


def _facts(facts: Sequence) -> str:
    return " ".join(f"{predicate}({', '.join(map(str, row))})" for predicate, row in facts)


def _difference(sitting: Sitting, ask: Ask | Filter, tally: Tally) -> str | None:
    request = _request(ask, sitting.caller)
    if request is None:
        return None
    path, body = request
    said = _said(sitting, path, body, sitting.database.dialect)
    if isinstance(said, Refused):
        tally.refused[said.message[:110]] += 1
        return None if said.status == 400 else str(said)
    tally.asked += 1
    sql = said["sql"]
    try:
        return _wrong(sitting, ask, sql, tally) or _unsafe(sitting, path, body, sql)
    except Exception as error:  # whatever goes wrong is what this looks for
        return f"{type(error).__name__} {error}\n{sql}"


def _said(sitting: Sitting, path: str, body: dict, dialect: str) -> dict | Refused:
    try:
        return sitting.post(sitting.caller, path, {**body, "data_bindings": sitting.made.bindings(dialect)})
    except ask_adapter.PastLimit:
        return Refused("too hard to plan")


UNMARKED = re.compile(r"(?<!_binary )(?<!_utf8mb4 )X'")


def _unsafe(sitting: Sitting, path: str, body: dict, sql: str) -> str | None:
    """MySQL is not run here: the text for it is held to the form that is right on MariaDB.

    MySQL 8.0 damages a plain hexadecimal literal when it compares it with another column by a join.
    """
    if sitting.database.dialect != "mariadb":
        return None
    of_mysql = _said(sitting, path, body, "mysql")
    texts = [sql, *([] if isinstance(of_mysql, Refused) else [of_mysql["sql"]])]
    if unmarked := next(filter(UNMARKED.search, texts), None):
        return f"{unmarked}\nhas a literal that MySQL may damage"
    bindings = sitting.made.bindings("mysql")
    return next((f"{text}\nmentions {found}" for text in texts if (found := unsafe_mentions(text, bindings))), None)


def _request(ask: Ask | Filter, caller: Caller) -> tuple[str, dict] | None:
    context = [ask_adapter._fact(fact) for fact in caller.context]
    match ask:
        case Authorize(actor, action, resource):
            query = {"actor_type": actor.type, "actor_id": actor.id, "action": action, "context_facts": context}
            return "/authorize_query", {"query": {**query, "resource_type": resource.type, "resource_id": resource.id}}
        case Actions(actor, resource):
            query = {"actor_type": actor.type, "actor_id": actor.id, "context_facts": context}
            return "/actions_query", {"query": {**query, "resource_type": resource.type, "resource_id": resource.id}}
        case List(actor, action, resource_type):
            query = {"actor_type": actor.type, "actor_id": actor.id, "action": action, "context_facts": context}
            return "/list_query", {"query": {**query, "resource_type": resource_type}, "column": "t.id"}
        case Evaluate():
            mode = {"mode": "select", "query_vars_to_output_column_names": {name: name for name in ask.variables}}
            return "/evaluate_query_local", {"query": _query(ask, context), "mode": mode}
        case Filter(query, variable):
            mode = {"mode": "filter", "query_var": variable, "output_column_name": "id"}
            return "/evaluate_query_local", {"query": _query(query, context), "mode": mode}
    return None


def _query(ask: Evaluate, context: list) -> dict:
    first, *rest = ask.calls
    said = {name: {"type": kind, "ids": ids} for name, kind, ids in ask.constraints}
    return {"predicate": first, "calls": rest, "constraints": said, "context_facts": context}


# ---- what the SQL must find -----------------------------------------------------------------------------------


def _wrong(sitting: Sitting, ask: Ask | Filter, sql: str, tally: Tally) -> str | None:
    rows = _expected_rows(ask.query if isinstance(ask, Filter) else ask, sitting.model, sitting.world)
    match ask:
        case Authorize():
            found = sitting.database.run(f"SELECT CASE WHEN t.allowed THEN 1 ELSE 0 END FROM ({sql}) t")[1]
            return _compared(sql, found, [(int(bool(rows)),)])
        case Actions():
            return _wrong_actions(sitting, sql, {row[0].id for row in rows})
        case List(_, _, type_name):
            return _wrong_condition(sitting, type_name, sql, {row[0].id for row in rows}, tally)
        case Filter(query, variable):
            type_name = next(kind for name, kind, _ in query.constraints if name == variable)
            index = query.variables.index(variable)
            return _wrong_condition(sitting, type_name, sql, {row[index].id for row in rows}, tally)
        case Evaluate():
            return _wrong_rows(sitting, ask, sql, rows) if ask.variables else None
    return None


def _compared(sql: str, found: Sequence[tuple], wanted: Sequence[tuple]) -> str | None:
    if sorted(map(tuple, found)) == sorted(wanted):
        return None
    return f"{sql}\nfound {sorted(map(tuple, found))}\nwanted {sorted(wanted)}"


def _wrong_actions(sitting: Sitting, sql: str, wanted: set[str]) -> str | None:
    found = [row[0] for row in sitting.database.run(sql)[1]]
    if "*" not in found:
        return _compared(sql, [(each,) for each in found], [(each,) for each in wanted])
    whole = {value.id for value in sitting.world.exactly(STRING)}
    return None if wanted == whole else f"{sql}\nfound {found}\nwanted {wanted}"


def _wrong_condition(sitting: Sitting, type_name: str, sql: str, granted: set[str], tally: Tally) -> str | None:
    """The condition is true exactly for the rows that are granted; its negation for the others."""
    rows = {number: an_id for number, an_id, _ in kept(sitting.made, sitting.world, type_name)}
    for around, is_granted in ((JOIN, True), *((f"WHERE {text}", holds) for text, holds in CONDITIONS)):
        statement = f"SELECT k FROM {everything(type_name)} t {around.format(sql)}"
        found = {row[0] for row in sitting.database.run(statement)[1]}
        tally.with_nulls += 0 in found and sql not in ("TRUE", "FALSE")
        wanted = {number for number, an_id in rows.items() if (an_id in granted) == is_granted}
        if found - {0} != wanted:
            ids = [sorted(rows[number] for number in numbers if number) for numbers in (found, wanted)]
            return f"{statement}\nfound {ids[0]}\nwanted {ids[1]}"
    return None


def _wrong_rows(sitting: Sitting, ask: Evaluate, sql: str, rows: set[Row]) -> str | None:
    """All answers, but for values that only a wildcard stands for: of these, those of the domain."""
    kinds = {name: kind for name, kind, _ in ask.constraints}
    types = [kinds[name] for name in ask.variables]
    said = [tuple(map(shown, row, types)) for row in sitting.database.run(sql)[1]]
    found = {tuple(map(Value, types, row)) for row in said}
    needed = {row for row in rows if _is_due(sitting, row, rows)}
    if len(said) == len(found) and needed <= found <= rows:
        return None
    return f"{sql}\nfound {sorted(said)}\nwanted {sorted(tuple(v.id for v in row) for row in needed)}"


def _is_due(sitting: Sitting, row: Row, rows: set[Row]) -> bool:
    for index, value in enumerate(row):
        wild = (*row[:index], unmentioned(value.type), *row[index + 1 :])
        if wild in rows and not sitting.made.kinds[value.type].holds(value.id):
            return False
    return True
