"""Read rows from databases, collections and files, and connect to SQL databases.

Each reader is a generator: it opens a read-only connection, yields rows while keeping only some of them in memory, and
closes the connection. Values are None or texts, as displayed by the database and compared by local SQL.
"""

import csv
import os
import sqlite3
import ssl
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from operator import methodcaller
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from uuid import UUID

import orjson

from localsql.binding_queries import columns_text
from localsql.bindings import Binding
from localsql.dialects import NATIVE, Family
from localsql.sync.config import (
    ConfigRejected,
    CsvFile,
    Database,
    DatabaseKind,
    DriverMissing,
    Field,
    MongoQuery,
    PatternRefused,
    SourceFailed,
    SyncPattern,
    Tls,
)

SourceRow = tuple[str | None, ...]

AT_ONCE = 2_000  # rows per fetch
CONNECT_WITHIN = 10  # seconds


def rows_of(pattern: SyncPattern, in_order: bool) -> Generator[SourceRow, None, None]:
    """Yield the pattern's rows. Closing the generator closes its connection."""
    match pattern.asked:
        case Binding() as binding:
            with connected(pattern.database) as connection:
                yield from connection.rows(connection.reading(binding, in_order))
        case MongoQuery() as query:
            yield from _rows_of_documents(pattern.database, query)
        case CsvFile() as file:
            yield from _rows_of_file(pattern, file)


def driver(database: Database, module: str, package: str, extra: str) -> Any:
    """Import an optional driver when a database of its kind is opened."""
    try:
        return import_module(module)
    except ImportError:
        raise DriverMissing(database.name, package, extra) from None


# ---- tables --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SqlConnection:
    """An open connection. Outside of `rows`, each statement is a transaction of its own."""

    database: Database
    raw: Any  # the driver's connection
    error: type[Exception]  # the driver's base exception
    reader: Callable[[], Any]  # creates a streaming cursor
    close: Callable[[], None]
    collated: str = ""  # follows each id column, for databases that do not sort bytewise by default
    mark: str = "%s"  # placeholder of a value
    decoded: Callable[[tuple[Any, ...]], SourceRow] | None = None  # makes texts of bytes
    begin: str = "START TRANSACTION READ ONLY"

    def reading(self, binding: Binding, in_order: bool = False) -> str:
        """Return a binding's query, wrapped to return ids as texts in the dialect's normal form."""
        dialect = self.database.sql_dialect
        names = [f"c{index}" for index in range(max(len(binding.key.columns), 1))]
        families = [binding.families[index] for index in binding.key.columns] or [None]
        # Columns that are said to be texts are cast, too: in SQLite, they may contain anything.
        columns = [
            dialect.column(f"__q.{name}", family if family in NATIVE else Family.UNKNOWN)
            for name, family in zip(names, families)
        ]
        shown = [f"({dialect.text(column)}){self.collated} AS {name}" for column, name in zip(columns, names)]
        order = f"\nORDER BY {', '.join(str(place) for place in range(1, len(names) + 1))}" if in_order else ""
        return f"WITH __q({', '.join(names)}) AS (\n{binding.query}\n)\nSELECT {', '.join(shown)} FROM __q{order}"

    def execute(self, statement: str, values: Sequence[int | str] = ()) -> list[tuple[Any, ...]]:
        with _told(self.database, self.error):
            cursor = self.raw.cursor()
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []

    def rows(self, statement: str) -> Iterator[SourceRow]:
        with _told(self.database, self.error):
            self.raw.cursor().execute(self.begin)
            with closing(self.reader()) as cursor:
                cursor.execute(statement)
                while fetched := cursor.fetchmany(AT_ONCE):
                    yield from map(self.decoded, fetched) if self.decoded else fetched


@contextmanager
def connected(database: Database, writes: bool = False) -> Iterator[SqlConnection]:
    connection = opened(database, writes)
    try:
        yield connection
    finally:
        connection.close()


