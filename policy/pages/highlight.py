"""Show policies as HTML: syntax highlighting, problems next to their lines, and diffs."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher, unified_diff

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from policy import publishing
from policy.language.parser import CONTEXTUAL, NAME, NAMES, RESERVED, Word, words_in
from policy.language.source import Problem, Source, Span
from policy.publishing import Coverage, RecordedResults, TestOutcome, TestReport, line_named
from policy.rules.program import Program

# ---- Diffs of two policies, for pages and for terminals -----------------------------------------------------------

CONTEXT = 3  # lines of context around a change


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """A line of a diff: kept, added or removed, with its number in the texts that have it; or a gap."""

    kind: str  # kept, added, removed, gap
    before: int | None
    after: int | None
    text: str

    @property
    def sign(self) -> str:
        return {"kept": " ", "added": "+", "removed": "-"}[self.kind]


def difference(before: str, after: str) -> list[DifferenceRow]:
    """Return the changed lines with `CONTEXT` lines around them; an empty list if the texts are equal."""
    old, new = lines_of(before), lines_of(after)
    rows: list[DifferenceRow] = []
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT):
        if rows or group[0][1]:
            rows.append(DifferenceRow("gap", None, None, ""))
        for operation in group:
            rows.extend(_rows(operation, old, new))
    return [] if all(row.kind == "kept" for row in rows) else rows


def lines_of(text: str) -> list[str]:
    """Return the lines, and mark a missing line end to make it visible: `a\\nb` -> `a`, `b (no line end)`."""
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], lines[-1] + " (no line end)"]


def _rows(operation: tuple, old: list[str], new: list[str]) -> Iterator[DifferenceRow]:
    kind, start, end, other_start, other_end = operation
    if kind == "equal":
        for offset in range(end - start):
            yield DifferenceRow("kept", start + offset + 1, other_start + offset + 1, old[start + offset])
        return
    for index in range(start, end):
        yield DifferenceRow("removed", index + 1, None, old[index])
    for index in range(other_start, other_end):
        yield DifferenceRow("added", None, index + 1, new[index])


def unified(before: str, after: str, name_before: str, name_after: str) -> Iterator[str]:
    """Yield the lines of the diff in unified format, as `diff -u` prints it."""
    return unified_diff(lines_of(before), lines_of(after), name_before, name_after, n=CONTEXT, lineterm="")


# ---- syntax highlighting ------------------------------------------------------------------------------------------
# Policy text -> lines of HTML, with a class for each kind of word. The text need not be a valid policy.

_WORDS = "|".join(map(re.escape, sorted(RESERVED, key=len, reverse=True)))
_CLASSES = {
    "COMMENT": "comment", "STRING": "string", "AT_NAME": "constant", "NOW": "constant", "INTEGER": "number",
    **dict.fromkeys(RESERVED.values(), "keyword"),
}  # fmt: skip
# A word that is a keyword by position: `resource Repo {`, `global "admin"`, `roles = [`; not `allow(actor, …`.
_OPENS = re.compile(rf"""\s*\{{ | \s+(?:"|(?!(?:{_WORDS})\b){NAME})""", re.VERBOSE)
_IS_SET = re.compile(r"\s*=")
_IS_CALLED = re.compile(r"\s*\(")
_LISTS = ("roles", "permissions", "relations")


def highlighted_lines(text: str) -> list[SafeString]:
    """Return the HTML of each line of the text, without the line ends."""
    lines: list[list[str]] = [[]]
    for kind, piece in _pieces(text):
        first, *others = piece.split("\n")
        lines[-1].append(_span(kind, first))
        lines.extend([_span(kind, other)] for other in others)
    if text.endswith("\n"):
        lines.pop()
    return [mark_safe("".join(line)) for line in lines]  # noqa: S308  every piece is escaped


def marked_line(text: str, start: int, end: int) -> SafeString:
    """Return a line as HTML, marked from `start` to `end`. It is cut before it is escaped: no `&lt;` is split."""
    pieces = []
    offset = 0
    for kind, piece in _pieces(text):
        for left, right, is_marked in _cut(piece, start - offset, end - offset):
            span = _span(kind, piece[left:right])
            pieces.append(f"<mark>{span}</mark>" if is_marked else span)
        offset += len(piece)
    return mark_safe("".join(pieces))  # noqa: S308  every piece is escaped


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield the whole text in pieces, each preceded by its CSS class; the class is empty for plain text."""
    end = 0
    for word in words_in(text):
        kind = _class_of_name(text, word) if word.kind in NAMES else _CLASSES.get(word.kind)
        if kind:
            if word.start > end:
                yield "", text[end : word.start]
            yield kind, word.text
            end = word.end
    yield "", text[end:]


def _class_of_name(text: str, word: Word) -> str:
    name, end = word.text, word.end
    if (name in CONTEXTUAL and _OPENS.match(text, end)) or (name in _LISTS and _IS_SET.match(text, end)):
        return "keyword"
    if name[0].isupper():
        return "type"
    return "call" if _IS_CALLED.match(text, end) else ""


def _cut(piece: str, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Return the bounds of the parts before, inside and after a range, without empty parts; True for inside."""
    left, right = max(0, min(start, len(piece))), max(0, min(end, len(piece)))
    parts = ((0, left, False), (left, right, True), (right, len(piece), False))
    return ((first, last, is_marked) for first, last, is_marked in parts if first < last)


def _span(kind: str, text: str) -> str:
    return f'<span class="{kind}">{escape(text)}</span>' if kind and text else escape(text)


# ---- Problems and failed tests as pages show them: next to their lines --------------------------------------------

AROUND = 2  # lines before and after
_LINE_WIDTH = 300  # characters of a line


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A message and the lines that it is about; `start` and `end` are offsets in the text."""

    severity: str  # error, warning or failure
    message: str
    hint: str
    line: int
    column: int
    start: int
    end: int
    lines: tuple[tuple[int, SafeString, bool], ...]  # number, HTML, and whether the message begins there
    explanation: str = ""  # of a failed assertion


def excerpts_of_problems(source: Source, problems: Iterable[Problem]) -> list[Excerpt]:
    return [_excerpt(source, one.severity, one.message, one.hint, one.span) for one in problems]


def excerpts_of_failures(source: Source, report: TestReport) -> list[Excerpt]:
    """Return an excerpt for each failed assertion."""
    found = []
    for test in report.tests:
        for one in test.assertions:
            if not one.passed:
                span = span_of_line(source, one.line)
                excerpt = _excerpt(source, "failure", f"test `{test.name}`: {one.message}", "", span)
                found.append(replace(excerpt, explanation="\n".join(one.explanation(line_named))))
    return found


def _excerpt(source: Source, severity: str, message: str, hint: str, span: Span) -> Excerpt:
    line, column = source.position(span.start)
    last = source.position(len(source.text))[0]
    numbers = range(max(1, line - AROUND), min(last, line + AROUND) + 1)
    shown = [(number, number == line) for number in numbers]
    lines = tuple((number, _line(source, number, is_meant, column - 1, span), is_meant) for number, is_meant in shown)
    end = max(span.end, span.start + 1)
    return Excerpt(severity, message, hint, line, column, span.start, end, lines)


def _line(source: Source, number: int, is_meant: bool, before: int, span: Span) -> SafeString:
    text = source.line_text(number)
    if not is_meant:
        return highlighted_lines(text[:_LINE_WIDTH])[0]
    start = max(0, before - _LINE_WIDTH // 2)
    shown = text[start : start + _LINE_WIDTH] or " "
    left = min(before - start, len(shown) - 1)
    return marked_line(shown, left, left + max(1, span.end - span.start))


def span_of_line(source: Source, line: int) -> Span:
    text = source.line_text(line)
    start = source.line_start(line) + len(text) - len(text.lstrip())
    return Span(start, start + max(1, len(text.strip())))


# ---- trial --------------------------------------------------------------------------------------------------------
# Results of running a version's tests again, for pages: before it is activated, or on request.

MOST_SHOWN = 200  # passing tests, and unexercised rules
MOST_FAILURES = 50
_RULE_WIDTH = 160  # characters of a rule
SECONDS = 8.0  # time limit for measuring coverage


@dataclass(frozen=True)
class TestResults:
    """The results of the tests and, on request, their coverage."""

    figures: RecordedResults
    tests: tuple[TestOutcome, ...] = ()
    failures: list[Excerpt] = field(default_factory=list)
    untested: str = ""  # why the tests did not complete
    coverage: Coverage | None = None
    missing: tuple[tuple[int, SafeString], ...] = ()  # line and text of rules that no test exercises
    is_covering: bool = False

    @property
    def is_good(self) -> bool:
        return not self.failures and not self.untested

    @property
    def hidden_failures(self) -> int:
        return sum(len(test.failures) for test in self.tests) - len(self.failures)

    @property
    def hidden_missing(self) -> int:
        return len(self.coverage.missing) - len(self.missing) if self.coverage else 0


def trial_of(program: Program, covering: bool = False) -> TestResults:
    drafted = publishing.tried(program)
    coverage = publishing.coverage(program, SECONDS) if covering and not drafted.untested else None
    report = None if drafted.untested else drafted.report
    failures = excerpts_of_failures(program.source, drafted.report)[:MOST_FAILURES]
    missing = coverage.missing[:MOST_SHOWN] if coverage else ()
    return TestResults(
        RecordedResults.of_run(len(program.tests), report, coverage),
        drafted.report.tests,
        failures,
        drafted.untested,
        coverage,
        tuple(_rule(program.source, span) for span in missing),
        covering,
    )


def _rule(source: Source, span: Span) -> tuple[int, SafeString]:
    text = source.on_one_line(span)
    shown = text if len(text) <= _RULE_WIDTH else f"{text[: _RULE_WIDTH - 1]}…"
    return source.position(span.start)[0], highlighted_lines(shown)[0]
