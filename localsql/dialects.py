"""Differences between the callers' databases: SQL, type families, and literals."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from enum import Enum
from typing import ClassVar

from checks.engine.rules.clauses import LONGER_THAN_IDS
from checks.engine.sql.text import MOST_ARMS, Text, joined, lateral_step
from localsql.errors import OtherSpelling, TooLargeStatement
from policy.values import BOOLEAN, INTEGER

# ---- families -----------------------------------------------------------------------------------------------------
# Families of SQL types: how columns are compared, and which values they can contain.


class Family(Enum):
    INTEGER = "integer"
    NUMERIC = "numeric"
    BOOLEAN = "boolean"
    UUID = "uuid"
    TEXT = "text"
    UNKNOWN = "unknown"  # the SQL type is unspecified or unknown: compared as text


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
    """Return the family of an SQL type. Unknown types are compared as text, which is always correct and never fails."""
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


# ---- values ------------------------------------------------------------------------------------------------


def _integer(text: str) -> str | None:
    number = _number(text)
    if number is None or number != number.to_integral_value():
        return None
    return str(int(number)) if -(2**63) <= number < 2**63 else None


def _numeric(text: str) -> str | None:
    number = _number(text)
    if number is None:
        return None
    return f"{number.normalize(_EXACT):f}"


def _number(text: str) -> Decimal | None:
    """Parse a number like databases do; None if it is invalid or too long."""
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


def _read(value: str, family: Family) -> str | None:
    """Return what databases make of a text in a column of the family; None if they reject it."""
    return _READERS[family](value.strip(_SPACE))


_SPACE = " \t\n\r\f\v"
_LONGEST = 512  # characters of an id
_EXACT = Context(prec=1_000)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?", re.ASCII)
_BASED = re.compile(r"[+-]?0([xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)", re.ASCII)
_HEXADECIMAL = re.compile(r"[0-9a-f]{32}", re.ASCII)
_TRUTHS = {
    "true": {"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"},
    "false": {"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"},
}


# ---- values -> SQL literals: `Dialect.constant` is the only place where a value becomes part of a statement ---------
# The text must survive what client libraries do to SQL: some take `:x`, `%s`, `?`, `$1` or `@x` inside quotes for
# placeholders, and the meaning of backslashes depends on configuration. So values with anything but plain characters
# are written with escapes.

_PLAIN = re.compile(r"[A-Za-z0-9_.,/+=~ ()\[\]|<>-]*", re.ASCII)


def text_literal(value: str, escape: Callable[[str], str]) -> str:
    # A tool that ignores quotes would take two hyphens for a comment.
    return f"'{value}'" if _PLAIN.fullmatch(value) and "--" not in value else escape(value)


def unicode_escapes(value: str) -> str:
    """Return PostgreSQL's E'' string, whose meaning does not depend on configuration."""
    return "E'" + "".join(char if _PLAIN.fullmatch(char) and char != "-" else _escape(char) for char in value) + "'"


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def hexadecimal(value: str) -> str:
    return f"X'{value.encode().hex()}'"


# ---- dialects -----------------------------------------------------------------------------------------------------
# Differences between the callers' databases. Renderers ask a dialect for SQL, never for its name.
#
# Texts are compared bytewise, whatever the collation of columns. Tables defined by statements (goals, answers,
# constants) contain texts in the dialect's normal form, which are compared directly.

NATIVE = (Family.INTEGER, Family.NUMERIC, Family.BOOLEAN, Family.UUID)  # compared as values of their own types
NUMBERS = (Family.INTEGER, Family.NUMERIC)  # compared with each other, too
_NO_TRUTHS = ("bit", "float", "double", "real")
MANY = 500  # number of constants above which an array is faster than a list


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression, and how it is compared; `is_normal` if it is in the dialect's normal form."""

    sql: str
    family: Family
    is_normal: bool = False


