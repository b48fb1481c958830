"""Is a binding's query one SELECT of so many columns, and nothing else?

It is the caller's own text, and goes into the statement as it is. What is refused here is what would be a mistake
there: several statements, comments that hide our text, placeholders that nobody fills, names like ours.
"""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from localsql.dialects import Dialect

OURS = "__"  # what the names that statements give to their own tables start with
_FORBIDDEN = (
    exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Into, exp.Lock, exp.DDL, exp.Drop, exp.Alter, exp.Command,
)  # fmt: skip
_OPEN = (exp.Placeholder, exp.Parameter, exp.SessionParameter)
_EFFECTS = {
    "pg_sleep", "sleep", "benchmark", "nextval", "setval", "set_config", "lo_import", "lo_export", "dblink",
    "pg_terminate_backend", "pg_cancel_backend", "pg_read_file", "pg_read_binary_file", "load_file",
    "load_extension", "get_lock", "pg_advisory_lock", "query_to_xml",
}  # fmt: skip


def problem_of(query: str, dialect: Dialect, columns: int) -> str | None:
    """What is wrong with the query; None if nothing is."""
    if "\0" in query or any(0xD800 <= ord(char) < 0xE000 for char in query):
        return "the query has characters that SQL cannot have"
    try:
        problem = _token_problem(query, dialect)
        if problem:
            return problem
        roots = sqlglot.parse(query, dialect=dialect.parser)
    except SqlglotError as error:
        return f"the query is not understood: {_first_line(error)}"
    except RecursionError:
        return "the query is nested too deeply"
    if len(roots) != 1 or roots[0] is None:
        return "the query must be one statement, without a semicolon"
    return _tree_problem(roots[0], columns)


def _first_line(error: SqlglotError) -> str:
    found = getattr(error, "errors", None)
    if found:
        first = found[0]
        return f"{first['description']} (line {first['line']}, column {first['col']})".replace("\n", " ")
    return str(error).splitlines()[0][:200]


def _token_problem(query: str, dialect: Dialect) -> str | None:
    end = 0
    for token in sqlglot.tokenize(query, dialect=dialect.parser):
        if query[end : token.start].strip() or token.comments:
            return "comments in the query are not accepted"
        if token.token_type == sqlglot.TokenType.SEMICOLON:
            return "the query must be one statement, without a semicolon"
        if token.text.startswith(OURS) and token.token_type != sqlglot.TokenType.STRING:
            return f"names that start with `{OURS}` are reserved"
        end = token.end + 1
    return "comments in the query are not accepted" if query[end:].strip() else None


def _tree_problem(root: exp.Expression, columns: int) -> str | None:
    if not isinstance(root.unnest(), (exp.Select, exp.SetOperation)):
        return "the query must be a SELECT"
    for node in root.walk():
        if isinstance(node, _FORBIDDEN):
            return "the query must do nothing but read"
        if isinstance(node, _OPEN):
            return "the query has a placeholder, which nobody would fill"
        if isinstance(node, exp.Func) and _name(node) in _EFFECTS:
            return f"the function `{_name(node)}` is not accepted"
    return _columns_problem(root, columns)


def _name(node: exp.Func) -> str:
    return (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()


def _columns_problem(root: exp.Expression, columns: int) -> str | None:
    root = root.unnest()
    if isinstance(root, exp.SetOperation):
        return _columns_problem(root.left, columns) or _columns_problem(root.right, columns)
    if not isinstance(root, exp.Select):
        return "the query must be a SELECT"
    if root.is_star:
        return "the query must list its columns instead of `*`"
    found = len(root.selects)
    if found != columns:
        return f"the query has {_columns(found)}, but the signature needs {columns}"
    return None


def _columns(number: int) -> str:
    return "1 column" if number == 1 else f"{number} columns"
