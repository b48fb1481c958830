"""The working group's certification scenario for the Authorization API 1.0, all of its seven sub-levels."""

import pytest

pytestmark = pytest.mark.one_database

ALICE, BOB = {"type": "user", "id": "alice"}, {"type": "user", "id": "bob"}
ADMIN = BOB | {"properties": {"role": "admin"}}
ONE, TWO = {"type": "record", "id": "record-1"}, {"type": "record", "id": "record-2"}
ACTIVE, ARCHIVED = (
    ONE | {"properties": {"status": "active"}},
    TWO | {"properties": {"status": "archived"}},
)
READ, WRITE = {"name": "read"}, {"name": "write"}
CONTEXT = {"time": "2025-06-27T18:03-07:00", "ip": "192.168.1.1"}


def asked(subject=ALICE, action=READ, resource=ONE, **others) -> dict:
    return {"subject": subject, "action": action, "resource": resource, **others}


def delete(soft: bool) -> dict:
    return {"name": "delete", "properties": {"soft": soft}}


# ---- Basic ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, decision",
    [
        pytest.param(asked(), True, id="1"),
        pytest.param(asked(action=WRITE), True, id="2"),
        pytest.param(asked(BOB), True, id="3"),
        pytest.param(asked(BOB, WRITE), False, id="4"),
        pytest.param(asked(action=WRITE, resource=ARCHIVED), False, id="5"),
        pytest.param(asked(ADMIN, WRITE, ARCHIVED), True, id="6"),
        pytest.param(asked(action=delete(True)), True, id="7"),
        pytest.param(asked(action=delete(False)), False, id="8"),
        pytest.param(asked(context=CONTEXT), True, id="context"),
        pytest.param(
            asked(
                ALICE | {"properties": {"department": "Sales", "role": "manager"}},
                READ | {"properties": {"method": "GET"}},
                ONE | {"properties": {"status": "active", "owner": "bob"}},
            ),
            True,
            id="more properties",
        ),
        pytest.param(asked(foo="bar", futureField={"nested": True}), True, id="unknown fields"),
    ],
)
def test_decisions(pdp, body, decision):
    for _ in range(3):  # the same again: also from memory
        found = pdp.post("evaluation", body)
        assert (found.status, found.body) == (200, {"decision": decision})
        assert found.headers["Content-Type"] == "application/json"


WRONG = {
    "no subject": {"action": READ, "resource": ONE},
    "no action": {"subject": ALICE, "resource": ONE},
    "no resource": {"subject": ALICE, "action": READ},
    "subject without type": asked({"id": "alice"}),
    "subject without id": asked({"type": "user"}),
    "action without name": asked(action={}),
    "resource without type": asked(resource={"id": "record-1"}),
    "resource without id": asked(resource={"type": "record"}),
    "subject is text": asked("alice"),
    "name is a number": asked(action={"name": 123}),
    "properties are a list": asked(ALICE | {"properties": []}),
    "context is text": asked(context="x"),
    "broken": b'{"subject": ',
    "empty": b"",
    "a list": [],
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("path", ["evaluation", "evaluations"])
def test_what_is_wrong_is_refused(pdp, path, name):
    found = pdp.post(path, WRONG[name])
    assert found.status == 400
    assert found.body["message"]


@pytest.mark.parametrize("path", ["evaluation", "evaluations", "search/subject", "search/resource", "search/action"])
@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-www-form-urlencoded", "application/jsonx"])
def test_only_json_is_taken(pdp, path, kind):
    assert pdp.post(path, asked(), CONTENT_TYPE=kind).status == 400
    assert pdp.post(path, asked(), CONTENT_TYPE="Application/JSON; charset=utf-8").status == 200


def test_the_request_id_is_echoed(pdp):
    assert pdp.post("evaluation", asked(), HTTP_X_REQUEST_ID="mine-7").headers["X-Request-ID"] == "mine-7"
    assert pdp.post("evaluation", asked()).headers["X-Request-ID"]


@pytest.mark.parametrize("path", ["evaluation", "evaluations", "search/subject", "search/resource", "search/action"])
def test_a_key_is_needed(pdp, path):
    pdp.key = "e_default_nothing"
    for body in (asked(), {}):
        assert pdp.post(path, body).status == 401


# ---- Batch ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, decisions",
    [
        ({"subject": BOB, "resource": ONE, "evaluations": [{"action": READ}, {"action": WRITE}]}, [True, False]),
        (
            {"subject": ALICE, "action": WRITE, "evaluations": [{"resource": ACTIVE}, {"resource": ARCHIVED}]},
            [True, False],
        ),
        (
            {"action": WRITE, "resource": ARCHIVED, "evaluations": [{"subject": ALICE}, {"subject": ADMIN}]},
            [False, True],
        ),
        ({"evaluations": [asked(), asked(BOB, WRITE)]}, [True, False]),
        (asked(action=WRITE, resource=ACTIVE, evaluations=[{}, {"resource": ARCHIVED}]), [True, False]),
        (
            {
                "subject": ALICE,
                "action": READ,
                "context": {"time": "1"},
                "evaluations": [{"resource": ONE}, {"resource": TWO, "context": CONTEXT}],
            },
            [True, True],
        ),
    ],
)
def test_batches(pdp, body, decisions):
    for _ in range(3):
        found = pdp.post("evaluations", body)
        assert (found.status, found.body) == (200, {"evaluations": [{"decision": each} for each in decisions]})


