"""What differs between the callers' databases: SQL, families of types, and literals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import Enum

from checks.engine.sql.dialects import lateral_step
from checks.engine.sql.text import MOST_ARMS, Text, joined
from localsql.errors import OtherSpelling, TooLargeStatement
from policy.values import BOOLEAN

# ---- families -----------------------------------------------------------------------------------------------------
# Families of SQL types: how columns are compared, and which values a column of each family can have.


class Family(Enum):
    INTEGER = "integer"
    NUMERIC = "numeric"
    BOOLEAN = "boolean"
    UUID = "uuid"
    TEXT = "text"
    UNKNOWN = "unknown"  # the SQL type is not said, or not known here: compared as text


_SQL_TYPE = re.compile(
    r"[A-Za-z_][A-Za-z0-9_ ]*(\.[A-Za-z_][A-Za-z0-9_]*)?(\([0-9 ,]{1,12}\))?( [A-Za-z ]+)?(\[\])?", re.ASCII
)
_INTEGERS = re.compile(r"(tiny|small|medium|big)?int(eger)?|int[248]|(small|big)?serial[248]?", re.ASCII)
_TEXTS = re.compile(
    r"(tiny|medium|long)?text|(var|n|nvar)?char(acter)?2?|character varying|national char\w*|string|clob|name",
    re.ASCII,
)
_NUMERICS = ("numeric", "decimal", "dec", "number")
_BOOLEANS = ("boolean", "bool")


def is_sql_type(text: str) -> bool:
    return len(text) <= 100 and _SQL_TYPE.fullmatch(text) is not None


def family_of(sql_type: str) -> Family:
    """Return the family of an SQL type. Unknown ones are compared as text: that is never wrong, and never fails."""
    name = re.sub(r"\(.*?\)", "", sql_type.lower()).strip()
    if _INTEGERS.fullmatch(name):
        return Family.INTEGER
    if _TEXTS.fullmatch(name):
        return Family.TEXT
    if name in _NUMERICS:
        return Family.NUMERIC
    if name in _BOOLEANS:
        return Family.BOOLEAN
    return Family.UUID if name == "uuid" else Family.UNKNOWN


def default_family(type_name: str) -> Family:
    return Family.BOOLEAN if type_name == BOOLEAN else Family.UNKNOWN


# ---- values ------------------------------------------------------------------------------------------------


def is_possible(value: str, family: Family) -> bool:
    """Say whether a column of the family can hold the value. No fact has the empty id, so nothing equals it.

    An id is the text that a column shows. If the database would take the value for another id (`007` in a column of
    numbers, a uuid in capitals), `OtherSpelling` is raised: to policies the two are different, to the column they are
    not.
    """
    if not value or "\0" in value:
        return False
    if family not in _READERS:
        return True
    shown = _READERS[family](value.strip(_SPACE))
    if shown is not None and shown != value:
        raise OtherSpelling(value, shown, family.value)
    return shown is not None


def _integer(text: str) -> str | None:
    number = _number(text)
    if number is None or number != number.to_integral_value():
        return None
    return str(int(number)) if -(2**63) <= number < 2**63 else None


def _numeric(text: str) -> str | None:
    number = _number(text)
    if number is None:
        return None
    shown = f"{number.normalize(_EXACT):f}"
    return shown if len(shown.strip("-").replace(".", "")) <= _DIGITS else None


def _number(text: str) -> Decimal | None:
    """Read a number as databases do; None if the text is none, or longer than any that they can hold."""
    if len(text) > _LONGEST:
        return None
    plain = text.replace("_", "")
    if _BASED.fullmatch(plain):
        return Decimal(int(plain, 0))
    return _EXACT.create_decimal(plain) or Decimal(0) if _DECIMAL.fullmatch(plain) else None  # there is no -0


def _boolean(text: str) -> str | None:
    word = text.lower()
    return next((shown for shown, words in _TRUTHS.items() if word in words), None)


def _uuid(text: str) -> str | None:
    digits = text.removeprefix("{").removesuffix("}").replace("-", "").lower()
    if not _HEXADECIMAL.fullmatch(digits):
        return None
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


_READERS: dict[Family, Callable[[str], str | None]] = {
    Family.INTEGER: _integer,
    Family.NUMERIC: _numeric,
    Family.BOOLEAN: _boolean,
    Family.UUID: _uuid,
}
_SPACE = " \t\n\r\f\v"
_LONGEST = 60  # characters of a number, beyond which it is not looked at: canonical ones have fewer
_DIGITS = 38  # of the widest numeric type that all databases have
_EXACT = Context(prec=200)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?", re.ASCII)
_BASED = re.compile(r"[+-]?0([xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)", re.ASCII)
_HEXADECIMAL = re.compile(r"[0-9a-f]{32}", re.ASCII)
_TRUTHS = {
    "true": {"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"},
    "false": {"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"},
}


# ---- Values -> SQL text. `literal` is the only place where a value becomes part of a statement --------------------
# The text must survive what client libraries do to SQL: some take a `:x`, `%s`, `?`, `$1` or `@x` inside quotes for a
# placeholder, and a backslash means different things by configuration. So a value with other than plain characters is
# written with escapes in their place.

_PLAIN = re.compile(r"[A-Za-z0-9_.,/+=~ ()\[\]|<>-]*", re.ASCII)


def literal(value: str, family: Family, escape: Callable[[str], str]) -> str | None:
    """Return the value as a constant of the family; None if no column of the family can equal it.

    `escape` writes, in the dialect, a text that is not plain.
    """
    if not is_possible(value, family):
        return None
    match family:
        case Family.INTEGER | Family.NUMERIC:
            return value
        case Family.BOOLEAN:
            return value.upper()
        case Family.UUID:
            return f"CAST('{value}' AS uuid)"
    return text_literal(value, escape)


def text_literal(value: str, escape: Callable[[str], str]) -> str:
    # A tool that looks at the text without its quotes would take two hyphens for a comment.
    return f"'{value}'" if _PLAIN.fullmatch(value) and "--" not in value else escape(value)


def unicode_escapes(value: str) -> str:
    """Return PostgreSQL's E'' string, whose meaning no configuration changes."""
    return "E'" + "".join(char if _PLAIN.fullmatch(char) and char != "-" else _escape(char) for char in value) + "'"


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def hexadecimal(value: str) -> str:
    return f"X'{value.encode().hex()}'"


