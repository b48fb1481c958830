"""Questions whose plans are kept as golden texts and measured; how they are written, and facts to ask them about.

allow(User, "read", Folder)         all is given
allow(User, "read", Folder?)        the folders are asked for
allow(User, "read", Folder*)        those of a few folders; ** of many
p(x=User?, Doc) and q(x, Doc?)      x is the same in both
... with has_role(User, String, Folder)     the request brings facts of this signature
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

from checks.asking.question import FEW, Asked, Question
from facts.wire import Fact
from policy.rules.program import Program, Signature
from policy.values import BOOLEAN, INTEGER, STRING, Value
from tests.benchmarks.generate import POLICY as COMPANY
from tests.checks.in_memory import NOW

GOLDEN = Path(__file__).parent / "golden_plans"
POLICIES = Path(__file__).parent.parent / "policies"

QUESTIONS: dict[str, list[str]] = {
    "company": [
        'allow(User, "comment", Doc)',
        'allow(User, "comment", Doc?)',
        'allow(User, "read", Doc?)',
        'allow(User, "sign", Doc?)',
        'allow(User?, "read", Doc)',
        'allow(User, "read", Issue?)',
        "allow(User, String?, Doc)",
        'allow(User, "read", Doc**)',
    ],
    "closures": [
        'allow(User, "see", Doc)',
        'allow(User, "see", Doc?)',
        'allow(User?, "see", Doc)',
        'allow(User, "edit", Doc?)',
        "friend(User?, User?)",
    ],
    "grants_to_teams": ['allow(User, "read", Repo)', 'allow(User, "read", Repo?)', 'allow(User?, "read", Repo)'],
    "diamond": ['allow(User, "read", T0)', 'allow(User, "read", T0?)', 'allow(User?, "read", T0)'],
    "half_factored": ['allow(User, "read", Folder)', 'allow(User, "read", Folder?)'],
    "ladders_of_roles": [
        'allow(User, "pull", Repo)',
        'allow(User, "close", Issue?)',
        "allow(User, String?, Issue)",
        'allow(User?, "comment", Issue)',
        'allow(User, "pull", Repo*)',
    ],
    "negation_in_recursion": [
        'allow(User, "read", Folder)',
        'allow(User, "read", Folder?)',
        'allow(User?, "read", Folder)',
        'allow(User, "list", Folder?)',
    ],
    "nested_recursion": [
        'allow(User, "read", Folder)',
        'allow(User, "read", Folder?)',
        'allow(User?, "read", Folder)',
        'allow(User, "write", Folder?)',
        'allow(User, "read", Folder*)',
        'allow(User, "read", Folder**)',
        'allow(User, "read", Folder) with has_role(Group, String, Folder)',
    ],
    "no_arguments": [
        'allow(User, "open", Door)',
        'allow(User, "lock", Door?)',
        "night()",
        "alarm() with clock(String)",
    ],
    "open_values": [
        'allow(User, "enter", Park)',
        'allow(User, "enter", Park?)',
        'allow(User?, "enter", Park)',
        'allow(User, "water", Park?)',
        'allow(User?, "leave", Park?)',
    ],
    "rounds": ['allow(User, "use", Node)', 'allow(User, "use", Node?)', 'allow(User, "see", Node?)'],
    "shared_ids": [
        'allow(User, "close", Account)',
        'allow(User?, "close", Account?)',
        'allow(User, "read", Ledger?)',
        "linked(x=Account?, x)",
    ],
    "unions": [
        'allow(Robot, "read", Picture)',
        'allow(User, "read", Picture?)',
        'allow(User?, "write", Page)',
        'has_role(User, "reader", x=Page?) and has_relation(x, "site", Site?)',
        "has_role(User, String?, Page?)",
    ],
    "files_and_folders": ['allow(User, "read", File)', 'allow(User, "read", File?)', "allow(User, String?, File)"],
    "groups": [
        'allow(User, "read", Repository)',
        'allow(User, "read", Repository?)',
        'allow(User, "read", Repository**)',
    ],
    "managers": ['allow(User, "read_salary", User)', 'allow(User, "read", Review?)'],
    "inherit_unless_overridden": ['allow(User, "read", Folder)', 'allow(User, "read", Folder?)'],
    "derived_relations": ['allow(User, "read", Repository?)'],
    "resource_roles_through_relations": ['allow(User, "close", Issue)', 'allow(User, "read", Issue?)'],
    "every_required_role": ['allow(User, "sign", Document?)'],
    "time_based_access": ['allow(User, "read", Repository?)'],
    "universal_grants": ['allow(Bot, "read", Organization?)', "allow(User, String?, Organization)"],
    "supertypes": ['allow(Admin, "edit", Page)', 'allow(User, "edit", Page?)'],
    "strings_only": ['is_a("poodle", String?)', "friends(String?, String?)"],
    "resource_creation": ['allow(User, "repository.create", Organization)', 'allow(User, "create_organization")'],
    "entitlements_and_quotas": ['allow(User, "create_repository", Organization)'],
    "users_of_an_organisation": ['allow(User, "view", User?)'],
}


def policy_of(name: str) -> str:
    if name == "company":
        return COMPANY
    path = GOLDEN / f"{name}.polar"
    return (path if path.exists() else POLICIES / path.name).read_text()


# ---- as they are written ------------------------------------------------------------------------------------------


def question_of(text: str, first: int = 0) -> tuple[Question, tuple[Signature, ...]]:
    """The question, about the entities from that number on, and what facts the request brings."""
    asked, _, brought = text.partition(" with ")
    variables: dict[str, Asked] = {}
    calls, outs = [], []
    for predicate, args in re.findall(r"(\w+)\(([^)]*)\)", asked):
        names = []
        for arg in filter(None, args.split(", ")):
            name, _, kind = arg.rpartition("=")
            name = name or (kind if kind in variables else f"v{len(variables)}")
            names.append(name)
            if name not in variables:
                others = sum(each.type == kind for each in variables.values())  # the next one, where two are given
                variables[name] = asked_of(kind, first + others)
                outs += [name] if kind[-1] in "?*" else []
        calls.append((predicate, tuple(names)))
    found = re.findall(r"(\w+)\((.*)\)", brought)
    signatures = [Signature(predicate, tuple(args.split(", "))) for predicate, args in found]
    return Question(tuple(calls), variables, tuple(outs)), tuple(signatures)


def asked_of(kind: str, first: int) -> Asked:
    if kind.startswith('"'):
        return Asked(STRING, (kind.strip('"'),))
    name = kind.rstrip("?*")
    count = {"": 1, "?": 0, "*": 5, "**": 4 * FEW}[kind.removeprefix(name)]
    return Asked(name, tuple(id_of(name, number) for number in range(first, first + count)) or None)


# ---- as plans are printed -----------------------------------------------------------------------------------------


def numbered(plan: str) -> str:
    """The plan with its sources and variables numbered as they appear, not as they were made."""
    numbers: dict[str, str] = {}
    return re.sub(r"\bs\d+\b|(?<=')\d{4,}\b", lambda found: _numbered_as(found[0], numbers), plan)


def _numbered_as(name: str, numbers: dict[str, str]) -> str:
    return numbers.setdefault(name, f"{name[0] if name[0] == 's' else ''}{len(numbers)}")


# ---- facts --------------------------------------------------------------------------------------------------------

ENTITIES = 80  # of each type
PER_SIGNATURE = 160


def id_of(type_name: str, number: int) -> str:
    return f"{type_name.lower()}-{number}"


def facts_for(program: Program) -> dict[Signature, list[tuple[str, ...]]]:
    """Some thousand facts, always the same: of the first ids more than of the last, and trees where types repeat."""
    rng, found = Random(1), {}
    for signature in sorted(signatures_of(program), key=str):
        rows = [row_of(program, signature, number, rng) for number in range(PER_SIGNATURE)]
        found[signature] = list(dict.fromkeys(row for row in rows if row))
    return found


def signatures_of(program: Program) -> Iterator[Signature]:
    """Those that say something of the policy's own, not what it decides."""
    for (predicate, _), patterns in program.accepted.items():
        for types in dict.fromkeys(itertools.chain(*(itertools.product(*map(sorted, each)) for each in patterns))):
            if predicate not in ("allow", "has_permission"):
                yield Signature(predicate, types)


