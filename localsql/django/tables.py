"""Bindings of models -> tables of the engine, and objects -> values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.core.exceptions import EmptyResultSet, FullResultSet, ValidationError
from django.db import connection, router
from django.db.models import Field, JSONField, Model, QuerySet, UUIDField
from django.db.models.expressions import Col
from django.db.models.lookups import Lookup
from django.db.models.sql.compiler import SQLCompiler

from checks.asking import run
from checks.engine.sql.bound import BoundColumn, BoundTable, BoundTables, OuterColumn, OwnRows
from checks.engine.sql.text import Dialect, IdKind
from facts.wire import id_from_json, name_from_json
from localsql.binding_keys import key_from_text
from localsql.dialects import DIALECTS, text_literal
from localsql.django.bindings import ModelBinding, registry
from localsql.errors import BindingRejected
from policy.errors import MalformedRequest
from policy.values import BOOLEAN, INTEGER, STRING, Value

# ---- tables -------------------------------------------------------------------------------------------------------

_TEXT = re.compile(r"(n?varchar|character varying|text)\b")
_WHOLE = re.compile(r"((small|big)?int(eger)?|(small|big)?serial)\b")


def current() -> BoundTables:
    """Return the tables of all bindings, compiled once in a process; again after a further `bind` or `type_of`."""
    return _tables(registry.version, run.dialect())


@lru_cache(maxsize=1)
def _tables(version: int, dialect: Dialect) -> BoundTables:
    return BoundTables([table_of(each) for each in registry.bindings])


def table_of(binding: ModelBinding) -> BoundTable:
    """Return a binding as a table. Raise `BindingRejected` if its columns do not fit, or cannot be compared exactly."""
    key = key_from_text(binding.text)
    types = [key.signature.types[index] for index in key.columns]
    sql, columns, rows = compiled(binding.queryset, binding.text, types)
    if len(columns) != len(key.columns):
        raise BindingRejected(binding.text, f"has {len(key.columns)} `_`, but the queryset has {len(columns)} columns")
    args: list[BoundColumn | str] = [constant or "" for constant in key.constants]
    for index, column in zip(key.columns, columns):
        name, kind = key.signature.types[index], column.kind
        if (name == BOOLEAN) != (kind is IdKind.BOOLEAN) or (name == INTEGER and kind is not IdKind.INTEGER):
            reason = f"argument {index + 1} is of type {name}, but its column holds {kind} values"
            raise BindingRejected(binding.text, reason)
        args[index] = column
    return BoundTable(key.signature, sql, tuple(args), rows)


def compiled(
    queryset: QuerySet[Any, Any], text: str, types: Sequence[str] = ()
) -> tuple[str, list[BoundColumn], OwnRows | None]:
    """Return a queryset's SQL with literals for constants, its columns (ids of these types), and what its rows are."""
    stored: str = queryset._db or router.db_for_write(queryset.model)  # type: ignore[attr-defined]  # no replica
    if stored != connection.alias:
        raise BindingRejected(text, f"its model is in the database `{stored}`; facts are in `{connection.alias}`")
    query = queryset.query.clone()
    query.clear_ordering()  # unless it decides on the rows
    compiler = query.get_compiler(connection=connection, elide_empty=False)
    sql, params = compiler.as_sql(with_col_aliases=True)
    select = compiler.select
    kinds = _kinds(text, compiler)
    numbered = [f"col{index}" for index in range(1, len(select) + 1)]
    names = [alias or name for name, (*_, alias) in zip(numbered, select)]
    if query.combinator or len({name.lower() for name in names}) < len(names):  # SQLite would read the first of two
        names = numbered
        sql = f"WITH rows_of({', '.join(names)}) AS ({sql}) SELECT {', '.join(names)} FROM rows_of"
    quoted = [connection.ops.quote_name(name) for name in names]
    targets = [getattr(each, "target", None) for each, *_ in select]
    for target, type_name in zip(targets, types):
        _check_is_id(text, target, type_name)
    owns = [connection.ops.quote_name(getattr(target, "column", "")) for target in targets]
    columns = [BoundColumn(*each) for each in zip(quoted, kinds, owns)]
    return with_literals(sql, params), columns, _own_rows(compiler.query, select)


def _check_is_id(text: str, field: Any, type_name: str) -> None:
    """Refuse a key of other objects than the type's, and one of these that is not their id: others may have that id."""
    named = named_by(field)
    column = named.get(type_name)
    if named and column is None and registry.has_model(type_name):
        raise BindingRejected(text, f"{field} has keys of {' and '.join(named)}, not of {type_name}")
    if column:
        reason = f"{field} has `{referred(field).name}`, but the ids of {type_name} are in `{column}` (`type_of`)"
        raise BindingRejected(text, f"{reason}; select that column")


