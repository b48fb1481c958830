"""A product with twelve tenants, of which some pay, some have roles of their own, and one is at its limit."""

from collections.abc import Iterator

from authz_project.examples.example import PEOPLE, Example, ExampleQuestion, chance, fact, pick, some
from facts.wire import Fact

TENANTS = {  # each with its plan
    "acme": "team", "bluth": "free", "cyberdyne": "enterprise", "dunder": "team", "globex": "enterprise",
    "hooli": "enterprise", "initech": "free", "monarch": "team", "pied-piper": "free", "stark": "enterprise",
    "umbrella": "team", "wayne": "team",
}  # fmt: skip
LIMITS = {"free": 3, "team": 10, "enterprise": 1000}
FULL = ("acme", "bluth")  # tenants that use all that their plan has
PROJECTS = (
    "apollo", "beacon", "comet", "delta", "echo", "falcon", "gemini", "harbor", "iris", "juno", "kestrel", "lighthouse",
)  # fmt: skip
CUSTOM_ROLES: dict[str, dict[str, tuple[str, ...]]] = {
    "acme": {"auditor": ("view", "report"), "planner": ("view", "add_task", "assign")},
    "globex": {"auditor": ("view", "report"), "archivist": ("view", "archive")},
    "stark": {"visitor": ("view",)},
}


def facts() -> Iterator[Fact]:
    for person, role in (("sam", "support"), ("sue", "support"), ("opal", "operator")):
        yield fact("has_role", f"User:{person}", role)
    for number, (tenant, plan) in enumerate(TENANTS.items()):
        yield from _tenant(tenant, plan, PEOPLE[number * 14 : number * 14 + 8 + number % 7])
    yield from _stories()


def _tenant(tenant: str, plan: str, people: tuple[str, ...]) -> Iterator[Fact]:
    place = f"Tenant:{tenant}"
    yield fact("is_on_plan", place, f"Plan:{plan}")
    for number, person in enumerate(people):
        role = "owner" if number == 0 else "manager" if number < 3 else "member"
        yield fact("has_role", f"User:{person}", role, place)
        if chance(10, person, "refuses"):
            yield fact("refuses_support", f"User:{person}")
    projects = PROJECTS[: LIMITS[plan]] if tenant in FULL else some(PROJECTS, 1, min(8, LIMITS[plan] - 1), tenant)
    yield fact("uses", place, "projects", len(projects[: LIMITS[plan]]))
    for name in projects[: LIMITS[plan]]:
        yield from _project(place, f"{tenant}/{name}", people)
    for name, granted in CUSTOM_ROLES.get(tenant, {}).items():
        role = f"Role:{tenant}/{name}"
        yield fact("has_relation", role, "tenant", place)
        for action in granted:
            yield fact("grants", role, action)
        yield fact("has_role", f"User:{pick(people[3:], role)}", role, place)


def _project(tenant: str, project: str, people: tuple[str, ...]) -> Iterator[Fact]:
    place = f"Project:{project}"
    yield fact("has_relation", place, "tenant", tenant)
    team = some(people[3:], 2, 5, project)
    for number, person in enumerate(team):
        role = "lead" if number == 0 else pick(("contributor", "viewer"), project, person)
        yield fact("has_role", f"User:{person}", role, place)
    for number in range(1, 5):
        task = f"Task:{project}#{number}"
        yield fact("has_relation", task, "project", place)
        yield fact("has_relation", task, "assignee", f"User:{pick(team, task)}")


def _stories() -> Iterator[Fact]:
    """Tell of olga, who owns acme and whom sam looks after; rex audits two tenants by one's role; kim is suspended."""
    yield fact("has_role", "User:olga", "owner", "Tenant:acme")
    yield fact("has_role", "User:max", "manager", "Tenant:acme")
    yield fact("has_role", "User:max", "manager", "Tenant:globex")
    yield fact("acts_as", "User:sam", "User:olga", until="2035-01-01T00:00:00Z")
    yield fact("acts_as", "User:sue", "User:kim")
    yield fact("has_role", "User:rex", "Role:acme/auditor", "Tenant:acme")
    yield fact("has_role", "User:rex", "Role:acme/auditor", "Tenant:globex")
    yield fact("has_role", "User:kim", "owner", "Tenant:initech")
    yield fact("is_suspended", "User:kim")
    yield fact("refuses_support", "User:kim")


EXAMPLE = Example(
    name="saas",
    title="A product with tenants",
    about=(
        "Twelve companies share one product, isolated from each other. The features of each plan are in the policy; the"
        " plan and the usage of each tenant are facts. Tenants define roles of their own, and support can"
        " act as a customer, but cannot spend their money.\n\n"
        "acme has as many projects as its plan allows. Delete the fact that counts them, insert another number, and"
        " check again whether max can create one."
    ),
    patterns=("multi-tenancy", "custom roles", "quotas", "impersonation", "denial"),
    questions=(
        ExampleQuestion(
            "list", "User:max", "create_project", "Tenant", ("globex",),
            "he manages two tenants, but acme has reached the project limit of its plan",
        ),
        ExampleQuestion(
            "actions", "User:sam", "", "Tenant:acme", ("define_roles", "export", "invite", "view"),
            "support acts as olga, who owns acme: everything that she can do, except billing and closing the account",
        ),
        ExampleQuestion(
            "authorize", "User:sue", "view", "Tenant:initech", False,
            "kim refuses impersonation",
        ),
        ExampleQuestion(
            "actions", "User:rex", "", "Project:acme/apollo", ("report", "view"),
            "a custom role that acme defined, and what it grants",
        ),
        ExampleQuestion(
            "list", "User:rex", "view", "Project",
            (
                "acme/apollo", "acme/beacon", "acme/comet", "acme/delta", "acme/echo", "acme/falcon", "acme/gemini",
                "acme/harbor", "acme/iris", "acme/juno",
            ),
            "he also has acme's role at globex, where it does not apply",
        ),
        ExampleQuestion(
            "authorize", "User:kim", "view", "Tenant:initech", False,
            "she is an owner, but suspended: denials override all roles",
        ),
    ),
    write_facts=facts,
)  # fmt: skip
