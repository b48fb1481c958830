"""What differs between the databases that store facts. Renderers ask a dialect for words, never for its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from checks.engine.rules.clauses import Slot
from checks.engine.sql.text import Text, joined
from policy.clock import now_in


@dataclass(frozen=True, eq=False)
class SQLite:
    recursive_arms_join = False  # one recursive arm for each rule
    expands_tables = True  # each mention of a table in WITH is prepared again, with all that it reads
    joins_apart = False  # reads in the order that is written, by as much of a key as is known
    joins_numbers = False  # a tenth to a fifth more steps than as many arms
    needs_hints = True  # of tables without statistics
    has_clock = False  # the file has that of whoever asks
    now = now_in("sqlite")
    dual = ""

    def placeholder(self, number: int) -> str:
        return f"?{number}"

    def current_time(self, given: Slot) -> Text:
        """Whole seconds since 1970: as given."""
        return (given,)

    def seed(self, text: Text) -> Text:
        """A value as the first row of a recursion has it."""
        return text

    def text_value(self, text: Text) -> Text:
        return text

    def answer(self, text: Text) -> Text:
        """What a SELECT answers with. The sign does nothing to a text, and keeps its column from choosing the index:
        to tell equal answers by their order, all facts of a signature would be read."""
        return ("+", *text) if is_column(text) else text

    def bytewise(self, text: Text) -> Text:
        """The text, compared byte by byte."""
        return text

    def place_of(self, part: Slot, column: str) -> Text:
        """The place of a text in a column, from 1; 0 where it is not in there."""
        return (f"instr({column}, ", part, ")")

    def same_number(self, left: Text, right: Text) -> Text:
        """Equal, or both NULL."""
        return (*left, " IS ", *right)

    def unforeseen(self, number: Text) -> Text:
        return number

    def number(self, text: Text) -> Text:
        """A parameter that is a number of this service's own."""
        return text

    def integer(self, text: Text, is_one: Text = ()) -> Text:
        """A text as a number, or NULL where it is none; `is_one` is a test that only numbers pass."""
        return ("CAST(", *text, " AS INTEGER)")

    def values(self, slot: Text) -> Text:
        """A table of one column `v` out of a JSON list."""
        return ("(SELECT value AS v FROM json_each(", *slot, "))")

    def table(self, slot: Text, columns: list[str]) -> Text:
        """A table of text columns (`tag`: a number) out of a JSON list of lists."""
        shown = ", ".join(f"value ->> {index} AS {column}" for index, column in enumerate(columns))
        return (f"SELECT {shown} FROM json_each(", *slot, ")")

    def looked_up(self, rows: Text, columns: Sequence[str], alias: str) -> Text:
        """Rows that depend on those of the tables before, as a table; `of_looked_up` are its columns."""
        return (f"json_each((SELECT json_group_array(json_array({', '.join(columns)})) FROM (", *rows, f"))) {alias}")

    def of_looked_up(self, alias: str, place: int, column: str) -> str:
        return f"({alias}.value ->> {place})"

    def gathered(self, columns: str) -> str:
        """The columns of all rows, as a JSON list of lists."""
        return f"json_group_array(json_array({columns}))"

    def rows(self, slot: Text, arity: int) -> Text:
        """Facts out of a JSON object, lists of ids by signature number; as far as they go: each column takes time."""
        columns = ", ".join(f"r.value ->> {index} AS a{index}" for index in range(arity))
        head = f"SELECT CAST(s.key AS INTEGER) AS sig, {columns} FROM json_each("
        return (head, *slot, ") s CROSS JOIN json_each(s.value) r")

    def steps(self, name: str, row: str, columns: list[str], arms: list[Text]) -> list[Text]:
        return arms


@dataclass(frozen=True, eq=False)
class PostgreSQL:
    recursive_arms_join = True  # one self reference only: the arms go into a lateral union
    expands_tables = False
    joins_apart = True  # left to itself, it reads a whole signature where statistics say there is hardly a row
    needs_hints = False
    has_clock = True  # the server's
    now = "CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)"  # one for all rows of a statement
    joins_numbers = True  # many arms that differ in signatures only are one: a third of the time, a tenth of planning
    dual = ""

    def placeholder(self, number: int) -> str:
        return f"${number}"

    def current_time(self, given: Slot) -> Text:
        """As given; where nothing is, by the server's clock: the same in all statements of a snapshot."""
        seconds = "CAST(floor(date_part('epoch', transaction_timestamp())) AS bigint)"
        return ("COALESCE(CAST(", given, f" AS text), CAST({seconds} AS text))")

    def seed(self, text: Text) -> Text:
        return ("CAST(", *text, ' AS text) COLLATE "C"')

    def text_value(self, text: Text) -> Text:
        if is_column(text):
            return text  # which has its type
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
        """The number, unknown to the planner, whose statistics know nothing of the latest changes: to them, an index
        that leads to all that came after some number leads to nothing."""
        return ("(SELECT ", *number, ")")

    def number(self, text: Text) -> Text:
        return ("CAST(", *text, " AS bigint)")

    def integer(self, text: Text, is_one: Text = ()) -> Text:
        # Evaluated before the signature is known to match, perhaps, so on text that is no number too.
        whole = ("CAST(", *text, " AS text)")
        return ("(CASE WHEN ", *(is_one or (*whole, " ~ '^-?[0-9]+$'")), " THEN CAST(", *whole, " AS bigint) END)")

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
        return f"CAST(json_agg(json_build_array({columns})) AS text)"  # NULL where there is no row

    def rows(self, slot: Text, arity: int) -> Text:
        columns = ", ".join(f'(r.value ->> {index}) COLLATE "C" AS a{index}' for index in range(arity))
        head = f"SELECT CAST(s.key AS integer) AS sig, {columns} FROM jsonb_each(CAST("
        return (head, *slot, " AS jsonb)) s CROSS JOIN jsonb_array_elements(s.value) r")

    def steps(self, name: str, row: str, columns: list[str], arms: list[Text]) -> list[Text]:
        return lateral_step(name, row, columns, arms, "x")


def lateral_step(name: str, row: str, columns: list[str], arms: list[Text], alias: str) -> list[Text]:
    """The recursive arms as one, where a table may mention itself only once."""
    if not arms:
        return []
    fields = ", ".join(f"{alias}.{column}" for column in columns)
    union = joined(" UNION ALL ", arms)
    head = f"SELECT {fields} FROM {name} {row} CROSS JOIN LATERAL ("
    return [(head, *union, f") {alias}({', '.join(columns)})")]


Dialect = SQLite | PostgreSQL


def is_column(text: Text) -> bool:
    """Whether it is no parameter."""
    return len(text) == 1 and isinstance(text[0], str)


CLOCKS = (SQLite.now, PostgreSQL.now)  # as statements read them
