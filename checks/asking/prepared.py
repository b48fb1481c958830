"""Questions, ready to run: checked, taken apart into shape and values, and their rows read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

import orjson

from checks.asking import deadline, run
from checks.asking.framing import IS_ANSWER, UNANSWERED, Ready, compiled_here, ready_of
from checks.asking.framing import Setting as Setting  # for whoever prepares questions
from checks.engine.answers import Row, answers_of
from checks.engine.compile import Compiled, Root, Shape
from checks.engine.errors import UnboundVariable
from checks.engine.rules.clauses import Call, Const, Given, Operand, Other, Slot, Term, Var
from checks.engine.sql.dialects import Dialect
from checks.errors import UnknownPredicate
from facts.accept import Brought, brought
from facts.batches import by_signature
from facts.numbering import Numbering
from facts.wire import Fact
from policy.active import program_of_version
from policy.errors import AuthzError
from policy.rules.program import Program, Signature
from policy.values import STRING

BUILT_IN = ("allow", "has_permission", "has_role", "has_relation")

# ---- questions -----------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """What a variable may be: a type, and the ids that are asked about (None: every id)."""

    type: str
    ids: tuple[str, ...] | None = None

    @property
    def one(self) -> str:
        """The id, where one is asked about."""
        assert self.ids, "asked about one id"
        return self.ids[0]


class Question(NamedTuple):
    """Calls that must hold together, by the names of their variables. Answers have the columns `outs`.

    What it is compiled to is found again by the names, so a name that a caller makes up stays out of them: `names` has
    those for messages, by ours.
    """

    calls: tuple[tuple[str, tuple[str, ...]], ...]
    variables: Mapping[str, Asked]
    outs: tuple[str, ...] = ()
    context: Sequence[Fact] = ()
    names: Mapping[str, str] = MappingProxyType({})

    @property
    def types(self) -> set[str]:
        return {asked.type for asked in self.variables.values()}

    def called(self, name: str) -> str:
        """What the caller calls a variable."""
        return self.names.get(name, name)

    def in_words_of_caller(self, refusal: AuthzError) -> AuthzError:
        return UnboundVariable(self.called(refusal.name)) if isinstance(refusal, UnboundVariable) else refusal


class Page(NamedTuple):
    """The part of a one-column answer to read: after an id, at most so many."""

    limit: int
    after: str | None = None


# ---- one statement with its values ----------------------------------------------------------------------------


class Prepared(NamedTuple):
    """One statement for some questions about the same facts; `start` is the place of the first among all of them."""

    ready: Ready
    slots: dict[str, object]
    start: int
    page: Page | None

    def read(self, rows: list[tuple]) -> tuple[int | None, list[tuple[int, Row]]]:
        """The policy version that the frame's rows tell, and the answers, each with the index of its question."""
        places = self.ready.places
        first = self.start + places[0]
        if not self.ready.width:
            version, truth = rows[0]
            return version, [(first, ())] if truth else []
        version = next(row[0] for row in rows if row[0] != IS_ANSWER)
        found = [row[1:] for row in rows if row[0] == IS_ANSWER]
        if self.ready.is_guarded:
            found = answers_of(found)
        if len(places) > 1:
            return version, [(self.start + places[int(row[0])], row[1:]) for row in found]
        return version, [(first, row) for row in (_page_of(found, self.page) if self.page else found)]


def _page_of(rows: list[Row], page: Page) -> list[Row]:
    """In order, whatever became of it in the frame; and cut here where only here rows are known to be answers."""
    after = page.after
    wild = [row for row in rows if row[0] is None and after is None]
    others = sorted([row for row in rows if row[0] is not None and (after is None or row[0] > after)])
    return [*wild, *others][: page.limit]


def by_ids(row: Row) -> tuple:
    """The order of answers: every value first, then by id."""
    return tuple((text is not None, text or "") for text in row)


