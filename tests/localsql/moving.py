"""Random cases with part of their facts moved into tables: the same answers must come out of the tables' database."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from policy.language import parse
from policy.language.source import Source
from policy.rules.program import Signature
from policy.values import BOOLEAN, INTEGER, PRIMITIVES, STRING, Value
from tests.localsql.databases import Database
from tests.properties import ask_adapter
from tests.properties.ask_adapter import Caller, Fact
from tests.properties.differences import fitted
from tests.properties.questions import (
    Actions,
    Ask,
    Authorize,
    Evaluate,
    List,
    Question,
    Refused,
    _expected_rows,
    values_in,
)
from tests.properties.random_policies import Case
from tests.reference import Model, World, model_of


@dataclass
class Table:
    """Facts of one signature, perhaps with one argument the same in all of them."""

    name: str
    signature: Signature
    constants: tuple[str | None, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def columns(self) -> list[int]:
        return [index for index, constant in enumerate(self.constants) if constant is None]

    @property
    def key(self) -> str:
        args = (f"{t}:{'_' if c is None else c}" for t, c in zip(self.signature.types, self.constants))
        return f"{self.signature.predicate}({', '.join(args)})"

    @property
    def query(self) -> str:
        return f"SELECT {', '.join(f'c{index}' for index in self.columns)} FROM {self.name}"


@dataclass
class Moved:
    """A case with the facts that stay, the tables of the others, and what is said of the tables' types."""

    case: Case
    stored: list[Fact]
    tables: list[Table]
    integers: frozenset[str]  # types whose ids are numbers
    is_typed: bool
    has_domains: bool
    rng: Random

    def bindings(self, dialect: str, types: Sequence[str]) -> str:
        lines = [f"dialect: {dialect}", "facts:"]
        lines += [f'  {table.key}: {{query: "{table.query}"}}' for table in self.tables]
        said = dict.fromkeys(self.integers, "integer")
        if self.is_typed:
            said |= {name: "text" for name in types if name not in self.integers and name not in PRIMITIVES}
            said |= {STRING: "text", INTEGER: "bigint"}
        lines += ["sql_types: {" + ", ".join(f"{name}: {sql}" for name, sql in said.items()) + "}"]
        if self.has_domains:
            lines += ["domains:", *(f"  {name}: {{query: SELECT id FROM all_{name.lower()}}}" for name in types)]
        return "\n".join(lines) + "\n"

    def sql_type(self, name: str, database: Database) -> str:
        if name in self.integers or name == INTEGER:
            return "bigint"
        return "boolean" if name == BOOLEAN else database.text


def with_ids(case: Case, name: Callable[[Value], str]) -> Case:
    """The case about users and things of other ids."""

    def value(old: Value) -> Value:
        return old if old.type in PRIMITIVES else Value(old.type, name(old))

    def facts(old: tuple[Fact, ...]) -> tuple[Fact, ...]:
        return tuple((predicate, tuple(map(value, row))) for predicate, row in old)

    def ask(old: Ask) -> Ask:
        match old:
            case Authorize(actor, action, resource):
                return Authorize(value(actor), action, value(resource))
            case Actions(actor, resource):
                return Actions(value(actor), value(resource))
            case List(actor, action, resource_type):
                return List(value(actor), action, resource_type)
            case Evaluate(calls, constraints):
                said = ((v, t, ids and tuple(value(Value(t, each)).id for each in ids)) for v, t, ids in constraints)
                return Evaluate(calls, tuple(said))
        return old

    written = {str(each): str(value(each)) for each in case.ids}
    pattern = re.compile("|".join(map(re.escape, written)) or "(?!)")
    return replace(
        case,
        rules=tuple(pattern.sub(lambda found: written[found.group()], rule) for rule in case.rules),
        facts=facts(case.facts),
        context=facts(case.context),
        questions=tuple(Question(ask(each.ask), each.with_context) for each in case.questions),
        ids=tuple(map(value, case.ids)),
    )