def opened(database: Database, writes: bool = False) -> SqlConnection:
    """Return a connection, which the caller must close."""
    match database.kind:
        case DatabaseKind.POSTGRES:
            return _postgresql(database)
        case DatabaseKind.MYSQL:
            return _mysql(database)
        case DatabaseKind.SQLITE:
            return _sqlite(database, writes)
    raise AssertionError(f"{database.kind} is not read with SQL")


@contextmanager
def _told(database: Database, *errors: type[Exception]) -> Iterator[None]:
    """Raise errors of a driver as `SourceFailed`, with passwords redacted."""
    caught: tuple[type[Exception], ...] = (OSError, *errors)
    try:
        yield
    except caught as reason:
        said = reason.args[1] if len(reason.args) > 1 else reason
        raise SourceFailed(database.name, database.without_secrets(str(said))) from None


# ---- PostgreSQL ----------------------------------------------------------------------------------------------------

# Make values look the same whatever the settings of the server or role.
_OPTIONS = "-c timezone=UTC -c datestyle=ISO,YMD -c intervalstyle=iso_8601 -c bytea_output=hex -c extra_float_digits=1"


def _postgresql(database: Database) -> SqlConnection:
    module, url = driver(database, "psycopg", "psycopg", "test"), database.connection
    with _told(database, module.Error):
        given = module.conninfo.conninfo_to_dict(url)
        options = f"{given.get('options') or ''} {_OPTIONS}".strip()
        wanted: dict[str, Any] = {"connect_timeout": CONNECT_WITHIN, "application_name": "authz sync"}
        own = {name: value for name, value in {**wanted, **_tls_of_libpq(database.tls)}.items() if name not in given}
        raw = module.connect(url, **own, options=options, client_encoding="UTF8", autocommit=True)
    return SqlConnection(database, raw, module.Error, lambda: raw.cursor("authz_sync"), raw.close, ' COLLATE "C"')


def _tls_of_libpq(tls: Tls) -> dict[str, str]:
    if tls.uses_system_certificates:
        return {"sslmode": "verify-full", "sslrootcert": "system"}
    found = {"sslmode": "require"} if tls.is_required else {}
    return {**found, "sslrootcert": tls.ca_file} if tls.ca_file else found


# ---- MySQL and MariaDB ---------------------------------------------------------------------------------------------

_PORT = 3306
# Make the server wait for slow readers, sort by whole ids, and format times independently of its time zone.
_SESSION = "SET SESSION net_write_timeout = 3600, max_sort_length = 8192, time_zone = '+00:00'"
_MYSQL_OPTIONS = {"ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity", "unix_socket", "charset"}


def _mysql(database: Database) -> SqlConnection:
    module = driver(database, "pymysql", "PyMySQL", "mysql")
    with _told(database, module.MySQLError, RuntimeError):
        options = {**_address(database), **_tls_of_python(database)}
        raw = module.connect(connect_timeout=CONNECT_WITHIN, autocommit=True, **options)
        with raw.cursor() as prepared:
            prepared.execute(_SESSION)
            prepared.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return SqlConnection(
        database,
        raw,
        module.MySQLError,
        reader=lambda: raw.cursor(module.cursors.SSCursor),
        close=raw._force_close,  # without notifying the server, which may be gone
        decoded=lambda row: tuple(
            [None if value is None else value.decode("utf-8", "surrogateescape") for value in row]
        ),
    )


def _address(database: Database) -> dict[str, Any]:
    place = f"dbs.{database.name}"
    try:
        url = urlsplit(database.connection)
        port, name = url.port or _PORT, unquote(url.path.removeprefix("/"))
        if not url.hostname or not name:
            raise ValueError
    except ValueError:
        raise ConfigRejected(place, "must be a URL such as mysql://user:password@host:3306/database") from None
    given = dict(parse_qsl(url.query))
    if unknown := sorted(set(given) - _MYSQL_OPTIONS):
        raise ConfigRejected(place, f"unknown option `{unknown[0]}`; use {', '.join(sorted(_MYSQL_OPTIONS))}")
    login = {"user": unquote(url.username or ""), "password": unquote(url.password or "")}
    return {"host": url.hostname, "port": port, "database": name, "charset": "utf8mb4", **login, **given}


