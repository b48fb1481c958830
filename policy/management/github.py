"""Problems in files as GitHub workflow commands: lines that make GitHub show them beside the code.

::error file=main.polar,line=3,col=7,endLine=3,endColumn=12,title=Policy::unknown type `Rep`
"""

from policy.ground.files import STANDARD_INPUT_SHOWN, Bundle
from policy.language.nodes import spelled_out
from policy.language.source import Problem

_KEPT = "\t\r\n"  # the line ends are escaped, and GitHub shows them
_IN_TEXT = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_IN_PROPERTY = {**_IN_TEXT, ":": "%3A", ",": "%2C"}
TEXT, PROPERTY = str.maketrans(_IN_TEXT), str.maketrans(_IN_PROPERTY)


def problem_line(problem: Problem, bundle: Bundle) -> str:
    part, span = bundle.located(problem.span)
    line, column = part.position(span.start)
    end_line, end_column = part.position(max(span.start, span.end - 1))
    advice = f" ({problem.hint})" if problem.hint else ""
    columns = {"col": column, "endColumn": end_column} if end_line == line else {}
    lines = {"line": line, "endLine": end_line}
    return annotation(problem.severity, f"{problem.message}{advice}", "Policy", part.filename, **lines, **columns)


def annotation(severity: str, message: str, title: str, file: str = "", **place: int) -> str:
    """Return a workflow command; `severity` is error, warning or notice. The standard input is not named as a file."""
    named: dict[str, object] = {"file": file, **place} if file not in ("", STANDARD_INPUT_SHOWN) else {}
    properties = {**named, "title": title}
    told = ",".join(
        f"{name}={spelled_out(str(value), _KEPT).translate(PROPERTY)}" for name, value in properties.items()
    )
    return f"::{severity} {told}::{spelled_out(message, _KEPT).translate(TEXT)}"
