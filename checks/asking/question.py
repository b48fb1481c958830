"""Questions, and their outlines, which are questions without values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import NamedTuple

import orjson

from checks.asking.open_policy import OpenProgram
from checks.engine.answers import AnswerRow
from checks.engine.compile import Root
from checks.engine.errors import UnboundVariable
from checks.engine.rules.clauses import Call, Const, Given, Operand, Other, Slot, Term, Var
from checks.engine.sql.render import Window
from checks.errors import UnknownPredicate
from facts import wire
from facts.wire import Fact, by_signature
from policy.errors import AuthzError, MalformedRequest
from policy.rules.program import Program, Signature
from policy.values import ABSTRACT, STRING

# ---- question -----------------------------------------------------------------------------------------------------
# A question is what a request asks; its outline is the question without its values. Questions with the same outline
# share a statement.
#
#     may User:ann read Doc:d    ->    the outline  may User:v0 "read" Doc:v1    and the values  v0 = ann, v1 = d
#
# "read" stays in the outline if the policy mentions that name, since names decide which rules apply.

BUILT_IN = ("allow", "has_permission", "has_role", "has_relation")


class Asked(NamedTuple):
    """The domain of a variable: a type, and the ids to consider (None: all ids)."""

    type: str
    ids: tuple[str, ...] | None = None

    @property
    def one(self) -> str:
        """Return the only id."""
        assert self.ids, "asked about one id"
        return self.ids[0]


class Question(NamedTuple):
    """A conjunction of calls and the domains of its variables. Answers have the columns `outs`.

    Questions share a statement only if their variables have the same names. If callers choose the names, variables are
    named by position instead, and `names` maps those to the caller's names, for messages.
    """

    calls: tuple[tuple[str, tuple[str, ...]], ...]
    variables: Mapping[str, Asked]
    outs: tuple[str, ...] = ()
    context: Sequence[Fact] = ()
    names: Mapping[str, str] = MappingProxyType({})

    @property
    def types(self) -> set[str]:
        return {asked.type for asked in self.variables.values()}

    @property
    def mentioned(self) -> frozenset[str]:
        """Return the types of its variables and of its context."""
        return frozenset(self.types).union(*(signature.types for signature in by_signature(self.context)))

    def called(self, name: str) -> str:
        """Return the caller's name of a variable."""
        return self.names.get(name, name)

    def in_words_of_caller(self, refusal: AuthzError) -> AuthzError:
        """Return the error, with the caller's name of the variable if it mentions one."""
        return UnboundVariable(self.called(refusal.name)) if isinstance(refusal, UnboundVariable) else refusal


SMALLEST = 10_000  # default and minimum page size


class Page(NamedTuple):
    """A part of a one-column answer: at most `limit` ids, the first after an id or the last before one.

    With a text, only ids that contain it count, and the row that stands for every value.
    """

    limit: int
    after: str | None = None
    before: str | None = None
    text: str = ""

    @property
    def window(self) -> Window:
        return Window(self.after is not None, self.before is not None, bool(self.text))

    @property
    def slots(self) -> dict[str, object]:
        return {"limit": self.limit, "after": self.after, "before": self.before, "contained": self.text}

    def of(self, rows: Collection[AnswerRow]) -> list[AnswerRow]:
        """Return the rows that are on the page, sorted."""
        _, after, before, part = self
        named = sorted([row for row in rows if row[0] is not None and (after is None or row[0] > after)])
        if part:
            named = [row for row in named if part in str(row[0])]
        if before is not None:
            return [row for row in named if str(row[0]) < before][-self.limit :]
        wild = [row for row in rows if row[0] is None and after is None]
        return [*wild, *named][: self.limit]


def by_ids(row: AnswerRow) -> tuple:
    """Return the sort key of an answer: None, which stands for every value, precedes all ids."""
    return tuple((text is not None, text or "") for text in row)


def is_known(program: Program, predicate: str) -> bool:
    """Return whether questions may use the predicate."""
    return predicate in BUILT_IN or predicate in program.predicates or isinstance(program, OpenProgram)


def check_predicate(program: Program, predicate: str) -> None:
    """Raise `UnknownPredicate` if the policy does not have the predicate."""
    if is_known(program, predicate):
        return
    near = get_close_matches(predicate, sorted({*program.predicates, *BUILT_IN}), 1)
    raise UnknownPredicate(predicate, near[0] if near else "")


# ---- values -------------------------------------------------------------------------------------------------------

EVERY, NAME, OTHER, VALUE, SEVERAL, MANY = "every", "name", "other", "value", "several", "many"
FEW = 32  # at most so many ids are checked one by one, which is faster than finding all that an actor can reach
OPERANDS: dict[str, Callable[[str], Operand]] = {NAME: Const, OTHER: Other, VALUE: Slot}


