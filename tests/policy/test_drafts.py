"""Drafts that are saved, discarded and published at the same time, over both databases."""

import threading
from contextlib import closing

import pytest
from django.db import connection

from policy import publishing
from policy.models import PolicyDraft
from policy.publishing import DraftText
from tests.policy.test_admin import EDITOR
from tests.policy.test_editor import Writer
from tests.policy.test_publishing import OTHER, POLICY, tests_pass  # noqa: F401  a fixture


@pytest.fixture
def writer(db) -> Writer:
    return Writer("view", "add")


class Interrupted:
    """Lets another act begin in the middle of something, on a connection of its own.

    It is done by then, or waits for a lock of what it interrupts.
    """

    def __init__(self, act) -> None:
        self.act = act
        self.thread = None

    def __call__(self) -> None:
        if self.thread is None:
            self.thread = threading.Thread(target=self._run)
            self.thread.start()
            self.thread.join(1)

    def _run(self) -> None:
        with closing(connection):
            self.act()

    def end(self) -> None:
        self.thread.join(30)
        assert not self.thread.is_alive()


def before_saving(monkeypatch, begin: Interrupted) -> None:
    """Interrupt once a draft was looked for, before it is saved."""
    looked = publishing.is_active

    def then_begin(*args):
        found = looked(*args)
        begin()
        return found

    monkeypatch.setattr(publishing, "is_active", then_begin)


def before_deleting(begin: Interrupted):
    def execute_later(execute, sql, params, many, context):
        if sql.startswith("DELETE") and "policy_draft" in sql:
            begin()
        return execute(sql, params, many, context)

    return connection.execute_wrapper(execute_later)


def saved(writer: Writer, environment, text: str, stamp: int | None = None) -> PolicyDraft | None:
    return publishing.keep(writer.user, environment, DraftText(text, "", None), stamp)


def kept_texts() -> list[str]:
    return [draft.source for draft in PolicyDraft.objects.all()]


def test_of_two_first_saves_at_once_the_second_is_told_of_the_first(environment, writer, monkeypatch):
    """Both look for a draft before either has saved one, if nothing keeps the second from looking."""
    outcomes = []

    def save(text: str) -> None:
        try:
            outcomes.append(saved(writer, environment, text))
        except publishing.NewerDraftExists as refused:
            outcomes.append(refused)

    other = Interrupted(lambda: save(OTHER))
    before_saving(monkeypatch, other)
    save(POLICY)
    other.end()
    (refused,) = [each for each in outcomes if isinstance(each, publishing.NewerDraftExists)]
    assert len(outcomes) == 2 and [refused.draft.source] == kept_texts()


@pytest.mark.parametrize("is_active_already", [False, True])
def test_a_save_in_progress_leaves_no_draft_of_what_is_published(environment, writer, monkeypatch, is_active_already):
    """The text is published, by its author or by another, after the save has seen that it is not active."""
    sent = {"source": POLICY, "seen": "", "stamp": ""}
    token = writer.token()

    def publish() -> None:
        if is_active_already:
            publishing.publish(environment.pk, POLICY, "")
        sent["answer"] = writer.send(EDITOR, **sent, csrfmiddlewaretoken=token, _publish="1")

    other = Interrupted(publish)
    before_saving(monkeypatch, other)
    writer.told(environment, "draft", source=POLICY, token=token)
    other.end()
    assert sent["answer"].status_code == 302 and publishing.active_version(environment.pk).source == POLICY
    assert kept_texts() == []
    publishing.publish(environment.pk, OTHER, "")
    assert writer.get(EDITOR).context["source"] == OTHER


def test_a_draft_that_is_saved_while_another_is_published_stays(environment, writer):
    """It is saved once the published one was found, before that is deleted."""
    stamp = saved(writer, environment, POLICY).stamp
    other = Interrupted(lambda: saved(writer, environment, OTHER, stamp))
    with before_deleting(other):
        publishing.discard_published(writer.user, environment, POLICY, stamp)
    other.end()
    assert kept_texts() == [OTHER]


def test_a_draft_that_is_saved_while_another_is_discarded_stays(environment, writer):
    stamp = saved(writer, environment, POLICY).stamp
    other = Interrupted(lambda: saved(writer, environment, OTHER, stamp))
    with before_deleting(other):
        publishing.discard(writer.user, environment, stamp)
    other.end()
    assert kept_texts() == [OTHER]
