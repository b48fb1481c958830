"""Plans of random questions held against what plans mean, and that against what the rules mean.

The statement of a plan answers, on SQLite, the rows that the plan's oracle says, and they mean what the rules' oracle
says. Neither a database of the service nor its views take part.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from random import Random
from types import SimpleNamespace
from typing import Any

from checks.asking import ask as asking
from checks.asking.by_rows import questions_of
from checks.asking.question import Asked, Question
from checks.engine.compile import AnswerRow, Compiled, Shape, answers_of
from checks.engine.plan import plan as p
from checks.errors import TooComplex, TooMuchRecursion
from facts.wire import Argument, Fact, FactPattern
from policy.errors import AuthzError
from policy.language import parse
from policy.language.source import Source
from policy.rules.program import Program, Signature
from policy.values import STRING, Value
from tests import reference_plans
from tests.checks.in_memory import NOW, Engine
from tests.properties.differences import MODEST, fitted
from tests.properties.questions import (
    Actions,
    Ask,
    Authorize,
    AuthorizeResources,
    Evaluate,
    Explain,
    List,
    Meaning,
    QueryFacts,
    Refused,
    expected,
    meaning,
    values_in,
)
from tests.properties.random_policies import Case
from tests.reference import World, model_of

TABLES = dict[Signature, list[tuple[str, ...]]]
PATIENCE = 2.0  # seconds of planning, and of the oracles


@dataclass(frozen=True)
class Planned:
    """A question's plans, the rows of their statement, and those that their oracle says; then what they mean."""

    case: Case
    ask: Ask
    compiled: Compiled | None  # None: refused before there was a plan
    answered: set[tuple]
    meant: set[tuple]
    said: Meaning
    wanted: Meaning

    @property
    def faults(self) -> Iterator[str]:
        if self.answered != self.meant:
            missing, extra = self.meant - self.answered, self.answered - self.meant
            yield f"the statement lacks the rows {missing} of its plan, and adds {extra}"
        if self.said != self.wanted and not self._is_modest:
            yield f"the plan says {self.said}, the rules {self.wanted}"

    @property
    def _is_modest(self) -> bool:
        """Refused by what one rule says, though another one grants it all."""
        if not isinstance(self.said, Refused) or isinstance(self.wanted, Refused):
            return False
        return any(words in self.said.message for words in MODEST)

    def __str__(self) -> str:
        facts = [f"  {predicate}({', '.join(map(str, row))})" for predicate, row in self.case.facts]
        context = [f"  with {predicate}({', '.join(map(str, row))})" for predicate, row in self.case.context]
        plans = [str(root) for root in self.compiled.roots] if self.compiled else []
        return "\n".join([self.case.policy, *facts, *context, str(self.ask), *plans, *self.faults])


# ---- other values ------------------------------------------------------------------------------------------------


def about_others(case: Case, rng: Random, times: int) -> Case:
    """The case with its questions about other values of the same types too, which takes no more planning."""
    known: dict[str, list[str]] = defaultdict(list)
    for value in case.ids:
        known[value.type].append(value.id)
    more = [replace(each, ask=_other(each.ask, known, rng)) for _ in range(times) for each in case.questions]
    return replace(case, questions=tuple(dict.fromkeys((*case.questions, *more))))


def _other(ask: Ask, known: dict[str, list[str]], rng: Random) -> Ask:
    def one(value: Value) -> Value:
        return replace(value, id=rng.choice(known[value.type])) if value.type in known else value

    match ask:
        case Authorize(actor, action, resource):
            return Authorize(one(actor), action, one(resource))
        case Actions(actor, resource):
            return Actions(one(actor), one(resource))
        case List(actor, action, kind):
            return List(one(actor), action, kind)
        case Evaluate(calls, constraints):
            ids = {name: ids and tuple(one(Value(kind, text)).id for text in ids) for name, kind, ids in constraints}
            return Evaluate(calls, tuple((name, kind, ids[name]) for name, kind, _ in constraints))
    return ask


# ---- questions --------------------------------------------------------------------------------------------------


