"""Questions, their outlines, which are questions without values, and the statements that are prepared for outlines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import orjson

from checks.asking import limits
from checks.engine.compile import EXISTS, AnswerRow, Compiled, Root, Shape, answers_of
from checks.engine.rules.clauses import NOW, Call, Const, Given, Operand, Other, Slot, Term, Var
from checks.engine.sql.bound import NO_TABLES, BoundTables
from checks.engine.sql.render import Window
from checks.engine.sql.rounds import Fetched, Rounds, statements_of
from checks.engine.sql.stored import REVISION
from checks.engine.sql.text import CLOCKS, Dialect, Statement, Text, finished, joined
from checks.errors import UnboundVariable, UnknownPredicate
from facts import wire
from facts.numbering import Marks, Numbered, Numbering
from facts.wire import Fact, by_signature
from policy.active import MOMENT, Scope, Seen, key_check, program_of_version, versions
from policy.core import spans
from policy.core.clock import timeline
from policy.core.memory import K, Recent, V
from policy.errors import AuthzError, MalformedRequest
from policy.language.source import Source
from policy.rules.program import Atom, Program, Rule, Signature, Types
from policy.rules.program import Var as RuleVar
from policy.values import ABSTRACT, STRING, Value

# ---- the open policy ------------------------------------------------------------------------------------------------
# Environments without a policy have an open one: `allow` follows from `has_permission` facts of any types.

AskedPolicy = int | Types  # a version; or, without one, the types that questions mention


class OpenProgram(Program):
    """Accepts every fact and knows every predicate."""

    def accepts(self, predicate: str, types: tuple[str, ...]) -> bool:
        return True


def policy_of(version: int | None, types: Types) -> AskedPolicy:
    """Return the version, or, without one, the open policy for questions that mention these types."""
    return types if version is None else version


def program_of(policy: AskedPolicy) -> Program:
    """Return the program that answers questions. There is always one."""
    return open_program(policy) if isinstance(policy, frozenset) else program_of_version(policy)


@lru_cache(maxsize=256)
def open_program(types: Types) -> OpenProgram:
    """Return the program for questions that mention these types."""
    return OpenProgram(
        source=Source(""),
        types={},
        subtypes={name: frozenset((name,)) for name in types},
        global_roles=(),
        global_permissions=(),
        has_global=False,
        rules=(_default(types, 3), _default(types, 2)),
        helpers=frozenset(),
        accepted={("has_permission", arity): ((types,) * arity,) for arity in (2, 3)},
        tests=(),
        warnings=(),
        digest="",
    )


def _default(types: Types, arity: int) -> Rule:
    variables = tuple(RuleVar(name) for name in ("actor", "action", "resource")[:arity])
    return Rule(Atom("allow", variables), (Atom("has_permission", variables),), dict.fromkeys(variables, types))


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

    @classmethod
    def of(cls, value: Value) -> Asked:
        return cls(value.type, (value.id,))

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


# ---- keys of statements, and caches of what is prepared -----------------------------------------------------------

NO_SIGNATURES: frozenset[Signature] = frozenset()
MOST_STATEMENTS = 8192


class StatementKey(NamedTuple):
    """Cache key of a statement, or of a plan for one: everything that it depends on except values."""

    environment_id: int | None  # facts to read; None: context facts only
    policy: AskedPolicy | None  # rules to use; None: those of an unpublished text
    needs_key: bool | None  # whether to confirm the caller's key; None: confirm nothing
    signatures: int | Marks | None  # whose numbers are compiled in: a snapshot's marks or a session's generation
    dialect: Dialect  # of the database with stored facts
    asked: tuple[Outline | Root, ...]
    width: int  # number of answer columns of each question
    inline: frozenset[Signature] = NO_SIGNATURES  # signatures of the request's context facts
    as_of_signature: int | None = None  # with as_of: the latest signature at that revision; None: now
    window: Window | None = None
    most: int = 0  # maximum number of rows, in any order; 0: no limit
    by_rows: bool = False  # whether the statement takes many rows of values (see `by_rows`)
    tables: Hashable = None  # of the caller, if the caller is to run the statement (see `localsql`)
    bound: BoundTables = NO_TABLES  # of the application that the service is part of

    def places(self, program: Program) -> tuple[int, ...]:
        """Return the positions of the questions whose types the program knows; the others have no answers."""
        asked = enumerate(self.asked)
        return tuple([place for place, each in asked if isinstance(each, Root) or all(map(program.knows, each.types))])

    def shape(self, places: Iterable[int]) -> Shape:
        """Return the questions at these positions in the engine's form."""
        asked = [self.asked[place] for place in places]
        roots = tuple([each if isinstance(each, Root) else each.root for each in asked])
        has_stored = self.environment_id is not None
        is_past = self.as_of_signature is not None
        return Shape(roots, self.width, self.inline, has_stored, self.window, self.most, is_past, self.bound)


