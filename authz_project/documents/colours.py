"""Samples -> HTML, with a class for each kind of word: Polar by its own lexer, and the others lightly."""

import re
from collections.abc import Iterator

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from policy.pages.highlight import highlighted_lines

_PYTHON = """and as assert async await break class continue def del elif else except finally for from if import in is
lambda None not or pass raise return True False try while with yield"""
_SQL = """ALL AND AS ASC BETWEEN BY CASE CAST COLLATE CREATE CROSS DELETE DESC DISTINCT ELSE END EXISTS FALSE FROM
GROUP HAVING IN INSERT INTO IS JOIN KEY LEFT LIKE LIMIT NOT NULL ON OR ORDER PRIMARY RECURSIVE SELECT SET TABLE THEN
TRUE UNION UPDATE VALUES WHEN WHERE WITH"""
_SHELL = "case do done elif else esac export fi for if in then while"
_SCRIPT = """async await break case catch class const continue default defer else err export for from func function go
if import interface let map new nil null package range return string struct switch throw true false try type undefined
var"""


def _words(text: str) -> str:
    return rf"(?P<keyword> \b(?:{'|'.join(text.split())})\b(?!-))"


_STRINGS = r"""(?P<string> "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )"""
_NUMBER = r"(?P<number> (?<![\w.-])-?\d+(?:\.\d+)?\b )"
_CALL = r"(?P<call> \b[a-zA-Z_]\w*(?=\() )"
_PATTERNS = {
    "python": (
        r"(?P<comment> \#[^\n]* )",
        r'''(?P<string> [frb]?"""[\s\S]*?""" | [frb]?"(?:[^"\\\n]|\\.)*" | [frb]?'(?:[^'\\\n]|\\.)*' )''',
        _words(_PYTHON), _NUMBER, _CALL,
    ),
    "sh": (
        r"(?P<comment> (?<!\S)\#[^\n]* )",
        r"""(?P<string> "(?:[^"\\]|\\.)*" | '[^']*' )""",
        r"(?P<constant> \$\{?\w+\}? )",
        r"(?P<type> (?<=\s)--?[a-zA-Z][\w-]* )",
        _words(_SHELL),
        r"(?P<call> (?:^|(?<=&&\ )|(?<=\|\ ))[\w./-]+(?=\s|$) )",
    ),
    "sql": (r"(?P<comment> --[^\n]* )", r"""(?P<string> '(?:[^']|'')*' )""", _words(_SQL), _NUMBER, _CALL),
    "json": (
        r'''(?P<call> "(?:[^"\\\n]|\\.)*"(?=\s*:) )''',
        r'''(?P<string> "(?:[^"\\\n]|\\.)*" )''',
        _words("true false null"), _NUMBER,
    ),
    "yaml": (
        r"(?P<comment> (?<!\S)\#[^\n]* )",
        _STRINGS,
        r"(?P<call> ^[ ]*[^\s#:{][^\n#:]*(?:\([^)\n]*\))?(?=:(?:\s|$)) )",
        _words("true false null"), _NUMBER,
    ),
    "ini": (r"(?P<comment> ^[\#;][^\n]* )", r"(?P<keyword> ^\[[^\]\n]*\] )", r"(?P<call> ^\w+(?==) )"),
    "nginx": (r"(?P<comment> \#[^\n]* )", r"(?P<constant> \$\w+ )", r"(?P<keyword> ^[ ]*[a-z_]+(?=[ ]) )"),
    "js": (r"(?P<comment> //[^\n]* )", _STRINGS.replace("(?P<string>", "(?P<string> `[^`]*` |"),
           _words(_SCRIPT), _NUMBER, _CALL),
    "problems": (r"(?P<number> ^\d+(?=:) )", r"(?P<string> `[^`\n]*` )"),
}  # fmt: skip
_PATTERNS |= {"go": _PATTERNS["js"], "jsonl": _PATTERNS["json"], "ask": _PATTERNS["sh"]}
_PATTERNS |= dict.fromkeys(("zed", "perm", "cedar"), _PATTERNS["js"])  # models of peers: their comments and strings
_LEXERS = {name: re.compile("|".join(parts), re.VERBOSE | re.MULTILINE) for name, parts in _PATTERNS.items()}
# A file that is written in shell, whose name says of what language it is.
_HEREDOC = re.compile(r"> *\S+?(?P<suffix>\.\w+)? <<'(?P<mark>\w+)'[^\n]*\n(?P<body>[\s\S]*?)^(?P=mark)$", re.MULTILINE)
_OF_FILE = {".polar": "polar", ".py": "python", ".sql": "sql", ".yaml": "yaml", ".json": "json"}


def coloured(text: str, language: str) -> SafeString:
    """Return the text in HTML; nothing in it is lost, and all of it is escaped."""
    match language:
        case "polar":
            return mark_safe("\n".join(highlighted_lines(text)) + "\n")  # noqa: S308  every piece is escaped
        case "facts":
            return coloured(text, "polar")
        case "sh":
            return mark_safe("".join(_shell(text)))  # noqa: S308  likewise
    return mark_safe("".join(_lightly(text, language)))  # noqa: S308  likewise


def _shell(text: str) -> Iterator[str]:
    """Colour a shell's text, and the files that are written in it, in their own language."""
    end = 0
    for found in _HEREDOC.finditer(text):
        yield from _lightly(text[end : found.start("body")], "sh")
        yield coloured(found["body"], _language_of(found["suffix"], found["body"]))
        end = found.end("body")
    yield from _lightly(text[end:], "sh")


def _language_of(suffix: str | None, text: str) -> str:
    return "sh" if text.startswith("#!/bin/sh") else _OF_FILE.get(suffix or "", "")


def _lightly(text: str, language: str) -> Iterator[str]:
    lexer, end = _LEXERS.get(language), 0
    for found in lexer.finditer(text) if lexer else ():
        yield escape(text[end : found.start()])
        yield f'<span class="{found.lastgroup}">{escape(found[0])}</span>'
        end = found.end()
    yield escape(text[end:])
