"""Facts that end by themselves: how they are said, stored, changed and shown."""

import random
import time
from itertools import pairwise

import pytest
from django.core.management import CommandError
from django.db import connection

from facts import loading, read, store, together
from facts.models import Signature
from facts.store import Deletes, Inserts
from facts.wire import Argument, Fact, FactPattern, fact_from_json
from policy.core import clock
from policy.models import Environment, Revision
from policy.publishing import publish
from tests.facts.test_commands import run
from tests.facts.test_together import codes, offsets, sent, server, told, waiting  # noqa: F401

SOON, LATER = "2096-12-01T00:00:00Z", "2097-01-01T12:30:00.250000Z"
SIGNED = ("2096-12-01T02:00:00+02:00", "2096-11-30T23:30:00-00:30", "2096-12-01t00:00:00.0000004z")  # all of them SOON


def member(user: str, end: object = "none") -> dict:
    said = {"predicate": "member", "args": [{"type": "User", "id": user}, {"type": "Team", "id": "t"}]}
    return said if end == "none" else said | {"expires_at": end}


def as_fact(user: str, end: str | None = None) -> Fact:
    return fact_from_json(member(user, end), "")


def exact(user: str) -> FactPattern:
    return FactPattern("member", (Argument("User", user), Argument("Team", "t")))


def insert(api, *facts: dict):
    return api.post("/batch", [{"inserts": list(facts)}])


def shown(api) -> dict[str, str | None]:
    """The end of each fact by its first id, as GET /facts has it."""
    return {each["args"][0]["id"]: each.get("expires_at") for each in api.get("/facts").json()}


def stored() -> list[tuple]:
    return fetched("SELECT a0, since, expires_at FROM authz_fact ORDER BY a0")


def past() -> list[tuple]:
    return fetched("SELECT a0, since, until, expires_at FROM authz_past_fact ORDER BY a0, since, until")


def fetched(statement: str) -> list[tuple]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def counted(environment: Environment) -> list[tuple[str, int, int]]:
    found = Revision.objects.filter(environment=environment).order_by("number")
    return [(each.kind, each.inserted, each.deleted) for each in found]


def let_pass(*users: str) -> None:
    """Time goes by, until what these have has ended."""
    with connection.cursor() as cursor:
        for user in users:
            cursor.execute("UPDATE authz_fact SET expires_at = %s WHERE a0 = %s", (clock.now() - 1, user))
            assert cursor.rowcount == 1


# ---- how an end is said ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "wrapped"),
    [
        ("POST", "/batch", lambda fact: [{"inserts": [fact]}]),
        ("POST", "/facts", lambda fact: fact),
        ("POST", "/bulk", lambda fact: {"tell": [fact]}),
        ("POST", "/bulk_load", lambda fact: [fact]),
    ],
)
@pytest.mark.parametrize("end", [SOON, LATER, *SIGNED, None])
def test_every_insert_may_say_it(api, method, path, wrapped, end):
    answer = api.request(method, path, wrapped(member("ann", end)))
    assert answer.status_code == 200
    wanted = SOON if end in SIGNED else end
    assert shown(api) == {"ann": wanted}
    if path == "/facts":
        assert answer.json() == (member("ann") if wanted is None else member("ann", wanted))


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("2001-01-01T00:00:00Z", "is in the past: the current time is 2"),
        ("2096-12-01T00:00:00", "must be an RFC 3339 time with an offset, such as `2026-12-01T00:00:00Z`"),
        ("2096-12-01", "must be an RFC 3339 time with an offset"),
        ("2096-02-30T00:00:00Z", "must be an RFC 3339 time with an offset"),
        ("20961201T000000Z", "must be an RFC 3339 time with an offset"),
        ("2096-12-01T00:00:00Z\n", "must be an RFC 3339 time with an offset"),
        ("2096-12-01T00:00:00+02:60", "must be an RFC 3339 time with an offset"),
        ("9999-12-31T23:59:59-01:00", "must be an RFC 3339 time with an offset"),
        ("٢٠٩٦-12-01T00:00:00Z", "must be an RFC 3339 time with an offset"),
        ("", "must be an RFC 3339 time with an offset"),
        ("\0", "must not contain NUL"),
        ("\ud800", None),
        (4_000_000_000, "must be a string, not a number"),
        ({}, "must be a string, not an object"),
        (False, "must be a string, not a boolean"),
    ],
)
def test_what_is_no_end_is_refused_with_its_path(api, end, reason):
    if reason is None:  # not to be said in JSON but like this
        assert api.post("/batch", rb'[{"inserts": [{"predicate": "p", "args": [{"type": "T", "id": "x"}],'
                        rb' "expires_at": "\ud800"}]}]').status_code == 400  # fmt: skip
        return
    bodies = {
        "/batch": ([{"deletes": []}, {"inserts": [member("ann"), member("ben", end)]}], "[1].inserts[1].expires_at"),
        "/facts": (member("ben", end), "expires_at"),
        "/bulk": ({"tell": [member("ann"), member("ben", end)]}, "tell[1].expires_at"),
        "/bulk_load": ([member("ann"), member("ben", end)], "[1].expires_at"),
    }
    for path, (body, place) in bodies.items():
        answer = api.post(path, body)
        assert answer.status_code == 400
        assert answer.json()["message"].startswith(f"{place}: {reason}")
    assert shown(api) == {}
    assert not Signature.objects.filter(may_end=True).exists()