def row_of(program: Program, signature: Signature, number: int, rng: Random) -> tuple[str, ...] | None:
    types = signature.types
    row = [text_of(program, signature, index, rng) for index in range(len(types))]
    if len(types) > 1 and types[0] == types[-1] and types[0] != STRING:
        child = 1 + number % (ENTITIES - 1)
        row[0], row[-1] = id_of(types[0], child), id_of(types[-1], (child - 1) // 2)
    return tuple(row) if all(row) else None


def text_of(program: Program, signature: Signature, index: int, rng: Random) -> str:
    kind = signature.types[index]
    if kind == INTEGER:
        return str(rng.choice((0, 5, NOW - 10, NOW + 10)))
    if kind == BOOLEAN:
        return rng.choice(("true", "false"))
    if kind != STRING:
        return id_of(kind, int(ENTITIES * rng.random() ** 2))
    return rng.choice(names_for(program, signature) or [""])


def names_for(program: Program, signature: Signature) -> list[str]:
    """What a String of such facts may be: a role of the type, a relation that leads to the other, or any name."""
    place = program.types.get(signature.types[-1])
    if signature.predicate == "has_relation" and len(signature.types) == 3:
        known = program.types[signature.types[0]].relations
        return sorted(name for name, target in known.items() if signature.types[-1] in program.subtypes[target])
    if signature.predicate == "has_role":
        return sorted(place.roles if place and len(signature.types) == 3 else program.global_roles)
    return sorted(program.names) or ["some"]


def brought_for(program: Program, signatures: tuple[Signature, ...]) -> list[Fact]:
    rng, found = Random(2), []
    for signature in signatures:
        rows = {row_of(program, signature, number, rng) for number in range(5)} - {None}
        found += [Fact(signature.predicate, tuple(map(Value, signature.types, row))) for row in sorted(rows)]
    return found