class Cache(Recent[K, V]):
    """A bounded cache. If several threads need the same missing key, one computes the value and the others wait."""

    def __init__(self, most: int, weigh: Callable[[K, V], int] | None = None):
        super().__init__(most, weigh)
        self._making = tuple(limits.DeadlineLock() for _ in range(16))

    def made_once(self, key: K, make: Callable[[], V]) -> V:
        """Return the cached value, or compute and cache it. Waiting for another thread ends at the deadline."""
        with self._making[hash(key) % len(self._making)]:
            found = self.get(key)
            if found is None:
                found = make()
                self.store(key, found)
            return found


class ReadsTables(Protocol):
    """What a `PreparedCache` holds."""

    @property
    def reads(self) -> int: ...  # number of tables that its plans read


P = TypeVar("P", bound=ReadsTables)


class PreparedCache(Cache[StatementKey, P]):
    """Caches what is prepared, and reports for each request what was found or compiled."""

    def found(self, key: StatementKey) -> P | None:
        """Return what is cached."""
        found = self.get(key)
        if found is not None and spans.is_on:
            spans.add(("found", 0.0, 0.0, {"key": key}))
        return found

    def made(self, key: StatementKey, make: Callable[[StatementKey], P], keeps: bool = True) -> P:
        """Compile it, and cache it if it `keeps`. After a policy change, many threads miss a key; one compiles it."""
        limits.check()

        def compiled_now() -> P:
            with spans.noted("compile", key=key):
                return make(key)

        return self.made_once(key, compiled_now) if keeps else compiled_now()


_shared: list[PreparedCache[Any]] = []


def shared_cache(most: int) -> PreparedCache[Any]:
    """Return a cache for all sessions by published policies."""
    cache: PreparedCache[Any] = PreparedCache(most)
    drops_old_versions(cache)
    _shared.append(cache)
    return cache


def drops_old_versions(cache: Cache[StatementKey, Any]) -> None:
    """Drop what was made for a policy version once that is old, and everything after a failover."""
    versions.forgets(lambda version: cache.drop_all(lambda key: key.policy == version))
    timeline.forgets(cache.clear)


def tables_read(key: StatementKey) -> int | None:
    """Return how many tables a statement reads; None if it is no longer cached."""
    return next((found.reads for cache in _shared if (found := cache.get(key)) is not None), None)


# ---- confirmation -------------------------------------------------------------------------------------------------
# A statement confirms, in the snapshot in which it reads the facts: that the caller's key is valid and may read; that
# the policy version it was compiled for is active; and that the environment's signatures are those it knows. With the
# answer come the active version, the moment (a number: while it is the same, so are all answers) and the offset, which
# is the revision of the facts.
#
#     SELECT <version>, CASE WHEN <mine> THEN (<truth>) END, <moment>, <offset> FROM <gate>      -- yes or no
#     SELECT <version>, <moment> || ':' || <offset>, NULL FROM <gate>                            -- rows
#         UNION ALL SELECT -1, x.* FROM (<rows>) x WHERE EXISTS (<gate and mine>)
#     SELECT <version>, <moment>, <offset> FROM <gate>                                           -- confirm only
#
# <gate> is one row if the key is valid, else none. <mine> is true if the active version is the statement's own. As of a
# past revision, the policy is that revision's; <version> is the statement's own if the revision is still available, and
# otherwise `UNKNOWN_REVISION`.

