"""Random cases with part of their facts moved into tables, whose columns are of every type that holds the ids."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from uuid import UUID

from policy.rules.program import Signature
from policy.values import BOOLEAN, PRIMITIVES, Value
from tests.localsql.collations import some_equal_ids
from tests.localsql.column_kinds import KINDS, LOOSE, NUMBERS, OF_PRIMITIVES, TEXTS, UUIDS, Kind, column
from tests.localsql.databases import Database
from tests.properties.ask_adapter import Fact
from tests.properties.differences import fitted
from tests.properties.questions import Actions, Ask, Authorize, Evaluate, List, Question, values_in
from tests.properties.random_policies import Case
from tests.reference import World

_CONSTANT = re.compile(r"[A-Za-z0-9][\w-]*", re.ASCII)


@dataclass
class Table:
    """Facts of one signature, perhaps with one argument the same in all of them; `kinds` of its columns."""

    name: str
    signature: Signature
    constants: tuple[str | None, ...]
    kinds: dict[int, Kind]
    is_said: bool  # whether the bindings name the columns' types
    is_full: bool  # without NULL
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def holds(self, row: tuple[str, ...]) -> bool:
        return all(kind.holds(row[index]) for index, kind in self.kinds.items())

    @property
    def key(self) -> str:
        args = (f"{t}:{'_' if c is None else c}" for t, c in zip(self.signature.types, self.constants))
        return f"{self.signature.predicate}({', '.join(args)})"

    def entry(self, dialect: str, rng: Random) -> dict[str, object]:
        names = [f"{self.name}_c{index}" for index in self.kinds]
        columns = ", ".join(names) or f"{self.name}_n"
        query = f"SELECT {columns} FROM {self.name}"
        found: dict[str, object] = {"query": rng.choice(_written_otherwise(query, columns, self))}
        if self.is_said and self.kinds:
            found["sql_types"] = [kind.said[dialect] for kind in self.kinds.values()]
        return found | ({"not_null": True} if self.is_full else {})


def _written_otherwise(query: str, columns: str, table: Table) -> list[str]:
    """The query in other words, with names such as those that statements make for themselves."""
    renamed = ", ".join(f"{name} AS {other}" for name, other in zip(columns.split(", "), ("a1", "tag", "a0", "v", "k")))
    found = [
        query,
        f"{query} UNION ALL {query}",
        f"WITH a0 AS ({query}) SELECT {columns} FROM a0",
        f"SELECT {columns} FROM (SELECT {renamed.replace(' AS ', ' AS c_')}, {columns} FROM {table.name}) tag",
        f"SELECT {renamed} FROM {table.name}",
    ]
    outer = f"SELECT {columns} FROM (SELECT 1 AS o0) o LEFT JOIN {table.name} ON 1 = 1"
    return found if table.is_full else [*found, outer]


@dataclass
class Moved:
    """A case with the facts that stay, the tables of the others, and what is said of the tables' types."""

    case: Case
    rng: Random
    stored: list[Fact] = field(default_factory=list)
    tables: dict[tuple, Table] = field(default_factory=dict)
    styles: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by type, the kinds of columns that fit its ids
    kinds: dict[str, Kind] = field(default_factory=dict)  # of the columns ids under of a type
    said: frozenset[str] = frozenset()  # types whose columns are all of that kind, as the bindings say
    has_domains: bool = False

    def bindings(self, dialect: str) -> str:
        document = {
            "dialect": dialect,
            "facts": {each.key: each.entry(dialect, Random(str(each.rows))) for each in self.tables.values()},
            "sql_types": {name: self.kinds[name].said[dialect] for name in sorted(self.said)},
        }
        if self.has_domains:
            document["domains"] = {name: {"query": f"SELECT id FROM {everything(name)}"} for name in self.kinds}
        return json.dumps(document)  # which is YAML, too

    def some_kind(self, type_name: str) -> Kind:
        return KINDS[self.rng.choice(self.styles[type_name])]