@pytest.mark.parametrize("end", [SOON, "2001-01-01T00:00:00Z"])
def test_patterns_have_none(api, end):
    insert(api, member("ann", SOON))
    pattern = member("ann", end)
    told_of = {
        "/batch": ([{"deletes": [member("ben"), pattern]}], "[0].deletes[1].expires_at"),
        "/bulk": ({"delete": [pattern]}, "delete[0].expires_at"),
        "/bulk_delete": ([pattern], "[0].expires_at"),
    }
    answers = [(api.post(path, body), place) for path, (body, place) in told_of.items()]
    answers.append((api.delete("/facts", pattern), "expires_at"))
    for answer, place in answers:
        assert answer.status_code == 400
        assert answer.json()["message"].startswith(f"{place}: is only allowed for facts to insert")
    assert shown(api) == {"ann": SOON}
    assert api.delete("/facts", member("ann", None)).status_code == 200  # as if nothing were said
    assert shown(api) == {}


def test_the_first_end_of_a_signature_counts_in_questions_that_were_asked_before(api):
    """Their statements are kept, were made without a look at ends, and need no signature that may still come."""
    constraints = {"u": {"type": "User"}, "t": {"type": "Team"}}
    query = {"predicate": ["member", ["u", "t"]], "calls": [], "constraints": constraints, "context_facts": []}
    publish(
        api.environment.pk, "actor User {} resource Team {} other(u: User) if t matches Team and member(u, t);", None
    )
    insert(api, member("ben"))
    assert [each["u"] for each in api.post("/evaluate_query", query).json()["results"]] == ["ben"]
    insert(api, member("ann", SOON))
    with connection.cursor() as cursor:  # as if it had come to its end
        cursor.execute("UPDATE authz_fact SET expires_at = 1000000 WHERE expires_at IS NOT NULL")
    assert [each["u"] for each in api.post("/evaluate_query", query).json()["results"]] == ["ben"]


def test_context_facts_have_none(api):
    publish(
        api.environment.pk, 'actor User {} resource Team { permissions = ["see"]; relations = { member: User }; }', None
    )
    question = {"actor_type": "User", "actor_id": "ann", "action": "see", "resource_type": "Team", "resource_id": "t"}
    for path in ("/authorize", "/explain"):
        answer = api.post(path, question | {"context_facts": [member("ann"), member("ben", SOON)]})
        assert answer.status_code == 400
        assert answer.json()["message"].startswith("context_facts[1].expires_at: is only allowed for stored facts")
    assert api.post("/authorize", question | {"context_facts": [member("ann", None)]}).status_code == 200


def test_other_members_of_a_fact_are_ignored_as_ever(api):
    assert insert(api, member("ann") | {"until": "x", "note": [1]}).status_code == 200
    assert shown(api) == {"ann": None}


@pytest.mark.parametrize("headers", [{"X-OsoApiVersion": "0"}, {"User-Agent": "Oso Cloud (python)"}])
def test_published_clients_are_not_told(api, headers):
    insert(api, member("ann", SOON))
    assert api.get("/facts", **headers).json() == [member("ann")]
    assert api.get("/facts").json() == [member("ann", SOON)]


# ---- what is marked ----------------------------------------------------------------------------------------------


def marks(environment: Environment) -> tuple[int, int, set[str]]:
    environment.refresh_from_db()
    marked = Signature.objects.filter(environment=environment, may_end=True).values_list("predicate", flat=True)
    return environment.signature_mark, environment.ends_mark, set(marked)