def planned(case: Case, only_known: bool) -> Iterator[Planned]:
    """The case's questions, one after the other; `only_known`: of facts that are stored, as the service plans."""
    case = fitted(case)
    engine = Engine(case.policy, patience=PATIENCE)
    compiled: dict[Shape, Compiled] = {}
    stored = by_signature(case.facts)
    for signature, rows in stored.items():
        engine.store_all(signature, rows)
    knows = stored.__contains__ if only_known else lambda signature: True
    policy = parse(Source(case.policy))
    for with_context in (False, True):
        context = [fact for fact in case.context if fact not in case.facts] if with_context else []
        asks = [each.ask for each in case.questions if each.with_context == with_context]
        asks = [each for each in asks if not isinstance(each, Explain)]
        if asks:
            mentioned = [value for each in asks for value in values_in(each)]
            world = World.of(policy, [*case.facts, *context], mentioned, NOW)
            model = model_of(policy, [*case.facts, *context], world)
            for each in asks:
                said = _asked(engine, compiled, each, stored, context, knows)
                if said is not None:
                    made, answered, meant, result = said
                    result = meaning(each, result, world)
                    yield Planned(case, each, made, answered, meant, result, expected(each, model, world))


def _asked(engine: Engine, known_plans: dict, ask: Ask, stored: TABLES, context: list, knows) -> tuple | None:
    """The plans, their statement's rows, their oracle's, and the answer that these make. None where limits are met."""
    facts = [Fact(*each) for each in context]
    questions = put(ask, engine.rules.program)
    if not questions:
        return None, set(), set(), answer_to(ask, questions, [])
    shape, slots = engine.shape(questions, facts)
    try:
        compiled = known_plans.get(shape) or known_plans.setdefault(shape, engine.compiled_for(shape, knows))
        answered = engine.rows(compiled, slots)
    except (TooComplex, TooMuchRecursion, sqlite3.OperationalError):  # of what one statement may say
        return None
    except AuthzError as refused:
        return None, set(), set(), Refused(str(refused))
    known = reference_plans.Known(stored, by_signature(context), slots)
    meant = reference_plans.rows_of(compiled.roots, shape.width, known)
    if compiled.statement is None:
        answered = [] if shape.width else [(0,)]
    assert not shape.width or len(answered) == len(set(answered)), "no row comes twice"
    try:
        result = answer_to(ask, questions, rows_of_each(compiled, meant))
    except AuthzError as refused:
        result = Refused(str(refused))
    return compiled, set(answered), meant, result


def by_signature(facts: Iterable[tuple[str, tuple]]) -> TABLES:
    found: TABLES = defaultdict(list)
    for predicate, row in facts:
        found[Signature(predicate, tuple(value.type for value in row))].append(tuple(value.id for value in row))
    return dict(found)


def put(ask: Ask, program: Program) -> list[Question]:
    """The question as the service asks it: several ones, for several types."""
    match ask:
        case Authorize(actor, action, resource):
            return _known(program, [asking.allow(_one(actor), Asked(STRING, (action,)), _one(resource))])
        case Actions(actor, resource):
            return _known(program, [asking.allow(_one(actor), Asked(STRING), _one(resource), ("action",))])
        case List(actor, action, kind):
            named = Asked(STRING, (action,))
            return _known(program, [asking.allow(_one(actor), named, Asked(kind), ("resource",))])
        case AuthorizeResources(actor, action, resources):
            kinds = {kind: tuple(dict.fromkeys(v.id for v in resources if v.type == kind)) for kind in _types(ask)}
            named = Asked(STRING, (action,))
            each = [asking.allow(_one(actor), named, Asked(kind, ids), ("resource",)) for kind, ids in kinds.items()]
            return _known(program, each)
        case Evaluate(calls, constraints):
            variables = {name: Asked(kind, ids) for name, kind, ids in constraints}
            outs = tuple(name for name, asked in variables.items() if asked.ids is None or len(asked.ids) != 1)
            return _known(program, [Question(calls, variables, outs)])
        case QueryFacts(predicate, pattern):
            session: Any = SimpleNamespace(program=program)
            return questions_of(session, FactPattern(predicate, tuple(Argument(*each) for each in pattern)), ())
    raise AssertionError(ask)