# ---- dialects -----------------------------------------------------------------------------------------------------
# What differs between the callers' databases. Renderers ask a dialect for SQL, never for its name.
#
# Texts are compared byte by byte, whatever collation a column has. Tables that a statement makes itself (goals,
# answers, constants) hold texts in the dialect's normal form, which are compared as they are.

NATIVE = (Family.INTEGER, Family.NUMERIC, Family.BOOLEAN, Family.UUID)  # compared as what they are
NUMBERS = (Family.INTEGER, Family.NUMERIC)  # compared with each other, too
_NO_TRUTHS = ("bit", "float", "double", "real")
MANY = 500  # constants, from which on an array is faster than a list


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression, and how it is compared; `is_normal` if it is in the dialect's normal form."""

    sql: str
    family: Family
    is_normal: bool = False


@dataclass(frozen=True)
class Dialect:
    """What the databases have in common."""

    parser = ""  # what the parser of binding queries calls it
    quotes = '"'  # around names; the first of them where we write one
    recursive_arms_join = False  # each rule is a recursive arm of its own
    fails_when_cut = True  # a recursion that goes too deep ends in an error, not in fewer rows
    can_correlate = True  # whether a table in FROM or WITH may mention the select around it
    unmaterialized = " NOT MATERIALIZED"
    text_type = "text"
    plans_unions = True  # whether `IN (… UNION ALL …)` lets the outer table's index be used
    dual = ""  # what a select with a condition but without a table reads
    native_types = {
        Family.INTEGER: "bigint", Family.NUMERIC: "numeric", Family.BOOLEAN: "boolean", Family.UUID: "uuid",
    }  # fmt: skip

    def family(self, sql_type: str) -> Family:
        """Return the family of an SQL type; a type that this database does not have is UNKNOWN."""
        found = family_of(sql_type)
        return found if found not in NATIVE or found in self.native_types else Family.UNKNOWN

    def family_for(self, type_name: str, sql_type: str) -> Family:
        """Return the family of a column of this SQL type that holds ids of the type; raise ValueError if it cannot."""
        found = self.family(sql_type)
        if type_name == BOOLEAN and found != Family.TEXT:
            return self._truths(sql_type, found)
        if family_of(sql_type) == Family.NUMERIC and found != Family.NUMERIC and re.search(r", *[1-9]", sql_type):
            raise ValueError(
                f"`{sql_type}` formats 7 as 7.0, which is a different id; cast the column to text or integer"
            )
        return found

    def _truths(self, sql_type: str, found: Family) -> Family:
        """Return the family of a column of truth values: integers are accepted if the database has no booleans."""
        if found == Family.INTEGER and self.native_types[Family.BOOLEAN] == self.native_types[Family.INTEGER]:
            return Family.BOOLEAN
        if found in (Family.BOOLEAN, Family.UNKNOWN) and not sql_type.lower().startswith(_NO_TRUTHS):
            return found
        raise ValueError(f"`{sql_type}` has no `true` and `false`; select a boolean expression, such as `flag = 1`")

    def quoted(self, name: str) -> str:
        mark = self.quotes[0]
        return f"{mark}{name.replace(mark, mark * 2)}{mark}"

    # ---- values ------------------------------------------------------------------------------------------------

    def escaped(self, value: str) -> str:
        raise NotImplementedError

    def constant(self, value: str, family: Family) -> str | None:
        """Return the value in normal form; None if nothing of the family equals it."""
        return literal(value, family, self.escaped)

    def constants(self, values: Iterable[str], family: Family) -> list[str]:
        """Return, in normal form, those of the values that something of the family can equal."""
        return [shown for each in values if (shown := self.constant(each, family)) is not None]

    def null(self, family: Family) -> str:
        return f"CAST(NULL AS {self.native_types.get(family, self.text_type)})"

    # ---- comparisons ---------------------------------------------------------------------------------------------

    def text(self, side: Typed) -> str:
        """Return the expression as text in normal form."""
        raise NotImplementedError

    def equal(self, left: Typed, right: Typed) -> str:
        return " = ".join(self.sides(left, right))

    def unequal(self, left: Typed, right: Typed) -> str:
        return " <> ".join(self.sides(left, right))

    def sides(self, left: Typed, right: Typed) -> tuple[str, str]:
        """Return both in the form in which they are compared with each other: as they are, or as text."""
        return self._side(left, right), self._side(right, left)

    def _side(self, side: Typed, other: Typed) -> str:
        are_numbers = side.family in NUMBERS and other.family in NUMBERS
        is_native = are_numbers or (side.family == other.family and side.family in NATIVE)
        return side.sql if is_native else self.text(side)

    def among(self, side: Typed, values: Sequence[str]) -> str | None:
        """Return the test that the expression is one of the values; None if it cannot be."""
        if side.family not in NATIVE:
            return _one_of(self.text(side), self.constants(values, Family.TEXT))
        possible = [each for each in values if is_possible(each, side.family)]
        return self._many(side, possible) or _one_of(side.sql, self.constants(possible, side.family))

    def _many(self, side: Typed, values: list[str]) -> str | None:
        return None

    def number(self, side: Typed, family: Family = Family.INTEGER) -> str:
        """Return the expression as a number of the family; NULL if its text is none."""
        return side.sql if side.family in NUMBERS else self._parsed_number(self.text(side), family)

    def _parsed_number(self, text: str, family: Family) -> str:
        raise NotImplementedError

    # ---- subqueries ------------------------------------------------------------------------------------------------

    def outer(self, side: Typed) -> Typed:
        """Return the column as a subquery mentions it from within; where it differs, the select around adds it."""
        return side

    # ---- tables of a statement -------------------------------------------------------------------------------------

    def carried(self, side: Typed, family: Family) -> str:
        """Return the expression as a column, of this family, of a table that the statement makes itself."""
        return side.sql if family in NATIVE else self.text(side)

    def typed(self, sql: str, family: Family) -> str:
        """Return a carried expression with the type that a column of a recursion must have in every row."""
        return sql

    def shown(self, sql: str, family: Family) -> str:
        """Return a carried column as the caller wants to see it."""
        return sql

    def rows(self, rows: Sequence[Sequence[str]]) -> str:
        return "VALUES " + ", ".join(f"({', '.join(row)})" for row in rows)

    def steps(self, name: str, row: str, columns: list[str], arms: list[Text]) -> list[Text]:
        """Return the arms as a recursive table may have them; they call the row that they go on from `row`."""
        return arms


