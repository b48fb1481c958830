"""A design studio with clients: one tree of folders, and what was shared out of it."""

from collections.abc import Iterator

from authz_project.examples.example import PEOPLE, Example, ExampleQuestion, chance, fact, pick, some, unix
from facts.wire import Fact

STUDIO = "Workspace:studio"
STAFF = ("wanda", "mo", "anne", "eve", "ida", *PEOPLE[:36])
GUESTS = ("gus", "clio", *PEOPLE[146:158])  # clients, and who works for a while
GROUPS = {  # each with the group that it is in
    "everyone": "",
    "design": "everyone",
    "interns": "design",
    "copy": "everyone",
    "office": "everyone",
    "leads": "",
}
CLIENTS = ("acme", "globex", "hooli", "initech", "umbrella", "vandelay", "wonka")
PARTS = ("briefs", "drafts", "final", "photos", "money")
SUBJECTS = ("logo", "poster", "website", "packaging", "campaign", "brochure", "typeface", "icons", "signage", "letter")


def facts() -> Iterator[Fact]:
    yield from _people()
    for group, above in GROUPS.items():
        if above:
            yield fact("in_group", f"Group:{group}", f"Group:{above}")
    for top in ("clients", "house"):
        yield fact("has_relation", f"Folder:{top}", "workspace", STUDIO)
    yield fact("has_role", "Group:everyone", "viewer", "Folder:house")
    yield fact("has_role", "Group:leads", "editor", "Folder:clients")
    for client in CLIENTS:
        yield from _client(client)
    yield from _house()


def _people() -> Iterator[Fact]:
    yield fact("has_role", "User:wanda", "admin", STUDIO)
    for person in STAFF[1:]:
        yield fact("has_role", f"User:{person}", "member", STUDIO)
        if person in PEOPLE:
            yield fact("in_group", f"User:{person}", f"Group:{pick(('design', 'copy', 'office'), person)}")
    for person in GUESTS:
        yield fact("has_role", f"User:{person}", "guest", STUDIO)
    yield fact("in_group", "User:ida", "Group:interns")
    yield fact("in_group", "User:anne", "Group:design")
    yield fact("in_group", "User:mo", "Group:leads")


def _client(client: str) -> Iterator[Fact]:
    top = f"Folder:clients/{client}"
    yield fact("has_relation", top, "parent", "Folder:clients")
    yield fact("has_role", "Group:design", "editor", top)
    for part in PARTS:
        folder = f"{top}/{part}"
        yield fact("has_relation", folder, "parent", top)
        if part == "money":
            yield fact("is_restricted", folder)
            yield fact("has_role", "Group:office", "owner", folder)
        if part == "drafts":
            for subject in some(SUBJECTS, 2, 4, client):
                inner = f"{folder}/{subject}"
                yield fact("has_relation", inner, "parent", folder)
                yield from _documents(client, inner, subject)
        else:
            yield from _documents(client, folder, part)
    if client == "acme":  # clio is acme's, and may see what is finished
        yield fact("has_role", "User:clio", "commenter", f"{top}/final", until="2035-01-01T00:00:00Z")


def _documents(client: str, folder: str, about: str) -> Iterator[Fact]:
    for number, subject in enumerate(some(SUBJECTS, 4, 8, folder), 1):
        document = f"Document:{client}-{about}-{subject}"
        yield fact("has_relation", document, "folder", folder)
        yield fact("has_relation", document, "author", f"User:{pick(PEOPLE[:36], document)}")
        if chance(12, document, "locked"):
            yield fact("is_locked", document)
        if chance(6, document, "view only"):
            yield fact("is_view_only", document)
        if about != "money" and chance(15, document, "shared"):
            role = pick(("viewer", "commenter", "editor"), document)
            end = "2036-06-30T00:00:00Z" if number % 2 else None
            yield fact("has_role", f"User:{pick(GUESTS[2:], document)}", role, document, until=end)


def _house() -> Iterator[Fact]:
    for part in ("rules", "parties", "salaries"):
        yield fact("has_relation", f"Folder:house/{part}", "parent", "Folder:house")
    yield fact("is_restricted", "Folder:house/salaries")
    yield fact("has_role", "User:wanda", "owner", "Folder:house/salaries")
    for name, part in (("handbook", "rules"), ("holidays", "rules"), ("summer", "parties"), ("salaries", "salaries")):
        yield fact("has_relation", f"Document:{name}", "folder", f"Folder:house/{part}")
    yield fact("has_relation", "Document:handbook", "author", "User:wanda")
    yield fact("is_locked", "Document:handbook")
    yield fact("shared_by_link", "Document:portfolio", "viewer")
    yield fact("has_relation", "Document:portfolio", "author", "User:anne")
    yield fact("shared_in", "Document:menu", "commenter", STUDIO)
    yield fact("has_relation", "Document:menu", "author", "User:mo")
    yield fact("opens_at", "Document:annual-report", "User:gus", unix("2024-03-01"))
    yield fact("opens_at", "Document:next-report", "User:gus", unix("2090-03-01"))
    for document in ("annual-report", "next-report"):
        yield fact("has_relation", f"Document:{document}", "author", "User:wanda")


EXAMPLE = Example(
    name="documents",
    title="Documents in folders",
    about=(
        "A design studio has a folder for each client. Roles are inherited through the tree, except by folders about"
        " money, and documents are shared with guests, with groups, with the whole workspace, and by link.\n\n"
        "Some shares expire, such as clio's. Check why wanda, who administers the"
        " workspace, has no access to the folders about money."
    ),
    patterns=("folders", "sharing", "groups", "overriding inherited roles", "time"),
    questions=(
        ExampleQuestion(
            "actions", "User:ida", "", "Folder:clients/acme/drafts", ("add", "rename", "view"),
            "interns are in the group design, which can edit every client's folder and everything in it",
        ),
        ExampleQuestion(
            "authorize", "User:wanda", "view", "Folder:clients/acme/money", False,
            "she owns the top-level folders, but a restricted folder inherits no roles",
        ),
        ExampleQuestion(
            "list", "User:clio", "comment", "Document", (
                "acme-final-icons", "acme-final-packaging", "acme-final-typeface", "acme-final-website", "menu",
            ),
            "acme's finished work, until her share expires, and the menu that is shared in the workspace",
        ),
        ExampleQuestion(
            "authorize", "User:wanda", "edit", "Document:handbook", False,
            "it is locked, and not even its owner can edit it",
        ),
        ExampleQuestion(
            "list", "User:gus", "view", "Document", ("annual-report", "menu", "portfolio"),
            "he can already see one report, but not yet the next; the others are shared by link or in the workspace",
        ),
        ExampleQuestion(
            "actions", "User:stranger", "", "Document:portfolio", ("download", "view"),
            "it is shared by link, so everyone can view it",
        ),
    ),
    write_facts=facts,
)  # fmt: skip
