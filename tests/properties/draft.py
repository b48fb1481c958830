"""A policy being made up: blocks, rules, and which facts and questions make sense for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from policy.values import BOOLEAN, INTEGER, STRING, Value

THREE = ("User", "Team", "Folder", "Doc")  # so many ids; the others have two
ODD_IDS = ("a", "A", "a ", "o'b", 'say "x"', "%", "_", "é", "e\u0301", "0", "-- x", "a\\b", "true", "User", "null")
ROLES = ("r0", "r1", "r2")
PERMISSIONS = ("p0", "p1", "p2")
GLOBALS = ("g0", "g1")
TRUTHS = (Value(BOOLEAN, "true"), Value(BOOLEAN, "false"))

Slot = tuple[Value, ...]  # what may stand in one argument


@dataclass(frozen=True)
class Shape:
    """A predicate, with candidates for each argument; `given` are the arguments that every question must fix."""

    predicate: str
    slots: tuple[Slot, ...]
    given: frozenset[int] = frozenset()


@dataclass
class Block:
    kind: str
    name: str
    extends: str = ""
    roles: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    relations: dict[str, str] = field(default_factory=dict)
    shorthands: list[str] = field(default_factory=list)

    def text(self) -> str:
        heading = " ".join(word for word in (self.kind, self.name, self.extends and f"extends {self.extends}") if word)
        relations = ", ".join(f"{name}: {target}" for name, target in self.relations.items())
        lines = [
            f"roles = {bracketed(self.roles)};" if self.roles else "",
            f"permissions = {bracketed(self.permissions)};" if self.permissions else "",
            f"relations = {{ {relations} }};" if relations else "",
            *self.shorthands,
        ]
        return f"{heading} {{\n" + "".join(f"  {line}\n" for line in lines if line) + "}\n"


def bracketed(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


@dataclass
class Draft:
    rng: Random
    blocks: dict[str, Block] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)  # facts that may be stored
    derived: dict[str, Shape] = field(default_factory=dict)  # what only rules make true, to ask about
    features: set[str] = field(default_factory=set)
    ids: dict[str, Slot] = field(default_factory=dict)
    shared: tuple[str, ...] = ()  # the ids of every type; without any, each type has its own
    numbers: Slot = tuple(Value(INTEGER, text) for text in ("-1", "0", "3", "10", "4000000000"))

    def __post_init__(self) -> None:
        """In most policies all types have the same ids: 1 is a user, a team and a folder."""
        if self.often(0.75):
            self.shared = ("1", "2", "3") if self.often(0.8) else tuple(self.rng.sample(ODD_IDS, 3))

    def often(self, chance: float) -> bool:
        return self.rng.random() < chance

    def pick(self, *choices: str) -> str:
        return self.rng.choice(choices)

    # ---- blocks -----------------------------------------------------------------------------------------

    def actor(self, name: str, extends: str = "") -> str:
        return self._block("actor", name, extends)

    def resource(self, name: str, extends: str = "") -> str:
        return self._block("resource", name, extends)

    def _block(self, kind: str, name: str, extends: str) -> str:
        if name not in self.blocks:
            self.blocks[name] = Block(kind, name, extends)
            count = 3 if name in THREE else 2
            self.ids[name] = tuple(Value(name, an_id) for an_id in self.shared[:count] or self._own_ids(name, count))
        return name

    def _own_ids(self, name: str, count: int) -> list[str]:
        if self.often(0.1):
            return self.rng.sample(ODD_IDS, count)
        return [f"{name[0].lower()}{index}" for index in range(count)]

    def globals(self) -> Block:
        return self.blocks.setdefault("", Block("global", "", roles=GLOBALS, permissions=("create",)))

    def resources(self) -> list[Block]:
        """The blocks with roles and permissions of their own."""
        return [block for block in self.blocks.values() if block.kind == "resource" and block.permissions]

    def some_resource(self) -> Block:
        return self.rng.choice(self.resources())

    def related(self) -> list[tuple[Block, str, Block]]:
        """Each relation that leads from a block with permissions to another."""
        found = [(b, name, self.blocks.get(target)) for b in self.resources() for name, target in b.relations.items()]
        return [(block, name, target) for block, name, target in found if target in self.resources()]

    # ---- facts and rules --------------------------------------------------------------------------------

    def of(self, *names: str) -> Slot:
        """The values of some types; of a type's subtypes too."""
        wanted = set(names) | {block.name for block in self.blocks.values() if block.extends in names}
        return tuple(value for name in sorted(wanted & set(self.ids)) for value in self.ids[name])

    def actors(self) -> Slot:
        return self.of(*(name for name, block in self.blocks.items() if block.kind == "actor"))

    def fact(self, predicate: str, *slots: Slot, label: str = "", given: frozenset[int] = frozenset()) -> None:
        label = label or f"{predicate}({', '.join(slot[0].type for slot in slots)})"
        self.shapes[label] = Shape(predicate, slots, given)

    def asks(self, predicate: str, *slots: Slot, given: frozenset[int] = frozenset()) -> None:
        self.derived[f"{predicate}/{len(self.derived)}"] = Shape(predicate, slots, given)

    def rule(self, text: str) -> None:
        self.rules.append(text + ";")

    def grants(self, place: Block, body: str, permission: str = "") -> None:
        """A permission of a `user` on `r`, some resource of the block."""
        self.rule(f'has_permission(user: User, "{permission or self.permission()}", r: {place.name}) if {body}')

    def role(self) -> str:
        return self.pick(*ROLES)

    def permission(self) -> str:
        return self.pick(*PERMISSIONS)


def strings(names: tuple[str, ...]) -> Slot:
    return tuple(Value(STRING, name) for name in names)
