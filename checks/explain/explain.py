"""Explain a decision, and write the explanation as JSON and text."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from django.utils.module_loading import import_string

from checks.asking.advice import advice, warning_on
from checks.asking.ask import Asker
from checks.asking.question import Asked, Question, check_predicate, question_about
from checks.asking.snapshot import Snapshot, active_snapshot
from checks.engine.compile import AnswerRow
from checks.explain.cases import ANY, Goal
from checks.explain.search import proof_of
from checks.explain.tree import Reason, RuleText, failures_of, shown_atom, tree_of, with_periods
from facts.accept import ALL_USED, Unused
from facts.history import RevisionMark, ValidityPeriod
from policy.active import NOTHING_SEEN, Seen
from policy.core.clock import short_text_of, text_of
from policy.moments import Moment
from policy.publishing import LineName, line_named
from policy.rules.program import Program
from policy.values import Value

# ---- explain ------------------------------------------------------------------------------------------------------
# Why a question has its answer: the use case behind the endpoint, the command and the workbench.
#
# The question has a value for each of its variables. A call that holds is proved (`search`); for one that does not, the
# failure of each rule is found (`failures`). Decision and explanation use one session, and so the same facts.
#
# An explanation may take three times as long as the decision, plus a bit. After that it ends with what was found, says
# that it is incomplete, and says nothing about what was not examined.

TIMES = 3  # time limit of an explanation, as a multiple of the decision's time, which it includes
MORE = 0.2  # plus this many seconds of CPU time


@dataclass(frozen=True, slots=True)
class ExplainedGoal:
    """One goal with its proof if it holds, else with the failures of the rules that could have granted it.

    `note` says which words of the goal the policy does not have, or that no rule matches it.
    """

    text: str
    holds: bool
    reasons: tuple[Reason, ...] = ()
    note: str = ""

    @property
    def gap(self) -> str:
        return gap_of((self,))


@dataclass(frozen=True, slots=True)
class Explanation:
    version: int | None  # the policy version's number
    goals: tuple[ExplainedGoal, ...]
    unused: Unused = ALL_USED  # of the context
    revision: int = 0  # of the facts
    version_id: int | None = None  # primary key of the same version
    seen: Seen = NOTHING_SEEN  # the environment's position then
    warning: str = ""  # about words of the question that the policy does not have
    would_allow: object = None  # as JSON: changes of facts that would allow what is denied, if these were asked for
    valid_while: None = None  # explanations are not cached

    @property
    def allowed(self) -> bool:
        return all(goal.holds for goal in self.goals)

    @property
    def gap(self) -> str:
        return gap_of(self.goals)


def gap_of(goals: Sequence[ExplainedGoal]) -> str:
    """Return a sentence on why the explanation of the goals is incomplete; empty if it is complete."""
    every = (each for goal in goals for reason in goal.reasons for _, each in reason.lines())
    notes = dict.fromkeys([each.note for each in every if each.kind == "unexplained"])
    return f"the explanation is incomplete: {'; '.join(notes)}" if notes else ""


WAYS = "checks.analysis.questions.ways_to_allow"  # imported when they are first asked for


def explain(asker: Asker, question: Question, moment: Moment | None = None, with_ways: bool = False) -> Explanation:
    """Explain the answer by the active policy, or as of a moment by that moment's policy.

    `with_ways`: also search for changes of facts that would allow what is denied.
    """
    with active_snapshot(asker, question.context, question.mentioned, moment) as session:
        goals = explain_calls(session, question)
        version_id = session.policy if isinstance(session.policy, int) else None
        warning = warning_on(session.program, (question,))
        is_denied = with_ways and not all(goal.holds for goal in goals)
        would_allow = import_string(WAYS)(session, question).to_json() if is_denied else None
        return Explanation(
            session.cases.number, goals, session.unused, session.revision, version_id, session.seen, warning,
            would_allow=would_allow,
        )  # fmt: skip


def explain_calls(session: Snapshot, question: Question) -> tuple[ExplainedGoal, ...]:
    """Explain each call of a question that has a value for each variable."""
    return _explained(session, goals_of(question, ()))


def explain_goal(session: Snapshot, goal: Goal) -> ExplainedGoal:
    (explained,) = _explained(session, [goal])
    return explained


def _explained(session: Snapshot, goals: Sequence[Goal]) -> tuple[ExplainedGoal, ...]:
    """Decide all goals, then explain each, within a time limit that depends on how long the decisions took."""
    began = session.spent
    decisions = [_decided(session, goal) for goal in goals]
    with session.within((TIMES - 1) * (session.spent - began) + MORE):
        found = [_with_reasons(session, goal, each) for goal, each in zip(goals, decisions)]
    reasons = iter(with_periods(session, [reason for each in found for reason in each.reasons]))
    return tuple([replace(each, reasons=tuple(islice(reasons, len(each.reasons)))) for each in found])


def _decided(session: Snapshot, goal: Goal) -> ExplainedGoal:
    """Decide the goal; `note` says which words of it the policy does not have."""
    text, program = shown_atom(goal.predicate, goal.args), session.program
    unknown = "; ".join(advice(program, goal.predicate, [(arg.type, arg.id) for arg in goal.args]))
    if not all(program.knows(arg.type) for arg in goal.args):
        return ExplainedGoal(text, False, note=unknown)
    check_predicate(program, goal.predicate)
    holds = session.holds(question_of_goal(goal))
    return ExplainedGoal(text, holds, note="" if holds else unknown)


def _with_reasons(session: Snapshot, goal: Goal, decided: ExplainedGoal) -> ExplainedGoal:
    program = session.program
    if decided.holds:
        return replace(decided, reasons=(tree_of(program, proof_of(session, [goal]), goal, session.now),))
    if not all(program.knows(arg.type) for arg in goal.args):
        return decided
    failures = failures_of(session, goal)
    return replace(decided, reasons=failures, note=decided.note or ("" if failures else _no_rule(program, goal)))


def question_of_goal(goal: Goal) -> Question:
    return question_about(goal.predicate, [Asked(arg.type, (arg.id,)) for arg in goal.args])


def goals_of(question: Question, row: AnswerRow) -> list[Goal]:
    """Return the goals that a row of the answer stands for: one for each call."""
    texts = {name: asked.ids[0] if asked.ids else None for name, asked in question.variables.items()}
    texts |= dict(zip(question.outs, row))
    values = {name: Value(asked.type, texts[name] or ANY) for name, asked in question.variables.items()}
    return [Goal(predicate, tuple([values[name] for name in names])) for predicate, names in question.calls]


def _no_rule(program: Program, goal: Goal) -> str:
    if program.accepts(goal.predicate, tuple([arg.type for arg in goal.args])):
        return "no matching rule or fact"
    return "no rule matches this request"


# ---- JSON ---------------------------------------------------------------------------------------------------------


def explanation_to_json(explanation: Explanation, is_query: bool) -> dict[str, object]:
    """Return the response body of /explain; for a query, a list of its calls, each explained like a decision."""
    head: dict[str, object] = {"allowed": explanation.allowed, "policy_version": explanation.version}
    if explanation.unused:
        head["unused_context_facts"] = list(explanation.unused.sentences)
    if explanation.gap:
        head |= {"complete": False, "message": explanation.gap}
    if explanation.would_allow:
        head["would_allow"] = explanation.would_allow
    goals = [_goal_to_json(goal) for goal in explanation.goals]
    return {**head, "calls": goals} if is_query else {**head, **goals[0]}


def _goal_to_json(goal: ExplainedGoal) -> dict[str, object]:
    """Return the goal as JSON, in which failures of rules are called obstacles."""
    reasons = [_reason_to_json(each) for each in goal.reasons]
    return {
        "goal": goal.text,
        "allowed": goal.holds,
        "proof": reasons[0] if goal.holds else None,
        "obstacles": [] if goal.holds else reasons,
        "note": goal.note,
    }


def _reason_to_json(reason: Reason) -> dict[str, object]:
    """Return the reason as JSON, without empty members."""
    found: dict[str, object] = {"kind": reason.kind, "text": reason.text}
    if reason.atom:
        predicate, args = reason.atom
        found["fact"] = {"predicate": predicate, "args": [value_to_json(arg) for arg in args]}
    if reason.source:
        found["source"] = reason.source
    if reason.rule:
        found["rule"] = {"text": reason.rule.text, "line": reason.rule.line}
    if reason.bindings:
        found["bindings"] = {name: value_to_json(value) for name, value in reason.bindings}
    if reason.met:
        found["met"] = list(reason.met)
    if reason.note:
        found["note"] = reason.note
    if reason.period:
        found |= _period_to_json(reason.period)
    if reason.because:
        found["because"] = [_reason_to_json(each) for each in reason.because]
    return found


def explanation_from_json(raw: dict[str, Any]) -> Explanation:
    """Return the explanation of one decision in a response body, by what its text needs."""
    reasons = tuple(map(_reason_from_json, [raw["proof"]] if raw["proof"] else raw["obstacles"]))
    goal = ExplainedGoal(raw["goal"], raw["allowed"], reasons, raw["note"])
    return Explanation(raw["policy_version"], (goal,))


def _reason_from_json(raw: dict[str, Any]) -> Reason:
    rule = RuleText(raw["rule"]["text"], raw["rule"]["line"]) if "rule" in raw else None
    because = tuple(map(_reason_from_json, raw.get("because", ())))
    parts = {"source": raw.get("source", ""), "met": tuple(raw.get("met", ())), "note": raw.get("note", "")}
    return Reason(raw["kind"], raw["text"], rule=rule, because=because, **parts)


def _period_to_json(period: ValidityPeriod) -> dict[str, object]:
    """Return the times from and until which the fact was stored, as in all responses; null if not recorded."""
    found: dict[str, object] = {"since": _mark_to_json(period.since)}
    if period.until:
        found["until"] = _mark_to_json(period.until)
    return found if period.expires_at is None else {**found, "expires_at": short_text_of(period.expires_at)}


def _mark_to_json(mark: RevisionMark) -> dict[str, object]:
    if mark.at is None:
        known: dict[str, object] = {"revision": mark.revision, "at": None, "author": None, "kind": None}
        return known if mark.before is None else known | {"before": mark.before}
    return {"revision": mark.revision, "at": text_of(mark.at), "author": mark.author, "kind": mark.kind}


def value_to_json(value: Value) -> dict[str, str | None]:
    """Return the value as JSON; an id of null is any id."""
    return {"type": value.type, "id": None if value.id == ANY else value.id}


# ---- text -----------------------------------------------------------------------------------------------------

_Paint = Callable[[str, str], str]  # takes a color and a text
_GREEN, _RED, _DIM, _PLAIN = "\033[32m", "\033[31m", "\033[2m", "\033[0m"
_GOOD, _BAD = ("fact", "rule", "part", "comparison", "absence", "again", "unexplained"), ("missing", "false", "present")


def explanation_to_text(
    explanation: Explanation, filename: str, is_coloured: bool, given: str = "context fact"
) -> Iterator[str]:
    def paint(colour: str, text: str) -> str:
        return f"{colour}{text}{_PLAIN}" if is_coloured and text else text

    for goal in explanation.goals:
        verdict = paint(_GREEN, "allowed") if goal.holds else paint(_RED, "denied")
        version = f"policy version {explanation.version}" if explanation.version else "no policy"
        yield f"{verdict}  {goal.text}  {paint(_DIM, f'({version})')}"
        yield from lines_of_goal(goal, _place_in(filename), paint, given)
    for sentence in (*explanation.unused.sentences, *([explanation.gap] if explanation.gap else [])):
        yield paint(_RED, sentence)


def _place_in(filename: str) -> LineName:
    # A text made of several files has line numbers of its own, which match no file.
    return lambda line: f"{filename}:{line}" if filename and ", " not in filename else line_named(line)


def lines_of_goal(
    goal: ExplainedGoal, place: LineName, paint: _Paint = lambda colour, text: text, given: str = "context fact"
) -> Iterator[str]:
    """Yield why the goal holds or not, without the verdict. `given` is what context facts are called."""
    if goal.note:
        yield goal.note
    for reason in goal.reasons:
        yield from _drawn(reason, place, paint, given)


def _drawn(root: Reason, place: LineName, paint: _Paint, given: str) -> Iterator[str]:
    """Yield the lines of a tree depth first, each with the strokes that connect it to those above."""
    waiting = [(root, "", "", "")]
    while waiting:
        reason, before, branch, below = waiting.pop()
        first, *others = _lines(reason, place, given)
        yield f"{before}{branch}{_marked(reason, first, paint)}"
        trunk = before + below
        stem = "│ " if reason.because else "  "
        for other in others:
            yield f"{trunk}{stem}{paint(_DIM, other)}"
        last = len(reason.because) - 1
        following = [
            (each, trunk, "└─ ", "   ") if index == last else (each, trunk, "├─ ", "│  ")
            for index, each in enumerate(reason.because)
        ]
        waiting += reversed(following)


def _marked(reason: Reason, text: str, paint: _Paint) -> str:
    if reason.kind in _BAD:
        return f"{paint(_RED, '✗')} {text}"
    return f"{paint(_GREEN, '✓')} {text}" if reason.kind in _GOOD else f"{paint(_RED, '·')} {text}"


def _lines(reason: Reason, place: LineName, given: str) -> list[str]:
    """Return the line of a reason, and any lines below it."""
    text = reason.text
    match reason.kind:
        case "rule" | "part":
            kind = "stated at" if reason.source == "policy" else "by"
            return [text, f"{kind} {_located(reason.rule, place)}"]
        case "obstacle":
            return [_located(reason.rule, place), *(f"holds: {met}" for met in reason.met)]
        case "fact":
            remarks = ["stored fact" if reason.source == "stored" else given, reason.period_text]
            return [f"{text}  {', '.join(filter(None, remarks))}"]
    return [f"{text}  {'; '.join(filter(None, [reason.remark, reason.period_text]))}".rstrip()]


def _located(rule: RuleText | None, place: LineName) -> str:
    """Return the rule's location and its text."""
    assert rule is not None, "reasons that name a rule have one"
    if rule.line is None:
        return f"default rule: {rule.text}"
    return f"{place(rule.line)}: {rule.text}"
