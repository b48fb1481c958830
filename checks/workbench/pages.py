"""The page where questions are asked and answers explained: what is sent to it, and what it says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from django import forms
from django.utils.safestring import SafeString

from checks.asking.advice import advice_on_question
from checks.asking.query import allow
from checks.asking.question import Asked, Question
from checks.asking.snapshot import Snapshot, Tried, snapshot, trial
from checks.explain.cases import ANY
from checks.explain.explain import ExplainedGoal, explain_calls
from checks.explain.tree import Reason, shown_atom, shown_value
from facts.accept import ALL_USED, Unused
from facts.mentioned_ids import known_ids
from facts.notation import fact_from_text, pattern_from_text, value_from_text
from facts.stays import told_since, told_until
from facts.wire import Argument, Fact
from policy import rules
from policy.clock import time_of
from policy.errors import AuthzError, MalformedRequest
from policy.models import PolicyVersion
from policy.moments import LAST_REVISION, Moment, moment_of
from policy.pages.highlight import highlighted_lines
from policy.rules.program import Program
from policy.values import PRIMITIVES, STRING, Value

MOST_ANSWERS = 500  # of a list on the page; the interface has all, in pages
_MOST_VERSIONS = 200
KINDS = (
    ("authorize", "May the actor do this?"),
    ("actions", "What may the actor do?"),
    ("list", "On which resources?"),
)
TIMES = ("%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f")  # as browsers send them
_WORDS = re.compile(r'"[^"]*"|(\w+)')  # of a rule, without what stands in quotes


class QuestionForm(forms.Form):
    """A question to a version; `text` is asked in place of the version's own, without being published."""

    kind = forms.ChoiceField(choices=KINDS)
    version = forms.ModelChoiceField(PolicyVersion.objects.none(), empty_label=None)
    actor = forms.CharField(strip=True)
    action = forms.CharField(strip=True, required=False)
    resource = forms.CharField(strip=True)
    context = forms.CharField(required=False, strip=False)
    revision = forms.IntegerField(required=False, min_value=0, max_value=LAST_REVISION)
    at = forms.DateTimeField(required=False, label="Time", input_formats=TIMES)
    text = forms.CharField(required=False, strip=False)

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        version = self.fields["version"]
        assert isinstance(version, forms.ModelChoiceField)
        version.queryset = PolicyVersion.objects.defer("source").select_related("environment")

    def clean(self) -> dict:
        super().clean()
        sent = self.cleaned_data
        if not self.errors:
            try:
                sent["question"] = _question(sent)
                sent["moment"] = _moment(sent)
            except AuthzError as reason:
                self.add_error(None, reason.message)
        return sent

    def clean_text(self) -> str:
        return self.cleaned_data["text"].replace("\r\n", "\n").replace("\r", "\n")


def _question(sent: dict) -> Question:
    facts = tuple(fact_from_text(line) for line in sent["context"].splitlines() if line.strip())
    if sent["kind"] != "actions" and not sent["action"]:
        raise MalformedRequest("", "name an action")
    action = Asked(STRING) if sent["kind"] == "actions" else Asked(STRING, (_name(sent["action"]),))
    actor = _value(sent["actor"])
    if sent["kind"] == "list":
        return allow(actor, action, Asked(sent["resource"].partition(":")[0]), ("resource",), facts)
    outs = ("action",) if sent["kind"] == "actions" else ()
    return allow(actor, action, _value(sent["resource"]), outs, facts)


def _moment(sent: dict) -> Moment | None:
    """Read of which moment is asked, by the version that is chosen; None for now."""
    if sent["revision"] is not None and sent["at"] is not None:
        raise MalformedRequest("", "name a revision or a time, not both")
    when = sent["at"] if sent["revision"] is None else sent["revision"]
    version = sent["version"]
    return None if when is None else moment_of(version.environment_id, when, version.number)


def _name(text: str) -> str:
    """Read an action with or without its quotes; `*` is any."""
    if text == "*":
        return ANY
    match pattern_from_text(f"name({text})").args if text.startswith('"') else ():
        case (Argument(str(), str() as name),):
            return name
    return text


def _value(text: str) -> Asked:
    """Read a value such as `User:ann`; `User:*` is any."""
    type_name, colon, an_id = text.partition(":")
    if colon and an_id == "*" and type_name not in PRIMITIVES:
        return Asked(type_name, (ANY,))
    found = value_from_text(text)
    return Asked(found.type, (found.id,))