@dataclass(frozen=True)
class Dialect:
    """Defaults shared by the dialects."""

    names: ClassVar[tuple[str, ...]] = ()  # in data bindings; messages show the first one
    parser = ""  # sqlglot's name of the dialect
    quotes = '"'  # around names; the first one is used for output
    recursive_arms_join = False  # if not, each rule is a recursive arm of its own
    fails_when_cut = True  # exceeding the recursion limit raises an error instead of truncating the result
    can_correlate = True  # whether a table in FROM or WITH may refer to the enclosing select
    unmaterialized = " NOT MATERIALIZED"
    text_type = "text"
    plans_unions = True  # whether `IN (… UNION ALL …)` can use an index of the outer table
    no_ids = "'', '*'"  # in normal form
    empty = "''"
    dual = ""  # the FROM clause of a select with a condition but without a table
    has_unsigned = False  # integers may be larger than those of 64 bits with a sign
    has_booleans = True  # if not, truth values are numbers, and whatever is not 0 is true
    native_types = {
        Family.INTEGER: "bigint", Family.NUMERIC: "numeric", Family.BOOLEAN: "boolean", Family.UUID: "uuid",
    }  # fmt: skip

    def family(self, sql_type: str) -> Family:
        """Return the family of an SQL type; UNKNOWN if this database does not have the type."""
        found = family_of(sql_type)
        return found if found not in NATIVE or found in self.native_types else Family.UNKNOWN

    def family_for(self, type_name: str, sql_type: str) -> Family:
        """Return the family of a column with ids of the type. Raise ValueError if the SQL type cannot hold them."""
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
        if found == Family.INTEGER and not self.has_booleans:
            return Family.BOOLEAN
        if found in (Family.BOOLEAN, Family.UNKNOWN) and not sql_type.lower().startswith(_NO_TRUTHS):
            return found
        raise ValueError(f"`{sql_type}` is not a boolean type; select a boolean expression, such as `flag = 1`")

    def column(self, sql: str, family: Family) -> Typed:
        """Return a column of the caller's tables."""
        is_number = family == Family.BOOLEAN and not self.has_booleans
        return Typed(f"(CASE WHEN {sql} = 0 THEN 0 WHEN {sql} THEN 1 END)" if is_number else sql, family)

    def quoted(self, name: str) -> str:
        mark = self.quotes[0]
        return f"{mark}{name.replace(mark, mark * 2)}{mark}"

    # ---- values ------------------------------------------------------------------------------------------------

    def is_possible(self, value: str, family: Family) -> bool:
        """Return whether a column of the family can contain the value. No fact has an empty id, so nothing equals it.

        An id is the text that a column displays. Raise `OtherSpelling` if the database would treat the value as equal
        to another id (`007` in a numeric column, an upper-case uuid), because policies distinguish the two.
        """
        if not value or "\0" in value:
            return False
        shown = self._displayed(value, family) if family in _READERS else value
        if shown is not None and shown != value:
            raise OtherSpelling(value, shown, family.value)
        return shown is not None

    def is_of(self, value: str, family: Family) -> bool:
        """Return whether the value is of the family itself, and not only possible in this database's columns of it."""
        return self.is_possible(value, family) and (family not in _READERS or _read(value, family) == value)

    def _displayed(self, value: str, family: Family) -> str | None:
        """Return what a column of the family displays instead of the value; None if it cannot contain it."""
        return _read(value, family)

    def escaped(self, value: str) -> str:
        """Return a text that is not plain as a literal."""
        raise NotImplementedError

    def constant(self, value: str, family: Family) -> str | None:
        """Return the value in normal form; None if nothing of the family can equal it."""
        return self._literal(value, family) if self.is_possible(value, family) else None

    def _literal(self, value: str, family: Family) -> str:
        match family:
            case Family.INTEGER | Family.NUMERIC:
                return value
            case Family.BOOLEAN:
                return value.upper()
            case Family.UUID:
                return f"CAST('{value}' AS uuid)"
        return text_literal(value, self.escaped)

    def constants(self, values: Iterable[str], family: Family) -> list[str]:
        """Return, in normal form, the values that something of the family can equal."""
        return [shown for each in values if (shown := self.constant(each, family)) is not None]

    def null(self, family: Family) -> str:
        return f"CAST(NULL AS {self.native_types.get(family, self.text_type)})"

    # ---- comparisons ---------------------------------------------------------------------------------------------

    def is_id(self, side: Typed, type_name: str, is_not_null: bool = False) -> str:
        """Return the test that a column has an id of the type; empty if all of it is known.

        It is no NULL, no empty text, and not `*`; of an Integer a whole number, and of a Boolean a truth value.
        """
        if type_name == INTEGER and (side.family != Family.INTEGER or self.has_unsigned):
            return self._is_whole(side)
        if side.family not in NATIVE and type_name == BOOLEAN:
            return _one_of(self.text(side), self.constants(("true", "false"), Family.TEXT)) or ""
        if side.family not in NATIVE:
            return f"{self.text(side)} NOT IN ({self.no_ids})"
        return "" if is_not_null else f"{side.sql} IS NOT NULL"

    def _is_whole(self, side: Typed) -> str:
        return f"{self.number(side)} BETWEEN {-(2**63)} AND {2**63 - 1}"

    def text(self, side: Typed) -> str:
        """Return the expression as text in normal form."""
        raise NotImplementedError

    def equal(self, left: Typed, right: Typed) -> str:
        return " = ".join(self.sides(left, right))

    def unequal(self, left: Typed, right: Typed) -> str:
        return " <> ".join(self.sides(left, right))

    def sides(self, left: Typed, right: Typed) -> tuple[str, str]:
        """Return both in the form in which they are compared with each other: unchanged, or as text."""
        return self._side(left, right), self._side(right, left)

    def _side(self, side: Typed, other: Typed) -> str:
        are_numbers = side.family in NUMBERS and other.family in NUMBERS
        is_native = are_numbers or (side.family == other.family and side.family in NATIVE)
        return side.sql if is_native else self.text(side)

    def among(self, side: Typed, values: Sequence[str]) -> str | None:
        """Return the test that the expression is one of the values; None if it cannot be."""
        if side.family not in NATIVE:
            return _one_of(self.text(side), self.constants(values, Family.TEXT))
        possible = [each for each in values if self.is_possible(each, side.family)]
        return self._many(side, possible) or _one_of(side.sql, self.constants(possible, side.family))

    def _many(self, side: Typed, values: list[str]) -> str | None:
        return None

    def number(self, side: Typed) -> str:
        """Return the expression as a number; NULL if it is a text, and not that of a whole number."""
        return side.sql if side.family in NUMBERS else self._parsed_number(self.text(side))

    def _parsed_number(self, text: str) -> str:
        raise NotImplementedError

    # ---- subqueries ------------------------------------------------------------------------------------------------

    def outer(self, side: Typed) -> Typed:
        """Return the column for use in a subquery; if it is different, the enclosing select adds it."""
        return side

    # ---- tables defined by a statement -----------------------------------------------------------------------------

    def carried(self, side: Typed, family: Family) -> str:
        """Return the expression as a column of this family, for a table that the statement defines."""
        return side.sql if family in NATIVE else self.text(side)

    def typed(self, sql: str, family: Family) -> str:
        """Return a carried expression, cast to the type that a recursive column must have in every row."""
        return sql

    def shown(self, sql: str, family: Family) -> str:
        """Return a carried column in the form for the caller."""
        return sql

    def rows(self, rows: Sequence[Sequence[str]]) -> str:
        return "VALUES " + ", ".join(f"({', '.join(row)})" for row in rows)

    def steps(self, name: str, row: str, columns: list[str], arms: list[Text]) -> list[Text]:
        """Return the recursive arms in a form that the database accepts; in them, `row` is the current row."""
        return arms