def _known(program: Program, questions: list[Question]) -> list[Question]:
    return [each for each in questions if all(map(program.knows, each.types))]


def _one(value: Value) -> Asked:
    return Asked(value.type, (value.id,))


def _types(ask: AuthorizeResources) -> list[str]:
    return list(dict.fromkeys(value.type for value in ask.resources))


def rows_of_each(compiled: Compiled, rows: set[tuple]) -> list[list[AnswerRow]]:
    """The answers to each of the questions, out of the statement's rows."""
    if not compiled.shape.width:
        return [[()] for (truth,) in rows if truth]
    found: list[list[AnswerRow]] = [[] for _ in compiled.roots]
    for row in answers_of(rows) if compiled.is_guarded else rows:
        index, own = (int(row[0]), row[1:]) if len(compiled.roots) > 1 else (0, row)
        found[index].append(own)
    return found


def answer_to(ask: Ask, questions: list[Question], rows: list[list[AnswerRow]]) -> Any:
    """The answer as `questions.meaning` takes it."""
    match ask:
        case Authorize():
            return any(rows)
        case Actions() | List():
            return ["*" if text is None else text for own in rows for (text,) in own]
        case AuthorizeResources(_, _, resources):
            kinds = [question.variables["resource"].type for question in questions]
            found = {(kind, text) for kind, own in zip(kinds, rows) for (text,) in own}
            return [value for value in resources if (value.type, value.id) in found]
        case Evaluate():
            return [dict(cells) for cells in _cells(questions, rows, lambda name, asked, text: (name, text))]
        case QueryFacts():
            return list(_cells(questions, rows, lambda name, asked, text: (asked.type, text)))


def _cells(questions: list[Question], rows: list[list[AnswerRow]], cell) -> dict[tuple, None]:
    """Each answer once, with a cell for each variable."""
    found: dict[tuple, None] = {}
    for question, own in zip(questions, rows):
        for row in own:
            ids = {name: asked.ids[0] for name, asked in question.variables.items() if asked.ids}
            ids |= dict(zip(question.outs, row))
            found[tuple(cell(name, asked, ids[name]) for name, asked in question.variables.items())] = None
    return found


# ---- what plans are made of ----------------------------------------------------------------------------------------


def forms_in(each: Planned) -> set[str]:
    """The kinds of sources, conditions and plans that the question's plans have."""
    found: set[str] = set()
    for root in each.compiled.roots if each.compiled else ():
        guarded = [part for own in root.guarded for part in (*own.exit.branch.sources, *own.tests)]
        found |= {"guarded"} if guarded else set()
        for plan in every_plan(root.plan):
            found |= set(_forms_of_plan(plan)) | set(map(_form_of, (*parts_of(plan), *guarded)))
    return found


def every_plan(plan: p.Plan) -> Iterator[p.Plan]:
    yield plan
    for inner in dict.fromkeys(part.plan for part in parts_of(plan) if isinstance(part, (p.Holds, p.DerivedTable))):
        yield from every_plan(inner)


def parts_of(plan: p.Plan) -> list[p.PlanSource | p.Condition]:
    return [part for branch in plan.branches() for part in (*branch.sources, *branch.conditions)]


def _forms_of_plan(plan: p.Plan) -> Iterator[str]:
    yield f"plan: {plan.form.name}"
    if plan.is_plain_path:
        yield "plan: a plain path"


def _form_of(part: p.PlanSource | p.Condition) -> str:
    match part:
        case p.FactScan(store=store):
            return f"FactScan {store}"
        case p.DerivedTable(variant=p.Variant(wild, guards, same)):
            words = {"wild": wild, "guarded": guards, "same": same}
            return " ".join(("DerivedTable", *(word for word, there in words.items() if there)))
        case p.Holds(_, negated):
            return "Holds not" if negated else "Holds"
    return type(part).__name__
