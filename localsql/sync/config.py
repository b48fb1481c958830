"""Read the configuration file of syncing."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson
import sqlglot
from sqlglot.errors import SqlglotError

from localsql.binding_keys import BindingKey, key_from_text
from localsql.binding_queries import LONGEST_QUERY
from localsql.bindings import (
    KNOWN,
    OF_A_FACT,
    Binding,
    Bindings,
    binding_of,
    check_keys,
    dialect_of,
    entries_of,
    sql_types_of,
)
from localsql.dialects import DIALECTS, Dialect
from localsql.errors import BindingRejected
from policy.errors import AuthzError, Unavailable, one_line
from policy.rules.program import Signature
from policy.yaml_text import LocatedMap, YamlRejected, document_from_yaml

# ---- errors of syncing --------------------------------------------------------------------------------------------

_CONTROL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


def shown(text: str) -> str:
    """Return text from a row with control characters escaped, for a terminal or a log."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class ConfigRejected(AuthzError):
    """The configuration is invalid; the message says where, and what to do."""

    def __init__(self, place: str, reason: str, line: int | None = None):
        self.place, self.reason = place, reason
        where = "" if line is None else f"line {line}: "
        super().__init__(f"{where}`{place}`: {reason}" if place else f"{where}{reason}")


class SourceFailed(Unavailable):
    """A database could not be read or written; this may be transient."""

    def __init__(self, database: str, reason: str):
        self.database = database
        super().__init__(f"`dbs.{database}`: {one_line(reason)}")


class DriverMissing(AuthzError):
    def __init__(self, database: str, module: str, extra: str):
        install = f'run `pip install "authz-project[{extra}]"`'
        super().__init__(f"`dbs.{database}`: the driver {module} is not installed; {install}")


class PatternRefused(AuthzError):
    """The facts of one pattern are left unchanged; other patterns are not affected."""


# ---- variables ----------------------------------------------------------------------------------------------------
# Secrets from environment variables: `${VARIABLE}`, or `$VARIABLE` as the whole value.

