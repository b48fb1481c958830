"""Questions as of an earlier revision, by the facts and the policy of then."""

import time
from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import urlencode

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from facts.table import execute
from policy.core.clock import text_of
from policy.models import Environment, PolicyVersion, Revision


def fact(predicate: str, *args: str) -> dict:
    values = [arg.partition(":")[::2] if ":" in arg else ("String", arg) for arg in args]
    return {"predicate": predicate, "args": [{"type": kind, "id": text} for kind, text in values]}


READERS = """
actor User {}
resource Doc { roles = ["reader", "writer"]; permissions = ["read"]; relations = { parent: Folder };
  "reader" if "writer"; "read" if "reader"; "reader" if "reader" on "parent"; }
resource Folder { roles = ["reader"]; relations = { parent: Folder }; "reader" if "reader" on "parent"; }
"""
NOBODY = """
actor User {}
resource Doc { roles = ["reader", "writer"]; permissions = ["read"]; relations = { parent: Folder };
  "read" if "writer"; }
resource Folder { roles = ["reader"]; relations = { parent: Folder }; }
"""
ANN = fact("has_role", "User:ann", "reader", "Doc:d")
ANN_THERE = fact("has_role", "User:ann", "reader", "Folder:top")
IN_TOP = fact("has_relation", "Doc:e", "parent", "Folder:sub")
SUB = fact("has_relation", "Folder:sub", "parent", "Folder:top")
MAY = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc", "resource_id": "d"}
LIST = {"actor_type": "User", "actor_id": "ann", "action": "read", "resource_type": "Doc", "page_size": 10000}


@pytest.fixture
def story(api) -> dict[str, int]:
    """What happened, each with its revision."""
    offsets = {"nothing": 0}

    def note(name: str, response) -> None:
        assert response.status_code == 200, response.content
        offsets[name] = int(response["OsoOffset"])

    note("policy", api.post("/policy", {"src": READERS, "filename": "a.polar"}))
    note("ann", api.post("/batch", [{"inserts": [ANN]}]))
    note("folders", api.post("/batch", [{"inserts": [ANN_THERE, IN_TOP, SUB]}]))
    note("gone", api.post("/batch", [{"deletes": [ANN, SUB]}]))
    note("again", api.post("/batch", [{"inserts": [ANN]}]))
    note("other policy", api.post("/policy", {"src": NOBODY, "filename": "b.polar"}))
    note("cleared", api.post("/clear_data", {}))
    return offsets


def test_each_question_is_answered_as_it_was_then(api, story):
    may = {name: allowed(api, revision) for name, revision in story.items() if name != "nothing"}
    assert may == {
        "policy": False, "ann": True, "folders": True, "gone": False, "again": True, "other policy": False,
        "cleared": False,
    }  # fmt: skip
    listed = {name: asked(api, "/list", LIST, revision)["results"] for name, revision in story.items() if revision}
    assert listed == {
        "policy": [], "ann": ["d"], "folders": ["d", "e"], "gone": [], "again": ["d"], "other policy": [],
        "cleared": [],
    }  # fmt: skip
    actions = {"actor_type": "User", "actor_id": "ann", "resource_type": "Doc", "resource_id": "e"}
    assert asked(api, "/actions", actions, story["folders"])["results"] == ["read"]
    assert asked(api, "/actions", actions, story["gone"])["results"] == []
    among = {**LIST, "resources": [{"type": "Doc", "id": "e"}, {"type": "Doc", "id": "d"}]}
    assert len(asked(api, "/authorize_resources", among, story["folders"])["results"]) == 2
    ann = {"type": "User", "id": "ann"}
    each = {"checks": [{"actor": ann, "action": "read", "resource": {"type": "Doc", "id": one}} for one in "de"]}
    assert asked(api, "/authorize_each", each, story["folders"])["results"] == [True, True]
    assert asked(api, "/authorize_each", each, story["again"])["results"] == [True, False]
    query = {
        "predicate": ["has_role", ["who", "role", "doc"]],
        "constraints": {
            "who": {"type": "User"},
            "role": {"type": "String", "ids": ["reader"]},
            "doc": {"type": "Doc", "ids": ["e"]},
        },
    }
    assert [row["who"] for row in asked(api, "/evaluate_query", query, story["folders"])["results"]] == ["ann"]
    assert asked(api, "/evaluate_query", query, story["gone"])["results"] == []


