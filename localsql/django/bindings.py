"""What a project says of its models: which rows are facts, and which value an object is.

Read when Django starts, so it imports nothing of the engine: `tables` reads it for the first check.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet

BindingRows = QuerySet[Any, Any] | Callable[[], QuerySet[Any, Any]]


class ModelBinding(NamedTuple):
    """The rows of a queryset as facts; `place` is the line that says so."""

    text: str
    rows: BindingRows
    place: str

    @property
    def queryset(self) -> QuerySet[Any, Any]:
        return self.rows() if callable(self.rows) else self.rows


class ModelType(NamedTuple):
    name: str  # of the type in the policy
    column: str  # whose value is the id


@dataclass
class Registry:
    """Bindings and types of this process. `version` grows with each, so that nobody uses older ones."""

    bindings: list[ModelBinding] = field(default_factory=list)
    types: dict[type[Model], ModelType] = field(default_factory=dict)
    version: int = 0

    def type_of(self, model: type[Model]) -> ModelType:
        concrete = model._meta.concrete_model or model
        return self.types.get(concrete) or _own_type(self.version, concrete)

    def has_model(self, name: str) -> bool:
        """Return whether there is a model of this type."""
        named = (each for each in apps.get_models() if each._meta.object_name == name and each not in self.types)
        return any(each.name == name for each in self.types.values()) or next(named, None) is not None


registry = Registry()


@lru_cache(maxsize=1024)
def _own_type(version: int, model: type[Model]) -> ModelType:
    """Return the type with the model's own name; if another model was given this name, one that no policy has.

    Objects of two models would be the same values. Nobody but the project can say which of them the policy is about.
    """
    name, label = model._meta.object_name or "", model._meta.label
    others = [each for each in apps.get_models() if each._meta.object_name == name and each._meta.label != label]
    given = [each for each, known in registry.types.items() if known.name == name]
    if set(given) & set(others):
        return ModelType(label, "pk")
    unknown = [each for each in others if each not in registry.types and not each._meta.proxy]
    other = next(iter([each for each in given if not issubclass(each, model)] + unknown), None)
    if other is not None:
        raise ImproperlyConfigured(
            f"the models {label} and {other._meta.label} have the same type {name}; if the policy is about the former, "
            f"say so in an authz.py: `type_of({name})`, or else `type_of({name}, 'Another{name}')`"
        )
    return ModelType(name, "pk")


def bind(fact: str, rows: BindingRows) -> None:
    """Let the rows of a queryset be facts, in addition to those that are stored.

        bind("has_relation(Document:_, folder, Folder:_)", Document.objects.values_list("pk", "folder_id"))

    Each `_` is a column of `values_list`, in order; a word without a type is the same text in all facts. A row with
    NULL or an empty text is no fact. A function that returns the queryset is called once, before the first check.
    """
    frame = sys._getframe(1)
    registry.bindings.append(ModelBinding(fact, rows, f"{frame.f_code.co_filename}:{frame.f_lineno}"))
    registry.version += 1


def type_of(model: type[Model], name: str = "", column: str = "pk") -> None:
    """Say which type of the policy a model has (default: its own name), and which column is the id (default: `pk`)."""
    concrete = model._meta.concrete_model or model
    registry.types[concrete] = ModelType(name or concrete._meta.object_name or "", column)
    registry.version += 1
