"""A random case inside a Django project: some of its facts are rows of models, the others are stored.

`Project` takes the place of the adapter: it makes the tables, stores the rest, and asks by the functions that a project
calls. What these cannot ask is asked by the endpoints, of the same engine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID

from django.apps.registry import Apps
from django.db import NotSupportedError, OperationalError, connection, models, transaction
from django.db.models import Case as CaseOf
from django.db.models import Count, Exists, F, Model, OuterRef, Q, Subquery, When
from django.db.models import Value as Constant
from django.db.models.functions import Coalesce
from django.test import override_settings

import localsql.django as authz
from authz_project.keys import caller_of_token
from checks.asking import conditions, run
from checks.asking.question import BUILT_IN
from localsql.django import bind, remote, type_of
from localsql.django.bindings import registry
from localsql.django.tables import current
from policy.errors import AuthzError
from policy.rules.program import Signature
from policy.values import BOOLEAN, INTEGER, PRIMITIVES, STRING, Value
from tests.localsql.moving import renamed
from tests.properties import ask_adapter
from tests.properties.ask_adapter import LIMITS, Caller, Fact, PastLimit
from tests.properties.differences import Outcome, outcomes
from tests.properties.questions import Actions, Ask, Authorize, List, Refused, values_in
from tests.properties.random_policies import Case

Made = Callable[[], models.Field]
_numbers = count()  # of tables


def is_number(text: str) -> bool:
    try:
        return str(int(text)) == text and -(2**63) <= int(text) < 2**63
    except ValueError:
        return False


def is_uuid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


# What a column may be, and which ids it can hold.
COLUMNS: dict[str, tuple[Made, Callable[[str], bool]]] = {
    "text": (lambda: models.TextField(null=True), bool),
    "char": (lambda: models.CharField(max_length=600, null=True), bool),
    "sure": (lambda: models.CharField(max_length=600), bool),
    "loose": (lambda: models.TextField(null=True, db_collation=_loose()), bool),
    "number": (lambda: models.BigIntegerField(null=True), is_number),
    "small": (lambda: models.IntegerField(null=True), lambda text: is_number(text) and abs(int(text)) < 2**31),
    "uuid": (lambda: models.UUIDField(null=True), is_uuid),
    "truth": (lambda: models.BooleanField(null=True), lambda text: text in ("true", "false")),
}
FOR_TEXTS = ("text", "char", "sure", "loose")


def _loose() -> str:
    return "NOCASE" if connection.vendor == "sqlite" else "und-x-icu"


def kinds_for(type_name: str, ids: Iterable[str]) -> tuple[str, ...]:
    if type_name in (INTEGER, BOOLEAN):
        return ("number",) if type_name == INTEGER else ("truth",)
    ids = list(ids)
    fitting = [name for name in ("number", "small", "uuid") if ids and all(map(COLUMNS[name][1], ids))]
    return (*FOR_TEXTS, *fitting * 3)


@dataclass
class Project:
    rng: Random
    models: list[type[models.Model]] = field(default_factory=list)
    everything: dict[str, type[models.Model]] = field(default_factory=dict)  # by type, a table of all its ids
    links: dict[str, type[models.Model]] = field(default_factory=dict)  # by type, rows that refer to them
    bound: int = 0
    stored: int = 0
    waits: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    # ---- tables ---------------------------------------------------------------------------------------------

    def model(self, columns: dict[str, models.Field], parent: type[models.Model] = Model) -> type[models.Model]:
        name, table = f"T{len(self.models)}", self.rng.choice(("somebody", "somebody", "Some Body", "order"))
        meta = type("Meta", (), {"app_label": "somebody", "apps": Apps(), "db_table": f"{table}_{next(_numbers)}"})
        for index, column in enumerate(columns.values()):
            if self.rng.random() < 0.2:
                column.db_column = f"{self.rng.choice(('col', 'Odd Name', 'a.b', 'ORDER'))}{index}"
        made = type(name, (parent,), {**columns, "__module__": __name__, "Meta": meta})
        with connection.schema_editor() as editor:
            editor.create_model(made)
        self.models.append(made)
        return made

    def model_with_key(self, key: models.Field, others: dict[str, models.Field]) -> type[models.Model]:
        """Make a table of objects with their ids; or one of these, and a child that has all else."""
        if not self.rng.randrange(5):
            return self.model(others, self.model({"key": key}))
        return self.model({**others, "key": key})

    def own_key(self, kind: str) -> models.Field:
        """Return a field for the ids of objects: a unique one, perhaps the primary key."""
        key = COLUMNS[kind][0]()
        key._unique = True
        if not self.rng.randrange(3):
            key.primary_key, key.null = True, False
        return key

    def create(self, objects: list[models.Model]) -> None:
        if objects and objects[0]._meta.parents:
            for each in objects:
                each.save(force_insert=True)
        elif objects:
            type(objects[0]).objects.bulk_create(objects)

    def end(self) -> None:
        registry.bindings.clear()  # first: a case that is given up may end here
        registry.types.clear()
        registry.version += 1
        for made in reversed(self.models):
            with connection.schema_editor() as editor:
                editor.delete_model(made)
        self.models.clear()
        self.links.clear()

    def store(self, caller: Caller, given: Iterable[Fact]) -> None:
        """Make tables of some facts, and store the others."""
        by_signature = defaultdict(list)
        for predicate, row in given:
            by_signature[Signature(predicate, tuple(value.type for value in row))].append(row)
        for signature, rows in by_signature.items():
            is_bound = [self.rng.random() < self.rng.choice((0, 0.5, 0.9, 1)) for _ in rows]
            mine = [row for row, chosen in zip(rows, is_bound) if chosen]
            self.stored += len(rows) - len(mine)
            stored = [(signature.predicate, *row) for row, chosen in zip(rows, is_bound) if not chosen]
            if self.rng.random() < 0.5:
                with transaction.atomic():
                    authz.facts.insert(*stored)
            else:
                authz.facts.insert(*stored)
            if mine:
                self.bind(signature, mine)

    def bind(self, signature: Signature, rows: list[tuple[Value, ...]]) -> None:
        self.bound += len(rows)
        constant = {}
        for index, kind in enumerate(signature.types):
            ids = {row[index].id for row in rows}
            if kind == STRING and len(ids) == 1 and self.rng.random() < 0.4 and all(map(str.isalnum, ids)):
                constant[index] = next(iter(ids))
        kinds = {
            index: self.rng.choice(kinds_for(kind, {row[index].id for row in rows}))
            for index, kind in enumerate(signature.types)
            if index not in constant
        }
        if not kinds:
            kinds, constant = {0: "text"}, {index: text for index, text in constant.items() if index}
        own, others = self.own_column(signature, kinds, rows)
        name = {index: "key" if index == own else f"c{index}" for index in kinds}
        columns = {name[index]: COLUMNS[kind][0]() for index, kind in kinds.items() if index != own}
        columns["live"] = models.BooleanField(default=True, null=self.rng.random() < 0.5)
        made = self.model(columns) if own is None else self.model_with_key(self.own_key(kinds[own]), columns)
        objects = [made(**{name[index]: _python(kind, row[index].id) for index, kind in kinds.items()}) for row in rows]
        for index, kind in kinds.items():  # rows that are no facts
            for nothing in (None, "") if kind in FOR_TEXTS else (None,):
                if index != own and (kind != "sure" or nothing is not None) and (own is None or others):
                    values = {name[other]: getattr(objects[0], name[other]) for other in kinds}
                    values |= {"key": others.pop()} if own is not None else {}
                    objects.append(made(**{**values, name[index]: nothing}))
        for live in (False, None) if made._meta.get_field("live").null else (False,):
            if own is None or others:
                key = {} if own is None else {"key": others.pop()}
                objects.append(made(live=live, **(_others(kinds, name) | key)))
        objects += [made(live=False, **{**_others(kinds, name), "key": key}) for key in others]
        self.create(objects)
        if own is not None:
            self.know(signature.types[own], made)
        rows_of = self.selected(made, list(name.values()), len(objects))
        is_loose = "loose" in kinds.values()  # by such a collation, a DISTINCT of the queryset itself leaves out ids
        if rows_of.query.is_sliced:
            pass  # Django neither combines it nor makes it distinct
        elif self.rng.random() < 0.2:
            rows_of = rows_of.union(rows_of, all=is_loose or self.rng.random() < 0.5)
        elif self.rng.random() < 0.2 and not is_loose:
            rows_of = rows_of.distinct()
        args = (f"{t}:{constant[i]}" if i in constant else f"{t}:_" for i, t in enumerate(signature.types))
        bind(f"{signature.predicate}({', '.join(args)})", rows_of)

    def selected(self, made: type[models.Model], columns: list[str], number: int) -> models.QuerySet:
        """Return the rows that are live, in one of the ways in which a project may select them."""
        live = made.objects.filter(live=True)
        same = made.objects.filter(live=True, pk=OuterRef("pk"))
        rows_of = self.rng.choice((
            live, live, live, made.objects.exclude(Q(live=False) | Q(live=None)), made.objects.filter(Exists(same)),
            made.objects.filter(pk__in=live), made.objects.filter(Q(live=True) | Q(pk__in=[])),
            live.order_by("-pk")[:number], live.select_related().only("pk"),
        ))  # fmt: skip
        way = self.rng.randrange(6)
        if way == 0 and not rows_of.query.is_sliced:
            rows_of = rows_of.annotate(**{f"C{index}": F(each) for index, each in enumerate(columns)})
            return rows_of.values_list(*(f"C{index}" for index in range(len(columns))))
        if way == 1:  # by a join, whose other side may be missing
            link = self.model({"to": self.link(made), "live": models.BooleanField(default=True)})
            link.objects.bulk_create([link(to=each) for each in rows_of] + [link(to=None), link(live=False)])
            return link.objects.filter(live=True).values_list(*(f"to__{each}" for each in columns))
        if way == 2:  # by expressions, among columns
            shown = [Coalesce(each, each) if self.rng.random() < 0.3 else each for each in columns]
            return rows_of.values_list(*shown)
        if way == 3 and not rows_of.query.is_sliced:
            rows_of = rows_of.extra(where=["1 = 1"]).annotate(first=F(columns[0]))
            return self.rng.choice((rows_of.values, rows_of.values_list))("first", *columns[1:])
        return rows_of.values_list(*columns)

    def link(self, made: type[models.Model]) -> models.Field:
        """Return a foreign key: to the primary key, or to the ids if they are another column."""
        own = [each.name for each in made._meta.local_fields if each.name == "key" and each.unique]
        to = own[0] if own and self.rng.random() < 0.5 else None
        return models.ForeignKey(made, models.DO_NOTHING, to_field=to, null=True, related_name="+", db_constraint=False)

    def own_column(
        self, signature: Signature, kinds: dict[int, str], rows: list[tuple[Value, ...]]
    ) -> tuple[int | None, list[Any]]:
        """Choose a column to be the key of its type's objects, which then have all these facts; return other keys."""
        for index, kind in kinds.items():
            everything, mine = self.everything.get(signature.types[index]), [row[index].id for row in rows]
            if everything is None or len({*mine}) < len(mine) or kind == "loose" or self.rng.random() < 0.3:
                continue
            ids = {_text(key) for key in everything.objects.values_list("key", flat=True)} | {*mine}
            if all(map(COLUMNS[kind][1], ids)):
                return index, [_python(kind, text) for text in sorted(ids - {*mine})]
        return None, []

    def tables_of_ids(self, values: Iterable[Value]) -> None:
        ids = defaultdict(set)
        for value in values:
            if value.type not in PRIMITIVES:
                ids[value.type].add(value.id)
        for type_name, some in ids.items():
            kind = self.rng.choice(kinds_for(type_name, some))
            unknown = {"number": "77123", "small": "77123", "uuid": str(UUID(int=5))}.get(kind, "nobody knows")
            made = self.model_with_key(COLUMNS[kind][0]() if kind == "loose" else self.own_key(kind), {})
            self.create([made(key=_python(kind, text)) for text in sorted(some | {unknown})])
            self.know(type_name, made)

    def know(self, type_name: str, made: type[models.Model]) -> None:
        """Note the table of all objects of a type, and make one whose rows refer to them."""
        is_pk = made._meta.get_field("key").primary_key and not made._meta.parents
        type_of(made, name=type_name, column=self.rng.choice(("pk", "key")) if is_pk else "key")
        self.everything[type_name] = made
        link = self.links[type_name] = self.model({"to": self.link(made)})
        link.objects.bulk_create([link(to=each) for each in made.objects.all()] + [link(to=None)])

    # ---- asking ---------------------------------------------------------------------------------------------

    def ask(self, caller: Caller, question: Ask) -> Any:
        if caller.context:
            return ask_adapter.ask(caller, question)
        with self.somewhere():
            try:
                return self.asked(caller, question)
            except AuthzError as refused:
                if any(refused.message.startswith(words) for words in LIMITS.values()):
                    raise PastLimit from None
                return Refused(refused.message)

    def asked(self, caller: Caller, question: Ask) -> Any:
        match question:
            case Authorize(actor, action, resource):
                allowed = authz.authorize(actor, action, resource)
                self.compare_row(actor, action, resource, allowed)
                return allowed
            case Actions(actor, resource):
                return sorted(authz.actions(actor, resource))
            case List(actor, action, type_name):
                said = ask_adapter.ask(caller, question)
                self.compare_rows(actor, action, type_name, said)
                return said
        return ask_adapter.ask(caller, question)

    def compare_row(self, actor: Value, action: str, resource: Value, allowed: bool) -> None:
        """What querysets say of one row: as a condition, negated, beside others, annotated, by another column."""
        model = self.everything.get(resource.type)
        if model is None:
            return
        with _refused_for_rounds(self.waits):
            ways = [*self.ways_of_a_row(actor, action, model, _one(model, resource), self.links[resource.type])]
            way = self.rng.randrange(len(ways))
            found = ways[way]()
            assert bool(found) == allowed, f"way {way} of permitted says {found} of {actor} {action} {resource}"
            users = self.everything.get(actor.type)
            if users is not None:
                found = authz.who(action, resource, users).filter(_one(users, actor)).exists()
                assert found == allowed, f"who says {found} of {actor} {action} {resource}"

    def ways_of_a_row(
        self, actor: Value, action: str, model: type[models.Model], one: Q, link: type[models.Model]
    ) -> Iterator[Callable[[], object]]:
        """Yield ways to ask whether one row is permitted."""
        rows, row = model.objects, model.objects.filter(one)
        meta = type("Meta", (), {"app_label": "somebody", "proxy": True, "apps": Apps()})
        same = type("Same", (model,), {"__module__": __name__, "Meta": meta})
        condition = authz.permitted(actor, action, self.rng.choice((model, same)))
        mine, its = rows.filter(condition), rows.filter(condition, pk=OuterRef("pk"))
        links = link.objects.filter(to__in=row)
        by_link = authz.permitted(actor, action, model, column="to__key")
        by_key = authz.permitted(actor, action, model, column=OuterRef("key"))
        yield rows.filter(one, condition).exists
        yield lambda: not row.exclude(condition).exists()
        yield lambda: not rows.filter(one, ~condition).exists()
        yield lambda: rows.annotate(may=condition).get(one).may
        yield row.filter(Q(condition) | Q(pk=None)).exists
        yield rows.filter(one, Exists(rows.filter(condition, key=OuterRef("key")))).exists
        yield row.filter(pk__in=mine.values("pk")).exists
        yield lambda: rows.filter(one, condition).order_by("-pk")[:2]
        yield lambda: (row & mine).count()
        yield lambda: row.aggregate(n=Count("pk", filter=Q(condition)))["n"]
        yield links.filter(by_link).exists
        yield lambda: row.annotate(n=CaseOf(When(condition, then=Constant(1)), default=Constant(0))).get().n
        yield lambda: row.values("pk").intersection(mine.values("pk"))
        yield lambda: not row.values("pk").difference(mine.values("pk"))
        yield row.filter(Exists(link.objects.filter(by_key))).exists
        yield lambda: row.annotate(found=Subquery(its.values("pk")[:1])).get().found is not None
        yield same.objects.filter(one).filter(condition).exists
        yield lambda: row.alias(may=condition).order_by("-may").annotate(ok=F("may")).first().ok
        yield lambda: not row.exclude(Q(condition) & one).exists()
        yield lambda: links.annotate(may=by_link).values("may").annotate(n=Count("pk")).get()["may"]
        yield lambda: [each for each in mine.order_by("pk")[:1000] if each in row]
        yield lambda: [each for each in mine.iterator(chunk_size=2) if each in row]
        yield lambda: not row.exclude(pk__in=mine.values("pk")).exists()

    def compare_rows(self, actor: Value, action: str, type_name: str, said: object) -> None:
        model = self.everything.get(type_name)
        if model is None:
            return
        with _refused_for_rounds(self.waits):
            keys = {_text(key) for key in model.objects.values_list("key", flat=True)}
            each = {key for key in keys if authz.authorize(actor, action, Value(type_name, key))}
            if not isinstance(said, Refused):
                assert each == (keys if "*" in said else keys & {*said}), "lists and checks agree"
            condition = authz.permitted(actor, action, model)
            found = {_text(key) for key in model.objects.filter(condition).values_list("key", flat=True)}
            assert found == each, f"permitted has {sorted(found)}, not {sorted(each)}"
            union = model.objects.filter(condition).union(model.objects.filter(~condition))
            assert {_text(row.key) for row in union} == keys, "each row is permitted, or not"
            assert model.objects.filter(condition).count() + model.objects.exclude(condition).count() == len(keys)

    @contextmanager
    def somewhere(self) -> Iterator[None]:
        """Ask inside or outside of a transaction, after changes that are rolled back."""
        way = self.rng.randrange(3)
        if way == 0:
            yield
            return
        with transaction.atomic():
            if way == 1:
                self.change_and_roll_back()
            yield

    def change_and_roll_back(self) -> None:
        """Delete and store things, ask, and undo all of it."""
        point = transaction.savepoint()
        for made in self.models:
            made.objects.all().delete()
        with _any_refusal():
            authz.facts.delete((self.rng.choice(BUILT_IN[2:]), None, None, None))
        with _any_refusal():
            authz.facts.insert(("has_role", Value("User", "rolled back"), "reader", Value("Repo", "rolled back")))
        with _any_refusal():
            authz.authorize(Value("User", "u1"), "read", Value("Repo", "r1"))
        transaction.savepoint_rollback(point)