def test_questions_of_older_clients_are_answered_as_it_was_then(api, story):
    pattern = {"predicate": "has_role", "args": [{"type": "User"}, {"type": "String", "id": "reader"}, {"type": "Doc"}]}
    found = {name: asked(api, "/query", {"fact": pattern}, story[name])["results"] for name in ("folders", "gone")}
    assert [each["args"][2]["id"] for each in found["folders"]] == ["d", "e"] and found["gone"] == []
    by_writers = asked(api, "/query", {"fact": pattern, "policy_version": 2}, story["folders"])["results"]
    assert [each["args"][2]["id"] for each in by_writers] == ["d"]

    ann = {"actor_type": "User", "actor_id": "ann", "resource_type": "Doc"}
    both = [ann | {"resource_id": "e"}, ann | {"resource_id": "d"}]
    assert many_at(api, both, story["folders"]) == [["read"], ["read"]]
    assert many_at(api, both, story["again"]) == [[], ["read"]]
    assert many_at(api, [both[0], both[1] | {"as_of": story["again"]}], story["again"]) == [[], ["read"]]
    assert many_at(api, both, None) == [[], []]


@pytest.mark.parametrize(
    "first, second, reason",
    [
        ({"as_of": 2}, {"as_of": 3}, "[1].as_of: must be the same as in the first query"),
        ({}, {"as_of": 3}, "[1].as_of: must be the same as in the first query"),
        ({}, {"policy_version": 1}, "[1].policy_version: must be the same as in the first query"),
        ({"as_of": "x"}, {}, "[0].as_of: must be a revision number or a time such as"),
        ({"as_of": 1000}, {}, "as_of: revision 1000 does not exist yet"),
    ],
)
def test_questions_that_come_together_are_of_one_moment(api, story, first, second, reason):
    ann = {"actor_type": "User", "actor_id": "ann", "resource_type": "Doc", "resource_id": "d"}
    refused = api.post("/bulk_actions", [ann | first, ann | second])
    assert refused.status_code == 400 and refused.json()["message"].startswith(reason), refused.json()


def test_explanations_and_facts_are_those_of_then(api, story):
    then = asked(api, "/explain", MAY | {"resource_id": "e"}, story["folders"])
    assert then["allowed"] and then["policy_version"] == 1
    after = asked(api, "/explain", MAY | {"resource_id": "e"}, story["gone"])
    assert not after["allowed"] and after["obstacles"]
    facts = stored(api, predicate="has_role", as_of=story["folders"])
    assert len(facts.json()) == 2 and facts["OsoOffset"] == str(story["folders"])
    assert len(stored(api, as_of=story["gone"]).json()) == 2
    in_top = {"predicate": "has_relation", "args.2.type": "Folder", "args.2.id": "top"}
    assert len(stored(api, as_of=story["folders"], **in_top).json()) == 1
    assert stored(api, as_of=0).json() == []


def test_answers_say_of_which_revision_they_are(api, story):
    now = api.post("/authorize", MAY)
    assert now["OsoOffset"] == str(story["cleared"])
    again = api.post("/authorize", MAY)
    kept = api.post("/authorize", MAY)
    assert again["OsoOffset"] == kept["OsoOffset"] == now["OsoOffset"]
    assert api.post("/list", LIST)["OsoOffset"] == now["OsoOffset"]
    assert api.post("/explain", MAY)["OsoOffset"] == now["OsoOffset"]
    then = api.post("/authorize", MAY | {"as_of": story["ann"]})
    assert then["OsoOffset"] == str(story["ann"])


