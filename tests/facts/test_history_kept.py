"""What is kept of history: as long as is set, and not what is to be forgotten."""

import io
import sys
import time

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection

from facts import history as kept
from facts.history import Pruned, prune, prune_by_setting
from facts.models import Signature
from policy.models import Environment, PolicyVersion, Revision
from tests.facts.changes import answers, replayed, together
from tests.facts.test_feed import POLICY, role

DAY = 86_400_000_000
READS = {"actor_type": "User", "action": "read", "resource_type": "Doc", "resource_id": "1"}


def prune_all() -> list[Pruned]:
    """Drop all that is old by the clock of SQLite, which tells milliseconds."""
    time.sleep(0.005)
    return prune(1e-9)


def past() -> list[tuple[str, int, int]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT a0, since, until FROM authz_past_fact ORDER BY until, a0")
        return cursor.fetchall()


def age(days: dict[int, float]) -> None:
    """Let revisions be of so many days ago."""
    for number, back in days.items():
        revision = Revision.objects.get(number=number)
        Revision.objects.filter(number=number).update(at=int(revision.at - back * DAY))


def stored(api) -> set:
    return replayed(together(answers(lambda path: api.get(path).json(), 0)))


@pytest.fixture
def history(api):
    """A policy at revision 1; ann, ben and cat come at 2 to 4, and ann and ben go at 5 and 6."""
    api.post("/policy", {"src": POLICY, "filename": ""})
    for name in ("ann", "ben", "cat"):
        api.post("/facts", role(name, "reader", "1"))
    for name in ("ann", "ben"):
        api.delete("/facts", role(name, "reader", "1"))
    return api


# ---- pruning -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 5_000])
def test_what_is_older_is_dropped_and_the_last_of_it_is_the_horizon(history, monkeypatch, step):
    monkeypatch.setattr(kept, "AT_ONCE", step)
    age({number: 10 - number for number in range(1, 7)})  # revision 5 is 5 days old
    before = stored(history)
    (pruned,) = prune(4.5)
    assert (pruned.slug, pruned.horizon, pruned.revisions, pruned.facts) == ("default", 5, 4, 1)
    assert [each.number for each in Revision.objects.order_by("number")] == [5, 6]
    assert past() == [("ben", 3, 6)]
    assert PolicyVersion.objects.count() == 1
    assert stored(history) == before
    assert history.get("/facts?as_of=5").json() == [role(each, "reader", "1") for each in ("ben", "cat")]
    assert history.get("/facts?as_of=4").status_code == 400
    assert history.post("/authorize", READS | {"actor_id": "ben", "as_of": 5}).json() == {"allowed": True}
    assert prune(4.5)[0] == type(pruned)("default", 5, 0, 0)
    assert prune(1000)[0].horizon == 5, "it never goes back"


def test_what_an_interrupted_run_left_behind_is_dropped_by_the_next(history, monkeypatch):
    def interrupted(*step: object) -> int:
        raise RuntimeError

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(kept, "_step", interrupted)
        prune_all()
    assert Environment.objects.get().horizon == 6 and len(past()) == 2
    assert history.get("/changes?after=5").status_code == 410
    assert (prune(1000)[0].facts, past()) == (2, [])


def test_the_setting(history, settings, capsys):
    settings.HISTORY_DAYS = 0
    prune_by_setting()
    call_command("prune")
    assert Revision.objects.count() == 6 and "all history is kept" in capsys.readouterr().out
    age(dict.fromkeys(range(1, 4), 3))
    settings.HISTORY_DAYS = 2
    prune_by_setting()
    assert Environment.objects.get().horizon == 3
    time.sleep(0.05)
    call_command("prune", "--history-days", "0.0000001")
    out = capsys.readouterr().out
    assert out == "0 facts expired\ndefault: 3 revisions and 2 past facts deleted; history begins at revision 6\n"
    for wrong in ("0", "-1", "x"):
        with pytest.raises(CommandError):
            call_command("prune", "--history-days", wrong)


def test_each_environment_has_a_horizon(new_api):
    one, other = new_api("one"), new_api("other")
    for _ in range(3):
        one.post("/facts", role("ann", "reader", "1"))
    other.post("/facts", role("ann", "reader", "1"))
    assert [(each.slug, each.horizon) for each in prune_all()] == [("one", 3), ("other", 1)]
    assert stored(one) == stored(other) != set()


# ---- forgetting --------------------------------------------------------------------------------------------------


def test_past_facts_are_forgotten_for_good(history, capsys):
    history.post("/facts", role("ann", "writer", "1"))
    assert history.get("/facts?as_of=3&predicate=has_role&args.0.id=ann").json() == [role("ann", "reader", "1")]
    call_command("delete_facts", "has_role(User:ann, _, Doc:_)", "--forget", "--yes")
    out = capsys.readouterr().out
    assert "1 matching fact is still stored and not affected" in out and "without --forget" in out
    assert "1 past fact found, valid at revisions 2 to 4." in out
    assert "not passed revision 5" in out and out.endswith("1 past fact forgotten\n")
    assert past() == [("ben", 3, 6)]
    assert history.get("/facts?as_of=3&predicate=has_role&args.0.id=ann").json() == []
    left = (("cat", "reader"), ("ann", "writer"))
    assert stored(history) == {("has_role", (("User", who), ("String", kind), ("Doc", "1"))) for who, kind in left}
    call_command("delete_facts", 'has_role(User:ann, "reader", Doc:_)', "--forget", "--yes")
    assert "No past fact matches. Nothing was forgotten." in capsys.readouterr().out


def test_a_remembered_answer_does_not_outlive_what_is_forgotten(history):
    question = READS | {"actor_id": "ann", "as_of": 3}
    for _ in range(3):
        assert history.post("/authorize", question).json() == {"allowed": True}
    call_command("delete_facts", "has_role(User:ann, _, _)", "--forget", "--yes")
    assert history.post("/authorize", question).json() == {"allowed": False}


def test_what_the_admin_noted_is_forgotten_as_well(history, new_api):
    other = new_api("other")
    other.post("/facts", role("ann", "reader", "1"))
    admin = User.objects.create_user("admin")
    for kind in Signature.objects.all():
        for message in ('added has_role(User{"ann"}, "reader", Doc{"1"})', 'deleted has_role(User{"ann"}, …)', "other"):
            LogEntry.objects.log_actions(admin.pk, [kind], CHANGE, message, single_object=True)
    call_command("delete_facts", "has_role(User:ann, _, Doc:_)", "--forget", "--yes")

    def noted(api) -> set[str]:
        kinds = [str(each.pk) for each in Signature.objects.filter(environment=api.environment)]
        return set(LogEntry.objects.filter(object_id__in=kinds).values_list("change_message", flat=True))

    assert noted(history) == {"Added a fact.", "Deleted a fact.", "other"}
    assert any("ann" in each for each in noted(other)), "of another environment"


@pytest.mark.parametrize(("said", "message"), [("no\n", "Nothing was forgotten"), ("", "--yes"), (None, "--yes")])
def test_nothing_is_forgotten_unless_somebody_says_so(history, monkeypatch, said, message):
    stdin = io.StringIO(said or "")
    if said is None:
        stdin.close()
    monkeypatch.setattr(sys, "stdin", stdin)
    with pytest.raises(CommandError, match=message):
        call_command("delete_facts", "has_role(User:ann, _, Doc:_)", "--forget")
    assert len(past()) == 2


def test_somebody_says_yes(history, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    call_command("delete_facts", "has_role(_, _, _)", "--forget")
    assert past() == [] and "at revisions 2 to 5" in capsys.readouterr().out
