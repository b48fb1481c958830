"""Data bindings: which of the caller's queries provide which facts. YAML text -> `Bindings`."""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib import import_module
from itertools import islice

from checks.asking import limits
from facts.accept import MOST_NAMED, Unaccepted, UnknownName, printable
from localsql.binding_keys import BindingKey, key_from_text, unused
from localsql.dialects import DIALECT_NAMES, DIALECTS, Dialect, Family, is_sql_type
from localsql.errors import BindingRejected, ColumnRejected
from policy.active import program_of_version
from policy.rules.program import Program, Signature
from policy.values import BOOLEAN
from policy.yaml_text import YamlRejected, document_from_yaml

QUERIES = "localsql.binding_queries"  # imported with the first query, because its parser takes much memory

# ---- column names -------------------------------------------------------------------------------------------------
# Validates the caller's column, which is embedded unchanged: it must be a name and nothing else.

MOST_PARTS = 4
LONGEST_COLUMN = 63  # bytes of a name, in the strictest database

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*", re.ASCII)
_QUOTED = {
    '"': re.compile(r'"((?:[^"\0]|"")+)"'),
    "`": re.compile(r"`((?:[^`\0]|``)+)`"),
}
# Words that are an expression by themselves, or end the expression, where a column is expected.
_COLUMN_WORDS = (
    "all analyse analyze and any array as asc asymmetric authorization between binary both by case cast check "
    "collate column constraint create cross current_catalog current_date current_role current_schema "
    "current_time current_timestamp current_user default deferrable delete desc distinct div do else end "
    "except exists false fetch for foreign from full grant group having if ilike in index initially inner "
    "insert intersect interval into is isnull join key lateral leading left like limit localtime "
    "localtimestamp mod natural not notnull null offset on only or order outer overlaps placing primary "
    "references regexp returning right rlike row rowid rownum select session_user similar some sounds symmetric "
    "system_user table tablesample then to trailing true union unique update user using utc_date utc_time "
    "utc_timestamp values variadic when where window with xor"
)
_RESERVED = frozenset(_COLUMN_WORDS.split())


def check_column(text: object, dialect: Dialect, path: str = "column") -> str:
    """Return the column unchanged. Raise ColumnRejected unless it consists of names separated by dots."""
    if not isinstance(text, str) or not text:
        raise ColumnRejected(path, "must be a string: a column name")
    parts = _parts(text, dialect)
    if parts is None or len(parts) > MOST_PARTS:
        raise ColumnRejected(text, 'must be a column name, such as `id`, `repos.id` or `"Repos".id`')
    if any(len(part.encode("utf-8", "replace")) > LONGEST_COLUMN for part in parts):
        raise ColumnRejected(text, f"must have names of at most {LONGEST_COLUMN} bytes")
    if len(parts) == 1 and text.lower() in _RESERVED:
        raise ColumnRejected(text, f"is a reserved word; quote it, or write `table.{text}`")
    return text


def output_name(text: object, path: str) -> str:
    if not isinstance(text, str) or not text:
        raise ColumnRejected(path, "must be a string: a column name")
    if any(ord(char) < 32 or 0xD800 <= ord(char) < 0xE000 or char == "\x7f" for char in text):
        raise ColumnRejected(path, "must not have control characters")
    if len(text.encode()) > LONGEST_COLUMN:
        raise ColumnRejected(text, f"must be at most {LONGEST_COLUMN} bytes")
    return text


def _parts(text: str, dialect: Dialect) -> list[str] | None:
    """Return the names between the dots, unquoted; None if the text is something else."""
    found: list[str] = []
    at = 0
    while True:
        first = text[at : at + 1]
        name = (_QUOTED[first] if first and first in dialect.quotes else _PLAIN).match(text, at)
        if name is None:
            return None
        found.append(name[1].replace(text[at] * 2, text[at]) if name.re.groups else name[0])
        at = name.end()
        if at == len(text):
            return found
        if text[at] != "." or at + 1 == len(text):
            return None
        at += 1


# ---- bindings -----------------------------------------------------------------------------------------------------

