"""Who gained and who lost access between two moments, held against asking about every one."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from io import StringIO
from itertools import pairwise, product
from random import Random

import orjson
import pytest
from django.core.management import CommandError, call_command

from checks.asking import ask
from checks.asking.ask import Trusted
from checks.asking.question import Asked, allow
from checks.compare import review as reviewing
from checks.compare.review import EVERYTHING, Access, NotAnswered, Review, ReviewFilter, moments_reviewed
from checks.compare.review_page import reviewed as page_of
from checks.compare.review_walk import Chunks, Filter, WalkLimits, all_lines, page_start_from_text, page_start_text
from facts import keyset_pages
from facts.read import every
from policy.models import Environment
from policy.moments import MomentNotAvailable, moment_of
from policy.values import STRING, Value
from tests.checks.conftest import POLICY, fact, publish, remove, store
from tests.waiting import prune_before

pytestmark = pytest.mark.one_database

USERS, TEAMS, DOCS, FOLDERS = ("u0", "u1", "u2"), ("t0",), ("d0", "d1", "d2"), ("f0", "f1")
NOBODY = "(nobody mentions this)"
UNDECLARED = ("odd", "never")
ACTIONS = ("read", "edit", "share", "sign", *UNDECLARED)

FIRST = """
actor User {}
actor Team {}
resource Folder {
  roles = ["reader", "editor"]; permissions = ["read"]; relations = { parent: Folder };
  "reader" if "editor"; "read" if "reader"; role if role on "parent";
}
resource Doc {
  roles = ["reader", "editor"]; permissions = ["read", "edit", "share", "sign"]; relations = { folder: Folder };
  "reader" if "editor"; "read" if "reader"; "edit" if "editor"; role if role on "folder";
  "read" if is_public(resource);
}
has_role(user: User, role: String, doc: Doc) if team matches Team and in_team(user, team) and has_role(team, role, doc);
has_permission(user: User, "read", _: Doc) if is_root(user);
has_permission(_: User, "share", _: Doc) if is_open("now");
has_permission(user: User, "sign", doc: Doc) if has_role(user, "reader", doc) and not is_banned(user, doc);
is_owned(doc: Doc) if user matches User and is_owner(user, doc);
"""
SECOND = FIRST.replace('"read" if is_public(resource);', '"edit" if is_public(resource);').replace(
    '"edit" if "editor";', '"share" if "editor"; "read" if has_role(actor, "editor", Doc{"d1"});'
)
THIRD = FIRST + "has_permission(user: User, _: String, doc: Doc) if is_owner(user, doc);\n"
POLICIES = (FIRST, SECOND, THIRD)


def possible_facts() -> list[dict]:
    users, docs = [f"User:{each}" for each in USERS], [f"Doc:{each}" for each in DOCS]
    folders, teams = [f"Folder:{each}" for each in FOLDERS], [f"Team:{each}" for each in TEAMS]
    roles = ("reader", "editor")
    found = [fact("has_role", *each) for each in product(users + teams, roles, docs)]
    found += [fact("has_role", *each) for each in product(users, roles, folders)]
    found += [fact("has_relation", doc, "folder", folder) for doc, folder in product(docs, folders)]
    found += [fact("has_relation", "Folder:f0", "parent", "Folder:f1"), fact("is_open", "now")]
    found += [fact("in_team", *each) for each in product(users, teams)]
    found += [fact("is_public", doc) for doc in docs] + [fact("is_root", user) for user in users]
    found += [fact("is_banned", *each) for each in product(users, docs)]
    found += [fact("is_owner", *each) for each in product(users, docs)]
    found += [fact("has_permission", user, action, "Doc:d0") for user in users for action in ("read", "odd")]
    return found


def change(api, random: Random, every: list[dict]) -> int:
    drawn = random.sample(every, random.randint(1, 4))
    changes = [{random.choice(("inserts", "inserts", "deletes")): [each]} for each in drawn]
    answer = api.post("/batch", changes)
    assert answer.status_code == 200, answer.content
    return int(answer["OsoOffset"])


def asked_one_by_one(environment_id: int, as_of: int) -> set[tuple[str, ...]]:
    moment = moment_of(environment_id, as_of)
    found = set()
    for actor_type, actors in (("User", USERS), ("Team", TEAMS)):
        for resource_type, resources in (("Doc", DOCS), ("Folder", FOLDERS)):
            each = product((*actors, NOBODY), ACTIONS, (*resources, NOBODY))
            for actor, action, resource in each:
                question = allow(
                    Asked(actor_type, (actor,)), Asked(STRING, (action,)), Asked(resource_type, (resource,))
                )
                if ask.answer(Trusted(environment_id), question, moment=moment).holds:
                    found.add((actor_type, actor, action, resource_type, resource))
    return found


def expanded(lines: list[Access], mentioned: dict[str, set[str]]) -> set[tuple[str, ...]]:
    """What lines say, of the values that are asked about one by one; without what lines that are kept take away."""
    found: dict[bool, set[tuple[str, ...]]] = {True: set(), False: set()}
    for line in lines:
        actors = {"User": (*USERS, NOBODY), "Team": (*TEAMS, NOBODY)}[line.actor.type]
        resources = {"Doc": DOCS, "Folder": FOLDERS}[line.resource.type]
        others = [each for each in (*resources, NOBODY) if each not in mentioned[line.resource.type]]
        found[line.state == "kept"].update(
            (line.actor.type, actor, action, line.resource.type, resource)
            for actor in ([line.actor.id] if line.actor.id else actors)
            for action in ([line.action.id] if line.action.id else ACTIONS)
            for resource in ([line.resource.id] if line.resource.id else others)
        )
    return found[False] - found[True]


def mentioned(environment_id: int, *moments: int) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"Doc": {"d1"}, "Folder": set()}  # a rule names d1
    for as_of in moments:
        for each in every(environment_id, moment_of(environment_id, as_of)):
            for arg in each.args:
                found.setdefault(arg.type, set()).add(arg.id)
    return found


def reviewed(environment_id: int, *moments: int, wanted: ReviewFilter = EVERYTHING) -> list[Access]:
    review = Review(environment_id, moments_reviewed(environment_id, *moments), wanted)
    lines = list(all_lines(review, lambda cursor: None))
    assert not [line for line in lines if isinstance(line, NotAnswered)]
    return [line for line in lines if isinstance(line, Access)]


@pytest.mark.parametrize("step", ["changes", "resources"])
def test_history_that_is_dropped_meanwhile_is_not_taken_for_no_change(repos, monkeypatch, step):
    """Whatever was missed: the facts that changed, or resources that only past facts mention."""
    store(repos, fact("has_role", "User:zoe", "reader", "Repo:z"))
    first = Environment.objects.get(pk=repos.environment.pk).offset
    remove(repos, fact("has_role", "User:zoe", "reader", "Repo:z"))
    moments = (first, None) if step == "changes" else (first,)
    wanted = ReviewFilter(actor_type="User", resource_type="Repo")
    assert any(line.resource.id == "z" for line in reviewed(repos.environment.pk, *moments, wanted=wanted))
    if step == "changes":
        pruned = prune_before(monkeypatch, reviewing, "changed_facts_between")
    else:
        pruned = prune_before(monkeypatch, keyset_pages.MentionedAsOf, "after")
        monkeypatch.setattr(Chunks, "_rows", lambda *given: [()])  # those that were asked before
    with pytest.raises(MomentNotAvailable, match="is no longer available"):
        reviewed(repos.environment.pk, *moments, wanted=wanted)
    assert pruned


@pytest.mark.parametrize("seed", range(3))
def test_it_is_what_asking_one_by_one_says(api, seed, monkeypatch):
    random, pk = Random(seed), api.environment.pk
    monkeypatch.setattr("checks.compare.review_walk._FIRST", random.choice((1, 2, 8)))
    for name in ("OF_PAGES", "OF_ALL_LINES"):
        limits = WalkLimits(random.choice((2, 250)), random.choice((2, 5, 1_000)), 5.0, 5.0)
        monkeypatch.setattr(f"checks.compare.review_walk.{name}", limits)
    monkeypatch.setattr("checks.compare.review_walk.PAGE", random.choice((3, 100)))
    monkeypatch.setattr("checks.compare.review_walk._WHOLE", random.choice((2, 5_000)))
    monkeypatch.setattr("checks.compare.review_walk.SECONDS", random.choice((-1, 60)))  # a chunk a page, or all
    publish(api, FIRST)
    revisions, drawn = [], possible_facts()
    for turn in range(24):
        if turn % 8 == 7:
            publish(api, POLICIES[(turn // 8 + 1) % 3])
        revisions.append(change(api, random, drawn))
    chosen = sorted(random.sample(revisions, 3))
    held = {each: asked_one_by_one(pk, each) for each in chosen}
    for at in chosen:
        assert expanded(reviewed(pk, at), mentioned(pk, at)) == held[at]
        assert sorted(paged(pk, at)) == sorted(reviewed(pk, at))
    for first, last in [*pairwise(chosen), (chosen[0], chosen[-1]), (chosen[0], chosen[0])]:
        lines, known = reviewed(pk, first, last), mentioned(pk, first, last)
        assert len(set(lines)) == len(lines)
        assert sorted(paged(pk, first, last)) == sorted(lines)
        gained, lost = held[last] - held[first], held[first] - held[last]
        kept = [line for line in lines if line.state == "kept"]
        for text in ("Doc:d1", "Doc", "oc", "*"):
            assert sorted(paged(pk, first, last, text=text)) == sorted(filter(Filter(text).has, lines))
        for state, right in (("gained", gained), ("lost", lost)):
            for text in ("u0", "d1", "0", "x"):  # which is looked up first: what is every actor's is theirs as well
                few = [line for line in paged(pk, first, last, text=text) if line.state in (state, "kept")]
                assert expanded(few, known) == {each for each in right if text in each[1] or text in each[4]}
            assert expanded([*(line for line in lines if line.state == state), *kept], known) == right
            for user in (*USERS, NOBODY):
                wanted = ReviewFilter("User", actor=user)
                assert sorted(paged(pk, first, last, wanted=wanted)) == sorted(reviewed(pk, first, last, wanted=wanted))
                mine = {each[2:] for each in right if each[:2] == ("User", user)}
                assert said_of(changed(pk, user, first, last), state) == mine


def paged(environment_id: int, *moments: int, text: str = "", wanted: ReviewFilter = EVERYTHING) -> list[Access]:
    """What the pages of a review say, one after the other."""
    lines: list[Access] = []
    page_start = None
    while True:
        review = Review(environment_id, moments_reviewed(environment_id, *moments), wanted)
        found = page_of(review, Filter(text), page_start)
        lines += found.lines
        if found.next is None:
            return lines
        assert found.next != page_start, "it goes on from where it began"
        page_start = page_start_from_text(page_start_text(found.next, "these"), "these")


def changes_of(environment_id: int, moments, wanted: ReviewFilter, text: str = "", start=None):
    """What the page about one actor says."""
    return page_of(Review(environment_id, moments, wanted), Filter(text, is_of_actors=False), start, collapses=True)


def changed(environment_id: int, user: str, *moments: int) -> list[Access]:
    """What the pages about one actor say, one after the other."""
    lines: list[Access] = []
    page_start = None
    while True:
        between = moments_reviewed(environment_id, *moments)
        found = changes_of(environment_id, between, ReviewFilter("User", actor=user), "", page_start)
        assert not found.not_answered
        assert {line.actor for line in found.lines} <= {Value("User", user)}
        lines += found.lines
        if found.next is None:
            told = sum(count for state, count in found.counts.items() if state != "kept")
            assert found.is_whole and told == sum(line.state != "kept" for line in lines)
            assert len(set(lines)) == len(lines)
            return lines
        page_start = page_start_from_text(page_start_text(found.next, "these"), "these")


def said_of(lines: Iterable[Access], state: str) -> set[tuple[str, ...]]:
    """What lines of this state say of the values that are asked about, without what kept ones take away."""
    found: dict[str, set[tuple[str, ...]]] = {state: set(), "kept": set()}
    for line in lines:
        resources = {"Doc": (*DOCS, NOBODY), "Folder": (*FOLDERS, NOBODY)}[line.resource.type]
        found.setdefault(line.state, set()).update(
            (action, line.resource.type, resource)
            for action in ([line.action.id] if line.action.id else ACTIONS)
            for resource in ([line.resource.id] if line.resource.id else resources)
        )
    return found[state] - found["kept"]


MASTERS = (
    POLICY
    + """
