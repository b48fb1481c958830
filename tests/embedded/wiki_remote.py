"""Tests of the example project with a server (`remote_settings`), run by its own `manage.py test`."""

import io
import logging
from threading import Thread
from unittest.mock import patch
from urllib.parse import urlsplit

import yaml
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase, override_settings
from documents.models import Document, Folder

from localsql.bindings import bindings_from_text
from localsql.django import authorize, bind, explain, facts, permitted, remote, who
from localsql.django.bindings import registry
from policy.errors import AuthzError
from tests.embedded import wiki
from tests.postgresql import free_port


def waiting() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM authz_outbox")
        return cursor.fetchone()[0]


def stored(*parts: str) -> list[dict]:
    return remote.call(f"/facts?{'&'.join(parts)}")


class Remote(wiki.World):
    def setUp(self):
        super().setUp()
        self.addCleanup(remote.call, "/clear_data", {})
        self.addCleanup(remote.drain)
        self.share = ("has_role", self.ben, "viewer", self.other)


class Outbox(Remote, TransactionTestCase):
    def test_a_commit_sends_changes_in_order(self):
        with transaction.atomic():
            facts.insert(self.share)
            assert facts.delete(self.share) == 1
            facts.insert(self.share, ("is_archived", self.news))
            assert waiting() == 3 and stored() == []
            assert authorize(self.ben, "read", self.secret)
        assert waiting() == 0 and len(stored()) == 2
        assert authorize(self.ben, "read", self.secret)
        assert self.ben in who("read", self.secret)

    def test_a_rollback_sends_nothing(self):
        with transaction.atomic():
            with self.assertRaises(ZeroDivisionError), transaction.atomic():
                facts.insert(self.share)
                assert authorize(self.ben, "read", self.secret)
                raise ZeroDivisionError
            assert not authorize(self.ben, "read", self.secret)
            point = transaction.savepoint()
            facts.insert(self.share)
            transaction.savepoint_rollback(point)
            assert not authorize(self.ben, "read", self.secret)
        assert waiting() == 0 and stored() == []

    def test_what_a_server_that_cannot_be_reached_missed_is_sent_before_the_next_question(self):
        with self.assertLogs("django.db.backends.base", "ERROR") as logged, transaction.atomic():
            facts.insert(self.share)
            unreachable = override_settings(AUTHZ={**settings.AUTHZ, "URL": f"http://127.0.0.1:{free_port()}"})
            unreachable.enable()
        try:
            assert waiting() == 1
            for ask in (
                lambda: authorize(self.ann, "edit", self.plan),
                lambda: list(Document.objects.filter(permitted(self.ann, "edit", Document))),
            ):
                with self.assertRaises(remote.ServerUnreachable) as raised:
                    ask()
                assert settings.AUTHZ["KEY"] not in str(raised.exception) + "".join(logged.output)
        finally:
            unreachable.disable()
        assert authorize(self.ben, "read", self.secret) and waiting() == 0

    def test_what_others_left_counts_inside_of_a_transaction(self):
        with patch.object(remote, "drain"):
            facts.insert(self.share)
        with transaction.atomic():
            assert waiting() == 1
            assert authorize(self.ben, "read", self.secret)
        with transaction.atomic():
            assert facts.delete(self.share) == 1
        assert waiting() == 0 and not authorize(self.ben, "read", self.secret)

    def test_a_change_is_applied_once_although_its_response_is_lost(self):
        sent, call = [], remote.call

        def lost(path, body=None, key=""):
            found = call(path, body, key)
            if key:
                sent.append(key)
                raise remote.ServerUnreachable("lost")
            return found

        with patch.object(remote, "call", lost), self.assertLogs("django.db.backends.base", "ERROR"):
            facts.insert(self.share)
        remote.call("/batch", [{"deletes": [{"predicate": "has_role", "args": [None, None, None]}]}])
        out = io.StringIO()
        call_command("authz_drain", stdout=out)
        assert len(sent) == 1 and waiting() == 0
        assert stored() == [] and "1 change sent" in out.getvalue()

    def test_one_that_the_server_rejects_blocks_the_others(self):
        with connection.cursor() as cursor:
            cursor.execute(
                """INSERT INTO authz_outbox (changes) VALUES ('[{"inserts": [{"predicate": "nonsense", "args":
                [{"type": "User", "id": "1"}]}], "key": "1"}]')"""
            )
        for ask in (lambda: authorize(self.ann, "edit", self.plan), lambda: call_command("authz_drain")):
            with self.assertRaisesRegex((AuthzError, CommandError), "--skip-bad"):
                ask()
        skipped = io.StringIO()
        call_command("authz_drain", "--skip-bad", stdout=io.StringIO(), stderr=skipped)
        assert "nonsense" in skipped.getvalue() and waiting() == 0
        assert authorize(self.ann, "edit", self.plan)

    def test_a_question_after_the_deletion_of_a_stored_fact_waits_for_the_commit(self):
        facts.insert(self.share)
        with transaction.atomic():
            facts.delete(self.share)
            with self.assertRaisesRegex(AuthzError, "after the commit"):
                authorize(self.ben, "read", self.secret)
        assert not authorize(self.ben, "read", self.secret)


