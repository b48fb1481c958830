"""What the engine of the project (`asking`) and a server (`remote`) have in common.

`localsql.django` chooses one of the two when its names are first used; nothing else asks which it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from django.contrib.auth import get_user_model
from django.core.exceptions import FieldError, PermissionDenied
from django.db import DEFAULT_DB_ALIAS, NotSupportedError
from django.db.models import BooleanField, Func, Model, QuerySet
from django.db.models.expressions import Col

import localsql.django as authz
from checks.asking import run
from checks.explain.explain import Explanation, explanation_to_text
from facts.wire import Argument, Fact, FactPattern
from localsql.django.bindings import registry
from localsql.django.tables import NOBODY, kind_of_values, named_by, outer_column, value_of
from policy.core.config import settings
from policy.values import Value

log = logging.getLogger("authz.denied")

# ---- conditions ---------------------------------------------------------------------------------------------------


def permitted(user: object, action: str, model: type[Model], column: str | None = None) -> AccessCondition:
    """Return the condition that the user may perform the action on the object of the model that a row names.

    The row is the object itself or, with `column`, has its key there, as a foreign key.
    """
    name = column or registry.type_of(model).column
    return AccessCondition(name, action, model, value_of(user), None)


class AccessCondition(Func):
    """A condition on one column: the resource (given the actor), or the actor (given the resource)."""

    output_field = BooleanField()
    contains_aggregate = False

    def __init__(self, column: str, action: str, model: type[Model], actor: Value | None, resource: Value | None):
        super().__init__(column)
        self.action, self.model, self.actor, self.resource = action, model, actor, resource
        self.type_name = registry.type_of(model).name

    def as_sql(self, compiler: Any, connection: Any, *_: Any, **__: Any) -> tuple[str, tuple[Any, ...]]:
        if connection.alias != DEFAULT_DB_ALIAS:
            raise NotSupportedError(
                f"this query uses the database `{connection.alias}`, but facts and policies are in "
                f"`{DEFAULT_DB_ALIAS}`; use .using({DEFAULT_DB_ALIAS!r}), or check each object with authorize"
            )
        (source,) = self.get_source_expressions()
        self._check_is_of_model(getattr(source, "target", None))
        column, params = compiler.compile(source)
        kind = kind_of_values(source)
        if kind is None or params or source.contains_aggregate:
            raise NotSupportedError(f"{source!r} cannot be compared with ids; use a column of texts, numbers or UUIDs")
        _check_joins(compiler.query.alias_map)
        outer = outer_column(source, compiler, column.replace("%%", "%"), kind)
        sql, values = authz.condition_sql(self, outer, compiler.query.high_mark is not None)
        tests = [run.dialect().is_id(column, kind), *self._is_of_content_type(source, compiler), sql]
        return f"({' AND '.join(tests)})", values  # no object: false, and true under NOT

    def _is_of_content_type(self, source: Any, compiler: Any) -> Iterator[str]:
        """Yield the test that a generic foreign key refers to the model: others have objects with the same key."""
        field: Any = getattr(source, "target", None)
        for generic in field.model._meta.private_fields if field else ():
            if getattr(generic, "fk_field", None) == field.name:
                kind = generic.get_content_type(model=self.model, using=DEFAULT_DB_ALIAS)
                column, _ = compiler.compile(Col(source.alias, field.model._meta.get_field(generic.ct_field)))
                yield f"{column} IS NOT NULL AND {column} = {kind.pk:d}"

    def _check_is_of_model(self, field: Any) -> None:
        """Refuse a key of other objects: that a row has the same one as a permitted object means nothing."""
        named = named_by(field)
        if named and named.get(self.type_name) != "":  # what is no key may be anything
            raise FieldError(
                f"{field} has no ids of {self.model.__name__}; name the column that has, as in "
                f"permitted(user, {self.action!r}, {self.model.__name__}, column=…)"
            )


def _check_joins(joins: Mapping[str, Any]) -> None:
    """Refuse a `FilteredRelation` that tests another join than its own: Django adds one for the relation's name."""
    for join in [each for each in joins.values() if getattr(each, "filtered_relation", None)]:
        relation, known = join.filtered_relation, set()
        while join:
            known.add(join.table_alias)
            join = joins.get(join.parent_alias)
        parts = (part for leaf in relation.resolved_condition.leaves() for part in leaf.flatten())
        if any(isinstance(part, Col) and part.alias not in known for part in parts):
            column = f"{relation.relation_name}__pk"
            raise FieldError(f"the condition of `{relation.alias}` tests another join; use {column=}")


# ---- checks -------------------------------------------------------------------------------------------------------


def who(action: str, resource: object, model: type[Model] | None = None) -> QuerySet[Any]:
    """Return a queryset of the users (or of another model's objects) who may perform the action on the resource."""
    model = model or get_user_model()
    allowed = AccessCondition(registry.type_of(model).column, action, model, None, value_of(resource))
    return cast("QuerySet[Any]", model._default_manager.using(DEFAULT_DB_ALIAS).filter(allowed))


def require(user: object, action: str, resource: object) -> None:
    """Raise `PermissionDenied` unless the user may perform the action on the resource.

    What is missing is in its message with `DEBUG` only, as some error pages and APIs show messages to the client. The
    logger `authz.denied` has it at level INFO.
    """
    if authz.authorize(user, action, resource):
        return
    if not (settings.DEBUG or log.isEnabledFor(logging.INFO)):
        raise PermissionDenied
    reason = str(authz.explain(user, action, resource))
    log.info("%s", reason)
    raise PermissionDenied(*((reason,) if settings.DEBUG else ()))


class Explained:
    """An explanation; `str` draws it as a tree."""

    def __init__(self, explanation: Explanation):
        self.explanation, self.allowed = explanation, explanation.allowed

    def __str__(self) -> str:
        return "\n".join(explanation_to_text(self.explanation, "", is_coloured=False, given="row"))


# ---- facts --------------------------------------------------------------------------------------------------------


class StoredFacts:
    """Stored facts, changed in the transaction of the caller, if there is one."""

    def insert(self, *facts: tuple[Any, ...], until: datetime | None = None) -> None:
        """Store facts, such as `("has_role", user, "viewer", folder)`. With `until`, they expire then."""
        if until is not None and until.tzinfo is None:
            raise ValueError("`until` has no time zone; use django.utils.timezone")
        ends = None if until is None else round(until.timestamp() * 1_000_000)
        authz.insert_facts([Fact(name, tuple(map(_somebody, args)), ends) for name, args in map(_parts, facts)])

    def delete(self, *patterns: tuple[Any, ...]) -> int:
        """Delete facts; return how many. In a pattern, None is any value, and a model any of its objects."""
        found = [FactPattern(name, tuple(map(_argument, args))) for name, args in map(_parts, patterns)]
        return cast("int", authz.delete_facts(found))


facts = StoredFacts()


def _parts(fact: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    match fact:
        case (str() as predicate, *args) if args:
            return predicate, args
    raise TypeError(f"a fact is a predicate and its arguments, as ('has_role', user, 'viewer', folder), not {fact!r}")


def _argument(thing: object) -> Argument:
    if thing is None:
        return Argument()
    if isinstance(thing, type) and issubclass(thing, Model):
        return Argument(registry.type_of(thing).name)
    value = _somebody(thing)
    return Argument(value.type, value.id)


def _somebody(thing: object) -> Value:
    value: Value = value_of(thing)
    if value.id == NOBODY:
        raise ValueError("an anonymous user has no id, so there are no facts about one; log in first")
    return value
