"""Values, facts and rules as HTML that leads to where more is known about them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from checks.asking.question import Asked, Question
from checks.explain.cases import ANY
from checks.explain.explain import ExplainedGoal
from checks.explain.tree import Reason, shown_value
from checks.workbench.addresses import value_url
from facts.validity import since_text, until_text
from policy.pages.highlight import highlighted_lines
from policy.values import STRING, Value

_WORDS = re.compile(r'"[^"]*"|(\w+)')  # of a rule, without what stands in quotes


@dataclass(frozen=True)
class ProofLine:
    """A line of a tree on the page. It opens a list if it has reasons; `closes` are the lists that end after it."""

    reason: Reason
    html: SafeString
    rule_html: SafeString
    bindings: tuple[tuple[str, SafeString], ...]
    closes: range

    @property
    def opens(self) -> bool:
        return bool(self.reason.because)

    @property
    def period_text(self) -> str:
        """Say since when a stored fact is there, or until when a missing one was."""
        period = self.reason.period
        if period is None:
            return ""
        return until_text(period) if self.reason.kind == "missing" else since_text(period)

    @property
    def period_revision(self) -> int | None:
        """Return the revision that `period_text` is about, if that revision is kept."""
        period = self.reason.period
        end = period and (period.until if self.reason.kind == "missing" else period.since)
        return end.revision if end and end.at is not None else None


def page_lines(goal: ExplainedGoal, slug: str) -> list[ProofLine]:
    """Return the lines below the page's heading, which leaves out that the default rule was used."""
    roots = [each for reason in goal.reasons for each in (reason.because if _is_default(reason) else (reason,))]
    walked = [each for root in roots for each in root.lines()]
    depths = [depth for depth, _ in walked[1:]] + [0]
    return [_line(reason, range(depth - following), slug) for (depth, reason), following in zip(walked, depths)]


def _is_default(reason: Reason) -> bool:
    return bool(reason.because) and reason.rule is not None and reason.rule.line is None


def _line(reason: Reason, closes: range, slug: str) -> ProofLine:
    html = atom_html(*reason.atom, slug) if reason.atom else highlighted(reason.text)
    if reason.rule is None:
        return ProofLine(reason, html, SafeString(), (), closes)
    words = set(_WORDS.findall(reason.rule.text))
    mentioned = tuple([(name, value_html(value, slug)) for name, value in reason.bindings if name in words])
    return ProofLine(reason, html, highlighted(reason.rule.text), mentioned, closes)


def highlighted(text: str) -> SafeString:
    return highlighted_lines(" ".join(text.split()))[0]


# ---- values --------------------------------------------------------------------------------------------------------


def value_html(value: Value | None, slug: str) -> SafeString:
    """Return the value as in texts, with a link to its page if it has an identity."""
    text = _text(value)
    address = value_url(slug, value) if value else ""
    return format_html('<a class="value" href="{}">{}</a>', address, text) if address else text


def _text(value: Value | None) -> SafeString:
    """Return the value as in texts; an id is one word, whatever characters it has."""
    shown = shown_value(value)
    if value is None or not shown.startswith(f"{value.type}:"):
        return highlighted_lines(shown)[0]
    return format_html('<span class="type">{}</span>:{}', value.type, shown.removeprefix(f"{value.type}:"))


def atom_html(predicate: str, args: tuple[Value | None, ...], slug: str) -> SafeString:
    shown = format_html_join(", ", "{}", ((value_html(each, slug),) for each in args))
    return format_html('<span class="call">{}</span>({})', predicate, shown)


def question_html(questions: Sequence[Question], slug: str) -> SafeString:
    """Return the call of questions that differ in one type at most, with `_` for what is asked for."""
    ((predicate, names),) = questions[0].calls
    args = [{_value_of(each.variables[name]) for each in questions} for name in names]
    return atom_html(predicate, tuple([each.pop() if len(each) == 1 else None for each in args]), slug)


def _value_of(asked: Asked) -> Value | None:
    if asked.ids is None:
        return None if asked.type == STRING else Value(asked.type, ANY)
    return Value(asked.type, asked.one)
