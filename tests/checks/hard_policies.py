"""Policies whose rules combine in many ways: few types are said, many are meant, and recursion goes everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Hard(NamedTuple):
    name: str
    text: str
    questions: tuple[str, ...]  # as in `plan_questions`


def _types(count: int, word: str = "resource", name: str = "Kind") -> str:
    return "".join(f"{word} {name}{number} {{}}\n" for number in range(count))


def _closure(types: int, symmetric: str) -> str:
    text = f'actor User {{}}\nresource Doc {{ permissions = ["read"]; }}\n{_types(types)}'
    return (
        f"{text}linked(x, y) if near(x, y);\n{symmetric}linked(x, z) if linked(x, y) and linked(y, z);\n"
        'has_permission(u: User, "read", d: Doc) if linked(d, e) and e matches Resource and owner(u, e);\n'
    )


def _everywhere(types: int) -> str:
    """Roles of anything on anything, through groups, parents and delegation between any two types."""
    text = "actor User {}\nactor Robot {}\nactor Group {}\n"
    text += "".join(
        f'resource T{number} {{ roles = ["viewer", "editor"]; permissions = ["read"]; "viewer" if "editor";'
        ' "read" if "viewer"; }\n'
        for number in range(types)
    )
    return text + (
        "has_role(a: Actor, r: String, x: Resource) if has_group(a, g) and g matches Actor and has_role(g, r, x);\n"
        'has_role(a: Actor, r: String, x: Resource) if has_relation(x, "parent", y) and y matches Resource'
        " and has_role(a, r, y);\n"
        "has_role(a: Actor, r: String, x: Resource) if delegated(a, b) and b matches Actor and has_role(b, r, x)"
        " and not is_blocked(a, x);\n"
    )


def _mutual(types: int) -> str:
    text = f"actor User {{}}\n{_types(types)}"
    return text + (
        "above(x: Resource, y: Resource) if parent(x, y);\n"
        "above(x: Resource, y: Resource) if beside(x, z) and z matches Resource and above(z, y);\n"
        "beside(x: Resource, y: Resource) if twin(x, y);\n"
        "beside(x: Resource, y: Resource) if beside(y, x);\n"
        "beside(x: Resource, y: Resource) if above(x, z) and z matches Resource and above(y, z);\n"
    )


def policies() -> Iterator[Hard]:
    flip = "linked(y, x) if linked(x, y);\n"
    for types in (3, 6, 12):
        yield Hard(
            f"an untyped symmetric closure over {types} types",
            _closure(types, flip),
            ('allow(User, "read", Doc)', "linked(Doc, Kind0)", "linked(Doc, Kind0?)"),
        )
    yield Hard(
        "an untyped closure over 12 types", _closure(12, ""), ('allow(User, "read", Doc)', "linked(Doc, Kind0?)")
    )
    for types in (4, 12):
        yield Hard(
            f"roles of anything on anything, {types} types",
            _everywhere(types),
            (
                'allow(User, "read", T0)',
                'allow(User, "read", T0?)',
                'allow(User?, "read", T0)',
                "has_role(User?, String?, x=T0?) and has_role(Robot?, String?, x) and has_role(Group?, String?, x)",
            ),
        )
    for types in (2, 5):
        yield Hard(
            f"mutual recursion over {types} types",
            _mutual(types),
            (
                "above(Kind0, Kind1)",
                "above(Kind0, Kind1?)",
                "above(x=Kind0?, y=Kind1?) and beside(y, z=Kind1?) and above(z, x)",
            ),
        )
    chains = ('allow(User, "read", T59)', 'allow(User, "read", T59?)')
    yield Hard("an ordinary policy of 200 types", _ordinary(200, 10), ORDINARY)
    yield Hard("a chain of 60 types, and groups", _ordinary(60, 60), chains)


ORDINARY = (
    'allow(User, "read", T29)',
    'allow(User, "read", T29?)',
    "allow(User, String?, T199)",
    'allow(User?, "write", T109)',
)


def _ordinary(types: int, length: int) -> str:
    """Types in chains of some length, each with roles, an organization, and groups."""
    text = 'actor User {}\nactor Group {}\nresource Org { roles = ["member", "admin"]; "member" if "admin"; }\n'
    for number in range(types):
        is_first = number % length == 0
        parent = "" if is_first else f", parent: T{number - 1}"
        down = "" if is_first else ' "viewer" if "viewer" on "parent";'
        text += (
            f'resource T{number} {{ roles = ["viewer", "editor", "owner"]; permissions = ["read", "write"];'
            f' relations = {{ org: Org{parent} }}; "viewer" if "editor"; "editor" if "owner"; "read" if "viewer";'
            f' "write" if "editor"; "viewer" if "member" on "org";{down} }}\n'
        )
    rule = "has_role(u: User, r: String, x: Resource) if g matches Group and has_group(u, g) and has_role(g, r, x);\n"
    return text + rule