def _tls_of_python(database: Database) -> dict[str, Any]:
    tls = database.tls
    if not tls.is_required:
        return {}
    context = ssl.create_default_context(cafile=tls.ca_file or None)
    if not (tls.ca_file or tls.uses_system_certificates):  # encrypted, but without verifying the server
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return {"ssl": context}


# ---- SQLite --------------------------------------------------------------------------------------------------------


def _sqlite(database: Database, writes: bool) -> SqlConnection:
    path, mode = path_of(database), "rw" if writes else "ro"
    try:
        raw = sqlite3.connect(
            f"file:{quote(str(path))}?mode={mode}", uri=True, timeout=CONNECT_WITHIN, isolation_level=None
        )
        raw.text_factory = methodcaller("decode", "utf-8", "surrogateescape")  # faster than a function
        raw.execute("SELECT 1 FROM sqlite_master").fetchall()
    except sqlite3.Error as error:
        raise SourceFailed(database.name, f"cannot open `{path}`: {error}") from None
    return SqlConnection(database, raw, sqlite3.Error, raw.cursor, raw.close, mark="?", begin="BEGIN")


def path_of(database: Database) -> Path:
    """Return the file's path. As in DATABASE_URL, `sqlite:///` begins a relative path, `sqlite:////` an absolute."""
    written = database.connection
    for beginning in ("sqlite:///", "sqlite://", "sqlite:"):
        if written.startswith(beginning):
            return database.folder / written.removeprefix(beginning)
    if "://" in written:  # which may have a password
        raise SourceFailed(database.name, "the connection is a URL of another kind of database; correct its `type`")
    return database.folder / written


# ---- documents of MongoDB ------------------------------------------------------------------------------------------

_UUID_SUBTYPES = (3, 4)


def _rows_of_documents(database: Database, asked: MongoQuery) -> Iterator[SourceRow]:
    errors = driver(database, "pymongo.errors", "pymongo", "mongodb")
    try:
        with closing(_client(database)) as client:
            for document in _documents(client, database, asked):
                yield from _rows_of_document(document, asked.fields)
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
            f"dbs.{database.name}", "has no database name; add it, as in mongodb://host:27017/company"
        ) from None
    if asked.aggregate is not None:
        return collection.aggregate(_plain(database, list(asked.aggregate)), batchSize=AT_ONCE, allowDiskUse=True)
    wanted = {} if _hides_a_part(asked.fields) else {field.name: 1 for field in asked.fields}
    projection = {"_id": 0, **wanted} if wanted else None
    return collection.find(_plain(database, dict(asked.find or {})), projection, batch_size=AT_ONCE)


def _hides_a_part(fields: tuple[Field, ...]) -> bool:
    """Return whether one field contains another: a projection can name only one of the two."""
    names = [field.name for field in fields]
    return any(other.startswith(f"{name}.") for name in names for other in names)


def _plain(database: Database, said: Any) -> Any:
    """Return the configured value, with extended JSON (`{"$oid": …}`) converted to the driver's types."""
    util = driver(database, "bson.json_util", "pymongo", "mongodb")
    return util.loads(orjson.dumps(said, option=orjson.OPT_PASSTHROUGH_DATETIME, default=_moment).decode())


def _moment(value: Any) -> Any:
    """Return a YAML time as extended JSON, in UTC if it has no zone; a date as text."""
    text = value.isoformat()
    if not isinstance(value, datetime):
        return text
    return {"$date": text if value.tzinfo else f"{text}Z"}


def _rows_of_document(document: Mapping[str, Any], fields: tuple[Field, ...]) -> Iterator[SourceRow]:
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
    """Return the elements at the path, which may continue inside of them: `members.id`, where `members` is the array.

    A value that is not an array is its only element, as in $unwind.
    """
    value: Any = document
    names = path.split(".")
    for place, name in enumerate(names):
        if isinstance(value, list):
            rest = ".".join(names[place:])
            return [_value(each, rest) for each in value if isinstance(each, Mapping)]
        value = value.get(name) if isinstance(value, Mapping) else None
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _value(document: Any, path: str) -> Any:
    for name in path.split("."):
        if isinstance(document, list):
            return document  # not an id: `is_array` is needed to use its elements
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