def test_the_first_end_of_a_signature_marks_it(api):
    plain = {"predicate": "other", "args": [{"type": "User", "id": "x"}]}
    insert(api, plain, member("ann"))
    before = marks(api.environment)
    assert before[1:] == (0, set())
    insert(api, member("ben", SOON), plain)
    first = marks(api.environment)
    assert first[2] == {"member"} and first[0] != before[0] and first[1] != 0
    insert(api, member("cleo", LATER), plain, member("ann"))
    assert marks(api.environment) == first
    insert(api, plain | {"expires_at": SOON})
    second = marks(api.environment)
    assert second[2] == {"member", "other"} and second[0] != first[0] and second[1] != first[1]


def test_what_is_refused_marks_nothing(api):
    insert(api, member("ann"))
    before = marks(api.environment)
    assert insert(api, member("ben", SOON), member("cleo", "2001-01-01T00:00:00Z")).status_code == 400
    assert marks(api.environment) == before
    assert insert(api, member("ben", SOON)).status_code == 200
    assert marks(api.environment)[2] == {"member"}


# ---- other ends --------------------------------------------------------------------------------------------------


def test_an_end_changes_with_what_is_said_next(api):
    ends = [None, SOON, LATER, None, SOON, SOON, None, None]
    made = [int(insert(api, member("ann", end), member("ben"))["OsoOffset"]) for end in ends]
    assert shown(api) == {"ann": None, "ben": None}
    in_database = {None: None, SOON: clock.microseconds_of_text(SOON), LATER: clock.microseconds_of_text(LATER)}
    begun = [made[0], made[1], made[2], made[3], made[4], made[6]]
    assert [row for row in stored() if row[0] == "ann"] == [("ann", begun[-1], None)]
    assert past() == [("ann", since, until, in_database[ends[made.index(since)]]) for since, until in pairwise(begun)]
    assert counted(api.environment) == [
        ("facts", 2, 0), *[("facts", 1, 1)] * 4, ("facts", 0, 0), ("facts", 1, 1), ("facts", 0, 0)
    ]  # fmt: skip


def test_both_forms_in_one_batch_and_the_last_one_said_counts(api):
    insert(api, member("kept", SOON), member("gone", SOON))
    api.post(
        "/batch",
        [
            {"inserts": [member("a", SOON), member("a"), member("b"), member("b", LATER), member("c")]},
            {"inserts": [member("c", SOON), member("gone"), member("kept")]},
            {"inserts": [member("kept", SOON), member("d", SOON)]},
            {"deletes": [member("d"), member("gone")]},
        ],
    )
    assert shown(api) == {"a": None, "b": LATER, "c": SOON, "kept": SOON}
    # What the revision itself began and ended, and what it gave its end back, was no change.
    assert [row[0] for row in past()] == ["gone"]
    assert past()[0][3] == clock.microseconds_of_text(SOON)
    assert counted(api.environment) == [("facts", 2, 0), ("facts", 3, 1)]


def test_deletes_count_what_they_match_and_no_change_of_an_end(api):
    store.apply(api.environment.pk, [Inserts([as_fact("ann", SOON), as_fact("ben", SOON)])])
    changed = store.apply(api.environment.pk, [Inserts([as_fact("ann", LATER)]), Deletes([exact("ben")])])
    assert changed.deleted == 1
    assert counted(api.environment) == [("facts", 2, 0), ("facts", 1, 2)]


def test_writers_that_share_a_commit_lift_ends_beside_one_that_sets_some(api):
    insert(api, *[_role(f"u{n}", SOON) for n in range(3)])
    calls = [lambda n=n: told(api, f"u{n}") for n in range(4)]
    calls.insert(2, lambda: _closing(lambda: api.post("/facts", _role("u9", LATER))))
    with waiting(api.environment.pk, calls[:2] + calls[3:]) as futures:
        alone = calls[2]
    assert alone().status_code == 200
    assert codes(futures) == [200] * 4
    assert shown(api) == {"u0": None, "u1": None, "u2": None, "u3": None, "u9": LATER}
    numbers = offsets(futures)
    found = {each.number: each for each in Revision.objects.filter(environment=api.environment)}
    assert [(found[n].inserted, found[n].deleted) for n in numbers] == [(1, 1)] * 3 + [(1, 0)]
    assert sorted((row[0], row[2]) for row in past()) == [(f"u{n}", numbers[n]) for n in range(3)]


