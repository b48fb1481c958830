"""What a file reads for one pattern: a query, a collection, or a CSV file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from localsql.binding_keys import BindingKey
from localsql.bindings import Bindings, column_families, query_of
from localsql.sync.config import CsvFile, Database, Field, Kind, MongoQuery, SqlQuery
from localsql.sync.errors import ConfigRejected
from localsql.sync.tidied import tidied

Entry = Mapping[object, Any]
_NAMES_OF_A_FIELD = ("name", "field", "path", "column")
_WRITES = ("$out", "$merge")


def asked_of(made: Bindings, text: str, key: BindingKey, entry: Entry, typed: Entry, database: Database) -> Any:
    """Return what to read of the database; `typed` is the entry with numbers and times as YAML reads them."""
    if database.kind is Kind.MONGODB:
        return _mongo_query(text, key, entry, typed)
    if database.kind is Kind.CSV:
        return _csv_file(text, key, entry, database)
    if "collection" in entry or "file" in entry:
        raise ConfigRejected(text, f"`dbs.{database.name}` is of the type {database.kind.value}, which has a `query`")
    columns = max(len(key.columns), 1)
    said = entry.get("query")
    tidy = entry if not isinstance(said, str) else {**entry, "query": tidied(said, made.dialect)}
    query = query_of(text, tidy, made.dialect, columns)
    return SqlQuery(query, column_families(made, text, key, entry.get("sql_types")))


# ---- collections ---------------------------------------------------------------------------------------------------


def _mongo_query(text: str, key: BindingKey, entry: Entry, typed: Entry) -> MongoQuery:
    collection = entry.get("collection")
    if not isinstance(collection, str) or not collection:
        raise ConfigRejected(text, "needs a `collection`, as its database is of the type mongodb")
    fields = _fields(text, key, entry.get("fields"), needed=True)
    if sum(each.is_array for each in fields) > 1:
        raise ConfigRejected(text, "at most one of `fields` can have `is_array`; unwind the others in `aggregate`")
    inner = typed.get("query")
    found = inner if isinstance(inner, dict) else typed
    if isinstance(entry.get("query"), str):
        raise ConfigRejected(text, "`query` must be a map with `find` or `aggregate`, as its database is mongodb")
    find, stages = _json(text, found, "find"), _json(text, found, "aggregate")
    if find is not None and stages is not None:
        raise ConfigRejected(text, "must have `find` or `aggregate`, not both")
    if find is not None and not isinstance(find, dict):
        raise ConfigRejected(text, "`find` must be a map, as find() takes it")
    return MongoQuery(collection, fields, find, None if stages is None else _stages(text, stages))


def _stages(text: str, stages: object) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(stages, list) or not all(isinstance(each, dict) for each in stages):
        raise ConfigRejected(text, "`aggregate` must be a list of stages, as aggregate() takes it")
    if any(name in each for each in stages for name in _WRITES):
        raise ConfigRejected(text, "`aggregate` must do nothing but read: without $out and $merge")
    return tuple(stages)


def _json(text: str, found: Entry, name: str) -> Any:
    """Return what YAML says; if that is a text, the JSON in it."""
    said = found.get(name)
    if not isinstance(said, str):
        return said
    try:
        return orjson.loads(said)
    except orjson.JSONDecodeError as reason:
        raise ConfigRejected(text, f"`{name}` is not JSON: {reason}") from None


# ---- files ---------------------------------------------------------------------------------------------------------


def _csv_file(text: str, key: BindingKey, entry: Entry, database: Database) -> CsvFile:
    file, header = entry.get("file", ""), entry.get("header", True)
    if not isinstance(file, str):
        raise ConfigRejected(text, "`file` must be the path of a CSV file")
    if not isinstance(header, bool):
        raise ConfigRejected(text, "`header` must be true or false")
    if "query" in entry or "collection" in entry:
        raise ConfigRejected(text, f"`dbs.{database.name}` is of the type csv, which has a `file`, and no query")
    fields = _fields(text, key, entry.get("fields"), needed=False)
    if any(each.is_array for each in fields):
        raise ConfigRejected(text, "a column of a CSV file is no array")
    return CsvFile(database.folder / database.connection.removeprefix("file://") / file, fields, header)


# ---- fields --------------------------------------------------------------------------------------------------------


def _fields(text: str, key: BindingKey, raw: object, needed: bool) -> tuple[Field, ...]:
    """Return the fields, in the order of the variables, out of a list of names or maps, or out of one map of names."""
    if raw is None and not needed:
        return ()
    parts = [{name: said} for name, said in raw.items()] if isinstance(raw, dict) else raw
    wanted = len(key.columns)
    if not isinstance(parts, list) or len(parts) != wanted:
        raise ConfigRejected(text, f"needs `fields`, a list of {wanted} names, one for each `_`")
    return tuple(_field(text, each) for each in parts)


def _field(text: str, raw: object) -> Field:
    if isinstance(raw, str) and raw:
        return Field(raw)
    if isinstance(raw, dict):
        named = next((each for each in _NAMES_OF_A_FIELD if isinstance(raw.get(each), str)), None)
        if named is not None and not set(raw) - {named, "is_array"}:
            return Field(raw[named], _truth(text, raw.get("is_array")))
        if len(raw) == 1:
            name, said = next(iter(raw.items()))
            if isinstance(name, str) and (said is None or (isinstance(said, dict) and set(said) <= {"is_array"})):
                return Field(name, _truth(text, (said or {}).get("is_array")))
    raise ConfigRejected(text, "an element of `fields` must be a name, or a map such as {name: teams, is_array: true}")


def _truth(text: str, raw: object) -> bool:
    if raw is not None and not isinstance(raw, bool):
        raise ConfigRejected(text, "`is_array` must be true or false")
    return bool(raw)
