"""Tests of the example project, run by its own `manage.py test` (see `test_projects`)."""

import io
import os
import re
import time
from contextlib import contextmanager
from enum import Enum
from html import unescape
from pathlib import Path
from tempfile import NamedTemporaryFile
from unittest import skipIf
from unittest.mock import patch
from urllib.parse import urljoin
from uuid import UUID

import yaml
from asgiref.sync import async_to_sync
from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.core.checks import run_checks
from django.core.exceptions import FieldError, ImproperlyConfigured, PermissionDenied
from django.core.management import CommandError, call_command
from django.db import DataError, NotSupportedError, OperationalError, connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import (
    CASCADE,
    BooleanField,
    Case,
    CharField,
    CompositePrimaryKey,
    Count,
    Exists,
    F,
    FilteredRelation,
    ForeignKey,
    GeneratedField,
    IntegerField,
    JSONField,
    Manager,
    Max,
    Model,
    OuterRef,
    Prefetch,
    Q,
    UUIDField,
    Value,
    When,
)
from django.db.models.functions import Collate
from django.http import HttpResponse
from django.template import Context, Template
from django.test import RequestFactory, TestCase, TransactionTestCase, override_settings
from django.test.utils import CaptureQueriesContext, isolate_apps
from django.utils import timezone
from django.views.generic import View
from documents.models import Comment, Document, Folder, Membership, Organization, Project, Tag, Team
from documents.views import DocumentSerializer
from rest_framework.decorators import action
from rest_framework.generics import CreateAPIView, ListAPIView, RetrieveAPIView
from rest_framework.test import APIRequestFactory, force_authenticate
from rest_framework.viewsets import ModelViewSet

import localsql
from checks.asking import conditions
from facts.models import Signature
from localsql.django import (
    PermissionBackend,
    Permitted,
    PermittedAdmin,
    PermittedFilter,
    actions,
    asking,
    authorize,
    bind,
    explain,
    facts,
    permitted,
    require,
    requires,
    type_of,
    who,
)
from localsql.django.bindings import ModelBinding, registry
from localsql.django.project import findings, migrated
from localsql.django.tables import table_of, value_of
from localsql.django.testing import Authorized
from policy import active
from policy.errors import AuthzError
from policy.models import Environment, PolicyVersion

engine_only = skipIf(settings.AUTHZ.get("URL"), "about the project's own engine")


def kept():
    return list(registry.bindings), dict(registry.types)


def restore(bindings, types):
    registry.bindings[:], registry.types, registry.version = bindings, types, registry.version + 1


class World(Authorized):
    def setUp(self):
        super().setUp()
        self.ann, self.ben, self.eve = (User.objects.create_user(name, password="x") for name in ("ann", "ben", "eve"))
        self.acme = Organization.objects.create(name="Acme")
        self.team = Team.objects.create(organization=self.acme, name="Team")
        self.team.members.add(self.ann)
        self.project = Project.objects.create(organization=self.acme, team=self.team, name="Project")
        self.top = Folder.objects.create(project=self.project, name="top")
        self.inner = Folder.objects.create(project=self.project, parent=self.top, name="inner")
        self.other = Folder.objects.create(
            project=Project.objects.create(organization=self.acme, name="Other"), name="other"
        )
        self.plan = self.document("plan", folder=self.inner)
        self.old = self.document("old", folder=self.top, archived=True)
        self.news = self.document("news", folder=self.other, public=True, author=self.eve)
        self.secret = self.document("secret", folder=self.other, author=self.eve)

    def document(self, title, **fields):
        return Document.objects.create(**{"author": self.ben, "title": title, **fields})

    def titles(self, queryset):
        return sorted(queryset.values_list("title", flat=True))


class Checks(World, TestCase):
    def test_rows_are_facts(self):
        assert authorize(self.ann, "edit", self.plan)
        assert not authorize(self.ann, "edit", self.old)
        assert actions(self.ann, self.plan) == {"read", "edit"}
        assert actions(self.ben, self.plan) == {"delete"}
        assert actions(self.ben, self.secret) == set()

    def test_rows_are_read_anew_each_time(self):
        self.team.members.remove(self.ann)
        assert not authorize(self.ann, "edit", self.plan)
        Membership.objects.create(user=self.ben, organization=self.acme, role="admin")
        assert authorize(self.ben, "edit", self.secret)

    def test_nobody_is_allowed_what_anybody_is(self):
        assert authorize(AnonymousUser(), "read", self.news)
        assert not authorize(AnonymousUser(), "read", self.plan)

    def test_explanations_name_facts_of_models(self):
        assert "has_role(User:" in str(explain(self.ann, "edit", self.plan))
        denied = explain(self.ben, "edit", self.plan)
        assert not denied.allowed and "denied" in str(denied)
        with self.assertRaisesRegex(PermissionDenied, "^$"), self.assertLogs("authz.denied", "INFO") as logged:
            require(self.ben, "edit", self.plan)
        assert "denied" in logged.output[0]
        with override_settings(DEBUG=True), self.assertRaisesRegex(PermissionDenied, "denied"):
            require(self.ben, "edit", self.plan)
        require(self.ann, "edit", self.plan)

    def test_users_who_may(self):
        assert [*who("edit", self.plan)] == [self.ann]
        assert [*who("delete", self.plan).order_by("username")] == [self.ben]

    def test_what_is_no_value_is_an_error(self):
        for thing, error in ((Document(title="new"), ValueError), (None, TypeError), (1.5, TypeError), ([], TypeError)):
            with self.assertRaises(error):
                authorize(self.ann, "read", thing)
        for wrong in (lambda: authorize(self.ann, "", self.plan), lambda: value_of(Document(pk=self.plan.pk + 0.5))):
            with self.assertRaises(ValueError):
                wrong()

        class Number(int, Enum):
            one = 1

        assert value_of(("User", Number.one)).id == "1"
        assert authorize(("User", self.ann.pk), "edit", ("Document", self.plan.pk))
        if not settings.AUTHZ.get("URL"):  # a server refuses it: as a number, it is the same
            assert not authorize(("User", f"0{self.ann.pk}"), "edit", self.plan)

    def test_an_object_has_the_id_that_the_database_has(self):
        """It may have been made with another spelling, with which facts would not be found."""
        self.policy("""
            actor User {} resource Document { permissions = ["edit"]; }
            has_permission(_: User, "edit", d: Document) if not is_archived(d);
        """)
        old, plan = (Document(pk=f"0{document.pk}") for document in (self.old, self.plan))
        assert authorize(self.ann, "edit", plan) and not authorize(self.ann, "edit", old)
        with isolate_apps("documents"):

            class Ticket(Model):
                id = UUIDField(primary_key=True)

                class Meta:
                    app_label = "documents"

                def __str__(self):
                    return f"{self.pk}"

        assert value_of(Ticket(pk="0A" * 16)).id == "0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a"
        with self.assertRaisesRegex(ValueError, "is not an id"):
            authorize(self.ann, "edit", Ticket(pk="x"))

    @engine_only
    def test_a_question_about_the_past_is_refused(self):
        with self.assertRaisesRegex(CommandError, "keeps no history"):
            call_command("ask", "authorize", f"User:{self.ann.pk}", "edit", f"Document:{self.plan.pk}", as_of="1")

    @engine_only
    def test_one_statement_a_check(self):
        authorize(self.ann, "edit", self.plan)
        with self.assertNumQueries(0):  # by the driver itself, without a cursor of Django's
            authorize(self.ann, "edit", self.plan)


