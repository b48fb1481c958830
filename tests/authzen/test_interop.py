"""The working group's interop scenarios: shared todos, and searches among records."""

from itertools import product
from pathlib import Path

import pytest

from tests.authzen.test_certification import ids

FOLDER = Path(__file__).parent

# ---- todos ---------------------------------------------------------------------------------------------------------

ROLES = {"rick": ["admin", "evil_genius"], "morty": ["editor"], "summer": ["editor"], "beth": ["viewer"],
         "jerry": ["viewer"]}  # fmt: skip
MAIL = {"rick": "rick@the-citadel.com", "morty": "morty@the-citadel.com", "summer": "summer@the-smiths.com",
        "beth": "beth@the-smiths.com", "jerry": "jerry@the-smiths.com"}  # fmt: skip
SUBJECT = {name: f"CiRmZD{place}MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs" for name, place in
           zip(ROLES, ("A2", "E2", "I2", "M2", "Q2"))}  # fmt: skip


@pytest.fixture
def todos(new_pdp):
    facts = [f'email(user:{SUBJECT[name]}, "{MAIL[name]}")' for name in ROLES]
    facts += [f"has_role(user:{SUBJECT[name]}, {role})" for name, roles in ROLES.items() for role in roles]
    return new_pdp((FOLDER / "todo.polar").read_text(), facts)


def may(name: str, action: str, owner: str) -> bool:
    """What the scenario says, in its own words."""
    roles, owns = ROLES[name], name == owner
    is_editor = bool({"editor", "admin", "evil_genius"} & set(roles))
    match action:
        case "can_read_user" | "can_read_todos":
            return True
        case "can_create_todo":
            return is_editor
        case "can_update_todo":
            return "evil_genius" in roles or (is_editor and owns)
    return "admin" in roles or (is_editor and owns)


def request(name: str, action: str, owner: str) -> dict:
    resource = {"type": "todo", "id": f"todo-of-{owner}", "properties": {"ownerID": MAIL[owner]}}
    if action == "can_read_user":
        resource = {"type": "user", "id": MAIL[owner]}
    return {"subject": {"type": "user", "id": SUBJECT[name]}, "action": {"name": action}, "resource": resource}


ACTIONS = ("can_read_user", "can_read_todos", "can_create_todo", "can_update_todo", "can_delete_todo")
CASES = list(product(ROLES, ACTIONS, ROLES))


def test_todos_one_by_one(todos):
    for case in CASES:
        assert todos.post("evaluation", request(*case)).body == {"decision": may(*case)}, case


def test_todos_at_once(todos):
    found = todos.post("evaluations", {"evaluations": [request(*case) for case in CASES]}).body["evaluations"]
    assert [each["decision"] for each in found] == [may(*case) for case in CASES]


# ---- records -------------------------------------------------------------------------------------------------------

USERS = {
    "alice": ("manager", "Sales"),
    "bob": ("employee", "Legal"),
    "carol": ("contractor", "Legal"),
    "dan": ("manager", "Finance"),
    "erin": ("employee", "Finance"),
    "felix": ("contractor", "Accounting"),
}
DEPARTMENTS = "Legal Legal Legal Accounting Legal Accounting Sales Legal Accounting Sales Accounting Legal Sales " \
              "Accounting Finance Legal Legal Accounting Legal Accounting"  # fmt: skip
RECORDS = {
    str(101 + place): (department, list(USERS)[place % 6]) for place, department in enumerate(DEPARTMENTS.split())
}


@pytest.fixture
def records(new_pdp):
    facts = [f'role(user:{name}, "{role}")' for name, (role, _) in USERS.items()]
    facts += [f'department(user:{name}, "{department}")' for name, (_, department) in USERS.items()]
    facts += [f'department(record:{one}, "{department}")' for one, (department, _) in RECORDS.items()]
    facts += [f"has_relation(record:{one}, owner, user:{owner})" for one, (_, owner) in RECORDS.items()]
    return new_pdp((FOLDER / "search.polar").read_text(), facts)


def can(name: str, action: str, record: str) -> bool:
    (role, mine), (department, owner) = USERS[name], RECORDS[record]
    is_manager, is_near = role == "manager", mine == department
    if action == "view":
        return owner == name or is_near or is_manager
    return owner == name or (action == "edit" and is_manager and is_near)


def test_who_can(records):
    for record, action in product(RECORDS, ("view", "edit", "delete")):
        body = {"subject": {"type": "user"}, "action": {"name": action}, "resource": {"type": "record", "id": record}}
        assert ids(records.post("search/subject", body)) == [name for name in USERS if can(name, action, record)]


def test_which_records(records):
    for name, action in product(USERS, ("view", "edit", "delete")):
        body = {"subject": {"type": "user", "id": name}, "action": {"name": action}, "resource": {"type": "record"}}
        assert ids(records.post("search/resource", body)) == [one for one in RECORDS if can(name, action, one)]


def test_what_can_be_done(records):
    for name, record in product(USERS, RECORDS):
        body = {"subject": {"type": "user", "id": name}, "resource": {"type": "record", "id": record}}
        told = {action for action in ("view", "edit", "delete") if can(name, action, record)}
        assert set(ids(records.post("search/action", body))) == told


def test_the_tables_are_those_of_the_scenario():
    """Some of its lines, copied."""
    assert [name for name in USERS if can(name, "view", "112")] == ["alice", "bob", "carol", "dan", "felix"]
    assert [one for one in RECORDS if can("dan", "edit", one)] == ["104", "110", "115", "116"]
    assert [one for one in RECORDS if can("felix", "view", one)] == [
        "104",
        "106",
        "109",
        "111",
        "112",
        "114",
        "118",
        "120",
    ]