MOST = 2000  # facts

# The keys that only `localsql.sync` reads come last: both can use the same file.
KNOWN = ("facts", "sql_types", "domains", "dialect", "version", "source", "dbs", "outbox")
OF_A_FACT = ("query", "sql_types", "not_null", "db", "collection", "fields", "find", "aggregate", "file", "header")
_NO_TABLES = {"collection", "file"}  # facts from these can be synced, but not bound
_OF_A_DOMAIN = ("query",)


@dataclass(frozen=True, slots=True)
class Binding:
    """Facts of one signature from the caller's tables.

    `families` has an entry for each argument: None for constants.
    """

    key: BindingKey
    query: str
    families: tuple[Family | None, ...]
    is_not_null: bool = False

    @property
    def signature(self) -> Signature:
        return self.key.signature

    def family_at(self, index: int) -> Family:
        """Return the family of an argument that is a column of the query."""
        family = self.families[index]
        assert family is not None, "a constant is no column"
        return family


@dataclass(frozen=True)
class Bindings:
    """Equal if plans over them are equal, regardless of the texts of queries and the dialect."""

    dialect: Dialect = field(compare=False)
    facts: tuple[Binding, ...] = field(default=(), compare=False)
    sql_types: Mapping[str, str] = field(default_factory=dict, compare=False)
    domains: Mapping[str, str] = field(default_factory=dict, compare=False)  # by type: the query for all of its ids
    digest: str = ""  # of the facts' keys and of the types with domains: plans depend on nothing else

    @cached_property
    def by_signature(self) -> Mapping[Signature, tuple[int, ...]]:
        found: dict[Signature, tuple[int, ...]] = {}
        for index, binding in enumerate(self.facts):
            found[binding.signature] = (*found.get(binding.signature, ()), index)
        return found

    def family(self, type_name: str) -> Family:
        """Return the family of the caller's columns with ids of the type."""
        if type_name in self.sql_types:
            return self.dialect.family_for(type_name, self.sql_types[type_name])
        return Family.BOOLEAN if type_name == BOOLEAN else Family.UNKNOWN

    def carried_family(self, type_name: str) -> Family:
        """Return the family of the type's ids in tables defined by statements: text if its columns differ."""
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
    try:
        document = document_from_yaml(text or "", on_node=limits.check)
    except YamlRejected as error:
        raise BindingRejected(error.key, error.reason) from None
    if document is None:
        return Bindings(DIALECTS["postgres"])
    if not isinstance(document, dict):
        raise BindingRejected("", "must be a mapping with the key `facts`")
    check_keys("", document, KNOWN)
    if "facts" not in document:
        raise BindingRejected("facts", "is missing")
    dialect = dialect_of(document.get("dialect"))
    sql_types = sql_types_of("sql_types", document.get("sql_types"), dialect)
    made = Bindings(dialect, (), sql_types, _domains(document.get("domains"), dialect))
    entries = entries_of("facts", document["facts"])
    of_tables = [each for each in entries if not (isinstance(each[1], dict) and _NO_TABLES & each[1].keys())]
    facts = tuple(binding_of(made, text, entry) for text, entry in of_tables)
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
        raise BindingRejected(place, f"unknown key `{key}`{hint}")


def entries_of(place: str, raw: object) -> list[tuple[str, object]]:
    if raw is None:
        return []
    if not isinstance(raw, dict):
        raise BindingRejected(place, "must be a mapping")
    if len(raw) > MOST:
        raise BindingRejected(place, f"must have at most {MOST} entries")
    for key in raw:
        if not isinstance(key, str):
            raise BindingRejected(place, f"the key `{key}` must be a string")
    return list(raw.items())


# ---- parts ------------------------------------------------------------------------------------------------


def dialect_of(raw: object) -> Dialect:
    if raw is None:
        return DIALECTS["postgres"]
    if not isinstance(raw, str) or raw.lower() not in DIALECTS:
        *others, last = (f"`{name}`" for name in DIALECT_NAMES)
        raise BindingRejected("dialect", f"must be {', '.join(others)} or {last}")
    return DIALECTS[raw.lower()]


