"""What all readers yield, and how values that a database does not give as text become text."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

Row = tuple[str | None, ...]

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