class Questions(Remote, TestCase):
    def setUp(self):
        super().setUp()
        kept = list(registry.bindings)
        self.addCleanup(lambda: (registry.bindings.__setitem__(slice(None), kept), self.changed()))

    def changed(self):
        registry.version += 1

    def test_percent_signs(self):
        odd = self.document("100%s", folder=self.other)
        bind("is_public(Document:_)", Document.objects.filter(title__contains="0%s").values_list("pk"))
        assert authorize(self.eve, "read", odd) and not authorize(self.eve, "read", self.secret)
        readable = Document.objects.filter(permitted(self.eve, "read", Document), title__contains="%")
        assert self.titles(readable) == ["100%s"]
        strange = "50% %s %(a)s"
        facts.insert(("has_role", ("User", strange), "viewer", self.other))
        assert self.titles(Document.objects.filter(permitted(("User", strange), "read", Document))) == [
            "100%s", "news", "secret",
        ]  # fmt: skip

    def test_a_fact_bound_twice(self):
        assert not authorize(self.eve, "read", self.secret)
        bind("is_public(Document:_)", Document.objects.filter(title="secret").values_list("pk"))
        assert authorize(self.eve, "read", self.secret) and authorize(self.eve, "read", self.news)

    def test_constants_that_need_quotes(self):
        bind('has_role(Team:_, "viewer, editor", Folder:_)', Folder.objects.values_list("project__team", "pk"))
        bind('has_role(Folder:_, "_", Folder:_)', Folder.objects.values_list("pk", "pk"))
        found = bindings_from_text(yaml.safe_dump(remote.document())).facts
        assert {"viewer, editor", "_"} <= {constant for each in found for constant in each.key.constants}
        assert authorize(self.ann, "edit", self.plan)

    def test_nobody_in_particular(self):
        assert authorize(AnonymousUser(), "read", self.news)
        assert not authorize(AnonymousUser(), "read", self.secret)
        found = Document.objects.filter(permitted(AnonymousUser(), "read", Document))
        assert self.titles(found) == ["news"]

    def test_explanations_have_rows_and_stored_facts(self):
        facts.insert(("has_role", self.ben, "viewer", self.top))
        text = str(explain(self.ben, "read", self.plan))
        assert "has_relation(Document:" in text and "  row" in text and text.startswith("allowed")
        assert str(explain(self.eve, "read", self.plan)).startswith("denied")

    def test_a_thread_keeps_its_connection(self):
        authorize(self.ann, "edit", self.plan)
        _, kept = remote._thread.kept
        authorize(self.ann, "edit", self.plan)
        assert remote._thread.kept[1] is kept
        kept.sock.shutdown(2)  # as a server does to one that was idle
        assert authorize(self.ann, "edit", self.plan)
        seen = []
        thread = Thread(target=lambda: seen.append(getattr(remote._thread, "kept", None)))
        thread.start()
        thread.join()
        assert seen == [None]

    def test_no_other_server_or_key(self):
        address = urlsplit(settings.AUTHZ["URL"])
        for entries, error in (
            ({"KEY": "e_wrong"}, remote.ServerRefused), ({"KEY": "two\nlines"}, ImproperlyConfigured),
            ({"KEY": ""}, ImproperlyConfigured), ({"URL": f"ftp://{address.netloc}"}, ImproperlyConfigured),
            ({"URL": f"http://{address.netloc}/elsewhere"}, (remote.ServerRefused, remote.ServerUnreachable)),
        ):  # fmt: skip
            with override_settings(AUTHZ={**settings.AUTHZ, **entries}), self.assertRaises(error) as raised:
                authorize(self.ann, "edit", self.plan)
            assert (entries.get("KEY") or "no key") not in str(raised.exception)

    def test_the_key_is_not_logged(self):
        with self.assertLogs(level=logging.DEBUG) as logged:
            logging.debug("something")
            authorize(self.ann, "edit", self.plan)
        assert settings.AUTHZ["KEY"] not in "".join(logged.output)


class Checks(Remote, TestCase):
    def found(self, databases=(), **entries):
        with override_settings(AUTHZ={**settings.AUTHZ, **entries}):
            return {each.id: each.msg for each in remote.findings(databases)}

    def test_the_example_has_none(self):
        assert self.found(["default"]) == {}

    def test_settings(self):
        assert "KEY" in self.found(KEY="")["authz.E108"]
        assert "POLICY" in self.found(POLICY="policy.polar")["authz.E109"]
        assert "not encrypted" in self.found(URL="http://authz.example.org")["authz.W111"]
        assert "ADMIN" in self.found(ADMIN=True)["authz.E109"]

    def test_the_server(self):
        wrong = {"KEY": "e_wrong"}
        assert self.found(**wrong) == {}
        assert "401" in self.found(["default"], **wrong)["authz.W110"]
        assert "did not answer" in self.found(["default"], URL=f"http://127.0.0.1:{free_port()}")["authz.W110"]

    def test_a_binding_without_use(self):
        kept = list(registry.bindings)
        try:
            bind("is_publik(Document:_)", Document.objects.values_list("pk"))
            assert "is_public" in self.found(["default"])["authz.W104"]
        finally:
            registry.bindings[:], registry.version = kept, registry.version + 1
