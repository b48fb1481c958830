"""Ids that some collation takes for equal, and policies whose SQL has correlated subqueries of every shape.

MariaDB keeps what a subquery returned by the columns that it mentions of the selects around it, under their own
collations. SQL that compares bytes inside of the subquery then gives `a` the answer of `A`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

import sqlglot
from sqlglot import exp

from localsql.bindings import bindings_from_text
from localsql.dialects import NATIVE
from policy.values import Value
from tests.properties.questions import Actions, Authorize, Evaluate, List, Question
from tests.properties.random_policies import Case

EQUAL_IDS = (
    ("a", "A", "a ", "á"),
    ("i", "I", "\u0131", "\u0130"),  # without a dot, and with one
    ("ss", "ß", "SS", "ss "),
    ("ab", "AB", "ab ", "áb"),
    ("e\u0301", "é", "E", "e"),
)
HEAD = """
actor User {}
resource Team { relations = { parent: Team }; }
resource Doc { permissions = ["read", "edit"]; }
"""
POLICIES = {
    "not": """
has_permission(u: User, "read", d: Doc) if known(u) and open(d) and not blocked(d);
has_permission(u: User, "edit", d: Doc) if known(u) and open(d) and not banned(u, d);
""",
    "not behind a join": """
has_permission(u: User, "read", d: Doc) if known(u) and linked(d, e) and not blocked(e);
has_permission(u: User, "edit", d: Doc) if known(u) and linked(d, e) and linked(e, f) and not blocked(f) and open(d);
""",
    "not of two variables": """
has_permission(u: User, "read", d: Doc) if writes(u, d) and not banned(u, d);
has_permission(u: User, "edit", d: Doc) if writes(v, d) and known(u) and not banned(v, d);
""",
    "not of a conjunction": """
has_permission(u: User, "read", d: Doc) if known(u) and open(d) and not (blocked(d) and banned(u, d));
has_permission(u: User, "edit", d: Doc) if known(u) and open(d) and not (linked(d, e) and blocked(e));
""",
    "not of either": """
has_permission(u: User, "read", d: Doc) if known(u) and open(d) and not (blocked(d) or banned(u, d));
has_permission(u: User, "edit", d: Doc) if known(u) and linked(d, e) and not (blocked(d) or linked(e, d));
""",
    "either": """
has_permission(u: User, "read", d: Doc) if known(u) and open(d) and either(d);
either(d: Doc) if linked(d, e) and (blocked(e) or open(e));
has_permission(u: User, "edit", d: Doc) if known(u) and open(d) and not not (blocked(d) or linked(d, _));
""",
    "not within not": """
has_permission(u: User, "read", d: Doc) if known(u) and open(d) and not (linked(d, e) and not blocked(e));
has_permission(u: User, "edit", d: Doc) if writes(u, d) and not (linked(d, e) and not (open(e) and not blocked(d)));
""",
    "not of a recursion's step": """
within(t: Team, t: Team);
within(t: Team, r: Team) if has_relation(t, "parent", s) and not frozen(s) and within(s, r);
has_permission(u: User, "read", d: Doc) if joined(u, t) and within(t, r) and shares(r, d);
""",
    "a variable in between": """