def everything(type_name: str) -> str:
    return f"all_{type_name.lower()}"


# ---- other ids --------------------------------------------------------------------------------------------


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
        goals=facts(case.goals),
    )


def _uuid(number: int) -> str:
    return str(UUID(int=0xABCDEF01_2345_4678_9ABC_DEF000000000 + number))


_NUMBERS = ("1", "2", "3", "01", "+1")
_IDENTITIES = (_uuid(1), _uuid(2), _uuid(1).upper(), _uuid(3), _uuid(2).replace("-", ""))


def renamed(case: Case, rng: Random) -> tuple[Case, dict[str, tuple[str, ...]]]:
    """The case with ids of one style for each type, the same ones for all of the style; and the columns for them.

    Ids that some collation takes for equal are in every case.
    """
    found = sorted(_values(case))
    names, styles = {}, {}
    spellings = (some_equal_ids(rng, 4), TEXTS)
    others = ((_NUMBERS[:3], NUMBERS), (_NUMBERS, NUMBERS), (_IDENTITIES, UUIDS), ((), TEXTS[:4]))
    types = sorted({value.type for value in found} - set(PRIMITIVES))
    spelled = rng.choice(types) if types else ""
    for type_name in types:
        is_spelled = type_name == spelled or rng.random() < 0.5
        ids, styles[type_name] = spellings if is_spelled else rng.choice(others)
        own = [value for value in found if value.type == type_name]
        names |= dict(zip(own, ids))
        more = rng.sample(range(100, 100 + len(own)), len(own))
        names |= {value: str(number) for value, number in zip(own[len(ids) :], more) if ids}
    return with_ids(case, lambda value: names.get(value, value.id)), styles


def _values(case: Case) -> set[Value]:
    found = {value for _, row in (*case.facts, *case.context, *case.goals) for value in row} | set(case.ids)
    return found | {value for question in case.questions for value in values_in(question.ask)}


# ---- which facts go where -----------------------------------------------------------------------------------


def moved(case: Case, rng: Random) -> Moved:
    case, styles = renamed(fitted(case), rng)
    brought = {fact for fact in case.facts if rng.random() < 0.1}
    facts = tuple(fact for fact in case.facts if fact not in brought)
    case = replace(case, facts=facts, context=tuple(dict.fromkeys((*case.context, *sorted(brought)))))
    made = Moved(case, rng, styles={**OF_PRIMITIVES, **styles}, has_domains=rng.random() < 0.4)
    made.kinds = {name: made.some_kind(name) for name in sorted(made.styles)}
    made.said = frozenset(name for name in made.kinds if rng.random() < 0.6)
    local = {s for s in sorted({_signature(f) for f in case.facts}, key=str) if rng.random() < 0.6}
    split = {s for s in sorted(local, key=str) if rng.random() < 0.3}
    for fact in case.facts:
        table = _table(made, fact, _signature(fact) in split) if _signature(fact) in local else None
        row = tuple(value.id for value in fact[1])
        is_moved = table is not None and table.holds(row) and rng.random() < 0.8
        if is_moved:
            table.rows.append(row)
        if not is_moved or rng.random() < 0.1:
            made.stored.append(fact)
    return made


def all_moved(case: Case, rng: Random) -> Moved:
    """The case with all facts in tables, whose columns are texts that take other ids for equal where there are such."""
    styles = {value.type: LOOSE for value in _values(case)}
    made = Moved(case, rng, styles=styles, has_domains=rng.random() < 0.3)
    made.kinds = {name: made.some_kind(name) for name in sorted(styles)}
    for fact in case.facts:
        _table(made, fact, is_split=False).rows.append(tuple(value.id for value in fact[1]))
    return made


def _signature(fact: Fact) -> Signature:
    return Signature(fact[0], tuple(value.type for value in fact[1]))


