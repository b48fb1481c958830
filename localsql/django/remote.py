"""Check access with a server (`AUTHZ["URL"]`), by the calls of `asking`.

The server has the policy and the stored facts; rows of models stay where they are. The server returns local SQL, which
is run on the connection and in the transaction of the caller. So an answer counts what the transaction has written,
however many rows it depends on; rows sent as context facts would have to be found first, and be few.

Changes of stored facts go through an outbox table (`WrittenChange`), in the transaction of the caller.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from secrets import token_hex
from threading import local
from time import time
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson
import yaml
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, Error, connection, transaction
from django.db.models import Model, QuerySet

from checks.asking import run
from checks.engine.sql.bound import BoundColumn, OuterColumn
from checks.engine.sql.text import IdKind
from checks.explain.explain import explanation_from_json
from facts.wire import Fact, FactPattern, fact_from_json, fact_to_json, pattern_to_json
from localsql.binding_keys import key_from_text
from localsql.bindings import bindings_from_text
from localsql.django.bindings import registry
from localsql.django.interface import AccessCondition, Explained
from localsql.django.project import findings_of_bindings
from localsql.django.tables import NOBODY, compiled, table_of, value_of
from localsql.errors import BindingRejected
from localsql.management.commands.ask_local import BoundRows
from localsql.sync.config import Database, DatabaseKind
from localsql.sync.outbox import KEYS
from localsql.sync.sources import SqlConnection
from policy.core.config import settings
from policy.core.memory import Recent
from policy.errors import AuthzError, Unavailable
from policy.rules import compile_text
from policy.values import PRIMITIVES, STRING, Value

# ---- HTTP -----------------------------------------------------------------------------------------------------------
# A thread keeps its connection. All requests may be sent again: those that change facts have a key, by which the server
# recognizes what it has applied.


class ServerUnreachable(Unavailable):
    """The server did not answer; nothing is known, so nothing is allowed."""

    def __init__(self, reason: str):
        host = urlsplit(settings.URL).hostname
        message = f"the authorization server at {host} did not answer ({reason}); check AUTHZ['URL'], and try again"
        super().__init__(message)


class ServerRefused(AuthzError):
    """The server rejected a request; `status` is that of the response."""

    def __init__(self, status: int, message: str):
        self.status = status
        super().__init__(message)


_thread = local()
_revision = 0  # the newest that a response named: later ones are from no replica that is behind it


def call(path: str, body: object = None, key: str = "") -> Any:
    """Return the response's JSON: of a GET, or with a body of a POST."""
    global _revision
    payload = None if body is None else orjson.dumps(body)
    method, prefix = "GET" if payload is None else "POST", urlsplit(settings.URL).path.rstrip("/")
    http, is_kept = _http_connection()
    try:
        http.request(method, f"{prefix}/api{path}", payload, _headers(key))
        response = http.getresponse()
        text = response.read()
    except (OSError, HTTPException) as error:
        _thread.kept = None
        http.close()
        if is_kept and not isinstance(error, TimeoutError):  # the server may have closed a connection that was kept
            return call(path, body, key)
        raise ServerUnreachable(f"{type(error).__name__}: {error}") from None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        found = None
    status, message = response.status, found.get("message", "") if isinstance(found, dict) else ""
    if status == 429 or status not in range(200, 500) or found is None:
        raise ServerUnreachable(f"status {status} {message}".rstrip())
    if status >= 300:
        raise ServerRefused(status, f"the authorization server rejected the request ({status}): {message}")
    offset = response.headers.get("OsoOffset", "")
    _revision = max(_revision, int(offset) if offset.isdigit() else 0)
    return found


def _headers(key: str) -> dict[str, str]:
    """Return the headers of a request. They have the API key, so no traceback of ours may have them as a variable."""
    return {
        "Authorization": f"Bearer {settings.KEY}",
        "Content-Type": "application/json",
        **({"OsoOffset": str(_revision)} if _revision else {}),
        **({KEYS: key} if key else {}),
    }


