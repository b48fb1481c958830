"""Packages that only some installations have: imported when a database of their kind is opened."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from localsql.sync.config import Database
from localsql.sync.errors import DriverMissing


def driver(database: Database, module: str, package: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise DriverMissing(database.name, package, extra) from None