def _table(made: Moved, fact: Fact, is_split: bool) -> Table:
    signature, row = _signature(fact), fact[1]
    constants: tuple[str | None, ...] = (None,) * len(row)
    fixed = [index for index, value in enumerate(row) if _CONSTANT.fullmatch(value.id)]
    if is_split and fixed:
        kept = set(fixed) if made.rng.random() < 0.2 else {fixed[0]}
        constants = tuple(value.id if index in kept else None for index, value in enumerate(row))
    if (signature, constants) not in made.tables:
        made.tables[signature, constants] = _new_table(made, signature, constants)
    return made.tables[signature, constants]


def _new_table(made: Moved, signature: Signature, constants: tuple[str | None, ...]) -> Table:
    is_said = made.rng.random() < 0.25
    kinds = {}
    for index, name in enumerate(signature.types):
        if constants[index] is None:
            has_its_own = is_said or name not in made.said
            kinds[index] = made.some_kind(name) if has_its_own else made.kinds[name]
    return Table(f"m{len(made.tables)}", signature, constants, kinds, is_said, made.rng.random() < 0.2)


# ---- the tables --------------------------------------------------------------------------------------------


def fill(database: Database, made: Moved, world: World) -> None:
    before, tables = [], []
    for table in made.tables.values():
        columns = {f"{table.name}_c{index}": kind for index, kind in table.kinds.items()}
        labels = [[row[index] for row in table.rows] for index in table.kinds] or [[]]
        columns = columns or {f"{table.name}_n": KINDS["int"]}
        first, text = _created(database.dialect, table.name, columns, labels)
        before, tables = [*before, *first], [*tables, text]
    for name, kind in made.kinds.items():
        labels = [[value.id for value in world.exactly(name)]]
        first, text = _created(database.dialect, everything(name), {"id": kind}, labels, "k int, ")
        # An enumeration is called by its column.
        before = [*before, *(each.replace("id_type", f"{everything(name)}_type") for each in first)]
        tables.append(text.replace("id_type", f"{everything(name)}_type"))
    database.fresh("; ".join([*before, *tables]))
    for table in made.tables.values():
        database.fill(table.name, list(rows_of(table, made.rng)))
    for name in made.kinds:
        database.fill(everything(name), [*((k, cell) for k, _, cell in kept(made, world, name)), (0, None)])


def _created(
    dialect: str, name: str, columns: dict[str, Kind], labels: list[list[str]], more: str = ""
) -> tuple[list[str], str]:
    made = [column(kind, dialect, called, own) for (called, kind), own in zip(columns.items(), labels)]
    first = [text for text, _ in made if text]
    return first, f"CREATE TABLE {name} ({more}{', '.join(text for _, text in made)})"


def rows_of(table: Table, rng: Random) -> Iterator[tuple]:
    """The facts, some of them twice, and rows with NULL or what is no id, which are no facts."""
    texts = [place for place, kind in enumerate(table.kinds.values()) if kind.name in (*LOOSE, "text", "char")]
    for row in table.rows:
        cells = tuple(kind.cell(row[index]) for index, kind in table.kinds.items()) or (7,)
        yield cells
        if rng.random() < 0.3:
            yield cells
        if not table.is_full and rng.random() < 0.3:
            missing = rng.randrange(len(cells))
            yield tuple(None if index == missing else cell for index, cell in enumerate(cells))
        if texts and rng.random() < 0.3:
            none, places = rng.choice(("", "", "*")), rng.sample(texts, rng.randint(1, len(texts)))
            yield tuple(none if index in places else cell for index, cell in enumerate(cells))


def kept(made: Moved, world: World, type_name: str) -> list[tuple[int, str, object]]:
    """Of each id of the type that its column can hold: the row's number, the id and the cell."""
    kind = made.kinds[type_name]
    ids = [value.id for value in world.exactly(type_name) if kind.holds(value.id)]
    return [(number, an_id, kind.cell(an_id)) for number, an_id in enumerate(sorted(ids), start=1)]


def shown(value: object, type_name: str) -> str:
    """A cell of an answer as the id that it is."""
    return str(bool(value)).lower() if type_name == BOOLEAN else str(value)