@engine_only
class RepeatedChecks(World, TestCase):
    """The statement of one check is that of the next one with the same types and action."""

    def test_it_is_not_looked_for_again(self):
        assert authorize(self.ann, "edit", self.plan)
        with patch.object(asking.ask, "answer", side_effect=AssertionError):
            assert authorize(self.ann, "edit", self.plan) and authorize(("User", self.ann.pk), "edit", self.plan)
            assert not authorize(self.ann, "edit", self.old) and not authorize(self.eve, "edit", self.plan)
            assert not authorize(AnonymousUser(), "edit", self.plan)

    def test_another_policy(self):
        for permission in ("", 'has_permission(_: User, "edit", d: Document) if is_archived(d);', ""):
            self.policy(f'actor User {{}} resource Document {{ permissions = ["edit"]; }} {permission}')
            for _ in range(3):
                assert authorize(self.ben, "edit", self.old) == bool(permission)
                assert not authorize(self.ben, "edit", self.plan)

    def test_other_bindings(self):
        bindings = list(registry.bindings)
        for _ in range(2):
            assert not authorize(self.ben, "read", self.secret)
        bind("is_public(Document:_)", Document.objects.values_list("pk"))
        try:
            assert authorize(self.ben, "read", self.secret) and authorize(self.ben, "read", self.secret)
        finally:
            registry.bindings[:], registry.version = bindings, registry.version + 1
        assert not authorize(self.ben, "read", self.secret)

    def test_an_actor_that_is_the_resource(self):
        self.policy('actor User { permissions = ["edit"]; } has_permission(u: User, "edit", u: User);')
        for _ in range(2):
            assert authorize(self.ann, "edit", self.ann) and authorize(self.ben, "edit", self.ben)
            assert not authorize(self.ann, "edit", self.ben) and not authorize(self.ben, "edit", self.ann)

    def test_new_kinds_of_facts_that_are_rolled_back(self):
        for _ in range(3):
            assert not authorize(self.ben, "edit", self.secret)
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                facts.insert(("has_role", self.ben, "editor", self.other))
                assert authorize(self.ben, "edit", self.secret) and authorize(self.ben, "edit", self.secret)
                raise ZeroDivisionError

    def test_another_environment(self):
        facts.insert(("has_role", self.ben, "viewer", self.other))
        assert authorize(self.ben, "read", self.secret)
        Environment.objects.create(slug="another", name="Another")
        with override_settings(AUTHZ={**settings.AUTHZ, "ENVIRONMENT": "another"}):
            assert not authorize(self.ben, "read", self.secret) and not authorize(self.ben, "read", self.secret)
        assert authorize(self.ben, "read", self.secret)

    def test_facts_expire_between_two(self):
        until = timezone.now() + timezone.timedelta(seconds=1)
        facts.insert(("has_role", self.ben, "viewer", self.other), until=until)
        authorize(self.ben, "read", self.secret)
        while timezone.now() <= until + timezone.timedelta(seconds=0.1):
            time.sleep(0.1)
        assert not authorize(self.ben, "read", self.secret)


class StoredFacts(World, TestCase):
    def test_they_count_beside_rows(self):
        assert not authorize(self.ben, "read", self.secret)
        facts.insert(("has_role", self.ben, "viewer", self.other))
        assert authorize(self.ben, "read", self.secret)
        assert self.titles(Document.objects.filter(permitted(self.ben, "read", Document))) == ["news", "secret"]
        assert facts.delete(("has_role", self.ben, None, Folder)) == 1
        assert not authorize(self.ben, "read", self.secret)

    def test_they_expire(self):
        facts.insert(("has_role", self.ben, "viewer", self.other), until=timezone.now() + timezone.timedelta(days=1))
        assert authorize(self.ben, "read", self.secret)
        with self.assertRaises(ValueError):
            facts.insert(("has_role", self.ben, "viewer", self.other), until=timezone.datetime(2040, 1, 1))

    def test_a_savepoint_takes_them_back(self):
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            facts.insert(("has_role", self.ben, "editor", self.other), ("has_role", self.eve, "viewer", self.secret))
            assert authorize(self.ben, "edit", self.secret)
            assert self.ben in who("edit", self.secret)
            raise ZeroDivisionError
        assert not authorize(self.ben, "edit", self.secret)
        assert self.ben not in who("edit", self.secret)

    def test_what_the_policy_has_no_use_for_leaves_the_transaction_usable(self):
        with self.assertRaisesRegex(AuthzError, "not used in policy"):
            facts.insert(("has_role", self.ben, "viewer", self.acme, "more"))
        facts.insert(("has_role", self.ben, "viewer", self.other))
        assert authorize(self.ben, "read", self.secret)

    def test_there_are_none_about_nobody(self):
        """Else all anonymous users would have them."""
        for change in (facts.insert, facts.delete):
            with self.assertRaisesRegex(ValueError, "anonymous"):
                change(("has_role", AnonymousUser(), "viewer", self.other))
        assert not authorize(AnonymousUser(), "read", self.secret)

    def test_hostile_values_are_values(self):
        hostile = "x' OR 1=1 -- %s %(a)s ? $1 \\ \u2028"
        facts.insert(("has_role", ("User", hostile), "viewer", self.other))
        assert authorize(("User", hostile), "read", self.secret)
        found = Document.objects.filter(permitted(("User", hostile), "read", Document))
        assert self.titles(found) == ["news", "secret"]
        assert self.titles(Document.objects.filter(permitted(self.ann, hostile, Document))) == []


