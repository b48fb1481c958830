"""The part `dbs` of a file: names -> databases, each made once something uses it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

from localsql.bindings import check_keys, entries_of
from localsql.dialects import DIALECTS
from localsql.sync.config import Database, Kind, Tls
from localsql.sync.errors import ConfigRejected
from localsql.sync.variables import filled_in

SHORTEST = 3  # characters of a part of a password: hiding less would hide half of each message
GIVEN = "db"  # the name of the database that --connection gives

_TYPES = {
    "postgres": (Kind.POSTGRES, "postgres"),
    "postgresql": (Kind.POSTGRES, "postgres"),
    "mysql": (Kind.MYSQL, "mysql"),
    "mariadb": (Kind.MYSQL, "mariadb"),
    "sqlite": (Kind.SQLITE, "sqlite"),
    "mongodb": (Kind.MONGODB, ""),
    "mongodb+srv": (Kind.MONGODB, ""),
    "csv": (Kind.CSV, ""),
}
_WORDED = re.compile(r"(?:password|sslpassword) *= *('[^']+'|[^\s'&]+)", re.IGNORECASE)
_OF_A_URL = re.compile(
    r"(?:^|[?&\s])(sslmode|sslrootcert|ssl_[a-z_]+|ssl|tls[a-z]*)\s*=", re.IGNORECASE
)  # how a connection string says that it is encrypted
_NAMES = ("postgres", "mysql", "mariadb", "sqlite", "mongodb", "csv")
_OF_A_DATABASE = ("connection_string", "type", "ssl")
_OF_TLS = ("ca_file", "use_system_certs", "ssl_mode")


@dataclass(frozen=True)
class Around:
    """What a file is read with: its folder, the environment's variables, and the connection of --connection."""

    folder: Path = Path()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    connection: str = field(default="", repr=False)


class Databases:
    """The databases that a file names, or the one that --connection gives."""

    def __init__(self, document: Mapping[object, object], around: Around):
        self.around = around
        self.usual = _usual_type(document)
        entries = dict(entries_of("dbs", document.get("dbs")))
        if around.connection and entries:
            raise ConfigRejected("dbs", "names connections already; leave out --connection")
        self.entries = entries or ({GIVEN: {"connection_string": around.connection}} if around.connection else {})
        self._made: dict[str, Database] = {}

    def named(self, place: str, name: object) -> Database:
        """Return the database that an entry names; without a name, the only one."""
        if not self.entries:
            raise ConfigRejected(place, "needs a database: name it under `dbs`, or give --connection")
        if name is None:
            if len(self.entries) > 1:
                raise ConfigRejected(place, f"needs `db`, one of {_listed(self.entries)}")
            name = next(iter(self.entries))
        elif self.around.connection:  # it stands for whatever database a file of bindings names
            name = GIVEN
        if not isinstance(name, str) or name not in self.entries:
            raise ConfigRejected(place, f"there is no database `{name}` under `dbs`; there is {_listed(self.entries)}")
        if name not in self._made:
            self._made[name] = self._database(name, self.entries[name])
        return self._made[name]

    def _database(self, name: str, entry: object) -> Database:
        place = f"dbs.{name}"
        if not isinstance(entry, dict):
            raise ConfigRejected(place, "must be a map with the key `connection_string`")
        check_keys(place, entry, _OF_A_DATABASE)
        written = entry.get("connection_string")
        if not isinstance(written, str) or not written.strip():
            raise ConfigRejected(place, "needs a `connection_string`, such as `${APP_DATABASE_URL}`")
        connection, values = filled_in(place, written.strip(), self.around.environment)
        kind, dialect = self._type(place, entry.get("type"), connection)
        secrets = (*values, *_passwords(connection), connection)
        tls = _tls(place, entry.get("ssl"))
        _check_agreed(place, tls, connection)
        return Database(name, kind, dialect, connection, secrets, tls, self.around.folder)

    def _type(self, place: str, said: object, connection: str) -> tuple[Kind, str]:
        if said is None:
            scheme = connection.partition("://")[0].lower() if "://" in connection else ""
            return _TYPES.get(scheme.partition("+")[0], self.usual)
        if not isinstance(said, str) or said.lower() not in _TYPES:
            raise ConfigRejected(place, f"`type` must be one of {', '.join(_NAMES)}")
        return _TYPES[said.lower()]


def _usual_type(document: Mapping[object, object]) -> tuple[Kind, str]:
    """Return the type of databases that do not say it: `source`, as the hosted product has it, or else `dialect`."""
    source, dialect = document.get("source"), document.get("dialect")
    if source is not None:
        if not isinstance(source, str) or source.lower() not in _TYPES:
            raise ConfigRejected("source", f"must be one of {', '.join(_NAMES)}")
        return _TYPES[source.lower()]
    if dialect is not None:
        if not isinstance(dialect, str) or dialect.lower() not in DIALECTS:
            raise ConfigRejected("dialect", "must be one of postgres, mysql, mariadb, sqlite")
        return _TYPES.get(dialect.lower(), _TYPES["mysql" if "mysql" in dialect.lower() else "postgres"])
    return _TYPES["postgres"]


def _tls(place: str, entry: object) -> Tls:
    if entry is None:
        return Tls()
    if not isinstance(entry, dict):
        raise ConfigRejected(place, f"`ssl` must be a map with some of {_listed(_OF_TLS)}")
    check_keys(place, entry, _OF_TLS)
    ca_file, system = entry.get("ca_file", ""), entry.get("use_system_certs", False)
    mode = entry.get("ssl_mode", "require" if ca_file or system else "prefer")
    if not isinstance(ca_file, str) or not isinstance(system, bool):
        raise ConfigRejected(place, "`ssl.ca_file` must be a path, and `ssl.use_system_certs` true or false")
    if mode not in ("require", "prefer"):
        raise ConfigRejected(place, "`ssl.ssl_mode` must be `require` or `prefer`")
    return Tls(ca_file, system, mode == "require")


def _check_agreed(place: str, tls: Tls, connection: str) -> None:
    """Refuse `ssl` beside a connection string that has such options: one would be ignored, perhaps the safer one."""
    if tls == Tls():
        return
    said = _OF_A_URL.search(connection)
    if said:
        raise ConfigRejected(place, f"`ssl` and `{said[1]}` of the connection string both say how it is encrypted")


def _passwords(connection: str) -> tuple[str, ...]:
    """Return the passwords in a URL or among `name=value` words, in all forms that a driver may show them in.

    A URL that is badly written is searched, too.
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
    with suppress(Exception):  # its driver is not installed, or cannot read it
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
