"""Addresses of the internet's fourth version as numbers; those of the sixth do not fit into 64 bits."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network


def address_number(text: str) -> int:
    """Return the number of an address; raise ValueError if it is none of the fourth version."""
    return int(IPv4Address(text))


def network_bounds(text: str) -> tuple[int, int]:
    """Return the first and the last address of a network such as `10.0.0.0/8`; raise ValueError as above."""
    if not re.fullmatch(r"[0-9.]+/[0-9]{1,2}", text):
        raise ValueError(f"{text!r} is not a network such as 10.0.0.0/8")
    network = IPv4Network(text, strict=False)
    return int(network.network_address), int(network.broadcast_address)
