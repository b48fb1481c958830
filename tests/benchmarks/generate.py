"""A made-up company to measure with: people in nested teams, organisations with repositories, trees of documents.

About as many facts as asked for, always the same ones. One user, the boss, sees a whole organisation and a whole
tree: the long lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import orjson

from policy.values import STRING, Value

BOSS = "boss"
PER_TREE = 400  # folders
LONGEST_LIST = 10_000
Fact = tuple[str, tuple[Value, ...]]

POLICY = """
actor User {}
actor Team {}

resource Project {
  roles = ["reader", "writer", "admin"];
  permissions = ["read", "write", "delete"];
  "read" if "reader";
  "write" if "writer";
  "delete" if "admin";
  "reader" if "writer";
  "writer" if "admin";
}

resource Org {
  roles = ["member", "admin"];
  "member" if "admin";
}

resource Repo {
  roles = ["reader", "writer", "admin"];
  permissions = ["read", "write"];
  relations = { organization: Org };
  "read" if "reader";
  "write" if "writer";
  "reader" if "writer";
  "writer" if "admin";
  "reader" if "member" on "organization";
  "read" if is_public(resource);
}

resource Issue {
  permissions = ["read", "close"];
  relations = { repository: Repo, creator: User };
  "read" if "read" on "repository";
  "close" if "creator";
  "close" if "write" on "repository";
}

resource Folder {
  roles = ["viewer", "editor", "auditor"];
  relations = { parent: Folder };
  "viewer" if "editor";
  role if role on "parent";
}

resource Doc {
  roles = ["viewer", "editor", "auditor"];
  permissions = ["read", "edit", "sign", "comment"];
  relations = { folder: Folder };
  "read" if "viewer";
  "edit" if "editor";
  "viewer" if "editor";
  role if role on "folder";
}

has_group(x: User, outer: Team) if inner matches Team and has_group(x, inner) and has_group(inner, outer);
has_group(x: Team, outer: Team) if inner matches Team and has_group(x, inner) and has_group(inner, outer);
has_role(user: User, role: String, folder: Folder) if
  team matches Team and has_group(user, team) and has_role(team, role, folder);

has_permission(user: User, "sign", doc: Doc) if
  has_role(user, "viewer", doc) and has_role(user, "auditor", doc) and is_verified(user);
has_permission(user: User, "comment", doc: Doc) if
  has_role(user, "viewer", doc) and not is_banned(user) and not is_locked(doc);
