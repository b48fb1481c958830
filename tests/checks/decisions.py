"""Plays one generated case of tests/cases/decisions.json: a policy, facts, questions and their known answers.

`refuse` is a 400: the answer is "all but some". A wildcard in an answer stands for every id of the case.
"""

from dataclasses import dataclass

from policy import rules
from policy.language.source import Source
from policy.rules.program import Program
from tests.conftest import Api

ACTIONS = ["p0", "p1", "p2", "zap", "nope"]
Ids = dict[str, list[str]]  # of each type; the same ones in several types


@dataclass(frozen=True)
class Wrong:
    question: dict
    status: int
    body: object


def play(api: Api, case: dict) -> list[Wrong]:
    assert api.post("/policy", {"src": case["policy"], "filename": ""}).status_code == 200
    program = rules.compile_source(Source(case["policy"]))
    assert api.post("/batch", [{"inserts": useful(program, case["facts"])}]).status_code == 200
    asked = ((question, _wrong(api, question, case["context"], case["dom"])) for question in case["questions"])
    return [wrong for _, wrong in asked if wrong]


def useful(program: Program, facts: list[dict]) -> list[dict]:
    """Without the facts that the policy has no use for, which are refused where they would be stored."""
    return [
        fact for fact in facts if program.accepts(fact["predicate"], tuple(value["type"] for value in fact["args"]))
    ]


def _wrong(api: Api, question: dict, context: list[dict], ids: Ids) -> Wrong | None:
    path, body = _request(question, context if question["context"] else [], ids)
    answer = api.post(path, body)
    said = answer.json()
    if question["expect"] == "refuse":
        is_right = answer.status_code == 400
    else:
        is_right = answer.status_code == 200 and _meaning(question, said, ids) == question["expect"]
    return None if is_right else Wrong(question, answer.status_code, said)


def _request(question: dict, context: list[dict], ids: Ids) -> tuple[str, dict]:
    (actor_type, actor), action, (resource_type, resource) = (
        question["actor"], question["action"], question["resource"],
    )  # fmt: skip
    who = {"actor_type": actor_type, "actor_id": actor, "context_facts": context}
    what = {"resource_type": resource_type, "resource_id": resource}
    match question["kind"]:
        case "authorize":
            return "/authorize", {**who, **what, "action": action}
        case "actions":
            return "/actions", {**who, **what}
        case "list":
            return "/list", {**who, "action": action, "resource_type": resource_type, "page_size": 10000}
        case "authorize_resources":
            resources = [{"type": name, "id": text} for name, text in question["resources"]]
            return "/authorize_resources", {**who, "action": action, "resources": resources}
        case "list_actors":
            asked = {"u": _asked("User", ids), "a": [action], "r": [resource]}
            return "/evaluate_query", _query({"u": "User", "a": "String", "r": resource_type}, asked, context)
        case "all_pairs":
            asked = {"u": [actor], "a": None, "r": _asked(resource_type, ids)}
            return "/evaluate_query", _query({"u": actor_type, "a": "String", "r": resource_type}, asked, context)
    raise AssertionError(question["kind"])


def _query(types: dict[str, str], ids: dict[str, list[str] | None], context: list[dict]) -> dict:
    constraints = {name: {"type": types[name], "ids": ids[name]} for name in types}
    return {"predicate": ["allow", ["u", "a", "r"]], "calls": [], "constraints": constraints, "context_facts": context}


def _meaning(question: dict, said: dict, ids: Ids) -> object:
    match question["kind"]:
        case "authorize":
            return said["allowed"]
        case "actions":
            return _covered(said["results"], ACTIONS)
        case "list":
            return _covered(said["results"], _asked(question["resource"][0], ids))
        case "authorize_resources":
            return [[value["type"], value["id"]] for value in said["results"]]
        case "list_actors":
            return _covered([row["u"] for row in said["results"]], _asked("User", ids))
    return [
        [action, resource]
        for action in ACTIONS
        for resource in _asked(question["resource"][0], ids)
        if any(row["a"] in (action, None) and row["r"] in (resource, None) for row in said["results"])
    ]


def _covered(found: list[str | None], ids: list[str]) -> list[str]:
    return ids if "*" in found or None in found else [text for text in ids if text in found]


def _asked(type_name: str, ids: Ids) -> list[str]:
    """All ids of the type, and one that nothing mentions."""
    return [*ids[type_name], "nobody" if type_name == "User" else "nothing"]
