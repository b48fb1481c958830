"""Columns of every type that ids are kept in: which values each can hold, so that the value's text is the id."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from localsql.dialects import DIALECT_NAMES
from policy.values import BOOLEAN, INTEGER, STRING

_NUMBER = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", re.ASCII)
_WORD = re.compile(r"[a-z][a-z0-9]{0,20}", re.ASCII)


@dataclass(frozen=True)
class Kind:
    """`ddl` and `said` by the caller's database: the column's type, and its name in data bindings."""

    name: str
    holds: Callable[[str], bool]
    ddl: dict[str, str]
    said: dict[str, str]
    cell: Callable[[str], Any] = str


def _below(most: int) -> Callable[[str], bool]:
    return lambda text: _NUMBER.fullmatch(text) is not None and -most <= int(text) < most


def _everywhere(sql_type: str) -> dict[str, str]:
    return dict.fromkeys(DIALECT_NAMES, sql_type)


def _any(text: str) -> bool:
    return text != "" and "\0" not in text and len(text) <= 100


def _unpadded(text: str) -> bool:
    return _any(text) and len(text) <= 60 and not text.endswith(" ")


_TEXT = _everywhere("text")
_VARCHAR = _everywhere("varchar(100)")
# A text there has no index to speak of, and is no key. Of columns of more than 128 characters nothing is cached.
_MARIADB_TEXT = {**_TEXT, "mariadb": "varchar(100)"}
_LOOSE = "CREATE COLLATION IF NOT EXISTS loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"

KINDS = {
    kind.name: kind
    for kind in (
        Kind("bigint", _below(2**63), _everywhere("bigint"), _everywhere("bigint"), int),
        Kind("int", _below(2**31), _everywhere("int"), _everywhere("integer"), int),
        Kind("numeric", _below(10**18), _everywhere("numeric(20)"), _everywhere("numeric"), int),
        Kind("text", _any, _MARIADB_TEXT, _TEXT),
        Kind("varchar", _any, _VARCHAR, _VARCHAR),
        Kind(
            "binary text",
            _any,
            {
                "postgres": 'text COLLATE "C"',
                "mariadb": "varchar(100) COLLATE utf8mb4_bin",
                "sqlite": "text COLLATE NOCASE",
            },
            _TEXT,
        ),
        Kind("char", _unpadded, _everywhere("char(60)"), _everywhere("char(60)")),
        Kind("citext", _any, {**_MARIADB_TEXT, "postgres": "citext"}, {**_TEXT, "postgres": "citext"}),
        Kind("loose", _any, {**_MARIADB_TEXT, "postgres": "text COLLATE loose", "sqlite": "text COLLATE RTRIM"}, _TEXT),
        Kind("uuid", lambda text: _UUID.fullmatch(text) is not None, _everywhere("uuid"), _everywhere("uuid")),
        Kind("enum", lambda text: _WORD.fullmatch(text) is not None, {}, {**_TEXT, "postgres": "some_enum"}),
        Kind(
            "boolean",
            lambda text: text in ("true", "false"),
            _everywhere("boolean"),
            _everywhere("boolean"),
            lambda text: text == "true",
        ),
    )
}
NUMBERS = ("bigint", "int", "numeric", "text", "varchar", "char", "binary text")
LOOSE = ("varchar", "binary text", "citext", "loose")
TEXTS = (*LOOSE, "text", "char", "enum")
UUIDS = ("uuid", "uuid", "text", "varchar", "char", "citext")
OF_PRIMITIVES = {INTEGER: NUMBERS[:5], BOOLEAN: ("boolean",), STRING: TEXTS}


def column(kind: Kind, dialect: str, name: str, labels: Collection[str]) -> tuple[str, str]:
    """What must be made before, and the column."""
    if kind.name != "enum":
        return _LOOSE if kind.name == "loose" and dialect == "postgres" else "", f"{name} {kind.ddl[dialect]}"
    listed = ", ".join(f"'{label}'" for label in sorted({each for each in labels if kind.holds(each)} or {"none"}))
    if dialect == "postgres":
        return f"CREATE TYPE {name}_type AS ENUM ({listed})", f"{name} {name}_type"
    return "", f"{name} {f'enum({listed})' if dialect == 'mariadb' else 'text'}"
