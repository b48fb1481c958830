"""What a follower stores is what the main service has: here, both in one database."""

import random
import time

import orjson
import pytest
from django.db import connection

from authz_project import following
from authz_project.copies import CopyKeeper, CopyState, Differs, digest_of, keys_of
from authz_project.keys import create_key, hash_of, revoke_key
from facts import feed, history
from facts.feed import read as feed_read
from facts.history import forget
from facts.wire import pattern_from_text
from policy.active import Scope
from policy.core.clock import now, text_of
from policy.core.journal import advance, changing
from policy.errors import IsCopy
from policy.models import Environment, PolicyVersion, Revision
from policy.publishing import activate
from tests.conftest import Api
from tests.factories import EnvironmentFactory
from tests.facts.test_feed import POLICY, World, parent, prune_all, role
from tests.sampling import in_turns

URL = "http://main.example"


class Pair:
    """An environment, and another one that copies it."""

    def __init__(self, api, slug: str = "copy"):
        self.api, self.environment = api, EnvironmentFactory(slug=slug, follows=CopyState(URL).text)
        self.copy = CopyKeeper(self.environment.pk, URL)
        self.answers = 0

    def asked(self, after: int | str | None) -> dict:
        answer = self.api.get(f"/follow?after={'' if after is None else after}")
        if answer.status_code != 200:
            raise Differs(answer.json()["message"])
        self.answers += 1
        return answer.json() | {
            "keys": None,
            "environment": self.environment.slug,
            "current_at": None,
        }  # a key is in one environment

    def step(self) -> bool:
        """Take one answer; return whether there is more."""
        answer = self.asked(self.copy.state.position)
        self.copy.take(answer, self.asked)
        return answer["more"]

    def catch_up(self) -> None:
        while self.step():
            pass

    def check(self) -> None:
        """Compare the facts, the environments, and the feeds of both."""
        mine, its = (Environment.objects.get(pk=each) for each in (self.environment.pk, self.api.environment.pk))
        assert mine.offset == its.offset and state(mine.pk, mine.offset) == state(its.pk, its.offset)
        assert number_of(mine) == number_of(its)
        for revision in range(mine.horizon, its.offset + 1):
            assert state(mine.pk, revision) == state(its.pk, revision)
        assert told(mine.pk, mine.horizon) == told(its.pk, mine.horizon)


def number_of(environment: Environment) -> int | None:
    return environment.policy_version and environment.policy_version.number


def state(environment_id: int, revision: int) -> list:
    """Return the facts as of a revision, as the feed tells a state."""
    chosen = feed.chosen_signatures(environment_id, frozenset())
    rows = feed.part_of(feed.arms_of(revision, True), chosen, None, 100_000, 0)
    return sorted(orjson.dumps(feed.row_to_json(chosen, row[1], row[2:-1], row[-1])) for row in rows)


def told(environment_id: int, after: int) -> list:
    """Return all changes after a revision, with the rows of their revisions."""
    found = feed.read(environment_id, feed.FeedRequest(feed.FeedPosition(after), 10_000))
    changes = following.with_rows(environment_id, found.changes)
    for each in changes:
        each["inserted"].sort(key=orjson.dumps)
        each["deleted"].sort(key=orjson.dumps)
    return changes


@pytest.mark.parametrize("seed", in_turns(range(4)))
def test_a_copy_is_the_same_at_every_step(api, seed, monkeypatch):
    """Random changes of all kinds, in answers so small that most revisions are sent in parts."""
    lot = random.Random(seed)
    monkeypatch.setattr(following, "PAGE", lot.choice([1, 2, 3, 5, 10_000]))
    world, pair = World(api, lot), Pair(api)
    for _ in range(12):
        for _ in range(lot.randrange(5)):
            world.change()
        if lot.random() < 0.3:
            pair.step()
            pair.copy = CopyKeeper(pair.environment.pk, URL)  # as after a kill: it continues from what is stored
            continue
        pair.catch_up()
        pair.check()


@pytest.fixture
def pair(api) -> Pair:
    assert api.post("/policy", {"src": POLICY, "filename": "main.polar"}).status_code == 200
    api.post("/batch", [{"inserts": [role("ann", "reader", "1"), parent("2", "1")]}])
    pair = Pair(api)
    pair.catch_up()
    return pair


