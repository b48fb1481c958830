"""Numbers on the command line."""

from argparse import ArgumentTypeError

MOST = 1000  # processes, or threads


def port_number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:6]) <= 65535:
        raise ArgumentTypeError(f"{text!r} is no port: 1 to 65535")
    return int(text)


def at_least_one(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:6]) <= MOST:
        raise ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST}")
    return int(text)
