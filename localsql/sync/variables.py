"""Secrets that stand in the environment and not in a file: `${VARIABLE}`, or `$VARIABLE` as the whole value."""

from __future__ import annotations

import re
from collections.abc import Mapping

from localsql.sync.errors import ConfigRejected

_NAMED = re.compile(r"\$\{([^}]*)\}")
_ALONE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def filled_in(place: str, text: str, environment: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the text with its variables filled in, and their values, which are secret."""
    alone = _ALONE.fullmatch(text.strip())
    if alone:
        text = f"${{{alone[1]}}}"
    values = [_value(place, found[1], environment) for found in _NAMED.finditer(text)]
    left = iter(values)
    return _NAMED.sub(lambda _: next(left), text), tuple(each for each in values if each)


def _value(place: str, name: str, environment: Mapping[str, str]) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigRejected(place, f"`${{{name}}}` names no variable of the environment; write it as `${{NAME}}`")
    if name not in environment:
        raise ConfigRejected(place, f"the variable {name} is not set in the environment; set it, or write its value")
    return environment[name]
