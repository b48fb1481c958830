"""The words that people read: phrases that a reader has to translate, and what stands in their place.

Read are templates, scripts, string literals of the program, examples, files for deployment, and the documents. Code,
comments and docstrings are not.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import ROOT

PROGRAMS = ("templates/**/*.html", "templates/**/*.js", "editor/src/*.js", "**/*.py")
APPS = ("authz_project", "checks", "facts", "localsql", "policy")
# Regular expressions of what is not to be written -> what to write instead.
BANNED = {
    r"may somebody do something": "Check access",
    r"ask, and be told why": "Check",
    r"worth trying": "Try these",
    r"is it well\?": "Health",
    r"[>\"`](?:what would change|who had access)[<\"`]": "Preview impact, Access review",
    r"how much is there\?": "Stored facts",
    r"what changed lately": "Recent changes",
    r"of use to the policy|without use|has (?:no|a) use for": "used by the policy, unused facts",
    r"may the actor do this|on which resources\?|who may do this\?": "Check, Actions, Resources, Actors",
    r"stood in the way|no such fact|nor does it follow": "Why it was denied, no matching fact or rule",
    r"what grants what in": "Policy diagram",
    r"lines lead from": "Arrows show what grants what",
    r"its tests, run now|ask by this text|go on from there|ask by version": "Check against this draft, Continue",
    r"one a line": "one per line",
    r"do all but": "Validate and run tests, but do not publish (dry run)",
    r"leave out what can be no": "Skip invalid rows and report them",
    r"again and again, after": "Repeat at this interval",
    r"of which more is to go": "Skip patterns where more than this share would be deleted",
    r"nobody is there to be asked": "Refusing to delete without confirmation",
    r"is there already|left as it is": "already exists; not overwritten",
    r"is not asked as of": "not supported with `as_of`",
    r"one of the policies refuses": "Rejected by one of the policies",
    r"may open \{?\w+\}? files": "too few file descriptors",
    r"what we missed in them": "What sets it apart",
    r"^#+ mends$": "Fixed",
    r"answers in your own database|in step with your databases": "Local SQL, Syncing data",
    r"moving here|policies in your editor": "Migrating, Editor support",
    r"no rule is about this|who asks first": "No rule matches this request",
    r"address can be kept": "You can bookmark or share the URL",
    r"name a moment|the fact is for good": "Choose a start time or revision, Leave empty for no expiry",
    r"case counts": "case-sensitive",
    r"good for:|good for nothing": "scopes",
    r"add it, and another|load it<": "Save and add another",
    r"is no port": "Port must be between 1 and 65535",
    r"not prepared": "Run `authz serve` or `authz migrate`",
    r"the batch is applied|no such path|the rule that is there by default": "Batch applied, Not found",
    r"it is this version's|every row that is named": "Schema: up to date",
    r"any name leads to|nobody writes down": "any Host header is accepted, decisions are not logged",
    r"secret of logins|production wants|laid out anew|never behind": "recommended for production, up to date",
    r"a type without an id": "argument 2 has a type but no id",
    r"says? at its head": "Instructions are at the top of the file",
    r"is the active policy already|is active already": "already active",
    r"still to come": "in the future",
    r"cannot be used any more": "no longer compiles",
    r"something went wrong here": "internal server error",
    r"by somebody else": "by another user",
    r"all but some": "all values except some",
    r"ha(?:s|ve) (?:no|an) equal here": "is not supported",
    r"\bis no (?:url|subject|time|number|id|json|yaml|file|option|text|object|relationship|actor|array)\b":
        "is not a …",
    r"stands? (?:without|in double) quotes|stands? inside a block": "must be quoted, belongs inside a block",
    r"alone is (?:not )?a condition|a list is not a value": "is not a condition, is not allowed here",
    r"asks for itself|negate recursively": "recursion through `not`, depends on itself",
    r"gives \S+ (?:a|no) value": "unbound variable",
    r"if (?:it|that) is meant": "if this is intended",
    r"so it may be anything|so it stands for every": "so it matches every value",
    r"stands here as": "is used as … here",
    r"there is another": "already exists, duplicate",
    r"can be no facts": "invalid rows",
    r"are asked for;?$": "are required",
    r"means nothing here|has no end on its line|this comment has no end": "is not allowed here, unterminated",
    r"is to be (?:a|true)\b": "must be",
    r"; known are": "; use one of",
    r"take (?:it|these tuples) away|and leave it out\b": "remove it",
    r"wait for it in vain|keep somebody from something|worked out here": "affects, may restrict access, is computed",
    r"nobody knows what|nobody can ask": "unknown, not supported",
    r"much as you know|whoever signs in|where all ways come together": "plain words for what an example shows",
    r"questions_a_minute|rows_answered|answers_kept|loads_under_way": "names of metrics as Prometheus has them",
    r"whose id begins with|an argument of \{?\w+\}? whose": "an argument of type … whose id starts with",
    r"no access contains|\{\} in total": "No results contain, {} results",
    r"carried over": "converted from, not imported",
    r"\d\d:\d\d utc\b|%h:%m\}? utc": "ISO 8601: 2026-11-03T14:02Z",
    r"compiled and asked": "whether policies compile and answer",
    r"answered, whatever|that are there\.\"": "all status codes, running",
}  # fmt: skip
ANY = re.compile("|".join(f"(?:{each})" for each in BANNED), re.IGNORECASE | re.MULTILINE)
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "authz_project" / "CHANGELOG.md",
    *(ROOT / "authz_project" / "docs").glob("*.md"),
]


def files() -> Iterator[Path]:
    for app in APPS:
        for pattern in (
            *PROGRAMS,
            "**/examples.json",
            "examples/worlds/*.polar",
            "examples/worlds/*.toml",
            "deploy/**/*",
        ):
            yield from (
                each for each in (ROOT / app).glob(pattern) if each.is_file() and "node_modules" not in each.parts
            )


def literals(source: str) -> str:
    """The string literals of a module, with `{}` for what is computed; its docstrings are left out."""
    tree = ast.parse(source)
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            match node.body[:1]:
                case [ast.Expr(ast.Constant(str()) as docstring)]:
                    skipped.add(docstring)
        elif isinstance(node, ast.JoinedStr):
            skipped.update(node.values)
        elif isinstance(node, ast.Assert) and node.msg is not None:
            skipped.update(ast.walk(node.msg))
    found = []
    for node in ast.walk(tree):
        if node in skipped:
            continue
        match node:
            case ast.Constant(str() as text):
                found.append(text)
            case ast.JoinedStr(values):
                found.append("".join(each.value if isinstance(each, ast.Constant) else "{}" for each in values))
    return "\n".join(found)


def said(path: Path) -> str:
    text = path.read_text()
    return literals(text) if path.suffix == ".py" else text


def banned_in(text: str) -> list[str]:
    return sorted({" ".join(found[0].split()) for found in ANY.finditer(re.sub(r"[ \t]*\n[ \t]*(?=[a-z])", " ", text))})


@pytest.mark.parametrize("app", APPS)
def test_no_phrase_has_to_be_translated(app):
    found = {str(path.relative_to(ROOT)): banned for path in files() if app in path.relative_to(ROOT).parts[:1]
             if (banned := banned_in(said(path)))}  # fmt: skip
    assert not found, f"see tests/test_words.py for what to write: {found}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_no_phrase_of_the_documents_has_to_be_translated(path):
    assert not banned_in(path.read_text())


def test_the_phrases_are_found():
    assert banned_in("{% block trail %}&rsaquo; What stood\n  in the way{% endblock %}") == ["stood in the way"]
    assert banned_in(literals('def f():\n    """Is it well?"""\n    return f"{a} is there already"')) == [
        "is there already"
    ]
