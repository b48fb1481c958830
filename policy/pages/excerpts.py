"""Problems and failed tests as pages show them: beside the lines that they are about."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from policy.language.source import Problem, Source, Span
from policy.pages.highlight import highlighted_lines, marked_line
from policy.testing import TestReport

AROUND = 2  # lines before and after
_CODE = (("", ""), (mark_safe("<code>"), mark_safe("</code>")))
MAX_WIDTH = 300  # characters of a line


@dataclass(frozen=True, slots=True)
class ExcerptLine:
    number: int
    html: SafeString
    is_meant: bool


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A message and the lines that it is about; `start` and `end` are its place in the text."""

    severity: str  # error, warning or failure
    message: SafeString
    hint: SafeString
    line: int
    column: int
    start: int
    end: int
    lines: tuple[ExcerptLine, ...]


def excerpts_of_problems(source: Source, problems: Iterable[Problem]) -> list[Excerpt]:
    return [_excerpt(source, one.severity, one.message, one.hint, one.span) for one in problems]


def excerpts_of_failures(source: Source, report: TestReport) -> list[Excerpt]:
    """Return an excerpt for each assertion that failed."""
    found = []
    for test in report.tests:
        for one in test.assertions:
            if not one.passed:
                span = span_of_line(source, one.line)
                found.append(_excerpt(source, "failure", f"test `{test.name}`: {one.message}", "", span))
    return found


def _excerpt(source: Source, severity: str, message: str, hint: str, span: Span) -> Excerpt:
    line, column = source.position(span.start)
    last = source.position(len(source.text))[0]
    numbers = range(max(1, line - AROUND), min(last, line + AROUND) + 1)
    lines = tuple(_line(source, number, number == line, column - 1, span) for number in numbers)
    end = max(span.end, span.start + 1)
    return Excerpt(severity, _with_code(message), _with_code(hint), line, column, span.start, end, lines)


def _with_code(message: str) -> SafeString:
    """Return the message as HTML, with `<code>` in place of backticks; unpaired backticks stay."""
    pieces = message.split("`")
    if len(pieces) % 2 == 0:
        return format_html("{}", message)
    return format_html_join(
        "", "{}{}{}", ((_CODE[index % 2][0], piece, _CODE[index % 2][1]) for index, piece in enumerate(pieces))
    )


def _line(source: Source, number: int, is_meant: bool, before: int, span: Span) -> ExcerptLine:
    text = source.line_text(number)
    if not is_meant:
        html = highlighted_lines(text[:MAX_WIDTH])
        return ExcerptLine(number, html[0], False)
    start = max(0, before - MAX_WIDTH // 2)
    shown = text[start : start + MAX_WIDTH] or " "
    left = min(before - start, len(shown) - 1)
    return ExcerptLine(number, marked_line(shown, left, left + max(1, span.end - span.start)), True)


def span_of_line(source: Source, line: int) -> Span:
    text = source.line_text(line)
    start = source.line_start(line) + len(text) - len(text.lstrip())
    return Span(start, start + max(1, len(text.strip())))
