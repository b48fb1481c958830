"""Data bindings: which of the caller's queries give which facts. YAML text -> `Bindings`, once for each text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from hashlib import sha256

from localsql.binding_keys import BindingKey, key_from_text
from localsql.binding_queries import problem_of
from localsql.dialects import DIALECTS, Dialect
from localsql.documents import document_from_text
from localsql.errors import BindingRejected
from localsql.families import Family, default_family, is_sql_type
from policy.rules.program import Signature

MOST = 2000  # facts

# The keys that only `localsql.sync` reads come last: one file may serve both.
KNOWN = ("facts", "sql_types", "domains", "dialect", "version", "source", "dbs", "outbox")
OF_A_FACT = ("query", "sql_types", "not_null", "db", "collection", "fields", "find", "aggregate", "file", "header")
_NO_TABLES = ("collection", "file")  # facts out of these can be synchronized, but not bound
_OF_A_DOMAIN = ("query",)


@dataclass(frozen=True, slots=True)
class Binding:
    """Facts of one signature out of the caller's tables.

    `families` has an entry for each argument: None for those that are constants.
    """

    key: BindingKey
    query: str
    families: tuple[Family | None, ...]
    is_not_null: bool = False

    @property
    def signature(self) -> Signature:
        return self.key.signature

    def family_at(self, index: int) -> Family:
        """Return the family of an argument that the query selects."""
        family = self.families[index]
        assert family is not None, "a constant is no column"
        return family


@dataclass(frozen=True)
class Bindings:
    """Equal if plans over them are equal, whatever their queries say, and whatever database they are for."""

    dialect: Dialect = field(compare=False)
    facts: tuple[Binding, ...] = field(default=(), compare=False)
    sql_types: Mapping[str, str] = field(default_factory=dict, compare=False)
    domains: Mapping[str, str] = field(default_factory=dict, compare=False)  # by type, the query of all its ids
    digest: str = ""  # of the keys of facts and the types with domains: plans depend on nothing else

    @cached_property
    def by_signature(self) -> Mapping[Signature, tuple[int, ...]]:
        found: dict[Signature, tuple[int, ...]] = {}
        for index, binding in enumerate(self.facts):
            found[binding.signature] = (*found.get(binding.signature, ()), index)
        return found

    def family(self, type_name: str) -> Family:
        """Return the family of the caller's columns that hold ids of the type."""
        sql_type = self.sql_types.get(type_name)
        return default_family(type_name) if sql_type is None else self.dialect.family_for(type_name, sql_type)

    def carried_family(self, type_name: str) -> Family:
        """Return the family of the type's ids in tables that a statement makes itself: text if its columns differ."""
        found = self._families.get(type_name, frozenset()) | {self.family(type_name)}
        return next(iter(found)) if len(found) == 1 else Family.TEXT

    @cached_property
    def _families(self) -> Mapping[str, frozenset[Family]]:
        found: dict[str, frozenset[Family]] = {}
        for binding in self.facts:
            for name, family in zip(binding.signature.types, binding.families):
                if family is not None:
                    found[name] = found.get(name, frozenset()) | {family}
        return found

    @property
    def types(self) -> set[str]:
        named = {name for binding in self.facts for name in binding.signature.types}
        return named | set(self.sql_types) | set(self.domains)


@lru_cache(maxsize=64)
def bindings_from_text(text: str | None) -> Bindings:
    """Return the bindings in the text; without any facts if the text has no document."""
    document = document_from_text(text or "")
    if document is None:
        return Bindings(DIALECTS["postgres"])
    if not isinstance(document, dict):
        raise BindingRejected("", "must be a map with the key `facts`")
    check_keys("", document, KNOWN)
    if "facts" not in document:
        raise BindingRejected("facts", "is missing")
    dialect = _dialect(document.get("dialect"))
    sql_types = sql_types_of("sql_types", document.get("sql_types"), dialect)
    made = Bindings(dialect, (), sql_types, _domains(document.get("domains"), dialect))
    facts = tuple(
        _binding(made, text, entry) for text, entry in entries_of("facts", document["facts"]) if _is_of_tables(entry)
    )
    _check_distinct(facts)
    planned = repr(([each.key for each in facts], sorted(made.domains)))
    return replace(made, facts=facts, digest=sha256(planned.encode()).hexdigest())


# ---- maps -------------------------------------------------------------------------------------------------


