"""Ordinary policies of large applications: each is one idea, written out as often as such applications do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Large(NamedTuple):
    """A policy, and what is asked of it: may the actor do the action on the resource, which ones, and what else."""

    name: str
    text: str
    actor: str
    action: str
    resource: str
    most_text: int = 20_000  # characters of a statement
    most_seconds: float = 0.1  # of planning


def chain(types: int, roles: tuple[str, ...] = ("viewer", "editor")) -> str:
    """Types one below the other; each role comes down from the parent's."""
    names = "".join(f' "{role}",' for role in roles)
    text = f'actor User {{}}\nresource T0 {{ roles = [{names}]; permissions = ["read"]; "read" if "{roles[0]}"; }}\n'
    for number in range(1, types):
        down = "".join(f' "{role}" if "{role}" on "parent";' for role in roles)
        text += (
            f'resource T{number} {{ roles = [{names}]; permissions = ["read"]; relations = {{ parent: T{number - 1} }};'
            f' "read" if "{roles[0]}";{down} }}\n'
        )
    return text


GROUPS = "has_role(u: User, r: String, x: Resource) if g matches Group and has_group(u, g) and has_role(g, r, x);\n"
NESTED = "has_group(u: Actor, g: Group) if h matches Group and has_group(u, h) and has_group(h, g);\n"
FOLDERS = """resource Folder {
  roles = ["viewer", "editor"]; permissions = ["read", "write"]; relations = { parent: Folder };
  "viewer" if "editor"; "read" if "viewer"; "write" if "editor"; "viewer" if "viewer" on "parent"; "editor" if "editor" on "parent";
}
resource Doc {
  roles = ["viewer", "editor"]; permissions = ["read", "write"]; relations = { folder: Folder };
  "viewer" if "editor"; "read" if "viewer"; "write" if "editor"; "viewer" if "viewer" on "folder"; "editor" if "editor" on "folder";
}
"""  # noqa: E501


def _role_ladder(roles: int, types: int) -> str:
    text = "actor User {}\n"
    for number in range(types):
        names = ", ".join(f'"r{role}"' for role in range(roles))
        steps = " ".join(f'"r{role}" if "r{role + 1}";' for role in range(roles - 1))
        text += f'resource T{number} {{ roles = [{names}]; permissions = ["read"]; "read" if "r0"; {steps} }}\n'
    return text


def diamond(levels: int, word: str) -> str:
    text = 'actor User {}\nresource T0 { roles = ["r"]; }\n'
    for number in range(1, levels):
        read = 'permissions = ["read"]; "read" if "r";' if number == levels - 1 else ""
        rule = '"r" if "r" on "left" or "r" on "right";' if word == "or" else '"r" if "r" on "left" and "r" on "right";'
        relations = f"relations = {{ left: T{number - 1}, right: T{number - 1} }};"
        text += f'resource T{number} {{ roles = ["r"]; {relations} {read} {rule} }}\n'
    return text


def _levels(levels: int, types: int) -> str:
    text = "actor User {}\n"
    for number in range(types):
        text += (
            f'resource T{number} {{ permissions = ["read"]; }}\n'
            f'has_permission(u: User, "read", x: T{number}) if\n'
            '  clearance(u, c) and classification(x, l) and c >= l and has_role(u, "member", o) and belongs(x, o)\n'
            "  and o matches Org;\n"
        )
    ladder = "".join(f' "m{level}" if "m{level + 1}";' for level in range(levels))
    names = ", ".join(f'"m{level}"' for level in range(levels + 1))
    return text + f'resource Org {{ roles = ["member", {names}]; "member" if "m0";{ladder} }}\n'


def untyped(types: int) -> str:
    text = "actor User {}\nactor Robot {}\n"
    for number in range(types):
        text += f'resource T{number} {{ permissions = ["read", "write"]; }}\n'
    text += 'has_permission(u: User, "read", x: Resource) if attribute(u, "team", v) and attribute(x, "team", v);\n'
    text += 'has_permission(u: User, "write", x: Resource) if attribute(u, "desk", v) and attribute(x, "desk", v)\n'
    return text + "  and not is_locked(x);\n"


def _tenants(types: int) -> str:
    text = 'actor User {}\nresource Org { roles = ["admin", "member"]; permissions = ["invite"];\n'
    text += ' "member" if "admin"; "invite" if "admin"; }\n'
    for number in range(types):
        text += (
            f'resource T{number} {{ roles = ["reader", "owner"]; permissions = ["read", "delete"];'
            ' relations = { org: Org }; "reader" if "owner"; "read" if "reader"; "delete" if "owner";'
            ' "reader" if "member" on "org"; "owner" if "admin" on "org"; "read" if is_public(resource); }\n'
        )
    return text


def policies() -> Iterator[Large]:
    yield Large("a chain of 10 types", chain(10), "User", "read", "T9")
    yield Large("a chain of 20 types", chain(20), "User", "read", "T19")
    yield Large("a chain of 20 types, asked in its middle", chain(20), "User", "read", "T10")
    yield Large("a chain of 20 types with 4 roles", chain(20, ("a", "b", "c", "d")), "User", "read", "T19")
    groups = "actor Group {}\n" + GROUPS
    yield Large("a chain of 12 types, and groups", chain(12) + groups, "User", "read", "T11", most_seconds=0.2)
    both = chain(12) + groups + NESTED
    yield Large("a chain of 12 types, and nested groups", both, "User", "read", "T11", most_seconds=0.15)
    yield Large("groups over folders", "actor User {}\n" + groups + FOLDERS, "User", "read", "Doc")
    nested = "actor User {}\n" + groups + NESTED + FOLDERS
    yield Large("groups of groups over folders", nested, "User", "read", "Doc")
    yield Large("groups of groups over folders, to write", nested, "User", "write", "Doc")
    denied = nested + 'allow(u: User, "read", d: Doc) if has_permission(u, "read", d) and not is_blocked(u, d);\n'
    yield Large("groups of groups over folders, with a block list", denied, "User", "read", "Doc")
    yield Large("a ladder of 12 roles", _role_ladder(12, 1), "User", "read", "T0")
    yield Large("a ladder of 30 roles on 20 types", _role_ladder(30, 20), "User", "read", "T19")
    yield Large("classification levels on 10 types", _levels(5, 10), "User", "read", "T9")
    yield Large("classification levels on 30 types", _levels(12, 30), "User", "read", "T29")
    yield Large("untyped attributes on 10 types", untyped(10), "User", "read", "T9")
    yield Large("untyped attributes on 40 types", untyped(40), "User", "read", "T39", most_seconds=0.15)
    yield Large("untyped attributes on 40 types, to write", untyped(40), "User", "write", "T39", most_seconds=0.15)
    yield Large("tenants with 50 types", _tenants(50), "User", "read", "T49")
    yield Large("tenants with 200 types", _tenants(200), "User", "delete", "T150")
    yield Large("a diamond of 8 types", diamond(8, "or"), "User", "read", "T7")
    yield Large("a diamond of 12 types", diamond(12, "or"), "User", "read", "T11")
    yield Large("a diamond of 8 types that needs both sides", diamond(8, "and"), "User", "read", "T7")