IS_ANSWER, NEW_SIGNATURE, UNKNOWN_REVISION = -1, -2, -3  # in place of a policy version
MOVED = "authz: the policy changed while a query was prepared; run it again "
_OFFSET = 'e."offset"'
# For each result, SQLite's driver reads the column names and looks up a converter for the declared column type. So
# names are short, and a unary `+` turns a column into an expression, which has no declared type.
_NUMBERS = f"{MOMENT} AS m, +{_OFFSET} AS o"


class SnapshotState(NamedTuple):
    """What a statement's snapshot contained: the active policy version, the moment and the offset."""

    version: int | None
    moment: int
    offset: int = 0

    @property
    def seen(self) -> Seen:
        """Return the environment's position in this snapshot."""
        return Seen(self.offset, self.moment)


@lru_cache(maxsize=10_000)
def state_statement(environment_id: int, needs_key: bool, dialect: Dialect) -> Statement:
    """Return the statement that only confirms. With `needs_key`, it has the slot `key`, and no row for a bad key."""
    gate = _gate(environment_id, needs_key, dialect)
    return finished((f"SELECT +e.policy_version_id AS v, {_NUMBERS} FROM ", *gate), dialect)


def state_and_rows(rows: list[tuple[Any, ...]]) -> tuple[SnapshotState, list[tuple[Any, ...]]]:
    """Split the rows that `Confirmation.of_rows` selects into the state and the answer rows."""
    version, numbers, *_ = next(row for row in rows if row[0] != IS_ANSWER)
    moment, offset = map(int, numbers.split(":"))
    return SnapshotState(version, moment, offset), [row[1:] for row in rows if row[0] == IS_ANSWER]


class Confirmation(NamedTuple):
    environment_id: int
    needs_key: bool
    watches_signatures: bool  # whether facts of new signatures could change the answer
    ends_mark: int
    dialect: Dialect
    is_past: bool = False

    def of_truth(self, truth: Text) -> Text:
        """Select one row if the key is valid: the state, and the truth, or NULL if the version is another one."""
        value: Text = ("(", *truth, ")")
        if self.is_past and truth[0] == EXISTS:  # less around it: it may nest as deep as without as_of
            value = ("EXISTS (", *truth[1:-1], ")")
        mine: Text = ("CASE WHEN ", *self._mine, " THEN ", *value, " END")
        return ("SELECT ", *self._version, " AS v, ", *mine, f" AS t, {_NUMBERS} FROM ", *self._gate)

    def of_rows(self, rows: Text, columns: int) -> Text:
        """Select a row with the state if the key is valid, then the answer rows if the version is this statement's.

        The moment is cast to text because the first answer column is text, and PostgreSQL requires one type per column.
        """
        numbers = f", CAST({MOMENT} AS text) || ':' || {_OFFSET}{', NULL' * (columns - 1)} FROM "
        first: Text = ("SELECT ", *self._version, numbers, *self._gate)
        here: Text = ("EXISTS (SELECT 1 FROM ", *self._gate, " AND ", *self._mine, ")")
        return (*first, f" UNION ALL SELECT {IS_ANSWER}, x.* FROM (", *rows, ") x WHERE ", *here)

    def checked(self, truth: Text) -> Text:
        """Return the truth as a condition of another statement, which fails if the policy is another one by then."""
        mine = self.dialect.same_number(self._version, (Slot("version"),))
        failure = self.dialect.failing(MOVED, "e.id")
        checked: Text = ("(SELECT CASE WHEN ", *mine, f" THEN 1 = 1 ELSE {failure} END FROM ", *self._gate, ")")
        return ("(", *checked, " AND ", *truth, ")")

    @property
    def _version(self) -> Text:
        """Return SQL for the policy version, or for `NEW_SIGNATURE` if the signatures have changed since then."""
        moved: list[Text] = [] if self.is_past else [(f"e.ends_mark <> {int(self.ends_mark)}",)]
        if self.watches_signatures:
            moved.append(("e.signature_mark <> ", *self.dialect.number((Slot("mark"),))))
        version: Text = ("e.policy_version_id",)
        if self.is_past:
            own = self.dialect.number((Slot("version"),))
            version = ("CASE WHEN ", *self._is_known, " THEN ", *own, f" ELSE {UNKNOWN_REVISION} END")
        if not moved:
            return version
        return ("CASE WHEN ", *joined(" OR ", moved), f" THEN {NEW_SIGNATURE} ELSE ", *version, " END")

    @property
    def _mine(self) -> Text:
        if self.is_past:
            return self._is_known
        return self.dialect.same_number(("e.policy_version_id",), (Slot("version"),))

    @property
    def _is_known(self) -> Text:
        return (*self.dialect.number((REVISION,)), f" BETWEEN e.horizon AND {_OFFSET}")

    @property
    def _gate(self) -> Text:
        return _gate(self.environment_id, self.needs_key, self.dialect)