class RemoteProject(Project):
    """Asks by HTTP requests, which this process answers itself; what has no such way is not asked."""

    key = ""

    def ask(self, caller: Caller, question: Ask) -> Any:
        if caller.context or not isinstance(question, Authorize | Actions | List):
            raise PastLimit
        said = super().ask(caller, question)
        if isinstance(said, Refused) and any(words in said.message for words in NOT_LOCAL):
            self.waits["refused by local SQL"] += 1
            raise PastLimit
        return said

    def asked(self, caller: Caller, question: Ask) -> Any:
        if isinstance(question, List):
            self.compare_rows(question.actor, question.action, question.resource_type, Refused(""))
            raise PastLimit
        self.waits["asked"] += 1
        return super().asked(caller, question)

    def call(self, path: str, body: object = None, key: str = "") -> Any:
        headers = {"authorization": f"Bearer {self.key}", **({"idempotency-key": key} if key else {})}
        send = ask_adapter.client.get if body is None else ask_adapter.client.post
        options = {} if body is None else {"data": body, "format": "json"}
        answer = send(f"/api{path}", headers=headers, **options)
        if answer.status_code >= 300:
            raise remote.ServerRefused(answer.status_code, answer.json()["message"])
        return answer.json()


# What local SQL refuses, and in which words.
NOT_LOCAL = (
    "uses its own recursion twice", "which reads it as", "cannot list", "recursive", "SQL is too large",
    *LIMITS.values(),
)  # fmt: skip


