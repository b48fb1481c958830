"""What a schema and its relationships mean, in plain Python: what carried over policies are held to.

It goes by what was parsed, and shares nothing with what makes policies of it. An answer is True, False, or None where a
caveat lacks what it needs.
"""

from __future__ import annotations

import ipaddress
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from authz_project.importers.ir import (
    Arrow,
    Computed,
    Exclusion,
    Expression,
    Intersection,
    Itself,
    ModelCondition,
    Nothing,
    Tuple,
    Type,
    Union,
    Who,
)
from tests.importers.spicedb_cel import (
    Called,
    Cel,
    FieldOf,
    Identifier,
    ListWritten,
    Literal,
    MapWritten,
    Operation,
    tree_of,
)

Answer = bool | None


def either(answers: Iterable[Answer]) -> Answer:
    found: Answer = False
    for answer in answers:
        if answer:
            return True
        found = None if answer is None else found
    return found


def opposite(answer: Answer) -> Answer:
    return None if answer is None else not answer


def both(answers: Iterable[Answer]) -> Answer:
    return opposite(either(opposite(answer) for answer in answers))


@dataclass
class World:
    types: Mapping[str, Type]
    caveats: Mapping[str, ModelCondition]
    tuples: Iterable[Tuple]

    def __post_init__(self) -> None:
        now = datetime.now(UTC)
        self.by_relation: dict[Who, list[Tuple]] = {}
        for each in self.tuples:
            if self.is_allowed(each) and (each.expiry is None or each.expiry > now):
                self.by_relation.setdefault(Who(each.object.type, each.object.id, each.relation), []).append(each)

    def is_allowed(self, found: Tuple) -> bool:
        """Whether the schema takes it: there, it could not be written otherwise."""
        type_, who = self.types.get(found.object.type), found.subject
        for relation in type_.relations if type_ else ():
            if not relation.is_permission and relation.name == found.relation:
                kinds = {(each.type, each.relation, each.wildcard, each.condition) for each in relation.subjects}
                return (who.type, who.relation, who.is_everybody, found.condition) in kinds
        return False

    def holds(self, asked: Who, subject: Who, context: Mapping[str, object]) -> Answer:
        """Whether the subject is one of `asked`: an object with its relation or permission."""
        return _Question(self, subject, context).holds(asked, ())


@dataclass
class _Question:
    world: World
    subject: Who
    context: Mapping[str, object]

    def holds(self, asked: Who, within: tuple[Who, ...]) -> Answer:
        if asked == self.subject:
            return True
        if asked in within:  # whatever has a proof has one without a circle
            return False
        type_ = self.world.types.get(asked.type)
        relation = {each.name: each for each in type_.relations}.get(asked.relation or "") if type_ else None
        inside = (*within, asked)
        if relation is None:
            return False
        if relation.is_permission:
            return self.meant(relation.expression, asked, inside)
        return either(
            both((self.is_subject(each.subject, inside), self.condition(each)))
            for each in self.world.by_relation.get(asked, ())
        )

    def is_subject(self, named: Who, within: tuple[Who, ...]) -> Answer:
        if named.relation:
            return self.holds(named, within)
        return not self.subject.relation and named.type == self.subject.type and named.id in ("*", self.subject.id)

    def meant(self, term: Expression, asked: Who, within: tuple[Who, ...]) -> Answer:
        match term:
            case Computed(name):
                return self.holds(Who(asked.type, asked.id, name), within)
            case Nothing():
                return False
            case Itself():
                return Who(asked.type, asked.id) == self.subject
            case Union(parts):
                return either([self.meant(part, asked, within) for part in parts])
            case Intersection(parts):
                return both([self.meant(part, asked, within) for part in parts])
            case Exclusion(base, removed):
                return both([self.meant(base, asked, within), opposite(self.meant(removed, asked, within))])
            case Arrow(relation, target, every):
                led = self.world.by_relation.get(Who(asked.type, asked.id, relation), [])
                found = [
                    both((self.holds(Who(each.subject.type, each.subject.id, target), within), self.condition(each)))
                    for each in led
                ]
                return (bool(led) and both(found)) if every else either(found)
        raise NotImplementedError(term)

    def condition(self, found: Tuple) -> Answer:
        if not found.condition:
            return True
        caveat = self.world.caveats[found.condition]
        types = {parameter.name: parameter.type.partition("<")[0] for parameter in caveat.parameters}
        known = {**self.context, **dict(found.values)}
        values = {name: _typed(types[name], value) for name, value in known.items() if name in types}
        return _truth(tree_of(caveat.text), values)


# ---- conditions -----------------------------------------------------------------------------------------------------


class _Unknown(Exception):
    """Something that is needed was not said."""


_COMPARED = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "+": operator.add, "-": operator.sub, "*": operator.mul,
}  # fmt: skip


def _typed(name: str, value: object) -> object:
    if name == "timestamp":
        return datetime.fromisoformat(str(value))
    if name == "ipaddress":
        return ipaddress.ip_address(str(value))
    return value


def _worth(cel: Cel, values: Mapping[str, object]) -> object:
    match cel:
        case Literal(value):
            return value
        case Identifier(name):
            if name not in values:
                raise _Unknown
            return values[name]
        case Operation("&&" | "||" as sign, sides):
            answers = [_truth(side, values) for side in sides]
            return _known(both(answers) if sign == "&&" else either(answers))
        case Operation("!", (side,)):
            return _known(opposite(_truth(side, values)))
        case Operation("?", (chosen, yes, no)):
            return _worth(yes if _worth(chosen, values) else no, values)
        case Operation("in", (one, many)):
            return _worth(one, values) in _worth(many, values)  # type: ignore[operator]
        case Operation("[]", (base, index)):
            return _worth(base, values)[_worth(index, values)]  # type: ignore[index]
        case Operation(sign, (left, right)):
            return _COMPARED[sign](_worth(left, values), _worth(right, values))
        case FieldOf(base, name):
            return _worth(base, values)[name]  # type: ignore[index]
        case ListWritten(elements):
            return [_worth(each, values) for each in elements]
        case MapWritten(entries):
            return {_worth(key, values): _worth(value, values) for key, value in entries}
        case Called("in_cidr", (network,), base) if base is not None:
            return _worth(base, values) in ipaddress.ip_network(str(_worth(network, values)))
        case Called("all" | "exists" as which, (Identifier(name), condition), base) if base is not None:
            found = [_truth(condition, {**values, name: each}) for each in _worth(base, values)]  # type: ignore[attr-defined]
            return _known(both(found) if which == "all" else either(found))
        case Called("timestamp", (text,), None):
            return datetime.fromisoformat(str(_worth(text, values)))
        case Called("startsWith", (start,), base) if base is not None:
            return str(_worth(base, values)).startswith(str(_worth(start, values)))
    raise NotImplementedError(cel)


def _truth(cel: Cel, values: Mapping[str, object]) -> Answer:
    try:
        answer = _worth(cel, values)
    except (_Unknown, KeyError):
        return None
    assert isinstance(answer, bool)
    return answer


def _known(answer: Answer) -> bool:
    if answer is None:
        raise _Unknown
    return answer
