"""What a key may be good for. One that is made without a word about it is good for all."""

from enum import StrEnum


class Scope(StrEnum):
    READ = "read"  # questions, and looking at what is stored
    FACTS = "facts"  # changes of facts
    POLICY = "policy"  # publishing policies
