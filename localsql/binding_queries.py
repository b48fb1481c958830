"""Check that a binding's query is a single SELECT with the right number of columns.

The query is the caller's own text, and is embedded unchanged. Rejected is what would be harmful there: multiple
statements, comments that hide the SQL after them, placeholders without values, names like ours. Queries that would
take the parser long are rejected, too: it tries some constructs twice, so each level of nesting doubles the time.

Only processes that read bindings import this: its parser takes 7 MB.
"""

from functools import cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from checks.asking import limits
from localsql.dialects import Dialect

OURS = "__"  # prefix of tables that our statements define
LONGEST_QUERY = 20_000  # characters
MOST_WORDS = 2_000  # tokens
_STEPS = 8  # of the parser, per token; common queries need less than 2

_FORBIDDEN = (
    exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Into, exp.Lock, exp.DDL, exp.Drop, exp.Alter, exp.Command,
)  # fmt: skip
_OPEN = (exp.Placeholder, exp.Parameter, exp.SessionParameter)
_PLACEHOLDER = "the query must not have placeholders"
_EFFECTS = frozenset((  # functions that wait, read files, or change things, in any database
    "pg_sleep", "pg_sleep_for", "pg_sleep_until", "nextval", "setval", "set_config", "pg_notify",
    "lo_import", "lo_export", "lo_from_bytea", "lo_put", "lo_unlink", "dblink", "dblink_exec", "query_to_xml",
    "pg_terminate_backend", "pg_cancel_backend", "pg_reload_conf", "pg_rotate_logfile",
    "pg_read_file", "pg_read_binary_file", "pg_ls_dir", "pg_stat_file",
    "pg_advisory_lock", "pg_advisory_xact_lock", "pg_try_advisory_lock", "pg_try_advisory_xact_lock",
    "sleep", "benchmark", "load_file", "get_lock", "release_lock", "release_all_locks", "load_extension",
))  # fmt: skip


def problem_of(query: str, dialect: Dialect, columns: int) -> str | None:
    """Return what is wrong with the query; None if it is valid."""
    if len(query) > LONGEST_QUERY:
        return f"the query must have at most {LONGEST_QUERY:,} characters"
    if "\0" in query or any(0xD800 <= ord(char) < 0xE000 for char in query):
        return "the query has characters that SQL does not allow"
    limits.check()
    try:
        return _problem(query, sqlglot.Dialect.get_or_raise(dialect.parser), columns)
    except SqlglotError as error:
        return f"the query is not valid SQL: {_first_line(error)}"
    except (RecursionError, _TooManySteps):
        return "the query is nested too deeply"
    except Exception:  # sqlglot has other exceptions for unexpected calls, such as `DATE_ADD()`
        return "the query is not valid SQL"


def _problem(query: str, dialect: sqlglot.Dialect, columns: int) -> str | None:
    words = dialect.tokenize(query)
    if len(words) > MOST_WORDS:
        return f"the query must have at most {MOST_WORDS:,} tokens"
    problem = _word_problem(query, words)
    if problem:
        return problem
    roots = _parser(type(dialect))(dialect=dialect).parse(words, query)
    if len(roots) != 1 or roots[0] is None:
        return "the query must be one statement, without a semicolon"
    return _tree_problem(roots[0], columns)


class _TooManySteps(Exception):
    """The parser took more steps than a query of this length can need."""


@cache
def _parser(dialect: type[sqlglot.Dialect]) -> type[sqlglot.Parser]:
    """Return a subclass of the dialect's parser that counts moves to another token, forward or back."""

    class Counting(dialect.parser_class):  # type: ignore[name-defined,misc]  # the class is known at run time only
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
    return (str(error).splitlines() or ["it is not SQL"])[0][:200]


def _word_problem(query: str, words: list[sqlglot.Token]) -> str | None:
    end = 0
    for token in words:
        if query[end : token.start].strip() or token.comments:
            return "comments are not allowed in the query"
        if token.token_type == sqlglot.TokenType.SEMICOLON:
            return "the query must be one statement, without a semicolon"
        if token.text.startswith(OURS) and token.token_type != sqlglot.TokenType.STRING:
            return f"names that start with `{OURS}` are reserved"
        if token.text.startswith("$") and token.token_type == sqlglot.TokenType.VAR:
            return _PLACEHOLDER  # the parser takes `$1` for a name in some dialects
        end = token.end + 1
    return "comments are not allowed in the query" if query[end:].strip() else None


def _tree_problem(root: exp.Expr, columns: int) -> str | None:
    if not isinstance(root.unnest(), (exp.Select, exp.SetOperation)):
        return "the query must be a SELECT"
    for node in root.walk():
        if isinstance(node, _FORBIDDEN):
            return "the query must be read-only"
        if isinstance(node, _OPEN):
            return _PLACEHOLDER
        if isinstance(node, exp.Func) and _name(node) in _EFFECTS:
            return f"the function `{_name(node)}` is not allowed"
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
            return "the query must name its columns instead of using `*`"
        if len(each.selects) != columns:
            return f"the query returns {columns_text(len(each.selects))}, but the fact pattern needs {columns}"
    return None


def columns_text(number: int) -> str:
    return "1 column" if number == 1 else f"{number} columns"