def prepared(
    setting: Setting,
    questions: Sequence[Question],
    context: Sequence[Fact] = (),
    page: Page | None = None,
    at_once: int = 1,
) -> list[Prepared]:
    """The statements for the questions, `at_once` at most in each; none for those that nothing can make true.

    The context is what the policy has a use for, as `brought_to` gives it. All that does not depend on values is looked
    into when a statement is compiled, and is remembered with it: most requests ask what others asked before them, about
    other values.
    """
    names, now = _names(setting), int(time.time())
    made = []
    for start in range(0, len(questions), at_once):
        slots: dict[str, object] = {"now": now, "version": setting.version}
        form = form_of(names, questions[start : start + at_once], context, page, slots)
        ready = _ready_of(setting, form)
        if ready.statement is not None:
            slots["mark"] = ready.mark
            if context:
                slots["facts"] = inline_rows(context, ready.numbers.__getitem__)
            made.append(Prepared(ready, slots, start, page))
    return made


class Form(NamedTuple):
    """What the statement depends on: questions, what facts are brought, and which part of the answer is read."""

    outlines: tuple[Outline, ...]
    inline: frozenset[Signature]
    is_paged: bool
    has_after: bool

    @property
    def types(self) -> frozenset[str]:
        asked = (name for outline in self.outlines for name in outline.types)
        return frozenset(asked).union(*(signature.types for signature in self.inline))

    def shape(self, places: Iterable[int]) -> Shape:
        """Of those of the questions that are in these places. All that are asked at once have as many columns."""
        roots = tuple([root_of_outline(self.outlines[place]) for place in places])
        return Shape(roots, len(self.outlines[0].outs), self.inline, True, self.is_paged, self.has_after)


def form_of(
    names: frozenset[str],
    questions: Sequence[Question],
    context: Sequence[Fact],
    page: Page | None,
    slots: dict[str, object],
) -> Form:
    """The questions without their values, which go into the slots."""
    values = Values(names, slots)
    outlines = tuple([outline_of(question, values) for question in questions])
    inline = frozenset(by_signature(context)) if context else _NOTHING
    if page is None:
        return Form(outlines, inline, False, False)
    slots |= {"limit": page.limit, "after": page.after}
    return Form(outlines, inline, True, page.after is not None)


_NOTHING: frozenset[Signature] = frozenset()


# ---- compiled once ---------------------------------------------------------------------------------------------

_compiling = tuple(threading.Lock() for _ in range(16))


class _NotKept(Exception):
    """Raised in place of a result that is not to be remembered."""


def _ready_of(setting: Setting, form: Form) -> Ready:
    dialect = run.dialect()
    try:
        return _ready(setting, form, dialect)
    except _NotKept:
        pass
    return _compiled(setting, form, dialect)


@lru_cache(maxsize=4096)
def _ready(setting: Setting, form: Form, dialect: Dialect) -> Ready:
    # Numbers that this very transaction gave may be taken back; and of types that nobody declared there is no end.
    if run.in_transaction() or not _places(setting.program(form.types), form):
        raise _NotKept
    # After a change of the policy, many ask the same at once: one compiles it, the others wait and find it done.
    with deadline.holding(_compiling[hash((setting, form)) % len(_compiling)]):
        return _compiled_once(setting, form, dialect)


@lru_cache(maxsize=64)
def _compiled_once(setting: Setting, form: Form, dialect: Dialect) -> Ready:
    return _compiled(setting, form, dialect)


def _compiled(setting: Setting, form: Form, dialect: Dialect) -> Ready:
    deadline.check()
    program = setting.program(form.types)
    _check(setting, program, form)
    places = _places(program, form)
    if not places:
        return UNANSWERED
    return ready_of(setting, setting.own(form.types), form.shape(places), places, dialect)


def compiled_question(setting: Setting, question: Question, page: Page | None = None) -> Compiled:
    """What a question is compiled to, for people to read. For its context see `prepared`."""
    form = form_of(_names(setting), (question,), question.context, page, {})
    program = setting.program(form.types)
    _check(setting, program, form)
    numbering = Numbering(setting.environment_id)
    return compiled_here(setting, setting.own(form.types), form.shape((0,)), run.dialect(), numbering)


def inline_rows(facts: Sequence[Fact], number_of: Callable[[Signature], int]) -> str:
    """Facts as the JSON that statements read: their ids, by the numbers of their signatures."""
    return orjson.dumps({str(number_of(signature)): ids for signature, ids in by_signature(facts).items()}).decode()


# ---- what is wrong with a question, and what is known without asking ---------------------------------------------


def brought_to(setting: Setting, context: Sequence[Fact], path: str = "context_facts") -> Brought:
    """The context facts that the policy has a use for: the others change neither answers nor statements."""
    return brought(program_of_version(setting.version), context, path) if context else Brought(context)