def _own_rows(query: Any, select: Any) -> OwnRows | None:
    """Return what is known of a queryset's rows if they are rows of one table, filtered by their own columns."""
    read = [name for name, uses in query.alias_refcount.items() if uses]
    does_more = query.combinator or query.distinct or query.is_sliced or query.group_by is not None
    if does_more or query.extra_tables or len(read) != 1 or not all(isinstance(each, Col) for each, *_ in select):
        return None
    compared = list(_compared(query.where))
    if not all(isinstance(each, Col) for each in compared):
        return None
    may_be_null = any(each.target.null for each in compared)

    def test(alias: str) -> str:
        own = query.clone()
        own.change_aliases({name: alias for name in read if name != alias})
        try:
            sql, params = own.get_compiler(connection=connection).compile(own.where)
        except FullResultSet:
            return ""
        except EmptyResultSet:
            return "1 = 0"
        return f"({with_literals(sql, params)}){' IS TRUE' if may_be_null else ''}" if sql else ""

    return OwnRows(query.alias_map[read[0]].table_name, test)


def _compared(where: Any) -> Iterator[Any]:
    """Yield what a filter compares with values; what is not a column may be a subquery, or SQL of the project."""
    for leaf in where.leaves():
        if isinstance(leaf, Lookup):
            values = leaf.rhs if isinstance(leaf.rhs, list | tuple | set) else [leaf.rhs]
            yield from (leaf.lhs, *(each for each in values if hasattr(each, "as_sql")))
        else:
            yield leaf


def with_literals(sql: str, params: Sequence[object]) -> str:
    """Return SQL with the constants of a binding in place of its parameters.

    The database or its driver quotes them; but SQLite would end a text at its first NUL.
    """
    if connection.vendor == "postgresql":
        connection.ensure_connection()
        return str(connection.ops.compose_sql(sql, params))  # type: ignore[attr-defined]
    with connection.cursor() as cursor:
        literals = []
        for value in params:
            if isinstance(value, str):
                literals.append(text_literal(str.__str__(value), DIALECTS["sqlite"].escaped))
                continue
            cursor.execute("SELECT quote(%s)", [value])  # type: ignore[list-item]  # as Django's compiler returns it
            literals.append(cursor.fetchone()[0])
    return sql % tuple(literals)


def outer_column(expression: Any, compiler: SQLCompiler, sql: str, kind: IdKind) -> OuterColumn:
    """Return a column of a statement; with its table, if it is unique there."""
    target, table = getattr(expression, "target", None), compiler.query.alias_map.get(getattr(expression, "alias", ""))
    if target is None or table is None or not target.unique:
        return OuterColumn(sql, kind)
    name = compiler.connection.ops.quote_name(target.column)
    return OuterColumn(sql, kind, table.table_name, name, expression.alias)


def _kinds(text: str, compiler: SQLCompiler) -> list[IdKind]:
    """Return what the columns of compiled SQL hold, in each of the queries that it combines."""
    found = []
    for expression, *_ in compiler.select:
        if (kind := kind_of_values(expression)) is None:
            field = type(expression.output_field).__name__
            raise BindingRejected(text, f"a {field} cannot be compared exactly; select a text or a number")
        found.append(kind)
    for query in compiler.query.combined_queries:
        inner = query.get_compiler(connection=connection, elide_empty=False)
        inner.as_sql()
        if _kinds(text, inner) != found:
            raise BindingRejected(text, "the querysets that it combines have columns of different types")
    return found


def kind_of_values(expression: Any) -> IdKind | None:
    """Return how the values of an expression are compared with ids; None if they cannot be, exactly."""
    kind = kind_of(expression.output_field, isinstance(expression, Col))
    query = _LOOSE.get((connection.vendor, kind)) if isinstance(expression, Col) else None
    if query is None or not _has(registry.version, query, expression.target):
        return kind
    return IdKind.COLLATED if kind is IdKind.TEXT else None


@lru_cache(maxsize=1024)
def _has(version: int, query: str, field: Any) -> bool:
    """Return whether a query of a table's columns has that of a field.

    The model may be a guess at a table that was there before, or not know of a collation.
    """
    table, is_sqlite = field.model._meta.db_table, connection.vendor == "sqlite"
    with connection.cursor() as cursor:
        cursor.execute(query, [table.strip('"') if is_sqlite else connection.ops.quote_name(table)])
        return (field.column,) in cursor.fetchall()


# Columns in which different texts may be equal, by their types or collations; and those of texts or of fractions.
_DECLARED = "SELECT name FROM pragma_table_xinfo(%s) WHERE type"  # by its rules of affinity
_AS_TEXT = "(type LIKE '%%char%%' OR type LIKE '%%clob%%' OR type LIKE '%%text%%')"
_LOOSE: dict[tuple[str, IdKind | None], str] = {
    ("postgresql", IdKind.TEXT): "SELECT attname FROM pg_attribute LEFT JOIN pg_collation"
    " ON pg_collation.oid = attcollation WHERE attrelid = to_regclass(%s) AND attnum > 0"
    " AND (NOT collisdeterministic OR atttypid NOT IN ('text'::regtype, 'varchar'::regtype))",
    # It is told to compare bytes, whatever the collation.
    ("sqlite", IdKind.TEXT): f"{_DECLARED} LIKE '%%int%%' OR NOT {_AS_TEXT}",
    ("sqlite", IdKind.INTEGER): f"{_DECLARED} NOT LIKE '%%int%%'"
    f" AND ({_AS_TEXT} OR type LIKE '%%real%%' OR type LIKE '%%floa%%' OR type LIKE '%%doub%%')",
}


