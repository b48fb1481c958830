"""Every question over HTTP: the exact bodies of answers, and what is said of bodies that are wrong."""

from itertools import product

from checks.asking.ask import LiveSession
from tests.checks.conftest import about, fact, publish, store, value
from tests.sampling import together

ANN_READS = about("User:ann", action="read")
HOSTILE = [
    "o'hara", '"; DROP TABLE authz_fact; --', "%s %d %%", "$1 ?1 :v0", "a\\b", "naïve ü 漢字 🙂", "line\nbreak\ttab",
    " padded ", "a:b", "{}", "[]", "null", "0", "-", "a" * 512,
]  # fmt: skip


# ---- authorize ----------------------------------------------------------------------------------------------


@together(
    "actor, action, resource, allowed",
    [
        ("User:ann", "read", "Repo:a", True),
        ("User:ann", "read", "Repo:b", True),
        ("User:ann", "write", "Repo:a", False),
        ("User:bob", "write", "Repo:a", True),
        ("User:bob", "read", "Repo:b", False),
        ("User:nobody", "read", "Repo:p", True),
        ("User:root", "read", "Repo:never-mentioned", True),
        ("User:Ann", "read", "Repo:a", False),
        ("User:ann ", "read", "Repo:a", False),
        ("User:ann", "frob", "Repo:a", False),
        ("Robot:ann", "read", "Repo:a", False),
        ("User:ann", "read", "Planet:a", False),
        ("Actor:ann", "read", "Repo:a", False),
        ("User:ann", "read", "Resource:a", False),
    ],
)
def test_authorize_says_yes_or_no(repos, actor, action, resource, allowed):
    answer = repos.post("/authorize", about(actor, resource, action=action))
    assert answer.status_code == 200
    assert answer.json() == {"allowed": allowed}


def test_context_facts_count_for_one_question_only(repos):
    question = about("User:ann", "Repo:z", action="read")
    context = [fact("has_role", "User:ann", "reader", "Repo:z")]
    assert repos.post("/authorize", {**question, "context_facts": context}).json() == {"allowed": True}
    assert repos.post("/authorize", {**question, "context_facts": []}).json() == {"allowed": False}
    assert repos.post("/authorize", {**question, "context_facts": None}).json() == {"allowed": False}


def test_context_facts_have_the_form_of_stored_ones(repos):
    question = about("User:ann", "Repo:z", action="read")
    empty = {"predicate": "nonsense", "args": []}
    for wrong in (fact("is_public", "Repo:*"), fact("nonsense", "Repo:"), empty, "nonsense"):
        context = [fact("is_public", "Repo:x"), wrong]
        answer = repos.post("/authorize", {**question, "context_facts": context})
        assert answer.status_code == 400
        assert answer.json()["message"].startswith("context_facts[1]")


def test_a_stored_permission_is_enough(repos):
    store(repos, fact("has_permission", "User:eve", "write", "Repo:a"))
    assert repos.post("/authorize", about("User:eve", "Repo:a", action="write")).json() == {"allowed": True}


def test_without_a_policy_permissions_that_are_facts_are_allowed(api):
    store(api, fact("has_permission", "User:bob", "read", "Repo:acme"))
    assert api.post("/authorize", about("User:bob", "Repo:acme", action="read")).json() == {"allowed": True}
    assert api.post("/authorize", about("User:bob", "Repo:acme", action="write")).json() == {"allowed": False}
    assert api.post("/actions", about("User:bob", "Repo:acme")).json() == {"results": ["read"]}
    found = api.post("/query", {"fact": {"predicate": "allow", "args": [None, None, None]}}).json()
    assert found == {"results": [fact("allow", "User:bob", "read", "Repo:acme")]}


def test_members_that_are_not_known_are_ignored(repos):
    body = about("User:ann", "Repo:a", action="read", explain=True, context_facts=[])
    assert repos.post("/authorize", body).json() == {"allowed": True}


# ---- what is wrong with a body --------------------------------------------------------------------------------

GOOD = {
    "/authorize": about("User:ann", "Repo:a", action="read"),
    "/actions": about("User:ann", "Repo:a"),
    "/list": about("User:ann", action="read", resource_type="Repo", page_size=10000),
    "/authorize_resources": about("User:ann", action="read", resources=[value("Repo:a")]),
}


@together("path, wrong", product(GOOD, [None, [], "x", 3, b"{", b'{"a":']))
def test_a_body_that_is_no_object_is_refused(repos, path, wrong):
    answer = repos.post(path, wrong)
    assert answer.status_code == 400
    assert set(answer.json()) == {"message"}


@together("path, member", [(path, member) for path, body in GOOD.items() for member in body])
def test_a_wrong_member_is_refused_by_name(repos, path, member):
    without = {name: value for name, value in GOOD[path].items() if name != member}
    for body in (without, *({**without, member: wrong} for wrong in (None, 5, "", {}, ["x"]))):
        answer = repos.post(path, body)
        assert answer.status_code == 400, body
        assert answer.json()["message"].startswith(member), body


