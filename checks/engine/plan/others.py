"""What plans may hold beside the engine's own: bases for what renderers of other databases read and test."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OtherSource:
    number: int


class OtherCondition:
    __slots__ = ()