def test_a_time_names_the_last_revision_by_then(api, story):
    times = dict(Revision.objects.values_list("number", "at"))
    assert times[story["ann"]] <= times[story["folders"]] <= times[story["gone"]]
    for name in ("ann", "gone", "again"):
        later = [number for number in times if times[number] == times[story[name]]]
        assert allowed(api, text_of(times[story[name]])) == allowed(api, max(later))


def test_a_time_names_a_revision_of_the_same_environment(api, story, new_api):
    other = new_api("other")
    for number in range(len(story) + 1):
        assert other.post("/facts", fact("p", f"T:{number}")).status_code == 200
    latest = Revision.objects.filter(environment=other.environment).latest("number")
    assert latest.number > story["cleared"]
    assert api.post("/authorize", MAY | {"as_of": text_of(latest.at)})["OsoOffset"] == str(story["cleared"])


def test_before_the_first_fact_nothing_is_allowed(api):
    """The facts of today do not count."""
    policy = int(api.post("/policy", {"src": READERS})["OsoOffset"])
    assert api.post("/facts", ANN).status_code == 200
    assert (allowed(api, policy), allowed(api, policy + 1)) == (False, True)


def test_a_fact_that_expires_at_the_time_of_a_revision_is_not_of_it(api):
    number = int(api.post("/facts", ANN)["OsoOffset"])
    at = Revision.objects.get(environment=api.environment, number=number).at
    for expires_at, facts in ((at, []), (at + 1, [ANN["args"]])):
        execute("UPDATE authz_fact SET expires_at = %s", (expires_at,))
        assert [each["args"] for each in stored(api, as_of=number).json()] == facts


def test_a_time_is_one_however_it_is_written(api, story):
    at = dict(Revision.objects.values_list("number", "at"))[story["ann"]]
    time_of_ann = datetime.fromtimestamp(at / 1_000_000, UTC).replace(microsecond=at % 1_000_000)
    east = time_of_ann.astimezone(timezone(timedelta(hours=5, minutes=30))).isoformat()
    west = time_of_ann.astimezone(timezone(timedelta(hours=-12))).isoformat()
    text = text_of(at)
    for each in (text, text.lower(), text.replace("Z", "-00:00"), text.replace("Z", "999Z"), east, west):
        assert api.post("/authorize", MAY | {"as_of": each})["OsoOffset"] == str(story["ann"]), each
        assert stored(api, as_of=each)["OsoOffset"] == str(story["ann"]), each
    assert api.post("/authorize", MAY | {"as_of": text_of(at - 1)})["OsoOffset"] == str(story["policy"])


def test_another_policy_is_asked_with_and_without_a_moment(api, story):
    writer = fact("has_role", "User:ann", "writer", "Doc:d")
    assert api.post("/authorize", MAY | {"context_facts": [ANN]}).json() == {"allowed": False}
    assert api.post("/authorize", MAY | {"context_facts": [ANN], "policy_version": 1}).json() == {"allowed": True}
    assert api.post("/authorize", MAY | {"context_facts": [writer], "policy_version": 2}).json() == {"allowed": True}
    assert allowed(api, story["ann"]) and not allowed(api, story["ann"], policy_version=2)
    assert allowed(api, story["cleared"], policy_version=1) is False


