"""What the passes find wrong, and the advice that goes with it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches

from policy.language.notes import MAX_PROBLEMS, shown
from policy.language.rejection import PolicyRejected, Problem
from policy.language.source import Source, Span

MAX_CANDIDATES = 2_000  # a search among more names costs more than the advice is worth


@dataclass(slots=True)
class Problems:
    """Collected by every pass over one text, so that all of its problems are reported together.

    At `MAX_PROBLEMS` errors the text is rejected at once: nobody reads more, and advice on each takes time.
    """

    source: Source
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def error(self, span: Span, message: str, hint: str = "") -> None:
        problem = Problem(message, span, hint)
        if problem not in self.errors:
            self.errors.append(problem)
        if len(self.errors) >= MAX_PROBLEMS:
            self.reject_errors()

    def warn(self, span: Span, message: str, hint: str = "") -> None:
        self.warnings.append(Problem(message, span, hint, severity="warning"))

    def reject_errors(self) -> None:
        if self.errors:
            raise PolicyRejected(self.source, _sorted(self.errors))

    def sorted_warnings(self) -> tuple[Problem, ...]:
        return _sorted(self.warnings)


def _sorted(problems: list[Problem]) -> tuple[Problem, ...]:
    """Return each problem once, in text order, and not more than anyone reads."""
    unique = dict.fromkeys(sorted(problems, key=lambda problem: (problem.span.start, problem.message)))
    return tuple(unique)[:MAX_PROBLEMS]


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    near = nearest(word, candidates)
    return "" if near is None else f"did you mean {shown(near)}?"


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the name that is most like a word, if one is."""
    names = sorted(set(candidates))[:MAX_CANDIDATES]
    folded = {name.lower(): name for name in reversed(names)}
    close = get_close_matches(word.lower(), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def listed(names: Iterable[str], none: str = "none") -> str:
    """Return the names as text: `a`, `b` and 3 more."""
    names = list(names)
    first = ", ".join(map(shown, names[:5]))
    return f"{first} and {len(names) - 5} more" if len(names) > 5 else first or none
