"""Argument types for numbers on the command line."""

from argparse import ArgumentTypeError

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