def moved(case: Case, rng: Random) -> Moved:
    case = fitted(case)
    integers = frozenset(
        name for name in sorted({v.type for v in _values(case)} - set(PRIMITIVES)) if rng.random() < 0.5
    )
    numbers = {value: str(index + 1) for index, value in enumerate(sorted(_values(case)))}
    if integers:
        case = with_ids(case, lambda value: numbers.get(value, value.id) if value.type in integers else value.id)
    tables: dict[tuple, Table] = {}
    stored = []
    local = {s for s in sorted({_signature(f) for f in case.facts}, key=str) if rng.random() < 0.5}
    split = {s for s in sorted(local, key=str) if rng.random() < 0.3}
    for predicate, row in case.facts:
        signature = _signature((predicate, row))
        if signature not in local or rng.random() < 0.2:
            stored.append((predicate, row))
            continue
        constants: tuple[str | None, ...] = (None,) * len(row)
        names = [i for i, v in enumerate(row) if v.type == STRING and re.fullmatch(r"[a-z]\w*", v.id)]
        if signature in split and names and len(row) > 1:
            constants = tuple(v.id if i == names[0] else None for i, v in enumerate(row))
        table = tables.setdefault((signature, constants), Table(f"m{len(tables)}", signature, constants))
        table.rows.append(tuple(value.id for value in row))
    return Moved(case, stored, list(tables.values()), integers, rng.random() < 0.6, rng.random() < 0.4, rng)


def _signature(fact: Fact) -> Signature:
    return Signature(fact[0], tuple(value.type for value in fact[1]))


def _values(case: Case) -> set[Value]:
    found = {value for _, row in (*case.facts, *case.context) for value in row} | set(case.ids)
    return found | {value for question in case.questions for value in values_in(question.ask)}


# ---- the tables --------------------------------------------------------------------------------------------


def fill(database: Database, made: Moved, world: World, types: Sequence[str]) -> None:
    ddl = []
    for table in made.tables:
        kinds = [made.sql_type(table.signature.types[index], database) for index in table.columns]
        ddl.append(f"CREATE TABLE {table.name} ({', '.join(f'c{i} {kind}' for i, kind in zip(table.columns, kinds))})")
    ddl += [f"CREATE TABLE all_{name.lower()} (id {made.sql_type(name, database)})" for name in types]
    database.fresh("; ".join(ddl))
    for table in made.tables:
        rows = [tuple(_cell(made, table, row, index) for index in table.columns) for row in table.rows]
        rows += [(*row[:-1], None) for row in rows[:2]]  # a row with NULL is no fact
        database.fill(table.name, rows)
    for name in types:
        ids = {value.id for value in world.exactly(name)}
        is_number = name in made.integers or name == INTEGER
        kept = sorted(each for each in ids if not is_number or re.fullmatch(r"0|-?[1-9][0-9]{0,17}", each))
        database.fill(f"all_{name.lower()}", [(int(each) if is_number else _boolean(name, each),) for each in kept])


def _cell(made: Moved, table: Table, row: tuple[str, ...], index: int) -> object:
    name = table.signature.types[index]
    return int(row[index]) if name in made.integers or name == INTEGER else _boolean(name, row[index])


def _boolean(name: str, text: str) -> object:
    return text == "true" if name == BOOLEAN else text


# ---- questions ----------------------------------------------------------------------------------------------


def differences(case: Case, rng: Random, new_key, databases: Sequence[Database], tally: dict) -> Iterator[str]:
    """What the produced SQL says wrongly; one text each."""
    made = moved(case, rng)
    case = made.case
    caller = Caller(new_key())
    ask_adapter.publish(caller, case.policy)
    ask_adapter.store(caller, made.stored)
    policy = parse(Source(case.policy))
    types = sorted({value.type for value in _values(case)} | {STRING, INTEGER, BOOLEAN})
    mentioned = [value for question in case.questions for value in values_in(question.ask)]
    for with_context in (False, True):
        questions = [q.ask for q in case.questions if q.with_context == with_context]
        context = case.context if with_context else ()
        facts = [*case.facts, *context]
        world = World.of(policy, facts, mentioned, int(time.time()))
        model = model_of(policy, facts, world)
        for database in databases:
            fill(database, made, world, types)
            for ask in questions:
                asked = replace(caller, context=context)
                wrong = _difference(made, ask, model, world, database, asked, types, tally)
                if wrong:
                    yield f"{case.policy}\nstored {made.stored}\ncontext {context}\n{made.tables}\n{ask}\n{wrong}"