class Querysets(World, TestCase):
    def setUp(self):
        super().setUp()
        self.may = permitted(self.ann, "read", Document)
        self.readable = ["news", "old", "plan"]

    def test_conditions(self):
        objects = Document.objects
        assert self.titles(objects.filter(self.may)) == self.readable
        assert self.titles(objects.exclude(self.may)) == ["secret"]
        assert self.titles(objects.filter(~self.may)) == ["secret"]
        assert self.titles(objects.filter(Q(self.may) | Q(title="secret"))) == [*self.readable, "secret"]
        assert self.titles(objects.filter(self.may | Q(title="secret"))) == [*self.readable, "secret"]
        assert self.titles(objects.filter(Q(title="plan") & self.may)) == ["plan"]
        assert self.titles(objects.filter(~Q(self.may) | Q(title="plan"))) == ["plan", "secret"]
        assert objects.filter(self.may).count() == 3 and objects.filter(self.may).exists()

    def test_columns(self):
        annotated = Document.objects.annotate(may=self.may, edit=permitted(self.ann, "edit", Document))
        assert {(d.title, d.may, d.edit) for d in annotated} == {
            ("news", True, False), ("old", True, False), ("plan", True, True), ("secret", False, False),
        }  # fmt: skip
        assert self.titles(annotated.filter(may=False)) == ["secret"]
        assert [d.title for d in annotated.order_by("-may", "title")] == [*self.readable, "secret"]
        case = Case(When(self.may, then=Value("yes")), default=Value("no"))
        assert Document.objects.annotate(a=case).get(title="secret").a == "no"
        counts = annotated.values("may").annotate(n=Count("pk")).order_by("may")
        assert [(bool(row["may"]), row["n"]) for row in counts] == [(False, 1), (True, 3)]
        assert Document.objects.aggregate(n=Count("pk", filter=self.may))["n"] == 3

    def test_subqueries_joins_and_others(self):
        readable = Document.objects.filter(self.may)
        for document in Document.objects.all():
            Comment.objects.create(document=document, author=self.ben, text=document.title)
        by_column = Comment.objects.filter(permitted(self.ann, "read", Document, column="document"))
        assert sorted(by_column.values_list("text", flat=True)) == self.readable
        by_join = Comment.objects.filter(document__in=readable)
        assert sorted(by_join.values_list("text", flat=True)) == self.readable
        assert self.titles(Document.objects.filter(Exists(readable.filter(pk=OuterRef("pk"))))) == self.readable
        through = Folder.objects.filter(permitted(self.ann, "read", Document, column="document")).distinct()
        assert sorted(through.values_list("name", flat=True)) == ["inner", "other", "top"]
        assert self.titles(readable.union(Document.objects.filter(~self.may))) == [*self.readable, "secret"]
        assert self.titles(readable.select_related("folder__project")) == self.readable
        assert sorted(d.title for d in readable.iterator(chunk_size=1)) == self.readable
        folders = Folder.objects.prefetch_related(Prefetch("document_set", queryset=readable, to_attr="mine"))
        assert sorted(d.title for f in folders for d in f.mine) == self.readable
        assert readable.filter(folder__in=Folder.objects.filter(permitted(self.ann, "edit", Folder))).count() == 2
        assert Document.objects.filter(self.may, pk__in=Document.objects.filter(self.may)).count() == 3
        assert readable.update(text="x") == 3 and readable.filter(title="old").delete()[0] == 2

    def test_a_wildcard_and_all_but_some(self):
        self.policy("""
            actor User {} resource Document { permissions = ["read", "edit"]; }
            has_permission(_: User, "read", _: Document);
            has_permission(_: User, "edit", d: Document) if not is_archived(d);
        """)
        assert Document.objects.filter(permitted(self.eve, "read", Document)).count() == 4
        editable = Document.objects.filter(permitted(self.eve, "edit", Document))
        assert self.titles(editable) == ["news", "plan", "secret"]
        assert who("edit", self.old).count() == 0 and who("edit", self.plan).count() == 3

    def test_all_but_some_of_the_rows_that_managers_leave_out(self):
        class Quiet(Manager):
            def get_queryset(self):
                return super().get_queryset().exclude(title="news")

        self.policy("""
            actor User {} resource Document { permissions = ["edit"]; }
            has_permission(_: User, "edit", d: Document) if not is_archived(d);
        """)
        quiet, registry.version = Quiet(), registry.version + 1
        quiet.model = Document
        with patch.object(Document._meta, "base_manager", quiet):
            editable = Document.objects.filter(permitted(self.eve, "edit", Document))
            assert self.titles(editable) == ["news", "plan", "secret"]
        registry.version += 1

    def test_a_row_without_an_object_is_not_permitted(self):
        may = permitted(self.ann, "read", Folder, column="parent")
        assert [folder.name for folder in Folder.objects.filter(may)] == ["inner"]
        assert sorted(folder.name for folder in Folder.objects.filter(~may)) == ["other", "top"]
        assert sorted(folder.name for folder in Folder.objects.exclude(may)[:5]) == ["other", "top"]
        assert {folder.may for folder in Folder.objects.annotate(may=may)} == {True, False}

    def test_a_foreign_key_without_a_value_is_no_fact(self):
        self.policy("""
            actor User {}
            resource Folder { permissions = ["read", "edit", "move"]; relations = { parent: Folder }; }
            has_permission(_: User, "read", f: Folder) if has_relation(f, "parent", _);
            has_permission(_: User, "edit", f: Folder) if not has_relation(f, "parent", _);
            has_permission(_: User, "move", f: Folder) if is_inside(f, _);
        """)
        bindings, project = list(registry.bindings), F("project_id") + 0  # any number
        inside = Folder.objects.filter(name="other").values_list("pk", project)
        bind("is_inside(Folder:_, Folder:_)", inside.union(Folder.objects.values_list("pk", "parent_id")))
        try:
            for action, names in (("read", ["inner"]), ("edit", ["other", "top"]), ("move", ["inner", "other"])):
                folders = Folder.objects.filter(permitted(self.ann, action, Folder)).order_by("name")
                assert [folder.name for folder in folders] == names
                assert [f.name for f in Folder.objects.order_by("name") if authorize(self.ann, action, f)] == names
        finally:
            registry.bindings[:], registry.version = bindings, registry.version + 1

    def test_querysets_without_rows(self):
        """Django knows of them, and raises an error that `exclude` takes for "all rows"."""
        documents, bindings = Document.objects, list(registry.bindings)
        ids, none = documents.values_list("pk"), documents.filter(pk__in=[]).values_list("pk")
        for rows in (ids.none(), none, none.union(ids.filter(title="none")), ids.filter(pk__in=[], public=True)):
            bind("is_public(Document:_)", rows)
            for many in (5_000, 1):
                conditions._many.clear()
                with patch.object(conditions, "_MANY", many):
                    assert self.titles(documents.filter(self.may)) == self.readable
                    assert self.titles(documents.exclude(self.may)) == ["secret"]
            assert not authorize(self.ann, "read", self.secret)
            registry.bindings[:], registry.version = bindings, registry.version + 1

    def test_ids_that_no_row_has(self):
        facts.insert(("has_role", self.ann, "viewer", ("Document", "no number")))
        assert self.titles(Document.objects.filter(self.may)) == self.readable
        assert self.titles(Document.objects.exclude(self.may)) == ["secret"]
        assert [each.title for each in Document.objects.filter(~self.may)[:5]] == ["secret"]

    @engine_only
    def test_a_page_finds_what_its_rows_have_in_common_once(self):
        """Pages of few permitted rows, of many in few folders, and of many in many folders."""
        facts.insert(("has_role", self.ann, "viewer", self.top))
        statements = []
        for many in (5_000, 3, 1):
            conditions._many.clear()
            with patch.object(conditions, "_MANY", many), CaptureQueriesContext(connection) as queries:
                assert sorted(each.title for each in Document.objects.filter(self.may)[:3]) == self.readable
                assert [each.title for each in Document.objects.filter(~self.may)[:3]] == ["secret"]
            statements.append(queries[-1]["sql"])
        by_ids, by_folders, one_by_one = statements
        assert re.search(r'"documents_document"."id" IN \((SELECT unnest\(ARRAY\()?WITH', by_ids)
        assert by_folders.count("IN (SELECT o0 FROM r0)") == 1 and "r1" not in by_folders
        assert " IN (WITH" not in one_by_one and " IN (SELECT" not in one_by_one

    @engine_only
    @patch.object(conditions, "_MANY", 1)
    def test_many_rows_are_tested_by_their_own_columns(self):
        """Their table is read once, also by another alias; and a column without a value is no fact."""
        facts.insert(("has_role", self.ann, "viewer", self.secret))
        facts.insert(("has_role", self.ben, "viewer", self.other))
        for user, readable in ((self.ann, ["news", "old", "plan", "secret"]), (self.ben, ["news", "secret"])):
            may = permitted(user, "read", Document)
            with CaptureQueriesContext(connection) as queries:
                assert self.titles(Document.objects.filter(may)) == readable
            if connection.vendor == "postgresql":  # SQLite finds them sooner by their ids
                assert queries[-1]["sql"].count('FROM "documents_document"') == 1
            same = Document.objects.filter(may, pk=OuterRef("pk"))
            assert self.titles(Document.objects.filter(Exists(same))) == readable
            assert sorted(each.title for each in Document.objects.annotate(may=may) if each.may) == readable
            counted = Document.objects.annotate(comments=Count("comment"), may=may).order_by("title")
            assert [each.title for each in counted if each.may] == readable
            assert Document.objects.exclude(may).count() == Document.objects.filter(~may).count() == 4 - len(readable)
        folders = permitted(self.ben, "read", Folder)
        assert sorted(each.name for each in Folder.objects.filter(~folders)) == ["inner", "top"]
        assert [each.name for each in Folder.objects.filter(folders)] == ["other"]
        edited = permitted(self.ann, "edit", Document)
        assert self.titles(Document.objects.filter(edited)) == ["plan"]
        assert self.titles(Document.objects.filter(~edited)) == ["news", "old", "secret"]
        deleted = permitted(self.eve, "delete", Document)
        assert self.titles(Document.objects.filter(deleted)) == ["news", "secret"]
        assert self.titles(Document.objects.exclude(deleted)) == ["old", "plan"]

    @engine_only
    @patch.object(conditions, "_MANY", 1)
    def test_a_row_is_tested_by_a_not_that_reads_a_recursive_set(self):
        """The condition named a set that no WITH clause defined."""
        self.policy("""
            actor User {} resource Document { permissions = ["read"]; relations = { folder: Folder }; }
            resource Folder { relations = { parent: Folder }; } declare closed(User, Folder);
            has_permission(user: User, "read", d: Document) if has_relation(d, "folder", f) and not hidden(user, f);
            hidden(user: User, f: Folder) if closed(user, f);
            hidden(user: User, f: Folder) if has_relation(f, "parent", parent) and hidden(user, parent);
        """)
        facts.insert(("closed", self.ann, self.top))
        conditions._many.clear()
        assert self.titles(Document.objects.filter(self.may)) == ["news", "secret"]
        assert self.titles(Document.objects.exclude(self.may)) == ["old", "plan"]

    @engine_only
    def test_the_policy_is_that_of_the_statement(self):
        """A policy that is published after the SQL was made, and before it runs: an error, and no wrong answer."""
        for queryset in (Document.objects.filter(self.may), Document.objects.exclude(self.may)):
            failed = self.assertRaisesRegex((OperationalError, DataError), "malformed JSON|policy changed")
            with failed, transaction.atomic(), _published_meanwhile(self):
                list(queryset)

    @engine_only
    def test_a_rule_that_one_statement_cannot_say_is_refused(self):
        self.policy("""
            actor User {} resource Folder { permissions = ["read"]; relations = { parent: Folder, project: Folder }; }
            has_permission(u: User, "read", f: Folder) if left matches Folder and right matches Folder and
              has_relation(f, "parent", left) and has_relation(f, "project", right) and
              has_permission(u, "read", left) and has_permission(u, "read", right);
            has_permission(u: User, "read", f: Folder) if has_role(u, "viewer", f);
        """)
        facts.insert(("has_role", self.ben, "viewer", self.top))
        assert authorize(self.ben, "read", self.top)
        with self.assertRaisesRegex(NotSupportedError, "joins two of its own answers"):
            list(Folder.objects.filter(permitted(self.ben, "read", Folder)))

    def test_a_key_of_other_objects_is_an_error(self):
        """A row with the number of a document that may be read is not that document."""
        for may in (self.may, permitted(self.ann, "read", Document, column="author")):
            with self.assertRaisesRegex(FieldError, "no ids of Document"):
                list(Comment.objects.filter(may))
        assert Comment.objects.filter(permitted(self.ann, "read", Document, column="document_id")).count() == 0
        assert Comment.objects.filter(permitted(self.ann, "read", Folder, column="document__folder")).count() == 0

    def test_a_key_of_a_parent_is_no_key_of_a_child(self):
        """Another child of the parent has such a key, too."""
        with isolate_apps("documents"):

            class Report(Document):
                class Meta:
                    app_label = "documents"

            class Review(Model):
                document = ForeignKey(Document, CASCADE)
                report = ForeignKey(Report, CASCADE, related_name="+")

                class Meta:
                    app_label = "documents"

                def __str__(self):
                    return f"{self.pk}"

        self.policy("""
            actor User {} resource Document { permissions = ["read"]; } resource Report { permissions = ["read"]; }
            has_permission(_: User, "read", report: Report) if not is_secret(report);
        """)
        for rows, column in (Document.objects, "pk"), (Review.objects, "document"):
            with self.assertRaisesRegex(FieldError, "no ids of Report"):
                str(rows.filter(permitted(self.ann, "read", Report, column=column)).query)
        for model, column in (Report, "pk"), (Report, "document_ptr"), (Review, "report"):
            assert "WHERE" in str(model.objects.filter(permitted(self.ann, "read", Report, column=column)).query)
        self.addCleanup(registry.types.pop, Report)
        type_of(Report, column="id")  # the parent's, and so its own
        assert "WHERE" in str(Report.objects.filter(permitted(self.ann, "read", Report)).query)
        type_of(Report, column="title")
        with self.assertRaisesRegex(AuthzError, "the ids of Report are in `title`"):
            table_of(ModelBinding("reviewed(Report:_)", Review.objects.values_list("report"), ""))

    def test_texts_are_ids_as_they_are(self):
        """Whatever an expression makes of their case; and an empty one is none, nor what stands for every id."""
        self.policy("""
            actor User {} resource Tag { permissions = ["read"]; }
            has_permission(_: User, "read", tag: Tag) if not is_archived(tag);
        """)
        facts.insert(("is_archived", ("Tag", "a")))
        Tag.objects.bulk_create(Tag(name=name) for name in ("", "*", "a", "A"))
        collated = Collate("name", "nocase" if connection.vendor == "sqlite" else "C")
        for column in ("name", "collated"):
            may = permitted(self.ann, "read", Tag, column=column)
            tags = Tag.objects.annotate(collated=collated)
            assert [tag.name for tag in tags.filter(may)] == ["A"]
            assert sorted(tag.name for tag in tags.exclude(may)) == ["", "*", "a"]

    def test_the_condition_of_a_filtered_relation(self):
        """Django adds a join for the name of the relation, so that all its objects would be there."""

        def found(column):
            may = Q(permitted(self.ann, "read", Document, column=column))
            folders = Folder.objects.annotate(mine=FilteredRelation("document", condition=may))
            return sorted(folders.filter(mine__isnull=False).values_list("name", "mine__title"))

        assert found("document__pk") == [("inner", "plan"), ("other", "news"), ("top", "old")]
        with self.assertRaisesRegex(FieldError, "use column='document__pk'"):
            found("document")

    def test_an_aggregate_is_no_key(self):
        last = Folder.objects.annotate(last=Max("document"))
        with self.assertRaisesRegex(NotSupportedError, "cannot be compared with ids"):
            list(last.filter(permitted(self.ann, "read", Document, column="last")))

    def test_a_router_for_reads(self):
        """Bindings and users are read where they are written."""
        assert authorize(self.ann, "edit", self.plan)
        registry.version += 1
        router = type("Router", (), {"db_for_read": lambda self, model, **hints: "elsewhere"})()
        with override_settings(DATABASE_ROUTERS=[router]):
            assert who("edit", self.plan).get() == self.ann
            with self.assertRaisesRegex(AuthzError, "in the database `elsewhere`"):
                table_of(ModelBinding("is_public(Document:_)", Document.objects.using("elsewhere").values("pk"), ""))

    def test_a_row_is_about_one_action(self):
        self.policy("""
            actor User {} resource Folder { permissions = ["read", "edit"]; }
            declare tagged(String, Folder);
            has_permission(_: User, action: String, folder: Folder) if tagged(action, folder);
        """)
        bind("tagged(String:_, Folder:_)", lambda: Tag.objects.values_list("name", Value(self.inner.pk)))
        self.addCleanup(registry.bindings.pop)
        Tag.objects.bulk_create(Tag(name=name) for name in ("*", "read"))
        assert actions(self.ann, self.inner) == {"read"}
        assert not authorize(self.ann, "edit", self.inner)

    @skipIf(connection.vendor != "sqlite", "PostgreSQL has no NUL in texts, and a type for truth values")
    def test_values_of_sqlite(self):
        self.policy("""
            actor User {} resource Document { permissions = ["read", "edit"]; }
            declare flagged(Document, Boolean); declare named(Document);
            has_permission(_: User, "read", d: Document) if flagged(d, _) and not flagged(d, true);
            has_permission(_: User, "edit", d: Document) if named(d);
        """)
        bind("flagged(Document:_, Boolean:_)", Document.objects.values_list("pk", "public"))
        bind("named(Document:_)", Document.objects.filter(title="plan\0b").values_list("pk"))
        self.addCleanup(registry.bindings.pop)
        self.addCleanup(registry.bindings.pop)
        with connection.cursor() as cursor:
            cursor.execute("UPDATE documents_document SET public = 2 WHERE title = 'news'")
        assert not authorize(self.eve, "read", self.news)
        assert authorize(self.eve, "read", self.plan)
        assert self.titles(Document.objects.filter(permitted(self.eve, "read", Document))) == ["old", "plan", "secret"]
        assert not authorize(self.eve, "edit", self.plan)
        assert authorize(self.eve, "edit", self.document("plan\0b", folder=self.top))

    def test_a_collation_that_only_the_table_has(self):
        if connection.vendor == "postgresql":
            options = "provider = icu, locale = 'und-u-ks-level2', deterministic = false"
            self.executed(f"CREATE COLLATION nocase ({options})")
        self.bind_posts("text COLLATE nocase", ("a", "x"), ("A", "X"), ("b", "y"))
        assert authorize(("User", "x"), "read", ("Post", "x"))
        assert not authorize(("User", "x"), "read", ("Post", "X"))
        assert self.posts("X") == ["X"]

    def test_a_type_that_only_the_table_has(self):
        """To SQLite, a column of texts is of numbers if its type is called otherwise."""
        one, same = "7", "07"
        if connection.vendor == "postgresql":
            if not self.executed("SELECT 1 FROM pg_available_extensions WHERE name = 'citext'").fetchone():
                self.skipTest("this PostgreSQL has no citext")
            one, same = "a", "A"
            self.executed("CREATE EXTENSION IF NOT EXISTS citext")
        self.bind_posts("string" if connection.vendor == "sqlite" else "citext", (one, one), (same, same))
        assert authorize(("User", one), "read", ("Post", one))
        assert not authorize(("User", same), "read", ("Post", one))
        assert not authorize(("User", one), "read", ("Post", same))
        assert set(self.posts(one)) == {one}
        assert one not in self.posts(same)

    @skipIf(connection.vendor == "sqlite", "it has no DISTINCT ON")
    def test_an_order_that_decides_on_the_rows(self):
        for role in ("admin", "member"):
            Membership.objects.create(user=self.ben, organization=self.acme, role=role)
        self.policy("""
            actor User {} resource Organization { roles = ["member", "admin"]; permissions = ["read", "edit"];
            "read" if "member"; "edit" if "admin"; }
        """)
        latest = Membership.objects.order_by("user", "-pk").distinct("user")
        with patch.object(registry, "bindings", []):
            bind("has_role(User:_, String:_, Organization:_)", latest.values_list("user_id", "role", "organization_id"))
            assert actions(self.ben, self.acme) == {"read"}
        registry.version += 1

    def bind_posts(self, column, *rows):
        """Let posts have a team and a slug in columns that are declared like this, whatever the model says."""
        self.policy("""
            actor User {} resource Team {} resource Post { permissions = ["read"]; }
            declare joined(User, Team); declare posted(Team, Post);
            has_permission(user: User, "read", post: Post) if joined(user, team) and posted(team, post);
        """)
        with isolate_apps("documents"):

            class Post(Model):
                team = CharField(max_length=9)
                slug = CharField(max_length=9, unique=True)

                class Meta:
                    app_label = "documents"

                def __str__(self):
                    return self.slug

        key = "integer" if connection.vendor == "sqlite" else "serial"
        self.executed(f"CREATE TABLE documents_post (id {key} PRIMARY KEY, team {column}, slug {column})")
        for team, slug in rows:
            Post(team=team, slug=slug).save()
        type_of(Post, column="slug")
        self.addCleanup(registry.types.pop, Post)
        bind("posted(Team:_, Post:_)", Post.objects.values_list("team", "slug"))
        bind("joined(User:_, Team:_)", Post.objects.values_list("slug", "team"))
        self.addCleanup(registry.bindings.pop)
        self.addCleanup(registry.bindings.pop)
        self.post = Post

    def posts(self, user):
        may = permitted(("User", user), "read", self.post)
        return [str(slug) for slug in self.post.objects.filter(may).values_list("slug", flat=True)]

    def executed(self, sql):
        cursor = connection.cursor()
        cursor.execute(sql)
        return cursor

    def test_another_database_is_an_error(self):
        with self.assertRaisesRegex(NotSupportedError, "facts and policies are in"):
            str(Document.objects.using("elsewhere").filter(self.may).query.get_compiler("elsewhere").as_sql())


