"""The reasons to refuse a question, and the exceptions that make the compiler plan it in another form."""

from policy.errors import AuthzError


class UnboundVariable(AuthzError):
    """The answer depends on a comparison with a variable that nothing binds."""

    def __init__(self, name: str):
        self.name = name
        super().__init__(
            f"cannot list the values of `{name or '_'}`: the rule only compares it, and no fact binds it; check "
            "specific values instead, with `/authorize`, `/authorize_resources` or `ids` in the constraints"
        )


class CannotEnumerate(AuthzError):
    """The answer is not a list of values, nor all values."""

    def __init__(self, what: str):
        super().__init__(
            f"cannot list the results: they are {what}; check specific values instead, with `/authorize`, "
            "`/authorize_resources` or `ids` in the constraints"
        )


class Sprawling(Exception):
    """Rules inlined wherever they are called come to too much SQL: what several of them share must be tabled."""


class SprawlingSteps(Sprawling):
    """Planning in one form took too many steps: another form is tried."""


class TooMuchRecursion(AuthzError):
    """A recursion that is evaluated in rounds came to more rows than a process should hold."""

    def __init__(self, limit: int):
        super().__init__(f"the query needs more than {limit:,} intermediate results; use fewer values")


class TooComplex(AuthzError):
    """Planning would take longer than it may."""

    def __init__(self, limit: str):
        self.limit = limit
        super().__init__(
            f"query planning exceeds {limit}: the rules combine in too many ways; give their variables types, with "
            "`matches` or in the rule head"
        )

    def blame(self, line: int, rule: str) -> None:
        """Name the rule that planning took most of its steps for."""
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
        super().__init__(f"{seconds:g} s of CPU time (PLANNING_TIMEOUT)")


class NestedTooDeep(TooComplex):
    def __init__(self) -> None:
        super().__init__("the maximum nesting depth of rules")
