"""Many checks at once are answered as each alone, by few statements, whatever comes together."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

import pytest
from django.db import connection, transaction

from checks.asking import ask, by_rows, run
from checks.errors import StatementTooLarge
from checks.serializers import MAX_CHECKS, _check_from_json, _plain_check
from policy.errors import MalformedRequest
from tests.checks.conftest import about, fact, publish, store, value
from tests.checks.statements import counted
from tests.checks.test_statement_count import TWO_SIDES

USERS = ("ann", "bob", "root", "eve")
THINGS, ACTIONS = ("Repo:a", "Repo:b", "Repo:p", "Org:o"), ("read", "write", "fly")


@pytest.fixture(autouse=True)
def asked_anew(settings) -> None:
    settings.ANSWER_CACHE = 0


def check(actor: str, action: str, resource: str) -> dict:
    return {"actor": value(actor), "action": action, "resource": value(resource)}


def each(api, *checks: dict, **members: object) -> list[bool]:
    answer = api.post("/authorize_each", {"checks": list(checks), **members})
    assert answer.status_code == 200, answer.content
    return answer.json()["results"]


def alone(api, one: dict, **members: object) -> bool:
    actor, resource = one["actor"], one["resource"]
    body = {"actor_type": actor["type"], "actor_id": actor["id"], "action": one["action"], **members,
            "resource_type": resource["type"], "resource_id": resource["id"]}  # fmt: skip
    return api.post("/authorize", body).json()["allowed"]


CHECKS = [check(f"User:{user}", action, thing) for user in USERS for thing in THINGS for action in ACTIONS]
ODD = [
    check("Robot:ann", "read", "Repo:a"), check("User:ann", "read", "Nothing:a"), check("User:o'hara", '"]', "Repo:$1"),
    check("User:**", "read", "Repo:%s"), check("User:\N{GRINNING FACE}", "\\u0000", "Repo:null"),
    check("Repo:a", "read", "User:ann"), check("User:a", "read", "User:a"), check("String:read", "read", "String:read"),
    check("Integer:007", "read", "Boolean:true"),
]  # fmt: skip
CONTEXT = [fact("has_role", "User:eve", "writer", "Repo:a"), fact("is_public", "Repo:b"), fact("unknown", "User:eve")]


@pytest.mark.parametrize("context", [[], CONTEXT], ids=["plain", "with context facts"])
def test_each_is_answered_as_alone(repos, context):
    checks = [*CHECKS, *ODD, *CHECKS[::7]]
    wanted = [alone(repos, one, context_facts=context) for one in checks]
    assert each(repos, *checks, context_facts=context) == wanted and 8 < sum(wanted) < len(wanted) / 2
    assert each(repos, *checks[::-1], context_facts=context) == wanted[::-1]


def test_without_a_policy_too(api):
    pairs = (("User:ann", "Repo:a"), ("Bot:ann", "Bot:ann"))
    store(api, *(fact("has_permission", who, "read", what) for who, what in pairs))
    found = each(api, check("User:ann", "read", "Repo:a"), check("Bot:ann", "read", "Bot:ann"), *CHECKS[2:9], *ODD)
    assert found[:2] == [True, True] and not any(found[2:])
    assert each(api, *CHECKS[-2:], check("User:ann", "read", "Repo:a")) == [False, False, True]


def test_one_and_none(repos):
    assert each(repos, check("User:ann", "read", "Repo:a")) == [True]
    assert each(repos) == []
    assert each(repos, *ODD[:1]) == each(repos, *ODD[:2])[:1] == [False]


def test_more_outlines_than_a_statement_takes_are_of_one_moment(api):
    names = [f"act{number}" for number in range(2 * by_rows.MOST_OUTLINES + 3)]
    quoted = ", ".join(f'"{name}"' for name in names)
    rules = " ".join(f'"{name}" if "{name}er";' for name in names)
    roles = quoted.replace('",', 'er",').removesuffix('"') + 'er"'
    publish(api, f"actor User {{}} resource Doc {{ permissions = [{quoted}]; roles = [{roles}]; {rules} }}")
    store(api, *(fact("has_permission", "User:ann", name, "Doc:d") for name in names[::2]))
    checks = [check("User:ann", name, "Doc:d") for name in names]
    wanted = [number % 2 == 0 for number in range(len(names))]
    assert each(api, *checks) == wanted
    with counted() as statements:
        assert each(api, *checks) == wanted
    assert statements[0].startswith("BEGIN") and statements[-1] in ("ROLLBACK", "COMMIT") and len(statements) == 5
    with counted() as statements:
        assert each(api, *checks[5:9]) == wanted[5:9]
    assert len(statements) == 1


def test_outlines_that_come_later_join_those_that_were_asked_before(repos):
    before = len(by_rows._statements)
    for actor in USERS:
        assert each(repos, check(f"User:{actor}", "read", "Repo:a"), check("User:x", "read", "Repo:a")) is not None
    assert len(by_rows._statements) == before + 1
    for _ in range(3):
        each(repos, check("User:ann", "write", "Repo:a"), check("User:ann", "read", "Repo:a"))
        each(repos, check("User:ann", "write", "Repo:a"), check("User:bob", "write", "Repo:a"))
    assert len(by_rows._statements) == before + 2


def test_groups_are_put_together_anew_where_there_are_too_many(repos, monkeypatch):
    monkeypatch.setattr(by_rows, "MOST_OUTLINES", 1)
    monkeypatch.setattr(by_rows, "MOST_GROUPS", 2)
    wanted = [alone(repos, one) for one in CHECKS]
    for _ in range(2):
        assert each(repos, *CHECKS) == wanted
        assert each(repos, *CHECKS[:2]) == wanted[:2]


def test_what_takes_rounds_is_asked_one_by_one_beside_the_others(api):
    publish(api, TWO_SIDES)
    store(api, fact("has_relation", "Doc:1", "left", "Doc:2"), fact("has_relation", "Doc:1", "right", "Doc:3"))
    store(api, *(fact("has_role", "User:ann", "reader", f"Doc:{number}") for number in (2, 3)))
    checks = [check("User:ann", name, f"Doc:{number}") for name in ("read", "other") for number in (1, 2, 4)]
    assert each(api, *checks, checks[0]) == [True, True, False, False, False, False, True]


def test_equal_checks_that_take_rounds_are_asked_once(api):
    publish(api, TWO_SIDES)
    store(api, fact("has_role", "User:ann", "reader", "Doc:1"), fact("has_relation", "Doc:1", "left", "Doc:2"))
    checks = [check("User:ann", "read", "Doc:1"), check("User:ann", "read", "Doc:2")]
    assert each(api, *checks) == [True, False]
    with counted() as once:
        each(api, *checks)
    with counted() as often:
        assert each(api, *checks * 5, checks[0]) == [True, False] * 5 + [True]
    assert len(often) == len(once)


def test_all_is_answered_at_one_time(api, monkeypatch):
    """However long it takes: what is asked together, in several statements, and what takes rounds."""
    publish(api, TWO_SIDES + """