def _one_of(side: str, constants: Sequence[str]) -> str | None:
    if len(constants) < 2:
        return f"{side} = {constants[0]}" if constants else None
    return f"{side} IN ({', '.join(constants)})"


@dataclass(frozen=True)
class PostgreSQL(Dialect):
    parser = "postgres"
    recursive_arms_join = True  # a recursive table may mention itself once: the arms go into a lateral union

    def family(self, sql_type: str) -> Family:
        # Columns of these types take texts that are not the same for equal.
        is_loose = re.match(r"(n|national )?char(acter)?(?! varying)\b|citext\b|bpchar\b", sql_type.lower())
        return Family.UNKNOWN if is_loose else super().family(sql_type)

    def escaped(self, value: str) -> str:
        return unicode_escapes(value)

    def text(self, side: Typed) -> str:
        # For text and varchar, the cast is only a label, and their indexes still serve; for other types it is exact.
        # A column's own collation may take different texts for equal. The database's default one, which indexes have,
        # cannot.
        if side.is_normal and side.family not in NATIVE:
            return side.sql
        shown = _shortest(side.sql) if side.family == Family.NUMERIC else side.sql
        return f'CAST({shown} AS text) COLLATE "default"'

    def _many(self, side: Typed, values: list[str]) -> str | None:
        if len(values) <= MANY or side.family != Family.INTEGER or any(len(each) > 18 for each in values):
            return None
        return f"{side.sql} = ANY(CAST('{{{','.join(values)}}}' AS bigint[]))"

    def _parsed_number(self, text: str, family: Family) -> str:
        whole = "0|-?[1-9][0-9]{0,37}"
        pattern = whole if family == Family.INTEGER else rf"{whole}|-?(0|[1-9][0-9]{{0,36}})\.[0-9]{{0,36}}[1-9]"
        return f"(CASE WHEN {text} ~ {text_literal(f'^({pattern})$', self.escaped)} THEN CAST({text} AS numeric) END)"

    def carried(self, side: Typed, family: Family) -> str:
        # Columns may have different collations; those of one table that the statement makes itself must agree.
        if family in NATIVE:
            return side.sql
        return f'{side.sql} COLLATE "default"' if side.is_normal else self.text(side)

    def typed(self, sql: str, family: Family) -> str:
        return f"CAST({sql} AS {self.native_types[family]})" if family in NUMBERS else sql

    def steps(self, name: str, row: str, columns: list[str], arms: list[Text]) -> list[Text]:
        return lateral_step(name, row, columns, arms, "__x")


