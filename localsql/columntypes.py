"""The Polar type of every column that a plan mentions, as far as it can be told.

It decides how a column is compared, never what is compared: a column without a type is compared as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from checks.engine.plan.plan import (
    Answers,
    Branch,
    Candidates,
    Fact,
    Goals,
    Holds,
    Ids,
    Net,
    Relation,
    Source,
    State,
    Tagged,
)
from checks.engine.rules.clauses import Call, Col, Key, Literal, Neg, Scan, Term
from localsql.relations import Domain


@dataclass(frozen=True, slots=True)
class Place:
    """A source in the net that reads it; of goals and answers, those with a tag."""

    source: Source
    net: Net
    tag: int | None


@dataclass
class ColumnTypes:
    slots: Mapping[str, str]  # the types of what is given with the question
    places: dict[int, Place] = field(default_factory=dict)
    known: dict[Col, str | None] = field(default_factory=dict)

    def add(self, net: Net) -> None:
        """Note the sources of the net and of all that it reads."""
        for branch in net.branches():
            self.add_branch(net, branch)

    def add_branch(self, net: Net, branch: Branch) -> None:
        tags = {each.source: each.tags[0] for each in branch.conditions if isinstance(each, Tagged)}
        for source in branch.sources:
            if source.number not in self.places:
                self.places[source.number] = Place(source, net, tags.get(source.number))
                if isinstance(source, Relation):
                    self.add(source.net)
        for condition in branch.conditions:
            if isinstance(condition, Holds):
                self.add(condition.net)

    def of(self, term: Term) -> str | None:
        if not isinstance(term, Col) or term.source not in self.places:
            return None
        if term not in self.known:
            self.known[term] = None  # while it is being found out
            self.known[term] = self._of(self.places[term.source], term.name)
        return self.known[term]

    def _of(self, place: Place, name: str) -> str | None:
        index = int(name[1:]) if name != "v" else 0
        match place.source, place.tag:
            case Fact(signature=signature), _:
                return signature.types[index] if index < len(signature.types) else None
            case Ids(slot=slot), _:
                return self.slots.get(slot)
            case Domain(type=name), _:
                return name
            case Candidates(places=places), _:
                return places[0].signature.types[places[0].index] if places else None
            case Relation(net=net), _:
                return self._first(end.outs[index] for end in net.exits)
            case Goals(), int(tag):
                return self._key(place.net, tag, index)
            case Answers(), int(tag) if name[0] == "c":
                return self._key(place.net, place.net.tags[tag][0], index)
            case Answers(), int(tag):
                return self.answer(place.net, tag, index)
        return None

    def key(self, net: Net, state: State, index: int) -> str | None:
        return self._key(net, net.states.index(state), index)

    def answer(self, net: Net, tag: int, index: int) -> str | None:
        return self._first(arm.exit.outs[index] for arm in net.answers if arm.tag == tag)

    def _key(self, net: Net, number: int, index: int) -> str | None:
        state = net.states[number]
        for literal in (state.call, *state.rest):
            found = _type_in(literal, Key(index))
            if found is not None:
                return found
        jumps = (jump for jump in (*net.seeds, *net.moves) if jump.state == state)
        return self._first(jump.keys[index] for jump in jumps)

    def _first(self, terms: Iterable[Term]) -> str | None:
        return next((found for term in terms if (found := self.of(term)) is not None), None)


def _type_in(literal: Literal, key: Key) -> str | None:
    match literal:
        case Neg(call):
            return _type_in(call, key)
        case Call(types=types, args=args):
            return next((name for name, arg in zip(types, args) if arg == key), None)
        case Scan(signature, args):
            return next((name for name, arg in zip(signature.types, args) if arg == key), None)
    return None
