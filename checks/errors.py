"""The refusals of a question when it is run; those of the compiler are in `checks.engine.errors`."""

from policy.errors import AuthzError, Unavailable


class QueryTooSlow(AuthzError):
    def __init__(self, seconds: float):
        super().__init__(
            f"the question took longer than {seconds:g} seconds, the limit of STATEMENT_TIMEOUT;"
            " ask for less at a time, or raise the limit"
        )


class Crowded(Unavailable):
    """A long question waited in vain for its turn to run: other long questions had all turns."""

    def __init__(self):
        super().__init__("too many questions that take long are asked at once, try again")


class TooManyRows(AuthzError):
    def __init__(self, most: int):
        super().__init__(f"it has {most:,} answers or more")


class StatementTooLarge(AuthzError):
    """The database does not take a statement with so many parts."""

    def __init__(self):
        super().__init__(
            "the question needs a larger statement than the database takes;"
            " ask about fewer types, or with fewer calls, at a time"
        )


class TooManyTypes(AuthzError):
    def __init__(self, what: str, number: int, limit: int):
        super().__init__(f"the question is about {number} {what}, more than {limit}; name the types that matter")


class UnknownPredicate(AuthzError):
    def __init__(self, name: str, hint: str):
        advice = f" (did you mean `{hint}`?)" if hint else ""
        super().__init__(f"the policy has no predicate `{name}`{advice}")


class PolicyMoved(Unavailable):
    """The policy changed again and again while the question was being asked."""

    def __init__(self):
        super().__init__("the policy keeps changing, try again")


class NoNamesDeclared(AuthzError):
    """An assertion uses `not in` for something other than declared names."""

    def __init__(self):
        super().__init__(
            "`not in` is about the roles, permissions or relations that a block declares; list the values with `in`"
        )


class TestsTooSlow(AuthzError):
    __test__ = False  # not a class of tests

    def __init__(self, seconds: float):
        super().__init__(f"the tests took longer than {seconds:g} seconds; make them smaller, or fewer")
