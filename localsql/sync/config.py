"""What a file says that keeps facts in step: patterns of facts, and where the rows of each are."""

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
    """Of databases."""

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
    """Where rows are. What it is reached by is a secret, and so are the variables in it."""

    name: str
    kind: Kind
    dialect: str  # by its name; of databases without SQL, nothing
    connection: str = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    tls: Tls = Tls()
    folder: Path = Path()  # what relative paths begin at

    def without_secrets(self, text: str) -> str:
        """What a driver says, to be shown."""
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
    """A member of a document, by its path, or a column of a file; of an array, each element is a row."""

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
    fields: tuple[Field, ...] = ()  # nothing: the columns in order
    has_header: bool = True


@dataclass(frozen=True)
class Pattern:
    """Facts that are there exactly as long as their rows are. It owns all facts that match it."""

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
        """All that are used, each once."""
        used = [pattern.database for pattern in self.patterns]
        if self.outbox is not None:
            used.append(self.outbox.database)
        return tuple({each.name: each for each in used}.values())