@pytest.mark.parametrize(
    "asked_of, reason",
    [
        ({"as_of": 1000}, "as_of: revision 1000 does not exist yet; the latest is revision 7"),
        ({"as_of": "2999-01-01T00:00:00Z"}, "as_of: 2999-01-01T00:00:00.000000Z is in the future"),
        ({"as_of": 0}, "no policy was active at revision 0; set `policy_version` to use another version"),
        ({"as_of": -1}, "as_of: must be a revision number or a time such as 2026-11-03T14:02:11Z"),
        ({"as_of": True}, "as_of: must be a revision number or a time such as 2026-11-03T14:02:11Z"),
        ({"as_of": "2026-11-03T14:02:11"}, "as_of: must be a revision number or a time with an offset from UTC"),
        (
            {"as_of": "yesterday"},
            "as_of: must be a revision number or a time such as 2026-11-03T14:02:11Z, not 'yesterday'",
        ),
        (
            {"as_of": "0001-01-01T00:00:00+14:00"},
            "as_of: must be a revision number or a time within the years 1 to 9999, in UTC",
        ),
        (
            {"as_of": "9999-12-31T23:59:59-14:00"},
            "as_of: must be a revision number or a time within the years 1 to 9999, in UTC",
        ),
        ({"as_of": "0" * 20 + "9" * 30}, "as_of: must be a revision number or a time"),
        ({"as_of": "0" * 20 + "9" * 5000}, "as_of: must be a revision number or a time"),
        ({"as_of": "0" * 5000 + "8"}, "as_of: revision 8 does not exist yet"),
        ({"as_of": "0001-01-01T00:00:00Z"}, "no policy was active at revision 0"),
        (
            {"as_of": "2026-11-03T14:02:11 01:00"},
            "as_of: must be a revision number or a time such as 2026-11-03T14:02:11Z, not "
            "'2026-11-03T14:02:11 01:00' (in a URL, encode + as %2B)",
        ),
        ({"policy_version": 9}, "policy_version: policy version 9 does not exist"),
        ({"policy_version": "1"}, "policy_version: must be a policy version number"),
    ],
)
def test_what_cannot_be_asked_says_why(api, story, asked_of, reason):
    refused = api.post("/authorize", MAY | asked_of)
    assert refused.status_code == 400 and refused.json()["message"].startswith(reason), refused.json()


def test_before_the_horizon_nothing_is_known(api, story):
    Environment.objects.filter(pk=api.environment.pk).update(horizon=story["gone"])
    refused = api.post("/authorize", MAY | {"as_of": story["ann"]})
    assert refused.status_code == 400
    assert "is no longer available; the oldest available is revision 4, 20" in refused.json()["message"]
    assert allowed(api, story["gone"]) is False and allowed(api, story["again"]) is True


def test_a_page_whose_history_is_dropped_meanwhile_says_what_is_known(api, story, monkeypatch):
    monkeypatch.setattr("checks.serializers.SMALLEST", 1)
    first = api.post("/list", LIST | {"page_size": 1, "as_of": story["folders"]}).json()
    Environment.objects.filter(pk=api.environment.pk).update(horizon=story["gone"])
    refused = api.post("/list", LIST | {"page_token": first["next_page_token"]})
    assert refused.status_code == 400
    said = "as_of: revision 3 is no longer available; the oldest available is revision 4, 20"
    assert refused.json()["message"].startswith(said)


def test_a_wrong_key_learns_nothing(api, story):
    refused = api.post("/authorize", MAY | {"as_of": 1000}, Authorization="Bearer e_no_such_key")
    assert refused.status_code == 401


def test_what_a_batch_deletes_and_inserts_again_is_no_change(api, story):
    api.post("/policy", {"src": READERS, "filename": "a.polar"})
    begun = int(api.post("/batch", [{"inserts": [ANN]}])["OsoOffset"])
    for again in ([{"deletes": [ANN]}, {"inserts": [ANN]}], [{"deletes": [ANN]}, {"inserts": [ANN]}] * 2):
        number = int(api.post("/batch", again)["OsoOffset"])
        revision = Revision.objects.get(environment=api.environment, number=number)
        assert (revision.inserted, revision.deleted) == (0, 0)
    assert allowed(api, begun) and not allowed(api, begun - 1) and allowed(api, number)
    there_and_gone = int(api.post("/batch", [{"inserts": [ANN_THERE]}, {"deletes": [ANN_THERE]}])["OsoOffset"])
    revision = Revision.objects.get(environment=api.environment, number=there_and_gone)
    assert (revision.inserted, revision.deleted) == (0, 0)


