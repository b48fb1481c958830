"""The text of a file -> `Config`. An error says in which line it is."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import yaml

from localsql.binding_keys import BindingKey, key_from_text
from localsql.bindings import KNOWN, OF_A_FACT, Bindings, check_keys, entries_of, sql_types_of
from localsql.dialects import DIALECTS
from localsql.documents import document_from_text
from localsql.errors import BindingRejected
from localsql.sync.asked import asked_of
from localsql.sync.config import Config, Database, Kind, Outbox, Pattern
from localsql.sync.databases import Around, Databases
from localsql.sync.errors import ConfigRejected
from policy.rules.program import Signature

TABLE = "authz_outbox"  # the default
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?", re.ASCII)
_OF_AN_OUTBOX = ("db", "table")


def config_from_text(text: str, around: Around) -> Config:
    try:
        return _config(text, around)
    except (BindingRejected, ConfigRejected) as error:
        raise ConfigRejected(error.place, error.reason, _line_of(text, error.place)) from None


def _config(text: str, around: Around) -> Config:
    document = document_from_text(text)
    if not isinstance(document, dict):
        raise ConfigRejected("", "must be a map with the key `facts`")
    check_keys("", document, KNOWN)
    if document.get("version", "1") not in ("1", None):
        raise ConfigRejected("version", "must be 1")
    if "facts" not in document and "outbox" not in document:
        raise ConfigRejected("facts", "is missing")
    databases = Databases(document, around)
    typed = _typed(text).get("facts") or {}
    patterns = tuple(
        _pattern(document, databases, name, entry, typed.get(name))
        for name, entry in entries_of("facts", document.get("facts"))
    )
    _check_apart(patterns)
    return Config(patterns, _outbox(document.get("outbox"), databases))


def _pattern(document: dict[Any, Any], databases: Databases, text: str, entry: object, typed: object) -> Pattern:
    key = key_from_text(text)
    if not isinstance(entry, dict) or not isinstance(typed, dict):
        raise ConfigRejected(text, "must be a map with the keys `db` and `query`")
    check_keys(text, entry, OF_A_FACT)
    database = databases.named(text, entry.get("db"))
    return Pattern(key, database, asked_of(_bindings(document, database), text, key, entry, typed, database))


def _bindings(document: dict[Any, Any], database: Database) -> Bindings:
    """Return bindings without facts, which say how this database's dialect reads the types of columns."""
    if not database.dialect:
        return Bindings(DIALECTS["postgres"])
    types = sql_types_of("sql_types", document.get("sql_types"), database.sql_dialect)
    return Bindings(database.sql_dialect, (), types)


def _outbox(entry: object, databases: Databases) -> Outbox | None:
    if entry is None:
        return None
    if not isinstance(entry, dict):
        raise ConfigRejected("outbox", "must be a map with the keys `db` and `table`")
    check_keys("outbox", entry, _OF_AN_OUTBOX)
    database = databases.named("outbox", entry.get("db"))
    if database.kind in (Kind.MONGODB, Kind.CSV):
        raise ConfigRejected("outbox", f"a database of the type {database.kind.value} has no table to be drained")
    table = entry.get("table", TABLE)
    if not isinstance(table, str) or not _TABLE.fullmatch(table):
        raise ConfigRejected("outbox", "`table` must be the name of a table, as `authz_outbox` or `app.authz_outbox`")
    return Outbox(database, table)


# ---- patterns that share facts ---------------------------------------------------------------------------------------


def _check_apart(patterns: tuple[Pattern, ...]) -> None:
    """Refuse two patterns that may match the same fact: each would delete the facts of the other."""
    by_signature: dict[Signature, list[BindingKey]] = {}
    for pattern in patterns:
        by_signature.setdefault(pattern.key.signature, []).append(pattern.key)
    for keys in by_signature.values():
        for one, other in combinations(keys, 2):
            if all(a is None or b is None or a == b for a, b in zip(one.constants, other.constants)):
                raise ConfigRejected(
                    str(other),
                    f"a fact can match `{one}` as well, and each would delete the other's facts; make them one entry,"
                    " whose query has a UNION ALL",
                )


# ---- the document as YAML means it -------------------------------------------------------------------------------


def _typed(text: str) -> dict[Any, Any]:
    """Return the document with its numbers and times. `document_from_text` has refused aliases, tags and depth."""
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, TypeError) as reason:
        raise ConfigRejected("", f"is not YAML: {str(reason).splitlines()[0]}") from None
    return found if isinstance(found, dict) else {}


def _line_of(text: str, place: str) -> int | None:
    """Return the line of the key that an error is about."""
    names = _names(place)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader) if names else None
    except yaml.YAMLError:
        return None
    line = None
    for name in names:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        found = [(k, v) for k, v in pairs if isinstance(k, yaml.ScalarNode) and _is(k.value, name)]
        if not found:
            break
        line, node = found[0][0].start_mark.line + 1, found[0][1]
    return line


def _names(place: str) -> list[str]:
    if not place:
        return []
    return ["facts", place] if "(" in place else place.split(".")


def _is(written: str, name: str) -> bool:
    """Say whether a key, as it was written, is the one that an error names."""
    if written == name or "(" not in name:
        return written == name
    try:
        return str(key_from_text(written)) == name
    except BindingRejected:
        return False
