"""Errors of making local SQL."""

from policy.errors import AuthzError

LONGEST_PLACE, LONGEST_REASON = 200, 1_000  # characters of the caller's input, which may be megabytes


class BindingRejected(AuthzError):
    """The data bindings are invalid; `place` is a fact's signature, or a key of the document."""

    def __init__(self, place: str, reason: str):
        self.place, self.reason = place, reason
        place, reason = _cut(place, LONGEST_PLACE), _cut(reason, LONGEST_REASON)
        super().__init__(f"data_bindings: `{place}`: {reason}" if place else f"data_bindings: {reason}")


class ColumnRejected(AuthzError):
    def __init__(self, column: str, reason: str):
        super().__init__(f"the column `{_cut(column, LONGEST_PLACE)}` {reason}")


class NotExpressible(AuthzError):
    """No single statement over the caller's tables can give the exact result."""


class OtherSpelling(NotExpressible):
    """An id that a column treats as equal to another id."""

    def __init__(self, value: str, shown: str, family: str):
        super().__init__(
            f"the id `{value}` is compared with a column of {family} values (`sql_types` in the data bindings), "
            f"which reads it as `{shown}`; ids are exact strings, so write `{shown}` in requests, context facts "
            "and stored facts"
        )


class TooLargeStatement(NotExpressible):
    def __init__(self) -> None:
        super().__init__("the SQL is too large; use fewer types or fewer calls at a time")


class TooManyConstants(NotExpressible):
    def __init__(self, limit: int, what: str):
        super().__init__(
            f"the SQL would contain more than {limit:,} values from stored facts of `{what}`; bind these facts to "
            "a table, or use fewer values"
        )


class StoredBesides(NotExpressible):
    """Many facts of a bound signature are stored as well, and would become constants."""

    def __init__(self, signature: str, pattern: str, stored: str):
        super().__init__(
            f"`{signature}` is bound to a table, and {stored} such facts are also stored, which are too many for the "
            f"SQL; delete the stored facts with `authz delete_facts '{pattern}'`, or remove the binding"
        )


class UnboundedVariable(NotExpressible):
    """A selected variable stands for every value of its type."""

    def __init__(self, name: str, type_name: str):
        super().__init__(
            f"the variable `{name}` can be any {type_name}; give its `ids`, or a query for all {type_name} ids "
            "under `domains` in the data bindings"
        )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