def check_keys(place: str, found: Mapping[object, object], known: tuple[str, ...]) -> None:
    for key, value in found.items():
        if key in known:
            continue
        near = get_close_matches(str(key), known, 1)
        hint = f" (did you mean `{near[0]}`?)" if near else ""
        if value is None and "query" in found:
            hint = " (a query with a comma needs quotes between braces)"
        raise BindingRejected(place or str(key), f"unknown key `{key}`{hint}")


def entries_of(place: str, raw: object) -> list[tuple[str, object]]:
    if raw is None:
        return []
    if not isinstance(raw, dict):
        raise BindingRejected(place, "must be a map")
    if len(raw) > MOST:
        raise BindingRejected(place, f"must have at most {MOST} entries")
    for key in raw:
        if not isinstance(key, str):
            raise BindingRejected(place, f"the key `{key}` must be text")
    return list(raw.items())


# ---- parts ------------------------------------------------------------------------------------------------


def _dialect(raw: object) -> Dialect:
    if raw is None:
        return DIALECTS["postgres"]
    if not isinstance(raw, str) or raw.lower() not in DIALECTS:
        raise BindingRejected("dialect", "must be one of `postgres`, `mysql`, `mariadb` and `sqlite`")
    return DIALECTS[raw.lower()]


def sql_types_of(place: str, raw: object, dialect: Dialect) -> dict[str, str]:
    found = {name: _sql_type(place, name, sql_type) for name, sql_type in entries_of(place, raw)}
    for name, sql_type in found.items():
        _family(place, dialect, name, sql_type)
    return found


def _sql_type(place: str, name: str, raw: object) -> str:
    if not isinstance(raw, str) or not is_sql_type(raw):
        raise BindingRejected(place, f"`{name}` must be the name of an SQL type, as `bigint` or `varchar(20)`")
    return raw


def _family(place: str, dialect: Dialect, type_name: str, sql_type: str) -> Family:
    try:
        return dialect.family_for(type_name, sql_type)
    except ValueError as reason:
        raise BindingRejected(place, f"`{type_name}`: {reason}") from None


def _domains(raw: object, dialect: Dialect) -> dict[str, str]:
    found = {}
    for name, entry in entries_of("domains", raw):
        place = f"domains.{name}"
        if not isinstance(entry, dict):
            raise BindingRejected(place, "must be a map with the key `query`")
        check_keys(place, entry, _OF_A_DOMAIN)
        found[name] = query_of(place, entry, dialect, 1)
    return found


def query_of(place: str, entry: Mapping[object, object], dialect: Dialect, columns: int) -> str:
    query = entry.get("query")
    if not isinstance(query, str) or not query.strip():
        raise BindingRejected(place, "needs a `query`, the text of a SELECT")
    problem = problem_of(query, dialect, columns)
    if problem:
        raise BindingRejected(place, problem)
    return query.strip()


def _is_of_tables(entry: object) -> bool:
    return not (isinstance(entry, dict) and any(each in entry for each in _NO_TABLES))


def _binding(made: Bindings, text: str, entry: object) -> Binding:
    key = key_from_text(text)
    if not isinstance(entry, dict):
        raise BindingRejected(text, "must be a map with the key `query`")
    check_keys(text, entry, OF_A_FACT)
    query = query_of(text, entry, made.dialect, max(len(key.columns), 1))
    not_null = entry.get("not_null", False)
    if not isinstance(not_null, bool):
        raise BindingRejected(text, "`not_null` must be true or false")
    return Binding(key, query, column_families(made, text, key, entry.get("sql_types")), not_null)


def column_families(made: Bindings, text: str, key: BindingKey, raw: object) -> tuple[Family | None, ...]:
    types, columns = key.signature.types, key.columns
    if raw is None:
        return tuple(made.family(name) if index in columns else None for index, name in enumerate(types))
    if not isinstance(raw, list) or len(raw) != len(columns):
        raise BindingRejected(text, f"`sql_types` must be a list of {len(columns)} SQL types, one for each column")
    said = {index: _sql_type(text, f"sql_types[{at}]", raw[at]) for at, index in enumerate(columns)}
    own = {index: _family(text, made.dialect, types[index], sql_type) for index, sql_type in said.items()}
    return tuple(own.get(index) for index in range(len(types)))


def _check_distinct(facts: tuple[Binding, ...]) -> None:
    seen: set[BindingKey] = set()
    for binding in facts:
        if binding.key in seen:
            raise BindingRejected(str(binding.key), "stands twice")
        seen.add(binding.key)