has_permission(u: User, "read", d: Doc) if joined(u, t) and not frozen(t) and shares(t, d);
has_permission(u: User, "edit", d: Doc) if joined(u, t) and not (frozen(t) and shares(t, d)) and open(d);
""",
}
SIGNATURES = {
    "known": ("User",), "open": ("Doc",), "blocked": ("Doc",), "frozen": ("Team",),
    "banned": ("User", "Doc"), "writes": ("User", "Doc"), "linked": ("Doc", "Doc"), "joined": ("User", "Team"),
    "shares": ("Team", "Doc"), "has_relation": ("Team", "String", "Team"),
}  # fmt: skip


def collated_case(name: str, rng: Random) -> Case:
    ids = {each: some_equal_ids(rng, 4) for each in ("User", "Team", "Doc")}
    text = HEAD + POLICIES[name]
    facts = [
        (predicate, tuple(Value(each, "parent" if each == "String" else rng.choice(ids[each])) for each in types))
        for predicate, types in SIGNATURES.items()
        if f"{predicate}(" in text
        for _ in range(rng.randint(2, 5) if len(types) == 1 else rng.randint(4, 10))
    ]
    users, docs = ([Value(each, an_id) for an_id in ids[each]] for each in ("User", "Doc"))
    asks = [
        Authorize(rng.choice(users), "read", rng.choice(docs)),
        Authorize(rng.choice(users), "edit", rng.choice(docs)),
        Actions(rng.choice(users), rng.choice(docs)),
        List(rng.choice(users), "read", "Doc"),
        _evaluate(None, None),
        _evaluate((rng.choice(users).id,), None),
    ]
    every = tuple(Value(each, an_id) for each, some in ids.items() for an_id in some)
    facts = tuple(dict.fromkeys(facts))
    return Case((), (text,), facts, (), tuple(Question(ask, False) for ask in asks), (name,), every)


def some_equal_ids(rng: Random, count: int) -> list[str]:
    """Return ids of which most are equal to others under some collation."""
    first, second = rng.sample(EQUAL_IDS, 2)
    return [*rng.sample(first, min(count, len(first))), *rng.sample(second, 2)]


def _evaluate(user: tuple[str, ...] | None, doc: tuple[str, ...] | None) -> Evaluate:
    calls = (("has_permission", ("u", "p", "d")),)
    return Evaluate(calls, (("u", "User", user), ("p", "String", ("read", "edit")), ("d", "Doc", doc)))


# ---- what subqueries mention --------------------------------------------------------------------------------


def unsafe_mentions(sql: str, bindings: str) -> list[str]:
    """Return the columns of selects around them that subqueries mention, but for numbers, and texts in normal form.

    `sql` is a statement, or a condition, in the dialect of MySQL or MariaDB.
    """
    whole = sql if sql.startswith(("SELECT", "WITH")) else f"SELECT 1 FROM t WHERE {sql}"
    found = sqlglot.parse_one(whole, read="mysql").find_all(exp.Column)
    numbers = set(_numbers(sql, bindings))
    return [column.sql() for column in found if not _is_safe(column, numbers)]


def _is_safe(column: exp.Column, numbers: set[tuple[str, str]]) -> bool:
    select = column.find_ancestor(exp.Select)
    if not column.table.startswith("__") or select is None or column.table in _read(select):
        return True
    while column.table not in _read(select):
        select = select.find_ancestor(exp.Select)
        assert select is not None, f"nothing has the column {column}"
    table = _read(select)[column.table]
    # All other tables than those of bindings and domains are made by the statement itself, of normal forms.
    return column.name.endswith("_bytes") or table[:3] not in ("__f", "__d") or (table, column.name) in numbers


def _read(select: exp.Select) -> dict[str, str]:
    """Return the names of the tables that the select reads, by their aliases."""
    read = [select.args.get("from_") or select.args.get("from"), *select.args.get("joins", ())]
    tables = [each.this for each in read if each is not None]
    return {table.alias_or_name: _name(table) for table in tables}


def _name(table: exp.Expr) -> str:
    """Return the name of a table, also of one that a subquery adds columns to; a union is a table of the statement."""
    is_union = isinstance(table, exp.Subquery) and isinstance(table.this, exp.SetOperation)
    return "" if is_union else next(table.find_all(exp.Table)).name


def _numbers(sql: str, bindings: str) -> Iterator[tuple[str, str]]:
    """Yield the tables and columns that the bindings say are numbers."""
    known = bindings_from_text(bindings)
    for name, columns, query in re.findall(r"(__[fd]\d+)\(([^)]*)\) AS \(\n(.*?)\n\)", sql, re.DOTALL):
        of_query = [binding for binding in known.facts if binding.query == query]
        for column in columns.split(", "):
            index = column.removeprefix("a")
            if index.isdigit() and all(each.families[int(index)] in NATIVE for each in of_query):
                yield name, column