_NAMED = re.compile(r"\$\{([^}]*)\}")
_ALONE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def filled_in(place: str, text: str, environment: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the text with its variables expanded, and their values, which are secret."""
    alone = _ALONE.fullmatch(text.strip())
    if alone:
        text = f"${{{alone[1]}}}"
    values = [_value(place, found[1], environment) for found in _NAMED.finditer(text)]
    left = iter(values)
    return _NAMED.sub(lambda _: next(left), text), tuple(each for each in values if each)


def _value(place: str, name: str, environment: Mapping[str, str]) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigRejected(place, f"`${{{name}}}` is not a valid variable; write it as `${{NAME}}`")
    if name not in environment:
        raise ConfigRejected(place, f"the environment variable {name} is not set; set it, or write its value")
    return environment[name]


# ---- cleaning queries ---------------------------------------------------------------------------------------------
# Removes comments and a final semicolon, which people keep in their queries.

# What separates tokens. `/*! … */`, which MySQL executes, does not match, and is rejected later.
_BLANK = re.compile(r"(?:\s|--[^\n]*+|(?>/\*(?!!|M!).*?\*/))*+", re.DOTALL)
_BLANK_IN_MYSQL = re.compile(r"(?:\s|--(?=\s|$)[^\n]*+|\#[^\n]*+|(?>/\*(?!!|M!).*?\*/))*+", re.DOTALL)


def tidied(query: str, dialect: Dialect) -> str:
    """Return the query without comments and its final semicolon; unchanged if it cannot be tokenized."""
    try:
        words = sqlglot.tokenize(query, read=dialect.parser) if len(query) <= LONGEST_QUERY else []
    except SqlglotError:
        return query
    blank = _BLANK_IN_MYSQL if dialect.parser == "mysql" else _BLANK
    parts, end = [], 0
    for word in words:
        between = query[end : word.start]
        if not blank.fullmatch(between):
            return query
        parts += [_blanked(between), query[word.start : word.end + 1]]
        end = word.end + 1
    if not words or not blank.fullmatch(query[end:]):
        return query
    if words[-1].token_type == sqlglot.TokenType.SEMICOLON:
        parts.pop()
    return "".join(parts).strip()


def _blanked(between: str) -> str:
    """Return white space in place of a separator, with the same number of line breaks."""
    return between if between.isspace() or not between else "\n" * between.count("\n") or " "


# ---- contents of a configuration file: patterns of facts, and where their rows are --------------------------------


class DatabaseKind(Enum):
    POSTGRES = "postgres"
    MYSQL = "mysql"
    SQLITE = "sqlite"
    MONGODB = "mongodb"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings from the file, in addition to those of the connection string."""

    ca_file: str = ""
    uses_system_certificates: bool = False
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Database:
    """A source of rows. Its connection string and the variables expanded in it are secret."""

    name: str
    kind: DatabaseKind
    dialect: str  # its name; empty for databases without SQL
    connection: str = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    tls: Tls = Tls()
    folder: Path = Path()  # base of relative paths

    def without_secrets(self, text: str) -> str:
        """Return a driver's message with each secret replaced by `…`."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "…")
        return text

    @property
    def sql_dialect(self) -> Dialect:
        return DIALECTS[self.dialect]


@dataclass(frozen=True, slots=True)
class Field:
    """A path into a document, or a column of a file; an array yields one row per element."""

    name: str
    is_array: bool = False


@dataclass(frozen=True)
class MongoQuery:
    collection: str
    fields: tuple[Field, ...]
    find: Mapping[str, Any] | None = None
    aggregate: tuple[Mapping[str, Any], ...] | None = None


@dataclass(frozen=True, slots=True)
class CsvFile:
    path: Path
    fields: tuple[Field, ...] = ()  # empty means all columns, in order
    has_header: bool = True


@dataclass(frozen=True)
class SyncPattern:
    """Facts that should exist if and only if their rows do. The pattern owns all facts that match it."""

    key: BindingKey
    database: Database
    asked: Binding | MongoQuery | CsvFile

    def __str__(self) -> str:
        return str(self.key)


@dataclass(frozen=True, slots=True)
class Outbox:
    """A table to which the application writes changes."""

    database: Database
    table: str


@dataclass(frozen=True)
class Config:
    patterns: tuple[SyncPattern, ...]
    outbox: Outbox | None = None
    is_for_local_sql: bool = False  # whether it has keys that only data bindings use

    @property
    def databases(self) -> tuple[Database, ...]:
        """All databases that are used, without duplicates."""
        used = [pattern.database for pattern in self.patterns]
        if self.outbox is not None:
            used.append(self.outbox.database)
        return tuple({each.name: each for each in used}.values())


# ---- the source of a pattern: a query, a collection, or a CSV file ------------------------------------------------

ConfigEntry = Mapping[object, Any]
_NAMES_OF_A_FIELD = ("name", "field", "path", "column")
_WRITES = ("$out", "$merge")


def asked_of(
    made: Bindings, text: str, key: BindingKey, entry: ConfigEntry, typed: ConfigEntry, database: Database
) -> Any:
    """Return what to read from the database; `typed` is the entry with numbers and times as parsed by YAML."""
    if database.kind is DatabaseKind.MONGODB:
        return _mongo_query(text, key, entry, typed)
    if database.kind is DatabaseKind.CSV:
        return _csv_file(text, key, entry, database)
    if "collection" in entry or "file" in entry:
        raise ConfigRejected(text, f"`dbs.{database.name}` is a {database.kind.value} database: use `query`")
    said = entry.get("query")
    return binding_of(made, text, {**entry, "query": tidied(said, made.dialect)} if isinstance(said, str) else entry)


# ---- collections ---------------------------------------------------------------------------------------------------


def _mongo_query(text: str, key: BindingKey, entry: ConfigEntry, typed: ConfigEntry) -> MongoQuery:
    collection = entry.get("collection")
    if not isinstance(collection, str) or not collection:
        raise ConfigRejected(text, "`collection` is required for a MongoDB database")
    fields = _fields(text, key, entry.get("fields"), needed=True)
    if sum(each.is_array for each in fields) > 1:
        raise ConfigRejected(text, "at most one of `fields` can have `is_array`; unwind the others in `aggregate`")
    inner = typed.get("query")
    found = inner if isinstance(inner, dict) else typed
    if isinstance(entry.get("query"), str):
        raise ConfigRejected(text, "`query` must be a mapping with `find` or `aggregate` for a MongoDB database")
    find, stages = _json(text, found, "find"), _json(text, found, "aggregate")
    if find is not None and stages is not None:
        raise ConfigRejected(text, "must have `find` or `aggregate`, not both")
    if find is not None and not isinstance(find, dict):
        raise ConfigRejected(text, "`find` must be a mapping: a filter, as for find()")
    return MongoQuery(collection, fields, find, None if stages is None else _stages(text, stages))


def _stages(text: str, stages: object) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(stages, list) or not all(isinstance(each, dict) for each in stages):
        raise ConfigRejected(text, "`aggregate` must be a list of stages, as for aggregate()")
    if any(name in each for each in stages for name in _WRITES):
        raise ConfigRejected(text, "`aggregate` must be read-only: remove $out and $merge")
    return tuple(stages)


def _json(text: str, found: ConfigEntry, name: str) -> Any:
    """Return the YAML value; if it is a text, parse it as JSON."""
    said = found.get(name)
    if not isinstance(said, str):
        return said
    try:
        return orjson.loads(said)
    except orjson.JSONDecodeError as reason:
        raise ConfigRejected(text, f"`{name}` is not valid JSON: {reason}") from None


# ---- files ---------------------------------------------------------------------------------------------------------


def _csv_file(text: str, key: BindingKey, entry: ConfigEntry, database: Database) -> CsvFile:
    file, header = entry.get("file", ""), entry.get("header", True)
    if not isinstance(file, str):
        raise ConfigRejected(text, "`file` must be the path of a CSV file")
    if not isinstance(header, bool):
        raise ConfigRejected(text, "`header` must be true or false")
    if "query" in entry or "collection" in entry:
        raise ConfigRejected(text, f"`dbs.{database.name}` is a folder of CSV files: use `file`")
    fields = _fields(text, key, entry.get("fields"), needed=False)
    if any(each.is_array for each in fields):
        raise ConfigRejected(text, "`is_array` is not supported for CSV files")
    return CsvFile(database.folder / database.connection.removeprefix("file://") / file, fields, header)


# ---- fields --------------------------------------------------------------------------------------------------------


def _fields(text: str, key: BindingKey, raw: object, needed: bool) -> tuple[Field, ...]:
    """Return the fields in the order of the variables, from a list of names or maps, or from a single map of names."""
    if raw is None and not needed:
        return ()
    parts = [{name: said} for name, said in raw.items()] if isinstance(raw, dict) else raw
    wanted = len(key.columns)
    if not isinstance(parts, list) or len(parts) != wanted:
        raise ConfigRejected(text, f"`fields` must be a list of {wanted} names, one for each `_`")
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
    raise ConfigRejected(text, "each of `fields` must be a name, or a mapping such as {name: teams, is_array: true}")


def _truth(text: str, raw: object) -> bool:
    if raw is not None and not isinstance(raw, bool):
        raise ConfigRejected(text, "`is_array` must be true or false")
    return bool(raw)


# ---- the section `dbs`: names -> databases, each created on first use ---------------------------------------------

SHORTEST = 3  # characters of a part of a password: redacting shorter parts would make messages unreadable
GIVEN = "db"  # the name of the database from --connection

_TYPES = {
    "postgres": (DatabaseKind.POSTGRES, "postgres"),
    "postgresql": (DatabaseKind.POSTGRES, "postgres"),
    "mysql": (DatabaseKind.MYSQL, "mysql"),
    "mariadb": (DatabaseKind.MYSQL, "mariadb"),
    "sqlite": (DatabaseKind.SQLITE, "sqlite"),
    "mongodb": (DatabaseKind.MONGODB, ""),
    "mongodb+srv": (DatabaseKind.MONGODB, ""),
    "csv": (DatabaseKind.CSV, ""),
}
_WORDED = re.compile(r"(?:password|sslpassword) *= *('[^']+'|[^\s'&]+)", re.IGNORECASE)
_OF_A_URL = re.compile(
    r"(?:^|[?&\s])(sslmode|sslrootcert|ssl_[a-z_]+|ssl|tls[a-z]*)\s*=", re.IGNORECASE
)  # how a connection string says that it is encrypted
_NAMES = ("postgres", "mysql", "mariadb", "sqlite", "mongodb", "csv")
_OF_A_DATABASE = ("connection_string", "type", "ssl")
_OF_TLS = ("ca_file", "use_system_certs", "ssl_mode")


@dataclass(frozen=True)
class ConfigContext:
    """The context of a file: its folder, environment variables, and the --connection option."""

    folder: Path = Path()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    connection: str = field(default="", repr=False)


class Databases:
    """The databases in a file, or the one from --connection."""

    def __init__(self, document: Mapping[object, object], around: ConfigContext):
        self.around = around
        self.usual = _usual_type(document)
        entries = dict(entries_of("dbs", document.get("dbs")))
        if around.connection and entries:
            raise ConfigRejected("dbs", "has connections; remove --connection")
        self.entries = entries or ({GIVEN: {"connection_string": around.connection}} if around.connection else {})
        self._made: dict[str, Database] = {}

    def named(self, place: str, name: object) -> Database:
        """Return the database that an entry names; without a name, the only one."""
        if not self.entries:
            raise ConfigRejected(place, "has no database; add one under `dbs`, or pass --connection")
        if name is None:
            if len(self.entries) > 1:
                raise ConfigRejected(place, f"`db` is required; use one of {_listed(self.entries)}")
            name = next(iter(self.entries))
        elif self.around.connection:  # it replaces any database that a bindings file names
            name = GIVEN
        if not isinstance(name, str) or name not in self.entries:
            raise ConfigRejected(place, f"database `{name}` is not under `dbs`; use one of {_listed(self.entries)}")
        if name not in self._made:
            self._made[name] = self._database(name, self.entries[name])
        return self._made[name]

    def _database(self, name: str, entry: object) -> Database:
        place = f"dbs.{name}"
        if not isinstance(entry, dict):
            raise ConfigRejected(place, "must be a mapping with the key `connection_string`")
        check_keys(place, entry, _OF_A_DATABASE)
        written = entry.get("connection_string")
        if not isinstance(written, str) or not written.strip():
            raise ConfigRejected(place, "`connection_string` is required, such as `${APP_DATABASE_URL}`")
        connection, values = filled_in(place, written.strip(), self.around.environment)
        kind, dialect = self._type(place, entry.get("type"), connection)
        secrets = (*values, *_passwords(connection), connection)
        tls = _tls(place, entry.get("ssl"))
        _check_agreed(place, tls, connection)
        return Database(name, kind, dialect, connection, secrets, tls, self.around.folder)

    def _type(self, place: str, said: object, connection: str) -> tuple[DatabaseKind, str]:
        if said is None:
            scheme = connection.partition("://")[0].lower() if "://" in connection else ""
            return _TYPES.get(scheme.partition("+")[0], self.usual)
        return _type_named(place, said, "`type` ")


def _usual_type(document: Mapping[object, object]) -> tuple[DatabaseKind, str]:
    """Return the default type of databases: `source`, as in the hosted product, or else `dialect`."""
    source = document.get("source")
    if source is None:
        return _TYPES[dialect_of(document.get("dialect")).names[0]]
    return _type_named("source", source)


def _type_named(place: str, said: object, key: str = "") -> tuple[DatabaseKind, str]:
    if not isinstance(said, str) or said.lower() not in _TYPES:
        raise ConfigRejected(place, f"{key}must be one of {', '.join(_NAMES)}")
    return _TYPES[said.lower()]


def _tls(place: str, entry: object) -> Tls:
    if entry is None:
        return Tls()
    if not isinstance(entry, dict):
        raise ConfigRejected(place, f"`ssl` must be a mapping; its keys are {_listed(_OF_TLS)}")
    check_keys(place, entry, _OF_TLS)
    ca_file, system = entry.get("ca_file", ""), entry.get("use_system_certs", False)
    mode = entry.get("ssl_mode", "require" if ca_file or system else "prefer")
    if not isinstance(ca_file, str) or not isinstance(system, bool):
        raise ConfigRejected(place, "`ssl.ca_file` must be a path, and `ssl.use_system_certs` true or false")
    if mode not in ("require", "prefer"):
        raise ConfigRejected(place, "`ssl.ssl_mode` must be `require` or `prefer`")
    return Tls(ca_file, system, mode == "require")


def _check_agreed(place: str, tls: Tls, connection: str) -> None:
    """Reject `ssl` beside TLS options in the connection string: one would be ignored, perhaps the safer one."""
    if tls == Tls():
        return
    said = _OF_A_URL.search(connection)
    if said:
        raise ConfigRejected(place, f"`ssl` conflicts with `{said[1]}` in the connection string; remove one")


def _passwords(connection: str) -> tuple[str, ...]:
    """Return the passwords in a URL or in `name=value` pairs, in all forms in which a driver may show them.

    Malformed URLs are searched, too.
    """
    found = [each.strip("'") for each in _WORDED.findall(connection)]
    _, _, rest = connection.partition("//")
    login, at, _ = rest.rpartition("@")
    _, colon, password = login.partition(":")
    parts = re.split(r"[@/?#:]", password) if at and colon else []
    if not at:
        password = ""
    with suppress(ValueError):
        found.append(urlsplit(connection).password or "")
    with suppress(Exception):  # its driver is not installed, or cannot parse it
        found += _by_driver(connection)
    whole = {password, *found} - set(parts)
    every = {each for each in parts if len(each) >= SHORTEST} | whole
    return tuple({shown for each in every if each for shown in (each, unquote(each))})


def _by_driver(connection: str) -> list[str]:
    if connection.startswith("mongodb"):
        return [import_module("pymongo.uri_parser").parse_uri(connection)["password"] or ""]
    said = import_module("psycopg.conninfo").conninfo_to_dict(connection)
    return [str(said.get(name) or "") for name in ("password", "sslpassword")]


def _listed(names: object) -> str:
    return ", ".join(f"`{each}`" for each in names)  # type: ignore[attr-defined]  # names, in any order


# ---- text of a file -> `Config`; errors have line numbers ---------------------------------------------------------

TABLE = "authz_outbox"  # the default
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?", re.ASCII)
_OF_AN_OUTBOX = ("db", "table")


def config_from_text(text: str, around: ConfigContext) -> Config:
    try:
        document, typed = document_from_yaml(text), document_from_yaml(text, is_typed=True)
    except YamlRejected as error:
        raise ConfigRejected(error.key, error.reason, error.line) from None
    try:
        return _config(document, typed, around)
    except (BindingRejected, ConfigRejected) as error:
        raise ConfigRejected(error.place, error.reason, _line_of(document, error.place)) from None


def _config(document: object, typed: Any, around: ConfigContext) -> Config:
    """Return the configuration in a document; `typed` is the same with numbers and times as parsed by YAML."""
    if not isinstance(document, dict):
        raise ConfigRejected("", "must be a mapping with the key `facts`")
    check_keys("", document, KNOWN)
    if document.get("version", "1") not in ("1", None):
        raise ConfigRejected("version", "must be 1")
    if "facts" not in document and "outbox" not in document:
        raise ConfigRejected("facts", "is missing")
    databases = Databases(document, around)
    entries, facts = dict(entries_of("facts", document.get("facts"))), typed.get("facts") or {}
    patterns = {name: _pattern(document, databases, name, entry, facts.get(name)) for name, entry in entries.items()}
    _check_apart(patterns)
    of_local_sql = any(isinstance(entry, dict) and "not_null" in entry for entry in entries.values())
    is_for_local_sql = of_local_sql or bool({"dialect", "domains"} & document.keys())
    return Config(tuple(patterns.values()), _outbox(document.get("outbox"), databases), is_for_local_sql)


def _pattern(document: dict[Any, Any], databases: Databases, text: str, entry: object, typed: object) -> SyncPattern:
    key = key_from_text(text)
    if not isinstance(entry, dict) or not isinstance(typed, dict):
        raise ConfigRejected(text, "must be a mapping with the keys `db` and `query`")
    check_keys(text, entry, OF_A_FACT)
    database = databases.named(text, entry.get("db"))
    return SyncPattern(key, database, asked_of(_bindings(document, database), text, key, entry, typed, database))


def _bindings(document: dict[Any, Any], database: Database) -> Bindings:
    """Return bindings without facts, to interpret column types in this database's dialect."""
    if not database.dialect:
        return Bindings(DIALECTS["postgres"])
    types = sql_types_of("sql_types", document.get("sql_types"), database.sql_dialect)
    return Bindings(database.sql_dialect, (), types)


def _outbox(entry: object, databases: Databases) -> Outbox | None:
    if entry is None:
        return None
    if not isinstance(entry, dict):
        raise ConfigRejected("outbox", "must be a mapping with the keys `db` and `table`")
    check_keys("outbox", entry, _OF_AN_OUTBOX)
    database = databases.named("outbox", entry.get("db"))
    if database.kind in (DatabaseKind.MONGODB, DatabaseKind.CSV):
        raise ConfigRejected("outbox", f"must be in an SQL database, not one of type {database.kind.value}")
    table = entry.get("table", TABLE)
    if not isinstance(table, str) or not _TABLE.fullmatch(table):
        raise ConfigRejected("outbox", "`table` must be a table name, such as `authz_outbox` or `app.authz_outbox`")
    return Outbox(database, table)


# ---- overlapping patterns --------------------------------------------------------------------------------------------


def _check_apart(patterns: Mapping[str, SyncPattern]) -> None:
    """Reject patterns that may match the same fact: each would delete the facts of the other."""
    by_signature: dict[Signature, list[tuple[str, BindingKey]]] = {}
    for text, pattern in patterns.items():
        by_signature.setdefault(pattern.key.signature, []).append((text, pattern.key))
    for keys in by_signature.values():
        for (one, first), (other, second) in combinations(keys, 2):
            if all(a is None or b is None or a == b for a, b in zip(first.constants, second.constants)):
                advice = "so each would delete the other's facts; merge the entries into one with a UNION ALL"
                raise ConfigRejected(other, f"overlaps with `{one}`, {advice}")


# ---- line numbers ------------------------------------------------------------------------------------------------


def _line_of(document: object, place: str) -> int | None:
    """Return the line of the key that an error is about."""
    line = None
    for name in ["facts", place] if "(" in place else place.split("."):
        if not isinstance(document, LocatedMap) or name not in document.events:
            break
        line, document = document.line(name), document.get(name)
    return line