def _gate(environment_id: int, needs_key: bool, dialect: Dialect) -> Text:
    # Check the environment too: the statement reads this one's facts, but the key may have been moved to another.
    here = f"e.id = {int(environment_id)}"
    if not needs_key:
        return (f"authz_environment e WHERE {here}",)
    check = key_check()
    after = check.after(dialect.is_to_come(check.expires_at))
    return (check.before, Slot("key"), f"{after} AND {check.scopes[Scope.READ]} AND {here}")


# ---- prepared statements ------------------------------------------------------------------------------------------

# The state, and the answers, each with its question's position.
StatementResult = tuple[SnapshotState, list[tuple[int, AnswerRow]]]


class Ready(NamedTuple):
    """A statement with its values, and the function that reads its rows."""

    statement: Statement
    rounds: tuple[Rounds, ...]
    slots: dict[str, object]
    read: Callable[[list[Fetched]], StatementResult]
    is_timeless: bool
    is_doubtful: bool = False  # whether its questions may have words that the policy does not have


class PreparedStatement(NamedTuple):
    """A statement and how to read its rows. `statement` is None if nothing can be true, whatever the facts."""

    statement: Statement | None
    rounds: tuple[Rounds, ...] = ()
    width: int = 0
    is_guarded: bool = False
    places: tuple[int, ...] = ()  # positions of the questions it answers, among those of its key
    numbers: Mapping[Signature, int] = {}  # of the signatures of the request's context facts
    marks: Marks = Marks()  # of the environment's signatures when it was compiled
    is_timeless: bool = True  # whether the answer is independent of the clock
    reads: int = 0  # number of tables that its plans read
    is_doubtful: bool = False  # whether its questions may have words that the policy does not have

    @classmethod
    def of(
        cls, made: Compiled, places: tuple[int, ...], numbers: Mapping[Signature, int], marks: Marks
    ) -> PreparedStatement:
        """Keep what is needed of a compiled query; its plans are dropped."""
        every = [*([made.statement] if made.statement else []), *statements_of(made.rounds)]
        is_timeless = not any(map(reads_clock, every))
        reads = sum(root.plan.weight for root in made.roots)
        width, guarded = made.shape.width, made.is_guarded
        return cls(made.statement, made.rounds, width, guarded, places, numbers, marks, is_timeless, reads)

    def answers(self, rows: list[Fetched]) -> Sequence[AnswerRow]:
        """Return the answers to one question from the rows of a statement that confirms nothing."""
        if not self.width:
            return [()] if rows[0][0] else []
        return answers_of(rows) if self.is_guarded else rows

    def confirmed(self, start: int, page: Page | None, rows: list[Fetched]) -> StatementResult:
        """Read the rows of a confirming statement. `start` is the position of the first question of its key."""
        places = self.places
        first = start + places[0]
        if not self.width:
            version, truth, moment, offset = rows[0]
            return SnapshotState(version, moment, offset), [(first, ())] if truth else []
        state, found = state_and_rows(rows)
        if self.is_guarded:
            found = answers_of(found)
        if len(places) > 1:
            return state, [(start + places[int(row[0])], row[1:]) for row in found]
        return state, [(first, row) for row in (page.of(found) if page else found)]


UNANSWERED = PreparedStatement(None)


def reads_clock(statement: Statement) -> bool:
    """Return whether the statement reads the time, so that its result may change though no data does."""
    return NOW in statement.parameters or any(clock in statement.sql for clock in CLOCKS)


Statements = PreparedCache[PreparedStatement]


def numbering_of(known: Numbered, inline: frozenset[Signature]) -> Numbering:
    """Return the numbers for a statement. Those of the context come first, so that all statements agree on them."""
    numbering = Numbering(known)
    for signature in sorted(inline, key=str):
        numbering.of(signature)
    return numbering
