"""A connection of one's own to a served database: what statements by hand run on, set as the product sets its own."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import orjson
import psycopg

Given = dict[str, object]  # parameters by name
Rows = Callable[[Given], list[tuple]]


class Database:
    """`vendor` is Django's word for it."""

    def __init__(self, vendor: str, raw: sqlite3.Connection | psycopg.Connection):
        self.vendor, self.raw = vendor, raw
        found = raw.execute("SELECT predicate, types, id FROM authz_signature").fetchall()
        self.numbers = {(predicate, tuple(orjson.loads(types))): number for predicate, types, number in found}

    def number(self, key: str) -> int:
        """The number of has_role(User, String, Repo), by hand has_role_User_Repo; -1 for none."""
        predicate, *types = re.split("_(?=[A-Z])", key)
        if predicate in ("has_role", "has_permission", "has_relation", "allow"):
            types.insert(1, "String")
        return self.numbers.get((predicate, tuple(types)), -1)

    def prepared(self, text: str, **numbers: int) -> Rows:
        """What runs a statement by hand: `{key}` in it is a signature's number, `:name` a parameter."""
        keys = {key: self.number(key) for key in re.findall(r"\{(\w+)\}", text) if key not in numbers}
        text = text.format(**keys, **numbers)
        names = list(dict.fromkeys(re.findall(r":(\w+)", text)))
        mark = "$" if self.vendor == "postgresql" else "?"
        text = re.sub(r":(\w+)", lambda found: f"{mark}{names.index(found.group(1)) + 1}", text)
        run = self._on_postgresql if self.vendor == "postgresql" else self._on_sqlite
        return lambda given: run(text, [given[name] for name in names])

    def _on_postgresql(self, text: str, values: list[object]) -> list[tuple]:
        with psycopg.RawCursor(self.raw) as cursor:
            cursor.execute(text, values)
            return cursor.fetchall() if cursor.description else []

    def _on_sqlite(self, text: str, values: list[object]) -> list[tuple]:
        return self.raw.execute(text, values).fetchall()


@contextmanager
def opened(url: str) -> Iterator[Database]:
    from authz_project.settings import POSTGRESQL_OPTIONS, SQLITE_OPTIONS

    if url.startswith("postgres"):
        options = POSTGRESQL_OPTIONS["options"]
        with psycopg.connect(url, autocommit=True, prepare_threshold=2, options=options) as raw:
            yield Database("postgresql", raw)
        return
    path = Path(url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(path, isolation_level=None, cached_statements=1000)) as raw:
        raw.executescript(SQLITE_OPTIONS["init_command"])
        yield Database("sqlite", raw)
