"""What changed after a revision: in order, without gaps, each revision once and whole."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from facts import store
from facts.feed import FeedPosition, Inside, list_of
from facts.history import Pruned, prune
from facts.loading import load
from facts.models import Signature
from facts.store import Deletes, Inserts
from facts.wire import fact_from_text, pattern_from_text
from policy.core.journal import NOBODY, Done, Kind, advance, changing, record
from policy.models import Environment, Revision
from policy.publishing import activate
from tests.facts.changes import answers, path_of, plain, replayed, together
from tests.sampling import in_turns

POLICY = """
actor User {}
resource Doc { roles = ["reader", "writer"]; permissions = ["read"]; relations = { parent: Doc };
  "read" if "reader"; "reader" if "writer"; "reader" if "reader" on "parent"; }
"""
USERS, DOCS, ROLES = "abc", "123", ("reader", "writer")
EVERYTHING = {"has_role", "has_relation"}


def prune_all() -> list[Pruned]:
    """Drop all that is old by the clock of SQLite, which tells milliseconds."""
    time.sleep(0.005)
    return prune(1e-9)


def role(user: str, name: str, doc: str) -> dict:
    return fact("has_role", ("User", user), ("String", name), ("Doc", doc))


def parent(doc: str, of: str) -> dict:
    return fact("has_relation", ("Doc", doc), ("String", "parent"), ("Doc", of))


def fact(predicate: str, *args: tuple[str, str]) -> dict:
    return {"predicate": predicate, "args": [{"type": kind, "id": text} for kind, text in args]}


def any_fact(lot: random.Random) -> dict:
    if lot.random() < 0.7:
        return role(lot.choice(USERS), lot.choice(ROLES), lot.choice(DOCS))
    return parent(lot.choice(DOCS), lot.choice(DOCS))


def any_pattern(lot: random.Random) -> dict:
    found = any_fact(lot)
    found["args"] = [arg if lot.random() < 0.6 else {"type": arg["type"], "id": None} for arg in found["args"]]
    return found


def matches(pattern: dict, stored: tuple) -> bool:
    predicate, args = stored
    wanted = [(arg["type"], arg["id"]) for arg in pattern["args"]]
    return (
        predicate == pattern["predicate"]
        and len(args) == len(wanted)
        and all(kind == has and text in (None, id) for (kind, text), (has, id) in zip(wanted, args))
    )


class World:
    """An environment that is changed at random, and what its facts were after each revision."""

    def __init__(self, api, lot: random.Random):
        self.api, self.lot = api, lot
        self.states: dict[int, set] = {0: set()}
        self.kinds: dict[int, str] = {}
        self.versions: dict[int, int] = {}

    def ask(self, path: str) -> dict:
        answer = self.api.get(path)
        assert answer.status_code == 200, answer.content
        return answer.json()

    @property
    def newest(self) -> int:
        return max(self.states)

    def note(self, offset: int, kind: str, state: set) -> None:
        assert offset == self.newest + 1
        self.states[offset], self.kinds[offset] = state, kind

    def change(self) -> None:
        self.lot.choice([self.batch, self.batch, self.group, self.load, self.publish, self.clear, self.again])()

    def publish(self) -> None:
        answer = self.api.post("/policy", {"src": f"{POLICY}# {self.lot.random()}", "filename": ""})
        self.note(int(answer.headers["OsoOffset"]), "policy", self.states[self.newest])
        self.versions[self.newest] = len(self.versions) + 1

    def batch(self) -> None:
        steps, state = [], set(self.states[self.newest])
        for _ in range(self.lot.randint(0, 4)):
            if self.lot.random() < 0.6:
                facts = [any_fact(self.lot) for _ in range(self.lot.randint(0, 6))]
                steps.append({"inserts": facts})
                state |= set(map(plain, facts))
            else:
                patterns = [any_pattern(self.lot) for _ in range(self.lot.randint(0, 2))]
                steps.append({"deletes": patterns})
                state = {each for each in state if not any(matches(pattern, each) for pattern in patterns)}
        answer = self.api.post("/batch", steps)
        self.note(int(answer.headers["OsoOffset"]), "facts", state)

    def again(self) -> None:
        """Delete all, and insert the same: which is no change."""
        state = self.states[self.newest]
        facts = [{"predicate": name, "args": [{"type": k, "id": i} for k, i in args]} for name, args in state]
        answer = self.api.post("/batch", [{"deletes": facts}, {"inserts": facts}])
        self.note(int(answer.headers["OsoOffset"]), "facts", state)

    def group(self) -> None:
        """Small changes at the same time, which share commits."""
        changes = [(self.lot.random() < 0.6, any_fact(self.lot)) for _ in range(6)]

        def make(change: tuple[bool, dict]) -> int:
            is_insert, one = change
            try:
                return int(self.api.request("POST" if is_insert else "DELETE", "/facts", one).headers["OsoOffset"])
            finally:
                connection.close()

        with ThreadPoolExecutor(4) as threads:
            offsets = list(threads.map(make, changes))
        for offset, (is_insert, one) in sorted(zip(offsets, changes), key=lambda each: each[0]):
            state = self.states[self.newest]
            self.note(offset, "facts", state | {plain(one)} if is_insert else state - {plain(one)})

    def load(self) -> None:
        facts = [any_fact(self.lot) for _ in range(8)]
        load(self.api.environment.pk, enumerate(facts, 1))
        before = self.states[self.newest]
        if not before >= set(map(plain, facts)):  # a load of nothing new makes no revision
            self.note(self.newest + 1, "load", before | set(map(plain, facts)))

    def clear(self) -> None:
        if self.lot.random() < 0.3:
            self.note(store.clear(self.api.environment.pk).offset, "clear", set())

    def check(self, told: list, after: int, predicates: set[str]) -> None:
        """What is told is what the model says of the revisions after one."""
        expected = {}
        for number in range(after + 1, self.newest + 1):
            before, now = self.states[number - 1], self.states[number]
            both = tuple({each for each in part if each[0] in predicates} for part in (now - before, before - now))
            if any(both) or predicates >= EVERYTHING:
                expected[number] = both
        assert {each.revision: each.both for each in told} == expected
        for each in told:
            assert each.kind == self.kinds[each.revision]
            assert each.policy_version == (self.versions[each.revision] if each.kind == "policy" else None)


@pytest.fixture(params=in_turns(range(3)))
def world(request, api) -> World:
    world = World(api, random.Random(request.param))
    world.publish()
    for _ in range(25):
        world.change()
    return world


# ---- what is told ------------------------------------------------------------------------------------------------


def test_every_revision_is_told_once_and_whole(world):
    for limit in (1, 2, 3, 7, None):
        told = together(answers(world.ask, 0, limit), limit)
        world.check(told, 0, EVERYTHING)
        assert replayed(told) == world.states[world.newest]
        for after in world.lot.sample(range(world.newest + 1), 3):
            world.check(together(answers(world.ask, after, limit), limit), after, EVERYTHING)


def test_of_a_predicate_only(world):
    for limit in (1, 3, 7, None):
        for predicates in ({"has_role"}, {"has_relation"}, {"none"}, {"none", "has_role"}):
            found = list(answers(world.ask, 0, limit, predicates))
            world.check(together(found, limit), 0, predicates)
            assert found[-1]["next"] == world.newest and not found[-1]["more"]
        every = together(answers(world.ask, 0, limit, EVERYTHING), limit)
        some = [each for each in together(answers(world.ask, 0, limit), limit) if any(each.both)]
        assert [(each.revision, each.both) for each in every] == [(each.revision, each.both) for each in some]


def test_revisions_without_the_predicate_are_skipped_some_at_a_time(world, monkeypatch):
    monkeypatch.setattr("facts.feed.SKIPPED_AT_ONCE", 30)
    monkeypatch.setattr("facts.feed.PATIENCE", 0)
    for predicates in ({"has_relation"}, {"likes", "has_role"}):
        found = list(answers(world.ask, 0, 2, predicates))
        world.check(together(found, 2), 0, predicates)
        assert found[-1]["next"] == world.newest


def test_large_revisions_are_read_by_another_way_alike(world, monkeypatch):
    """Past a number of facts, a part is looked for among all facts."""
    expected = list(answers(world.ask, 0, 2))
    monkeypatch.setattr("facts.feed.MANY", 0)
    assert list(answers(world.ask, 0, 2)) == expected


@pytest.mark.parametrize("limit", [1, 3])
def test_nothing_is_lost_or_doubled_by_interruptions_and_by_changes_meanwhile(world, limit):
    """Any answer may be lost on the way and asked for again, and facts come and go between two parts."""
    found, after, left = [], 0, 60
    while True:
        answer = world.ask(path_of(after, limit))
        if world.lot.random() < 0.3:
            continue  # lost
        found.append(answer)
        after = answer["next"]
        if not answer["more"]:
            break
        if left and world.lot.random() < 0.3:
            left -= 1
            world.change()
    told = together(found, limit)
    world.check(told, 0, EVERYTHING)
    assert replayed(told) == world.states[world.newest]


def test_what_is_told_of_a_revision(api):
    first = role("ann", "reader", "1")
    api.post("/batch", [{"inserts": [first]}])
    api.post("/batch", [{"deletes": [first]}, {"inserts": [role("ben", "reader", "1")]}])
    answer = api.get("/changes?after=1").json()
    revision = Revision.objects.get(number=2)
    (change,) = answer["changes"]
    at = change.pop("at")
    assert len(at) == len("2026-11-03T14:02:11.123456Z") and at.endswith("Z")
    assert change == {
        "revision": 2, "author": revision.author, "kind": "facts", "inserted": [role("ben", "reader", "1")],
        "deleted": [first], "policy_version": None,
    }  # fmt: skip
    assert revision.author.startswith("key ")
    assert (answer["next"], answer["more"]) == (2, False)


def test_going_back_to_a_policy_tells_its_number(api):
    for text in (POLICY, f"{POLICY}#"):
        api.post("/policy", {"src": text, "filename": ""})
    activate(api.environment.pk, 1)
    assert [each["policy_version"] for each in api.get("/changes").json()["changes"]] == [1, 2, 1]


def test_another_end_is_told_as_inserted_only(api):
    """And so it is of a revision in parts, and of one whose facts have ended since."""
    store.apply(api.environment.pk, [Inserts([fact_from_text(f"likes(User:u{n}, Doc:1)") for n in range(5)])])
    Signature.objects.update(may_end=True)
    with changing():
        turn = advance(api.environment.pk)
        with connection.cursor() as cursor:
            names = "sig, a0, a1, a2, a3, a4"
            mine = "a0 <> 'u0'"
            cursor.execute(
                f"INSERT INTO authz_past_fact ({names}, since, until, expires_at)"
                f" SELECT {names}, since, %s, NULL FROM authz_fact WHERE {mine}", (turn.offset,)
            )  # fmt: skip
            ends = "expires_at = 4000000000000000"
            cursor.execute(f"UPDATE authz_fact SET since = %s, {ends} WHERE {mine}", (turn.offset,))
        record(api.environment.pk, [Done(turn.offset, Kind.FACTS, NOBODY, None, 4, 4)])

    def ask(path: str) -> dict:
        return api.get(path).json()

    for limit in (None, 3, 2, 1):
        for _ in range(2):
            changes = [each for answer in answers(ask, 1, limit) for each in answer["changes"] if each["revision"] == 2]
            inserted = [each for change in changes for each in change["inserted"]]
            assert [each["args"][0]["id"] for each in inserted] == ["u1", "u2", "u3", "u4"]
            assert {each["expires_at"] for each in inserted} == {"2096-10-02T07:06:40Z"}
            assert not any(change["deleted"] for change in changes)
            assert changes[-1].get("parts") == {None: None, 3: 2, 2: 2, 1: 4}[limit]
    store.apply(api.environment.pk, [Deletes([pattern_from_text("likes(User:u2, Doc:1)")])])
    for limit in (None, 1):
        assert replayed(together(answers(ask, 0, limit), limit)) == {
            ("likes", (("User", f"u{n}"), ("Doc", "1"))) for n in (0, 1, 3, 4)
        }


# ---- the state as of the horizon ---------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 3, None])
@pytest.mark.parametrize("predicates", [(), ("has_role",)])
def test_it_begins_with_the_state_as_of_the_horizon(world, limit, predicates):
    """Also while facts come and go: all parts are of one moment."""
    horizon = world.newest
    prune_all()
    for _ in range(10):
        world.change()
    found = []
    for answer in answers(world.ask, 0, limit, predicates):
        found.append(answer)
        if answer["more"] and world.lot.random() < 0.4 and len(found) < 40:
            world.change()
    state, *told = together(found, limit)
    wanted = set(predicates) or EVERYTHING
    assert (state.revision, state.kind) == (horizon, "state")
    assert state.both == ({each for each in world.states[horizon] if each[0] in wanted}, set())
    world.check(told, horizon, wanted)
    world.check(together(answers(world.ask, horizon, limit, predicates), limit), horizon, wanted)


def test_before_the_horizon_nothing_is_known(world):
    old = world.newest
    (token,) = [each["next"] for each in answers(world.ask, 0, 1) if isinstance(each["next"], str)][-1:]
    prune_all()
    world.batch()
    for after in (1, old - 1, token):
        answer = world.api.get(path_of(after))
        assert answer.status_code == 410
        assert answer.json() == {
            "message": f"changes before revision {old} are no longer available;"
            " start again with after=0, which returns all facts at that revision first",
            "horizon": old,
        }
    assert world.ask(path_of(old))["next"] == world.newest


def test_the_state_is_read_anew_when_the_horizon_moves_meanwhile(world):
    for _ in range(20):
        if len(world.states[world.newest]) > 1:
            break
        world.batch()
    prune_all()
    first = world.ask(path_of(0, 1))
    assert first["changes"][0]["part"] == 1
    world.batch()
    prune_all()
    assert world.api.get(path_of(first["next"])).json()["horizon"] == world.newest


# ---- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("after=2", "after: revision 2 does not exist yet; the latest is 1"),
        ("after=x", "after: must be a revision number, or the `next` of a previous response"),
        ("after=-1", "after: must be a revision number, or the `next` of a previous response"),
        ("after=99999999999999999999", "after: must be a revision number, or the `next` of a previous response"),
        ("after=1.AAAAAAAAAAAA", "after: must be a revision number, or the `next` of a previous response"),
        ("after=1.W10xxxxx", "after: must be a revision number, or the `next` of a previous response"),
        ("after=", "after: must be a revision number, or the `next` of a previous response"),
        ("after=%D9%A1", "after: must be a revision number, or the `next` of a previous response"),
        ("limit=0", "limit: must be an integer from 1 to 10,000"),
        ("limit=10001", "limit: must be an integer from 1 to 10,000"),
        ("limit=x", "limit: must be an integer from 1 to 10,000"),
        ("wait=61", "wait: must be a number of seconds from 0 to 60"),
        ("wait=-1", "wait: must be a number of seconds from 0 to 60"),
        ("wait=nan", "wait: must be a number of seconds from 0 to 60"),
        ("predicate=", "predicate: must not be empty"),
        ("predicate=a&predicate=%00", "predicate: must not contain NUL characters"),
    ],
)
def test_what_cannot_be_asked(api, query, message):
    api.post("/facts", role("ann", "reader", "1"))
    answer = api.get(f"/changes?{query}")
    assert (answer.status_code, answer.json()) == (400, {"message": message})


def test_a_token_goes_on_with_the_same_predicates_only(api):
    api.post("/batch", [{"inserts": [role("ann", "reader", each) for each in "123"]}])
    token = api.get("/changes?limit=1").json()["next"]
    answer = api.get(f"/changes?after={token}&predicate=has_role")
    assert answer.status_code == 400 and "other `predicate` parameters" in answer.json()["message"]
    assert api.get(f"/changes?after={token}&limit=100").json()["changes"][0]["part"] == 2


@pytest.mark.parametrize("is_state", [False, True])
def test_inside_of_no_revision_there_is_nothing(api, is_state):
    """The number before a cursor is not signed, and so may be made up."""
    made_up = Inside(is_state, 2, 3, 10, list_of(()), (0, 0, ("",) * 5))
    refused = (400, {"message": "after: is not the `next` of a previous response"})
    for _ in range(2):
        answer = api.get(path_of(FeedPosition(0, made_up).text))
        assert (answer.status_code, answer.json()) == refused
        api.post("/facts", role("ann", "reader", "1"))
    api.post("/facts", role("ben", "reader", "1"))
    Revision.objects.filter(environment=api.environment, number=1).delete()
    answer = api.get(path_of(FeedPosition(1, made_up._replace(is_state=False)).text))
    assert (answer.status_code, answer.json()) == refused


def test_the_state_is_without_what_ended_by_then_and_is_not_deleted_yet(api):
    """The horizon moves before the rows are deleted."""
    api.post("/facts", role("ann", "reader", "1"))
    api.post("/facts", role("ben", "reader", "1"))
    horizon = int(api.delete("/facts", role("ann", "reader", "1"))["OsoOffset"])
    Environment.objects.filter(pk=api.environment.pk).update(horizon=horizon)
    (change,) = api.get("/changes?after=0").json()["changes"]
    assert change["inserted"] == [role("ben", "reader", "1")]


def test_another_environment_is_not_told(new_api):
    one, other = new_api("one"), new_api("other")
    one.post("/batch", [{"inserts": [role("ann", "reader", each) for each in "123"]}])
    other.post("/facts", role("ben", "reader", "1"))
    (change,) = other.get("/changes").json()["changes"]
    assert change["inserted"] == [role("ben", "reader", "1")]
    token = one.get("/changes?limit=1").json()["next"]
    assert "ann" not in other.get(f"/changes?after={token}").content.decode()


def test_any_id_can_be_gone_on_from(api):
    odd = ["\x01\x7f", "é" * 256, "a/b?c=d&e", '"' * 512, "%00", " ", "\U0001f512"]
    facts = [fact("five", *[("T", each)] * 5) for each in odd]
    api.post("/batch", [{"inserts": facts}])
    told = together(answers(lambda path: api.get(path).json(), 0, 1), 1)
    assert told[0].both[0] == set(map(plain, facts))
