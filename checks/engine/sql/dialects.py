"""SQL dialects: the differences between databases that store facts. Renderers never ask for a dialect's name."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum

from checks.engine.rules.clauses import Slot
from checks.engine.sql.text import Text, joined
from policy.core.clock import is_to_come, now_in


class IdKind(StrEnum):
    """How a column of an application's table holds ids: what their text is, and what they are compared as."""

    TEXT = "text"  # compared byte by byte, by an index too
    COLLATED = "collated"  # text whose collation is unknown, or may treat different texts as equal
    INTEGER = "integer"
    UUID = "uuid"
    BOOLEAN = "boolean"


_UUID_PARTS = ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_AROUND = 20  # symbols of the parser's stack of 100, for the confirmation of key and version
_NEAR = 2**63 - 3  # the largest number to which 2 can be added, and its negative reduced by 2, within 64 bits


@dataclass(frozen=True, eq=False)
class SQLite:
    recursive_arms_join = False  # each rule is a recursive arm of its own
    expands_tables = True  # each mention of a WITH table is prepared again, including all that it reads
    joins_apart = False  # it joins in the written order, and looks up by as much of a key as is known
    joins_numbers = False  # a single arm that joins numbers takes a tenth to a fifth more steps than many arms
    needs_hints = True  # its tables have no statistics for choosing an index
    has_clock = False  # a file has no clock; the process has
    now = now_in("sqlite")
    dual = ""

    def is_to_come(self, column: str) -> str:
        return is_to_come("sqlite", column)

    def placeholder(self, number: int) -> str:
        return f"?{number}"

    def parses(self, sql: str) -> bool:
        """Return whether the parser accepts the statement nested some levels deeper: SQLite before 3.46 may not.

        Parsing comes before anything else, so no tables are needed.
        """
        with closing(sqlite3.connect(":memory:")) as empty:
            try:
                empty.execute(f"EXPLAIN SELECT {'(' * _AROUND}{sql}{')' * _AROUND}")
            except sqlite3.Error as problem:
                return "parser stack overflow" not in str(problem)
        return True

    def current_time(self, given: Slot) -> Text:
        """Return the parameter for the time, in whole seconds since 1970."""
        return (given,)

    def seed(self, text: Text) -> Text:
        """Return a value in the form that rows of a recursive table require."""
        return text

    def text_value(self, text: Text) -> Text:
        return text

    def answer(self, text: Text) -> Text:
        """Return an answer column for a SELECT, with a unary `+`, which does not change text.

        Without it, SQLite would choose an index by this column: to find equal answers by their order, it would read all
        facts of a signature.
        """
        return ("+", *text) if is_column(text) else text

    def bytewise(self, text: Text) -> Text:
        """Return the text in a form that compares byte by byte."""
        return text

    def place_of(self, part: Slot, column: str) -> Text:
        """Return the position of a text within a column, from 1; 0 if it does not occur."""
        return (f"instr({column}, ", part, ")")

    def same_number(self, left: Text, right: Text) -> Text:
        """Return the test that both are equal, or both NULL."""
        return (*left, " IS ", *right)

    def unforeseen(self, number: Text) -> Text:
        return number

    def number(self, text: Text) -> Text:
        """Return a parameter for one of this service's own numbers, such as a revision."""
        return text

    def integer(self, text: Text, is_one: Text = ()) -> Text:
        """Return a text as a number; `is_one` is a test that only numbers pass.

        SQLite converts any text to some number, without a test; PostgreSQL returns NULL for text that is no number.
        """
        return ("CAST(", *text, " AS INTEGER)")

    def id_text(self, column: str, kind: IdKind) -> str:
        """Return a column's id as text; NULL if it holds none."""
        match kind:
            case IdKind.TEXT:
                return f"{column} COLLATE BINARY"
            case IdKind.UUID:  # Django stores 32 digits
                parts = (f"substr({column}, {start}, {size})" for start, size in _UUID_PARTS)
                return "(" + " || '-' || ".join(parts) + ")"
            case IdKind.BOOLEAN:
                return f"(CASE {column} WHEN 1 THEN 'true' WHEN 0 THEN 'false' END)"
        return f"CAST({column} AS TEXT) COLLATE BINARY"

    def id_value(self, text: Text, kind: IdKind) -> Text | None:
        """Return a text as a value to compare such a column with; NULL if no id is written like that.

        Return None if columns of this kind are compared as text.
        """
        match kind:
            case IdKind.TEXT:
                return text
            case IdKind.INTEGER:
                number: Text = ("CAST(", *text, " AS INTEGER)")
                return ("(CASE WHEN CAST(", *number, " AS TEXT) = ", *text, " THEN ", *number, " END)")
            case IdKind.UUID:
                digits: Text = ("replace(", *text, ", '-', '')")
                whole: Text = ("length(", *text, ") = 36 AND length(", *digits, ") = 32 AND ")
                dashes = joined(" AND ", (("substr(", *text, f", {at}, 1) = '-'") for at in (9, 14, 19, 24)))
                test: Text = (*whole, *digits, " NOT GLOB '*[^0-9a-f]*' AND ", *dashes)
                return ("(CASE WHEN ", *test, " THEN ", *digits, " END)")
            case IdKind.BOOLEAN:
                return ("(CASE ", *text, " WHEN 'true' THEN 1 WHEN 'false' THEN 0 END)")
        return None

    def failing(self, message: str, column: str) -> str:
        """Return an expression that fails when it is evaluated; the column keeps it from being evaluated earlier."""
        return f"json('{message}' || {column})"

    def neighbours(self, rows: Text) -> Text:
        """Return a SELECT of the whole numbers next to those in the column `v` of the rows, all as text."""
        near = f"v BETWEEN {-_NEAR} AND {_NEAR}"
        return (
            "SELECT CAST(v + d.column1 AS TEXT) FROM (SELECT CAST(v AS INTEGER) AS v FROM (",
            *rows,
            f") x) x CROSS JOIN (VALUES (-2), (-1), (1), (2)) d WHERE {near}",
        )

    def values(self, slot: Text) -> Text:
        """Return a table with one column `v` from a JSON list."""
        return ("(SELECT value AS v FROM json_each(", *slot, "))")

    def table(self, slot: Text, columns: list[str]) -> Text:
        """Return a table of text columns (`tag`: a number) from a JSON list of lists."""
        shown = ", ".join(f"value ->> {index} AS {column}" for index, column in enumerate(columns))
        return (f"SELECT {shown} FROM json_each(", *slot, ")")

    def looked_up(self, rows: Text, columns: Sequence[str], alias: str) -> Text:
        """Return rows that depend on the preceding tables, as a table; `of_looked_up` reads its columns."""
        return (f"json_each((SELECT json_group_array(json_array({', '.join(columns)})) FROM (", *rows, f"))) {alias}")

    def of_looked_up(self, alias: str, place: int, column: str) -> str:
        return f"({alias}.value ->> {place})"

    def gathered(self, columns: str) -> str:
        """Return the columns of all rows as a JSON list of lists."""
        return f"json_group_array(json_array({columns}))"

    def rows(self, slot: Text, arity: int) -> Text:
        """Return facts from a JSON object: lists of ids by signature number, such as {"3": [["alice", "doc1"]]}.

        Only `arity` columns are read, as each takes time.
        """
        columns = ", ".join(f"r.value ->> {index} AS a{index}" for index in range(arity))
        head = f"SELECT CAST(s.key AS INTEGER) AS sig, {columns} FROM json_each("
        return (head, *slot, ") s CROSS JOIN json_each(s.value) r")

    def steps(self, name: str, row: str, columns: list[str], arms: list[Text]) -> list[Text]:
        return arms