def kind_of(field: Field[Any, Any], is_column: bool = True) -> IdKind | None:
    """Return how the values of a field are compared with ids; None if they cannot be, exactly."""
    field = referred(field)
    db_type = (field.db_type(connection) or "").lower()
    if isinstance(field, UUIDField) and db_type == UUIDField().db_type(connection):
        return IdKind.UUID
    if isinstance(field, JSONField) or db_type.endswith("]"):  # SQLite has JSON as text; an array
        return None
    if _TEXT.match(db_type):
        is_plain = is_column and not getattr(field, "db_collation", None)
        return IdKind.TEXT if is_plain else IdKind.COLLATED
    if _WHOLE.match(db_type):
        return IdKind.INTEGER
    return IdKind.BOOLEAN if db_type in ("bool", "boolean") else None


def referred(field: Any) -> Any:
    """Return the field whose values a foreign key has, or the field itself."""
    while hasattr(field, "target_field"):
        field = field.target_field
    return field


def named_by(key: Any) -> dict[str, str]:
    """Return the types of the objects that a key names, each with the column that has their ids, if the key has others.

    It is primary or foreign. A key of a child is one of its parent, too; but not the other way round.
    """
    found: dict[str, str] = {}
    field = key if key is not None and (key.primary_key or key.is_relation) else None
    while field is not None:
        known = registry.type_of(field.model)
        is_id = field == id_field(field.model, known.column)
        if is_id or field.primary_key or field is not key:
            found[known.name] = "" if is_id else found.get(known.name, known.column)
        field = getattr(field, "target_field", None)
    return found


# ---- values -------------------------------------------------------------------------------------------------------
# An object is the value of its model's type with its key as the id. A pair is a type and an id; a text, a number and a
# bool are a String, an Integer and a Boolean. Nobody (an anonymous user) is a user whom no fact mentions.

NOBODY = ""


def value_of(thing: object) -> Value:
    if isinstance(thing, Model):
        return _value_of_object(thing)
    match thing:
        case bool() | int() | str():
            type_name = BOOLEAN if isinstance(thing, bool) else INTEGER if isinstance(thing, int) else STRING
            return _checked(type_name, id_text(thing))
        case Value(type_name, key) | (str() as type_name, key):
            return _checked(type_name, id_text(key))
    if getattr(thing, "is_anonymous", False):
        return Value(registry.type_of(get_user_model()).name, NOBODY)
    raise TypeError(f"{thing!r} is not a value; pass a model's object, a pair (type, id), a text, a number or a bool")


def _value_of_object(thing: Model) -> Value:
    """Return the value with the id that the database has: an object keeps what it was made with, as a UUID's text."""
    name, field, kind, is_djangos = _ids(registry.version, thing.__class__)
    key = getattr(thing, field.attname)
    if type(key) is int and kind is IdKind.INTEGER and is_djangos:
        return Value(name, str(key))
    if key is None or hasattr(key, "as_sql"):  # what the database shall set
        raise ValueError(f"this {name} is not saved, so it has no id; save it first")
    if isinstance(key, float):  # from a column of whole numbers, which SQLite does not insist on
        raise ValueError(f"{key!r} is not an id: it is no whole number")
    try:
        stored = field.get_db_prep_value(key, connection)
    except ValidationError as reason:
        raise ValueError(f"{key!r} is not an id: {' '.join(reason.messages)}") from None
    return _checked(name, id_text(UUID(stored) if kind is IdKind.UUID and isinstance(stored, str) else stored))


@lru_cache(maxsize=1024)
def _ids(version: int, model: type[Model]) -> tuple[str, Any, IdKind | None, bool]:
    """Return the type of a model's objects, the field with their ids, what it holds, and whether it is Django's own."""
    known = registry.type_of(model)
    field = id_field(model, known.column)
    return known.name, field, kind_of(field), type(referred(field)).__module__ == Field.__module__


def id_field(model: type[Model], column: str) -> Any:
    key: Any = model._meta.pk
    found: Any = key if column == "pk" else model._meta.get_field(column)
    return key if found.primary_key and referred(key) == found else found  # a parent's key is one of the child


def id_text(key: object) -> str:
    match key:
        case bool():
            return str(key).lower()
        case str():
            return str.__str__(key)
        case int():
            return int.__repr__(key)  # of a member of an Enum, its value
        case UUID():
            return str(key)
    raise TypeError(f"{key!r} is not an id; use a text, a whole number or a UUID")


def _checked(type_name: str, text: str) -> Value:
    try:
        return Value(name_from_json(type_name, "type"), id_from_json(type_name, text, "id"))
    except MalformedRequest as reason:
        raise ValueError(f"{type_name}:{text!r}: {reason}") from None
