"""Base classes for sources and conditions that are not the engine's own: those of renderers for other databases."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForeignSource:
    number: int


class ForeignCondition:
    __slots__ = ()
