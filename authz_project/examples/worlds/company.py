"""A company of a hundred and fifty people in a tree of departments, with their expenses."""

from collections.abc import Iterator

from authz_project.examples.example import PEOPLE, Example, ExampleQuestion, chance, fact, pick, unix
from facts.wire import Fact

DEPARTMENTS = {  # each with the one that it is in, who leads it, and how many work there
    "company": ("", "ceo", 0),
    "engineering": ("company", "vic", 0),
    "platform": ("engineering", "pru", 24),
    "tools": ("engineering", "mia", 22),
    "product": ("engineering", "gil", 20),
    "commercial": ("company", "cass", 0),
    "sales": ("commercial", "sal", 30),
    "support": ("commercial", "sid", 26),
    "office": ("company", "otto-h", 0),
    "people": ("office", "hana", 8),
    "finance": ("office", "carl", 10),
}
LIMITS = {"ceo": 100_000, "vic": 20_000, "cass": 20_000, "otto-h": 20_000}  # others who lead: 2,000
USUAL_LIMIT = 2_000
SENIOR_LIMIT = 300


def facts() -> Iterator[Fact]:
    people = iter(PEOPLE)
    for department, (above, lead, size) in DEPARTMENTS.items():
        place = f"Department:{department}"
        if above:
            yield fact("has_relation", place, "parent", f"Department:{above}")
            yield fact("has_relation", f"User:{lead}", "reports_to", f"User:{DEPARTMENTS[above][1]}")
        yield fact("has_relation", f"User:{lead}", "department", place)
        yield fact("may_sign_up_to", f"User:{lead}", LIMITS.get(lead, USUAL_LIMIT))
        yield from _team(place, lead, [next(people) for _ in range(size)])
    yield from _stories()


def _team(department: str, lead: str, people: list[str]) -> Iterator[Fact]:
    """Yield who reports to whom in a team: the first few lead the others."""
    seniors = people[: len(people) // 7]
    for person in people:
        above = lead if person in seniors else pick([*seniors, lead], person)
        yield fact("has_relation", f"User:{person}", "reports_to", f"User:{above}")
        yield fact("has_relation", f"User:{person}", "department", department)
        if person in seniors:
            yield fact("may_sign_up_to", f"User:{person}", SENIOR_LIMIT)
        for number in range(1, 3):
            if chance(45, person, number):
                yield from _expense(f"{person}-{number}", person, department)


def _expense(name: str, person: str, department: str) -> Iterator[Fact]:
    expense = f"Expense:{name}"
    yield fact("has_relation", expense, "claimant", f"User:{person}")
    yield fact("has_relation", expense, "department", department)
    yield fact("costs", expense, pick((18, 42, 75, 120, 260, 380, 900, 1500, 2400), name))
    if chance(35, name, "approved"):
        yield fact("is_approved", expense)


def _stories() -> Iterator[Fact]:
    """Tell of ian in mia's team, for whom sub stands in; hana and carl look after engineering, sales and the rest."""
    yield fact("has_relation", "User:ian", "reports_to", "User:mia")
    yield fact("has_relation", "User:ian", "department", "Department:tools")
    yield fact("has_relation", "User:sub", "reports_to", "User:pru")
    yield fact("has_relation", "User:sub", "department", "Department:platform")
    yield fact("may_sign_up_to", "User:sub", 1_000)
    yield fact("stands_in_for", "User:sub", "User:mia", unix("2025-01-01"), unix("2038-01-01"))
    yield fact("stands_in_for", "User:gil", "User:mia", unix("2023-07-01"), unix("2023-08-01"))
    yield fact("has_role", "User:hana", "hr_partner", "Department:engineering")
    yield fact("has_role", "User:zoe", "hr_partner", "Department:commercial")
    yield fact("has_role", "User:carl", "controller", "Department:company")
    for name, cost in (("ian-trip", 900), ("ian-desk", 5_500)):
        yield fact("has_relation", f"Expense:{name}", "claimant", "User:ian")
        yield fact("has_relation", f"Expense:{name}", "department", "Department:tools")
        yield fact("costs", f"Expense:{name}", cost)
    yield fact("has_relation", "Expense:carl-lunch", "claimant", "User:carl")
    yield fact("has_relation", "Expense:carl-lunch", "department", "Department:finance")
    yield fact("costs", "Expense:carl-lunch", 40)
    yield fact("is_approved", "Expense:carl-lunch")


EXAMPLE = Example(
    name="company",
    title="A company and its people",
    about=(
        "150 people report to their managers, up to the CEO, in nested departments. Managers approve expenses up to"
        " their limit, except their own, and a delegate approves while they are away. Access to employee profiles is"
        " decided field by field.\n\n"
        "mia can approve up to 2,000. See who can approve ian's trip, and who is left for his desk."
    ),
    patterns=("hierarchies", "field level", "limits", "separation of duties", "delegation", "time"),
    questions=(
        ExampleQuestion(
            "who", "User", "approve", "Expense:ian-trip", ("ceo", "mia", "sub", "vic"),
            "all managers above ian, and mia's current delegate; gil's delegation is over",
        ),
        ExampleQuestion(
            "who", "User", "approve", "Expense:ian-desk", ("ceo", "vic"),
            "it costs more than mia can approve",
        ),
        ExampleQuestion(
            "authorize", "User:carl", "pay", "Expense:carl-lunch", False,
            "controllers cannot pay their own expenses",
        ),
        ExampleQuestion(
            "actions", "User:hana", "", "User:ian", ("edit_profile", "read_profile", "read_salary", "set_salary"),
            "she is the HR partner of engineering, which contains tools",
        ),
        ExampleQuestion(
            "authorize", "User:ian", "read_salary", "User:mia", False,
            "managers can read the salaries of their reports, but not the other way round",
        ),
        ExampleQuestion(
            "list", "User:sub", "approve", "Expense",
            (
                "bruno-1", "carla-1", "carla-2", "casper-1", "cyrus-1", "dalia-1", "delia-1", "dora-1", "elias-2",
                "ian-trip",
            ),
            "as mia's delegate, he approves for her whole team, up to his own limit",
        ),
    ),
    write_facts=facts,
)  # fmt: skip
