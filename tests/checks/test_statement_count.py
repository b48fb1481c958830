"""A question is one statement, the check of the caller's key included."""

from itertools import product

import pytest

from tests.checks.conftest import about, fact, publish, store, value
from tests.checks.statements import counted
from tests.contract import ASKED, send_story
from tests.sampling import together

CONTEXT = [fact("has_role", "User:ann", "reader", "Repo:z"), fact("is_public", "Repo:y")]
KINDS = ("Repo", "Org", "Zap")
QUESTIONS = {
    "authorize": ("/authorize", about("User:ann", "Repo:a", action="read")),
    "authorize an unknown action": ("/authorize", about("User:ann", "Repo:a", action="frob")),
    "authorize an unknown type": ("/authorize", about("Robot:ann", "Repo:a", action="read")),
    "actions": ("/actions", about("User:ann", "Repo:a")),
    "list": ("/list", about("User:ann", action="read", resource_type="Repo", page_size=10000)),
    "resources": (
        "/authorize_resources",
        about("User:ann", action="read", resources=[value(f"{kind}:{n}") for kind in KINDS for n in range(99)]),
    ),
    "no resources": ("/authorize_resources", about("User:ann", action="read", resources=[])),
    "query": (
        "/evaluate_query",
        {
            "predicate": ["allow", ["u", "a", "r"]],
            "calls": [["has_relation", ["r", "p", "o"]]],
            "constraints": {
                "u": {"type": "User", "ids": ["ann", "bob"]}, "a": {"type": "String"}, "r": {"type": "Repo"},
                "p": {"type": "String", "ids": ["organization"]}, "o": {"type": "Org"},
            },
        },
    ),
    "pattern": ("/query", {"fact": {"predicate": "allow", "args": [None, None, None]}}),
}  # fmt: skip


SEVERAL = ("explain", "authorize_query", "actions_query", "list_query", "evaluate_query_local")  # take more of them


@pytest.fixture(autouse=True)
def remembering(request, settings) -> None:
    """Whether answers are kept, where a test says so."""
    settings.ANSWER_CACHE *= getattr(request, "param", False)


@pytest.mark.parametrize("remembering", [True, False], ids=["kept", "asked"], indirect=True)
@together("name, context", product(QUESTIONS, [[], CONTEXT]))
def test_a_question_is_one_statement(repos, name, context):
    path, body = QUESTIONS[name]
    body = {**body, "context_facts": context}
    first = repos.post(path, body)
    repos.post(path, body)  # which is kept when it comes again
    with counted() as statements:
        second = repos.post(path, body)
    assert second.status_code == 200 and second.json() == first.json()
    assert len(statements) == 1, statements


@pytest.mark.parametrize("path", [path for path in ASKED if path.removeprefix("/api/") not in SEVERAL])
def test_every_question_of_the_description_is_one_statement(api, path):
    send_story(api)
    api.post(path, ASKED[path])
    with counted() as statements:
        assert api.post(path, ASKED[path]).status_code == 200
    assert len(statements) == 1, statements


def test_an_explanation_asks_only_what_is_not_known_yet(repos):
    body = about("User:ann", "Repo:b", action="read")
    repos.post("/explain", body)
    with counted() as statements:
        assert repos.post("/explain", body).json()["allowed"]
    # The decision; then, down to two facts, only what leaves a choice between rules.
    assert len([text for text in statements if "FROM authz_fact" in text]) <= 8, statements


def test_the_text_of_a_statement_depends_on_no_value_and_no_number(repos):
    def texts(actor: str, resource: str, action: str, facts: int) -> list[str]:
        context = [fact("has_role", f"User:{actor}", "reader", f"Repo:{number}") for number in range(facts)]
        body = about(f"User:{actor}", f"Repo:{resource}", action=action, context_facts=context)
        repos.post("/authorize", body)
        with counted() as statements:
            repos.post("/authorize", body)
        return [_shape(text) for text in statements]

    assert texts("ann", "a", "frob", 1) == texts("o'hara", "$1", "?1", 7)


def _shape(text: str) -> str:
    """SQLite shows statements with their values in them."""
    parts = text.split("'")
    return "".join(parts[::2]) if len(parts) > 1 else text


def test_what_needs_rounds_sees_one_moment(api):
    publish(api, TWO_SIDES)
    store(
        api,
        *(
            fact("has_relation", f"Doc:{n}", side, f"Doc:{2 * n + k}")
            for n in range(1, 8)
            for k, side in enumerate(("left", "right"))
        ),
    )
    store(api, *(fact("has_role", "User:ann", "reader", f"Doc:{n}") for n in range(8, 16)))
    question = about("User:ann", "Doc:1", action="read")
    assert api.post("/authorize", question).json() == {"allowed": True}
    with counted() as statements:
        assert api.post("/authorize", question).json() == {"allowed": True}
    assert statements[0].startswith("BEGIN") and statements[-1] in ("ROLLBACK", "COMMIT")
    assert sum("api_key" in text for text in statements) == 1


TWO_SIDES = """
actor User {}
resource Doc {
  roles = ["reader"];
  permissions = ["read"];
  relations = { left: Doc, right: Doc };
  "read" if "reader";
  "read" if "read" on "left" and "read" on "right";
}
"""


def test_many_questions_are_one_statement_whichever_come_together(repos):
    about_some = [about("User:ann", "Repo:a"), about("User:bob", "Repo:a"), about("User:bob", "Org:o")]
    checks = [{"actor": value("User:ann"), "action": "read", "resource": value(f"Repo:{n}")} for n in range(99)]
    checks += [{"actor": value("User:ann"), "action": action, "resource": value("Org:o")} for action in ("read", "x")]
    for path, bodies in (
        ("/bulk_actions", [about_some, about_some[:2], about_some[2:] * 2]),
        ("/authorize_each", [{"checks": checks[start:]} for start in (0, 50, 98, 99)]),
    ):
        said = [repos.post(path, body) for body in bodies]
        for body, before in zip(bodies, said):
            with counted() as statements:
                assert repos.post(path, body).json() == before.json()
            assert len(statements) == 1, statements