def _shortest(number: str) -> str:
    """Return the number as text without the zeros that PostgreSQL keeps: 7.00 is the id `7`, and 7.50 is `7.5`."""
    digits = f"rtrim(CAST({number} AS text), '0')"
    return f"CASE WHEN {number} = trunc({number}) THEN CAST(trunc({number}) AS text) ELSE {digits} END"


@dataclass(frozen=True)
class SQLite(Dialect):
    parser = "sqlite"
    quotes = '"`'
    text_type = "TEXT"
    native_types = {Family.INTEGER: "INTEGER", Family.NUMERIC: "NUMERIC", Family.BOOLEAN: "INTEGER"}

    def steps(self, name: str, row: str, columns: list[str], arms: list[Text]) -> list[Text]:
        if len(arms) > MOST_ARMS:  # a recursive arm cannot be in a subquery
            raise TooLargeStatement
        return arms

    def escaped(self, value: str) -> str:
        """Return calls of `char` with code points, which mean the same in databases of any encoding.

        For example, a' -> char(97,39). A longer text takes several calls, as their arguments are limited in number.
        """
        points = [str(ord(char)) for char in value]
        calls = [f"char({','.join(points[start : start + 100])})" for start in range(0, len(points), 100)]
        return calls[0] if len(calls) == 1 else f"({' || '.join(calls)})"

    def text(self, side: Typed) -> str:
        if side.is_normal and side.family not in NATIVE:
            return side.sql
        match side.family:
            case Family.TEXT:
                return f"{side.sql} COLLATE BINARY"
            case Family.BOOLEAN:
                return _truth_of_number(side.sql)
            case Family.NUMERIC:  # 7.0, where no column has made it 7
                whole = f"CAST({side.sql} AS INTEGER)"
                return f"CAST(CASE {side.sql} WHEN {whole} THEN {whole} ELSE {side.sql} END AS TEXT) COLLATE BINARY"
        return f"CAST({side.sql} AS TEXT) COLLATE BINARY"

    def _parsed_number(self, text: str, family: Family) -> str:
        number = f"CAST({text} AS {family.value})"
        return f"(CASE WHEN CAST({number} AS TEXT) = {text} THEN {number} END)"