def test_who_says_an_end_commits_alone(api, monkeypatch):
    alone = []
    usual = together.apply_alone
    monkeypatch.setattr(together, "apply_alone", lambda *given: alone.append(given) or usual(*given))
    for expiry, number in ((None, 0), (SOON, 1)):
        assert sent(api, "POST", "/batch", [{"inserts": [member("ann", expiry)]}]).status_code == 200
        assert len(alone) == number


def _role(user: str, end: str) -> dict:
    args = [("User", user), ("String", "reader"), ("Repo", "r")]
    said = {"predicate": "has_role", "args": [{"type": kind, "id": text} for kind, text in args]}
    return said | {"expires_at": end}


def _closing(act):
    try:
        return act()
    finally:
        connection.close()


def test_random_batches_end_as_facts_that_are_said_one_after_the_other(api):
    chance = random.Random(7)
    model: dict[str, str | None] = {}
    for _ in range(60):
        before, batch = dict(model), []
        for _ in range(chance.randint(1, 4)):
            users = [chance.choice("abcdef") for _ in range(chance.randint(1, 4))]
            if chance.random() < 0.3:
                batch.append({"deletes": [member(user) for user in users]})
                for user in users:
                    model.pop(user, None)
            else:
                said = [(user, chance.choice([None, SOON, LATER])) for user in users]
                batch.append({"inserts": [member(user, end) if end else member(user) for user, end in said]})
                model |= dict(said)
        number = int(api.post("/batch", batch)["OsoOffset"])
        assert shown(api) == model
        made = Revision.objects.get(environment=api.environment, number=number)
        assert made.inserted == len(model.items() - before.items())
        assert made.deleted == len(before.items() - model.items())
        assert before == as_of(number - 1) and model == as_of(number)


def as_of(number: int) -> dict[str, str | None]:
    then = f"SELECT a0, expires_at FROM authz_fact WHERE since <= {number} UNION ALL"
    rows = fetched(f"{then} SELECT a0, expires_at FROM authz_past_fact WHERE since <= {number} AND until > {number}")
    assert len(rows) == len(dict(rows))
    return {name: None if end is None else clock.short_text_of(end) for name, end in rows}


# ---- what has ended and is not swept yet -------------------------------------------------------------------------


def test_what_has_ended_is_not_shown(api):
    insert(api, member("ann", SOON), member("ben", SOON), member("cleo"), _role("ann", SOON))
    let_pass("ben")
    assert [each["args"][0]["id"] for each in api.get("/facts?predicate=member").json()] == ["ann", "cleo"]
    assert api.get("/facts?predicate=member&args.0.type=User&args.0.id=ben").json() == []
    assert api.get("/stats").json() == {"num_roles": 1, "num_relations": 0, "num_facts": 3}
    assert run("dump_facts").count("\n") == 3
    assert "1 matching fact" in run("delete_facts", "member(User:ben, _)", dry_run=True)


def test_an_end_comes_by_itself(api):
    end = clock.text_of(clock.now() + 400_000)
    insert(api, member("ann", end), member("ben"))
    deadline = time.monotonic() + 20
    while shown(api) != {"ben": None}:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert clock.text_of(clock.now()) >= end


def test_what_has_ended_may_be_deleted_and_stored_again(api):
    insert(api, member("ann", SOON), member("ben", SOON), member("cleo", SOON))
    let_pass("ann", "ben", "cleo")
    assert store.apply(api.environment.pk, [Deletes([exact("ann")])]).deleted == 1
    insert(api, member("ben"), member("cleo", LATER))
    assert shown(api) == {"ben": None, "cleo": LATER}
    assert counted(api.environment) == [("facts", 3, 0), ("facts", 0, 1), ("facts", 2, 2)]


def test_a_copy_keeps_ends_and_leaves_out_what_has_ended(new_api):
    one, other = new_api("one"), new_api("other")
    insert(one, member("ann", SOON), member("ben", SOON), member("cleo"))
    let_pass("ben")
    store.copy_facts(one.environment.pk, other.environment.pk)
    assert shown(other) == {"ann": SOON, "cleo": None}
    assert marks(other.environment)[2] == {"member"}
    insert(other, member("ann"))
    assert shown(other) == {"ann": None, "cleo": None} and shown(one) == {"ann": SOON, "cleo": None}
    assert counted(other.environment) == [("copy", 2, 0), ("facts", 1, 1)]


