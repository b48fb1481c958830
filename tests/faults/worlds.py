"""A small world to load, and servers over it."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from tests import postgresql
from tests.faults.load import request_of
from tests.service import Client, Service, start_service

KINDS = ("sqlite", "postgres")
USERS, DOCS = 200, 1_000
POLICY = """
actor User {}
resource Folder { roles = ["reader"]; relations = { parent: Folder }; "reader" if "reader" on "parent"; }
resource Doc { roles = ["reader"]; permissions = ["read"]; relations = { folder: Folder };
  "reader" if "reader" on "folder"; "read" if "reader"; }
larger(x: Doc, y: Doc) if size(x, n) and size(y, m) and n > m;
resource Number {}
changed(x: Number) if change(x);
whole(x: Number, y: String) if part(x, y);
"""
FOLDERS = 50


@dataclass
class World:
    """Where servers of one database are started. What they were given in facts is known by number."""

    folder: Path
    url: str
    variables: dict[str, str]
    database: postgresql.Server | None = None
    key: str = ""  # which the first server shows

    def started(self, *options: str, port: int = 0, python: str = sys.executable, **variables: str) -> Service:
        given = self.variables | variables
        service = start_service(self.folder, self.url, *options, port=port, python=python, **given)
        if not self.key:
            self.key = re.search(r"e_default_\w+", service.log.read_text())[0]
        return service

    def filled(self, service: Service) -> Client:
        client = service.client(self.key)
        fill(client)
        return client


@contextmanager
def world(kind: str) -> Iterator[World]:
    """A new database of the kind, as durable as in production."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url, database = f"sqlite:///{folder / 'facts.sqlite3'}", None
        if kind == "postgres":
            database = postgresql.start(durable=True)
            if database is None:
                raise SystemExit("no PostgreSQL can be started here")
            stack.callback(database.stop)
            url = database.create("faults")
        yield World(folder, url, {"SECRET_KEY": "4 faults alone: 0123456789 abcdefgh", "LOG_LEVEL": "ERROR"}, database)


def port_of(service: Service) -> int:
    return int(service.origin.rpartition(":")[2])


def fill(client: Client) -> None:
    """Docs in folders in folders; user n reads what is in folder n."""
    client.post("/policy", {"src": POLICY}).raise_for_status()
    facts = [fact("has_relation", ("Doc", f"d{n}"), "folder", ("Folder", f"f{n % FOLDERS}")) for n in range(DOCS)]
    facts += [fact("has_relation", ("Folder", f"f{n}"), "parent", ("Folder", f"f{n // 2}")) for n in range(1, FOLDERS)]
    facts += [fact("has_role", ("User", f"u{n}"), "reader", ("Folder", f"f{n % FOLDERS}")) for n in range(USERS)]
    facts += [fact("size", ("Doc", f"d{n}"), ("Integer", "7")) for n in range(DOCS)]
    client.post("/batch", [{"inserts": facts}]).raise_for_status()


def fact(predicate: str, *args: tuple[str, str] | str) -> dict:
    whole = [("String", each) if isinstance(each, str) else each for each in args]
    return {"predicate": predicate, "args": [{"type": kind, "id": text} for kind, text in whole]}


def question(number: int) -> tuple[dict, bool]:
    """One of many, each with what is right to answer."""
    user, doc = number % USERS, number * 7 % DOCS
    body = {
        "actor_type": "User", "actor_id": f"u{user}", "action": "read", "resource_type": "Doc",
        "resource_id": f"d{doc}", "context_facts": [],
    }  # fmt: skip
    return body, _is_below(doc % FOLDERS, user % FOLDERS)


def _is_below(folder: int, other: int) -> bool:
    while folder > other:
        folder //= 2
    return folder == other


class Questions:
    """Requests by number, and whether what is answered is right."""

    def __init__(self, key: str):
        made = [question(n) for n in range(USERS * 5)]
        self._requests = [request_of(key, "POST", "/authorize", orjson.dumps(body)) for body, _ in made]
        self._right = [b'{"allowed":true}' if is_right else b'{"allowed":false}' for _, is_right in made]

    def __call__(self, number: int) -> bytes:
        return self._requests[number % len(self._requests)]

    def is_right(self, number: int, body: bytes) -> bool:
        return body == self._right[number % len(self._right)]


class Changes:
    """Each stores a fact that names its number, so that it shows which were made."""

    def __init__(self, key: str, name: str = "n"):
        self.key, self.name = key, name

    def __call__(self, number: int) -> bytes:
        made = fact("change", ("Number", f"{self.name}{number}"))
        return request_of(self.key, "POST", "/facts", orjson.dumps(made))

    def made(self, client: Client) -> set[int]:
        """The numbers of those that are stored. They may be more than one answer may hold, so the feed is asked."""
        names: list[str] = []
        asked, more = {"after": "0", "limit": "10000", "predicate": "change"}, True
        while more:
            page = client.get("/changes", params=asked).json()
            names += [fact["args"][0]["id"] for each in page["changes"] for fact in each["inserted"]]
            asked, more = asked | {"after": page["next"]}, page["more"]
        return {int(name[len(self.name) :]) for name in names if name.startswith(self.name)}


LONG_QUESTION = {"predicate": ["larger", ["x", "y"]], "constraints": {"x": {"type": "Doc"}, "y": {"type": "Doc"}}}