resource Box { permissions = ["read", "write"]; }
has_permission(u: User, _: String, b: Box) if until(u, b, t) and t > @current_unix_time;
has_role(u: User, "reader", d: Doc) if until(u, d, t) and t > @current_unix_time;
""")  # fmt: skip
    store(api, *(fact("until", "User:ann", thing, "Integer:1000") for thing in ("Box:1", "Doc:1", "Doc:2")))
    monkeypatch.setattr(by_rows, "MOST_OUTLINES", 1)
    checks = [check("User:ann", *rest) for rest in (("read", "Box:1"), ("write", "Box:1"))]
    checks += [check("User:ann", "read", f"Doc:{number}") for number in (1, 2)]
    each(api, *checks)
    for now, answer in ((0, True), (999, True), (1000, False)):
        monkeypatch.setattr(run, "given_time", a_clock_from(now))
        assert each(api, *checks) == [answer] * 4
    monkeypatch.setattr(run, "given_time", a_clock_from(999))
    found = api.post("/bulk_actions", [about("User:ann", thing) for thing in ("Box:1", "Doc:1", "Doc:2")]).json()
    assert [each["results"] for each in found] == [["*"], ["read"], ["read"]]


def a_clock_from(now: int) -> Callable[[], str]:
    """A second passes whenever somebody looks."""
    return partial(next, map(str, count(now)))


def test_a_fact_of_this_very_second_counts(api, monkeypatch):
    """Whether it is stored or comes with the question: the time is an id like any other."""
    publish(api, TWO_SIDES + """