class OddModels(World, TestCase):
    """Checks and querysets agree, whatever the models look like. Who is banned must not pass."""

    def setUp(self):
        super().setUp()
        self.policy("""
            actor User {} resource Thing { permissions = ["read"]; } declare banned(Thing);
            has_permission(_: User, "read", thing: Thing) if not banned(thing);
        """)
        self.addCleanup(restore, *kept())

    def table(self, **columns):
        with isolate_apps("documents"):
            meta = type("Meta", (), {"app_label": "documents", **columns.pop("meta", {})})
            made = type("Thing", (Model,), {**columns, "__module__": __name__, "Meta": meta})
        editor = connection.SchemaEditorClass(connection)
        editor.deferred_sql = []
        sql, values = editor.table_sql(made)
        with connection.cursor() as cursor:
            cursor.execute(sql, values or None)
        return made

    def readable(self, model, column="pk"):
        """Return what may be read, by checks and by querysets."""
        may = permitted(self.ann, "read", model)
        allowed = {getattr(each, column) for each in model.objects.all() if authorize(self.ann, "read", each)}
        assert {*model.objects.filter(may).values_list(column, flat=True)} == allowed
        assert not {*model.objects.exclude(may).values_list(column, flat=True)} & allowed
        return allowed

    def test_fields_that_store_something_else(self):
        class Shifted(IntegerField):
            def get_prep_value(self, value):
                return super().get_prep_value(value) + 1000

            def from_db_value(self, value, *_):
                return value - 1000

        class Lower(CharField):
            def get_db_prep_value(self, value, connection, prepared=False):
                return super().get_db_prep_value(value, connection, prepared).lower()

        for number, (field, banned, other) in enumerate((
            (Shifted(primary_key=True), 5, 6), (Lower(max_length=9, primary_key=True), "ABC", "DEF"),
            (UUIDField(primary_key=True), 5, UUID(int=6)),
        )):  # fmt: skip
            model = self.table(id=field, meta={"db_table": f"documents_thing{number}"})
            one, another = model(pk=banned), model(pk=other)
            model.objects.bulk_create((one, another))
            bind("banned(Thing:_)", model.objects.filter(pk=banned).values_list("pk"))
            assert not authorize(self.ann, "read", one) and authorize(self.ann, "read", another)
            assert len(self.readable(model)) == 1
            registry.bindings.pop()

    def test_an_id_that_the_database_will_set(self):
        model = self.table(id=CharField(primary_key=True, max_length=9, db_default=Value("x")))
        with self.assertRaisesRegex(ValueError, "not saved"):
            authorize(self.ann, "read", model())

    def test_the_id_is_a_foreign_key(self):
        model = self.table(id=IntegerField(primary_key=True), user=ForeignKey(User, CASCADE, db_constraint=False))
        type_of(model, column="user")
        model.objects.bulk_create((model(id=7, user=self.ann), model(id=8, user=self.ben)))
        bind("banned(Thing:_)", model.objects.filter(id=7).values_list("user"))
        assert self.readable(model, "user_id") == {self.ben.pk}

    def test_uuids_in_another_form(self):
        class Dashed(UUIDField):
            def db_type(self, connection):
                return "char(36)"

        model = self.table(id=Dashed(primary_key=True))
        with self.assertRaisesRegex(AuthzError, "Dashed cannot be compared"):
            table_of(ModelBinding("banned(Thing:_)", model.objects.values_list("pk"), ""))

    def test_a_column_that_has_no_value_though_the_model_says_so(self):
        """The table was there before, or is a view."""
        with_null = self.table(id=IntegerField(primary_key=True), by=IntegerField(null=True))
        with_null.objects.bulk_create((with_null(id=1), with_null(id=2, by=7)))
        with isolate_apps("documents"):

            class Same(Model):
                by = IntegerField()

                class Meta:
                    app_label, db_table = "documents", with_null._meta.db_table

                def __str__(self):
                    return f"{self.pk}"

        self.policy("""
            actor User {} resource Thing { permissions = ["read"]; } declare banned(Thing, User);
            has_permission(_: User, "read", thing: Thing) if banned(thing, _);
        """)
        bind("banned(Thing:_, User:_)", Same.objects.values_list("pk", "by"))
        for many in (5_000, 1):
            conditions._many.clear()
            with patch.object(conditions, "_MANY", many):
                assert self.readable(with_null) == {2}

    @skipIf(connection.vendor != "sqlite", "columns of PostgreSQL hold what their types say")
    def test_columns_that_hold_something_else(self):
        """SQLite lets them: it is no id, whatever asks."""
        columns = {"number": IntegerField(), "truth": BooleanField(), "uuid": UUIDField()}
        self.policy("""
            actor User {} resource Thing { permissions = ["read"]; }
            declare number(Thing, User); declare truth(Thing, Boolean); declare uuid(Thing, User);
            has_permission(_: User, "read", t: Thing) if number(t, _) or truth(t, _) or uuid(t, _);
        """)
        for position, (name, field) in enumerate(columns.items()):
            of, table = "Boolean" if name == "truth" else "User", f"odd_{name}"
            model = self.table(id=IntegerField(primary_key=True), **{name: field}, meta={"db_table": table})
            bind(f"{name}(Thing:_, {of}:_)", model.objects.values_list("pk", name))
            with connection.cursor() as cursor:
                half = 1.5 if of == "User" else "'y'"
                odd = f"(1, 'x'), (2, {half}), (3, '{UUID(int=7)}')"
                cursor.execute(f"INSERT INTO {table} (id, {name}) VALUES {odd}")
            found = {each for each in (1, 2, 3, 4) if authorize(self.ann, "read", ("Thing", each))}
            assert found == set(), name
            model.objects.create(pk=4, **{name: (7, True, UUID(int=7))[position]})
            assert authorize(self.ann, "read", ("Thing", 4))
            model.objects.all().delete()

    @skipIf(connection.vendor != "sqlite", "PostgreSQL compares no text with a number")
    def test_numbers_in_a_column_of_another_type(self):
        for number, declared in enumerate(("varchar(9)", "real")):
            model = self.table(id=IntegerField(primary_key=True), by=IntegerField(), meta={"db_table": f"odd{number}"})
            with connection.cursor() as cursor:
                cursor.execute(f"DROP TABLE odd{number}")
                cursor.execute(f"CREATE TABLE odd{number} (id integer PRIMARY KEY, by {declared})")
            with self.assertRaisesRegex(AuthzError, "IntegerField cannot be compared"):
                table_of(ModelBinding("banned(User:_)", model.objects.values_list("by"), ""))
            table_of(ModelBinding("banned(Thing:_)", model.objects.values_list("id"), ""))

    @skipIf(connection.vendor != "postgresql", "SQLite fills nothing up with blanks")
    def test_texts_filled_up_with_blanks(self):
        model = self.table(id=CharField(max_length=5, primary_key=True))
        with connection.cursor() as cursor:
            cursor.execute(f"ALTER TABLE {model._meta.db_table} ALTER id TYPE char(5)")
        model.objects.bulk_create((model(pk="ab"), model(pk="cd")))
        bind("banned(Thing:_)", model.objects.filter(pk="ab").values_list("pk"))
        assert self.readable(model) == {"cd   "}

    def test_a_generic_foreign_key(self):
        """It has the same number for objects of several models."""
        self.policy("""
            actor User {} resource Document { permissions = ["read"]; }
            has_permission(_: User, "read", _: Document);
        """)
        model = self.table(
            content_type=ForeignKey(ContentType, CASCADE, null=True, db_constraint=False),
            object_id=IntegerField(),
            thing=GenericForeignKey(),
        )
        kinds = {each: ContentType.objects.get_for_model(each) for each in (Document, Folder)}
        rows = [model(content_type=each, object_id=self.plan.pk) for each in (*kinds.values(), None)]
        model.objects.bulk_create(rows)
        may = permitted(self.ann, "read", Document, column="object_id")
        assert [each.content_type for each in model.objects.filter(may)] == [kinds[Document]]
        assert [each.content_type for each in model.objects.exclude(may).order_by("pk")] == [kinds[Folder], None]

    def test_names_that_are_the_same_in_other_case(self):
        model = self.table(id=IntegerField(primary_key=True), other=IntegerField())
        model.objects.bulk_create((model(id=1, other=2), model(id=2, other=3)))
        self.policy("""
            actor User {} resource Thing { permissions = ["read"]; } declare banned(Thing, Thing);
            has_permission(_: User, "read", thing: Thing) if not banned(_, thing);
        """)
        named = model.objects.annotate(a=F("id"), A=F("other")).values_list("a", "A")
        bind("banned(Thing:_, Thing:_)", named)
        assert self.readable(model) == {1}

    def test_several_keys(self):
        model = self.table(pk=CompositePrimaryKey("a", "b"), a=IntegerField(), b=IntegerField())
        one, other = model.objects.create(a=1, b=2), model.objects.create(a=1, b=3)
        with self.assertRaisesRegex(TypeError, "not an id"):
            authorize(self.ann, "read", one)
        with self.assertRaisesRegex(ValueError, "composite primary keys"):
            list(model.objects.filter(permitted(self.ann, "read", model)))
        with self.assertRaisesRegex(AuthzError, "CompositePrimaryKey cannot be compared"):
            table_of(ModelBinding("banned(Thing:_)", model.objects.values_list("pk"), ""))
        type_of(model, column="b")
        bind("banned(Thing:_)", model.objects.filter(pk=(1, 2)).values_list("b"))
        assert authorize(self.ann, "read", other) and self.readable(model, "b") == {3}

    def test_names_of_tables_and_columns(self):
        model = self.table(
            id=CharField(primary_key=True, max_length=9, db_column="Odd Name"), meta={"db_table": '"odd table"'}
        )
        model.objects.bulk_create((model(pk="a"), model(pk="b")))
        bind("banned(Thing:_)", model.objects.filter(pk="a").values_list("pk"))
        assert self.readable(model) == {"b"}

    def test_a_generated_column(self):
        model = self.table(
            id=IntegerField(primary_key=True),
            key=GeneratedField(expression=F("id") + 1, output_field=IntegerField(), db_persist=True),
        )
        type_of(model, column="key")
        model.objects.bulk_create((model(id=1), model(id=2)))
        bind("banned(Thing:_)", model.objects.filter(id=1).values_list("key"))
        assert self.readable(model, "key") == {3}

    def test_a_collation_to_which_a_text_is_empty(self):
        collation = "RTRIM"
        if connection.vendor == "postgresql":
            collation, options = "ignoring", "provider = icu, locale = 'und-u-ka-shifted', deterministic = false"
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE COLLATION {collation} ({options})")
        model = self.table(id=CharField(primary_key=True, max_length=9, db_collation=collation))
        model.objects.bulk_create((model(pk=" "), model(pk="a"), model(pk="b")))
        bind("banned(Thing:_)", model.objects.exclude(pk="b").values_list("pk"))
        assert self.readable(model) == {"b"}

    @skipIf(connection.vendor != "sqlite", "PostgreSQL has no NUL in texts")
    def test_a_text_with_nul_is_no_id(self):
        model = self.table(id=CharField(primary_key=True, max_length=9))
        model.objects.bulk_create((model(pk="a\0b"), model(pk="b")))
        assert {*model.objects.filter(permitted(self.ann, "read", model))} == {model(pk="b")}
        with self.assertRaisesRegex(ValueError, "NUL"):
            authorize(self.ann, "read", model(pk="a\0b"))