def test_an_evaluation_that_is_wrong_is_not_allowed(pdp):
    body = {"subject": ALICE, "action": READ, "options": {"evaluations_semantic": "execute_all"}}
    found = pdp.post("evaluations", body | {"evaluations": [{"resource": ONE}, {}, "x"]})
    allowed, missing, text = found.body["evaluations"]
    assert (found.status, allowed) == (200, {"decision": True})
    assert missing["decision"] is text["decision"] is False
    assert missing["context"]["error"] == {"status": 400, "message": "evaluations[1].resource: is missing"}


@pytest.mark.parametrize("more", [{}, {"evaluations": []}, {"evaluations": None}])
def test_without_evaluations_it_is_one(pdp, more):
    assert pdp.post("evaluations", asked() | more).body == {"decision": True}


@pytest.mark.parametrize(
    "semantic, decisions",
    [
        ("execute_all", [True, False, True]),
        ("deny_on_first_deny", [True, False]),
        ("permit_on_first_permit", [True]),
    ],
)
def test_semantics(pdp, semantic, decisions):
    body = {"resource": ONE, "options": {"evaluations_semantic": semantic}}
    three = [{"subject": BOB, "action": READ}, {"subject": BOB, "action": WRITE}, {"subject": ALICE, "action": WRITE}]
    found = pdp.post("evaluations", body | {"evaluations": three})
    assert [each["decision"] for each in found.body["evaluations"]] == decisions


def test_another_semantic_is_refused(pdp):
    assert pdp.post("evaluations", asked(options={"evaluations_semantic": "x"}, evaluations=[{}])).status == 400


# ---- Search --------------------------------------------------------------------------------------------------------


def ids(found) -> list[str]:
    assert found.status == 200, found.body
    return [each.get("id") or each["name"] for each in found.body["results"]]


@pytest.mark.parametrize("more", [{}, {"context": CONTEXT}])
def test_subjects_are_found(pdp, more):
    found = pdp.post("search/subject", asked({"type": "user"}, **more))
    assert found.body == {"results": [ALICE, BOB]}
    assert pdp.post("search/subject", asked(ALICE, **more)).body == found.body  # an id is ignored
    assert ids(pdp.post("search/subject", asked({"type": "user"}, WRITE, ARCHIVED))) == ["bob"]


@pytest.mark.parametrize("more", [{}, {"context": CONTEXT}])
def test_resources_are_found(pdp, more):
    found = pdp.post("search/resource", asked(resource={"type": "record"}, **more))
    assert found.body == {"results": [ONE, TWO]}
    assert pdp.post("search/resource", asked(**more)).body == found.body
    assert ids(pdp.post("search/resource", asked(ADMIN, WRITE, {"type": "record"}))) == ["record-2"]


@pytest.mark.parametrize("more", [{}, {"context": CONTEXT}])
def test_actions_are_found(pdp, more):
    found = pdp.post("search/action", {"subject": ALICE, "resource": ONE, **more})
    assert found.body == {"results": [READ, WRITE]}
    assert ids(pdp.post("search/action", {"subject": ADMIN, "resource": ARCHIVED})) == ["write"]


def test_pages(pdp):
    body, found, token = asked({"type": "user"}), [], None
    while token != "":
        page = {"token": token} if token else {"limit": 1}
        answer = pdp.post("search/subject", body | {"page": page})
        assert answer.body["page"]["count"] == 1
        found += ids(answer)
        token = answer.body["page"]["next_token"]
    assert found == ["alice", "bob"]


@pytest.mark.parametrize("path", ["subject", "resource", "action"])
def test_pages_of_every_search_are_its_whole(pdp, path):
    body = asked({"type": "user", "id": "alice"}, READ, {"type": "record", "id": "record-1"})
    whole = pdp.post(f"search/{path}", body).body["results"]
    found, token = [], ""
    while True:
        answer = pdp.post(f"search/{path}", body | {"page": {"limit": 1, "token": token}}).body
        found += answer["results"]
        token = answer["page"]["next_token"]
        if not token:
            break
    assert found == whole


def test_a_token_of_another_search_is_refused(pdp):
    token = pdp.post("search/subject", asked({"type": "user"}, page={"limit": 1})).body["page"]["next_token"]
    for body in (asked({"type": "user"}, WRITE), asked({"type": "user"}, resource=TWO)):
        assert pdp.post("search/subject", body | {"page": {"token": token}}).status == 400
    assert pdp.post("search/subject", asked({"type": "user"}, page={"token": f"{token}x"})).status == 400


