"""Who is told to come again before its body is read: those alone whose threads have a line that is kept short."""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from authz_project.server import intake
from authz_project.server.intake import SMALL, Intake

POOLS = ("changes", "known", "guests")


@pytest.fixture
def became(monkeypatch):
    """What becomes of a request while the line before one pool is kept short; of an answer, what `say` was given."""

    def of(crowded: str, method: str, path: str, query: str = "", **headers: str):
        made, told = Intake.__new__(Intake), []
        made._changes, known, guests = (SimpleNamespace(is_crowded=name == crowded, name=name) for name in POOLS)
        made._slots = SimpleNamespace(known=known, guests=guests)
        made._refusals = SimpleNamespace(send_later=lambda send: send())
        made._polls = SimpleNamespace(enter=print)
        made._do = lambda threads, *_: told.append(f"answered by {threads.name}")
        made._read = lambda *_: told.append("read")
        monkeypatch.setattr(intake, "say", lambda *its, close=False: told.append((its[2], close)))
        monkeypatch.setattr(intake, "DiscardedBody", lambda protocol: None)
        monkeypatch.setattr(intake, "quick_allowance", lambda environ: intake.LARGEST)
        scope = SimpleNamespace(
            path=path, method=method, headers={name.replace("_", "-"): each for name, each in headers.items()},
            query_string=query, http_version="1.1", client="127.0.0.1:1", scheme="http",
        )  # fmt: skip
        made._receive(scope, MagicMock())
        return told

    return of


def test_questions_are_refused_where_questions_are_crowded(became):
    question = {"content_length": "100"}
    assert became("known", "POST", "/api/authorize", **question) == [(503, False)]
    assert became("changes", "POST", "/api/authorize", **question) == ["read"]


def test_changes_are_refused_where_changes_are_crowded(became):
    change = {"content_length": "100"}
    assert became("changes", "POST", "/api/facts", **change) == [(503, False)]
    assert became("known", "POST", "/api/facts", **change) == ["read"]


def test_pages_are_refused_where_guests_are_crowded(became):
    form = {"content_length": "100"}
    assert became("guests", "POST", "/admin/login/", **form) == [(503, False)]
    assert became("known", "POST", "/admin/login/", **form) == ["read"]
    assert became("guests", "POST", "/api/authorize", **form) == ["read"]


@pytest.mark.parametrize("is_known", [True, False])
def test_who_has_a_known_key_waits_in_another_queue_than_others(became, monkeypatch, is_known):
    monkeypatch.setattr(intake, "is_remembered", lambda token: is_known)
    assert became("", "GET", "/api/facts") == ["answered by known" if is_known else "answered by guests"]
    assert became("", "GET", "/static/admin/css/base.css") == [
        "answered by known" if is_known else "answered by guests"
    ]


@pytest.mark.parametrize("crowded", POOLS)
@pytest.mark.parametrize("is_known", [True, False])
def test_who_reads_facts_or_waits_for_changes_has_other_threads(became, monkeypatch, crowded, is_known):
    monkeypatch.setattr(intake, "is_remembered", lambda token: is_known)
    answered = ["answered by known" if is_known else "answered by guests"]
    assert became(crowded, "GET", "/api/facts") == answered
    for path in ("/api/changes", "/api/follow"):
        polled = ["answered by changes"] if is_known else answered
        assert became(crowded, "GET", path, query="wait=10") == polled


def test_the_rest_of_a_large_body_is_not_waited_for(became):
    assert became("known", "POST", "/api/authorize", content_length=str(SMALL)) == [(503, False)]
    assert became("known", "POST", "/api/authorize", content_length=str(SMALL + 1)) == [(503, True)]
    assert became("known", "POST", "/api/authorize", transfer_encoding="chunked") == [(503, True)]


def test_health_is_told_whatever_is_crowded(became):
    assert became("known", "GET", "/healthcheck", content_length="1")[0][0] == 200