resource Box { permissions = ["read"]; }
has_permission(u: User, "read", b: Box) if until(u, b, @current_unix_time);
""")  # fmt: skip
    store(api, fact("until", "User:ann", "Box:1", "Integer:1000"))
    context = fact("until", "User:ann", "Box:2", "Integer:1000")
    for now, answer in ((999, False), (1000, True)):
        monkeypatch.setattr(run, "time_here", lambda now=now: float(now))
        if run.dialect().has_clock:  # a server's clock cannot be set
            monkeypatch.setattr(run, "given_time", lambda now=now: str(now))
        assert each(api, check("User:ann", "read", "Box:1")) == [answer]
        asked = about("User:ann", "Box:2", action="read", context_facts=[context])
        assert api.post("/authorize", asked).json() == {"allowed": answer}


def test_what_is_too_large_together_is_asked_one_by_one(repos, monkeypatch):
    real, tried = ask.answered, []

    def refusing(asker, questions, context, moment, statements_for):
        tried.append(statements_for)
        if statements_for is by_rows.statements_for:
            raise StatementTooLarge
        return real(asker, questions, context, moment, statements_for)

    monkeypatch.setattr(ask, "answered", refusing)
    assert each(repos, *CHECKS[:6]) == [True, False, False, True, False, False] and len(tried) == 2


def test_first_facts_of_their_kinds_count(api):
    """Also those that come between the compiling of one kind and another's."""
    publish(api, 'actor User {} resource Doc { permissions = ["read"]; } resource Box { permissions = ["read"]; }'
                 'has_permission(u: User, "read", d: Doc) if likes(u, d);'
                 'has_permission(u: User, "read", b: Box) if likes(u, b);')  # fmt: skip
    doc, box, none = (
        check("User:ann", "read", "Doc:d"),
        check("User:ann", "read", "Box:d"),
        check("User:a", "x", "Doc:d"),
    )
    assert each(api, doc, none) == [False, False]
    store(api, fact("likes", "User:ann", "Doc:d"))
    assert each(api, doc, box) == [True, False]
    store(api, fact("likes", "User:ann", "Box:d"))
    assert each(api, doc, box) == [True, True]


def test_nothing_that_is_compiled_within_a_transaction_is_left(repos):
    sizes = [len(each) for each in (by_rows._outlines, by_rows._groups, by_rows._statements)]
    with transaction.atomic():
        assert each(repos, *CHECKS[:2]) == [True, False]
    assert [len(each) for each in (by_rows._outlines, by_rows._groups, by_rows._statements)] == sizes


def test_many_that_ask_at_once_are_answered_right(repos):
    wanted = [alone(repos, one) for one in CHECKS]

    def some(start: int) -> bool:
        try:
            return each(repos, *CHECKS[start : start + 9]) == wanted[start : start + 9]
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(some, range(40)))


