"""What all readers yield, the statement that they run, and their drivers."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import import_module
from typing import Any
from uuid import UUID

from localsql.dialects import Dialect, Family, Typed
from localsql.sync.config import Database, DriverMissing, SqlQuery, SyncPattern

# ---- What all readers yield, and how values that a database does not give as text become text ---------------------

SourceRow = tuple[str | None, ...]

AT_ONCE = 2_000  # rows that are fetched by one call
CONNECT_WITHIN = 10  # seconds


class NotText(ValueError):
    """A value that no id can be made of."""


def text_of(value: object) -> str | None:
    """Return the value as PostgreSQL and local SQL show it: 7 for 7.0 and 7.00, `true`, a uuid with dashes."""
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return str(int(value)) if value.is_integer() else repr(value)
        case Decimal():
            return _text_of_number(value)
        case UUID():
            return str(value)
        case datetime():
            moment = value if value.tzinfo else value.replace(tzinfo=UTC)
            return moment.astimezone(UTC).isoformat()
        case date():
            return value.isoformat()
    raise NotText(f"a value of the type {type(value).__name__} is no id")


def _text_of_number(value: Decimal) -> str:
    if not value.is_finite():
        raise NotText(f"the number {value} is no id")
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# ---- drivers ------------------------------------------------------------------------------------------------------
# Packages that only some installations have: imported when a database of their kind is opened.


def driver(database: Database, module: str, package: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise DriverMissing(database.name, package, extra) from None


# ---- statement ----------------------------------------------------------------------------------------------------
# A pattern's query as the statement that is run: ids as texts in the dialect's normal form, and in order of bytes.


def reading(pattern: SyncPattern, dialect: Dialect, in_order: bool, collated: str = "") -> str:
    """Return the statement; `collated` follows each column of ids, for databases that do not sort texts by bytes."""
    asked = pattern.asked
    assert isinstance(asked, SqlQuery), "a database of tables is asked by SQL"
    names = [f"c{index}" for index in range(max(len(pattern.key.columns), 1))]
    families = [asked.families[index] for index in pattern.key.columns] or [Family.UNKNOWN]
    shown = [
        f"({dialect.text(Typed(f'__q.{name}', family or Family.UNKNOWN))}){collated} AS {name}"
        for name, family in zip(names, families)
    ]
    order = f"\nORDER BY {', '.join(str(place) for place in range(1, len(names) + 1))}" if in_order else ""
    return f"WITH __q({', '.join(names)}) AS (\n{asked.text}\n)\nSELECT {', '.join(shown)} FROM __q{order}"
