"""A code host with three organizations: acme is large, globex smaller, initech has only begun."""

from collections.abc import Iterator

from authz_project.examples.example import PEOPLE, Example, ExampleQuestion, chance, fact, pick, some
from facts.wire import Fact

STAFF = ("sue", "sam")
OWNERS = {"acme": "olga", "globex": "hank", "initech": "bella"}
BILLING = {"acme": "bill", "globex": "greg"}
MEMBERS = {
    "acme": ("olga", "mira", "ben", "lena", "tim", "mac", *PEOPLE[:60]),
    "globex": ("hank", "mira", "ingo", "fay", *PEOPLE[60:90]),
    "initech": ("bella", "peter", *PEOPLE[90:98]),
}
BASE_ROLES = {"acme": "reader", "globex": "triager"}  # at initech, members have no role before they are given one
TEAMS = {  # each with the team that it is in
    "acme/engineering": "",
    "acme/platform": "acme/engineering",
    "acme/compilers": "acme/platform",
    "acme/storage": "acme/platform",
    "acme/apps": "acme/engineering",
    "acme/mobile": "acme/apps",
    "acme/web": "acme/apps",
    "acme/security": "",
    "acme/docs": "",
    "globex/rockets": "",
    "globex/guidance": "globex/rockets",
    "globex/operations": "",
}
TEAM_ROLES = (
    ("acme/engineering", "writer", "acme/handbook"),
    ("acme/platform", "maintainer", "acme/anvil"),
    ("acme/compilers", "admin", "acme/forge"),
    ("acme/storage", "maintainer", "acme/ledger"),
    ("acme/apps", "writer", "acme/shop"),
    ("acme/mobile", "maintainer", "acme/shop-ios"),
    ("acme/mobile", "maintainer", "acme/shop-android"),
    ("acme/web", "maintainer", "acme/shop"),
    ("acme/security", "maintainer", "acme/vault"),
    ("acme/docs", "maintainer", "acme/handbook"),
    ("globex/rockets", "writer", "globex/booster"),
    ("globex/guidance", "admin", "globex/guidance"),
    ("globex/operations", "maintainer", "globex/launchpad"),
)
REPOSITORIES = {
    "acme": (
        "anvil", "forge", "ledger", "shop", "shop-ios", "shop-android", "handbook", "vault", "site", "relic", "hammer",
        "tongs", "bellows", "catalog", "search", "payments", "invoices", "mailer", "alerts", "metrics", "deploy",
        "sandbox", "icons", "fonts", "brand", "benchmarks", "experiments", "dotfiles", "linters", "templates",
    ),
    "globex": (
        "booster", "guidance", "launchpad", "telemetry", "fuel", "nozzle", "simulator", "weather", "site", "tickets",
        "badges", "parts", "wiring",
    ),
    "initech": ("reports", "covers", "stapler", "printer"),
}  # fmt: skip
PUBLIC = ("acme/site", "acme/relic", "acme/handbook", "acme/linters", "globex/site", "globex/weather")
CONFIDENTIAL = ("acme/vault", "acme/payments", "globex/guidance")
ARCHIVED = ("acme/relic", "acme/dotfiles", "globex/badges")


def facts() -> Iterator[Fact]:
    for person in STAFF:
        yield fact("has_role", f"User:{person}", "staff")
    for organization, members in MEMBERS.items():
        yield from _organization(organization, members)
    yield from _teams()
    for organization, names in REPOSITORIES.items():
        for name in names:
            yield from _repository(organization, f"{organization}/{name}")


def _organization(organization: str, members: tuple[str, ...]) -> Iterator[Fact]:
    place = f"Organization:{organization}"
    yield fact("has_role", f"User:{OWNERS[organization]}", "owner", place)
    if organization in BILLING:
        yield fact("has_role", f"User:{BILLING[organization]}", "billing_manager", place)
    if organization in BASE_ROLES:
        yield fact("has_base_role", place, BASE_ROLES[organization])
    for person in members:
        if person != OWNERS[organization]:
            yield fact("has_role", f"User:{person}", "member", place)


