"""Spaces: databases that hold whole environments, beside the home database that DATABASE_URL names.

A space is a schema of PostgreSQL with all tables of the service. A thread works in one space at a time: inside
`entered`, its default connection leads there. Ids are unique among the spaces of an installation, so what a process
caches by id is true in any space. `authz_project.spaces` says which environment is where.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import load_backend
from django.utils.module_loading import import_string

from policy.core.config import is_service
from policy.errors import Unavailable

HOME = ""  # the name of the home database
MOST = 4  # spaces that a thread stays connected to, besides the one that it works in

_configs: dict[str, Mapping[str, Any]] = {}  # Django's settings of the spaces' databases, by name


class _ThreadSpaces(threading.local):
    name = HOME

    def __init__(self) -> None:
        self.others: dict[str, BaseDatabaseWrapper] = {}  # connections to other spaces; the latest one is the last


here = _ThreadSpaces()  # `here.name` is the name of the space that the thread works in


def configure(name: str, config: Mapping[str, Any]) -> None:
    """Set how to connect to a space."""
    _configs[name] = config


def current() -> str:
    """Return the name of the space that this thread works in."""
    return here.name


def enter(name: str) -> None:
    """Work in the space from now on: the default connection is one to its database."""
    before, usual = here.name, connections[DEFAULT_DB_ALIAS]
    if name != before:
        mine = here.others.pop(name, None) or _connection_to(name)
        here.name, connections[DEFAULT_DB_ALIAS] = name, mine
        _keep(before, usual)


@contextmanager
def entered(name: str) -> Iterator[None]:
    """Work in the space within the block."""
    before = here.name
    if name == before:
        yield
        return
    enter(name)
    try:
        yield
    finally:
        enter(before)


def _connection_to(name: str) -> BaseDatabaseWrapper:
    config = _configs.get(name)
    if config is None:
        raise Unavailable(f"space `{name}` is on a server that DATABASE_URLS does not name")
    return load_backend(config["ENGINE"]).DatabaseWrapper(dict(config), DEFAULT_DB_ALIAS)


def _keep(name: str, mine: BaseDatabaseWrapper) -> None:
    """Keep the connection for the next time, and close the one that has not been used for longest if there are many."""
    others = here.others
    others[name] = mine
    if len(others) > MOST:
        oldest = next((each for each in others if each != HOME and not others[each].in_atomic_block), None)
        if oldest is not None:
            others.pop(oldest).close()


def close_others() -> None:
    """Close this thread's connections to spaces that it is not working in."""
    for name in [each for each in here.others if each != HOME]:
        here.others.pop(name).close()


# ---- all spaces of the service: its app has the directory, and is imported when needed ------------------------------


def space_of(slug: str) -> str:
    """Return the space of the environment; home if there is none with this name."""
    return import_string("authz_project.spaces.find")(slug) if is_service() else HOME


def everywhere() -> Iterator[str]:
    """Enter the home database and each space in turn; yield their names."""
    yield from import_string("authz_project.spaces.everywhere")() if is_service() else (HOME,)
