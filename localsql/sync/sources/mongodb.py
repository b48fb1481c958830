"""Rows out of the documents of a collection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from localsql.sync.config import ConfigRejected, Database, Field, MongoQuery, SourceFailed, SyncPattern
from localsql.sync.sources.row import AT_ONCE, CONNECT_WITHIN, NotText, SourceRow, driver, text_of

_NOTHING = object()
_UUID_SUBTYPES = (3, 4)


def rows(pattern: SyncPattern, in_order: bool) -> Iterator[SourceRow]:
    asked, database = pattern.asked, pattern.database
    assert isinstance(asked, MongoQuery), "a collection is asked for"
    errors = driver(database, "pymongo.errors", "pymongo", "mongodb")
    try:
        client = _client(database)
        try:
            for document in _documents(client, database, asked):
                yield from rows_of_document(document, asked.fields)
        finally:
            client.close()
    except (errors.PyMongoError, OSError) as error:
        raise SourceFailed(database.name, database.without_secrets(str(error))) from None


def _client(database: Database) -> Any:
    module = driver(database, "pymongo", "pymongo", "mongodb")
    tls: dict[str, Any] = {"tls": True} if database.tls.is_required else {}
    if database.tls.ca_file:
        tls["tlsCAFile"] = database.tls.ca_file
    return module.MongoClient(
        database.connection, serverSelectionTimeoutMS=CONNECT_WITHIN * 1000, appname="authz sync", tz_aware=True, **tls
    )


def _documents(client: Any, database: Database, asked: MongoQuery) -> Any:
    errors = driver(database, "pymongo.errors", "pymongo", "mongodb")
    try:
        collection = client.get_default_database()[asked.collection]
    except errors.ConfigurationError:
        raise ConfigRejected(
            f"dbs.{database.name}", "names no database, as mongodb://host:27017/company does; add its name"
        ) from None
    if asked.aggregate is not None:
        return collection.aggregate(_plain(database, list(asked.aggregate)), batchSize=AT_ONCE, allowDiskUse=True)
    wanted = {} if _hides_a_part(asked.fields) else {field.name: 1 for field in asked.fields}
    projection = {"_id": 0, **wanted} if wanted else None
    return collection.find(_plain(database, dict(asked.find or {})), projection, batch_size=AT_ONCE)


def _hides_a_part(fields: tuple[Field, ...]) -> bool:
    """Say whether one field is a part of another: a projection can name only one of the two."""
    names = [field.name for field in fields]
    return any(other.startswith(f"{name}.") for name in names for other in names)


def _plain(database: Database, said: Any) -> Any:
    """Return what was written, with its extended JSON (`{"$oid": …}`) as the driver's types."""
    util = driver(database, "bson.json_util", "pymongo", "mongodb")
    return util.loads(orjson.dumps(said, option=orjson.OPT_PASSTHROUGH_DATETIME, default=_moment).decode())


def _moment(value: Any) -> Any:
    """Return a YAML time as extended JSON, in UTC if it has no zone; a date as text."""
    text = value.isoformat()
    if not isinstance(value, datetime):
        return text
    return {"$date": text if value.tzinfo else f"{text}Z"}


# ---- documents -----------------------------------------------------------------------------------------------------


def rows_of_document(document: Mapping[str, Any], fields: tuple[Field, ...]) -> Iterator[SourceRow]:
    """Yield one row; if a field is an array, one for each of its elements."""
    array = next((field for field in fields if field.is_array), None)
    if array is None:
        yield tuple([_text(_value(document, field.name)) for field in fields])
        return
    for element in _elements(document, array.name):
        found = {array.name: element}
        yield tuple(
            [_text(found[field.name] if field.name in found else _value(document, field.name)) for field in fields]
        )


def _elements(document: Mapping[str, Any], path: str) -> list[Any]:
    """Return the elements at the path, which may go on inside of them: `members.id`, where `members` is the array.

    What is no array is the one element itself, as in $unwind.
    """
    value: Any = document
    names = path.split(".")
    for place, name in enumerate(names):
        if isinstance(value, list):
            rest = ".".join(names[place:])
            return [_value(each, rest) for each in value if isinstance(each, Mapping)]
        value = value.get(name, _NOTHING) if isinstance(value, Mapping) else _NOTHING
    if value is _NOTHING or value is None:
        return []
    return value if isinstance(value, list) else [value]


def _value(document: Any, path: str) -> Any:
    for name in path.split("."):
        if isinstance(document, list):
            return document  # no id: `is_array` has to say that its elements are meant
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def _text(value: Any) -> str | None:
    """Return the value as `text_of` does. The driver's types are known by their names, so that none is imported."""
    name = type(value).__name__
    if name == "ObjectId":
        return str(value)
    if name == "Decimal128":
        value = value.to_decimal()
    elif name == "Binary" and getattr(value, "subtype", None) in _UUID_SUBTYPES:
        value = UUID(bytes=bytes(value))
    try:
        return text_of(value)
    except NotText as reason:
        return f"\0{reason}"  # no id, and `rows` says why