def _teams() -> Iterator[Fact]:
    for team, above in TEAMS.items():
        if above:
            yield fact("in_team", f"Team:{team}", f"Team:{above}")
    yield fact("in_team", "User:ben", "Team:acme/compilers")
    yield fact("in_team", "User:lena", "Team:acme/security")
    yield fact("in_team", "User:mira", "Team:globex/guidance")
    innermost = [team for team in TEAMS if team not in TEAMS.values()]
    for organization in ("acme", "globex"):
        here = [team for team in innermost if team.startswith(f"{organization}/")]
        for person in MEMBERS[organization]:
            if person in PEOPLE and chance(80, person):
                yield fact("in_team", f"User:{person}", f"Team:{pick(here, person, organization)}")
    for team, role, repository in TEAM_ROLES:
        yield fact("has_role", f"Team:{team}", role, f"Repository:{repository}")


def _repository(organization: str, repository: str) -> Iterator[Fact]:
    place = f"Repository:{repository}"
    yield fact("has_relation", place, "organization", f"Organization:{organization}")
    marks = (("is_public", PUBLIC), ("is_confidential", CONFIDENTIAL), ("is_archived", ARCHIVED))
    for mark, marked in marks:
        if repository in marked:
            yield fact(mark, place)
    yield from _roles_of_people(organization, repository, place)
    members = [person for person in MEMBERS[organization] if person in PEOPLE]
    for number in range(1, 3 + len(some(range(7), 0, 7, repository))):
        issue = f"Issue:{repository}#{number}"
        yield fact("has_relation", issue, "repository", place)
        yield fact("has_relation", issue, "opened_by", f"User:{pick(members, repository, number)}")


def _roles_of_people(organization: str, repository: str, place: str) -> Iterator[Fact]:
    """Give some a role in a repository themselves, as it happens."""
    if repository == "acme/anvil":
        yield fact("has_role", "User:tim", "triager", place)
        yield fact("has_role", "User:mac", "maintainer", place)
    if repository == "initech/reports":
        yield fact("has_role", "User:peter", "writer", place)
    if repository in CONFIDENTIAL:
        return
    members = [person for person in MEMBERS[organization] if person in PEOPLE]
    for person in some(members, 1, 4, repository, "roles"):
        yield fact("has_role", f"User:{person}", pick(("triager", "writer", "maintainer"), repository, person), place)


EXAMPLE = Example(
    name="code",
    title="A code host",
    about=(
        "Organizations own repositories, repositories have issues, and users work in nested teams."
        " Many permissions are not stored for each user: they follow from the organization, from a team, or"
        " from a default role of all members.\n\n"
        "acme is large, with teams at three levels; globex shares one engineer with it; initech is new. See how"
        " ben can push to acme/anvil, and why he still cannot read acme/vault."
    ),
    patterns=("RBAC", "multi-tenancy", "groups", "default roles", "public resources"),
    questions=(
        ExampleQuestion(
            "authorize", "User:ben", "merge", "Repository:acme/anvil", True,
            "ben is in the compilers team, part of the platform team, whose members are maintainers of the repository",
        ),
        ExampleQuestion(
            "authorize", "User:ben", "read", "Repository:acme/vault", False,
            "acme's base role does not apply to confidential repositories, and none of ben's teams has a role in it",
        ),
        ExampleQuestion(
            "actions", "User:stranger", "", "Repository:acme/relic", ("read",),
            "everyone can read public repositories; comments are not allowed in archived ones",
        ),
        ExampleQuestion(
            "list", "User:peter", "push", "Repository", ("initech/reports",),
            "initech has no base role, so members have only the roles that they were given",
        ),
        ExampleQuestion(
            "list", "User:bella", "delete", "Repository",
            ("initech/covers", "initech/printer", "initech/reports", "initech/stapler"),
            "owners administer all repositories of their organization, and no others",
        ),
        ExampleQuestion(
            "who", "User", "see_invoices", "Organization:acme", ("bill", "olga"),
            "owners are billing managers, too",
        ),
    ),
    write_facts=facts,
)  # fmt: skip