def test_a_revision_says_who_made_it(api, story):
    revisions = {each.number: each for each in Revision.objects.filter(environment=api.environment)}
    assert sorted(revisions) == list(range(1, 8))
    first = revisions[story["policy"]]
    assert (first.kind, first.policy_version.number) == ("policy", 1)
    counts = {name: (revisions[number].inserted, revisions[number].deleted) for name, number in story.items() if number}
    assert counts == {
        "policy": (0, 0), "ann": (1, 0), "folders": (3, 0), "gone": (0, 2), "again": (1, 0), "other policy": (0, 0),
        "cleared": (0, 3),
    }  # fmt: skip
    assert {each.author.split()[0] for each in revisions.values()} == {"key"}
    assert [revisions[story[name]].kind for name in ("ann", "cleared")] == ["facts", "clear"]


def test_pages_as_of_a_revision_are_all_of_that_one(api, story, monkeypatch):
    monkeypatch.setattr("checks.serializers.SMALLEST", 1)
    first = api.post("/list", LIST | {"page_size": 1, "as_of": story["folders"]}).json()
    assert first["results"] == ["d"]
    second = api.post("/list", LIST | {"page_token": first["next_page_token"]})
    assert second.json() == {"results": ["e"], "next_page_token": None}
    assert second["OsoOffset"] == str(story["folders"])


def test_a_page_token_is_of_the_moment_that_the_request_names(api, story, monkeypatch):
    monkeypatch.setattr("checks.serializers.SMALLEST", 1)
    folders, ann = {"as_of": story["folders"]}, {"as_of": story["ann"]}
    for first, same, others in (
        (folders, ({}, folders, {"policy_version": 1}), (ann, folders | {"policy_version": 2}, {"policy_version": 2})),
        (folders | {"policy_version": 1}, (folders,), (ann, ann | {"policy_version": 1})),
    ):
        page = api.post("/list", LIST | {"page_size": 1} | first).json()
        going_on = LIST | {"page_token": page["next_page_token"]}
        for body in same:
            assert api.post("/list", going_on | body).json() == {"results": ["e"], "next_page_token": None}
        for body in others:
            refused = api.post("/list", going_on | body)
            said = {"message": "page_token: is not a valid page token for this list; start again without `page_token`"}
            assert (refused.status_code, refused.json()) == (400, said)


def test_pages_by_another_policy_go_on_while_time_does(api, story, monkeypatch):
    monkeypatch.setattr("checks.serializers.SMALLEST", 1)
    api.post("/batch", [{"inserts": [ANN, ANN_THERE, IN_TOP, SUB]}])
    page = api.post("/list", LIST | {"page_size": 1, "policy_version": 1}).json()
    api.post("/batch", [{"deletes": [SUB]}])
    going_on = LIST | {"page_token": page["next_page_token"], "policy_version": 1}
    assert api.post("/list", going_on).json() == {"results": ["e"], "next_page_token": None}
    assert api.post("/list", going_on | {"policy_version": 2}).status_code == 400


def test_commands_ask_of_a_moment(api, story, capsys):
    here = ["--environment", api.environment.slug, "--as-of"]
    may = ["authorize", "User:ann", "read", "Doc:d"]
    call_command("ask", *may, *here, str(story["ann"]))
    assert capsys.readouterr().out == "allowed\n"
    call_command("ask", *may, "--explain", *here, str(story["gone"]))
    assert "denied" in capsys.readouterr().out.lower()
    call_command("ask", *may, "--explain", *here, str(story["ann"]), "--policy-version", "2")
    assert "denied" in capsys.readouterr().out.lower()
    call_command("dump_facts", *here, str(story["folders"]))
    assert len(capsys.readouterr().out.splitlines()) == 4
    call_command("show_policy", *here, str(story["ann"]))
    assert capsys.readouterr().out == READERS
    with pytest.raises(CommandError, match="not allowed with argument"):
        call_command("show_policy", *here, str(story["ann"]), "--version", "2")


