"""Scopes of API keys: what a key may do. A key that is created without naming scopes has all of them."""

from enum import StrEnum


class Scope(StrEnum):
    READ = "read"  # queries, and reading what is stored
    FACTS = "facts"  # changes of facts
    POLICY = "policy"  # publishing policies
