"""Argument types for time spans on the command line."""

import re
from argparse import ArgumentTypeError
from datetime import timedelta

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
