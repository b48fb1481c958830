"""The oracle of drafts: the rows that a branch stands for while it is built, and those that it ends in.

What is read and tested so far means what the oracle of plans says, what is still to be resolved what that of clauses
says. So a step of planning keeps the meaning where what comes of it has, together, the rows of what it was taken from.
A jump means the rows of its state's call, a continuation what can be resolved from each of them on: whatever states
come to. Columns of rows around a plan, and those of its goals and answers, may have any value.

    drafts = Drafts(known, meaning)
    drafts.rows(draft, {})
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from checks.engine.plan.draft import Draft
from checks.engine.plan.plan import (
    Answers,
    Branch,
    Condition,
    Continuation,
    DerivedTable,
    End,
    Exit,
    Goals,
    Holds,
    Jump,
    Plan,
    PlanSource,
    Same,
    State,
    Tagged,
)
from checks.engine.rules.clauses import (
    FRESH,
    Call,
    Cmp,
    Col,
    Const,
    GoalKey,
    Literal,
    Member,
    Neg,
    Operand,
    Scan,
    Term,
    Var,
    mapped,
    terms_of,
    variables_of,
)
from tests import reference
from tests.reference_plans import Known, Tables, compared, tables_of, taken
from tests.reference_rules import Meaning, Row

Env = dict[Col, object]
NOBODYS = (reference.UNMENTIONED, reference.NEVER_A_NUMBER)  # values that nothing mentions: in a plan, the empty id


@dataclass(frozen=True)
class Drafts:
    """What drafts mean where facts and values are `known`, and calls have the `meaning` that their clauses have."""

    known: Known
    meaning: Meaning

    def rows(self, draft: Draft, env: Env, tables: Tables | None = None) -> set[Row]:
        """The draft's rows; without tables, columns of goals and answers have the values that `env` gives them."""
        branch = draft.branch if tables else without_own_tables(draft.branch)
        pending = tuple(map(without_fresh, draft.pending))
        columns = {term for term in terms_in(pending, draft.outs) if isinstance(term, Col)}
        found = {
            tuple((column, _text(each[column], column)) for column in columns)
            for each in taken(branch, env, tables or Tables(), self.known)
        }
        rows = self.meaning.rows_from(pending, draft.outs, list(map(dict, found)))
        return {tuple(FRESH.id if text in NOBODYS else text for text in row) for row in rows}

    def rows_of_plan(self, plan: Plan, env: Env) -> set[Row]:
        """The rows of the plan, its goals and answers the least that seeds, moves and arms lead to."""
        tables = tables_of(plan, env, self.known)
        return set().union(*(self.rows(draft_of(end), env, tables) for end in plan.exits))


# ---- ends are drafts that have more to be resolved ------------------------------------------------------------------


def draft_of(outcome: Draft | End) -> Draft:
    """The draft that says what the end stands for."""
    match outcome:
        case Exit(branch, outs, guards):
            return Draft(guards, outs, branch.sources, branch.conditions)
        case Jump(branch, state, keys):
            return Draft(*asked_of(state, keys), branch.sources, branch.conditions)
        case Continuation(branch, state, keys, results, rest, outs):
            (call,), answers = asked_of(state, keys)
            names: dict[Term, Term] = {own: Var(-1 - own.number, type=own.type) for own in variables_of((call,))}
            names |= dict(zip(answers, results))
            own = mapped(call, lambda term: names.get(term, term))
            return Draft((own, *rest), outs, branch.sources, branch.conditions)
    return outcome


def asked_of(state: State, keys: Iterable[Operand]) -> tuple[tuple[Literal, ...], tuple[Term, ...]]:
    """What the state asks, entered with these keys."""
    by_index = dict(enumerate(keys))

    def entered(term: Term) -> Term:
        return by_index[term.index] if isinstance(term, GoalKey) else term

    return tuple(mapped(each, entered) for each in (state.call, *state.rest)), tuple(map(entered, state.outs))


# ---- columns that may have any value --------------------------------------------------------------------------------


def free_columns(draft: Draft) -> set[Col]:
    """Columns that the draft's own sources do not have: of rows around its plan, or of the plan's goals and answers."""
    branch = without_own_tables(draft.branch)
    own = {source.number for source in branch.sources}
    mentioned = {*terms_in(draft.pending, draft.outs), *(term for each in _parts(branch) for term in _terms(each))}
    return {term for term in mentioned if isinstance(term, Col) and term.source not in own}


def without_own_tables(branch: Branch) -> Branch:
    sources = tuple(each for each in branch.sources if not isinstance(each, (Goals, Answers)))
    return Branch(sources, tuple(each for each in branch.conditions if not isinstance(each, Tagged)))


def terms_in(literals: Iterable[Literal], outs: Iterable[Term]) -> list[Term]:
    return [*(term for literal in literals for term in terms_of(literal)), *outs]


def _parts(branch: Branch) -> tuple[PlanSource | Condition, ...]:
    return (*branch.sources, *branch.conditions)


def _terms(part: PlanSource | Condition) -> Iterable[Term]:
    match part:
        case Holds(plan) | DerivedTable(plan=plan):
            return plan.fixed
        case Same() | Member() | Cmp():
            return compared(part)
    return ()


# ---- a value that nothing mentions ----------------------------------------------------------------------------------


def without_fresh(literal: Literal) -> Literal:
    """With the value of the world that nothing mentions, in place of the empty id."""
    match literal:
        case Neg(call):
            inner = without_fresh(call)
            assert isinstance(inner, Call)
            return Neg(inner)
        case Call(types=types, args=args):
            return replace(literal, args=_known(types, args))
        case Scan(signature, args):
            return replace(literal, args=_known(signature.types, args))
    return literal


def _known(types: Iterable[str], args: Iterable[Term]) -> tuple[Term, ...]:
    named = zip(types, args)
    return tuple(Const(reference.unmentioned(kind).id) if arg == FRESH else arg for kind, arg in named)


def _text(value: object, column: Col) -> str:
    return reference.unmentioned(column.type).id if value == FRESH.id else str(value)