# ---- files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_ends_are_dumped_and_loaded(api, tmp_path, kind):
    alone = {"predicate": "is_public", "args": [{"type": "Repo", "id": "r"}], "expires_at": LATER}
    insert(api, member("ann", SOON), member("ben", LATER), member("cleo"), alone)
    before, file = shown(api), str(tmp_path / f"facts.{kind}")
    assert "4 facts written" in run("dump_facts", file)
    api.post("/clear_data")
    assert "4 facts read, 4 of them new" in run("load_facts", file)
    assert shown(api) == before
    assert "4 facts read, 0 of them new" in run("load_facts", file)


def test_the_end_is_the_last_cell_of_a_line(environment, tmp_path):
    file = tmp_path / "facts.csv"
    file.write_text(
        "predicate,type,id,type,id\n"
        f"member,User,ann,Team,t,expires_at={SOON}\n"
        f"is_public,Repo,r,,,,,expires_at={LATER}\n"
        "is_public,Repo,s,,\n"
        f"is_public,String,expires_at={SOON}\n"
    )
    run("load_facts", str(file))
    found = {str(each): each.expires_at for each in read.found(environment.pk, None, ()).facts}
    soon, later = map(clock.microseconds_of_text, (SOON, LATER))
    assert found == {
        'member(User{"ann"}, Team{"t"})': soon,
        'is_public(Repo{"r"})': later,
        'is_public(Repo{"s"})': None,
        f'is_public("expires_at={SOON}")': None,
    }
    file.write_text("p,T,x,expires_at=tomorrow\np,T,x,expires_at\np,T,x,expires_at=2001-01-01T00:00:00Z\n")
    with pytest.raises(CommandError) as refused:
        run("load_facts", str(file))
    assert "line 1: expires_at: must be an RFC 3339 time with an offset" in str(refused.value)
    assert "line 2: argument 2 has a type but no id" in str(refused.value)
    assert "line 3: expires_at: is in the past: the current time is 2" in str(refused.value)


def test_a_load_changes_ends_and_the_last_line_about_a_fact_counts(api, monkeypatch):
    monkeypatch.setattr(loading, "CHUNK", dict.fromkeys(loading.CHUNK, 3))
    insert(api, member("a", SOON), member("b", SOON), member("c"), member("d", SOON), member("e"))
    users = [("a", LATER), ("a", SOON), ("b", None), ("f", SOON), ("f", LATER), ("g", SOON), ("c", SOON), ("c", None),
             ("d", None), ("d", SOON), ("g", None), ("f", SOON), ("f", LATER), ("h", None)]  # fmt: skip
    lines = [(number, member(user, end)) for number, (user, end) in enumerate(users)]
    loaded = loading.load(api.environment.pk, lines)
    assert shown(api) == {
        "a": SOON, "b": None, "c": None, "d": SOON, "e": None, "f": LATER, "g": None, "h": None
    }  # fmt: skip
    assert counted(api.environment)[-1] == ("load", 4, 1)
    assert (loaded.read, loaded.inserted) == (14, 4)
    assert [(row[0], row[3]) for row in past()] == [("b", clock.microseconds_of_text(SOON))]


def test_bad_ends_are_told_by_line(environment, tmp_path):
    file = tmp_path / "facts.jsonl"
    good = '{"predicate":"p","args":[{"type":"T","id":"x"}]%s}\n'
    ends = ["", ', "expires_at": 5', ', "expires_at": "2001-01-01T00:00:00Z"', f', "expires_at": "{SOON}"']
    file.write_text("".join(good % end for end in ends))
    told_of = run("load_facts", str(file), skip_bad=True)
    assert "line 2: expires_at: must be a string, not a number" in told_of
    assert "line 3: expires_at: is in the past: the current time is 2" in told_of
    assert "2 facts read, 1 of them new, 2 lines skipped" in told_of
    assert [each.expires_at for each in read.found(environment.pk, None, ()).facts] == [
        clock.microseconds_of_text(SOON)
    ]


def test_values_are_in_their_one_spelling_with_an_end_too(api):
    number = {"predicate": "p", "args": [{"type": "Integer", "id": "+007"}], "expires_at": SOON}
    insert(api, number)
    assert [str(each) for each in read.found(api.environment.pk, None, ()).facts] == ["p(7)"]