@dataclass(slots=True)
class Values:
    """Assigns values to slots, equal ones of a type to the same slot, and returns the operand for each."""

    names: frozenset[str]  # of the policy
    slots: dict[str, object]
    taken: dict[tuple[str, str], str] = field(default_factory=dict)

    def one(self, type_name: str, text: str) -> Operand:
        """Return the operand for the value in the engine's question."""
        if type_name != STRING:
            return Slot(self.slot(type_name, text))
        return Const(text) if text in self.names else Other(self.slot(type_name, text))

    def slot(self, type_name: str, text: str) -> str:
        """Return the value's slot, assigning one if it has none."""
        value = type_name, text
        slot = self.taken.get(value)
        if slot is None:
            slot = self.taken[value] = f"v{len(self.slots)}"
            self.slots[slot] = text
        return slot

    def several(self, texts: tuple[str, ...]) -> str:
        """Store a list of ids, as JSON, in a new slot, and return the slot."""
        slot = f"ids{len(self.slots)}"
        self.slots[slot] = orjson.dumps(texts).decode()
        return slot


def inline_rows(facts: Sequence[Fact], number_of: Callable[[Signature], int]) -> str:
    """Return facts as the JSON that statements read: lists of ids, by signature number."""
    return orjson.dumps({str(number_of(signature)): ids for signature, ids in by_signature(facts).items()}).decode()


# ---- without values -----------------------------------------------------------------------------------------------


class Outline(NamedTuple):
    """A question without its values. Made and hashed for each request, so it consists of plain tuples."""

    calls: tuple[tuple[str, tuple[str, ...]], ...]
    variables: tuple[tuple[str, str, str, str], ...]  # name, type, kind, and the text or slot of its value
    outs: tuple[str, ...]

    @property
    def types(self) -> list[str]:
        return [name for _, name, _, _ in self.variables]

    @property
    def out_types(self) -> tuple[str, ...]:
        """Return the types of the answer columns."""
        types = {name: type_name for name, type_name, _, _ in self.variables}
        return tuple([types[name] for name in self.outs])

    @property
    def root(self) -> Root:
        """Return the question in the engine's form."""
        types = {name: type_name for name, type_name, _, _ in self.variables}
        terms: dict[str, Term] = {name: Var(index, name, types[name]) for index, name in enumerate(self.outs)}
        givens = []
        for name, type_name, kind, place in self.variables:
            if kind in OPERANDS:
                terms[name] = OPERANDS[kind](place)
                continue
            term = terms.setdefault(name, Var(len(terms) + 50, name, type_name))
            if kind in (SEVERAL, MANY):
                givens.append(Given(term, place, kind == MANY, type_name))
        calls = [
            Call(predicate, tuple([types[name] for name in names]), tuple([terms[name] for name in names]))
            for predicate, names in self.calls
        ]
        return Root(tuple(calls), tuple(givens))


def outline_of(question: Question, values: Values) -> Outline:
    """Return the question without its values, which are stored in slots."""
    calls, asked, outs, _, _ = question
    variables = []
    for name, (type_name, ids) in asked.items():
        if ids is None:
            kind, place = EVERY, ""
        elif len(ids) != 1 or name in outs:
            kind, place = SEVERAL if len(ids) <= FEW else MANY, values.several(ids)
        elif type_name != STRING:
            kind, place = VALUE, values.slot(type_name, ids[0])
        elif ids[0] in values.names:
            kind, place = NAME, ids[0]
        else:
            kind, place = OTHER, values.slot(type_name, ids[0])
        variables.append((name, type_name, kind, place))
    return Outline(calls, tuple(variables), outs)


# ---- query --------------------------------------------------------------------------------------------------------
# Builds questions: about `allow`, about any one predicate, and for queries of API version 2, which are read from JSON.

NamedCall = tuple[str, tuple[str, ...]]  # a predicate and the names of its variables
TypedId = tuple[str, str | None]  # None: every id of the type
Check = tuple[Asked, Asked, Asked]  # an actor, an action, a resource
MAX_CALLS = 50
MAX_VARIABLES = 20  # of one call


def allow(
    actor: Asked, action: Asked, resource: Asked, outs: tuple[str, ...] = (), context: Sequence[Fact] = ()
) -> Question:
    """Return the question whether `actor` may do `action` on `resource`; `outs` names the columns of its answers."""
    variables = {"actor": actor, "action": action, "resource": resource}
    return Question((("allow", ("actor", "action", "resource")),), variables, outs, context)