# ---- the answer --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A line of a tree on the page. It opens a list if it has reasons; `closes` are the lists that end after it."""

    reason: Reason
    html: SafeString
    rule_html: SafeString
    bindings: tuple[tuple[str, str], ...]
    closes: range

    @property
    def opens(self) -> bool:
        return bool(self.reason.because)

    @property
    def told(self) -> str:
        """Say since when a stored fact is there, or until when a missing one was."""
        stay = self.reason.stay
        if stay is None:
            return ""
        return told_until(stay) if self.reason.kind == "missing" else told_since(stay)

    @property
    def told_of(self) -> int | None:
        """Return the revision that it tells of, where that one is kept."""
        stay = self.reason.stay
        mark = stay and (stay.until if self.reason.kind == "missing" else stay.since)
        return mark.revision if mark and mark.at is not None else None


@dataclass(frozen=True)
class PageAnswer:
    """An explanation, or the answers of a list, each of which the page can explain."""

    goals: tuple[tuple[ExplainedGoal, list[Line]], ...] = ()
    asked: str = ""
    answers: tuple[str, ...] | None = None
    is_cut: bool = False
    unused: Unused = ALL_USED  # of the context
    advice: tuple[str, ...] = ()  # on an answer that is empty
    moment: str = ""  # that was asked of; nothing where it was now


def answer_for_page(version: PolicyVersion, text: str, question: Question, moment: Moment | None = None) -> PageAnswer:
    then = "" if moment is None else f"revision {moment.revision}, {time_of(moment.at):%Y-%m-%d %H:%M:%S} UTC"
    with _session(version, text, question.context, moment) as session:
        if question.outs:
            rows = session.answers(question)
            shown = tuple("*" if name is None else name for (name,) in rows[:MOST_ANSWERS])
            advice = () if rows else tuple(advice_on_question(session.program, question))
            return PageAnswer((), _shown(question), shown, len(rows) > MOST_ANSWERS, session.unused, advice, then)
        goals = explain_calls(session, question)
    return PageAnswer(tuple((goal, page_lines(goal)) for goal in goals), unused=session.unused, moment=then)


def _session(
    version: PolicyVersion, text: str, context: Sequence[Fact], moment: Moment | None
) -> AbstractContextManager[Snapshot]:
    """Return a session of the version, or of the text in its place."""
    if text:
        return trial(version.environment_id, Tried.of(rules.compile_text(text)), context, moment)
    return snapshot(version.environment_id, version.pk, context, frozenset(), moment)


def _shown(question: Question) -> str:
    """Return the question as text, with `_` for what its answers are."""
    ((predicate, names),) = question.calls
    asked = (question.variables[name] for name in names)
    return shown_atom(predicate, tuple([_shown_value(each) for each in asked]))


def _shown_value(asked: Asked) -> Value | None:
    if asked.ids is None:
        return None if asked.type == STRING else Value(asked.type, ANY)
    return Value(asked.type, asked.ids[0])


def page_lines(goal: ExplainedGoal) -> list[Line]:
    """Return the lines below the page's heading, which leaves out that the default rule was used."""
    roots = [each for reason in goal.reasons for each in (reason.because if _is_default(reason) else (reason,))]
    walked = [each for root in roots for each in root.lines()]
    depths = [depth for depth, _ in walked[1:]] + [0]
    return [_line(reason, range(depth - following)) for (depth, reason), following in zip(walked, depths)]


def _is_default(reason: Reason) -> bool:
    return bool(reason.because) and reason.rule is not None and reason.rule.line is None


def _line(reason: Reason, closes: range) -> Line:
    if reason.rule is None:
        return Line(reason, _html(reason.text), SafeString(), (), closes)
    words = set(_WORDS.findall(reason.rule.text))
    mentioned = tuple([(name, shown_value(value)) for name, value in reason.bindings if name in words])
    return Line(reason, _html(reason.text), _html(reason.rule.text), mentioned, closes)


def _html(text: str) -> SafeString:
    return highlighted_lines(" ".join(text.split()))[0]


# ---- what may be filled in ----------------------------------------------------------------------------------


def suggestions(environment_id: int, program: Program, start: str = "") -> dict[str, list[str]]:
    """Return values for each field: of the policy's types, with ids that stored facts mention."""
    type_name, colon, begun = start.partition(":")
    types = [type_name] if colon else sorted(program.types)
    ids = known_ids(environment_id, types, begun)
    actors = [name for name in types if name in program.types and program.types[name].kind == "actor"]
    return {
        "actors": [f"{name}:{text}" for name in actors for text in ids.get(name, ())],
        "resources": [f"{name}:{text}" for name in types for text in ids.get(name, ())],
        "types": sorted(name for name, each in program.types.items() if each.permissions or each.kind == "resource"),
        "actions": sorted({name for each in program.types.values() for name in each.permissions}),
    }


def versions_to_choose(chosen: PolicyVersion) -> list[PolicyVersion]:
    """Return the latest versions of every environment, and the chosen one."""
    found = list(
        PolicyVersion.objects.defer("source")
        .select_related("environment")
        .order_by("environment__slug", "-number")[:_MOST_VERSIONS]
    )
    return found if chosen in found else [chosen, *found]