"""


@dataclass(frozen=True)
class Size:
    """How many there are of everything, for about so many facts."""

    facts: int

    def part(self, share: float) -> int:
        return max(4, int(self.facts * share))

    @property
    def users(self) -> int:
        return self.part(0.02)

    @property
    def teams(self) -> int:
        return self.part(0.001)

    @property
    def projects(self) -> int:
        return self.part(0.04)

    @property
    def orgs(self) -> int:
        return self.part(0.0002)

    @property
    def repos(self) -> int:
        return self.part(0.06)

    @property
    def issues(self) -> int:
        return self.part(0.15)

    @property
    def folders(self) -> int:
        return self.part(0.04)

    @property
    def docs(self) -> int:
        return self.part(0.2)

    @property
    def listed(self) -> int:
        """How many repositories the boss's organisation has, and how many documents the boss's tree."""
        return min(LONGEST_LIST, self.repos // 2)

    @property
    def boss_folders(self) -> int:
        return max(4, self.listed // 25)


def facts_of(size: Size) -> Iterator[Fact]:
    rng = Random(size.facts)
    yield from people(size, rng)
    yield from projects(size, rng)
    yield from repositories(size, rng)
    yield from documents(size, rng)
    yield from the_boss()


def people(size: Size, rng: Random) -> Iterator[Fact]:
    for user in range(size.users):
        for team in rng.sample(range(size.teams), 3):
            yield fact("has_group", ("User", user), ("Team", team))
        if user % 3 == 0:
            yield fact("is_verified", ("User", user))
        if user % 97 == 0:
            yield fact("is_banned", ("User", user))
    for team in range(1, size.teams):
        yield fact("has_group", ("Team", team), ("Team", (team - 1) // 8))


def projects(size: Size, rng: Random) -> Iterator[Fact]:
    for _ in range(size.part(0.06)):
        role = rng.choice(("reader", "reader", "writer", "admin"))
        yield fact("has_role", user_of(size, rng), role, ("Project", rng.randrange(size.projects)))


def repositories(size: Size, rng: Random) -> Iterator[Fact]:
    for _ in range(size.part(0.03)):
        org = 1 + rng.randrange(size.orgs - 1)
        yield fact("has_role", user_of(size, rng), rng.choice(("member", "member", "admin")), ("Org", org))
    for repo in range(size.repos):
        org = 0 if repo < size.listed else 1 + rng.randrange(size.orgs - 1)
        yield fact("has_relation", ("Repo", repo), "organization", ("Org", org))
        if repo % 100 == 0:
            yield fact("is_public", ("Repo", repo))
    for _ in range(size.part(0.1)):
        role = rng.choice(("reader", "reader", "writer", "admin"))
        yield fact("has_role", user_of(size, rng), role, ("Repo", rng.randrange(size.repos)))
    for issue in range(size.issues):
        yield fact("has_relation", ("Issue", issue), "repository", ("Repo", rng.randrange(size.repos)))
        if issue % 2:
            yield fact("has_relation", ("Issue", issue), "creator", user_of(size, rng))


def documents(size: Size, rng: Random) -> Iterator[Fact]:
    for folder in range(size.folders):
        parent = parent_of(size, folder)
        if parent is not None:
            yield fact("has_relation", ("Folder", folder), "parent", ("Folder", parent))
    for doc in range(size.docs):
        inside = range(size.boss_folders) if doc < size.listed else range(size.boss_folders, size.folders)
        yield fact("has_relation", ("Doc", doc), "folder", ("Folder", rng.choice(inside)))
        if doc % 50 == 0:
            yield fact("is_locked", ("Doc", doc))
    for _ in range(size.part(0.08)):
        role = rng.choice(("viewer", "viewer", "editor", "auditor"))
        yield fact("has_role", user_of(size, rng), role, ("Folder", rng.randrange(size.boss_folders, size.folders)))
    for _ in range(size.part(0.008)):
        team, folder = rng.randrange(size.teams), rng.randrange(size.boss_folders, size.folders)
        yield fact("has_role", ("Team", team), rng.choice(("viewer", "auditor")), ("Folder", folder))
    for _ in range(size.part(0.08)):
        yield fact("has_role", user_of(size, rng), rng.choice(("viewer", "editor")), ("Doc", rng.randrange(size.docs)))


def parent_of(size: Size, folder: int) -> int | None:
    """The boss's tree is wide, the others are nine deep."""
    if folder < size.boss_folders:
        return (folder - 1) // 3 if folder else None
    place = (folder - size.boss_folders) % PER_TREE
    return folder - place + (place - 1) // 2 if place else None


def the_boss() -> Iterator[Fact]:
    yield fact("has_role", ("User", BOSS), "member", ("Org", 0))
    yield fact("has_role", ("User", BOSS), "viewer", ("Folder", 0))
    yield fact("has_role", ("User", BOSS), "auditor", ("Folder", 0))
    yield fact("is_verified", ("User", BOSS))


def user_of(size: Size, rng: Random) -> tuple[str, int]:
    return "User", rng.randrange(size.users)


def fact(predicate: str, *args: str | tuple[str, int | str]) -> Fact:
    return predicate, tuple(Value(STRING, arg) if isinstance(arg, str) else entity(*arg) for arg in args)


def entity(type_name: str, number: int | str) -> Value:
    return Value(type_name, number if isinstance(number, str) else f"{type_name.lower()}-{number}")


def numbered(fact: Fact) -> Fact:
    """The fact with numbers for ids, which then are shared between types."""
    predicate, row = fact
    return predicate, tuple(value if value.type == STRING else Value(value.type, _number(value.id)) for value in row)


def _number(an_id: str) -> str:
    return an_id.rpartition("-")[2]


def line_of(fact: Fact) -> bytes:
    """As `load_facts` reads it."""
    predicate, row = fact
    return orjson.dumps({"predicate": predicate, "args": [{"type": each.type, "id": each.id} for each in row]}) + b"\n"