def _http_connection() -> tuple[HTTPConnection, bool]:
    """Return the connection of this thread, and whether it was used before."""
    problem = next(_problems(), None)
    if problem:
        raise ImproperlyConfigured(problem)
    owner = os.getpid(), settings.URL  # a forked process must not use its parent's
    kept = getattr(_thread, "kept", None)
    if kept is not None and kept[0] == owner and kept[1].sock is not None:
        return kept[1], True
    url = urlsplit(settings.URL)
    kind = HTTPSConnection if url.scheme == "https" else HTTPConnection
    made = kind(url.hostname or "", url.port, timeout=settings.STATEMENT_TIMEOUT or None)
    _thread.kept = owner, made
    return made, False


def _problems() -> Iterator[str]:
    url, key = urlsplit(settings.URL), settings.KEY
    if url.scheme not in ("http", "https") or not url.hostname or url.username or url.query:
        yield "AUTHZ['URL'] must be the address of a server, such as `https://authz.example.org`"
    if not (isinstance(key, str) and key and key.isascii() and key.isprintable() and " " not in key):
        yield "AUTHZ['KEY'] must be an API key of the server; create one with `authz api_keys create` there"


# ---- data bindings: which rows are facts -----------------------------------------------------------------------------


def document() -> dict[str, Any]:
    """Return the bindings of the models as data bindings."""
    found: dict[str, dict[str, Any]] = {}
    for binding in registry.bindings:
        table = table_of(binding)
        columns = [each for each in table.args if isinstance(each, BoundColumn)]
        key = str(key_from_text(binding.text))
        types = [_sql_type(each.kind) for each in columns]
        entry = {"query": _query(table.sql, columns), "sql_types": types}
        other = found.setdefault(key, entry)
        if other is not entry:  # data bindings have one query for a pattern
            if other["sql_types"] != types:
                raise BindingRejected(binding.text, "is bound twice, with columns of different types; use one type")
            other["query"] += f" UNION ALL {entry['query']}"
    dialect = "postgres" if connection.vendor == "postgresql" else "sqlite"
    return {"dialect": dialect, "facts": found, "sql_types": _types_of(found)}


