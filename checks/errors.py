"""Why a question is rejected, when it is compiled or run, and exceptions that make the compiler try another plan."""

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


class TestsTooSlow(AuthzError):
    __test__ = False  # not a class of tests

    def __init__(self, seconds: float):
        super().__init__(f"the tests took longer than {seconds:g} seconds; use fewer or smaller tests")


# ---- of the compiler ------------------------------------------------------------------------------------------------


class UnboundVariable(AuthzError):
    """The answer depends on a comparison with an unbound variable."""

    def __init__(self, name: str):
        self.name = name
        super().__init__(
            f"cannot list the values of `{name or '_'}`: the rule only compares it, and no fact binds it; check "
            "specific values instead, with `/authorize`, `/authorize_resources` or `ids` in the constraints"
        )


class CannotEnumerate(AuthzError):
    """The answer is neither a list of values nor all values."""

    def __init__(self, what: str):
        super().__init__(
            f"cannot list the results: they are {what}; check specific values instead, with `/authorize`, "
            "`/authorize_resources` or `ids` in the constraints"
        )


class BoundHaveNoHistory(AuthzError):
    """A question as of an earlier revision depends on rows of an application's tables, which only have a present."""

    def __init__(self, signature: object):
        super().__init__(f"`{signature}` is read from a model, which keeps no history; ask without `as_of`")


class InliningTooLarge(Exception):
    """Inlining rules at each call would generate too much SQL: answers that several calls share must be tabled."""


class TooManyInliningSteps(InliningTooLarge):
    """Planning in one form took too many steps; try another."""


class TooMuchRecursion(AuthzError):
    """A recursion evaluated in rounds produced more rows than a process should hold."""

    def __init__(self, limit: int):
        super().__init__(f"the query needs more than {limit:,} intermediate results; use fewer values")


class TooComplex(AuthzError):
    """Planning would exceed its time limit."""

    def __init__(self, limit: str):
        self.limit = limit
        super().__init__(
            f"query planning exceeds {limit}: the rules combine in too many ways; give their variables types, with "
            "`matches` or in the rule head"
        )

    def blame(self, line: int, rule: str) -> None:
        """Name the rule that took most of the planning steps."""
        self.message = (
            f"query planning exceeds {self.limit}: the rule at line {line}, `{rule}`, combines in too many ways; "
            "give its variables types, with `matches` or in the rule head"
        )
        self.args = (self.message,)


class TooManySteps(TooComplex):
    def __init__(self, limit: int):
        super().__init__(f"{limit} steps")


class PlannedTooLong(TooComplex):
    def __init__(self, seconds: float):
        super().__init__(f"{seconds:g} s of CPU time (a fifth of STATEMENT_TIMEOUT)")


class NestedTooDeep(TooComplex):
    def __init__(self) -> None:
        super().__init__("the maximum nesting depth of rules")


class TooManyIntegers(TooComplex):
    """Rules compare Integers that nothing mentions with each other, in a recursion or at too many levels."""

    def __init__(self) -> None:
        AuthzError.__init__(
            self,
            "the rules compare Integers that no fact has with each other, in a recursion or at too many levels; pass "
            "one of them to a predicate that has facts",
        )

    def blame(self, line: int, rule: str) -> None:
        """Keep the message: no single rule takes many steps."""