def test_expiries_are_copied_and_changed(api, pair):
    for end in ("2090-01-01T00:00:00Z", "2091-01-01T00:00:00.5Z", None):
        api.post("/batch", [{"inserts": [role("ann", "reader", "1") | ({"expires_at": end} if end else {})]}])
        pair.catch_up()
        pair.check()
    for end in ("2090-01-01T00:00:00Z", "2091-01-01T00:00:00Z"):  # in one answer
        api.post("/batch", [{"inserts": [role("ann", "reader", "1") | {"expires_at": end}]}])
    pair.catch_up()
    pair.check()


def test_what_has_expired_is_ended_by_the_main_service_only(api, pair):
    api.post("/batch", [{"inserts": [role("dora", "reader", "1") | {"expires_at": text_of(now() + 200_000)}]}])
    pair.catch_up()
    time.sleep(0.25)
    history.sweep_all()
    assert Revision.objects.filter(environment=pair.environment).latest("number").kind == "facts"
    pair.catch_up()
    pair.check()
    assert Revision.objects.filter(environment=pair.environment).latest("number").kind == "expiry"


def test_a_policy_that_is_activated_again_is_copied_if_it_is_missing(api, pair):
    api.post("/policy", {"src": POLICY + "# 2", "filename": ""})
    late = Pair(api, slug="late")  # its snapshot has version 2 only
    late.catch_up()
    activate(api.environment.pk, 1)
    for each in (pair, late):
        each.catch_up()
        each.check()
        assert sorted(each.environment.policy_versions.values_list("number", flat=True)) == [1, 2]


def test_another_policy_of_the_same_number_is_not_taken_for_it(api, pair):
    """As of a main service that was restored from a backup: the copy would answer by the policy of before."""
    copied = PolicyVersion.objects.filter(environment=pair.environment)
    api.post("/policy", {"src": POLICY + "# again"})
    pair.catch_up()
    copied.filter(number=1).update(source="actor User {}", digest="of another text")
    activate(api.environment.pk, 1)
    with pytest.raises(Differs, match="policy version 1 differs"):
        pair.catch_up()
    pair.copy.discard()
    pair.catch_up()
    pair.check()
    assert copied.get(number=1).source == POLICY


def test_a_copy_is_not_changed_by_hand(pair):
    with pytest.raises(IsCopy), changing():
        advance(pair.environment.pk)


def test_a_main_service_that_was_restored_from_a_backup_is_recognized(api, pair):
    """It has other changes under the numbers that the copy has already."""
    offset = Environment.objects.get(pk=api.environment.pk).offset
    api.post("/batch", [{"inserts": [role("ann", "writer", "3")]}])
    pair.catch_up()
    _undo(api, offset)
    with pytest.raises(Differs):  # it is behind the copy
        pair.step()
    for _ in range(2):
        api.post("/batch", [{"inserts": [role("ben", "writer", "3")]}])
    with pytest.raises(Differs):
        pair.step()
    pair.copy.discard()
    pair.catch_up()
    pair.check()


def _undo(api, offset: int) -> None:
    """Return to an earlier revision without a trace, as restoring a backup does."""
    environment = Environment.objects.get(pk=api.environment.pk)
    Revision.objects.filter(environment=environment, number__gt=offset).delete()
    environment.offset, environment.moment = offset, 7
    environment.save()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM authz_fact WHERE since > %s", (offset,))


def test_history_that_was_pruned_needs_a_snapshot(api, pair):
    for user in "abc":
        api.post("/batch", [{"inserts": [role(user, "writer", "3")]}])
    prune_all()
    with pytest.raises(Differs, match="no longer available"):
        pair.step()
    pair.copy.discard()
    pair.catch_up()
    pair.check()


def test_a_deletion_that_was_forgotten_before_it_was_copied_is_noticed(api, pair):
    api.delete("/facts", role("ann", "reader", "1"))
    forget(api.environment.pk, pattern_from_text("has_role(User:ann, _, Doc:_)"))
    with pytest.raises(Differs, match="changed other facts"):
        pair.step()
    pair.copy.discard()
    pair.catch_up()
    pair.check()