def test_a_policy_of_then_that_does_not_compile_any_more_is_named(api, story):
    version = PolicyVersion.objects.create(environment=api.environment, number=77, source="actor User {", digest="x")
    for path, body in (("/authorize", MAY), ("/list", LIST), ("/explain", MAY)):
        for asked_of in ({}, {"as_of": story["ann"]}):
            refused = api.post(path, body | asked_of | {"policy_version": version.number})
            assert refused.status_code == 400 and set(refused.json()) == {"message"}
            assert refused.json()["message"].startswith("policy version 77 no longer compiles:\npolicy:1:12: ")


def test_the_clock_of_then_counts(api):
    timed = 'actor User {}\nresource Doc { permissions = ["read"]; }\n' + (
        'has_permission(user: User, "read", doc: Doc) if until matches Integer and has_grant(user, doc, until)'
        " and now matches Integer and @current_unix_time < until;"
    )
    timed = timed.replace(" and now matches Integer", "")
    assert api.post("/policy", {"src": timed, "filename": "t.polar"}).status_code == 200
    soon = int(time.time()) + 2
    grant = {
        "predicate": "has_grant",
        "args": [{"type": "User", "id": "ann"}, {"type": "Doc", "id": "d"}, {"type": "Integer", "id": str(soon)}],
    }
    stored = int(api.post("/batch", [{"inserts": [grant]}])["OsoOffset"])
    assert api.post("/authorize", MAY).json() == {"allowed": True}
    while time.time() < soon:
        time.sleep(0.1)
    assert api.post("/authorize", MAY).json() == {"allowed": False}
    assert allowed(api, stored)
    with transaction.atomic():  # where the driver is another one, which says the types of values
        assert api.post("/authorize", MAY).json() == {"allowed": False}
        assert allowed(api, stored)


def allowed(api, as_of, **more) -> bool:
    return asked(api, "/authorize", MAY, as_of, **more)["allowed"]


def asked(api, path, body, as_of, **more):
    response = api.post(path, body | {"as_of": as_of} | more)
    assert response.status_code == 200, response.content
    return response.json()


def stored(api, **query):
    return api.get(f"/facts?{urlencode(query)}")


def many_at(api, bodies: list[dict], as_of: int | None) -> list[list[str]]:
    answer = api.post("/bulk_actions", bodies if as_of is None else [bodies[0] | {"as_of": as_of}, *bodies[1:]])
    assert answer.status_code == 200, answer.content
    assert as_of is None or answer["OsoOffset"] == str(as_of)
    return [each["results"] for each in answer.json()]


@pytest.mark.parametrize("levels", range(5, 8))
def test_exceptions_of_exceptions_are_answered_as_they_are_now(api, levels):
    """As of a revision, each fact is looked up in two tables: SQLite's parser takes only so many SELECTs in SELECTs."""
    rules = "\n".join(
        f"free{level}(x: User) if boss(x, y) and not free{level - 1}(y);" for level in range(1, levels + 1)
    )
    policy = f'actor User {{ permissions = ["see"]; }} free0(x: User) if boss(x, x);\n{rules}\n'
    policy += f'has_permission(a: User, "see", _: User) if free{levels}(a);'
    assert api.post("/policy", {"src": policy, "filename": ""}).status_code == 200
    chain = [fact("boss", f"User:u{place}", f"User:u{place + 1}") for place in range(levels + 2)]
    revision = int(api.post("/batch", [{"inserts": chain}])["OsoOffset"])
    answers = set()
    for place in range(levels + 2):
        who = {"actor_type": "User", "actor_id": f"u{place}", "action": "see"}
        one = who | {"resource_type": "User", "resource_id": "u0"}
        now = api.post("/authorize", one).json()
        answers.add(now["allowed"])
        assert api.post("/authorize", one | {"as_of": revision}).json() == now
        listed = who | {"resource_type": "User", "page_size": 100}
        assert api.post("/list", listed | {"as_of": revision}).json() == api.post("/list", listed).json()
    assert answers == {True, False}