# ---- wrong bodies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "checks: must be an array, not null or missing"),
        ({"checks": {}}, "checks: must be an array, not an object"),
        ({"checks": [1]}, 'checks[0]: must be an object with "actor", "action" and "resource"'),
        ({"checks": [CHECKS[0], {**CHECKS[0], "actor": "ann"}]},
         'checks[1].actor: must be an object with "type" and "id", not a string'),
        ({"checks": [{**CHECKS[0], "action": ""}]}, "checks[0].action: must not be empty"),
        ({"checks": [{**CHECKS[0], "action": {"name": "read"}}]}, "checks[0].action: must be a string, not an object"),
        ({"checks": [{**CHECKS[0], "resource": {"type": "Repo", "id": "*"}}]},
         "checks[0].resource.id: must not be `*`, which stands for every id in results"),
        ({"checks": [CHECKS[0]], "context_facts": 1}, "context_facts: must be an array, not a number"),
        ({"checks": [CHECKS[0]] * (MAX_CHECKS + 1)}, f"checks: must have at most {MAX_CHECKS} elements"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(repos, body, message):
    answer = repos.post("/authorize_each", body)
    assert (answer.status_code, answer.json()) == (400, {"message": message})


def test_plain_checks_are_read_as_all_others_are():
    for one in [*CHECKS, *ODD]:
        assert _plain_check(one) in (None, _check_from_json(one, ""))
    assert all(map(_plain_check, CHECKS))
    wrong_members = (
        {"action": ""}, {"action": 1}, {"action": "*"}, {"actor": "ann"}, {"actor": None}, {"actor": value("User:\0")},
        {"resource": {"type": [], "id": "a"}}, {"resource": {"type": "", "id": "a"}},
        {"resource": value("R:" + "x" * 600)},
    )  # fmt: skip
    for wrong in (1, [], "actor", {}, *[CHECKS[0] | each for each in wrong_members]):
        assert _plain_check(wrong) is None
        with pytest.raises(MalformedRequest):
            _check_from_json(wrong, "checks[0]")


def test_as_many_as_may_be(repos):
    checks = [check(f"User:{number}", "read", "Repo:a") for number in range(MAX_CHECKS - 1)]
    found = each(repos, check("User:ann", "read", "Repo:a"), *checks)
    assert found == [True] + [False] * (MAX_CHECKS - 1)


# ---- all actions of each --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("context", [[], CONTEXT], ids=["plain", "with context facts"])
def test_actions_of_many_are_those_of_each(repos, context):
    publish(repos, 'actor User {} resource Repo { roles = ["reader", "writer"]; permissions = ["read", "write"];'
                   '"read" if "reader"; "write" if "writer"; }'
                   'has_permission(user: User, action: String, _: Repo) if is_root(user) and not banned(user, action);'
                   'has_permission(user: User, _: String, repo: Repo) if has_role(user, "owner", repo);')  # fmt: skip
    store(repos, fact("has_role", "User:bob", "owner", "Repo:p"))
    bodies = [about(f"User:{user}", thing) for user in USERS for thing in (*THINGS, "Nothing:a")] * 2
    bodies[0] = {**bodies[0], "context_facts": context}
    wanted = [repos.post("/actions", {**body, "context_facts": context}).json() for body in bodies]
    assert repos.post("/bulk_actions", bodies).json() == wanted
    assert {"results": ["*"]} in wanted and {"results": []} in wanted


def test_a_group_that_is_made_later_tests_for_ends_of_all_its_kinds(api):
    """Of kinds that go by no missing signature, one may be compiled from before any of its facts could end."""
    publish(
        api,
        """
actor User {} resource Doc {} resource Org {}
allow(u: User, "read", d: Doc) if has_role(u, "reader", d);
allow(u: User, "read", d: Org) if has_role(u, "reader", d);
""",
    )
    here = [fact("allow", "User:zed", "read", "Doc:z"), fact("allow", "User:zed", "read", "Org:z")]
    store(api, *here, fact("has_role", "User:ann", "reader", "Doc:d"), fact("has_role", "User:ann", "reader", "Org:o"))

    def each(*checks: tuple[str, str]) -> list[bool]:
        body = [{"actor": value(actor), "action": "read", "resource": value(resource)} for actor, resource in checks]
        return api.post("/authorize_each", {"checks": body}).json()["results"]

    first = (("User:ann", "Doc:d"), ("User:ben", "Doc:d"))
    assert each(*first) == [True, False]
    soon = datetime.now(UTC) + timedelta(seconds=1.5)
    ends = fact("has_role", "User:ben", "reader", "Doc:d") | {"expires_at": soon.isoformat()}
    store(api, ends)
    more = (*first, ("User:ann", "Org:o"))
    assert each(*more) == [True, True, True]
    while datetime.now(UTC) <= soon:
        time.sleep(0.05)
    assert each(*more) == [True, False, True] and each(*first) == [True, False]