def sql_types_of(place: str, raw: object, dialect: Dialect) -> dict[str, str]:
    found = {name: _sql_type(place, name, sql_type) for name, sql_type in entries_of(place, raw)}
    for name, sql_type in found.items():
        _family(place, dialect, name, sql_type)
    return found


def _sql_type(place: str, name: str, raw: object) -> str:
    if not isinstance(raw, str) or not is_sql_type(raw):
        raise BindingRejected(place, f"`{name}` must be an SQL type, such as `bigint` or `varchar(20)`")
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
            raise BindingRejected(place, "must be a mapping with the key `query`")
        check_keys(place, entry, _OF_A_DOMAIN)
        found[name] = _query_of(place, entry, dialect, 1)
    return found


def _query_of(place: str, entry: Mapping[object, object], dialect: Dialect, columns: int) -> str:
    query = entry.get("query")
    if not isinstance(query, str) or not query.strip():
        raise BindingRejected(place, "needs a `query`, the text of a SELECT")
    problem: str | None = import_module(QUERIES).problem_of(query, dialect, columns)
    if problem:
        raise BindingRejected(place, problem)
    return query.strip()


def binding_of(made: Bindings, text: str, entry: object) -> Binding:
    """Return the binding of one entry; `made` has the types and the dialect of the document."""
    key = key_from_text(text)
    if not isinstance(entry, dict):
        raise BindingRejected(text, "must be a mapping with the key `query`")
    check_keys(text, entry, OF_A_FACT)
    query = _query_of(text, entry, made.dialect, max(len(key.columns), 1))
    not_null = entry.get("not_null", False)
    if not isinstance(not_null, bool):
        raise BindingRejected(text, "`not_null` must be true or false")
    return Binding(key, query, _families(made, text, key, entry.get("sql_types")), not_null)


def _families(made: Bindings, text: str, key: BindingKey, raw: object) -> tuple[Family | None, ...]:
    types, columns = key.signature.types, key.columns
    if raw is None:
        return tuple(made.family(name) if index in columns else None for index, name in enumerate(types))
    if not isinstance(raw, list) or len(raw) != len(columns):
        raise BindingRejected(text, f"`sql_types` must be a list of {len(columns)} SQL types, one per column")
    said = {index: _sql_type(text, f"sql_types[{at}]", raw[at]) for at, index in enumerate(columns)}
    own = {index: _family(text, made.dialect, types[index], sql_type) for index, sql_type in said.items()}
    return tuple(own.get(index) for index in range(len(types)))


def _check_distinct(facts: tuple[Binding, ...]) -> None:
    for key, number in Counter(binding.key for binding in facts).items():
        if number > 1:
            raise BindingRejected(str(key), "is a duplicate")


# ---- unused bindings ----------------------------------------------------------------------------------------------
# Entries of data bindings that the policy doesn't use: they have no effect, and are logged.

log = logging.getLogger("authz.bindings")


def unused_entries(program: Program, bindings: Bindings) -> Iterator[str]:
    """Yield a message for each fact that the policy doesn't use, and each domain of an unknown type."""
    for binding in bindings.facts:
        match unused(program, binding.key):
            case Unaccepted(advice=advice):
                yield f"`{binding.key}` is not used in policy{advice}"
            case UnknownName() as unknown:
                yield f"`{binding.key}` is not used in policy: {unknown}"
    for name in bindings.domains:
        if not program.knows(name):
            near = get_close_matches(name, sorted(program.types), 1)
            hint = f" (did you mean `{near[0]}`?)" if near else ""
            yield f"`domains.{name}` is not used in policy: the policy has no such type{hint}"


@lru_cache(maxsize=1024)
def log_once(version: int, bindings: Bindings) -> None:
    """Log unused entries; as a warning if a name is probably misspelled, because facts are missing then."""
    for entry in islice(unused_entries(program_of_version(version), bindings), MOST_NAMED):
        log.log(logging.WARNING if "did you mean" in entry else logging.INFO, "data bindings: %s", printable(entry))