@together("member, text", product(["actor_id", "resource_id", "action"], ["a\0b", "x" * 513, "é" * 257, "*"]))
def test_an_id_that_no_fact_can_have_is_refused(repos, member, text):
    answer = repos.post("/authorize", {**GOOD["/authorize"], member: text})
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(member)


@together("text", HOSTILE)
def test_ids_of_any_characters_are_only_ids(repos, text):
    store(repos, fact("has_role", f"User:{text}", "reader", f"Repo:{text}"))
    who = {"actor_type": "User", "actor_id": text}
    one = {"resource_type": "Repo", "resource_id": text}
    context = [fact("is_public", f"Repo:{text[:511]}.")]
    assert repos.post("/authorize", {**who, **one, "action": "read"}).json() == {"allowed": True}
    assert repos.post("/authorize", {**who, **one, "action": "write"}).json() == {"allowed": False}
    assert repos.post("/authorize", {**who, **one, "action": text}).json() == {"allowed": False}
    assert repos.post("/actions", {**who, **one, "context_facts": context}).json() == {"results": ["read"]}
    listed = repos.post("/list", {**who, "action": "read", "resource_type": "Repo", "page_size": 10000}).json()
    assert listed["results"] == sorted(["p", text])
    among = {**who, "action": "read", "resources": [{"type": "Repo", "id": text}, value("Repo:other")]}
    assert repos.post("/authorize_resources", among).json() == {"results": [{"type": "Repo", "id": text}]}


# ---- actions, in one and in bulk --------------------------------------------------------------------------------


@together(
    "actor, resource, names",
    [
        ("User:bob", "Repo:a", ["read", "write"]),
        ("User:ann", "Org:o", ["read"]),
        ("User:root", "Repo:a", ["read"]),
        ("User:nobody", "Repo:a", []),
        ("User:ann", "Planet:a", []),
    ],
)
def test_actions_are_sorted(repos, actor, resource, names):
    assert repos.post("/actions", about(actor, resource)).json() == {"results": names}


EVERY_ACTION = """
actor User {}
resource Doc {
  roles = ["boss"];
  permissions = ["read"];
  permission if "boss";
  "read" if is_open(resource);
}
"""


def test_every_action_is_a_star_before_the_others(api):
    publish(api, EVERY_ACTION)
    store(api, fact("has_role", "User:ann", "boss", "Doc:d"), fact("is_open", "Doc:d"))
    assert api.post("/actions", about("User:ann", "Doc:d")).json() == {"results": ["*", "read"]}
    assert api.post("/authorize", about("User:ann", "Doc:d", action="anything")).json() == {"allowed": True}


def test_bulk_actions_answer_in_order_and_share_the_first_context(repos):
    context = [fact("has_role", "User:ann", "writer", "Repo:z")]
    body = [
        about("User:ann", "Repo:a", context_facts=context),
        about("User:ann", "Repo:z", context_facts=[]),
        about("User:bob", "Repo:a"),
        about("User:ann", "Planet:a"),
        about("User:ann", "Repo:a"),
    ]
    wanted = [["read"], ["read", "write"], ["read", "write"], [], ["read"]]
    assert repos.post("/bulk_actions", body).json() == [{"results": names} for names in wanted]
    assert repos.post("/bulk_actions", []).json() == []


def test_bulk_actions_with_other_context_facts_later_are_refused(repos):
    """They would not count, and a `not` could hold for lack of them."""
    hidden, other = ([fact("has_role", "User:ann", "writer", name)] for name in ("Repo:z", "Repo:y"))
    first, second = about("User:ann", "Repo:z", context_facts=hidden), about("User:ann", "Repo:y", context_facts=other)
    same = second | {"context_facts": hidden}
    assert repos.post("/bulk_actions", [first, same]).json() == [{"results": ["read", "write"]}, {"results": []}]
    for bodies in ([first, second], [first | {"context_facts": []}, second]):
        answer = repos.post("/bulk_actions", bodies)
        message = "[1].context_facts: must be the same as in the first query"
        assert (answer.status_code, answer.json()["message"]) == (400, message)


def test_bulk_actions_say_which_element_is_wrong(repos):
    answer = repos.post("/bulk_actions", [about("User:ann", "Repo:a"), {"actor_type": "User"}])
    assert (answer.status_code, answer.json()["message"].split(":")[0]) == (400, "[1].actor_id")
    assert repos.post("/bulk_actions", {}).status_code == 400
    assert repos.post("/bulk_actions", [3]).status_code == 400


# ---- many resources ----------------------------------------------------------------------------------------------


