"""Questions, ready to run: checked, taken apart into shape and values, and their rows read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from typing import NamedTuple

import orjson

from checks import run
from checks.engine.answering import Row, answers_of
from checks.engine.clauses import Call, Const, Given, Operand, Other, Slot, Term, Var
from checks.engine.dialects import Dialect
from checks.engine.question import Compiled, Root, Shape
from checks.errors import UnknownPredicate
from checks.framing import IS_ANSWER, Numbering, Ready, Setting, compiled_here, ready_of
from checks.open_policy import open_program
from facts.accept import check_facts
from facts.bundles import by_signature, rows_of
from facts.wire import Fact
from policy.active import program_of_version
from policy.rules.program import Program, Signature
from policy.values import STRING

BUILT_IN = ("allow", "has_permission", "has_role", "has_relation")

# ---- questions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """What a variable may be: a type, and the ids that are asked about (None: every id)."""

    type: str
    ids: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """Calls that must hold together, by the names of their variables. Answers have the columns `outs`."""

    calls: tuple[tuple[str, tuple[str, ...]], ...]
    variables: Mapping[str, Asked]
    outs: tuple[str, ...] = ()
    context: Sequence[Fact] = ()

    @property
    def types(self) -> set[str]:
        return {asked.type for asked in self.variables.values()}


@dataclass(frozen=True, slots=True)
class Page:
    """The part of a one-column answer to read: after an id, at most so many."""

    limit: int
    after: str | None = None


# ---- one statement with its values ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prepared:
    """One statement for some questions about the same facts; `indexes` are their places among all that are asked."""

    ready: Ready
    slots: dict[str, object]
    indexes: tuple[int, ...]
    page: Page | None

    def read(self, rows: list[tuple]) -> tuple[int | None, list[tuple[int, Row]]]:
        """The policy version that the frame's rows tell, and the answers, each with the index of its question."""
        if not self.ready.width:
            version, truth = rows[0]
            return version, [(self.indexes[0], ())] if truth else []
        version = next(row[0] for row in rows if row[0] != IS_ANSWER)
        found = [row[1:] for row in rows if row[0] == IS_ANSWER]
        if self.ready.is_guarded:
            found = answers_of(found)
        if len(self.indexes) > 1:
            return version, [(self.indexes[int(row[0])], row[1:]) for row in found]
        return version, [(self.indexes[0], row) for row in (self._page(found) if self.page else found)]

    def _page(self, rows: list[Row]) -> list[Row]:
        """In order, whatever became of it in the frame; and cut here where only here rows are known to be answers."""
        after = self.page.after
        wild = [row for row in rows if row[0] is None and after is None]
        others = sorted([row for row in rows if row[0] is not None and (after is None or row[0] > after)])
        return [*wild, *others][: self.page.limit]


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
    """The statements for the questions, `at_once` at most in each. Questions of unknown types need none."""
    program = program_of_version(setting.version) or open_program(_types_of(questions, context))
    _check(setting, program, questions, context)
    kept = [index for index, question in enumerate(questions) if _knows(program, question)]
    groups = [kept[start : start + at_once] for start in range(0, len(kept), at_once)]
    now = int(time.time())
    made = [_prepared(setting, program, questions, group, context, page, {"now": now}) for group in groups]
    return [each for each in made if each.ready.statement is not None]


def _prepared(
    setting: Setting,
    program: Program,
    questions: Sequence[Question],
    group: list[int],
    context: Sequence[Fact],
    page: Page | None,
    slots: dict[str, object],
) -> Prepared:
    form = form_of(program, [questions[index] for index in group], context, page, slots)
    # Numbers that this very transaction gave may be taken back, and then mean something else: nothing is remembered.
    made = _compiled if run.in_transaction() else _ready
    ready = made(setting, _own_types(setting, program), form, run.dialect())
    slots["mark"] = ready.mark
    if context:
        slots["facts"] = inline_rows(context, ready.numbers.__getitem__)
    return Prepared(ready, slots, tuple(group), page)


class Form(NamedTuple):
    """What the statement depends on: questions, what facts are brought, and which part of the answer is read."""

    outlines: tuple[Outline, ...]
    inline: frozenset[Signature]
    is_paged: bool
    has_after: bool

    @property
    def shape(self) -> Shape:
        roots = tuple([root_of_outline(outline) for outline in self.outlines])
        return Shape(roots, len(self.outlines[0].outs), self.inline, True, self.is_paged, self.has_after)


def form_of(
    program: Program,
    questions: Sequence[Question],
    context: Sequence[Fact],
    page: Page | None,
    slots: dict[str, object],
) -> Form:
    """The questions without their values, which go into the slots."""
    values = Values(program, slots)
    outlines = tuple([outline_of(question, values) for question in questions])
    inline = frozenset(by_signature(context)) if context else _NOTHING
    if page is not None:
        slots |= {"limit": page.limit, "after": page.after}
    return Form(outlines, inline, page is not None, page is not None and page.after is not None)


_NOTHING: frozenset[Signature] = frozenset()


_compiling = tuple(threading.Lock() for _ in range(16))


@lru_cache(maxsize=4096)
def _ready(setting: Setting, types: frozenset[str], form: Form, dialect: Dialect) -> Ready:
    # After a change of the policy, many ask the same at once: one compiles it, the others wait and find it done.
    with _compiling[hash((setting, form)) % len(_compiling)]:
        return _compiled_once(setting, types, form, dialect)