@contextmanager
def _published_meanwhile(test):
    made = asking.condition_sql

    def settled(*args):
        found = made(*args)
        test.policy('actor User {} resource Document { permissions = ["read"]; }')
        return found

    with patch.object(asking, "condition_sql", settled):
        yield


@engine_only
class Policies(World, TestCase):
    def test_one_of_a_transaction_that_is_rolled_back_is_forgotten(self):
        """SQLite gives the numbers of rows that are rolled back again."""
        texts = [
            f'actor User {{}} resource Document {{}} has_permission(_: User, "{name}", _: Document);'
            for name in ("one", "two", "three")
        ]
        for text, name in zip(texts, ("one", "two", "three")):
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                self.policy(text)
                assert actions(self.ann, self.plan) == {name}
                assert Document.objects.filter(permitted(self.ann, name, Document)).count() == 4
                raise ZeroDivisionError
        assert actions(self.ann, self.plan) == {"read", "edit"}

    def test_explanations_after_one_that_is_rolled_back(self):
        for ask in (authorize, lambda *asked: explain(*asked).allowed):
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                self.policy("actor User {} resource Document {}")
                assert not authorize(self.ann, "edit", self.plan)
                raise ZeroDivisionError
            active._programs.clear()  # as those that are not used lately
            assert ask(self.ann, "edit", self.plan)

    def test_migrate_publishes_a_changed_file(self):
        version = PolicyVersion.objects.count()
        migrated(0)
        assert PolicyVersion.objects.count() == version
        with _policy_file('actor User {} resource Document { permissions = ["read"]; }'):
            assert [each.id for each in findings(["default"]) if each.id == "authz.W107"]
            migrated(0)
        assert PolicyVersion.objects.count() == version + 1
        failing = 'actor User {} test "t" { assert allow(User{"a"}, "read", User{"b"}); }'
        with _policy_file(failing), self.assertRaisesRegex(CommandError, "previous one"):
            migrated(0)
        with _policy_file("actor User {"), self.assertRaises(CommandError):
            migrated(0)
        assert PolicyVersion.objects.count() == version + 1

    def test_migrate_may_only_say_so(self):
        with _policy_file("actor User {}", PUBLISH_ON_MIGRATE=False), patch("builtins.print") as said:
            migrated(1)
        assert "differs" in said.call_args[0][0]
        assert actions(self.ann, self.plan) == {"read", "edit"}


