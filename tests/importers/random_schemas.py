"""Random schemas with relationships, as validation files; their one assertion brings a context to ask with."""

from __future__ import annotations

import json
from random import Random

THINGS = ("group", "folder", "doc")
IDS = ("1", "2")
RELATIONS = ("a", "b")  # of people
PERMISSIONS = ("p", "q", "s")
CONDITIONS = (
    "n < limit || on",
    "on && n >= 2",
    "!(n == limit) && !on",
    "on ? n < 3 : n > limit",
    "n in [1, 2] || limit != 1",
)


def validation_file(seed: int) -> str:
    chance = Random(seed)
    caveats = chance.sample(("early", "late"), chance.randrange(3))
    subjects = {thing: _subjects(chance, caveats) for thing in THINGS}
    schema = ["use self", "definition user {}", "definition robot {}"]
    schema += [f"caveat {name}(n int, limit int, on bool) {{ {chance.choice(CONDITIONS)} }}" for name in caveats]
    for thing in THINGS:
        members = [f"relation {name}: {' | '.join(kinds)}" for name, kinds in subjects[thing].items()]
        members += [f"permission {name} = {_term(chance, name, 3)}" for name in PERMISSIONS]
        schema.append(f"definition {thing} {{ {' '.join(members)} }}")
    context = json.dumps({name: value for name, value in _values(chance).items() if chance.random() < 0.7})
    return "\n".join((
        "schema: |-",
        *(f"  {line}" for line in schema),
        "relationships: |-",
        *(f"  {line}" for line in _relationships(chance, subjects)),
        f"assertions: {{assertFalse: ['doc:none#p@user:none with {context}']}}",
        "",
    ))  # fmt: skip


def _subjects(chance: Random, caveats: list[str]) -> dict[str, list[str]]:
    """The kinds of subjects of each relation; `up` is there to be followed."""
    people = ["robot", "user:*", "robot:*", *(f"{thing}#b" for thing in THINGS)]
    chosen = {"b": ["user", *chance.sample(people, chance.randrange(3))]}
    people += [f"{thing}#{name}" for thing in THINGS for name in ("a", "p")]
    chosen["a"] = ["user", *chance.sample(people, chance.randrange(3))]
    chosen["up"] = chance.sample(THINGS, chance.randint(1, 2)) + (["group#b"] if chance.random() < 0.5 else [])
    for kinds in chosen.values():
        kinds += [f"{kind} with {chance.choice(caveats)}" for kind in kinds if caveats and chance.random() < 0.4]
    return chosen


def _term(chance: Random, of: str, depth: int, is_taken: bool = False) -> str:
    """What is taken away is seldom what depends on it in turn: that is not imported."""
    if depth and chance.random() < 0.7:
        sign = chance.choice("++&-")
        left = _term(chance, of, depth - 1, is_taken)
        return f"({left} {sign} {_term(chance, of, depth - 1, is_taken or sign == '-')})"
    if chance.random() < 0.1:
        return chance.choice(("self", "nil"))
    safe = is_taken and chance.random() < 0.95
    if chance.random() < 0.5:
        before = PERMISSIONS[: PERMISSIONS.index(of)]
        return chance.choice(("b",) if safe else (*RELATIONS, *before, *before))
    if chance.random() < 0.4:
        return f"up.all({'b' if chance.random() < 0.95 else chance.choice(PERMISSIONS)})"
    return f"up->{'b' if safe else chance.choice((*RELATIONS, *PERMISSIONS))}"


def _relationships(chance: Random, subjects: dict[str, dict[str, list[str]]]) -> list[str]:
    found: dict[str, str] = {}
    for _ in range(chance.randint(4, 16)):
        thing = chance.choice(THINGS)
        relation = chance.choice((*RELATIONS, "up"))
        kind, _, caveat = chance.choice(subjects[thing][relation]).partition(" with ")
        name, sign, rest = kind.partition("#" if "#" in kind else ":")
        who = f"{name}:{'*' if sign == ':' else chance.choice(IDS)}{'#' + rest if sign == '#' else ''}"
        bound = {name: value for name, value in _values(chance).items() if chance.random() < 0.4}
        given = f"[{caveat}{':' + json.dumps(bound) if bound else ''}]" if caveat else ""
        found.setdefault(f"{thing}:{chance.choice(IDS)}#{relation}@{who}", given)
    return [relationship + given for relationship, given in found.items()]


def _values(chance: Random) -> dict[str, object]:
    return {"n": chance.randrange(4), "limit": chance.randrange(4), "on": chance.random() < 0.5}