@contextmanager
def remote_project(rng: Random, key: str) -> Iterator[RemoteProject]:
    made = RemoteProject(rng)
    made.key = key
    remote.migrated(0)
    try:
        storing = patch.object(ask_adapter, "store", made.store)
        with override_settings(URL="http://authz.test", KEY=key), patch.object(remote, "call", made.call), storing:
            yield made
    finally:
        made.end()


@contextmanager
def _any_refusal() -> Iterator[None]:
    try:
        with transaction.atomic():
            yield
    except AuthzError:
        pass


@contextmanager
def _refused_for_rounds(waits: dict[str, int]) -> Iterator[None]:
    """What one statement cannot say is refused, and counted; so is what nests too deep for this SQLite's parser."""
    try:
        yield
        waits["querysets"] += 1
    except OperationalError as failure:
        assert "parser stack overflow" in str(failure)
        waits["querysets too deep for the parser"] += 1
    except NotSupportedError as refused:
        assert "joins two of its own answers" in str(refused)
        waits["refused querysets"] += 1


def _one(model: type[models.Model], value: Value) -> Q:
    keys = [key for key in model.objects.values_list("key", flat=True) if _text(key) == value.id]
    if model._meta.get_field("key").get_internal_type() in ("TextField", "CharField"):
        return Q(pk__in=[row.pk for row in model.objects.all() if row.key == value.id])
    return Q(key__in=keys)


