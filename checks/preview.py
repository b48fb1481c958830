"""What a policy that is not published yet would change: its tests, the facts it has no use for, and decisions.

Decisions are compared over questions that are given, or that stored facts bring to mind: the actors and resources
that one fact names together. Both policies are asked in the same way, over the same facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from checks.explain import Explained, explained_goal, question_of
from checks.proof import Goal
from checks.scene import Scene, scene, trial
from checks.tree import shown_atom
from facts.audit import Unused, unused_signatures
from facts.browse import page_of
from facts.models import Signature as Filed
from facts.notation import fact_from_text
from facts.signatures import types_of_text
from policy import publishing
from policy.errors import AuthzError
from policy.publishing import Draft
from policy.rules.program import Program
from policy.values import STRING, Value

MAX_QUESTIONS = 2_000
MAX_EXPLAINED = 50  # decisions that differ; of the others, only which
_FACTS_OF_A_KIND = 100


@dataclass(frozen=True, slots=True)
class Flip:
    """A decision that would be another one. `before` and `after` are explained for the first of them only."""

    text: str
    is_allowed: bool  # by the new policy
    before: Explained | None = None
    after: Explained | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    draft: Draft
    unused: tuple[Unused, ...]
    asked: int
    is_cut: bool  # more questions were at hand than are asked
    flips: tuple[Flip, ...]
    refused: tuple[str, ...]  # questions that one of the policies does not answer, and why


def preview(environment_id: int, text: str, filename: str, goals: list[Goal] | None = None) -> Preview:
    """Nothing is stored. `PolicyRejected` where the text is no policy."""
    drafted = publishing.draft(text, filename, force=True)
    active = publishing.active_version(environment_id)
    unused = tuple(unused_signatures(environment_id, drafted.program))
    with scene(environment_id, active.pk if active else None, (), _types(goals or ())) as before:
        found = list(dict.fromkeys(goals if goals is not None else _drawn(before, drafted)))
        asked = found[:MAX_QUESTIONS]
        with trial(environment_id, drafted.program, ()) as after:
            flips, refused = _compared(before, after, asked)
    return Preview(drafted, unused, len(asked), len(found) > len(asked), tuple(flips), tuple(refused))


def goals_of_text(text: str) -> list[Goal]:
    """One a line, as `allow(User:ann, "read", Repo:acme)`; empty lines and those that begin with # do not count."""
    lines = (line.strip() for line in text.splitlines())
    facts = [fact_from_text(line) for line in lines if line and not line.startswith("#")]
    return [Goal(fact.predicate, fact.args) for fact in facts]


# ---- comparing -----------------------------------------------------------------------------------------------


def _compared(before: Scene, after: Scene, goals: list[Goal]) -> tuple[list[Flip], list[str]]:
    flips: list[Flip] = []
    refused: list[str] = []
    for goal in goals:
        text = shown_atom(goal.predicate, goal.args)
        if after.is_late:
            return flips, [*refused, f"{text} and all after it: comparing takes longer than {after.patience:g} seconds"]
        try:
            answers = [_holds(each, goal) for each in (before, after)]
            if answers[0] != answers[1]:
                told = (before, after) if len(flips) < MAX_EXPLAINED else ()
                flips.append(Flip(text, answers[1], *(explained_goal(each, goal) for each in told)))
        except AuthzError as reason:
            refused.append(f"{text}: {reason.message}")
    return flips, refused


def _holds(asked: Scene, goal: Goal) -> bool:
    """A predicate that a policy does not have holds for nothing."""
    if goal.predicate not in asked.program.predicates and goal.predicate != "allow":
        return False
    return asked.holds(question_of(goal))


# ---- questions that facts bring to mind ------------------------------------------------------------------------


def _drawn(before: Scene, drafted: Draft) -> Iterator[Goal]:
    """Of each kind of fact some, and of each of them what its actor may do with what it names."""
    programs = (before.program, drafted.program)
    seen: set[tuple[Value, Value]] = set()
    actors: dict[Value, None] = {}
    resources: dict[Value, None] = {}
    for filed in Filed.objects.filter(environment_id=before.environment_id).order_by("predicate", "types"):
        if before.is_late:
            break
        if {*types_of_text(filed.types)} <= {STRING}:
            continue
        for each in page_of([filed]).facts[:_FACTS_OF_A_KIND]:
            args = each.fact.args
            actors.update(dict.fromkeys(arg for arg in args if _is_actor(programs, arg)))
            resources.update(dict.fromkeys(arg for arg in args if _actions(programs, arg)))
            seen.update((who, what) for who in args for what in args if _is_actor(programs, who) and who != what)
    pairs = dict.fromkeys(pair for pair in sorted(seen) if _actions(programs, pair[1]))
    pairs.update(dict.fromkeys(_crossed(list(actors), list(resources))))
    for who, what in pairs:
        for action in _actions(programs, what):
            yield Goal("allow", (who, Value(STRING, action), what))


def _crossed(actors: list[Value], resources: list[Value]) -> Iterator[tuple[Value, Value]]:
    """Actors and resources in turns, each with another one every time."""
    for shift in range(1, 8):
        for index, what in enumerate(resources):
            if actors:
                yield actors[(index * 7 + shift) % len(actors)], what


def _is_actor(programs: Iterable[Program], value: Value) -> bool:
    return any(value.type in each.types and each.types[value.type].kind == "actor" for each in programs)


def _actions(programs: Iterable[Program], value: Value) -> list[str]:
    """What the policies let be done with values of the type."""
    found = (each.types[value.type].permissions for each in programs if value.type in each.types)
    return list(dict.fromkeys(name for names in found for name in names))


def _types(goals: Iterable[Goal]) -> frozenset[str]:
    return frozenset(arg.type for goal in goals for arg in goal.args)
