"""Errors from running a question; those of the compiler are in `checks.engine.errors`."""

from policy.errors import AuthzError, Unavailable


class QueryTooSlow(AuthzError):
    def __init__(self, seconds: float):
        super().__init__(
            f"the query took longer than {seconds:g} seconds (STATEMENT_TIMEOUT); ask for less at a time, or raise "
            "the limit"
        )


class TooManySlowQueries(Unavailable):
    """A slow question did not get its turn to run in time: other slow questions had all turns."""

    def __init__(self) -> None:
        super().__init__("too many slow queries are running; try again later")


class TooManyRows(AuthzError):
    def __init__(self, most: int):
        super().__init__(f"the result has {most:,} rows or more")


class StatementTooLarge(AuthzError):
    """The statement exceeds a limit of the database."""

    def __init__(self):
        super().__init__("the query is too large for the database; use fewer types or fewer calls at a time")


class TooManyTypes(AuthzError):
    def __init__(self, what: str, number: int, limit: int):
        super().__init__(
            f"the query covers {number:,} {what}, more than the limit of {limit:,}; give the types that matter"
        )


class UnknownPredicate(AuthzError):
    def __init__(self, name: str, hint: str):
        advice = f" (did you mean `{hint}`?)" if hint else ""
        super().__init__(f"the policy has no predicate `{name}`{advice}")


class PolicyMoved(Unavailable):
    """The policy changed repeatedly while the question was being answered."""

    def __init__(self):
        super().__init__("the policy changed repeatedly during the request; try again")


class NoNamesDeclared(AuthzError):
    """An assertion uses `not in` for something other than declared names."""

    def __init__(self):
        super().__init__(
            "`not in` requires roles, permissions or relations that a block declares; list the values with `in`"
        )


class TestsTooSlow(AuthzError):
    __test__ = False  # not a class of tests

    def __init__(self, seconds: float):
        super().__init__(f"the tests took longer than {seconds:g} seconds; use fewer or smaller tests")
