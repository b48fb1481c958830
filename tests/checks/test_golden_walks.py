"""How questions are planned, as text: each draft, which literal is resolved [in brackets], how, and what comes out.

    pytest tests/checks/test_golden_walks.py --rewrite      # writes the texts anew; read the difference

A draft that several come out of has them below it, further in; the only one that comes out stands right below. Plans
that another one reads come after it.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from checks.engine.plan.draft import Draft
from checks.engine.plan.plan import End, Exit, NonlinearRecursion
from checks.engine.plan.unfold import Outcome
from tests.checks.in_memory import Engine
from tests.checks.plan_questions import numbered, policy_of, question_of
from tests.properties.steps_by_meaning import Made, Record, Taken, recorded

GOLDEN = Path(__file__).parent / "golden_walks"
QUESTIONS = {
    "universal_grants": 'allow(Bot, "read", Organization?)',
    "time_based_access": 'allow(User, "read", Repository?)',
    "every_required_role": 'allow(User, "sign", Document?)',
    "unions": 'allow(User?, "write", Page)',
    "files_and_folders": 'allow(User, "read", File)',
    "managers": 'allow(User, "read_salary", User)',
    "derived_relations": 'allow(User, "read", Repository?)',
    "inherit_unless_overridden": 'allow(User, "read", Folder?)',
    "half_factored": 'allow(User, "read", Folder?)',
    "rounds": 'allow(User, "use", Node)',
    "shared_ids": 'allow(User, "close", Account)',
    "company": 'allow(User, "sign", Doc?)',
    "grants_to_teams": 'allow(User, "read", Repo)',
}
HOW = {
    "Scan": "read",
    "Given": "given",
    "Member": "each",
    "finished": "nothing left to read",
    "IN_PLACE": "in place",
    "EMPTY_PATH": "at once",
    "TESTED": "tested",
    "JOINED": "joined",
    "AFTER_PREFIX": "led to",
    "ENTERED": "entered",
    "JOINED_TO_STATE": "continued",
    "NONLINEAR": "twice",
}


@pytest.mark.parametrize("name", list(QUESTIONS))
def test_questions_are_planned_as_it_was_read(name, golden):
    engine, (question, _) = Engine(policy_of(name)), question_of(QUESTIONS[name])
    with recorded() as record:
        engine.compiled_for(engine.shape([question])[0])
    golden(GOLDEN / name, numbered(f"==== {QUESTIONS[name]}\n" + "".join(text_of(record))))


def text_of(record: Record) -> Iterator[str]:
    walk = Walk(record)
    for made in sorted(record.plans, key=lambda made: int(made.plan.name[1:])):
        yield "\n" + "\n".join(walk.of(made)) + "\n"


class Walk:
    """The steps of a record as lines."""

    def __init__(self, record: Record):
        self.arms = record.arms
        self.steps = {id(each.draft): each for each in record.steps}

    def of(self, made: Made) -> Iterator[str]:
        """The last walk of the plan: another one before it may have shown which states can be in place."""
        plan, graph = made.plan, made.graphs[-1]
        yield f"plan {plan.name}: {plan.form.name.lower()}"
        yield from (f"  no state: {state}" for state in sorted(map(str, graph.enclosing.in_place)))
        yield from self.under(graph.starts, "  ")
        for state, number in graph.explored.goal_tags.items():
            yield f"  state {number}: {state}"
            yield from self.under(self.arms[graph.explored.goals[state]], "    ")
        for draft in self.continued(made):
            yield f"  from answers: {draft}"
            yield from self.under([draft], "    ")

    def continued(self, made: Made) -> list[Draft]:
        """What the last walk went on with from answers."""
        graph = made.graphs[-1]
        known = [*graph.starts, *(draft for goals in graph.explored.goals.values() for draft in self.arms[goals])]
        numbers = set(map(id, known))
        first = max((index for index, draft in enumerate(made.begun) if id(draft) in map(id, graph.starts)), default=0)
        return [draft for draft in made.begun[first:] if id(draft) not in numbers]

    def under(self, outcomes: Sequence[Outcome], indent: str) -> Iterator[str]:
        for each in outcomes:
            if isinstance(each, Draft):
                yield from self.from_draft(self.steps[id(each)], indent)
            else:
                yield f"{indent}{line_of(each)}"

    def from_draft(self, step: Taken, indent: str) -> Iterator[str]:
        if step.settled is None or step.settled.pending:
            yield f"{indent}{line_of_step(step)}"
        yield from self.under(step.outcomes, indent + "  " if len(step.outcomes) > 1 else indent)


def line_of_step(step: Taken) -> str:
    if step.settled is None:
        return f"({', '.join(map(str, step.draft.outs))}) of {' and '.join(map(str, step.draft.pending))}: is false"
    parts = (f"[{each}]" if each is step.literal else str(each) for each in step.settled.pending)
    return f"({', '.join(map(str, step.settled.outs))}) of {' and '.join(parts)}: {HOW[step.kind]}"


def line_of(end: End | NonlinearRecursion) -> str:
    match end:
        case Exit():
            return f"exit {end}"
        case NonlinearRecursion():
            return "takes two answers of its recursion at once"
    return str(end)