def _one_of(side: str, constants: Sequence[str]) -> str | None:
    if len(constants) < 2:
        return f"{side} = {constants[0]}" if constants else None
    return f"{side} IN ({', '.join(constants)})"


@dataclass(frozen=True)
class PostgreSQL(Dialect):
    names = ("postgres", "postgresql", "pg")
    parser = "postgres"
    recursive_arms_join = True  # a recursive table may be referenced once, so the arms are in a lateral union

    def family(self, sql_type: str) -> Family:
        # These types treat different texts as equal.
        is_loose = re.match(r"(n|national )?char(acter)?(?! varying)\b|citext\b|bpchar\b", sql_type.lower())
        return Family.UNKNOWN if is_loose else super().family(sql_type)

    def _displayed(self, value: str, family: Family) -> str | None:
        special = _NO_NUMBERS.get(value.strip(_SPACE).lower()) if family == Family.NUMERIC else None
        return special or _read(value, family)

    def escaped(self, value: str) -> str:
        return unicode_escapes(value)

    def _literal(self, value: str, family: Family) -> str:
        is_special = family == Family.NUMERIC and value in _NO_NUMBERS.values()
        return f"CAST('{value}' AS numeric)" if is_special else super()._literal(value, family)

    def text(self, side: Typed) -> str:
        # For text and varchar, the cast does nothing, so indexes can be used; for other types it is exact. A column's
        # collation may treat different texts as equal. The database's default collation, which indexes use, cannot.
        if side.is_normal and side.family not in NATIVE:
            return side.sql
        shown = _shortest(side.sql) if side.family == Family.NUMERIC else side.sql
        return f'CAST({shown} AS text) COLLATE "default"'

    def _many(self, side: Typed, values: list[str]) -> str | None:
        if len(values) <= MANY or side.family != Family.INTEGER or any(len(each) > 18 for each in values):
            return None
        return f"{side.sql} = ANY(CAST('{{{','.join(values)}}}' AS bigint[]))"

    def _is_whole(self, side: Typed) -> str:
        in_range = super()._is_whole(side)
        return f"{in_range} AND {side.sql} = trunc({side.sql})" if side.family == Family.NUMERIC else in_range

    def _parsed_number(self, text: str) -> str:
        is_number = f"length({text}) <= {_LONGEST} AND {text} ~ {text_literal('^(0|-?[1-9][0-9]*)$', self.escaped)}"
        return f"(CASE WHEN {is_number} THEN CAST({text} AS numeric) END)"

    def carried(self, side: Typed, family: Family) -> str:
        # Columns may have different collations, but those of one table that the statement defines must agree.
        if family in NATIVE:
            return side.sql
        is_text = side.is_normal and side.family not in NATIVE
        return f'{side.sql} COLLATE "default"' if is_text else self.text(side)

    def typed(self, sql: str, family: Family) -> str:
        return f"CAST({sql} AS {self.native_types[family]})" if family in NUMBERS else sql

    def steps(self, name: str, row: str, columns: list[str], arms: list[Text]) -> list[Text]:
        return lateral_step(name, row, columns, arms, "__x")


