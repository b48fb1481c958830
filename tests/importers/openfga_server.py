"""Random models, asked of a real OpenFGA and of the policy that they are imported as.

    openfga run --playground-enabled=false
    python -m tests.importers.openfga_server http://127.0.0.1:8080 --minutes 5 --seed 1

Conditions have parameters of all types, and with `--wrong 0.2` some values that no type has. The tuples have no cycles,
below which OpenFGA denies what `but not` excepts. Where it answers with an error, here nothing may be granted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.standalone import set_up

if __name__ == "__main__":  # before what needs it is imported
    set_up(f"sqlite:///{tempfile.mkdtemp()}/unused.sqlite3")

from authz_project.importers.cel import NoEquivalent
from authz_project.importers.convert import carried
from authz_project.importers.files import read_yaml
from authz_project.importers.ir import Imported, ImportRejected, ImportReport, ModelKind, Place
from authz_project.importers.openfga import (
    model_of_files,
    read_json_model,
    thing_of,
    tuple_of,
    values_of,
    who_of,
)
from checks.asking.run import in_memory
from policy.errors import AuthzError
from tests.importers.asking import Carriage

SOMEWHERE = Place()
THINGS = ("group", "folder", "document")
NAMES = ("owner", "viewer", "blocked", "can-view", "member")
IDS = ("1", "2", "x|y")
Json = dict[str, Any]

# ---- conditions ------------------------------------------------------------------------------------------------------

VALUES: dict[str, list[Any]] = {
    "int": [0, 1, -1, 5, "7", 3.0, 2**53 - 1, "9223372036854775807", "-9223372036854775808", "9007199254740993"],
    "uint": [0, 1, 5, "7", "9223372036854775807"],
    "double": [0, 1, 2.0, 5, "7", -3, 1e3],
    "bool": [True, False],
    "string": ["a", "b", "A", "10.0.0.0/8", "10.1.2.3/32", "x y", "é", "true", "0.0.0.0/0", "10.0.0.7/8"],
    "timestamp": ["2024-01-01T00:00:00Z", "2024-01-01T01:00:00+01:00", "2024-02-29T23:59:59-05:30"],
    "duration": ["1h", "60m", "3600s", "-1h", "0s", "1h30m", "0", "24h"],
    "ipaddress": ["10.0.0.1", "192.168.1.1", "10.1.2.3", "0.0.0.0", "255.255.255.255"],
}  # fmt: skip
TYPES = (*VALUES, "list<int>", "list<string>", "list<bool>", "list<timestamp>", "list<uint>")
WRONG: list[Any] = [
    True, "zzz", 1, 1.5, [], None, {}, "1.5", -1, "", ["a", 1], "1h", "+5", "0x10", " 5", "1e3", "05", "1970-01-01",
    "2024-01-01t00:00:00z", "10.0.0.01", "::1", "NaN", "TRUE", "1_000", "½", "٣", "1.5h", "1d", "2024-12-31T23:59:60Z",
    "0001-01-01T00:00:00Z", "2024-01-01T00:00:00.5Z", 1e20, 2**63, "18446744073709551615", "1.0", "-0", -0.0,
]  # fmt: skip
LITERALS = {
    "int": ["0", "1", "-1", "5", "7", "9223372036854775807", "0x10"],
    "uint": ["0u", "1u", "5u", "0x7u"],
    "double": ["0.0", "1.0", "-3.0", "1e3", "1.5"],
    "bool": ["true", "false"],
    "string": ['"a"', "'b'", '"A"', 'r"a"', '"\\u00e9"', '"""a"""', '"10.0.0.0/8"', '"\\x61"'],
}
NETWORKS = ['"10.0.0.0/8"', '"192.168.0.0/16"', '"0.0.0.0/0"', '"10.0.0.7/8"']
UNORDERED = ("bool", "string", "ipaddress")


@dataclass
class Condition:
    """A random condition, as it is written down bit by bit."""

    chance: Random
    parameters: dict[str, str]

    def literal(self, kind: str) -> str:
        known = LITERALS.get(kind)
        return self.chance.choice(known) if known else f'{kind}("{self.chance.choice(VALUES[kind])}")'

    def some_kind(self) -> str:
        return self.chance.choice([kind for kind in self.parameters.values() if kind in VALUES] or ["int"])

    def operand(self, kind: str, depth: int = 2) -> str:
        named = [name for name, other in self.parameters.items() if other == kind]
        if depth and kind not in UNORDERED and self.chance.random() < 0.2:
            sign, second = self.chance.choice("+-"), "duration" if kind == "timestamp" else kind
            if kind == "duration" and sign == "-" and self.chance.random() < 0.5:
                return f"{self.operand('timestamp', 0)} - {self.operand('timestamp', 0)}"
            return f"({self.operand(kind, depth - 1)} {sign} {self.operand(second, depth - 1)})"
        return self.chance.choice(named) if named and self.chance.random() < 0.8 else self.literal(kind)

    def test(self, depth: int = 2) -> str:
        if not depth or self.chance.random() < 0.4:
            return self.chance.choice((self.comparison, self.comparison, self.membership, self.flag))()
        inner = [f"({self.test(depth - 1)})" for _ in range(3)]
        forms = ("!{}", "{} && {}", "{} || {}", "{} ? {} : {}")
        return self.chance.choice(forms).format(*inner)

    def comparison(self) -> str:
        kind = self.some_kind()
        signs = ["==", "!="] if kind in UNORDERED else ["==", "!=", "<", "<=", ">", ">="]
        return f"{self.operand(kind)} {self.chance.choice(signs)} {self.operand(kind)}"

    def membership(self) -> str:
        lists = [(name, kind[5:-1]) for name, kind in self.parameters.items() if kind.startswith("list")]
        if lists and self.chance.random() < 0.7:
            name, kind = self.chance.choice(lists)
            return f"{self.operand(kind, 0)} in {name}"
        kind = self.some_kind()
        constants = ", ".join(self.literal(kind) for _ in range(self.chance.randrange(4)))
        return f"{self.operand(kind, 0)} in [{constants}]"

    def flag(self) -> str:
        addresses = [name for name, kind in self.parameters.items() if kind == "ipaddress"]
        if not addresses:
            return self.operand("bool", 0)
        texts = [name for name, kind in self.parameters.items() if kind == "string"]
        return f"{self.chance.choice(addresses)}.in_cidr({self.chance.choice(texts + NETWORKS)})"


def value_of(chance: Random, kind: str, wrong: float) -> Any:
    if chance.random() < wrong:
        return chance.choice(WRONG)
    if kind.startswith("list"):
        return [value_of(chance, kind[5:-1], wrong) for _ in range(chance.randrange(4))]
    return chance.choice(VALUES[kind])


def type_in_json(kind: str) -> Json:
    name, _, of = kind.rstrip(">").partition("<")
    inner = {"generic_types": [type_in_json(of)]} if of else {}
    return {"type_name": f"TYPE_NAME_{name.upper()}", **inner}


# ---- models, tuples and questions ------------------------------------------------------------------------------------


class World:
    """A random model, as the server takes it, with tuples and questions."""

    def __init__(self, chance: Random, with_conditions: float, wrong: float):
        self.chance, self.wrong = chance, wrong
        self.conditions: dict[str, Condition] = {}
        for name, parameters in (("early", ("hour", "limit", "when")), ("late", ("from", "trusted", "x"))):
            if chance.random() < with_conditions:
                names = chance.sample(parameters, chance.randint(1, 3))
                self.conditions[name] = Condition(chance, {each: chance.choice(TYPES) for each in names})
        self.relations = {name: chance.sample(NAMES, chance.randint(1, 4)) for name in THINGS}
        types = [{"type": "user"}, {"type": "robot"}, *map(self._type, THINGS)]
        self.model: Json = {"schema_version": "1.1", "type_definitions": types}
        if self.conditions:
            self.model["conditions"] = {name: self._condition(name) for name in self.conditions}

    def _condition(self, name: str) -> Json:
        condition = self.conditions[name]
        parameters = {each: type_in_json(kind) for each, kind in condition.parameters.items()}
        return {"name": name, "expression": condition.test(), "parameters": parameters}

    def _type(self, name: str) -> Json:
        known = THINGS[: THINGS.index(name) + 1]
        parents = self.chance.sample(known, self.chance.randint(1, min(2, len(known))))
        relations: Json = {"parent": {"this": {}}}
        about: Json = {"parent": self._subjects([{"type": each} for each in parents])}
        for place, relation in enumerate(self.relations[name]):
            subjects = [self._subject() for _ in range(self.chance.randint(1, 3))] if self.chance.random() < 0.9 else []
            rewrite = self._rewrite(2, parents, self.relations[name][:place], bool(subjects))
            if subjects and '"this"' not in json.dumps(rewrite):
                rewrite = {"union": {"child": [{"this": {}}, rewrite]}}
            relations[relation] = rewrite
            about |= {relation: self._subjects(subjects)} if subjects else {}
        return {"type": name, "relations": relations, "metadata": {"relations": about}}

    def _subject(self) -> Json:
        kind = self.chance.randrange(6)
        if kind == 0:
            return {"type": self.chance.choice(["user", "robot", "group"]), "wildcard": {}}
        name = self.chance.choice(THINGS)
        if kind <= 2:
            return {"type": name} | ({"relation": self.chance.choice(self.relations[name])} if kind == 1 else {})
        return {"type": self.chance.choice(["user", "user", "robot"])}

    def _subjects(self, listed: list[Json]) -> Json:
        names = [*self.conditions]
        for each in listed:
            if names and self.chance.random() < 0.4:
                each["condition"] = self.chance.choice(names)
        return {"directly_related_user_types": [each for at, each in enumerate(listed) if each not in listed[:at]]}

    def _rewrite(self, depth: int, parents: list[str], earlier: list[str], has_own: bool) -> Json:
        kind = self.chance.randrange(9) if depth else self.chance.randrange(4)
        inner = [self._rewrite(depth - 1, parents, earlier, has_own) for _ in range(2)] if kind > 3 else []
        if kind == 0 and has_own:
            return {"this": {}}
        if kind <= 1 and earlier:
            return {"computedUserset": {"relation": self.chance.choice(earlier)}}
        if kind <= 3:
            target = self.chance.choice(self.relations[self.chance.choice(parents)])
            return {"tupleToUserset": {"tupleset": {"relation": "parent"}, "computedUserset": {"relation": target}}}
        if kind <= 6:
            return {"intersection" if kind == 6 else "union": {"child": inner}}
        return {"difference": {"base": inner[0], "subtract": inner[1]}}

    def tuples(self) -> Iterator[Json]:
        for name in THINGS:
            definition = self.model["type_definitions"][2 + THINGS.index(name)]
            for relation, about in definition["metadata"]["relations"].items():
                for _ in range(self.chance.randint(1, 5)):
                    yield from self._tuple(name, relation, self.chance.choice(about["directly_related_user_types"]))

    def _tuple(self, name: str, relation: str, subject: Json) -> Iterator[Json]:
        own, other = self.chance.choice(IDS), "*" if "wildcard" in subject else self.chance.choice(IDS)
        kind = subject["type"]
        if kind in THINGS and other != "*" and (THINGS.index(kind), other) >= (THINGS.index(name), own):
            return  # it could be part of a cycle
        of = f"#{subject['relation']}" if "relation" in subject else ""
        made: Json = {"user": f"{kind}:{other}{of}", "relation": relation, "object": f"{name}:{own}"}
        if "condition" in subject:
            bound = self._values(self.conditions[subject["condition"]], 0.5)
            made["condition"] = {"name": subject["condition"], "context": bound}
        yield made

    def _values(self, condition: Condition, share: float) -> Json:
        given = ((name, kind) for name, kind in condition.parameters.items() if self.chance.random() < share)
        return {name: value_of(self.chance, kind, self.wrong) for name, kind in given}

    def questions(self) -> Iterator[Json]:
        for name in THINGS:
            for relation in ("parent", *self.relations[name]):
                for _ in range(4):
                    context: Json = {}
                    for condition in self.conditions.values():
                        context = self._values(condition, 0.75) | context
                    thing = f"{name}:{self.chance.choice(IDS)}"
                    key = {"user": self._asker(), "relation": relation, "object": thing}
                    yield {"tuple_key": key, "context": context}

    def _asker(self) -> str:
        kind, name = self.chance.randrange(8), self.chance.choice(THINGS)
        if kind < 6:
            return f"{'robot' if kind == 5 else 'user'}:{self.chance.choice((*IDS, 'new', '*'))}"
        return f"{name}:{self.chance.choice(IDS)}" + (
            f"#{self.chance.choice(self.relations[name])}" if kind == 6 else ""
        )


# ---- asking both -----------------------------------------------------------------------------------------------------


@dataclass
class Server:
    url: str

    def post(self, path: str, body: Json) -> tuple[bool, Json]:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return True, json.load(response)
        except urllib.error.HTTPError as reason:
            return False, json.load(reason)


def compare(server: Server, world: World, tally: Counter[str]) -> Iterator[str]:
    """Yield what is wrong, and count all answers."""
    _, store = server.post("/stores", {"name": "random"})
    place = f"/stores/{store['id']}"
    is_taken, stored = server.post(f"{place}/authorization-models", world.model)
    try:
        model = model_of_files([read_json_model(json.dumps(world.model), "model.json")])
    except ImportRejected as reason:
        tally["models refused by both"] += not is_taken
        yield from [f"refused here: {reason}"] if is_taken else []
        return
    if not is_taken:
        tally["models refused there"] += 1
        return
    known = {"authorization_model_id": stored["authorization_model_id"]}
    keys = {json.dumps([each[name] for name in ("user", "relation", "object")]): each for each in world.tuples()}
    kept = [
        each for each in keys.values() if server.post(f"{place}/write", {"writes": {"tuple_keys": [each]}, **known})[0]
    ]
    report = ImportReport()
    imported = Imported(model, tuple(tuple_of(each, SOMEWHERE) for each in read_yaml(json.dumps(kept), "tuples.json")))
    carriage = Carriage(carried(imported, report, usersets=True))
    if report.of(ModelKind.NEEDED):
        tally["imports refused"] += 1
        return
    for asked in world.questions():
        is_answered, answer = server.post(f"{place}/check", {**asked, **known})
        expected = answer["allowed"] if is_answered else None
        granted = is_granted(carriage, asked)
        if granted is None:
            tally["questions that cannot be imported"] += 1
        elif granted == expected:
            tally["granted by both" if granted else "denied by both"] += 1
        elif granted or not (expected is None or report.of(ModelKind.LOST)):
            yield f"{asked}: there {'an error' if expected is None else expected}, here {granted}"
        else:
            tally["denied, for what is not imported" if expected else "denied, an error there"] += 1


def is_granted(carriage: Carriage, asked: Json) -> bool | None:
    key = asked["tuple_key"]
    try:
        context = values_of(asked["context"], SOMEWHERE)
        return carriage.check(
            who_of(key["user"], SOMEWHERE), key["relation"], thing_of(key["object"], SOMEWHERE), (), context
        )
    except (NoEquivalent, AuthzError):
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("url", help="of a server without keys")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--conditions", type=float, default=0.6, help="share of models with each of two conditions")
    parser.add_argument("--wrong", type=float, default=0, help="share of values that no parameter has")
    args = parser.parse_args()
    tally, wrong, seed, end = Counter[str](), 0, args.seed, time.monotonic() + 60 * args.minutes
    with in_memory():
        while time.monotonic() < end:
            for each in compare(Server(args.url), World(Random(seed), args.conditions, args.wrong), tally):
                print(f"WRONG, seed {seed}: {each}")
                wrong += 1
            seed += 1
    print(f"{seed - args.seed} models: {wrong} wrong; {', '.join(f'{n:,} {name}' for name, n in tally.most_common())}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