def _python(kind: str, text: str) -> object:
    return {"number": int, "small": int, "uuid": UUID, "truth": "true".__eq__}.get(kind, str)(text)


def _other(kind: str) -> object:
    return {"number": 4711, "small": 4711, "uuid": UUID(int=11), "truth": True}.get(kind, "not live")


def _others(kinds: dict[int, str], name: dict[int, str]) -> dict[str, object]:
    return {name[index]: _other(kind) for index, kind in kinds.items()}


def _text(key: object) -> str:
    return str(key)


@contextmanager
def project(rng: Random, slug: str) -> Iterator[Project]:
    """Let the engine be part of this process's project, in this environment."""
    made = Project(rng)
    inside = override_settings(ENVIRONMENT=slug)
    many = patch.object(conditions, "are_many", lambda *_: rng.random() < 0.5)  # each form of pages
    try:
        storing = patch.object(ask_adapter, "store", made.store)
        with inside, many, storing, patch.object(run, "_application", lambda: current):
            yield made
    finally:
        made.end()


def differences(
    case: Case, seed: int, new_key: Callable[[], str], is_remote: bool = False
) -> tuple[list[Outcome], Project]:
    """Return the outcomes of the case inside a project."""
    rng = Random(seed)
    if rng.random() < 0.7:
        case, _ = renamed(case, rng)
    key = new_key()
    with remote_project(rng, key) if is_remote else project(rng, caller_of_token(key).environment) as made:
        made.tables_of_ids([*case.ids, *(v for each in case.questions for v in values_in(each.ask))])
        return outcomes(case, lambda: key, made.ask), made
