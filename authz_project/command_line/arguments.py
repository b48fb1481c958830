"""Types of command-line arguments: numbers and durations."""

import re
from argparse import ArgumentTypeError
from datetime import timedelta

from policy.values import whole_number

MOST = 1000  # processes or threads


def port_number(text: str) -> int:
    port = whole_number(text, 65535)
    if not port:
        raise ArgumentTypeError(f"Port must be between 1 and 65535, not {text!r}")
    return port


def at_least_one(text: str) -> int:
    number = whole_number(text, MOST)
    if not number:
        raise ArgumentTypeError(f"must be a number from 1 to {MOST:,}, not {text!r}")
    return number


UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
LONGEST = timedelta(days=36_500)


def duration(text: str) -> timedelta:
    """Parse a time span such as 90d, 24h, 30m or 0."""
    if text == "0":
        return timedelta()
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text, re.ASCII)
    span = timedelta(**{UNITS[found[2]]: int(found[1])}) if found else None
    if span is None or span > LONGEST:
        raise ArgumentTypeError(f"`{text}` is not a time span such as 90d, 24h or 30m, up to {LONGEST.days:,}d")
    return span


def above_nothing(text: str) -> timedelta:
    """Parse a time span longer than 0."""
    span = duration(text)
    if not span:
        raise ArgumentTypeError(f"`{text}` is not a time span longer than 0")
    return span