def _text(value: Any) -> str | None:
    """Return the value as PostgreSQL and local SQL display it: 7 for 7.0 and 7.00, `true`, a uuid with hyphens.

    The driver's types are recognized by name, to avoid the import. For a value that cannot be an id, return the reason
    after a NUL character.
    """
    name = type(value).__name__
    if name == "Decimal128":
        value = value.to_decimal()
    elif name == "Binary" and getattr(value, "subtype", None) in _UUID_SUBTYPES:
        value = UUID(bytes=bytes(value))
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return str(int(value)) if value.is_integer() else repr(value)
        case Decimal():
            text = f"{value:f}"
            if not value.is_finite():
                return f"\0the number {value} is not a valid id"
            return text.rstrip("0").rstrip(".") if "." in text else text
        case int() | UUID():
            return str(value)
        case datetime():
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
        case date():
            return value.isoformat()
    return str(value) if name == "ObjectId" else f"\0a value of type {name} is not a valid id"


# ---- CSV files -----------------------------------------------------------------------------------------------------


def _rows_of_file(pattern: SyncPattern, asked: CsvFile) -> Iterator[SourceRow]:
    """Yield the rows; an empty field is None, like NULL in a table.

    If a file is written while it is read, only a part of it may be seen. A change of its size or modification time
    reveals this. A missing line break at the end does not, as many programs leave it out; but a truncated row has too
    few columns.
    """
    name = pattern.database.name
    try:
        with asked.path.open(encoding="utf-8-sig", newline="") as file:
            begun = _state(file)
            lines = csv.reader(file, strict=True)
            header = next(lines, None) if asked.has_header else None
            if header is None and asked.has_header:
                raise PatternRefused(f"`{asked.path.name}` is empty; add a header line with column names")
            places = _places(pattern, asked, header)
            width = len(header) if header is not None else 0
            for line in lines:
                if not line:
                    continue  # skip blank lines
                width = width or len(line)
                if len(line) != width:
                    than = "header" if header is not None else "first line"
                    raise PatternRefused(
                        f"line {lines.line_num} of `{asked.path.name}` has {columns_text(len(line))},"
                        f" but the {than} has {width}"
                    )
                if len(line) <= max(places):
                    needed = f"must have at least {columns_text(max(places) + 1)}"
                    raise PatternRefused(f"line {lines.line_num} of `{asked.path.name}`: {needed}, not {len(line)}")
                yield tuple([line[place] or None for place in places])
            if _state(file) != begun:
                raise SourceFailed(name, f"`{asked.path.name}` changed while it was read; try again")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SourceFailed(name, f"cannot read `{asked.path.name}`: {reason}") from None


def _state(file: IO[str]) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns


def _places(pattern: SyncPattern, asked: CsvFile, header: list[str] | None) -> list[int]:
    """Return the columns to read: by name, or by number from 1 without a header; by default all, in order."""
    wanted = max(len(pattern.key.columns), 1)
    if not asked.fields:
        if header is not None and len(header) != wanted:
            needed = f"but the pattern has {wanted}; select columns with `fields`"
            raise PatternRefused(f"`{asked.path.name}` has {columns_text(len(header))}, {needed}")
        return list(range(wanted))
    return [_place(asked, field.name, header) for field in asked.fields]


def _place(asked: CsvFile, name: str, header: list[str] | None) -> int:
    if header is not None:
        if header.count(name) != 1:
            raise PatternRefused(f"`{asked.path.name}` must have one column `{name}`; it has {', '.join(header)}")
        return header.index(name)
    if not (name.isascii() and name.isdecimal() and int(name) > 0):
        raise PatternRefused(f"`{name}` is not a column number; without a header, columns are numbered from 1")
    return int(name) - 1
