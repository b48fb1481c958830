"""Checks that a binding's query is one SELECT of so many columns, and nothing else.

The query is the caller's own text, and goes into the statement unchanged. Refused is what would do harm there: several
statements, comments that hide the SQL behind them, placeholders that nobody fills, names like ours. A query that would
take the parser long is refused as well: it tries some constructs twice, so each level of nesting doubles the time.
"""

from __future__ import annotations

from functools import cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from checks.asking import deadline
from localsql.dialects import Dialect

OURS = "__"  # statements start the names of their own tables with this
LONGEST = 20_000  # characters
MOST_WORDS = 2_000  # names, values and signs
_STEPS = 8  # of the parser, for each token; common queries take less than 2

_FORBIDDEN = (
    exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Into, exp.Lock, exp.DDL, exp.Drop, exp.Alter, exp.Command,
)  # fmt: skip
_OPEN = (exp.Placeholder, exp.Parameter, exp.SessionParameter)
_PLACEHOLDER = "the query has a placeholder, which nobody would fill"
_EFFECTS = {
    "pg_sleep", "sleep", "benchmark", "nextval", "setval", "set_config", "lo_import", "lo_export", "dblink",
    "pg_terminate_backend", "pg_cancel_backend", "pg_read_file", "pg_read_binary_file", "load_file",
    "load_extension", "get_lock", "pg_advisory_lock", "query_to_xml",
}  # fmt: skip


def problem_of(query: str, dialect: Dialect, columns: int) -> str | None:
    """Return what is wrong with the query; None if nothing is."""
    if len(query) > LONGEST:
        return f"the query must have at most {LONGEST} characters"
    if "\0" in query or any(0xD800 <= ord(char) < 0xE000 for char in query):
        return "the query has characters that SQL cannot have"
    deadline.check()
    try:
        return _problem(query, sqlglot.Dialect.get_or_raise(dialect.parser), columns)
    except SqlglotError as error:
        return f"the query is not understood: {_first_line(error)}"
    except (RecursionError, _TooManySteps):
        return "the query is nested too deeply"
    except Exception:  # sqlglot fails in its own ways at calls that it does not expect, such as `DATE_ADD()`
        return "the query is not understood"


def _problem(query: str, dialect: sqlglot.Dialect, columns: int) -> str | None:
    words = dialect.tokenize(query)
    if len(words) > MOST_WORDS:
        return f"the query must have at most {MOST_WORDS} names, values and signs"
    problem = _word_problem(query, words)
    if problem:
        return problem
    roots = _parser(type(dialect))(dialect=dialect).parse(words, query)
    if len(roots) != 1 or roots[0] is None:
        return "the query must be one statement, without a semicolon"
    return _tree_problem(roots[0], columns)


class _TooManySteps(Exception):
    """Parsing takes more steps than a query of this length can need."""


@cache
def _parser(dialect: type[sqlglot.Dialect]) -> type[sqlglot.Parser]:
    """Return the dialect's parser, made to count how often it goes on to another token, or back to one."""

    class Counting(dialect.parser_class):  # type: ignore[name-defined,misc]  # which class, only the caller knows
        steps = 0

        def _advance(self, times: int = 1) -> None:
            self.steps += 1
            if self.steps > _STEPS * (len(self._tokens) + 10):
                raise _TooManySteps
            super()._advance(times)

    return Counting


def _first_line(error: SqlglotError) -> str:
    found = getattr(error, "errors", None)
    if found:
        first = found[0]
        return f"{first['description']} (line {first['line']}, column {first['col']})".replace("\n", " ")
    return (str(error).splitlines() or ["it is no SQL"])[0][:200]


def _word_problem(query: str, words: list[sqlglot.Token]) -> str | None:
    end = 0
    for token in words:
        if query[end : token.start].strip() or token.comments:
            return "comments in the query are not accepted"
        if token.token_type == sqlglot.TokenType.SEMICOLON:
            return "the query must be one statement, without a semicolon"
        if token.text.startswith(OURS) and token.token_type != sqlglot.TokenType.STRING:
            return f"names that start with `{OURS}` are reserved"
        if token.text.startswith("$") and token.token_type == sqlglot.TokenType.VAR:
            return _PLACEHOLDER  # but the parser takes `$1` for a name in some dialects
        end = token.end + 1
    return "comments in the query are not accepted" if query[end:].strip() else None


def _tree_problem(root: exp.Expr, columns: int) -> str | None:
    if not isinstance(root.unnest(), (exp.Select, exp.SetOperation)):
        return "the query must be a SELECT"
    for node in root.walk():
        if isinstance(node, _FORBIDDEN):
            return "the query must do nothing but read"
        if isinstance(node, _OPEN):
            return _PLACEHOLDER
        if isinstance(node, exp.Func) and _name(node) in _EFFECTS:
            return f"the function `{_name(node)}` is not accepted"
    return _columns_problem(root, columns)


def _name(node: exp.Func) -> str:
    return (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()


def _columns_problem(root: exp.Expr, columns: int) -> str | None:
    waiting: list[exp.Expr] = [root]
    while waiting:
        each = waiting.pop().unnest()
        if isinstance(each, exp.SetOperation):
            waiting += [each.right, each.left]
            continue
        if not isinstance(each, exp.Select):
            return "the query must be a SELECT"
        if each.is_star:
            return "the query must list its columns instead of `*`"
        if len(each.selects) != columns:
            return f"the query has {_columns(len(each.selects))}, but the signature needs {columns}"
    return None


def _columns(number: int) -> str:
    return "1 column" if number == 1 else f"{number} columns"