def _names(setting: Setting) -> frozenset[str]:
    """Those that the policy tells apart from all other text."""
    return frozenset() if setting.version is None else program_of_version(setting.version).names


def _check(setting: Setting, program: Program, form: Form) -> None:
    if setting.version is not None:
        for outline in form.outlines:
            for predicate, _ in outline.calls:
                check_predicate(program, predicate)


def check_predicate(program: Program, predicate: str) -> None:
    if predicate not in BUILT_IN and predicate not in program.predicates:
        near = get_close_matches(predicate, sorted({*program.predicates, *BUILT_IN}), 1)
        raise UnknownPredicate(predicate, near[0] if near else "")


def _places(program: Program, form: Form) -> tuple[int, ...]:
    """Of the questions that may have an answer: the program knows the types of all that they ask about."""
    known = set(filter(program.knows, form.types))
    return tuple([place for place, outline in enumerate(form.outlines) if known.issuperset(outline.types)])


# ---- shapes ----------------------------------------------------------------------------------------------------------

EVERY, NAME, OTHER, VALUE, SEVERAL, MANY = "every", "name", "other", "value", "several", "many"
FEW = 32  # ids that are looked into one by one: for those, all that an actor can reach would be too much to find
OPERANDS: dict[str, Callable[[str], Operand]] = {NAME: Const, OTHER: Other, VALUE: Slot}


@dataclass
class Values:
    """Takes values into slots, equal ones into the same."""

    names: frozenset[str]  # of the policy
    slots: dict[str, object]
    taken: dict[tuple[str, str], str] = field(default_factory=dict)

    def one(self, type_name: str, text: str) -> Operand:
        kind, place = self.placed(type_name, text)
        return OPERANDS[kind](place)

    def placed(self, type_name: str, text: str) -> tuple[str, str]:
        """A name of the policy is part of the shape; any other value goes into a slot."""
        is_text = type_name == STRING
        if is_text and text in self.names:
            return NAME, text
        slot = self.taken.get((type_name, text))
        if slot is None:
            slot = self.taken[type_name, text] = f"v{len(self.slots)}"
            self.slots[slot] = text
        return OTHER if is_text else VALUE, slot

    def several(self, texts: tuple[str, ...]) -> str:
        slot = f"ids{len(self.slots)}"
        self.slots[slot] = orjson.dumps(texts).decode()
        return slot


class Outline(NamedTuple):
    """A question without its values. Every request makes and hashes one, which is why it is of plain tuples."""

    calls: tuple[tuple[str, tuple[str, ...]], ...]
    variables: tuple[tuple[str, str, str, str], ...]  # name, type, kind, and the name or slot that it is
    outs: tuple[str, ...]

    @property
    def types(self) -> list[str]:
        return [name for _, name, _, _ in self.variables]


def outline_of(question: Question, values: Values) -> Outline:
    calls, asked, outs, _, _ = question
    variables = []
    for name, (type_name, ids) in asked.items():
        if ids is None:
            kind, place = EVERY, ""
        elif len(ids) == 1 and name not in outs:
            kind, place = values.placed(type_name, ids[0])
        else:
            kind, place = SEVERAL if len(ids) <= FEW else MANY, values.several(ids)
        variables.append((name, type_name, kind, place))
    return Outline(calls, tuple(variables), outs)


def root_of(question: Question, values: Values) -> Root:
    """The question without its values, which go into slots."""
    return root_of_outline(outline_of(question, values))


def root_of_outline(outline: Outline) -> Root:
    types = {name: kind for name, kind, _, _ in outline.variables}
    terms: dict[str, Term] = {name: Var(index, name, types[name]) for index, name in enumerate(outline.outs)}
    givens = []
    for name, type_name, kind, place in outline.variables:
        if kind in OPERANDS:
            terms[name] = OPERANDS[kind](place)
            continue
        term = terms.setdefault(name, Var(len(terms) + 50, name, type_name))
        if kind in (SEVERAL, MANY):
            givens.append(Given(term, place, kind == MANY, type_name))
    calls = [
        Call(predicate, tuple([types[name] for name in names]), tuple([terms[name] for name in names]))
        for predicate, names in outline.calls
    ]
    return Root(tuple(calls), tuple(givens))