def test_a_snapshot_is_of_one_revision_while_facts_change(api, pair, monkeypatch):
    monkeypatch.setattr(following, "PAGE", 1)
    pair.copy.discard()
    pair.step()
    assert not pair.copy.state.is_complete and not Environment.objects.get(pk=pair.environment.pk).policy_version
    offset = int(api.post("/batch", [{"deletes": [parent("2", "1")]}]).headers["OsoOffset"])
    api.post("/batch", [{"inserts": [role("ben", "writer", "3")]}])
    pair.step()
    assert pair.copy.state.is_complete and pair.copy.offset == offset - 1
    assert state(pair.environment.pk, offset - 1) == state(api.environment.pk, offset - 1)
    pair.catch_up()
    pair.check()


def test_an_answer_that_breaks_off_inside_a_revision_changes_nothing(api, pair, monkeypatch):
    monkeypatch.setattr(following, "PAGE", 2)
    api.post("/batch", [{"inserts": [role(user, "writer", "3") for user in "abcdef"]}])
    before = state(pair.environment.pk, pair.copy.offset), pair.copy.state, pair.copy.offset

    def broken(position):
        raise ConnectionError

    with pytest.raises(ConnectionError):
        pair.copy.take(pair.asked(pair.copy.state.position), broken)
    assert (state(pair.environment.pk, pair.copy.offset), pair.copy.state, pair.copy.offset) == before
    pair.catch_up()
    pair.check()


def test_revisions_are_read_once_for_all_followers(api, pair, monkeypatch):
    pair.catch_up()  # from now on, later revisions are kept at hand
    after = pair.copy.state.position
    for user in "abc":
        api.post("/batch", [{"inserts": [role(user, "writer", "3")]}])
    read = []
    monkeypatch.setattr(following.feed, "read", lambda *args: read.append(args) or feed_read(*args))
    for behind in (0, 1, 2, 3, 0):
        changes = api.get(f"/follow?after={after + behind}").json()["changes"]
        assert [each["revision"] for each in changes] == list(range(after + behind + 1, after + 4))
    assert len(read) == 1


def test_changes_are_read_once_in_a_while_for_all_followers(api, pair, monkeypatch):
    """An answer may miss the very latest, and says how old it is; who has all that was read gets what is new."""
    monkeypatch.setattr(following.RecentChanges, "TICK", 60)
    monkeypatch.setattr(following.RecentChanges, "FRESH", 60)
    pair.catch_up()
    after, waited = pair.copy.state.position, []
    for user in "abc":
        api.post("/batch", [{"inserts": [role(user, "writer", "3")]}])
        time.sleep(0.01)
        answer = api.get(f"/follow?after={after}").json()
        assert ([each["revision"] for each in answer["changes"]], answer["next"]) == ([after + 1], after + 1)
        waited.append(answer["waited"])
    assert waited[1] < waited[0] - 0.01 and waited[2] < waited[1] - 0.01
    answer = api.get(f"/follow?after={after + 1}").json()
    assert [each["revision"] for each in answer["changes"]] == [after + 2, after + 3]
    assert answer["waited"] <= 0


def test_followers_that_are_up_to_date_need_no_snapshot_when_history_was_pruned(api, pair):
    pair.catch_up()  # this revision is kept at hand, and pruned
    late = Pair(api, slug="late")
    api.post("/batch", [{"inserts": [role("ann", "writer", "3")]}])
    api.post("/batch", [{"inserts": [role("ben", "writer", "3")]}])
    prune_all()
    late.catch_up()
    late.step()
    late.check()


def test_keys_are_sent_when_they_changed(api, pair, monkeypatch):
    monkeypatch.setattr(following.RecentChanges, "FRESH", 0)
    answer = api.get("/follow").json()
    assert [row[3] for row in answer["keys"]] == [hash_of(api.key)]

    def sent() -> list | None:
        return api.get(f"/follow?after={answer['next']}&keys={digest}").json()["keys"]

    digest = digest_of(keys_of(api.environment.pk))
    assert sent() is None
    writer, token = create_key(api.environment, scopes=[Scope.FACTS])
    assert [row[3] for row in sent()] == [hash_of(api.key), hash_of(token)]
    digest = digest_of(keys_of(api.environment.pk))
    revoke_key(writer)
    assert [row[-1] is None for row in sent()] == [True, False]


def test_only_keys_with_the_scope_read_may_follow(api):
    writer = create_key(api.environment, scopes=[Scope.FACTS, Scope.POLICY])[1]
    assert Api(api.environment, writer).get("/follow").status_code == 403
    assert Api(api.environment, "none").get("/follow").status_code == 401
    assert api.get("/follow").status_code == 200
