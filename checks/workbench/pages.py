"""The page where questions are asked and answers explained: what is sent to it, and what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from django import forms
from django.utils.safestring import SafeString

from checks.asking.advice import advice_on_question
from checks.asking.ask import allow
from checks.asking.question import Asked, Question
from checks.asking.snapshot import Snapshot, snapshot, trial
from checks.engine.answers import Row
from checks.explain.bindings import ANY
from checks.explain.explain import Explained, explained
from checks.explain.tree import Node, shown_atom, shown_value
from facts.known_ids import known_ids
from facts.notation import fact_from_text, pattern_from_text, value_from_text
from facts.unused import ALL_USED, Unused
from facts.wire import Argument, Fact
from policy import rules
from policy.errors import AuthzError, MalformedRequest
from policy.highlight import highlighted_lines
from policy.models import PolicyVersion
from policy.rules.program import Program
from policy.values import PRIMITIVES, STRING, Value

MOST_ANSWERS = 500  # of a list on the page; the interface has all, in pages
_MOST_VERSIONS = 200
KINDS = (
    ("authorize", "May the actor do this?"),
    ("actions", "What may the actor do?"),
    ("list", "On which resources?"),
)
_WORDS = re.compile(r'"[^"]*"|(\w+)')  # of a rule; what stands in quotes is none


class QuestionForm(forms.Form):
    """`text` takes the place of the version's own, without being published."""

    kind = forms.ChoiceField(choices=KINDS)
    version = forms.ModelChoiceField(PolicyVersion.objects.none(), empty_label=None)
    actor = forms.CharField(strip=True)
    action = forms.CharField(strip=True, required=False)
    resource = forms.CharField(strip=True)
    context = forms.CharField(required=False, strip=False)
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
                sent["question"] = question_of(sent)
            except AuthzError as reason:
                self.add_error(None, reason.message)
        return sent

    def clean_text(self) -> str:
        return self.cleaned_data["text"].replace("\r\n", "\n").replace("\r", "\n")


def question_of(sent: dict) -> Question:
    facts = tuple(fact_from_text(line) for line in sent["context"].splitlines() if line.strip())
    if sent["kind"] != "actions" and not sent["action"]:
        raise MalformedRequest("", "name an action")
    action = Asked(STRING) if sent["kind"] == "actions" else Asked(STRING, (_name(sent["action"]),))
    actor = _value(sent["actor"])
    if sent["kind"] == "list":
        return allow(actor, action, Asked(sent["resource"].partition(":")[0]), ("resource",), facts)
    outs = ("action",) if sent["kind"] == "actions" else ()
    return allow(actor, action, _value(sent["resource"]), outs, facts)


def _name(text: str) -> str:
    """An action with or without its quotes; `*` is any."""
    if text == "*":
        return ANY
    match pattern_from_text(f"name({text})").args if text.startswith('"') else ():
        case (Argument(str(), str() as name),):
            return name
    return text


def _value(text: str) -> Asked:
    """`User:ann`; `User:*` is any."""
    type_name, colon, an_id = text.partition(":")
    if colon and an_id == "*" and type_name not in PRIMITIVES:
        return Asked(type_name, (ANY,))
    found = value_from_text(text)
    return Asked(found.type, (found.id,))


# ---- what came of it ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A line of a tree on the page. It opens a list if it has reasons; `closes` are the lists that end after it."""

    node: Node
    html: SafeString
    rule_html: SafeString
    bindings: tuple[tuple[str, str], ...]
    closes: range

    @property
    def opens(self) -> bool:
        return bool(self.node.because)


@dataclass(frozen=True)
class Answered:
    """What the page says: an explanation, or the answers of a list with a way to explain each."""

    goals: tuple[tuple[Explained, list[Line]], ...] = ()
    asked: str = ""
    answers: tuple[str, ...] | None = None
    is_cut: bool = False
    unused: Unused = ALL_USED  # of the context
    advice: tuple[str, ...] = ()  # on an answer that is empty

    @property
    def allowed(self) -> bool:
        return all(goal.holds for goal, _ in self.goals)


def answered(version: PolicyVersion, text: str, question: Question) -> Answered:
    with stage(version, text, question.context) as found:
        if question.outs:
            rows = found.answers(question)
            shown = tuple(map(_shown, rows[:MOST_ANSWERS]))
            advice = () if rows else tuple(advice_on_question(found.program, question))
            return Answered((), _asked(question), shown, len(rows) > MOST_ANSWERS, found.unused, advice)
        goals = explained(found, question)
    return Answered(tuple((goal, lines_of(roots_of(goal))) for goal in goals), unused=found.unused)


def _shown(row: Row) -> str:
    return "*" if row[0] is None else row[0]


def _asked(question: Question) -> str:
    """The question, with `_` for what its answers are."""
    ((predicate, names),) = question.calls
    asked = (question.variables[name] for name in names)
    return shown_atom(predicate, tuple([_asked_value(each) for each in asked]))


def _asked_value(asked: Asked) -> Value | None:
    if asked.ids is None:
        return None if asked.type == STRING else Value(asked.type, ANY)
    return Value(asked.type, asked.ids[0])


def roots_of(goal: Explained) -> tuple[Node, ...]:
    """What the page's heading leaves to say: not that the default rule was used."""
    roots = (goal.proof,) if goal.proof else goal.obstacles
    return tuple(node for root in roots for node in (root.because if _is_default(root) else (root,)))


def _is_default(node: Node) -> bool:
    return bool(node.because) and node.rule is not None and node.rule.line is None


def lines_of(roots: tuple[Node, ...]) -> list[Line]:
    walked = [each for root in roots for each in root.lines()]
    depths = [depth for depth, _ in walked[1:]] + [0]
    return [_line(node, range(depth - following)) for (depth, node), following in zip(walked, depths)]


def _line(node: Node, closes: range) -> Line:
    if node.rule is None:
        return Line(node, _html(node.text), SafeString(), (), closes)
    words = set(_WORDS.findall(node.rule.text))
    mentioned = tuple([(name, shown_value(value)) for name, value in node.bindings if name in words])
    return Line(node, _html(node.text), _html(node.rule.text), mentioned, closes)


def _html(text: str) -> SafeString:
    return highlighted_lines(" ".join(text.split()))[0]


@contextmanager
def stage(version: PolicyVersion, text: str, context: Sequence[Fact]) -> Iterator[Snapshot]:
    """The snapshot of the version, or of the text in its place."""
    if text:
        with trial(version.environment_id, rules.compile_text(text), context) as found:
            yield found
    else:
        with snapshot(version.environment_id, version.pk, context, frozenset()) as found:
            yield found


# ---- what may be filled in ----------------------------------------------------------------------------------


def suggestions(environment_id: int, program: Program, start: str = "") -> dict[str, list[str]]:
    """Values for each field: of the policy's types, with ids that stored facts mention."""
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
    """The latest versions of every environment, and the chosen one."""
    found = list(
        PolicyVersion.objects.defer("source")
        .select_related("environment")
        .order_by("environment__slug", "-number")[:_MOST_VERSIONS]
    )
    return found if chosen in found else [chosen, *found]