has_permission(user: User, _: String, _: Repo) if is_god(user);
has_permission(_: User, _: String, repo: Repo) if is_free(repo);
"""
)


def test_what_every_action_lost_has_exceptions_among_named_ones(api):
    """`*` is every action, so one that is named is an exception where it was kept."""
    publish(api, MASTERS)
    store(
        api, fact("is_god", "User:ann"), fact("is_root", "User:ann"), fact("has_role", "User:ann", "writer", "Repo:a")
    )
    remove(api, fact("is_god", "User:ann"))
    told = [
        "- lost User:ann * Repo:*",
        "- lost User:ann write Repo:*",
        "= kept User:ann read Repo:*",
        "- lost User:ann * Repo:a",
        "= kept User:ann read Repo:a",
        "= kept User:ann write Repo:a",
    ]
    assert sorted(rows(run("--from", "2"))) == sorted(told)
    lines = changed(api.environment.pk, "ann", 2, 3)
    assert [(line.state, line.action.id, line.resource.id) for line in lines] == [
        ("lost", "write", ""), ("kept", "write", "a"), ("lost", "", ""), ("kept", "read", "")
    ]  # fmt: skip


def test_what_is_kept_is_told_once(api):
    publish(api, MASTERS)
    store(api, fact("has_role", "User:ann", "reader", "Repo:a"))
    store(api, fact("is_free", "Repo:a"))
    assert sorted(rows(run("--from", "2"))) == [
        "+ gained User:* * Repo:a",
        "+ gained User:* read Repo:a",
        "+ gained User:* write Repo:a",
        "= kept User:ann read Repo:a",
    ]
    lines = changed(api.environment.pk, "ann", 2, 3)
    assert [(line.state, line.action.id) for line in lines] == [("gained", "write"), ("gained", ""), ("kept", "read")]


# ---- the command -----------------------------------------------------------------------------------------------------


def run(*args: str) -> str:
    written = StringIO()
    call_command("review_access", *args, stdout=written, stderr=StringIO(), no_color=True)
    return written.getvalue()


def rows(said: str) -> list[str]:
    return [" ".join(line.split()) for line in said.splitlines()[1:-1]]


def test_what_was_gained_and_lost_is_listed(repos):
    store(repos, fact("has_role", "User:cat", "reader", "Repo:b"), fact("is_root", "User:ann"))
    remove(repos, fact("is_public", "Repo:p"))
    said = run("--from", "2")
    assert re.search(r"revision 2 \(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ, ", said)
    assert said.startswith("Access changes from revision 2 (20") and "policy version 1) to revision 4 (" in said
    assert rows(said) == [
        "+ gained User:ann read Repo:*",
        "+ gained User:cat read Repo:b",
        "- lost User:* read Repo:p",
        "= kept User:ann read Repo:p",
        "= kept User:root read Repo:p",
    ]
    assert run("--from", "2", "--to", "2").endswith("\n0 gained, 0 lost\n")
    assert rows(run("--from", "3", "--resource-type", "Repo", "--actor-type", "User", "--action", "write")) == []


def test_who_had_what_is_listed(repos):
    said = run("--at", "2", "--resource-type", "Repo")
    assert rows(said) == [
        "has User:root read Repo:*",
        "has User:ann read Repo:a",
        "has User:bob read Repo:a",
        "has User:root read Repo:a",
        "has User:ann read Repo:b",
        "has User:root read Repo:b",
        "has User:* read Repo:p",
        "has User:bob write Repo:a",
    ]
    assert said.endswith("8 results\n")


def test_each_line_is_explained_on_request(repos):
    store(repos, fact("has_role", "User:cat", "reader", "Repo:b"))
    said = run("--from", "2", "--explain")
    assert 'before: denied  allow(User:cat, "read", Repo:b)  (policy version 1)' in said
    assert 'after: allowed  allow(User:cat, "read", Repo:b)  (policy version 1)' in said
    assert '✓ has_role(User:cat, "reader", Repo:b)  stored fact' in said
    (line,) = [orjson.loads(each) for each in run("--from", "2", "--explain", "--format", "json").splitlines()]
    assert line["state"] == "gained" and line["actor"] == {"type": "User", "id": "cat"}
    assert line["before"]["allowed"] is False and line["after"]["proof"]["kind"] == "rule"


def test_formats_tell_every_value(repos):
    table = list(csv.reader(StringIO(run("--at", "2", "--resource-type", "Repo", "--format", "csv"))))
    assert table[0] == ["state", "actor", "action", "resource", "note"]
    assert ["has", "User:*", "read", "Repo:p", ""] in table and ["has", "User:root", "read", "Repo:*", ""] in table
    lines = [orjson.loads(each) for each in run("--at", "2", "--format", "json").splitlines()]
    assert {"id": None, "type": "User"} in [each["actor"] for each in lines]


REFUSED = POLICY + 'has_permission(user: User, "write", repo: Repo) if is_public(repo) and not is_banned(user);\n'


def test_what_cannot_be_listed_is_said_and_ends_with_an_error(api):
    publish(api, REFUSED)
    store(
        api,
        fact("is_public", "Repo:p"),
        fact("is_banned", "User:eve"),
        fact("has_role", "User:ann", "writer", "Repo:a"),
    )
    written = StringIO()
    with pytest.raises(CommandError, match="The review is incomplete"):
        call_command("review_access", "--at", "2", stdout=written, stderr=StringIO())
    said = written.getvalue()
    assert '! not answered allow(User:_, "write", Repo:_) for 1 resource, for example Repo:p: ' in " ".join(
        said.split()
    )
    assert "has User:ann write Repo:a" in " ".join(said.split())
    remove(api, fact("has_role", "User:ann", "writer", "Repo:a"))
    assert rows(run("--from", "2")) == ["- lost User:ann read Repo:a", "- lost User:ann write Repo:a"]


def test_after_many_refusals_no_others_are_asked_about(api, monkeypatch):
    monkeypatch.setattr("checks.compare.review_walk.MOST_REFUSED", 2)
    publish(api, REFUSED)
    store(api, fact("is_banned", "User:eve"), *(fact("is_public", f"Repo:p{number}") for number in range(5)))
    written = StringIO()
    with pytest.raises(CommandError, match="The review is incomplete"):
        call_command("review_access", "--at", "2", "--action", "write", stdout=written, stderr=StringIO())
    (line,) = rows(written.getvalue())
    assert line.startswith('! not answered allow(User:_, "write", Repo:_): ')
    assert line.endswith("; stopped after 2 resources could not be evaluated")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--from", "1000"), "--from: revision 1000 does not exist yet"),
        (("--from", "0"), "no policy was active at revision 0"),
        (("--from", "yesterday"), "--from: must be a revision number or a time such as"),
        (("--from", "2", "--to", "1"), "the start .revision 2. is after the end .revision 1."),
        (("--at", "2", "--to", "2"), "--to needs --from."),
        (("--at", "2", "--actor-type", "Usr"), "the policy has no type `Usr` .did you mean `User`"),
        (("--at", "2", "--action", "raed"), "the policy has no action `raed` .did you mean `read`"),
        (("--from", "1", "--action", "raed", "--resource-type", "Repo"), "no action `raed` on Repo"),
        (("--at", "2", "--environment", "nope"), "Environment `nope` does not exist"),
    ],
)
def test_mistakes_are_reported(repos, args, message):
    with pytest.raises(CommandError, match=message):
        run(*args)
