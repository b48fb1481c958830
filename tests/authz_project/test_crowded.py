"""Who is told to come again before its body is read: those alone whose threads have a line that is kept short."""

from types import SimpleNamespace

import pytest

from authz_project.server import intake
from authz_project.server.intake import SMALL, Intake

POOLS = ("_changes", "_slots")


@pytest.fixture
def became(monkeypatch):
    """What becomes of a request while the line before one pool is kept short; of an answer, what `say` was given."""

    def of(crowded: str, method: str, path: str, feed_is_full: bool = False, query: str = "", **headers: str):
        made, told = Intake.__new__(Intake), []
        for name in POOLS:
            setattr(made, name, SimpleNamespace(is_crowded=name == crowded, name=name))
        made._refusals = SimpleNamespace(send_later=lambda send: send())
        made._waiting = SimpleNamespace(do=lambda *_: not feed_is_full and (told.append("waits") or True))
        made._do = lambda threads, *_: told.append(f"answered by {threads.name}")
        made._read = lambda *_: told.append("read")
        monkeypatch.setattr(intake, "say", lambda *its, close=False: told.append((its[2], close)))
        monkeypatch.setattr(intake, "DiscardedBody", lambda protocol: None)
        monkeypatch.setattr(intake, "quick_allowance", lambda environ: intake.largest())
        scope = SimpleNamespace(
            path=path, method=method, headers={name.replace("_", "-"): each for name, each in headers.items()},
            query_string=query, http_version="1.1", client="127.0.0.1:1", scheme="http",
        )  # fmt: skip
        made._receive(scope, None)
        return told

    return of


def test_questions_are_refused_where_questions_are_crowded(became):
    question = {"content_length": "100"}
    assert became("_slots", "POST", "/api/authorize", **question) == [(503, False)]
    assert became("_changes", "POST", "/api/authorize", **question) == ["read"]


def test_changes_are_refused_where_changes_are_crowded(became):
    change = {"content_length": "100"}
    assert became("_changes", "POST", "/api/facts", **change) == [(503, False)]
    assert became("_slots", "POST", "/api/facts", **change) == ["read"]


@pytest.mark.parametrize("crowded", POOLS)
def test_who_reads_facts_or_waits_for_changes_has_other_threads(became, crowded):
    assert became(crowded, "GET", "/api/facts") == ["answered by _slots"]
    assert became(crowded, "GET", "/api/changes", query="wait=10") == ["waits"]
    assert became(crowded, "GET", "/api/changes", feed_is_full=True, query="wait=10") == ["answered by _slots"]


def test_the_rest_of_a_large_body_is_not_waited_for(became):
    assert became("_slots", "POST", "/api/authorize", content_length=str(SMALL)) == [(503, False)]
    assert became("_slots", "POST", "/api/authorize", content_length=str(SMALL + 1)) == [(503, True)]
    assert became("_slots", "POST", "/api/authorize", transfer_encoding="chunked") == [(503, True)]


def test_health_is_told_whatever_is_crowded(became):
    assert became("_slots", "GET", "/healthcheck", content_length="1")[0][0] == 200