@dataclass(frozen=True)
class MySQL(Dialect):
    """Its normal form of a text is the bytes in UTF-8: collations ignore case and spaces at the end."""

    parser = "mysql"
    quotes = "`"
    can_correlate = False
    unmaterialized = ""
    plans_unions = False
    dual = " FROM DUAL"
    native_types = {Family.INTEGER: "SIGNED", Family.BOOLEAN: "SIGNED"}

    def escaped(self, value: str) -> str:
        return hexadecimal(value)

    def constant(self, value: str, family: Family) -> str | None:
        if family in NATIVE or not is_possible(value, family):
            return super().constant(value, family)
        return hexadecimal(value)

    def null(self, family: Family) -> str:
        return super().null(family) if family in NATIVE else "CAST(CAST(NULL AS CHAR(513)) AS BINARY)"

    def text(self, side: Typed) -> str:
        return side.sql if side.is_normal else f"CAST({_characters(side)} AS BINARY)"

    def among(self, side: Typed, values: Sequence[str]) -> str | None:
        """Return two tests: one as the column compares, which can use its index, and one by bytes, which is exact."""
        exact = super().among(side, values)
        if exact is None or side.family in NATIVE or side.is_normal or not all(each.isascii() for each in values):
            return exact
        shown = [text_literal(each, lambda text: f"_utf8mb4 {hexadecimal(text)}") for each in values if each]
        return f"({_one_of(side.sql, shown)} AND {exact})"

    def outer(self, side: Typed) -> Typed:
        # MariaDB caches a subquery's results by the columns that it mentions of the selects around it, under their own
        # collations, even where the subquery casts them: `a` would get the result of `A`. So the select around casts.
        if side.is_normal or side.family in NATIVE:
            return side
        return Typed(f"{side.sql}_bytes", Family.TEXT, is_normal=True)

    def _parsed_number(self, text: str, family: Family) -> str:
        digits = f"CONVERT({text} USING utf8mb4)"
        number = f"CAST({digits} AS SIGNED)"
        return f"(CASE WHEN CAST({number} AS BINARY) = {text} THEN {number} END)"

    def typed(self, sql: str, family: Family) -> str:
        return f"CAST({sql} AS SIGNED)" if family in NATIVE else self._wide(sql)

    def _wide(self, sql: str) -> str:
        # The first row makes a recursion's columns as wide as no id can be. A value that is cut off was no id.
        return f"CAST(CAST(CONVERT({sql} USING utf8mb4) AS CHAR(513) CHARACTER SET utf8mb4) AS BINARY)"

    def shown(self, sql: str, family: Family) -> str:
        return sql if family in NATIVE else f"CONVERT({sql} USING utf8mb4)"

    def rows(self, rows: Sequence[Sequence[str]]) -> str:
        # MySQL and MariaDB have different words for rows of values; both have this.
        return " UNION ALL ".join(f"SELECT {', '.join(row)}" for row in rows)


@dataclass(frozen=True)
class MariaDB(MySQL):
    """After `max_recursive_iterations` steps it goes on with the rows that it has, and only warns.

    It looks at each recursive arm once for each way to choose among the others: each more arm takes three times as
    long, until there is no memory left. Arms in a derived table are looked at once each, so `steps` puts them into one.
    """

    fails_when_cut = False

    def steps(self, name: str, row: str, columns: list[str], arms: list[Text]) -> list[Text]:
        return [("SELECT * FROM (", *joined(" UNION ALL ", arms), ") __x")] if len(arms) > 1 else arms


def _characters(side: Typed) -> str:
    shown = _truth_of_number(side.sql) if side.family == Family.BOOLEAN else side.sql
    return f"CONVERT({shown} USING utf8mb4)"


def _truth_of_number(number: str) -> str:
    return f"(CASE {number} WHEN 1 THEN 'true' WHEN 0 THEN 'false' END)"


DIALECTS: dict[str, Dialect] = {
    "postgres": PostgreSQL(),
    "postgresql": PostgreSQL(),
    "pg": PostgreSQL(),
    "mysql": MySQL(),
    "mysql8": MySQL(),
    "mariadb": MariaDB(),
    "sqlite": SQLite(),
}