@contextmanager
def _policy_file(text, **more):
    with NamedTemporaryFile("w", suffix=".polar") as file:
        file.write(text)
        file.flush()
        with override_settings(AUTHZ={**settings.AUTHZ, "POLICY": file.name, **more}):
            yield


class Projects(World, TestCase):
    """What Django has for permissions."""

    def test_views(self):
        for user, path, status in (
            (self.ann, f"/documents/{self.plan.pk}/", 200), (self.ann, f"/documents/{self.secret.pk}/", 403),
            (self.ann, "/documents/4711/", 404), (None, f"/documents/{self.secret.pk}/", 302),
        ):  # fmt: skip
            self.client.logout()
            if user:
                self.client.force_login(user)
            assert self.client.get(path).status_code == status, path

    def test_class_based_views(self):
        @requires("edit", Document, "number")
        class Editing(View):
            def get(self, request, number):
                return HttpResponse("edited")

        request = RequestFactory().get("/")
        request.user = self.ann
        assert Editing.as_view()(request, number=self.plan.pk).content == b"edited"
        with self.assertRaises(PermissionDenied):
            Editing.as_view()(request, number=self.old.pk)
        with self.assertRaises(TypeError):

            @requires("edit", Document)
            async def coroutine(request, pk): ...

    def test_permissions(self):
        assert self.ann.has_perm("documents.edit_document", self.plan)
        assert not self.ann.has_perm("documents.edit_document", self.old)
        assert not self.ann.has_perm("documents.edit_document")
        assert not self.ann.has_perm("other.edit_document", self.plan)
        assert not self.ann.has_perm("documents._document", self.plan)
        with override_settings(AUTHZ={**settings.AUTHZ, "PERMISSIONS": {"change": "edit"}}):
            assert self.ann.has_perm("documents.change_document", self.plan)
        self.ann.is_active = False
        assert not PermissionBackend().has_perm(self.ann, "documents.edit_document", self.plan)

    def test_permissions_in_asynchronous_code(self):
        has_perm = async_to_sync(self.ann.ahas_perm)
        assert has_perm("documents.edit_document", self.plan)
        assert not has_perm("documents.edit_document", self.old) and not has_perm("documents.edit_document")

    def test_the_template_tag(self):
        template = Template('{% load authz %}{% may user "edit" document as ok %}{{ ok }}')
        assert template.render(Context({"user": self.ann, "document": self.plan})) == "True"
        assert template.render(Context({"user": self.ben, "document": self.plan})) == "False"

    def test_rest_framework(self):
        self.client.force_login(self.ann)
        listed = self.client.get("/api/documents/").json()
        assert sorted(each["title"] for each in listed) == ["news", "old", "plan"]
        assert self.client.get(f"/api/documents/{self.secret.pk}/").status_code == 404
        patched = {"content_type": "application/json", "data": {"title": "new"}}
        assert self.client.patch(f"/api/documents/{self.plan.pk}/", **patched).status_code == 200
        assert self.client.patch(f"/api/documents/{self.news.pk}/", **patched).status_code == 403
        assert self.client.delete(f"/api/documents/{self.plan.pk}/").status_code == 403
        for folder, status in ((self.inner.pk, 201), (self.other.pk, 403), (4711, 403), ("x", 403)):
            made = {"title": "made", "text": "x", "folder": folder}
            assert self.client.post("/api/documents/", made).status_code == status
        for body in ("[]", "7", '{"folder": [1]}', '{"folder": 1e400}', '{"folder": "\\u0000"}'):
            assert self.client.post("/api/documents/", body, content_type="application/json").status_code == 403

    def test_rest_framework_changes_nothing_without_an_object(self):
        """An action that is no tuple is about the object: it is not there yet, or the address names none."""

        class Creating(CreateAPIView):
            queryset, serializer_class, permission_classes = Document.objects.all(), DocumentSerializer, [Permitted]
            authentication_classes, permitted_actions = [], {"POST": "edit", "create": "edit"}

        data = {"title": "made", "text": "x", "folder": self.inner.pk}
        request = APIRequestFactory().post("/", data)
        for view in (Creating.as_view(), type("V", (Creating, ModelViewSet), {}).as_view({"post": "create"})):
            force_authenticate(request, self.ann)
            assert view(request).status_code == 403
            assert view(request, pk=self.inner.pk).status_code == 403  # the key of a folder
        assert not Document.objects.filter(title="made").exists()

    def test_rest_framework_takes_head_for_get(self):
        class Shown(RetrieveAPIView):
            queryset, serializer_class, permission_classes = Document.objects.all(), DocumentSerializer, [Permitted]
            authentication_classes, permitted_actions = [], {"GET": "edit"}

        for document, status in ((self.plan, 200), (self.news, 403)):  # which may be read
            for request in (APIRequestFactory().get("/"), APIRequestFactory().head("/")):
                force_authenticate(request, self.ann)
                assert Shown.as_view()(request, pk=document.pk).status_code == status

    def test_rest_framework_lists_nothing_without_its_filter(self):
        class Listed(ListAPIView):
            queryset, serializer_class, permission_classes = Document.objects.all(), DocumentSerializer, [Permitted]

        request, views = APIRequestFactory().get("/"), type("Views", (Listed, ModelViewSet), {})
        force_authenticate(request, self.ann)
        others = views.as_view({"get": "list"}), views.as_view({"get": "retrieve"}, detail=False)
        for view in (Listed.as_view(), *others):
            with self.assertRaisesRegex(ImproperlyConfigured, "add PermittedFilter"):
                view(request, pk=self.plan.pk)
        assert views.as_view({"get": "retrieve"})(request, pk=self.plan.pk).status_code == 200
        Listed.filter_backends = [PermittedFilter]
        for view in (Listed.as_view(), views.as_view({"get": "list"})):
            assert len(view(request).data) == 3

    def test_rest_framework_denies_actions_of_lists(self):
        class Clearing(ModelViewSet):
            permission_classes, authentication_classes, permitted_actions = [Permitted], [], {"clear": "delete"}

            @action(detail=False, methods=["post"])
            def clear(self, request):
                raise AssertionError

        request = APIRequestFactory().post("/", {})
        force_authenticate(request, self.ann)
        assert Clearing.as_view({"post": "clear"}, **Clearing.clear.kwargs, detail=False)(request).status_code == 403

    def test_the_admin(self):
        self.ben.is_staff = True
        self.ben.save()
        facts.insert(("has_role", self.ben, "editor", self.inner))
        self.client.force_login(self.ben)
        listed = self.client.get("/admin/documents/document/").content.decode()
        assert "plan" in listed and "secret" not in listed and "news" in listed
        page = "/admin/documents/document/{}/change/"
        assert self.client.get(page.format(self.plan.pk)).status_code == 200
        assert self.client.get(page.format(self.secret.pk)).status_code == 302  # not found: back to the index
        assert 'name="_save"' not in self.client.get(page.format(self.news.pk)).content.decode()
        assert self.client.post(page.format(self.news.pk), {"title": "x"}).status_code == 403
        chosen = {"action": "delete_selected", "_selected_action": [self.plan.pk, self.news.pk], "post": "yes"}
        assert self.client.post("/admin/documents/document/", chosen).status_code == 403
        assert Document.objects.filter(pk__in=[self.plan.pk, self.news.pk]).count() == 2

    def test_actions_of_the_admin_need_their_permission_on_each_object(self):
        @admin.action(permissions=["change"])
        def retitle(modeladmin, request, queryset):
            queryset.update(title="changed")

        self.ben.is_staff = True
        self.ben.save()
        facts.insert(("has_role", self.ben, "editor", self.inner))
        self.client.force_login(self.ben)
        with patch.object(admin.site._registry[Document], "actions", [retitle]):
            for chosen, more, status in (
                ([self.plan, self.news], {}, 403), ([self.news], {"action": ["retitle", ""]}, 403),
                ([self.plan], {"select_across": "1"}, 403), ([self.plan], {"select_across": "true"}, 403),
                ([self.plan], {}, 302),
            ):  # fmt: skip
                form = {"action": "retitle", "index": "0", "_selected_action": [each.pk for each in chosen], **more}
                assert self.client.post("/admin/documents/document/", form).status_code == status
        assert list(Document.objects.filter(title="changed")) == [self.plan]

    def test_an_inline_of_the_admin_is_refused(self):
        """Who may edit the document could edit all of its comments."""
        with self.assertRaisesRegex(TypeError, "Comments: an inline cannot check its rows"):
            type("Comments", (PermittedAdmin, admin.TabularInline), {"model": Comment})

    @patch.object(admin.site._registry[Document], "list_editable", ["public"])
    def test_the_admin_edits_lists(self):
        self.ben.is_staff = True
        self.ben.save()
        facts.insert(("has_role", self.ben, "editor", self.inner), ("has_role", self.ben, "viewer", self.other))
        self.client.force_login(self.ben)
        for document, status in ((self.secret, 403), (self.plan, 302)):
            form = {"form-TOTAL_FORMS": 1, "form-INITIAL_FORMS": 1, "form-0-id": document.pk, "form-0-public": "on"}
            changed = self.client.post("/admin/documents/document/", {**form, "_save": "Save"})
            assert changed.status_code == status
            assert Document.objects.get(pk=document.pk).public == (status == 302)

    def test_the_admin_changes_ids(self):
        """What counts is the object as it is stored, not as the form would have it."""
        self.policy("""
            actor User {} resource Document { permissions = ["read", "edit"]; }
            declare locked(Document); declare known(Document);
            has_permission(_: User, "read", _: Document);
            has_permission(_: User, "edit", d: Document) if known(d) or (not known(d) and not locked(d));
        """)
        self.addCleanup(restore, *kept())
        type_of(Document, column="title")
        registry.bindings.clear()
        facts.insert(("locked", self.plan), ("known", self.news))
        self.ben.is_staff = True
        self.ben.save()
        self.client.force_login(self.ben)
        admin_of_documents = admin.site._registry[Document]
        lists = {"list_display": ["pk", "title"], "list_editable": ["title"]}
        for document, status in ((self.plan, 403), (self.news, 302)):
            form = {"form-TOTAL_FORMS": 1, "form-INITIAL_FORMS": 1, "form-0-id": document.pk, "form-0-title": "new"}
            with patch.multiple(admin_of_documents, **lists):
                changed = self.client.post("/admin/documents/document/", {**form, "_save": "Save"})
            assert changed.status_code == status
        facts.insert(("locked", ("Document", "newer")), ("known", ("Document", "new")))
        form = {"title": "newer", "text": "x", "folder": self.inner.pk, "author": self.ben.pk}
        assert self.client.post(f"/admin/documents/document/{self.news.pk}/change/", form).status_code == 302
        assert self.titles(Document.objects.all()) == ["newer", "old", "plan", "secret"]

    def test_assertions_say_why(self):
        self.assert_allowed(self.ann, "edit", self.plan)
        self.assert_denied(self.ben, "edit", self.plan)
        with self.assertRaisesRegex(AssertionError, "should be allowed:\ndenied"):
            self.assert_allowed(self.ben, "edit", self.plan)
        with self.assertRaisesRegex(AssertionError, "should be denied:\nallowed"):
            self.assert_denied(self.ann, "edit", self.plan)

    def test_bindings_for_other_programs(self):
        from localsql.bindings import bindings_from_text

        out = io.StringIO()
        call_command("authz_bindings", stdout=out)
        found = bindings_from_text(out.getvalue())
        assert len(found.facts) == len(registry.bindings) == len(yaml.safe_load(out.getvalue())["facts"])

    def test_only_authz_is_read_of_the_settings(self):
        with override_settings(STATEMENT_TIMEOUT="nonsense", REPLICAS=None, MAX_DELETE_MATCHES="x", POLICY=1, ADMIN=1):
            assert authorize(self.ann, "edit", self.plan)
            assert facts.delete(("has_role", self.ann, None, Folder)) == 0