def _types_of(facts: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Return the SQL types of those types whose columns have the same: recursion can use the columns' indexes."""
    found: dict[str, set[str]] = {}
    for text, entry in facts.items():
        key = key_from_text(text)
        for index, sql_type in zip(key.columns, entry["sql_types"]):
            found.setdefault(key.signature.types[index], set()).add(sql_type)
    return {name: types.pop() for name, types in found.items() if len(types) == 1 and name not in PRIMITIVES}


def _query(sql: str, columns: Sequence[BoundColumn]) -> str:
    """Return a query whose columns can be compared exactly as they are."""
    shown = ", ".join(f"{_shown(each.name, each.kind)} AS c{at}" for at, each in enumerate(columns))
    tests = " AND ".join(run.dialect().is_id(each.name, each.kind) for each in columns)
    return f"SELECT {shown or '1 AS c0'} FROM ({sql}) q{tests and f' WHERE {tests}'}"


def _shown(column: str, kind: IdKind) -> str:
    is_plain = kind is not IdKind.COLLATED and (kind is not IdKind.UUID or connection.vendor == "postgresql")
    return run.dialect().itself(column, kind) if is_plain else f"({run.dialect().id_text(column, kind)})"


def _sql_type(kind: IdKind) -> str:
    for_uuid = "uuid" if connection.vendor == "postgresql" else "text"
    return {IdKind.INTEGER: "bigint", IdKind.BOOLEAN: "boolean", IdKind.UUID: for_uuid}.get(kind, "text")


@lru_cache(maxsize=256)
def _bindings(version: int, vendor: str, model: type[Model] | None = None, kind: IdKind | None = None) -> str:
    """Return data bindings; for conditions on a column of this kind, also the ids of the model."""
    found = document()
    if model is not None and kind is not None:
        known = registry.type_of(model)
        every: QuerySet[Any, Any] = QuerySet(model, using=DEFAULT_DB_ALIAS)  # a manager may leave out some
        sql, columns, _ = compiled(every.values_list(known.column), known.name)
        found["sql_types"][known.name] = _sql_type(kind)
        if _sql_type(columns[0].kind) == found["sql_types"][known.name]:
            found["domains"] = {known.name: {"query": _query(sql, columns)}}
    return yaml.safe_dump(found, sort_keys=False, width=1_000_000)


# ---- checks ---------------------------------------------------------------------------------------------------------

_NOBODY = f"nobody-{token_hex(16)}"  # an id that no fact and no row has


def _id(value: Value) -> str:
    return value.id if value.id != NOBODY else _NOBODY


def _asked(user: object, resource: object) -> dict[str, Any]:
    actor, what = value_of(user), value_of(resource)
    named = {"actor_type": actor.type, "actor_id": _id(actor), "resource_type": what.type, "resource_id": _id(what)}
    return {**named, "context_facts": _context()}


def _rows(path: str, query: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the rows of the local SQL for a question."""
    bindings = _bindings(registry.version, connection.vendor)
    return _execute(call(path, {"query": query, "data_bindings": bindings})["sql"])


def _execute(sql: str, values: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)  # type: ignore[arg-type]  # texts and numbers
        return cursor.fetchall() if cursor.description else []


def authorize(user: object, action: str, resource: object) -> bool:
    """Return whether the user may perform the action on the resource."""
    if not action:
        raise ValueError("the action must not be empty")
    ((holds,),) = _rows("/authorize_query", {**_asked(user, resource), "action": action})
    return bool(holds)


def actions(user: object, resource: object) -> set[str]:
    """Return all actions that the user may perform on the resource; `*` stands for every action, if any is allowed."""
    return {action for (action,) in _rows("/actions_query", _asked(user, resource))}


def condition_sql(wanted: AccessCondition, column: OuterColumn, is_page: bool) -> tuple[str, tuple[Any, ...]]:
    """Ask for local SQL each time, as its constants are stored facts of the moment."""
    names = ("actor", "action", "resource")
    constraints = {
        name: {"type": value.type, "ids": [_id(value)]} if value else {"type": wanted.type_name, "ids": None}
        for name, value in zip(names, (wanted.actor, Value(STRING, wanted.action), wanted.resource))
    }
    mark = f"authz_{token_hex(16)}"  # the server does not take expressions, such as names in a subquery
    name = "resource" if wanted.resource is None else "actor"
    body = {
        "query": {"predicate": ["allow", names], "constraints": constraints, "context_facts": _context()},
        "mode": {"mode": "filter", "query_var": name, "output_column_name": mark},
        "data_bindings": _bindings(registry.version, connection.vendor, wanted.model, column.kind),
    }
    sql = call("/evaluate_query_local", body)["sql"]
    return f"({sql.replace(mark, _shown(column.sql, column.kind)).replace('%', '%%')})", ()


def explain(user: object, action: str, resource: object) -> Explained:
    """Return why the user may perform the action on the resource, or why not, by the rows connected to both."""
    holds = authorize(user, action, resource)
    kind = DatabaseKind.POSTGRES if connection.vendor == "postgresql" else DatabaseKind.SQLITE
    bindings = bindings_from_text(_bindings(registry.version, connection.vendor))
    database = Database(DEFAULT_DB_ALIAS, kind, kind.value, "")
    ids = {(each.type, each.id) for each in map(value_of, (user, resource)) if each.id != NOBODY}
    collated = ' COLLATE "C"' if kind is DatabaseKind.POSTGRES else ""
    source = SqlConnection(database, connection, Error, connection.cursor, connection.close, collated)
    rows = BoundRows(bindings.facts, source).connected_to(ids)
    asked = _asked(user, resource)
    asked["context_facts"] += [fact_to_json(each) for each in rows]
    found = call("/explain", {**asked, "action": action})
    if found["allowed"] != holds:
        raise AuthzError(f"the decision ({holds}) cannot be explained by the {len(rows):,} rows connected to both")
    return Explained(explanation_from_json(found))


def publish_policy(text: str) -> Callable[[], object]:
    """Publish a policy on the server, as tests do; return what publishes the previous one again."""
    before = call("/policy")["policy"] or {"src": "", "filename": ""}
    call("/policy", {"src": text, "filename": ""})
    return partial(call, "/policy", before)


# ---- facts ----------------------------------------------------------------------------------------------------------
# A change is a row of the table that `authz sync_facts --outbox` reads. Its transaction's end sends it; what a crash or
# an unreachable server left there is sent before the next question, or by `authz_drain`.

TABLE = "authz_outbox"
_ID = {"sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT", "postgresql": "bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY"}
_AT_ONCE = 100


class WrittenChange:
    """A change that the current transaction wrote; Django forgets it if the transaction or savepoint is rolled back."""

    def __init__(self, facts: Sequence[Fact] = (), patterns: Sequence[FactPattern] = (), hides: bool = False):
        self.facts, self.patterns = facts, patterns
        self.hides = hides  # facts that the server has, which a question cannot leave out
        inserts, deletes = [fact_to_json(each) for each in facts], [pattern_to_json(each) for each in patterns]
        self.step: dict[str, Any] = {"inserts": inserts} if inserts else {"deletes": deletes}  # as POST /batch takes it
        self.text = orjson.dumps([{**self.step, "key": token_hex(16)}]).decode()
        self.is_sent = False

    def send(self) -> None:
        drain()
        self.is_sent = True


def insert_facts(facts: list[Fact]) -> None:
    if facts:
        change = WrittenChange(facts=facts)
        call("/batch?dry_run=true", [change.step])
        _write(change)


def delete_facts(patterns: list[FactPattern]) -> int:
    own, stored = _facts_of(_own()), {fact for pattern in patterns for fact in _stored(pattern)}
    if patterns:
        _write(WrittenChange(patterns=patterns, hides=bool(stored)))
    return len(stored.union(fact for fact in own if any(pattern.matches(fact) for pattern in patterns)))


def _write(change: WrittenChange) -> None:
    _execute(f"INSERT INTO {TABLE} (changes) VALUES (%s)", [change.text])
    transaction.on_commit(change.send, DEFAULT_DB_ALIAS, robust=True)


def _own() -> list[WrittenChange]:
    """Return what the current transaction wrote, in order. Before, send what earlier ones left in the outbox.

    Django drops the callbacks of atomic blocks that are rolled back, but not those after a savepoint made by hand,
    whose rows are gone. So a change counts if it is in both places.
    """
    if not connection.in_atomic_block:
        drain()
        return []
    changes = [getattr(each, "__self__", None) for _, each, *_ in connection.run_on_commit]
    written = {each.text: each for each in changes if isinstance(each, WrittenChange) and not each.is_sent}
    own = []
    for number, text in _waiting():
        if text in written:
            own.append(written[text])
        elif _sent.get(text) is None:
            _send(number, text)
            _sent.store(text, True)
    return own


_sent: Recent[str, bool] = Recent(10_000)  # rows that a transaction has sent, and cannot delete: they are others'


def _facts_of(changes: Iterable[WrittenChange]) -> list[Fact]:
    """Return the facts that the changes insert, and do not delete again."""
    found: dict[Fact, None] = {}
    for change in changes:
        found.update(dict.fromkeys(change.facts))
        for pattern in change.patterns:
            found = {fact: None for fact in found if not pattern.matches(fact)}
    return list(found)


def _context() -> list[dict[str, object]]:
    """Return the context facts of a question: those of the current transaction."""
    own, now = _own(), time() * 1_000_000
    if any(change.hides for change in own):
        raise AuthzError(
            "this transaction deletes stored facts, which the server still counts; check access before the deletion or "
            "after the commit"
        )
    facts = [fact for fact in _facts_of(own) if fact.expires_at is None or fact.expires_at > now]
    return [fact_to_json(fact, with_end=False) for fact in facts]


def _stored(pattern: FactPattern) -> list[Fact]:
    asked = {"predicate": pattern.predicate}
    for index, arg in enumerate(pattern.args):
        parts = {f"args.{index}.type": arg.type, f"args.{index}.id": arg.id}
        asked |= {name: part for name, part in parts.items() if part is not None}
    found = [fact_from_json(each, "") for each in call(f"/facts?{urlencode(asked)}")]
    return [fact for fact in found if pattern.matches(fact)]


# ---- the outbox -----------------------------------------------------------------------------------------------------


class OutboxBlocked(AuthzError):
    """The server rejected a row, which all later ones wait for."""

    def __init__(self, number: int, reason: ServerRefused):
        super().__init__(
            f"row {number} of {TABLE} cannot be applied: {reason}; correct or delete it, or run "
            "`manage.py authz_drain --skip-bad`"
        )


def drain(skip: Callable[[OutboxBlocked], None] | None = None) -> int:
    """Send the committed changes in their order, each applied once, and return how many. `skip` takes invalid ones."""
    sent = 0
    for number, text in _waiting():
        try:
            _send(number, text)
            sent += 1
        except OutboxBlocked as blocked:
            if skip is None:
                raise
            skip(blocked)
        _execute(f"DELETE FROM {TABLE} WHERE id = %s AND changes = %s", [number, text])
    return sent


def _waiting() -> Iterator[tuple[int, str]]:
    last = 0
    while True:
        rows = _execute(f"SELECT id, changes FROM {TABLE} WHERE id > %s ORDER BY id LIMIT {_AT_ONCE}", [last])
        yield from rows
        if len(rows) < _AT_ONCE:
            return
        last = rows[-1][0]


def _send(number: int, text: str) -> None:
    steps = orjson.loads(text)
    try:
        call("/batch", steps, key=steps[0].pop("key"))
    except ServerRefused as refused:
        if refused.status in (400, 413):
            raise OutboxBlocked(number, refused) from None
        raise


# ---- what Django runs for a project ----------------------------------------------------------------------------------


def migrated(verbosity: int) -> None:
    """Create the outbox."""
    _execute(f"CREATE TABLE IF NOT EXISTS {TABLE} (id {_ID[connection.vendor]}, changes text NOT NULL)")


def findings(databases: Iterable[str] | None) -> Iterator[checks.CheckMessage]:
    problems = list(_problems())
    yield from (checks.Error(each, id="authz.E108") for each in problems)
    url = urlsplit(settings.URL)
    if url.scheme == "http" and url.hostname not in ("localhost", "127.0.0.1", "::1"):
        hint = "Use https: others could read the key, and change the SQL that runs in your database."
        yield checks.Warning("AUTHZ['URL'] is not encrypted", hint=hint, id="authz.W111")
    for name in ("POLICY", "ADMIN"):
        if getattr(settings, name):
            hint = "The server has the policy and the pages; remove one of the two."
            yield checks.Error(f"AUTHZ has both URL and {name}", hint=hint, id="authz.E109")
    program = None
    if databases and DEFAULT_DB_ALIAS in databases and not problems:
        try:
            policy = call("/policy")["policy"]
            program = compile_text(policy["src"]) if policy else None
        except (AuthzError, Unavailable) as error:
            yield checks.Warning(error.message, hint="Until it answers, every check raises an error.", id="authz.W110")
    yield from findings_of_bindings(program)
