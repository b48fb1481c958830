"""What a file for synchronization says: patterns of facts, and where the rows of each are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from localsql.binding_keys import BindingKey
from localsql.dialects import DIALECTS, Dialect
from localsql.families import Family


class Kind(Enum):
    """The kinds of databases."""

    POSTGRES = "postgres"
    MYSQL = "mysql"
    SQLITE = "sqlite"
    MONGODB = "mongodb"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Tls:
    """How a connection is encrypted, where a file says more than the connection string."""

    ca_file: str = ""
    uses_system_certificates: bool = False
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Database:
    """Where rows are. Its connection string is secret, and so are the variables filled into it."""

    name: str
    kind: Kind
    dialect: str  # its name; empty for databases without SQL
    connection: str = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    tls: Tls = Tls()
    folder: Path = Path()  # where relative paths begin

    def without_secrets(self, text: str) -> str:
        """Return what a driver says with each secret replaced by `…`, so that it can be shown."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "…")
        return text

    @property
    def sql_dialect(self) -> Dialect:
        return DIALECTS[self.dialect]


@dataclass(frozen=True, slots=True)
class SqlQuery:
    text: str
    families: tuple[Family | None, ...]  # as in `localsql.bindings.Binding`


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a document, by its path, or a column of a file; each element of an array makes a row."""

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
    fields: tuple[Field, ...] = ()  # empty: all columns, in order
    has_header: bool = True


@dataclass(frozen=True)
class Pattern:
    """Facts that are to be there exactly as long as their rows are. It owns all facts that match it."""

    key: BindingKey
    database: Database
    asked: SqlQuery | MongoQuery | CsvFile

    def __str__(self) -> str:
        return str(self.key)


@dataclass(frozen=True, slots=True)
class Outbox:
    """A table in which the application writes down changes."""

    database: Database
    table: str


@dataclass(frozen=True)
class Config:
    patterns: tuple[Pattern, ...]
    outbox: Outbox | None = None

    @property
    def databases(self) -> tuple[Database, ...]:
        """All databases that are used, each once."""
        used = [pattern.database for pattern in self.patterns]
        if self.outbox is not None:
            used.append(self.outbox.database)
        return tuple({each.name: each for each in used}.values())