@lru_cache(maxsize=64)
def _compiled_once(setting: Setting, types: frozenset[str], form: Form, dialect: Dialect) -> Ready:
    return _compiled(setting, types, form, dialect)


def _compiled(setting: Setting, types: frozenset[str], form: Form, dialect: Dialect) -> Ready:
    return ready_of(setting, types, form.shape, dialect)


def _own_types(setting: Setting, program: Program) -> frozenset[str]:
    """What tells programs without a policy apart."""
    return frozenset() if setting.version is not None else frozenset(program.subtypes)


def inline_rows(facts: Sequence[Fact], number_of: Callable[[Signature], int]) -> str:
    """Facts as the JSON that statements read: [signature number, a0 … a4] each."""
    return orjson.dumps(rows_of(facts, number_of)).decode()


def compiled_question(setting: Setting, question: Question, page: Page | None = None) -> Compiled:
    """What a question is compiled to, for people to read."""
    program = setting.program(_types_of((question,), question.context))
    _check(setting, program, (question,), question.context)
    shape = form_of(program, (question,), question.context, page, {}).shape
    return compiled_here(setting, _own_types(setting, program), shape, run.dialect(), Numbering(setting.environment_id))


# ---- what is wrong with a question, and what is known without asking ---------------------------------------------


def _check(setting: Setting, program: Program, questions: Sequence[Question], context: Sequence[Fact]) -> None:
    if setting.version is None:
        return
    check_facts(program, context, "context_facts")
    for question in questions:
        for predicate, _ in question.calls:
            check_predicate(program, predicate)


def check_predicate(program: Program, predicate: str) -> None:
    if predicate not in BUILT_IN and predicate not in program.predicates:
        near = get_close_matches(predicate, sorted({*program.predicates, *BUILT_IN}), 1)
        raise UnknownPredicate(predicate, near[0] if near else "")


def _knows(program: Program, question: Question) -> bool:
    known = program.subtypes
    return all(asked.type in known.get(asked.type, ()) for asked in question.variables.values())


def _types_of(questions: Sequence[Question], context: Sequence[Fact]) -> frozenset[str]:
    types = frozenset(name for question in questions for name in question.types)
    return types.union(*(signature.types for signature in by_signature(context)))


# ---- shapes ----------------------------------------------------------------------------------------------------------

EVERY, NAME, OTHER, VALUE, SEVERAL, MANY = "every", "name", "other", "value", "several", "many"
FEW = 32  # ids that are looked into one by one: for those, all that an actor can reach would be too much to find
OPERANDS: dict[str, type[Operand]] = {NAME: Const, OTHER: Other, VALUE: Slot}


@dataclass
class Values:
    """Takes values into slots, equal ones into the same."""

    program: Program
    slots: dict[str, object]
    taken: dict[tuple[str, str], str] = field(default_factory=dict)

    def one(self, type_name: str, text: str) -> Operand:
        kind, place = self.placed(type_name, text)
        return OPERANDS[kind](place)

    def placed(self, type_name: str, text: str) -> tuple[str, str]:
        """A name of the policy is part of the shape; any other value goes into a slot."""
        if type_name == STRING and text in self.program.names:
            return NAME, text
        slot = self.taken.get((type_name, text))
        if slot is None:
            slot = self.taken[type_name, text] = self._slot("v", text)
        return OTHER if type_name == STRING else VALUE, slot

    def several(self, texts: tuple[str, ...]) -> str:
        return self._slot("ids", orjson.dumps(texts).decode())

    def _slot(self, prefix: str, value: object) -> str:
        slot = f"{prefix}{len(self.slots)}"
        self.slots[slot] = value
        return slot


class Outline(NamedTuple):
    """A question without its values. Every request makes and hashes one, which is why it is of plain tuples."""

    calls: tuple[tuple[str, tuple[str, ...]], ...]
    variables: tuple[tuple[str, str, str, str], ...]  # name, type, kind, and the name or slot that it is
    outs: tuple[str, ...]


def outline_of(question: Question, values: Values) -> Outline:
    variables = []
    for name, asked in question.variables.items():
        if asked.ids is None:
            kind, place = EVERY, ""
        elif len(asked.ids) == 1 and name not in question.outs:
            kind, place = values.placed(asked.type, asked.ids[0])
        else:
            kind, place = SEVERAL if len(asked.ids) <= FEW else MANY, values.several(asked.ids)
        variables.append((name, asked.type, kind, place))
    return Outline(question.calls, tuple(variables), question.outs)


def root_of(question: Question, values: Values) -> Root:
    """The question without its values, which go into slots."""
    return root_of_outline(outline_of(question, values))


def root_of_outline(outline: Outline) -> Root:
    terms: dict[str, Term] = {name: Var(index, name) for index, name in enumerate(outline.outs)}
    types, givens = {}, []
    for name, types[name], kind, place in outline.variables:
        if kind in OPERANDS:
            terms[name] = OPERANDS[kind](place)
            continue
        term = terms.setdefault(name, Var(len(terms) + 50, name))
        if kind in (SEVERAL, MANY):
            givens.append(Given(term, place, kind == MANY))
    calls = [
        Call(predicate, tuple([types[name] for name in names]), tuple([terms[name] for name in names]))
        for predicate, names in outline.calls
    ]
    return Root(tuple(calls), tuple(givens))