def test_allowed_resources_keep_their_order_and_repeats(repos):
    asked = ["Repo:p", "Org:o", "Planet:a", "Repo:b", "Repo:x", "Org:x", "Repo:p", "User:ann", "Repo:a"]
    answer = repos.post("/authorize_resources", {**ANN_READS, "resources": [value(text) for text in asked]})
    wanted = ["Repo:p", "Org:o", "Repo:b", "Repo:p", "Repo:a"]
    assert answer.json() == {"results": [value(text) for text in wanted]}


def test_whoever_may_act_on_all_may_act_on_those_that_are_asked_about(repos):
    asked = [value(f"Repo:{number}") for number in range(3)]
    body = {**about("User:root", action="read"), "resources": asked}
    assert repos.post("/authorize_resources", body).json() == {"results": asked}


@together("size", [0, 1, 31, 32, 33, 99, 100, 101, 999, 1000, 1001, 10001])
def test_any_number_of_resources(repos, size):
    context = [fact("is_public", f"Repo:n{number}") for number in range(0, size, 2)]
    asked = [value(f"Repo:n{number}") for number in range(size)]
    answer = repos.post("/authorize_resources", {**ANN_READS, "resources": asked, "context_facts": context})
    assert answer.json() == {"results": asked[::2]}


def test_the_one_type_that_is_known_has_its_answers(repos):
    body = {**ANN_READS, "resources": [value("Planet:a"), value("Repo:a")]}
    assert repos.post("/authorize_resources", body).json() == {"results": [value("Repo:a")]}


def test_questions_about_unknown_types_are_not_remembered(repos):
    repos.post("/authorize", about("User:ann", "Repo:a", action="read"))
    before = len(LiveSession.statements)
    for number in range(5):
        answer = repos.post("/authorize", about(f"Robot{number}:ann", "Repo:a", action="read"))
        assert answer.json() == {"allowed": False}
    assert len(LiveSession.statements) == before


def test_answers_are_of_their_own_types_whichever_others_are_unknown(repos):
    asked = [value(text) for text in ("Planet:a", "Repo:a", "Moon:o", "Org:o", "Repo:x")]
    for context in ([], [fact("has_role", "User:ann", "admin", "Org:p")]):
        body = {**ANN_READS, "resources": asked, "context_facts": context}
        assert repos.post("/authorize_resources", body).json() == {"results": [asked[1], asked[3]]}


def test_many_types_at_once(repos):
    asked = [value(f"Planet{number}:a") for number in range(1000)]
    answer = repos.post("/authorize_resources", {**ANN_READS, "resources": [*asked, value("Repo:a")]})
    assert answer.json() == {"results": [value("Repo:a")]}


def test_many_types_at_once_without_a_policy(api):
    asked = [value(f"Planet{number}:a") for number in range(200)]
    store(api, *(fact("has_permission", "User:ann", "read", f"Planet{number}:a") for number in range(0, 200, 2)))
    assert api.post("/authorize_resources", {**ANN_READS, "resources": asked}).json() == {"results": asked[::2]}


# ---- expectations -------------------------------------------------------------------------------------------------


def test_an_expectation_is_taken_and_answered_with_the_offset(repos):
    for _ in range(2):
        answer = repos.post("/expect", {"request_id": "never heard of", "expected": True})
        assert answer.status_code == 200
        assert set(answer.json()) == {"message"}
        assert int(answer.headers["OsoOffset"]) > 0


@together("body", [{}, {"request_id": "x"}, {"request_id": "x", "expected": "yes"}, {"expected": True}, []])
def test_a_wrong_expectation_is_refused(repos, body):
    assert repos.post("/expect", body).status_code == 400


# ---- refusals that name the variable -------------------------------------------------------------------------------

ALL_BUT_SOME = """
actor User {}
resource Doc { permissions = ["read"]; }
has_permission(user: User, "read", doc: Doc) if is_root(user) and not is_locked(doc);
"""


def test_all_but_some_is_refused_only_where_the_facts_make_it_so(api):
    publish(api, ALL_BUT_SOME)
    store(api, fact("is_root", "User:root"), fact("has_permission", "User:ann", "read", "Doc:a"))
    asked = {"action": "read", "resource_type": "Doc", "page_size": 10000}
    assert api.post("/list", about("User:ann", **asked)).json()["results"] == ["a"]
    assert api.post("/list", about("User:root", **asked)).json()["results"] == ["*"]
    store(api, fact("is_locked", "Doc:z"))
    refused = api.post("/list", about("User:root", **asked))
    assert refused.status_code == 400
    assert "authorize" in refused.json()["message"]
    assert api.post("/list", about("User:ann", **asked)).json()["results"] == ["a"]
    store(api, fact("has_permission", "User:root", "read", "Doc:z"))
    assert api.post("/list", about("User:root", **asked)).json()["results"] == ["*", "z"]