def question_about(
    predicate: str, asked: Sequence[Asked], outs: Iterable[int] = (), context: Sequence[Fact] = ()
) -> Question:
    """Return a question of one call, with variables `argument0`, …; `outs` are the positions of the answer columns."""
    names = tuple([f"argument{place}" for place in range(len(asked))])
    return Question(((predicate, names),), dict(zip(names, asked)), tuple([names[place] for place in outs]), context)


# ---- decoding ------------------------------------------------------------------------------------------------


def call_from_json(raw: object, path: str) -> NamedCall:
    if not isinstance(raw, list) or len(raw) != 2:
        raise MalformedRequest(path, "must be an array of two elements, a predicate and its variables")
    predicate, variables = raw
    if not isinstance(variables, list):
        raise MalformedRequest(f"{path}[1]", "must be an array of variables")
    if len(variables) > MAX_VARIABLES:
        raise MalformedRequest(f"{path}[1]", f"must have at most {MAX_VARIABLES} elements")
    names = [wire.new_name_from_json(name, f"{path}[1][{index}]") for index, name in enumerate(variables)]
    return wire.name_from_json(predicate, f"{path}[0]"), tuple(names)


def calls_from_json(raw: object, path: str) -> tuple[NamedCall, ...]:
    if not isinstance(raw, list):
        raise MalformedRequest(path, "must be an array of calls")
    if len(raw) > MAX_CALLS:
        raise MalformedRequest(path, f"must have at most {MAX_CALLS} elements")
    return tuple([call_from_json(call, f"{path}[{index}]") for index, call in enumerate(raw)])


def constraints_from_json(raw: object, path: str) -> dict[str, object]:
    """Return the object as sent. Constraints of variables in the query are decoded later, all others are ignored."""
    if not isinstance(raw, dict):
        raise MalformedRequest(path, "must be an object from variables to types and ids")
    return raw


def asked_from_json(constraints: dict[str, object], name: str) -> Asked:
    path = f"constraints.{name}"
    if name not in constraints:
        raise MalformedRequest("constraints", f"the variable `{name}` has no constraint; add one with its type")
    raw = constraints[name]
    if not isinstance(raw, dict):
        raise MalformedRequest(path, 'must be an object with "type" and "ids"')
    type_name = wire.name_from_json(raw.get("type"), f"{path}.type")
    if type_name in ABSTRACT:
        raise MalformedRequest(f"{path}.type", f"`{type_name}` is not a type of values; use a declared type")
    ids = raw.get("ids")
    if ids is None:
        return Asked(type_name)
    if not isinstance(ids, list):
        raise MalformedRequest(f"{path}.ids", "must be an array of ids or null")
    texts = [wire.id_from_json(type_name, text, f"{path}.ids[{index}]") for index, text in enumerate(ids)]
    return Asked(type_name, tuple(dict.fromkeys(texts)))


# ---- the question and its answer -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Query:
    """A question with variables in order of appearance; those with one given id are no answer columns.

    Variables are renamed by position, `?0`, `?1`, …: clients make up new names for each query, and questions share a
    statement only if their variables have the same names.
    """

    question: Question

    @classmethod
    def of(cls, calls: tuple[NamedCall, ...], constraints: dict[str, object], context: tuple[Fact, ...]) -> Query:
        names = dict.fromkeys(name for _, variables in calls for name in variables)
        ours = {name: f"?{place}" for place, name in enumerate(names)}
        variables = {ours[name]: asked_from_json(constraints, name) for name in names}
        outs = tuple([name for name, asked in variables.items() if asked.ids is None or len(asked.ids) != 1])
        placed = tuple([(predicate, tuple([ours[name] for name in args])) for predicate, args in calls])
        return cls(Question(placed, variables, outs, context, dict(zip(variables, names))))

    def asking_for(self, names: Iterable[str]) -> Question:
        """Return the question with these variables as answer columns, by the caller's names."""
        ours = {name: our for our, name in self.question.names.items()}
        for name in names:
            if name not in ours:
                raise MalformedRequest("mode", f"the query has no variable `{name}`")
        return self.question._replace(outs=tuple([ours[name] for name in names]))

    def results(self, rows: Iterable[AnswerRow]) -> list[dict[str, str | None]]:
        """Return one object per solution, with an id for each variable in order of appearance; null is every value."""
        outs, variables = self.question.outs, self.question.variables
        fixed = {name: asked.one for name, asked in variables.items() if name not in outs}
        solutions = ({**fixed, **dict(zip(outs, row))} for row in rows)
        results = [{self.question.called(name): solution[name] for name in variables} for solution in solutions]
        return sorted(results, key=lambda result: by_ids(tuple(result.values())))