def test_a_page_of_none_says_whether_there_is_more(pdp):
    """The specification takes any limit that is not negative."""
    body = asked({"type": "user"}, page={"limit": 0})
    first = pdp.post("search/subject", body)
    assert (first.status, first.body["results"], first.body["page"]["count"]) == (200, [], 0)
    token = first.body["page"]["next_token"]
    again = pdp.post("search/subject", body | {"page": {"token": token}}).body
    assert (again["results"], bool(again["page"]["next_token"])) == ([], True)
    nobody = pdp.post("search/subject", asked({"type": "spaceship"}, page={"limit": 0})).body
    assert nobody == {"page": {"next_token": "", "count": 0}, "results": []}


def test_a_token_goes_with_the_limit_that_it_was_given_for(pdp):
    body = asked({"type": "user"})
    token = pdp.post("search/subject", body | {"page": {"limit": 1}}).body["page"]["next_token"]
    for limit, status in ((1, 200), (None, 200), (2, 400), (0, 400)):
        answer = pdp.post("search/subject", body | {"page": {"limit": limit, "token": token}})
        assert answer.status == status, limit
    assert answer.body["message"].startswith("page.limit: must be the limit that")


def test_the_page_comes_first(pdp):
    """As the specification recommends for long answers."""
    answer = pdp.post("search/subject", asked({"type": "user"}, page={"limit": 1}))
    assert list(answer.body) == ["page", "results"]


@pytest.mark.parametrize("page", [{"limit": -1}, {"limit": "5"}, {"limit": True}, {"token": 5}, []])
def test_a_page_that_is_wrong_is_refused(pdp, page):
    assert pdp.post("search/subject", asked({"type": "user"}, page=page)).status == 400


@pytest.mark.parametrize(
    "path, body",
    [
        ("action", {"subject": {"type": "user", "id": "nobody"}, "resource": ONE}),
        ("action", {"subject": {"type": "spaceship", "id": "x"}, "resource": ONE}),
        ("subject", asked({"type": "spaceship"})),
        ("subject", asked({"type": "user"}, resource={"type": "spaceship", "id": "x"})),
        ("resource", asked(resource={"type": "spaceship"})),
        ("resource", asked({"type": "a b'\"c", "id": "x"}, resource={"type": "record"})),
        ("subject", asked({"type": "user"}, {"name": "fly"})),
    ],
)
def test_what_nobody_knows_finds_nothing(pdp, path, body):
    assert pdp.post(f"search/{path}", body).body == {"results": []}


@pytest.mark.parametrize(
    "subject, resource", [({"type": "spaceship", "id": "x"}, ONE), (ALICE, {"type": "é", "id": "x"})]
)
def test_what_nobody_knows_is_not_allowed(pdp, subject, resource):
    assert pdp.post("evaluation", asked(subject, resource=resource)).body == {"decision": False}


@pytest.mark.parametrize(
    "path, body",
    [
        ("subject", {"subject": {"type": "user"}, "resource": ONE}),
        ("resource", {"action": READ, "resource": {"type": "record"}}),
        ("action", {"subject": ALICE}),
        ("subject", asked({"type": "user"}, resource={"type": "record"})),
        ("resource", asked({"type": "user"}, resource={"type": "record"})),
        ("action", {"subject": {"type": "user"}, "resource": ONE}),
    ],
)
def test_a_search_that_is_wrong_is_refused(pdp, path, body):
    assert pdp.post(f"search/{path}", body).status == 400


# ---- Discovery -----------------------------------------------------------------------------------------------------


def test_the_endpoints_are_found(pdp, settings):
    path = "/.well-known/authzen-configuration"
    pdp.key = ""
    found = pdp.request("GET", path, HTTP_HOST="pdp.example.com", **{"wsgi.url_scheme": "https"})
    assert found.status == 200 and found.headers["Content-Type"] == "application/json"
    base = "https://pdp.example.com"
    assert found.body["policy_decision_point"] == base
    assert found.body["access_evaluation_endpoint"] == f"{base}/access/v1/evaluation"
    assert all(each.startswith(base) for each in found.body.values())
    forwarded = {"HTTP_X_FORWARDED_PROTO": "https", "HTTP_X_FORWARDED_HOST": "evil.example, inner.example.com"}
    assert pdp.request("GET", path, **forwarded).body["policy_decision_point"] == "http://testserver"
    settings.PUBLIC_URL = "forwarded"
    assert pdp.request("GET", path, **forwarded).body["policy_decision_point"] == "https://inner.example.com"
    assert pdp.request("GET", path, HTTP_HOST="a b").body["policy_decision_point"] == "http://testserver:80"
    settings.ALLOWED_HOSTS = ["pdp.example.com"]
    assert pdp.request("GET", path, HTTP_HOST="evil.example").status == 400
    assert found.headers["Cache-Control"] == "no-store"
    settings.PUBLIC_URL = "https://authz.example.org"
    allowed = pdp.request("GET", path, HTTP_HOST="pdp.example.com")
    assert allowed.body["policy_decision_point"] == "https://authz.example.org"