# PostgreSQL's numeric columns may have these as well: how it reads them, and how it displays them.
_NO_NUMBERS = {"nan": "NaN"} | {
    f"{sign}{word}": f"{sign.strip('+')}Infinity" for sign in ("", "+", "-") for word in ("inf", "infinity")
}


def _shortest(number: str) -> str:
    """Return the number as text without the zeros that PostgreSQL keeps: 7.00 is the id `7`, and 7.50 is `7.5`."""
    digits = f"rtrim(CAST({number} AS text), '0')"
    return f"CASE WHEN {number} = trunc({number}) THEN CAST(trunc({number}) AS text) ELSE {digits} END"


@dataclass(frozen=True)
class SQLite(Dialect):
    names = ("sqlite",)
    parser = "sqlite"
    quotes = '"`'
    text_type = "TEXT"
    has_booleans = False
    native_types = {Family.INTEGER: "INTEGER", Family.NUMERIC: "NUMERIC", Family.BOOLEAN: "INTEGER"}

    def family(self, sql_type: str) -> Family:
        # To SQLite, all other names of types of texts, such as `string`, are of numbers: 7 equals '007' there.
        found, is_text = super().family(sql_type), re.search("char|clob|text", sql_type.lower())
        return Family.UNKNOWN if found == Family.TEXT and not is_text else found

    def column(self, sql: str, family: Family) -> Typed:
        # A column of numbers may hold texts as well, which its collation may treat as equal.
        return Typed(f"{sql} COLLATE BINARY", family) if family in NUMBERS else super().column(sql, family)

    def is_id(self, side: Typed, type_name: str, is_not_null: bool = False) -> str:
        if side.family not in NATIVE:
            return super().is_id(side, type_name, is_not_null)
        # Its columns may hold anything, whatever their type.
        if type_name != INTEGER:
            return f"{side.sql} NOT IN ({self.no_ids})"
        if side.family != Family.NUMERIC:
            return f"typeof({side.sql}) = 'integer'"
        return f"typeof({side.sql}) IN ('integer', 'real') AND {side.sql} = CAST({side.sql} AS INTEGER)"  # 7.0 is 7

    def _displayed(self, value: str, family: Family) -> str | None:
        shown = _read(value, family)
        if family not in NUMBERS:
            return shown
        number = shown or _read(value, Family.NUMERIC)
        if number is None:  # its columns may hold texts, whatever their type
            return None if _TOO_LARGE.fullmatch(value) else value
        return number if _is_kept(number) else None

    def _literal(self, value: str, family: Family) -> str:
        is_text = family in NUMBERS and _number(value) is None
        return super()._literal(value, Family.TEXT if is_text else family)

    def steps(self, name: str, row: str, columns: list[str], arms: list[Text]) -> list[Text]:
        if len(arms) > MOST_ARMS:  # recursive arms are not allowed in subqueries
            raise TooLargeStatement
        return arms

    def escaped(self, value: str) -> str:
        """Return calls of `char` with code points, which work with every encoding of a database.

        For example, a' -> char(97,39). A longer text takes several calls, because the number of arguments is limited.
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
            case Family.NUMERIC:  # 7.0, if no column has converted it to 7
                whole = f"CAST({side.sql} AS INTEGER)"
                return f"CAST(CASE {side.sql} WHEN {whole} THEN {whole} ELSE {side.sql} END AS TEXT) COLLATE BINARY"
        return f"CAST({side.sql} AS TEXT) COLLATE BINARY"

    def _parsed_number(self, text: str) -> str:
        number = f"CAST({text} AS INTEGER)"
        return f"(CASE WHEN CAST({number} AS TEXT) = {text} THEN {number} END)"


_TOO_LARGE = re.compile(r".*[0-9.][eE][+-]?[0-9]+\s*", re.ASCII | re.DOTALL)  # or too small: numbers all the same


def _is_kept(number: str) -> bool:
    """Return whether SQLite keeps a number, and shows it like this: an integer of 64 bits, or a fraction of 15 digits.

    It shows other numbers with an exponent, such as 1.0e+20.
    """
    digits = number.strip("-").replace(".", "").strip("0")
    return _integer(number) is not None or (len(digits) <= 15 and Decimal("1e-4") <= abs(Decimal(number)) < 10**15)


@dataclass(frozen=True)
class MySQL(Dialect):
    """The normal form of a text is its bytes in UTF-8, because collations ignore case and trailing spaces."""

    names: ClassVar[tuple[str, ...]] = ("mysql", "mysql8")
    parser = "mysql"
    quotes = "`"
    can_correlate = False
    unmaterialized = ""
    plans_unions = False
    no_ids = "_binary X'', _binary X'2a'"
    empty = "_binary X''"
    dual = " FROM DUAL"
    has_unsigned = True
    has_booleans = False
    native_types = {Family.INTEGER: "DECIMAL(20)", Family.BOOLEAN: "SIGNED"}

    def _displayed(self, value: str, family: Family) -> str | None:
        shown = _read(value, family)
        if shown is None and family == Family.INTEGER:  # which may be unsigned
            whole = _read(value, Family.NUMERIC)
            return whole if whole is not None and 2**63 <= Decimal(whole) < 2**64 and whole.isdecimal() else None
        return shown

    def escaped(self, value: str) -> str:
        # Without `_binary`, MySQL 8.0 damages the literal if it compares it with another column by a join.
        return f"_binary {hexadecimal(value)}"

    def _literal(self, value: str, family: Family) -> str:
        return super()._literal(value, family) if family in NATIVE else self.escaped(value)

    def null(self, family: Family) -> str:
        return super().null(family) if family in NATIVE else _NO_BYTES

    def text(self, side: Typed) -> str:
        if side.is_normal and side.family not in NATIVE:
            return side.sql
        shown = f"CAST({_characters(side)} AS BINARY)"
        if side.family != Family.UNKNOWN:
            return shown
        # MariaDB would convert bytes that are no text to question marks.
        return f"IF(CHARSET({side.sql}) = 'binary', CAST({side.sql} AS BINARY), {shown})"

    def among(self, side: Typed, values: Sequence[str]) -> str | None:
        """Return an exact test by bytes; for texts after one by the column's collation, which can use an index."""
        exact = super().among(side, values)
        is_plain = side.family == Family.TEXT and not side.is_normal and all(each.isascii() for each in values)
        if exact is None or not is_plain:  # a column of another type may equal none of the texts that it shows
            return exact
        shown = [text_literal(each, lambda text: f"_utf8mb4 {hexadecimal(text)}") for each in values if each]
        return f"({_one_of(side.sql, shown)} AND {exact})"

    def outer(self, side: Typed) -> Typed:
        # MariaDB caches the results of a subquery by the outer columns that it refers to, with their collations, even
        # if the subquery casts them: `a` would get the result of `A`. So the enclosing select does the cast.
        if side.is_normal or side.family in NATIVE:
            return side
        return Typed(f"{side.sql}_bytes", Family.TEXT, is_normal=True)

    def _parsed_number(self, text: str) -> str:
        # The test comes first, because statements that write fail if a text is cast that is not a number.
        digits, whole = f"CONVERT({text} USING utf8mb4)", hexadecimal(r"^(0|-?[1-9][0-9]{0,19})\z")
        return f"(CASE WHEN {digits} REGEXP _utf8mb4 {whole} THEN CAST({digits} AS DECIMAL(20)) END)"

    def typed(self, sql: str, family: Family) -> str:
        if family in NATIVE:
            return f"CAST({sql} AS {self.native_types[family]})"
        # The first row makes recursive columns wider than any id. A truncated value was not an id, nor stands for one.
        return f"LEFT(COALESCE({sql}, {_NO_BYTES}), {LONGER_THAN_IDS})"

    def shown(self, sql: str, family: Family) -> str:
        return sql if family in NATIVE else f"CONVERT({sql} USING utf8mb4)"

    def rows(self, rows: Sequence[Sequence[str]]) -> str:
        # MySQL and MariaDB have different syntax for row constructors; both support this.
        return " UNION ALL ".join(f"SELECT {', '.join(row)}" for row in rows)


