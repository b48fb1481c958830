"""The database's clock, which all servers share: microseconds since 1970, as one number."""

from datetime import UTC, datetime, timedelta

_START = datetime(1970, 1, 1, tzinfo=UTC)
_NOW = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)",
}


def now_in(vendor: str) -> str:
    """The SQL that reads the clock."""
    return _NOW[vendor]


def time_of(microseconds: int) -> datetime:
    return _START + timedelta(microseconds=microseconds)


def microseconds_of(time: datetime) -> int:
    return (time - _START) // timedelta(microseconds=1)


def time_of_text(text: str) -> datetime:
    """The time that RFC 3339 writes so; `ValueError` says what is wrong with another text."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"must be a time such as 2026-11-03T14:02:11Z, not {text[:40]!r}") from None
    if time.tzinfo is None or len(text) < len("2026-11-03T14:02Z"):
        raise ValueError("must be a time of day with an offset from UTC, such as 2026-11-03T14:02:11Z")
    return time


def text_of(microseconds: int) -> str:
    """As answers show it: `2026-11-03T14:02:11.123456Z`."""
    return time_of(microseconds).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