@dataclass(frozen=True, eq=False)
class PostgreSQL:
    recursive_arms_join = True  # a recursive table may mention itself only once: the arms go into a lateral union
    expands_tables = False
    joins_apart = True  # otherwise it scans a whole signature if statistics say there is hardly a row
    needs_hints = False
    has_clock = True  # the server's clock
    now = "CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)"  # the same for all rows of a statement
    joins_numbers = True  # one arm for many signatures: a third of the run time, a tenth of planning
    dual = ""

    def is_to_come(self, column: str) -> str:
        return is_to_come("postgresql", column)

    def placeholder(self, number: int) -> str:
        return f"${number}"

    def parses(self, sql: str) -> bool:
        return True

    def current_time(self, given: Slot) -> Text:
        """Return the given time, or else the server's as of the transaction, the same in all its statements."""
        seconds = "CAST(floor(date_part('epoch', transaction_timestamp())) AS bigint)"
        return ("COALESCE(CAST(", given, f" AS text), CAST({seconds} AS text))")

    def seed(self, text: Text) -> Text:
        return ("CAST(", *text, ' AS text) COLLATE "C"')

    def text_value(self, text: Text) -> Text:
        if is_column(text):
            return text  # a column has a type
        return ("CAST(", *text, " AS text)")

    def answer(self, text: Text) -> Text:
        return self.text_value(text)

    def bytewise(self, text: Text) -> Text:
        return (*text, ' COLLATE "C"')

    def place_of(self, part: Slot, column: str) -> Text:
        return (f"strpos({column}, ", part, ")")

    def same_number(self, left: Text, right: Text) -> Text:
        return (*left, " IS NOT DISTINCT FROM CAST(", *right, " AS integer)")

    def unforeseen(self, number: Text) -> Text:
        """Hide the number from the query planner, whose statistics lag behind the latest changes.

        An index that leads to everything after this number would seem to it to lead to nothing, and so to be the best.
        """
        return ("(SELECT ", *number, ")")

    def number(self, text: Text) -> Text:
        return ("CAST(", *text, " AS bigint)")

    def integer(self, text: Text, is_one: Text = ()) -> Text:
        # May be evaluated before the signature is tested, and so on texts that are not numbers.
        whole = ("CAST(", *text, " AS text)")
        return ("(CASE WHEN ", *(is_one or (*whole, " ~ '^-?[0-9]+$'")), " THEN CAST(", *whole, " AS bigint) END)")

    def id_text(self, column: str, kind: IdKind) -> str:
        if kind is IdKind.TEXT:
            return column
        return f'CAST({column} AS text) COLLATE "C"'

    def id_value(self, text: Text, kind: IdKind) -> Text | None:
        whole: Text = ("CAST(", *text, " AS text)")
        match kind:
            case IdKind.TEXT:  # the collation of the column, so that its index is used
                return (*whole, ' COLLATE "default"')
            case IdKind.INTEGER:
                least, most = -(2**63), 2**63 - 1
                fits: Text = ("CAST(", *whole, f" AS numeric) BETWEEN {least} AND {most}")
                number: Text = ("CASE WHEN ", *fits, " THEN CAST(", *whole, " AS bigint) END")
                return ("(CASE WHEN ", *whole, " ~ '^(0|-?[1-9][0-9]{0,18})$' THEN ", *number, " END)")
            case IdKind.UUID:
                return ("(CASE WHEN ", *whole, f" ~ '^{_UUID}$' THEN CAST(", *whole, " AS uuid) END)")
            case IdKind.BOOLEAN:
                return ("(CASE ", *whole, " WHEN 'true' THEN true WHEN 'false' THEN false END)")
        return None

    def failing(self, message: str, column: str) -> str:
        return f"CAST('{message}' || {column} AS boolean)"

    def neighbours(self, rows: Text) -> Text:
        near = f"v BETWEEN {-_NEAR} AND {_NEAR}"
        return (
            'SELECT CAST(v + d.column1 AS text) COLLATE "C" FROM (SELECT CAST(v AS bigint) AS v FROM (',
            *rows,
            f") x) x CROSS JOIN (VALUES (-2), (-1), (1), (2)) d WHERE {near}",
        )

    def values(self, slot: Text) -> Text:
        return ('(SELECT value COLLATE "C" AS v FROM jsonb_array_elements_text(CAST(', *slot, " AS jsonb)))")

    def table(self, slot: Text, columns: list[str]) -> Text:
        shown = ", ".join(self._field(index, column) for index, column in enumerate(columns))
        return (f"SELECT {shown} FROM jsonb_array_elements(CAST(", *slot, " AS jsonb))")

    def _field(self, index: int, column: str) -> str:
        if column == "tag":
            return f"CAST(value ->> {index} AS integer) AS tag"
        return f'(value ->> {index}) COLLATE "C" AS {column}'

    def looked_up(self, rows: Text, columns: Sequence[str], alias: str) -> Text:
        return ("LATERAL (", *rows, f") {alias}")

    def of_looked_up(self, alias: str, place: int, column: str) -> str:
        return f"{alias}.{column}"

    def gathered(self, columns: str) -> str:
        return f"CAST(json_agg(json_build_array({columns})) AS text)"  # NULL if there is no row

    def rows(self, slot: Text, arity: int) -> Text:
        columns = ", ".join(f'(r.value ->> {index}) COLLATE "C" AS a{index}' for index in range(arity))
        head = f"SELECT CAST(s.key AS integer) AS sig, {columns} FROM jsonb_each(CAST("
        return (head, *slot, " AS jsonb)) s CROSS JOIN jsonb_array_elements(s.value) r")

    def steps(self, name: str, row: str, columns: list[str], arms: list[Text]) -> list[Text]:
        return lateral_step(name, row, columns, arms, "x")


def lateral_step(name: str, row: str, columns: list[str], arms: list[Text], alias: str) -> list[Text]:
    """Return the recursive arms as one arm, for databases where a recursive table may mention itself only once.

    arm, arm  ->  SELECT x.tag, x.c0 FROM g1 p1 CROSS JOIN LATERAL (arm UNION ALL arm) x(tag, c0)
    """
    if not arms:
        return []
    fields = ", ".join(f"{alias}.{column}" for column in columns)
    union = joined(" UNION ALL ", arms)
    head = f"SELECT {fields} FROM {name} {row} CROSS JOIN LATERAL ("
    return [(head, *union, f") {alias}({', '.join(columns)})")]


Dialect = SQLite | PostgreSQL


def is_column(text: Text) -> bool:
    """Return whether the text is a column rather than a parameter."""
    return len(text) == 1 and isinstance(text[0], str)


CLOCKS = (SQLite.now, PostgreSQL.now)  # the clocks, as they appear in statements
