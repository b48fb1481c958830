"""The examples, in the recommended order."""

from functools import cache

from authz_project.examples.example import Example
from authz_project.examples.worlds import clinic, code, company, documents, saas
from policy.errors import NotFound


@cache
def examples() -> tuple[Example, ...]:
    return (code.EXAMPLE, documents.EXAMPLE, saas.EXAMPLE, company.EXAMPLE, clinic.EXAMPLE)


def example_named(name: str) -> Example:
    found = next((each for each in examples() if each.name == name), None)
    if found is None:
        raise NotFound(f"Example `{name}` does not exist. Use one of {', '.join(each.name for each in examples())}.")
    return found