@dataclass(frozen=True)
class MariaDB(MySQL):
    """Exceeding `max_recursive_iterations` truncates the result, with only a warning.

    MariaDB visits each recursive arm once for each choice among the others: each additional arm triples the time, until
    memory is exhausted. Arms in a derived table are visited once each, so `steps` combines them.
    """

    names = ("mariadb",)
    fails_when_cut = False

    def steps(self, name: str, row: str, columns: list[str], arms: list[Text]) -> list[Text]:
        return [("SELECT * FROM (", *joined(" UNION ALL ", arms), ") __x")] if len(arms) > 1 else arms


_NO_BYTES = f"CAST(CAST(NULL AS CHAR({LONGER_THAN_IDS})) AS BINARY)"


def _characters(side: Typed) -> str:
    shown = _truth_of_number(side.sql) if side.family == Family.BOOLEAN else side.sql
    return f"CONVERT({shown} USING utf8mb4)"


def _truth_of_number(number: str) -> str:
    return f"(CASE {number} WHEN 1 THEN 'true' WHEN 0 THEN 'false' END)"


_ALL: tuple[Dialect, ...] = (PostgreSQL(), MySQL(), MariaDB(), SQLite())
DIALECTS: dict[str, Dialect] = {name: dialect for dialect in _ALL for name in dialect.names}
DIALECT_NAMES = tuple([dialect.names[0] for dialect in _ALL])
