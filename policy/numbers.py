"""Whole numbers of any length in texts that come from outside."""

from __future__ import annotations


def whole_number(text: str, most: int) -> int | None:
    """Return the number that a text of decimal digits says; None if it says none from 0 to `most`.

    Python refuses to read thousands of digits, so those that count are counted first.
    """
    digits = text.lstrip("0") or "0"
    if not (text.isascii() and text.isdecimal()) or len(digits) > len(str(most)):
        return None
    number = int(digits)
    return number if number <= most else None