def _difference(
    made: Moved,
    ask: Ask,
    model: Model,
    world: World,
    database: Database,
    caller: Caller,
    types: Sequence[str],
    tally: dict,
) -> str | None:
    bindings = made.bindings(database.dialect, types)
    request = _request(ask, caller)
    if request is None:
        return None
    path, body = request
    try:
        said = ask_adapter._post(caller, path, {**body, "data_bindings": bindings})
    except ask_adapter.PastLimit:
        said = Refused("too hard to plan")
    rows = _expected_rows(ask, model, world)
    if isinstance(said, Refused):
        tally["refused"] = tally.get("refused", 0) + 1
        tally.setdefault("reasons", {}).setdefault(said.message[:150], []).append(f"{database.dialect}")
        return None if said.status == 400 else f"{database.dialect}: {said}\n{bindings}"
    tally["asked"] = tally.get("asked", 0) + 1
    try:
        for sql, wanted in _runs(made, ask, rows, world, said["sql"]):
            found = sorted({tuple(map(_text, row, _kinds(ask, row))) for row in database.run(sql)[1]})
            if found != sorted(wanted):
                return f"{database.dialect}: {sql}\nfound {found}\nwanted {sorted(wanted)}\n{bindings}"
    except Exception as error:  # whatever goes wrong is what this looks for
        return f"{database.dialect}: {type(error).__name__} {error}\n{said['sql']}\n{bindings}"
    return None


def _kinds(ask: Ask, row: tuple) -> list[str]:
    if isinstance(ask, Evaluate):
        kinds = {name: kind for name, kind, _ in ask.constraints}
        return [kinds[name] for name in ask.variables]
    return [""] * len(row)


def _text(value: object, kind: str) -> str:
    return str(bool(value)).lower() if kind == BOOLEAN else str(value)


def _request(ask: Ask, caller: Caller) -> tuple[str, dict] | None:
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
            return "/list_query", {"query": {**query, "resource_type": resource_type}, "column": "id"}
        case Evaluate(calls, constraints):
            first, *rest = calls
            said = {name: {"type": kind, "ids": ids} for name, kind, ids in constraints}
            query = {"predicate": first, "calls": rest, "constraints": said, "context_facts": context}
            mode = {"mode": "select", "query_vars_to_output_column_names": {name: name for name in ask.variables}}
            return "/evaluate_query_local", {"query": query, "mode": mode}
    return None


def _runs(made: Moved, ask: Ask, rows: set, world: World, sql: str) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """Statements to run, and what they must select."""
    match ask:
        case Authorize():
            yield f"SELECT CASE WHEN t.allowed THEN 'yes' ELSE 'no' END FROM ({sql}) AS t", [("yes" if rows else "no",)]
        case Actions():
            whole = {value.id for value in world.exactly(STRING)}
            found = {row[0].id for row in rows}
            if found != whole or made.has_domains:
                yield sql, [(each,) for each in found]
            else:  # only a row for any action says all, the one that nothing mentions too
                yield f"SELECT actions FROM ({sql}) AS t WHERE actions = '*'", [("*",)]
        case List(_, _, resource_type):
            kept = {value.id for value in world.exactly(resource_type)}
            if resource_type in made.integers:
                kept = {each for each in kept if re.fullmatch(r"0|-?[1-9][0-9]*", each)}
            granted = {row[0].id for row in rows} & kept
            table = f"all_{resource_type.lower()}"
            yield f"SELECT id FROM {table} WHERE {sql}", [(each,) for each in granted]
            yield f"SELECT id FROM {table} WHERE 1=1 AND {sql}", [(each,) for each in granted]
            yield f"SELECT id FROM {table} WHERE NOT ({sql})", [(each,) for each in kept - granted]
            yield f"SELECT id FROM {table} WHERE NOT {sql}", [(each,) for each in kept - granted]
        case Evaluate():
            whole = [
                tuple(value.id for value in row)
                for row in rows
                if all(v.type not in made.integers or re.fullmatch(r"0|-?[1-9][0-9]*", v.id) for v in row)
            ]
            if ask.variables:
                yield sql, whole