class Page(World, TestCase):
    """The samples of the page about Django."""

    def test_the_samples_run(self):
        page = (Path(localsql.__file__).parent.parent / "authz_project" / "docs" / "django.md").read_text()
        names = {
            "user": self.ann, "document": self.plan, "folder": self.inner, "Comment": Comment,
            "INSTALLED_APPS": [], "BASE_DIR": settings.BASE_DIR, "__name__": "documents.samples",
        }  # fmt: skip
        settings_of_samples = []
        kept = list(registry.bindings)
        blocks = re.findall(r"^```(\w+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        registry.bindings.clear()  # only those of the page are to count
        (policy,) = (text for language, text in blocks if language == "polar")
        self.policy(policy)
        for language, text in blocks:
            if language == "python":
                with patch.dict(os.environ, AUTHZ_KEY="a key"):
                    exec(text, names)
                settings_of_samples.append(names.pop("AUTHZ", {}))
            elif language == "django":
                assert "Edit" in Template(text).render(Context({"user": self.ann, "document": self.plan}))
        assert len(registry.bindings) == 8
        if not settings.AUTHZ.get("URL"):
            with _policy_file(policy):
                assert [each.msg for each in findings(None)] == []
        assert [each for each in settings_of_samples if each] == [
            {"POLICY": settings.BASE_DIR / "policy.polar"}, {"URL": "https://authz.example.org", "KEY": "a key"},
        ]  # fmt: skip
        assert set(names["DocumentForm"](self.ann).fields["folder"].queryset) == {self.top, self.inner}
        names["Access"]("test_viewers_read").test_viewers_read()
        registry.bindings[:], registry.version = kept, registry.version + 1


class OtherApps(World, TestCase):
    """The project has apps whose labels, and a model whose name, are like those of the engine's apps and models."""

    def test_both_have_their_own(self):
        OwnSignature, OwnEnvironment = (apps.get_model(name) for name in ("facts.Signature", "policy.Environment"))
        assert OwnSignature._meta.db_table == "facts_signature" and apps.get_model("authz_facts.Signature") is Signature
        OwnSignature.objects.create(text="own")
        OwnEnvironment.objects.create(text="own")
        facts.insert(("has_role", self.ben, "viewer", self.other))
        assert authorize(self.ben, "read", self.secret)
        assert OwnSignature.objects.count() == OwnEnvironment.objects.count() == 1

    def test_objects_of_both_are_not_the_same(self):
        self.addCleanup(restore, *kept())
        self.policy("""
            actor User {} resource Signature { permissions = ["read"]; }
            has_permission(_: User, "read", _: Signature);
        """)
        own, other = apps.get_model("facts.Signature")(pk=1), Signature(pk=1)
        for each in (own, other):
            with self.assertRaisesRegex(ImproperlyConfigured, "have the same type"):
                authorize(self.ann, "read", each)
        type_of(type(own))
        assert authorize(self.ann, "read", own) and not authorize(self.ann, "read", other)
        assert not self.ann.has_perm("authz_facts.read_signature", other)
        assert "WHERE" in str(type(own).objects.filter(permitted(self.ann, "read", type(own))).query)
        type_of(Signature, "Other")
        registry.types.pop(type(own))
        assert authorize(self.ann, "read", own) and not authorize(self.ann, "read", other)

    def test_a_type_that_is_the_name_of_another_model(self):
        """A comment with the number of a document would be that document."""
        self.addCleanup(restore, *kept())
        type_of(Comment, "Document")
        with self.assertRaisesRegex(ImproperlyConfigured, "documents.Comment have the same type"):
            authorize(self.ann, "read", self.plan)
        type_of(Document)  # both are meant
        assert authorize(self.ann, "read", self.plan) and authorize(self.ann, "read", Comment(pk=self.plan.pk))

    def test_permissions_are_of_one_of_them(self):
        self.ben.user_permissions.add(Permission.objects.get(content_type__app_label="facts", codename="add_signature"))
        ben = User.objects.get(pk=self.ben.pk)
        assert ben.has_perm("facts.add_signature") and not ben.has_perm("authz_facts.add_signature")

    @engine_only
    def test_both_have_migrations(self):
        applied = MigrationRecorder(connection).applied_migrations()
        assert {name for label, name in applied if label == "facts"} == {"0001_initial"}
        assert {"0001_initial", "0007_delete_fact"} <= {name for label, name in applied if label == "authz_facts"}


@engine_only
class SystemChecks(World, TestCase):
    def found(self):
        return {each.id: each.msg for each in run_checks(tags=["authz"], databases=["default"])}

    def setUp(self):
        super().setUp()
        self.addCleanup(restore, *kept())

    def test_the_example_has_none(self):
        assert self.found() == {}

    def test_bindings(self):
        bind("is_public(Document:_)", Document.objects.values_list("changed"))
        assert "cannot be compared exactly" in self.found()["authz.E103"]
        for text, columns, said in (
            ("is_public(Document:_)", ("pk", "title"), "2 columns"), ("is_public(Document:_", ("pk",), "expected"),
            ("is_public(Document:_)", ("public",), "boolean"), ("count(Integer:_)", ("title",), "Integer"),
        ):  # fmt: skip
            registry.bindings.pop()
            bind(text, Document.objects.values_list(*columns))
            assert said in self.found()["authz.E103"], self.found()
        registry.bindings.pop()
        bind("tagged(Document:_, Tag:_)", Document.objects.values_list("pk", Value("a", output_field=JSONField())))
        assert "JSONField cannot be compared" in self.found()["authz.E103"]
        registry.bindings.pop()
        bind("is_publik(Document:_)", Document.objects.values_list("pk"))
        assert "is_public" in self.found()["authz.W104"] and "wiki.py" in self.found()["authz.W104"]
        registry.bindings.pop()
        bind("has_relation(Document:_, foldr, Folder:_)", Document.objects.values_list("pk", "folder_id"))
        assert "unknown relation of Document: `foldr` (did you mean `folder`?)" in self.found()["authz.W104"]

    def test_a_name_of_two_models(self):
        bind("signed(Signature:_)", lambda: Signature.objects.values_list("pk"))
        assert "have the same type" in self.found()["authz.E103"]

    def test_a_key_that_is_no_id(self):
        """A user named `1` would have the roles of the user whose key is 1."""
        type_of(User, column="username")
        assert "the ids of User are in `username`" in self.found()["authz.E103"]
        for binding in [each for each in registry.bindings if "User" in each.text]:
            registry.bindings.remove(binding)
        bind("has_relation(Document:_, author, User:_)", Document.objects.values_list("pk", "author__username"))
        assert self.found() == {}
        bind("has_relation(Folder:_, parent, Folder:_)", Folder.objects.values_list("parent_id", "project_id"))
        assert "Folder.project has keys of Project, not of Folder" in self.found()["authz.E103"]

    def test_types(self):
        type_of(Comment, "Documnt")
        assert "no type `Documnt`" in self.found()["authz.W105"]
        type_of(Document, column="changed")
        assert "authz.E106" in self.found()

    def test_policies(self):
        with _policy_file("actor User {"):
            assert "does not compile" in self.found()["authz.E102"]

    def test_other_databases(self):
        with patch.object(connection, "vendor", "mysql"):
            assert self.found() == {"authz.E101": "mysql is not supported"}


class OutsideOfTransactions(World, TransactionTestCase):
    """Flushes the database, and so makes the environment anew."""

    def setUp(self):
        super().setUp()
        self.addCleanup(facts.delete, ("has_role", None, None, None), ("is_public", None))

    def test_facts_of_their_own_transaction(self):
        facts.insert(("has_role", self.ben, "viewer", self.other))
        assert authorize(self.ben, "read", self.secret)
        assert facts.delete(("has_role", self.ben, None, None)) == 1
        assert self.titles(Document.objects.filter(permitted(self.ben, "read", Document))) == ["news"]

    def test_the_same_again(self):
        self.test_facts_of_their_own_transaction()

    def test_a_whole_transaction_is_rolled_back(self):
        authorize(self.eve, "edit", self.secret)
        with self.assertRaises(ZeroDivisionError), transaction.atomic():
            facts.insert(("has_role", self.eve, "viewer", self.project), ("is_public", self.secret))
            assert authorize(self.ann, "read", self.secret)
            raise ZeroDivisionError
        assert not authorize(self.ann, "read", self.secret)
        facts.insert(("has_role", self.ben, "viewer", self.project))
        assert authorize(self.ben, "read", self.plan) and not authorize(self.eve, "read", self.plan)

    @engine_only
    def test_pages_of_the_admin(self):
        if not settings.AUTHZ.get("ADMIN"):
            self.skipTest("the project has none")
        User.objects.create_superuser("root", password="x")
        self.client.login(username="root", password="x")
        facts.insert(("has_role", self.ben, "viewer", self.project))
        chosen = f"?environment=default&type=User&id={self.ben.pk}&may=Document&action=read"
        found, left = {}, ["/admin/", f"/admin/authz_facts/signature/value/{chosen}"]
        for here in left:  # grows: one link to each page
            page = self.client.get(here)
            assert page.status_code == 200, (page.status_code, here)
            found[here.partition("?")[0]] = here
            text = "" if page.streaming else page.content.decode()
            for link in [urljoin(here, unescape(link)) for link in re.findall(r'<a [^>]*href="([^"#]+)', text)]:
                if "/authz_" in link and link.partition("?")[0] not in {each.partition("?")[0] for each in left}:
                    left.append(link)
        for one in (
            "facts/signature/",
            "facts/signature/history/",
            "facts/signature/value/history/",
            "policy/policyversion/",
        ):
            assert f"/admin/authz_{one}" in found
        assert [each for each in found if each.endswith("/ask/")]
        assert self.client.get("/admin/facts/signature/").context["cl"].model is apps.get_model("facts.Signature")
